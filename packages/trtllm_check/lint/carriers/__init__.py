"""What carries commands to a shell or a container, or tells a cloud what to start: a module for each language."""

from importlib import import_module

from trtllm_check.lint.carriers.script import Carried
from trtllm_check.lint.shell.words import Word, as_written

__all__ = ["CARRIERS", "Carried", "carried"]

CARRIERS = {
    "dockerfile": "dockerfile",
    "yaml": "yaml_files",
    "makefile": "makefile",
    "python": "python_code",
    "notebook": "notebooks",
    "windows": "windows",
    "terraform": "terraform",
    "requirements": "requirements",
    "systemd": "systemd",
    "program": "literals",
}
"""Kind of text -> module that reads it."""


def carried(kind: str, word: Word) -> Carried:
    """What ``word``, a text of ``kind``, holds for the checker; each word of it keeps its place."""
    if "\r" in word.text:  # one that stands alone ends a line for Python's parser, and for nobody else here
        word = as_written(word, word.text.replace("\r", "\n"))
    found: Carried = import_module(f"{__name__}.{CARRIERS[kind]}").carried(word)
    return found
