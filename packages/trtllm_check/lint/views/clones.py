"""Clones of repositories, and the state that each of them is brought to."""

import posixpath
import re
from typing import NamedTuple

from trtllm_check.lint.commands.invocations import Invocation
from trtllm_check.lint.documents.document import Document
from trtllm_check.lint.shell.words import ShellCommand, Word

ADDRESS = re.compile(r"github\.com[:/](?P<name>[\w.-]+/[\w.-]+?)(?:\.git)?/?$")
BRANCH = ("-b", "--branch")


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
        elif verb in ("checkout", "switch") and found:
            inside = posixpath.basename(posixpath.normpath(git.value("-C") or folder))
            names = [clone.folder for clone in found]
            number = len(names) - 1 - names[::-1].index(inside) if inside in names else len(names) - 1
            found[number] = _moved(found[number], git)
    return found


def _commands(document: Document) -> list[ShellCommand]:
    """The commands with words; those inside ``bash -c`` behind their own."""
    commands = [command for command in document.commands if command.words]
    inner = [one.command for one in document.of("git") if not any(one.command is command for command in commands)]
    return [*commands, *inner]


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
