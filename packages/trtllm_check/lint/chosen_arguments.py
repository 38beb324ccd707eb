"""Arguments that a shell script may give: what a branch puts into a variable or a list that the command has.

Each is read as a command of its own, the tool and that piece with unknown words around it, so that pieces that exclude
each other never meet: ``if ...; then OPTS="$OPTS --x 1"; fi``, ``args+=(--x 1)``, ``set -- "$@" --x``, ``${A:+--x 1}``.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from trtllm_check.lint.carriers.python_words import spaced
from trtllm_check.lint.carriers.script import unknown_arguments
from trtllm_check.lint.held_arguments import HELD_MODEL, started_at
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.kinds import kind_of_name
from trtllm_check.lint.shell import ShellCommand, Word, read_inside
from trtllm_check.lint.shell.words import lines_of, whole_text

FRONTS = {"vllm": ("vllm", "serve", HELD_MODEL), "trtllm-build": ("trtllm-build",), "tritonserver": ("tritonserver",)}
VARIABLE = re.compile(r"\$\{(?P<name>\w+|@)\}")
OWN = re.compile(r"\s*\$\{?\w+\}?(?=\s)")
OPTION = re.compile(r"(?:^|\s)--?[A-Za-z]")
LIST = re.compile(
    r"(?:^|[\s;&|({])(?P<name>[A-Za-z_]\w*)\+?=\("
    r"(?P<items>(?:[^()\"'#]|#[^\n]*(?=\n)|\"(?:[^\"\\]|\\.)*\"|'[^']*'){1,4000})\)"
)
BETWEEN = re.compile(r"#[^\n]*|\n")
BASE = re.compile(
    r"(?:\S*/)?(?:(?P<vllm>vllm serve|python3? (?:-u )?-m vllm\.entrypoints\.openai\.api_server)"
    r"|(?P<other>trtllm-build|tritonserver))\s"
)
INLINE = re.compile(
    r"\$\{\w+:?[+-](?P<value>--[A-Za-z][^{}$]*)\}|\becho[ ]+(?:-n[ ]+)?[\"']?(?P<echoed>--[A-Za-z][^\"'`()$]*)"
)
QUOTES = re.compile(r"[\"']")  # of a value, which a shell keeps when it splits it
ESCAPED = re.compile(r"\\[\"'$`]")
MOST = 60


def chosen_commands(
    commands: Sequence[ShellCommand], found: Sequence[Invocation], sources: Sequence[tuple[str, str]]
) -> Iterator[ShellCommand]:
    """The commands; none for what the reader put into its place already."""
    asked = [one for one in found if one.tool in FRONTS and _is_open(one) and not _is_of_another_command(one)]
    bases = [one for one in commands if not one.words and len(one.assignments) == 1 and _base(one)]
    if not asked and not bases:
        return
    pieces = _pieces(commands, sources)
    yield from _of_bases(bases, pieces, {word.text for one in found for word in one.arguments})
    seen: set[tuple[str, int, int]] = set()
    for one in asked:
        told = {word.text for word in one.arguments}
        for piece in _of(one, pieces, dict(sources)):
            key = (one.command.file, piece.line, piece.column)
            is_told = all(flag in told for flag in _flags(piece))
            if key in seen or len(seen) > MOST or is_told or ESCAPED.search(piece.text):
                continue
            seen.add(key)
            more = unknown_arguments((piece.line, piece.column))
            whole = spaced([*started_at(piece, *FRONTS[one.tool]), more, piece, more], " ")
            if whole is not None:
                yield from (each._replace(image=one.command.image) for each in read_inside(whole, one.command.file))


def _base(command: ShellCommand) -> re.Match[str] | None:
    """``CMD="vllm serve m"``, which a branch makes longer."""
    return BASE.match(command.assignments[0].text.partition("=")[2])


def _of_bases(
    bases: Sequence[ShellCommand], pieces: dict[tuple[str, str], list[Word]], known: set[str]
) -> Iterator[ShellCommand]:
    """Such a command, and what makes it longer; nothing of one that the reader has read as a whole."""
    for command in bases:
        word, base = command.assignments[0], _base(command)
        name, _, _ = word.text.partition("=")
        longer = [one for one in pieces.get((command.file, name), ()) if one.line > command.line]
        if base is None or not longer or all(flag in known for one in longer for flag in _flags(one)):
            continue
        value = word.part(len(name) + 1, len(word.text))
        front = FRONTS["vllm" if base["vllm"] else base["other"]]
        more = unknown_arguments((value.line, value.column))
        lines = [
            spaced([value, more], " "),
            *(spaced([*started_at(one, *front), more, one, more], " ") for one in longer),
        ]
        for line in lines:
            if line is not None and not ESCAPED.search(line.text):
                yield from read_inside(line, command.file)


def _flags(piece: Word) -> list[str]:
    return [flag for flag in piece.text.split() if flag.startswith("--")]


def _is_open(one: Invocation) -> bool:
    return any("$" in word.text for word in one.command.words)


def _is_of_another_command(one: Invocation) -> bool:
    """True for ``vllm bench`` and its like: what they get is none of the server's."""
    first = next((word.text for word in one.positional), "serve")
    return one.tool == "vllm" and first != "serve" and "$" not in first


