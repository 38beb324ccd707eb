"""Jupyter notebooks: shell lines and cells, Python cells, files that a cell writes, and the prose between them."""

import ast
import json
import re
import warnings
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from trtllm_check.lint.carriers.faults import FormFault
from trtllm_check.lint.carriers.script import Carried, Script
from trtllm_check.lint.shell import Word

SHELL_CELL = re.compile(r"\s*%%(?:bash|sh|script\b.*|shell)\b.*")
FILE_CELL = re.compile(r"\s*%%(?:writefile|file)\s+(?:-a\s+)?(?P<name>\S+)")
SHELL_LINE = re.compile(r"\s*(?:!|%(?=(?:pip|cd|env)\b))")
# A line whose only effect is on its own shell, which ends with the line.
LOST = re.compile(
    r"\s*!\s*(?P<what>(?:cd|export|source|\.|(?:conda|micromamba) activate)[ \t]+(?P<rest>[^\s;&|]+))[ \t]*(?:#.*)?$"
)
# A server in the foreground of a cell, and what asks it in a later one.
SERVES = re.compile(
    r"^[ \t]*!\s*(?P<what>(?:[A-Z_]+=\S+[ ]+)*(?:vllm serve|trtllm-serve(?: serve)?|tritonserver"
    r"|python3? -m vllm\.entrypoints\.(?:openai\.)?api_server))(?P<rest>(?:[ \t](?:[^\n\\]|\\\n|\\.)*)?)$",
    re.MULTILINE,
)
ASKS = re.compile(r"localhost|127\.0\.0\.1|0\.0\.0\.0")
MAGIC = re.compile(r"\s*[%!]")
KIND = re.compile(r'"cell_type": *"(?P<kind>\w+)"')
SOURCE = re.compile(r'"source": *\[(?P<lines>(?:\s*"(?:[^"\\\n]|\\.)*",?)*)\s*(?:\]|\Z)')
STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{4}|.)|[^\\]", re.DOTALL)
OUTPUTS = re.compile(r"^ *\"outputs\": \[\n(?:(?! *\"source\": ).*\n)*", re.MULTILINE)
PYTHON = "cell.py"
LONGEST = 200_000
PAGE = "cell.md"


def carried(word: Word) -> Carried:
    """Shell as scripts; Python, Markdown and written files as texts with a name that tells their kind."""
    cells = _cells(word.text)
    if cells is None:
        return Carried()
    found = Carried()
    code: list[Word] = []
    placed = list(_placed(word, cells))
    found = found.with_(Carried(faults=tuple(_unending(placed))))
    for kind, lines in placed:
        cell = _cell(kind, lines)
        code += [text for name, text in cell.texts if name == PYTHON and _parses(text.text)]
        kept = tuple((name, text) for name, text in cell.texts if name != PYTHON or not _parses(text.text))
        found = found.with_(cell._replace(texts=kept))
    return found.with_(Carried(texts=tuple((PYTHON, one) for one in _one_program(code))))


def _one_program(code: list[Word]) -> list[Word]:
    """The cells of Python as one text: a name that one sets is known in those behind it."""
    whole = Script()
    for one in code:
        whole.line(one)
    text = whole.word()
    return [text] if code and len(text.text) < LONGEST else code


