"""Commands behind one that never returns: ``sleep infinity``, ``tail -f /dev/null``, ``exec`` of a program."""

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.rules.foreground import CLIENTS, SERVERS, serves
from trtllm_check.lint.shell.words import ShellCommand, Word, lines_of, word_at

RULE = "never-reached"
# One in the place of a command, and what stands behind its semicolon.
IDLES = re.compile(
    r"(?:^[ \t]*|(?<=[;\"'{(])[ \t]*|(?<![&|])&[ \t]*|\bthen[ \t]+)"
    r"(?P<idle>sleep[ \t]+(?:inf|infinity)|tail[ \t]+-f[ \t]+/dev/null)[ \t]*"
    r"(?P<sign>;(?!;)|&&|\n)\s*\\?\s*(?P<next>[^\s;&|\"'(){}#]+)(?P<more>[ \t]+[^\s;&|]+)?",
    re.MULTILINE,
)
ENDS = re.compile(r"(?:fi|else|elif|done|esac|EOF|[A-Z_]+|-+|\}|\w+:|-)$")
STARTS = frozenset({*SERVERS, *CLIENTS, "ray", "mpirun", "exec", "docker", "torchrun", "nohup", "bash", "sh", "export"})
JOINED = re.compile(
    r"[\\\"']*(?:[ \t]++(?:\d|&)?>{1,2}[ \t]*+&?[^\s;&|]++)*[ \t]*(?:;|&&)\s*(?:\\\n)?\s*"
    r"(?P<name>[^\s;&|\"'(){}#]+)(?P<more>[ \t]+[^\s;&|\"']+)?"
)
EXEC = re.compile(r"[a-z./][\w./-]*")
MAKES_A_FILE = re.compile(r"<<|\{|\}|\b(?:if|fi|else|elif|case|esac|while|for|do|done|trap)\b|\|\||&&", re.MULTILINE)
OTHER_PLACE = re.compile(r"\n\s*\n|^[ \t]*(?:-[ ]|[\w.-]+:(?=\s|$)|[\])}])", re.MULTILINE)
SHOWN = 40
LINE_END = re.compile(r"\n")
WAITS = ("sleep", "until", "while")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    for file, text in document.texts:
        if "sleep inf" in text or "/dev/null" in text:
            yield from _idle(text, file, release)
    texts = dict(document.texts)
    for one in document.of(*SERVERS):
        if serves(one):
            yield from _joined(one, texts.get(one.command.file, ""), release)
    for command, behind in pairwise(document.commands):
        if command.file == behind.file and command.words and behind.words and command.words[0].text == "exec":
            yield from _behind_exec(command, behind, texts.get(command.file, ""), release)


def _idle(text: str, file: str, release: str) -> Iterator[Draft]:
    before: re.Match[str] | None = None
    for match in IDLES.finditer(text):
        is_behind = before is not None and not OTHER_PLACE.search(text, before.end(), match.start())
        before = match
        if is_behind:
            continue  # the one before it does not return
        is_line = match["sign"].endswith("\n")
        name = _name(match["next"])
        goes_on = text[: match.start("idle")].rstrip(" \t").endswith("\\\n")
        if goes_on or ENDS.match(match["next"]) or (is_line and (name not in STARTS or _margin(text, match) is None)):
            continue
        known: dict[str, Any] = {"idle": match["idle"], "then": f"{match['next']}{match['more'] or ''}"[:SHOWN]}
        place = word_at(text, match.start("idle"), match["idle"])
        yield from drafts(release, RULE, place, form="idle", file=file, **known)


def _margin(text: str, match: re.Match[str]) -> str | None:
    """The margin of two lines that are indented alike; None for others, and for what is not at its line's begin."""
    first, second = (text[text.rfind("\n", 0, at) + 1 : at] for at in (match.start("idle"), match.start("next")))
    return first if first == second and not first.strip() else None


def _joined(server: Invocation, text: str, release: str) -> Iterator[Draft]:
    """``vllm serve m && curl ...`` and ``vllm serve a; vllm serve b``."""
    if any(word.text == "timeout" for word in server.command.words[:3]):
        return
    last = server.command.words[-1]
    start = _offset(text, last)
    match = JOINED.match(text, start + len(last.text)) if start else None
    name = _name(match["name"]) if match else ""
    if match and name in (*CLIENTS, *SERVERS) and name not in WAITS:
        known: dict[str, Any] = {"then": f"{match['name']}{match['more'] or ''}"[:SHOWN], "tool": server.tool}
        place = word_at(text, match.start("name"), match["name"])
        yield from drafts(release, RULE, place, form="server", file=server.command.file, **known)


def _name(program: str) -> str:
    return program.rpartition("/")[2]


@lru_cache(maxsize=8)
def _starts(text: str) -> tuple[int, ...]:
    """Where each line begins."""
    return (0, *(match.end() for match in LINE_END.finditer(text)))


def _offset(text: str, word: Word) -> int:
    """Where a word stands in its text; 0 where that is not to be told."""
    starts = _starts(text)
    at = starts[word.line - 1] + word.column - 1 if word.line <= len(starts) else 0
    return at if text.startswith(word.text[:1], at) else 0


def _behind_exec(command: ShellCommand, behind: ShellCommand, text: str, release: str) -> Iterator[Draft]:
    """``exec tritonserver ...`` in a script, and a command on its next line."""
    first, then = command.words[0], behind.words[0]
    program = command.words[1].text if len(command.words) > 1 else ""
    between = "\n".join(lines_of(text)[first.line - 1 : then.line])
    is_next = then.line > first.line and then.column == first.column == 1
    if _name(program) in SERVERS and _name(then.text) in CLIENTS:
        return  # foreground.py says it at the client
    if text.startswith("#!") and is_next and EXEC.fullmatch(program) and not MAKES_A_FILE.search(between):
        known: dict[str, Any] = {"idle": f"exec {program}", "then": " ".join(w.text for w in behind.words[:2])[:SHOWN]}
        yield from drafts(release, RULE, first, form="exec", file=command.file, **known)
