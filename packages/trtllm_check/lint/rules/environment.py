"""Variables of the environment: names that vLLM does not read, and settings that no program gets."""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.rules.vllm import version_told
from trtllm_check.lint.shell.words import ShellCommand, Word

FAMILY = "environment"
SET = re.compile(r"(?P<name>VLLM_[A-Z0-9_]+)(?:=|$)")
ASSIGNED = re.compile(r"(?P<name>[A-Z][A-Z0-9_]*)=(?P<value>.*)", re.DOTALL)
NEAR = 0.86
SOURCES = frozenset({".", "source", "set", "eval"})
STARTERS = ("vllm", "trtllm-serve", "trtllm-bench", "trtllm-build", "tritonserver", "launch_triton_server.py", "run.py")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """Both kinds."""
    release = platform.release.name
    seen: set[tuple[str, str]] = set()
    for file, word in _settings(document):
        match = SET.match(word.text)
        name = match["name"] if match else ""
        if not name or (file, name) in seen:
            continue
        seen.add((file, name))
        left = rule_data(FAMILY)["left"].get(name, "")
        if left and not version_told(document):
            yield from drafts(release, "variable-unknown", word, form="left", file=file, name=name, instead=left)
        elif instead := _meant(name):
            yield from drafts(release, "variable-unknown", word, file=file, name=name, instead=instead)
    yield from _not_exported(document, release)


def _settings(document: Document) -> Iterator[tuple[str, Word]]:
    """What sets a variable: in front of a command, on its own, behind export and behind docker's -e."""
    for command in document.commands:
        for word in command.assignments:
            yield command.file, word
        if command.words and command.words[0].text in ("export", "env"):
            for word in command.words[1:]:
                yield command.file, word
    for docker in document.of("docker"):
        for word in docker.values("-e", "--env"):
            yield docker.command.file, word


@cache
def _known() -> tuple[str, ...]:
    return tuple(rule_data(FAMILY)["known"].split())


def _meant(name: str) -> str:
    """The variable that is meant by one that vLLM does not read; "" where it reads it, or nobody can tell."""
    if name in _known() or name.startswith(tuple(rule_data(FAMILY)["others"])):
        return ""
    parts = name.split("_")
    same = [one for one in _known() if set(parts) < set(one.split("_")) and len(one.split("_")) == len(parts) + 1]
    if len(same) == 1 and len(parts) > 3:
        return same[0]
    close = get_close_matches(name, _known(), 1, NEAR)
    return close[0] if close else ""


def _not_exported(document: Document, release: str) -> Iterator[Draft]:
    """``VLLM_USE_V1=0`` on a line of its own: a variable of the shell, which no program sees."""
    by_file: dict[str, list[ShellCommand]] = {}
    for command in document.commands:
        by_file.setdefault(command.file, []).append(command)
    starts = {(one.command.file, one.command.line) for one in document.of(*STARTERS)}
    texts = dict(document.texts)
    for file, commands in by_file.items():
        text = texts.get(file, "")
        if not text or any(one.words and one.words[0].text in SOURCES for one in commands):
            continue
        exported = " ".join(
            word.text for one in commands if one.words and one.words[0].text == "export" for word in one.words[1:]
        )
        for command in commands:
            if command.words or command.image or not _follows(command, file, starts):
                continue
            for word in command.assignments:
                match = ASSIGNED.fullmatch(word.text)
                name = match["name"] if match else ""
                if name and _is_read(name) and not re.search(rf"\b{name}\b", exported) and _is_alone(name, text, word):
                    yield from drafts(release, "variable-not-exported", word, file=file, name=name)


def _follows(command: ShellCommand, file: str, starts: set[tuple[str, int]]) -> bool:
    return any(where == file and line > command.end_line for where, line in starts)


def _is_read(name: str) -> bool:
    return any(name == one or (one.endswith("_") and name.startswith(one)) for one in rule_data(FAMILY)["read"])


def _is_alone(name: str, text: str, word: Word) -> bool:
    """True where the line is nothing but the setting, and nothing else of the text uses the variable."""
    lines = text.split("\n")
    line = lines[word.line - 1].strip() if word.line <= len(lines) else ""
    return line.startswith(f"{name}=") and len(re.findall(rf"\b{name}\b", text)) == 1