@lru_cache(maxsize=512)
def _parses(text: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return bool(text.strip())


def is_notebook(text: str) -> bool:
    """True for a whole notebook, and for cells that were cut out of one."""
    if text.lstrip().startswith("{") and '"cells"' in text and '"nbformat"' in text:
        return True
    return '"cell_type"' in text and len(SOURCE.findall(text)) > 1 and not text.lstrip().startswith("[")


@lru_cache(maxsize=8)
def without_outputs(text: str) -> str:
    """A notebook with what its cells printed blanked; each character keeps its place. Another text as it is."""
    if not is_notebook(text):
        return text
    return OUTPUTS.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def _cells(text: str) -> list[Any] | None:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return _cut_out(text) or None
    cells = content.get("cells") if isinstance(content, dict) else None
    return cells if isinstance(cells, list) else None


def _cut_out(text: str) -> list[Any]:
    """The cells of a piece of a notebook, of which the first may lack its begin and the last its end."""
    kinds = [(match.start(), match["kind"]) for match in KIND.finditer(text)]
    found = []
    for source in SOURCE.finditer(text):
        kind = next((kind for start, kind in reversed(kinds) if start < source.start()), "code")
        lines = [one[0] for one in STRING.finditer(source["lines"])]
        try:
            found.append({"cell_type": kind, "source": [json.loads(one) for one in lines]})
        except ValueError:
            continue
    return found


def _placed(word: Word, cells: list[Any]) -> Iterator[tuple[str, list[Word]]]:
    """Kind and lines of each cell, at their places in the file."""
    position = 0
    text = word.text
    for cell in cells:
        if not isinstance(cell, dict):
            continue
        source = cell.get("source", [])
        parts = [source] if isinstance(source, str) else [one for one in source if isinstance(one, str)]
        start = text.find('"source"', position)
        position = max(position, start)
        lines: list[Word] = []
        for part in parts:
            begin = max((text.find(_json(part, ascii_), position) for ascii_ in (False, True)), default=-1)
            if begin >= 0:
                position = begin + 1
            lines.append(_decoded(part, word, max(begin, 0) + 1))
        yield str(cell.get("cell_type", "")), lines


def _json(text: str, ascii_: bool) -> str:
    return json.dumps(text, ensure_ascii=ascii_)


def _decoded(value: str, word: Word, start: int) -> Word:
    """``value`` at the places of its JSON string, which begins at ``start``."""
    places = []
    position = start
    for _ in value:
        places.append(word.places[min(position, len(word.places) - 1)])
        match = ESCAPE.match(word.text, position)
        position = match.end() if match else position + 1
    line, column = places[0] if places else (word.line, word.column)
    return Word(value, line, column, tuple(places))


def _cell(kind: str, pieces: list[Word]) -> Carried:
    whole = Script()
    for piece in pieces:
        whole.take(piece)
    text = whole.word()
    if kind == "markdown":
        return Carried(texts=((PAGE, text),))
    if kind != "code":
        return Carried()
    first, _, _ = text.text.partition("\n")
    if SHELL_CELL.match(first):
        return Carried(scripts=((text.part(len(first) + 1), ""),))
    if match := FILE_CELL.match(first):
        return Carried(texts=((match["name"], text.part(len(first) + 1)),))
    return _code(text)


def _code(text: Word) -> Carried:
    """A Python cell: its shell lines, and the rest."""
    shell, code = Script(), Script()
    position = 0
    continued = False
    lost: list[FormFault] = []
    for line in text.text.split("\n"):
        piece = text.part(position, position + len(line))
        position += len(line) + 1
        match = SHELL_LINE.match(line)
        if not continued and (gone := LOST.match(line)) is not None:
            lost.append(_lost(piece, gone))
        if continued or match:
            shell.line(piece.part(match.end() if match and not continued else 0))
            continued = line.rstrip().endswith("\\")
            code.add(" " * len(line), (piece.line, piece.column))
        elif MAGIC.match(line):
            code.add(" " * len(line), (piece.line, piece.column))
        else:
            code.take(piece)
        code.end()
    found = Carried(texts=((PYTHON, code.word()),), faults=tuple(lost))
    script = shell.word()
    return found.with_(Carried(scripts=((script, ""),))) if script.text else found


def _unending(placed: list[tuple[str, list[Word]]]) -> Iterator[FormFault]:
    """``!vllm serve MODEL``, whose cell does not end while it serves, in front of a cell that asks it."""
    texts = ["".join(word.text for word in lines) if kind == "code" else "" for kind, lines in placed]
    for number, (_, lines) in enumerate(placed):
        match = SERVES.search(texts[number])
        if match is None or "&" in match["rest"] or "--help" in match["rest"]:
            continue
        if any(ASKS.search(text) for text in texts[number + 1 :]):
            position = match.start("what")
            for line in lines:
                if position < len(line.text):
                    place = line.part(position, position + len(match["what"]))
                    yield FormFault("behind-a-server", place, "cell", (("tool", match["what"].strip()),))
                    break
                position -= len(line.text)


def _lost(line: Word, match: re.Match[str]) -> FormFault:
    """``!cd folder`` and ``!export NAME=value``."""
    is_folder = match["what"].startswith("cd")
    if not match["what"].startswith(("cd", "export")):
        return FormFault("notebook-line", line.part(*match.span("what")), "environment", (("what", match["what"]),))
    name, _, value = match["rest"].partition("=")
    right = f"%cd {match['rest']}" if is_folder else f"%env {name}={value}"
    known = (("what", match["what"]), ("right", right))
    return FormFault("notebook-line", line.part(*match.span("what")), "folder" if is_folder else "", known)
