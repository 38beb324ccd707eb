"""fill_template.py's commands: which file, which model, which variables, and how to write them anew."""

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import NamedTuple

from trtllm_check.lint.commands.invocations import Invocation
from trtllm_check.lint.documents.document import Document
from trtllm_check.lint.report.drafts import Swap
from trtllm_check.lint.rulebook import rule_data
from trtllm_check.lint.shell.words import Word
from trtllm_check.releases import Release
from trtllm_check.releases.ranges import in_range

FILL = "fill_template.py"


class Filling(NamedTuple):
    """One fill_template.py. ``broken``: variables whose value the tool cuts at a comma or a colon.

    ``known`` is False where a part of the substitutions is a shell variable that the text does not set.
    """

    invocation: Invocation
    path: str
    word: Word
    values: Mapping[str, str]
    broken: tuple[str, ...]
    known: bool
    escapes: bool

    @property
    def model(self) -> str:
        return PurePosixPath(self.path).parent.name

    def with_values(self, changes: Mapping[str, str | None]) -> Swap:
        """The substitutions with ``changes``: a value sets a variable, None takes it out."""
        values = {name: value for name, value in {**self.values, **changes}.items() if value is not None}
        return Swap(self.word, ",".join(f"{name}:{self.written(value)}" for name, value in values.items()))

    def written(self, value: str) -> str:
        """A value as the tool reads it back."""
        if not self.escapes:
            return value
        return _backslash(_backslash(value, ":\\"), ",\\")


def fillings(document: Document, release: Release) -> list[Filling]:
    """All fill_template.py of ``document`` with a file and substitutions."""
    escapes = release.behaviour.fill_template_escapes.value
    found = []
    for invocation in document.of(FILL):
        operands = invocation.positional
        if len(operands) == 2:
            values, broken, known = _values(operands[1].text, escapes)
            found.append(Filling(invocation, operands[0].text, operands[1], values, broken, known, escapes))
    return found


def needed_strings(model: str, release: str) -> list[dict[str, str]]:
    """The strings of ``model`` that have no default in ``release``."""
    return [
        entry
        for entry in rule_data("templates")["needed"]
        if entry["model"] == model and in_range(release, entry.get("since", ""), entry.get("until", ""))
    ]


def filled_by_default(release: str) -> frozenset[str]:
    """The variables that fill_template.py of ``release`` fills where nobody names them."""
    entries = rule_data("templates")["filled_by_default"]
    return frozenset(entry["variable"] for entry in entries if in_range(release, entry.get("since", "")))


def _values(text: str, escapes: bool) -> tuple[dict[str, str], tuple[str, ...], bool]:
    values: dict[str, str] = {}
    broken: list[str] = []
    known = True
    name = ""
    for pair in _split(text, ",", escapes) if text else []:
        parts = _split(pair, ":", escapes)
        if len(parts) == 1 and "${" in pair:
            known = False
        elif len(parts) == 1:
            broken.append(name or pair)
            if name:
                values[name] += f",{parts[0]}"
        else:
            name = parts[0]
            values[name] = ":".join(parts[1:])
            if len(parts) > 2:
                broken.append(name)
    return values, tuple(dict.fromkeys(broken)), known


def _split(text: str, sign: str, escapes: bool) -> list[str]:
    if not escapes:
        return text.split(sign)
    parts = [""]
    for match in re.finditer(r"\\(.?)|(.)", text, re.DOTALL):
        if match[2] == sign:
            parts.append("")
        else:
            parts[-1] += match[2] if match[1] is None else match[1]
    return parts


def _backslash(text: str, special: str) -> str:
    return "".join(f"\\{character}" if character in special else character for character in text)
