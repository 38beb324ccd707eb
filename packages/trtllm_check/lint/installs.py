"""What a text installs: the repositories that it clones and the packages that it asks for."""

import posixpath
import re
from collections.abc import Iterator
from typing import NamedTuple

from trtllm_check.lint.document import Document
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.lookups import once
from trtllm_check.lint.shell.words import ShellCommand, Word

ADDRESS = re.compile(r"github\.com[:/](?P<name>[\w.-]+/[\w.-]+?)(?:\.git)?/?$")
BRANCH = ("-b", "--branch")
REQUIREMENT = re.compile(r"^(?P<name>[A-Za-z0-9][\w.-]*)(?P<extras>\[[^\]]*\])?\s*(?P<specifier>(?:[<>=~!].*)?)$")


class Clone(NamedTuple):
    """One ``git clone``. ``reference``: its branch or tag, "" for the default one; ``word``: where that stands.

    ``checkout``: the later ``git checkout`` that says it.
    """

    git: Invocation
    name: str
    folder: str
    reference: str
    word: Word
    checkout: Invocation | None = None

    @property
    def flag(self) -> str:
        """The flag that names the branch, if one is given."""
        return next((flag for flag in BRANCH if self.git.has(flag)), "")


def clones(document: Document) -> list[Clone]:
    """The clones of ``document`` from GitHub, each with the last state that it is brought to."""
    found: list[Clone] = []
    gits = {id(one.command): one for one in document.of("git")}
    folder = ""
    for command in _commands(document):
        if command.words[0].text in ("cd", "pushd") and len(command.words) > 1:
            folder = posixpath.basename(posixpath.normpath(command.words[1].text))
        git = gits.get(id(command))
        if git is None or not git.positional:
            continue
        verb = git.positional[0].text
        if verb == "clone":
            clone = _cloned(git)
            if clone is not None:
                found.append(clone)
        elif found and (
            verb in ("checkout", "switch")
            or (verb == "fetch" and len(git.positional) > 2)
            or (verb == "reset" and len(git.positional) > 1)
        ):
            if git.positional[-1].text == "FETCH_HEAD":
                continue  # what the fetch before it named
            inside = posixpath.basename(posixpath.normpath(git.value("-C") or folder))
            names = [clone.folder for clone in found]
            number = len(names) - 1 - names[::-1].index(inside) if inside in names else len(names) - 1
            found[number] = _moved(found[number], git)
    return found


def _commands(document: Document) -> list[ShellCommand]:
    """The commands with words; those inside ``bash -c`` behind their own."""
    commands = [command for command in document.commands if command.words]
    known = {id(command) for command in commands}
    return [*commands, *(one.command for one in document.of("git") if id(one.command) not in known)]


def _cloned(git: Invocation) -> Clone | None:
    operands = git.positional[1:]
    address = ADDRESS.search(operands[0].text) if operands else None
    if address is None:
        return None
    folder = operands[1].text if len(operands) > 1 else address["name"].partition("/")[2]
    branch = git.values(*BRANCH)
    reference = branch[-1].text if branch else ""
    folder = posixpath.basename(posixpath.normpath(folder))
    return Clone(git, address["name"], folder, _short(reference), branch[-1] if branch else git.path)


def _moved(clone: Clone, git: Invocation) -> Clone:
    references = git.positional[1:]
    if not references or "--" in (word.text for word in git.arguments):
        return clone
    return clone._replace(reference=_short(references[-1].text), word=references[-1], checkout=git)


def _short(reference: str) -> str:
    """Without what leads to it: ``tags/v0.12.0``, ``origin/main``."""
    return re.sub(r"^(?:refs/)?(?:tags/|heads/|origin/)", "", reference)


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


def is_typed(pip: Invocation | None) -> bool:
    """False for what stands in a file of requirements, of which the reader makes one command at its first word."""
    if pip is None or not pip.command.words:
        return False
    first = pip.command.words[0]
    return not any((word.line, word.column) == (first.line, first.column) for word in pip.command.words[2:])


@once
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
