"""Drafts of findings from the rulebook, and the data of the families: ``rules/<family>.yml``."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from serving_base.yaml_files import read_yaml
from trtllm_check.lint.commands.invocations import Invocation
from trtllm_check.lint.report.drafts import Draft, Edit
from trtllm_check.lint.shell.words import Word
from trtllm_check.rules import rule

DATA_DIR = Path(__file__).parent / "rules"


def drafts(
    release: str,
    id_: str,
    place: Word,
    *,
    form: str = "",
    edits: tuple[Edit, ...] = (),
    invocation: Invocation | None = None,
    file: str = "",
    **known: Any,
) -> Iterator[Draft]:
    """The rule's draft at ``place``, with ``known`` put into its texts; none where it does not apply to the release."""
    entry = rule(id_).entry(release, form)
    if entry is None:
        return
    known = {"release": release, **known}
    yield Draft(
        id_,
        entry.severity,
        place,
        message=entry.message.format(**known),
        why=entry.why.format(**known),
        source=entry.source,
        edits=edits,
        action=entry.fix.format(**known),
        invocation=invocation,
        file=file,
    )


@cache
def rule_data(family: str) -> dict[str, Any]:
    """What the functions of a family know as data."""
    content: dict[str, Any] = read_yaml(DATA_DIR / f"{family}.yml")
    return content
