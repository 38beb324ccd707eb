"""In which folder each command of a text runs, as far as that folder belongs to a clone of the text.

``cd`` leads on from the place where a script begins. A block of a page goes on where the one before it ended, but its
reader may have gone elsewhere: then :attr:`Standing.is_sure` is False until the block itself says where it is.
"""

import posixpath
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from trtllm_check.lint.document import Document
from trtllm_check.lint.installs import Clone, clones
from trtllm_check.lint.lookups import once
from trtllm_check.lint.shell.pasted import fences
from trtllm_check.lint.shell.words import ShellCommand, lines_of

MOVES = ("cd", "pushd")
LEAVES = frozenset({"docker", "podman", "ssh", "su", "singularity", "apptainer", "enroot", "kubectl", "popd", "exit"})
STAYS = (["pull"], ["build"], ["images"], ["ps"], ["tag"], ["push"], ["login"], ["stop"], ["rm"], ["logs"], ["info"])
CLONES = {"nvidia/tensorrt-llm": "TensorRT-LLM", "triton-inference-server/tensorrtllm_backend": "tensorrtllm_backend"}
BACKEND = "triton-inference-server/tensorrtllm_backend"
TENSORRT_LLM = "nvidia/tensorrt-llm"
SUBMODULE = "tensorrt_llm"
FETCHED = re.compile(
    r"--recurs|submodule (?:update|init)|submodules: *(?:true|recursive)"
    r"|git clone [^\n]*/TensorRT-LLM(?:\.git)?[ \t][^\n]*(?<=[ \t/])tensorrt_llm[ \t]*(?:$|[;&])",  # into its place
    re.MULTILINE,
)
OPEN = ("$", "*", "{", "<", "~", "%")
CELL_OF_SHELL = re.compile(r"%%(?:bash|sh)\b")
INSTRUCTION = re.compile(r"^[ \t]*(?:RUN|CMD|ENTRYPOINT|COPY|ADD)\b")
WORKDIR = re.compile(r"^[ \t]*(?:WORKDIR)\b")
DOCKERFILE = re.compile(r"^[ \t]*FROM[ \t]+\S+", re.MULTILINE)
YAML = re.compile(r"^[ \t]*(?:- )?[\w-]+:(?: \|)?[ \t]*$", re.MULTILINE)
STEP = re.compile(r"^[ \t]*(?:- )?(?:run|script):", re.MULTILINE)
ELSEWHERE = re.compile(r"working-directory:")
CELL = re.compile(r'"cell_type"\s*:')
PYTHON = re.compile(r"^(?:import|from) \w+", re.MULTILINE)
RECIPE = re.compile(r"^[\w.-]+[ \t]*:(?!=)[^\n]*\n\t", re.MULTILINE)


class Standing(NamedTuple):
    """Where ``command`` runs: in ``folder`` of ``clone``; without a clone at ``folder``, from where the text begins.

    ``is_sure`` is False where a reader may have gone elsewhere, to one of ``others``; ``is_script`` is False on a page.
    ``known``: the clones that were made before, by their places.
    """

    command: ShellCommand
    clone: Clone | None
    folder: str
    is_sure: bool
    is_script: bool
    known: Mapping[str, Clone]
    others: tuple[tuple[Clone | None, str], ...] = ()

    def paths(self, text: str) -> Iterator[tuple[Clone | None, str]]:
        """The clone that a path of the command leads into, and the path in it; without one the path itself.

        Where it is not sure, first where the command stands, and then from wherever the text has been.
        """
        if text.startswith("/") or text[:1] in OPEN:
            return
        for clone, folder in ((self.clone, self.folder), *(() if self.is_sure else self.others)):
            path = posixpath.normpath(posixpath.join(folder, text))
            if clone is None:
                yield _within(path, self.known)
            elif not path.startswith(".."):
                yield clone, path


@once
def standings(document: Document) -> list[Standing]:
    """Where the commands of ``document`` run that stand in or beside a clone of it."""
    own = clones(document)
    if not any(one.name.lower() in CLONES for one in own):
        return []
    found: list[Standing] = []
    for file, text in document.texts:
        commands = [command for command in document.commands if command.file == file and command.words]
        here = [one for one in own if one.git.command.file == file and one.name.lower() in CLONES]
        if here and not _is_other(text):
            found += _Walk(text, here).over(commands)
    return found


def _is_other(text: str) -> bool:
    """True for a program, YAML or a Makefile, where no one shell runs all commands."""
    if fences(text) or CELL.search(text):
        return False
    is_workflow = STEP.search(text) is not None and not ELSEWHERE.search(text)
    return any(one.search(text) for one in (PYTHON, RECIPE, *(() if is_workflow else (YAML,))))


def _within(path: str, known: Mapping[str, Clone]) -> tuple[Clone | None, str]:
    for place, clone in known.items():
        if path == place or path.startswith(f"{place}/"):
            return clone, path[len(place) + 1 :] or "."
    return None, path


