"""``ray start``: neither a head nor the head's address, and commands behind one that never returns."""

import posixpath
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise, zip_longest
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.shell.words import ShellCommand, Word, lines_of

RULE = "ray-start"
ROLES = ("--head", "--address", "--help", "--redis-address")
# Programs that are there to run once Ray is up.
BEHIND = ("vllm", "python", "python3", "serve", "torchrun", "trtllm-serve")
OPEN = re.compile(r"[$`*<>]|\{\{|\.\.\.|…|^xxx")
OTHER_BRANCH = re.compile(r"^\s*(?:else|elif|fi|done|esac|;;|\}|EOF)\b|^\s*(?:;;|\})", re.MULTILINE)
# In the one word of a shell's -c: a part of a command has no place among the commands.
IN_A_SCRIPT = re.compile(
    r"\bray start\b(?:[^&;|\n\\]|\\\n)*--block\b(?:[^&;|\n\\]|\\\n)*(?:&&|;|\n)\s*"
    r"(?P<then>(?:vllm serve|python3? )\S*)"
)
IN_BACKGROUND = re.compile(r"(?<!&)&(?![&>])")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    texts = dict(document.texts)
    for command, behind in zip_longest(document.commands, document.commands[1:]):
        for word in command.words:
            for match in IN_A_SCRIPT.finditer(word.text) if "ray start" in word.text else ():
                place = word.part(match.start("then"), match.end("then"))
                known: dict[str, Any] = {"then": match["then"].strip()}
                yield from drafts(release, RULE, place, form="block", file=command.file, **known)
        words = _of_ray(command.words)
        if words is None or any(OPEN.search(word.text) and not word.text.startswith("--") for word in words[1:]):
            continue
        if not any(word.text.partition("=")[0] in ROLES for word in words):
            if len(words) > 2:
                yield from drafts(release, RULE, words[1], file=command.file)
        elif behind is not None and any(word.text == "--block" for word in words):
            yield from _behind(command, behind, texts.get(command.file, ""), release)


def _of_ray(words: Sequence[Word]) -> Sequence[Word] | None:
    """The words from ``ray`` on of a command that starts it, whatever stands in front."""
    for at, (one, other) in enumerate(pairwise(words)):
        if posixpath.basename(one.text) == "ray" and other.text == "start":
            return words[at:]
    return None


def _behind(command: ShellCommand, behind: ShellCommand, text: str, release: str) -> Iterator[Draft]:
    """A command of the same script that waits for one that does not end."""
    if not behind.words or behind.file != command.file or posixpath.basename(behind.words[0].text) not in BEHIND:
        return
    first, place = command.words[0], behind.words[0]
    lines = lines_of(text)
    between = "\n".join(lines[first.line - 1 : place.line])
    if IN_BACKGROUND.search(between) or OTHER_BRANCH.search(between):
        return
    if text.startswith("#!") and first.column == place.column:
        known: dict[str, Any] = {"then": " ".join(word.text for word in behind.words[:2])}
        yield from drafts(release, RULE, place, form="block", file=command.file, **known)
