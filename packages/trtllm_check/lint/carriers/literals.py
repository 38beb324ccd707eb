"""Programs of languages that have no reader of their own: the command lines in their texts and lists of texts.

JavaScript, Go, Rust, Ruby, Groovy, HCL and others write them alike: ``spawn("vllm", ["serve", model])``,
So do files of settings: ``command=trtllm-serve m``; Go has ``exec.Command(...)``, Groovy ``sh '...'``.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from trtllm_check.lint.carriers.literal_files import files_in
from trtllm_check.lint.carriers.printed import is_sentence
from trtllm_check.lint.carriers.script import Carried, Script, aligned, dedented, joined, unknown, unknown_arguments
from trtllm_check.lint.programs import PYTHON, TOOL_NAMES, TOOLS
from trtllm_check.lint.shell.words import Word, file_name

LITERAL = re.compile(
    r"\"\"\"(?P<long>.*?)\"\"\"|'''(?P<plain>.*?)'''|\"(?P<double>(?:[^\"\\\n]|\\.)*)\"|'(?P<single>(?:[^'\\\n]|\\.)*)'"
    r"|`(?P<tick>(?:[^`\\]|\\.)*)`|<<[-~]?[\"']?(?P<mark>[A-Za-z_]\w*)[\"']?\n(?P<body>.*?)\n[ \t]*(?P=mark)(?=\s|$)"
    r"|(?P<comment>(?<![:\w])//[^\n]*|/\*.*?\*/|(?m:^[ \t]*\#(?!!)[^\n]*))",
    re.DOTALL,
)
PARTS = ("long", "plain", "double", "single", "tick", "body")
ESCAPED = re.compile(r"\\(.)", re.DOTALL)
RAW = re.compile(r"(?<!\w)(?:[rR][bBfF]?|[bBfF][rR])\Z")
ENDS = {"n": "\n", "t": "\t"}
FILLED_IN = re.compile(
    r"[$#]\{[^{}\n]*[^\w{}\n][^{}\n]*\}|\#\{\w+\}|\{\{[^\n]*?\}\}|(?<=[ =])\{\w*\}|(?<=[ =])%[sdvq](?=[ \n]|$)"
)
STARTS = (
    r"(?:\w+=\S*[ ]+|sudo[ ]+|exec[ ]+|nohup[ ]+)*"
    rf"(?:\S*/)?(?:{TOOL_NAMES}|docker run|mpirun|python3? (?:-m \S+|\S+\.py))"
)
LINE = re.compile(rf"^[ \t]*{STARTS}(?=[ \t\\])", re.MULTILINE)
OPTION = re.compile(r"\s-{1,2}[A-Za-z]")
SETTING = re.compile(
    rf"^[ \t]*(?P<key>[A-Za-z][\w.-]*)[ \t]*(?:=|:(?=[ \t]))[ \t]*(?P<line>{STARTS}[ \t][^\n]*?)[ \t]*$", re.MULTILINE
)
"""``command=trtllm-serve m``: supervisord, quadlets, a Procfile."""
OPENED = (
    r"\s*+(?:,\s*+)?|\s*+,\s*+(?:&?\[|vec!\[|new\s+\w+\[\]\s*\{|\[\]string\{|(?:Arrays\.asList|List\.of|listOf|arrayOf)\()\s*"
    r"|\s*+\)\s*+\.\s*args?\(\s*+(?:&?\[\s*+)?|\s*+(?:\][,;]?\s*+|[,;]\s*+)?\bargs\s*[=:]\s*\[\s*+"
)
NEXT = re.compile(OPENED)
"""What stands between two words of one command."""
VALUE = re.compile(rf"(?:{OPENED})(?P<value>[A-Za-z_$][\w.]*(?:\([^()\n]*\)|\[[^\[\]\n]*\])?(?:\.\w+\(\))?)\s*,\s*")
CLOSED = re.compile(r"\s*+(?:,\s*+)?[\])};]")
STARTERS = frozenset({"python", "python3", "docker", "mpirun", "bash", "sh"})
FIRST = frozenset({"run", "-c", "-lc", "-m", "-n", "-np"})  # without one of these a starter's name is any word
FOREIGN = re.compile(
    r"^(?:package main$|func \w+\(|use std::|fn main\(|import [^\n]* from ['\"]|(?:const|let|var) [\w{][^\n]*=[^\n]*"
    r"(?:require\(|=>|;$)|pipeline \{|node(?:\([^)\n]*\))? \{|public (?:final )?class |using System;|job \"[^\"]+\" \{)"
    r"|\bexec\.Command\(|\bCommand::new\(|\b(?:spawn|execSync|execFile)\(|\bnew ProcessBuilder\(",
    re.MULTILINE,
)
REMARK = re.compile(r"^[ \t]*(?:#|//)[^\n]*", re.MULTILINE)
MOST = 400  # literals of one command
LONGEST = 400_000


class Literal(NamedTuple):
    """The text of a literal, and where it stands with its quotes."""

    value: Word
    start: int
    end: int


def is_program(text: str) -> bool:
    """True for a program of one of these languages."""
    return FOREIGN.search(text) is not None


def carried(word: Word) -> Carried:
    """The commands, and the files that stand in its texts; nothing else of such a text is read."""
    return Carried(scripts=tuple((one, "") for one in scripts(word)), texts=tuple(files(word)))


def files(word: Word) -> Iterator[tuple[str, Word]]:
    """The files in the texts of several lines."""
    if len(word.text) <= LONGEST:
        yield from files_in(one.value for one in literals_of(word) if "\n" in one.value.text)


def scripts(word: Word) -> Iterator[Word]:
    """Shell text for each command line, and for each list of the words of one."""
    if len(word.text) > LONGEST:
        return
    literals = literals_of(word)
    taken = 0
    for number, one in enumerate(literals):
        if number < taken:
            continue
        if _starts(literals, number):
            words, taken = command_of(word, literals, number)
            script = Script()
            script.words(words)
            yield script.word()
        elif _is_script(one.value.text):
            yield one.value
    for match in SETTING.finditer(word.text):
        if not any(one.start <= match.start("line") < one.end for one in literals):
            yield word.part(match.start("line"), match.end("line"))


def literals_of(word: Word) -> list[Literal]:
    """All literals of a program, without those in its comments."""
    return list(_read(word))


def _read(word: Word) -> Iterator[Literal]:
    for match in LITERAL.finditer(word.text):
        name = next((one for one in PARTS if match[one] is not None), "")
        if not name:
            continue
        start, end = match.span(name)
        raw = match[name]
        is_escaped = (
            name in ("double", "tick", "long", "plain") and "\\" in raw and not _is_raw(word.text, match.start())
        )
        value = ESCAPED.sub(lambda found: ENDS.get(found[1], found[1] if found[1] in "\"'`\\$/" else found[0]), raw)
        place = aligned(value, word, start, end) if is_escaped else word.part(start, end)
        yield Literal(_open(dedented(place) if "\n" in place.text else place), match.start(), match.end())


def _is_raw(text: str, start: int) -> bool:
    """True for Python's r"...", which keeps its backslashes."""
    return RAW.search(text, max(start - 3, 0), start) is not None