class _Walk:
    """One file, from its first command to its last."""

    def __init__(self, text: str, here: list[Clone]) -> None:
        self.lines = lines_of(text)
        self.blocks = [text.count("\n", 0, block.start) for block in fences(text)]
        self.is_notebook = CELL.search(text) is not None
        self.is_dockerfile = not self.blocks and DOCKERFILE.search(text) is not None
        begins = CELL if self.is_notebook else STEP if not self.blocks and not self.is_dockerfile else None
        starts = [text.count("\n", 0, one.start()) for one in begins.finditer(text)] if begins else []
        self.pieces = starts  # where a cell or a step of a workflow begins
        self.shell_cells = {
            bisect_right(starts, text.count("\n", 0, one.start())) for one in CELL_OF_SHELL.finditer(text) if starts
        }
        self.by_command = {id(one.git.command): one for one in here}
        self.known: dict[str, Clone] = {}
        self.folder: str | None = "."  # from where the text begins; None: nobody knows
        self.clone: Clone | None = None
        self.is_sure = True
        self.been: dict[tuple[int, str], tuple[Clone | None, str]] = {(id(None), "."): (None, ".")}
        self.kept: tuple[str | None, Clone | None] = (".", None)

    def over(self, commands: list[ShellCommand]) -> Iterator[Standing]:
        """Where each of them runs."""
        block = last = piece = 0
        is_script = not self.blocks
        for command in commands:
            now = bisect_right(self.blocks, command.line - 1)
            if now != block:
                block, self.is_sure = now, False
            line = self.lines[command.line - 1] if 0 < command.line <= len(self.lines) else ""
            if self.is_dockerfile and INSTRUCTION.match(line):
                self.folder, self.clone = self.kept
            now = bisect_right(self.pieces, command.line - 1)
            if now != piece or (self.is_notebook and now not in self.shell_cells and command.line != last):
                self.folder, self.clone = self.kept
            piece, last = now, command.line
            if self.folder is not None:
                others = tuple(self.been.values()) if not self.is_sure else ()
                yield Standing(command, self.clone, self.folder, self.is_sure, is_script, self.known, others)
            self._after(command, line)
            if self.folder is not None and self.clone is not None:
                self._note((self.clone, self.folder))
                self._note((self.clone, "."))
            if (self.is_dockerfile and WORKDIR.match(line)) or (self.is_notebook and "%cd" in line):
                self.kept = self.folder, self.clone

    def _note(self, place: tuple[Clone | None, str]) -> None:
        self.been.setdefault((id(place[0]), place[1]), place)

    def _after(self, command: ShellCommand, line: str) -> None:
        words = [word.text for word in command.words]
        if words[0] == "sudo":
            words = words[1:]
        first = words[0] if words else ""
        clone = self.by_command.get(id(command))
        if clone is not None and self.folder is None:  # wherever that is: the clone lies there, and no earlier one
            self.folder, self.clone, self.known = ".", None, {}
        if clone is not None and self.folder is not None:
            given = clone.git.positional[2:3]
            place = given[0].text if given else clone.name.partition("/")[2]
            if self.clone is None and not place.startswith(("/", *OPEN)):
                place = posixpath.join(self.folder, place)
            if self.clone is None and place[:1] not in OPEN:
                self.known = {**self.known, posixpath.normpath(place): clone}
        elif first in MOVES:
            self._moves(words[1] if len(words) == 2 else "", line)
        elif posixpath.basename(first) in LEAVES and words[1:2] not in STAYS:
            self.folder, self.clone = None, None

    def _moves(self, target: str, line: str) -> None:
        before = line.partition("cd ")[0]
        if not target or target == "-" or "(" in before or any(word in before.split() for word in ("then", "do")):
            self.folder, self.clone = None, None
            return
        name = next((part for part in target.split("/") if part in self._names()), "")
        if target.startswith(("/", *OPEN)) or (self.folder is None and name):
            self._by_name(target, name)
            return
        if self.folder is None:
            return
        path = posixpath.normpath(posixpath.join(self.folder, target))
        if self.clone is not None:
            if path.startswith(".."):
                place = next((place for place, clone in self.known.items() if clone is self.clone), None)
                self.clone = None
                self.folder = posixpath.normpath(posixpath.join(place, path)) if place is not None else None
            elif not self.is_sure and name:
                self._by_name(target, name)  # a section of a page that begins anew
            else:
                self.folder = path
            return
        clone, inside = _within(path, self.known)
        self.clone, self.folder = (clone, inside) if clone is not None else (None, path)
        self.is_sure = self.is_sure or clone is not None

    def _by_name(self, target: str, name: str) -> None:
        """``cd ~/work/TensorRT-LLM/examples``: a clone of the text, by the name of its folder."""
        found = [clone for place, clone in self.known.items() if posixpath.basename(place) == name] if name else []
        if len(found) != 1:
            place = _within(posixpath.normpath(target), self.known) if target.startswith("/") else (None, "")
            self.clone, self.folder = place if place[0] is not None else (None, None)
            return
        self.clone = found[0]
        self.folder = posixpath.normpath(target.partition(f"{name}/")[2] or ".")
        self.is_sure = True

    def _names(self) -> set[str]:
        return {posixpath.basename(place) for place in self.known}
