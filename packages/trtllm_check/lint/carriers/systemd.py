"""Units of systemd: the commands of a service with its variables, and what no shell does there.

Source: systemd.service(5), COMMAND LINES; systemd.exec(5), Environment= and WorkingDirectory=; systemd.syntax(7).
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from trtllm_check.lint.carriers.faults import FormFault
from trtllm_check.lint.carriers.script import Carried, Script
from trtllm_check.lint.shell import Word

SERVICE = re.compile(r"^\[Service\][ \t]*$", re.MULTILINE)
COMMAND = re.compile(r"^Exec(?:Start|StartPre|StartPost|Condition)[ \t]*=", re.MULTILINE)
HEAD = re.compile(r"(?:[^\S\n]*(?:[#;][^\n]*)?\n)*[ \t]*\[\w+\][ \t]*\r?\n")
OURS = re.compile(r"vllm|trt-?llm|triton|sglang|docker|podman|text-generation|llama|python", re.IGNORECASE)
ENTRY = re.compile(r"(?P<key>[A-Za-z][A-Za-z0-9-]*)[ \t]*=[ \t]*(?P<value>.*)", re.DOTALL)
PREFIX = re.compile(r"[@:+!|-]*")
TOKEN = re.compile(r"(?:[^\s\"']+|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*')+", re.DOTALL)
SPECIFIER = re.compile(r"%(?P<letter>[%A-Za-z])")
REPLACED = re.compile(r"\$\((?:[^()]|\([^()]*\))*\)|`[^`]*`")
DOLLAR = re.compile(r"\$\{?[A-Z_][A-Z0-9_]*\}?")
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
OPERATOR = re.compile(r"&&|\|\|?|&|\d?>>?(?:&\d|\S+)?|<")
BUILTINS = ("source", ".", "cd", "export", "set", "if", "exec", "ulimit", "eval")
FLAG_VALUE = re.compile(r"(?:--?[\w-]+=)?~(?:/|$)")
STARTED = ("vllm", "trtllm-serve", "tritonserver", "python", "python3")
SILENT = ("vllm", "trtllm-serve", "tritonserver", "sglang")  # none of them calls sd_notify
RULE = "systemd-unit"


# A program of supervisord, whose sections are alike: supervisord.org/configuration.html, [program:x].
SUPERVISED_PAIR = re.compile(r"(?P<name>[A-Za-z_]\w*)=\"?(?P<value>(?<=\")[^\"]*|[^\",\s]+)")
SUPERVISED = re.compile(r"^\[program:[\w-]+\][ \t]*\n(?:[^\[\n][^\n]*\n|\n)*?command[ \t]*=", re.MULTILINE)


class UnitEntry(NamedTuple):
    """One ``Key=value``, its continued lines joined; ``value`` at its place."""

    section: str
    key: str
    value: Word


def is_unit(text: str) -> bool:
    """True for the unit of a service, and for nothing else that holds one."""
    if SUPERVISED.search(text) is not None:
        return True
    return HEAD.match(text) is not None and SERVICE.search(text) is not None and COMMAND.search(text) is not None


def carried(word: Word) -> Carried:
    """The commands as one script with the variables before them."""
    script = Script()
    if SUPERVISED.search(word.text) is not None:
        return _supervised(word)
    is_part = word.line > 1  # perhaps of a script, whose shell replaces what begins with a dollar
    entries = [one for one in _entries(word) if one.section == "Service"]
    for one in entries:
        if one.key == "Environment":
            for token in TOKEN.finditer(one.value.text):
                _variable(script, one.value.part(token.start(), token.end()))
    faults = [] if is_part or not OURS.search(word.text) else list(_unexpanded(entries))
    for one in entries:
        if one.key.startswith("Exec") and one.value.text:
            value = one.value.part(PREFIX.match(one.value.text).end())  # type: ignore[union-attr]
            _command(script, value)
            if OURS.search(value.text):
                faults += _faults(value, is_part=is_part)
                if one.key == "ExecStart":
                    faults += _kept(value, {each.key: each.value.text.strip() for each in entries})
        elif one.key == "WorkingDirectory" and re.match(r"-?(?:\.|~.|\w)", one.value.text):
            faults.append(FormFault(RULE, one.value, "folder", (("value", one.value.text),)))
    faults += _notify(entries)
    found = script.word()
    return Carried(scripts=((found, ""),), faults=tuple(faults)) if found.text else Carried()


def _supervised(word: Word) -> Carried:
    """The programs of supervisord, each with its variables."""
    found: list[tuple[Word, str]] = []
    for section in dict.fromkeys(one.section for one in _entries(word)):
        entries = {one.key: one.value for one in _entries(word) if one.section == section}
        if not section.startswith("program:") or "command" not in entries:
            continue
        script = Script()
        for pair in SUPERVISED_PAIR.finditer(entries["environment"].text) if "environment" in entries else ():
            script.variable(pair["name"], entries["environment"].part(pair.start("value"), pair.end("value")))
        script.line(entries["command"])
        found.append((script.word(), ""))
    return Carried(scripts=tuple(found))


def _notify(entries: Sequence[UnitEntry]) -> Iterator[FormFault]:
    """``Type=notify`` of a server that never says that it is ready."""
    kind = next((one for one in entries if one.key == "Type" and one.value.text.strip().startswith("notify")), None)
    starts = [one.value.text.split() for one in entries if one.key == "ExecStart"]
    if kind is not None and any(words and words[0].rpartition("/")[2] in SILENT for words in starts):
        yield FormFault(RULE, kind.value, "notify", (("program", starts[0][0].rpartition("/")[2]),))


def _entries(word: Word) -> Iterator[UnitEntry]:
    """The entries of a unit, without comments; a backslash at a line's end joins the next."""
    section, position = "", 0
    begun: list[Word] = []
    for line in word.text.split("\n"):
        piece = word.part(position, position + len(line))
        position += len(line) + 1
        bare = line.strip()
        if bare.startswith(("#", ";")):
            continue
        if not begun and bare.startswith("["):
            section = bare.strip("[]")
            continue
        if not bare and not begun:
            continue
        if line.rstrip().endswith("\\") and line.rstrip() == line:
            begun.append(piece.part(0, len(line) - 1))
            continue
        whole = _whole([*begun, piece])
        begun = []
        if match := ENTRY.fullmatch(whole.text):
            yield UnitEntry(section, match["key"], whole.part(match.start("value")))