def _of(one: Invocation, pieces: dict[tuple[str, str], list[Word]], texts: Mapping[str, str]) -> Iterator[Word]:
    """The pieces of the variables that a command has, and those that stand in its own words."""
    for word in one.command.words:
        variable = VARIABLE.fullmatch(word.text)
        if variable is not None:
            yield from (
                piece
                for piece in pieces.get((one.command.file, variable["name"]), ())
                if not _is_set_anew(texts.get(one.command.file, ""), variable["name"], piece.line, one.command.line)
            )
        elif (inline := INLINE.search(word.text)) is not None:
            yield word.part(*inline.span("value" if inline["value"] else "echoed"))


def _is_set_anew(text: str, name: str, piece: int, command: int) -> bool:
    """True where the variable begins anew between the piece and the command, in the command's own block.

    Of a piece below the command, the block must be one that the piece stands outside of: another function.
    """
    lines = lines_of(text)
    anew = re.compile(
        rf"[ \t]*(?:(?:local|declare|typeset|export)[ ]+(?:-\w+[ ]+)?)?{re.escape(name)}=(?![^\n]*\$\{{?{name}\b)"
    )
    depth = _depth(lines[command - 1]) if command <= len(lines) else 0
    for number in range(command - 1, 0, -1):
        line = lines[number - 1]
        if not line.strip():
            continue
        if piece < command and number <= piece:
            return False
        if _depth(line) <= depth and anew.match(line):
            return piece < command or any(
                one.strip() and _depth(one) < depth for one in lines[command : min(piece, len(lines)) - 1]
            )
        if piece > command and _depth(line) < depth:
            return False
    return False


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def _pieces(commands: Sequence[ShellCommand], sources: Sequence[tuple[str, str]]) -> dict[tuple[str, str], list[Word]]:
    """(file, variable) -> what is put into it, where that has options."""
    pieces: dict[tuple[str, str], list[Word]] = defaultdict(list)
    for command in commands:
        if not command.words and len(command.assignments) == 1:
            word = command.assignments[0]
            name, _, value = word.text.partition("=")
            start = len(name) + 1
            own = OWN.match(value)
            start += own.end() if own else 0
            piece = word.part(start, len(word.text))
            if OPTION.match(piece.text.lstrip()) and not QUOTES.search(piece.text):
                pieces[(command.file, name.rstrip("+"))].append(piece)
        elif [word.text for word in command.words[:2]] == ["set", "--"]:
            words = [word for word in command.words[2:] if not VARIABLE.fullmatch(word.text)]
            whole = spaced(words, " ") if words and words[0].text.startswith("--") else None
            if whole is not None and not any(re.search(r"\s", word.text) for word in words):
                pieces[(command.file, "@")].append(whole)
    for file, text in sources:
        is_shell = "=(" in text and kind_of_name(file) in (None, "shell")
        whole_of = whole_text(text) if is_shell else None
        for match in LIST.finditer(text) if whole_of is not None else ():
            items = BETWEEN.sub(lambda one: " " * len(one[0]), match["items"])
            start = match.start("items") + len(items) - len(items.lstrip())
            if whole_of is not None and OPTION.match(items.lstrip()):
                word = whole_of.part(start, match.start("items") + len(items.rstrip()))
                pieces[(file, match["name"])].append(Word(items.strip(), word.line, word.column, word.places))
    return pieces