def _open(text: Word) -> Word:
    """What the program puts into a text is unknown."""
    parts: list[Word] = []
    position = 0
    for match in FILLED_IN.finditer(text.text):
        here = text.part(match.start(), match.start() + 1)
        parts += [text.part(position, match.start()), unknown(match[0], (here.line, here.column))]
        position = match.end()
    return joined([*parts, text.part(position)]) if parts else text


def _is_script(text: str) -> bool:
    if not OPTION.search(text):
        return False
    if "\n" in text.strip():
        return LINE.search(text) is not None
    return LINE.match(text.strip()) is not None and not is_sentence(text)


def _starts(literals: Sequence[Literal], number: int) -> bool:
    """True for a literal that is the name of a program, with its first argument behind it."""
    text = literals[number].value.text
    if not text or any(letter.isspace() for letter in text):
        return False
    name = file_name(text)
    if name in TOOLS and name != "vllm":
        return True
    behind = literals[number + 1].value.text if number + 1 < len(literals) else ""
    if name == "vllm":
        return behind in ("serve", "bench")
    return name in STARTERS and (behind in FIRST or (PYTHON.fullmatch(name) is not None and behind.endswith(".py")))


def command_of(word: Word, literals: Sequence[Literal], number: int) -> tuple[list[Word], int]:
    """The words from literal ``number`` on, and the first literal that is none of them."""
    words = [literals[number].value]
    last = literals[number]
    for index in range(number + 1, min(len(literals), number + MOST)):
        one = literals[index]
        between = REMARK.sub("", word.text[last.end : one.start])
        if NEXT.fullmatch(between) is None:
            value = VALUE.fullmatch(between)
            if value is None:
                break
            words.append(unknown(value["value"], _place(word, last.end + value.start("value"))))
        words.append(one.value)
        last = one
        number = index
    if CLOSED.match(word.text, last.end) is None:
        words.append(unknown_arguments(_place(word, last.end)))
    return words, number + 1


def _place(word: Word, index: int) -> tuple[int, int]:
    here = word.part(index, index + 1)
    return here.line, here.column