def _whole(pieces: list[Word]) -> Word:
    text = " ".join(piece.text for piece in pieces)
    places = [
        place
        for number, piece in enumerate(pieces)
        for place in (*([(piece.line, 1)] if number else []), *piece.places)
    ]
    line, column = places[0] if places else (1, 1)
    return Word(text, line, column, tuple(places)) if len(places) == len(text) else Word(text, line, column)


def _variable(script: Script, token: Word) -> None:
    """``NAME=value``, perhaps in quotes as a whole."""
    text = token.text
    inside = token.part(1, len(text) - 1) if text[:1] in ("'", '"') and text[-1:] == text[:1] else token
    name, sign, value = inside.text.partition("=")
    if sign and re.fullmatch(r"[A-Za-z_]\w*", name) and value:
        script.variable(name, inside.part(len(name) + 1))


def _command(script: Script, value: Word) -> None:
    """As a shell would have it, with specifiers that only systemd knows."""
    position = 0
    for match in SPECIFIER.finditer(value.text):
        script.take(value.part(position, match.start()))
        place = value.part(match.start(), match.start() + 1)
        script.add("%" if match["letter"] == "%" else f"${{SPECIFIER_{match['letter']}}}", (place.line, place.column))
        position = match.end()
    script.take(value.part(position))
    script.end()


def _faults(value: Word, *, is_part: bool) -> Iterator[FormFault]:
    text = REPLACED.sub(lambda match: "$" * len(match[0]), value.text) if is_part else value.text
    tokens = [value.part(match.start(), match.end()) for match in TOKEN.finditer(text)]
    if not tokens:
        return
    first = tokens[0]
    form = _first(first.text)
    if form and not (is_part and first.text.startswith(("$", "`"))):
        yield FormFault(RULE, first, form, (("word", first.text),))
        if form in ("builtin", "assignment"):
            return
    for token in tokens[1:]:
        if OPERATOR.fullmatch(token.text):
            yield FormFault(RULE, token, "operator", (("word", token.text),))
            return
        if not is_part and token.text.startswith(("$(", "`")):
            yield FormFault(RULE, token, "substitution", (("word", token.text),))
            return
        if token.text == "#":
            yield FormFault(RULE, token, "comment")
            return
    for token in tokens[1:]:
        if FLAG_VALUE.match(token.text):
            yield FormFault(RULE, token, "tilde", (("word", token.text),))
            return


def _unexpanded(entries: Sequence[UnitEntry]) -> Iterator[FormFault]:
    """``Environment=PATH=/opt/bin:$PATH``."""
    for one in entries:
        match = DOLLAR.search(one.value.text) if one.key == "Environment" else None
        if match is not None:
            place = one.value.part(match.start(), match.end())
            yield FormFault(RULE, place, "variable", (("word", match[0]),))


def _first(text: str) -> str:
    """The form of the fault of the program's own word, "" for none."""
    if text in BUILTINS:
        return "builtin"
    if ASSIGNMENT.match(text):
        return "assignment"
    if text.startswith(("$", "~")) or ("/" in text and not text.startswith(("/", "%", '"', "'", "{", "<"))):
        return "relative"
    return ""


def _kept(value: Word, keys: dict[str, str]) -> Iterator[FormFault]:
    """A program that leaves its container behind, or never leaves the foreground, against the service's type."""
    words = value.text.split()
    name = words[0].rpartition("/")[2] if words else ""
    kind = keys.get("Type", "simple")
    if name in ("docker", "podman") and "run" in words[:3]:
        image = next((number for number, one in enumerate(words) if "/" in one and not one.startswith(("-", "/"))), 0)
        options = words[1:image]
        flags = [one for one in options if re.fullmatch(r"-[a-z]{1,3}", one)]
        detached = "--detach" in options or any("d" in one for one in flags)
        again = keys.get("Restart", "no") not in ("no", "on-failure", "on-abnormal", "on-abort")
        if detached and kind in ("simple", "exec") and again and keys.get("RemainAfterExit", "no") == "no":
            yield FormFault(RULE, value, "detached", (("restart", keys["Restart"]),))
        asks = ("--interactive" in options or any("i" in one for one in flags)) and not detached
        if asks and ("--tty" in options or any("t" in one for one in flags)):
            yield FormFault(RULE, value, "terminal")
    elif name in STARTED and kind == "forking" and "&" not in value.text:
        yield FormFault(RULE, value, "forking", (("word", name),))
