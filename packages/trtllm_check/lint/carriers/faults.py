"""What is wrong with a text of another language before any command in it starts: a rule, its place and its words."""

from typing import NamedTuple

from trtllm_check.lint.shell.words import Word


class FormFault(NamedTuple):
    """One finding of a carrier. ``known``: what the rule's texts want; ``source``: instead of the rule's."""

    rule: str
    place: Word
    form: str = ""
    known: tuple[tuple[str, str], ...] = ()
    file: str = ""
    source: str = ""
