"""What pip is asked to install."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from trtllm_check.lint.commands.invocations import Invocation
from trtllm_check.lint.documents.document import Document
from trtllm_check.lint.shell.words import Word

REQUIREMENT = re.compile(r"^(?P<name>[A-Za-z0-9][\w.-]*)(?P<extras>\[[^\]]*\])?\s*(?P<specifier>(?:[<>=~!].*)?)$")
NEWEST = "9999"


class Requirement(NamedTuple):
    """One requirement, its name in small letters with dashes; without a name it is a file of requirements."""

    name: str
    extras: str
    specifier: str
    word: Word
    pip: Invocation | None = None
    upgrades: bool = False

    @classmethod
    def of(cls, text: str) -> "Requirement":
        """One that is not in a command."""
        return _requirement(Word(text, 1, 1), None) or cls("", "", "", Word(text, 1, 1))

    @property
    def exact(self) -> str:
        """The version behind ``==``, "" if there is none, or a pattern."""
        match = re.fullmatch(r"={2,3}\s*([\w.+!]+)", self.specifier)
        return match[1] if match else ""

    def meets(self, specifier: str) -> bool:
        """True if the exact version is one that ``specifier`` takes, or is no version at all."""
        from packaging.specifiers import InvalidSpecifier, SpecifierSet
        from packaging.version import InvalidVersion

        try:
            return SpecifierSet(specifier).contains(self.exact, prereleases=True)
        except (InvalidSpecifier, InvalidVersion):
            return True

    def is_below(self, version: str) -> bool:
        """True if every version that it takes is older than ``version``."""
        bounds = [
            (operator, _numbers(text)) for operator, text in re.findall(r"(==|<=|<|~=)\s*(\d[\d.]*)", self.specifier)
        ]
        limit = _numbers(version)
        return any(
            bound <= limit if operator == "<" else bound < limit for operator, bound in bounds if operator != "~="
        )


def requirements(document: Document) -> Iterator[Requirement]:
    """What every ``pip install`` of ``document`` names, in order; ``-r FILE`` has no name."""
    for pip in document.of("pip"):
        operands = pip.positional
        if not operands or operands[0].text != "install":
            continue
        for word in pip.values("-r", "--requirement"):
            yield Requirement("", "", "", word, pip)
        for word in operands[1:]:
            found = _requirement(word, pip)
            if found is not None:
                yield found


def _requirement(word: Word, pip: Invocation | None) -> Requirement | None:
    match = REQUIREMENT.match(word.text.strip())
    if match is None or "$" in word.text:
        return None
    name = re.sub(r"[-_.]+", "-", match["name"]).lower()
    return Requirement(name, match["extras"] or "", match["specifier"].strip(), word, pip)


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part]
