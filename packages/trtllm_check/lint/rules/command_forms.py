"""Commands that are typed nearly right: a dash, a branch or a folder that is missing, two commands in one."""

import posixpath
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.programs import SHELLS
from trtllm_check.lint.shell.words import ShellCommand, Word, lines_of, word_at

RULE = "command-form"
ADDRESS = re.compile(r"(?:https?|ssh)://\S+|git@\S+")
# Options of docker run, as they look without their dashes; no image is called so.
DASHLESS = frozenset(
    {
        *("v", "p", "e", "d", "it", "ti", "i", "t", "rm", "gpus", "ipc", "net", "network", "name", "volume", "env"),
        *("shm-size", "ulimit", "privileged", "runtime", "entrypoint", "publish", "mount", "detach", "env-file"),
    }
)
# Folders that a repository holds, and that stand seldom beside it.
INNER = frozenset({"src", "examples", "scripts", "benchmarks", "docker", "python", "csrc", "cpp", "runtime", "server"})
CLONE = re.compile(
    r"^(?!\s*#).*?\bgit clone (?:-\S+ )*(?P<address>https?://[^\s&;\"']+?)(?:\.git)?/?[ \t]*"
    r"(?:&&[ \t]*(?:\\\n[ \t]*)?|\n[ \t]*(?:\$ )?)cd[ \t]+(?P<folder>[\w./-]+)",
    re.MULTILINE,
)
TALKS = ("chat", "complete")
PORT = re.compile(r"\w*PORT\w*", re.IGNORECASE)
JOB_NUMBER = re.compile(r"\$\(\(\s*(?P<sum>\d+\s*\+\s*\$?\{?SLURM_JOB_?ID\}?(?:\s*\+\s*\d+)?)\s*\)\)")
COMMA_CUT = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<kept>\w*)(?P<lost>(?:,\d+)+)(?=,|$)")
ASSIGNED_PORT = re.compile(rf"(?P<name>{PORT.pattern})=(?P<value>\$\(\([^()]*\)\))")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    for one in document.of("git"):
        yield from _branch(one, release)
    for one in document.of("docker"):
        yield from _no_dash(one, release)
    for one in document.of("vllm"):
        yield from _address(one, release)
    for one in document.invocations:
        yield from _second_program(one, release)
    for command in document.commands:
        yield from _script_twice(command, release)
        yield from _cut_at_commas(command, release)
    for file, text in document.texts:
        yield from _inside_the_clone(text, file, release)
        yield from _ports(text, file, release)


def _branch(git: Invocation, release: str) -> Iterator[Draft]:
    """``git clone -b https://...``: the address is the branch, and there is no repository."""
    branch = next(iter(git.values("-b", "--branch")), None)
    words = [word.text for word in git.positional]
    if branch is not None and words == ["clone"] and ADDRESS.fullmatch(branch.text):
        yield from drafts(release, RULE, branch, form="branch", file=git.command.file, address=branch.text)


def _no_dash(docker: Invocation, release: str) -> Iterator[Draft]:
    """``docker run --rm v "$PWD":/srv image``."""
    words = docker.positional
    if len(words) > 2 and words[0].text in ("run", "create") and words[1].text in DASHLESS:
        option = words[1].text
        right = f"-{option}" if len(option) <= 2 and option != "rm" else f"--{option}"
        known: dict[str, Any] = {"option": option, "right": right}
        yield from drafts(release, RULE, words[1], form="dash", file=docker.command.file, **known)


def _address(vllm: Invocation, release: str) -> Iterator[Draft]:
    """``vllm chat http://host:8000/v1``."""
    words = vllm.positional
    if len(words) > 1 and words[0].text in TALKS and ADDRESS.fullmatch(words[1].text) and vllm.path.text == "vllm":
        known: dict[str, Any] = {"command": words[0].text, "address": words[1].text}
        yield from drafts(release, RULE, words[1], form="address", file=vllm.command.file, **known)


def _second_program(one: Invocation, release: str) -> Iterator[Draft]:
    """A program of the same path at the begin of a line, that a backslash above makes an argument of the first."""
    path = one.path.text
    if one.tool == "docker" or len({*one.path.places}) < len(path):
        return  # what an image starts does not stand in the text
    for before, word, behind in zip(one.arguments, one.arguments[1:], one.arguments[2:], strict=False):
        is_path = word.text == path and ("/" in path or behind.text == "serve")
        if is_path and word.line > before.line and behind.text.startswith(("-", "serve")):
            known: dict[str, Any] = {"program": path, "line": one.path.line}
            yield from drafts(release, RULE, word, form="two programs", file=one.command.file, **known)
            return


def _inside_the_clone(text: str, file: str, release: str) -> Iterator[Draft]:
    """``git clone .../project && cd src/tools``: the folder is one of the clone's."""
    for match in CLONE.finditer(text) if "git clone " in text else ():
        name = posixpath.basename(match["address"])
        folder = match["folder"].removeprefix("./")
        first, _, rest = folder.partition("/")
        if first in INNER and first != name and rest:
            known: dict[str, Any] = {"folder": match["folder"], "right": f"{name}/{folder}"}
            place = word_at(text, match.start("folder"), match["folder"])
            yield from drafts(release, RULE, place, form="clone", file=file, **known)


def _script_twice(command: ShellCommand, release: str) -> Iterator[Draft]:
    """``bash install.sh /opt/install.sh --all``."""
    for shell, script, path in zip(command.words, command.words[1:], command.words[2:], strict=False):
        is_script = shell.text in SHELLS and script.text.endswith(".sh") and "/" not in script.text
        if is_script and path.text.startswith("/") and posixpath.basename(path.text) == script.text:
            known: dict[str, Any] = {"script": script.text, "path": path.text, "shell": shell.text}
            yield from drafts(release, RULE, path, form="script twice", file=command.file, **known)


def _cut_at_commas(command: ShellCommand, release: str) -> Iterator[Draft]:
    """``srun --export=ALL,CUDA_VISIBLE_DEVICES=0,1``."""
    names = [word.text.rpartition("/")[2] for word in command.words]
    if not {"srun", "sbatch"} & set(names):
        return
    for word, behind in pairwise((*command.words, Word("", 0, 0))):
        name, sign, value = word.text.partition("=")
        if name == "--export" and (match := COMMA_CUT.search(value if sign else behind.text)):
            known: dict[str, Any] = {
                "name": match["name"],
                "kept": match["kept"],
                "whole": f"{match['kept']}{match['lost']}",
            }
            yield from drafts(release, RULE, word, form="commas", file=command.file, **known)


def _ports(text: str, file: str, release: str) -> Iterator[Draft]:
    """``PORT=$((5557 + SLURM_JOB_ID))``: more than a port can be."""
    for number, line in enumerate(lines_of(text), 1):
        if "SLURM_JOB" not in line:
            continue
        for match in ASSIGNED_PORT.finditer(line):
            if JOB_NUMBER.fullmatch(match["value"]):
                place = Word(match[0], number, match.start() + 1)
                yield from drafts(release, RULE, place, form="port", file=file, name=match["name"])
