"""What stands on a page between its commands: runs of settings, options and variables, Python, manifests."""

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from textwrap import dedent
from typing import Any, NamedTuple

from trtllm_check.lint.carriers.python_code import parsed
from trtllm_check.lint.carriers.python_mending import is_nearly_python
from trtllm_check.lint.carriers.python_signs import lacks_signs
from trtllm_check.lint.carriers.yaml_documents import is_yaml
from trtllm_check.lint.kinds import is_options
from trtllm_check.lint.setting_rows import with_plain_rows
from trtllm_check.lint.shell.languages import COMMANDS
from trtllm_check.lint.shell.pasted import has_fence

IMPORTS = re.compile(r"^(?:import [\w.]+[ \t]*$|from [\w.]+ import [\w, ]+[ \t]*$)", re.MULTILINE)
SENTENCE = re.compile(r"^[A-Z][^ \n]*+ [^ \n]*+ [^\n]*[.:][ \t]*$", re.MULTILINE)
BEGINS = re.compile(
    r"(?:import [\w.]+(?: as \w+)?(?:, ?[\w.]+)*|from [\w.]+ import (?:\([^()]*\)?|[\w, ]+))[ \t]*(?:#.*)?$"
)
KNOWN_IMPORT = re.compile(
    r"^(?:from|import) (?:tensorrt_llm|vllm|tritonclient|openai|transformers|modelopt|sagemaker|torch|boto3"
    r"|requests)\b",
    re.MULTILINE,
)
HANDED = re.compile(r"<<-?[ ]?[\"']?\w|\bpython3?(?:\.\d+)? -c\b|-c[ ]+[\"'][ \t]*$", re.MULTILINE)  # to an interpreter
COMMAND_LINE = re.compile(rf"[ \t]*(?:[$>][ ]+)?{COMMANDS}")
MOST_TRIES, MOST_FAILED = 60, 6  # of a page, and one after the other
OPTION = re.compile(r"[ \t]*(?:- )?[a-z][a-z0-9]*(?:_[a-z0-9]+)*:(?:[ \t]+\S.*)?[ \t]*")
LMI_LINE = re.compile(r"[ \t]*(?:option\.\w+|engine)[ \t]*=[ \t]*\S", re.ASCII)
PROPERTY = re.compile(r"[ \t]*[A-Za-z][\w.-]*[ \t]*=.*", re.ASCII)
VARIABLE = re.compile(
    r"[ \t]*(?P<name>[a-z][a-z0-9]*(?:_[a-z0-9]+)+):(?P<value>[^\s:/][^\s]*(?:[ \t]+\*+)?|/\S*)[ \t]*", re.ASCII
)
MANIFEST = re.compile(r"^(?:apiVersion:[ \t]+\S|services:[ \t]*$)", re.MULTILINE)
OF_MANIFEST = re.compile(r"^(?:kind|spec|[ \t]+image):", re.MULTILINE)
YAML_LINE = re.compile(r"[ \t]|[A-Za-z][\w-]*:(?:[ \t]|$)|-[ \t]|---[ \t]*$|#|$")
OF_SHELL = re.compile(
    r"(?:\$[ ]+)?(?:kubectl|helm|docker|cat|curl|git|mkdir|cd|export|oc|kind|minikube|sudo)[ ]+[\w.<>$/-]"
)
POST = re.compile(r"\b(?:requests|httpx|session|client)\.post\(")
ASSIGNED = re.compile(r"^[ \t]*(?P<name>[A-Za-z_]\w*)[ \t]*=[ \t]*(?=[\"'{])", re.MULTILINE)
BLANKS = str.maketrans({"\u00a0": " ", "\u202f": " "})
LONGEST = 20_000
FEWEST_KEYS = 2  # of LMI's in a block
Found = tuple[Any, tuple[int, int]]
"""A value, and the start and end of its literal."""


class Lines(NamedTuple):
    """Lines ``first`` to ``last`` of a text, counted from 1, that belong together."""

    first: int
    last: int
    text: str


class Post(NamedTuple):
    """One ``requests.post``: URL and JSON body where the text says them, and where each of them begins and ends."""

    url: str
    url_span: tuple[int, int]
    fields: Mapping[str, Any]
    body_span: tuple[int, int]


def properties_blocks(text: str) -> list[Lines]:
    """Runs of ``key=value`` lines, comments among them, with two of LMI's keys or more; rows and items alike."""
    text = with_plain_rows(text)
    if _lmi_lines(text) < FEWEST_KEYS:
        return []
    return [run for run in _runs(text, _is_property) if _lmi_lines(run.text) >= FEWEST_KEYS]


def variable_lists(text: str) -> list[Lines]:
    """Runs of ``template_variable:value`` lines, as pages list what to fill in."""
    return [run for run in _runs(text, lambda line: ":" in line and VARIABLE.fullmatch(line)) if run.last > run.first]


def python_behind_words(text: str) -> Lines | None:
    """The Python that begins below a sentence, on a page without fences; None where there is none."""
    match = None if has_fence(text) or text.startswith("#!") else IMPORTS.search(text)
    if match is None or not SENTENCE.search(text, 0, match.start()):
        return None
    piece = text[match.start() :].rstrip()
    if parsed(piece) is None and not lacks_signs(piece) and not is_nearly_python(piece):
        return None
    first = text.count("\n", 0, match.start()) + 1
    return Lines(first, first + piece.count("\n"), piece)


def python_pieces(text: str) -> list[Lines]:
    """The runs of Python that begin with an import, between the commands and the prose of a page without fences."""
    if has_fence(text) or text.startswith("#!") or HANDED.search(text) or not KNOWN_IMPORT.search(text):
        return []
    lines = text.split("\n")
    found: list[Lines] = []
    tries = MOST_TRIES
    first = 0
    while first < len(lines) and tries > 0:
        if not BEGINS.match(lines[first]):
            first += 1
            continue
        last, failed = 0, 0
        for end in _ends(lines, first):
            tries -= 1
            if failed > MOST_FAILED or tries < 0:
                break
            is_python = _is_python("\n".join(lines[first:end]))
            last, failed = (end, 0) if is_python else (last, failed + 1)
        piece = "\n".join(lines[first:last]).rstrip()
        if last and "(" in piece and KNOWN_IMPORT.search(piece):
            found.append(Lines(first + 1, first + 1 + piece.count("\n"), piece))
        first = max(last, first + 1)
    return found


def _ends(lines: list[str], first: int) -> Iterator[int]:
    """Where a run that begins at ``first`` may end: at each empty line, and at the first command of a shell."""
    for number in range(first, len(lines)):
        if COMMAND_LINE.match(lines[number]) and not _is_python(lines[number]):
            yield number
            return
        if not lines[number].strip():
            yield number
    yield len(lines)


def _is_python(piece: str) -> bool:
    return len(piece) <= LONGEST and parsed(piece) is not None


def without(text: str, runs: Iterable[Lines]) -> str:
    """``text`` with the lines of ``runs`` empty."""
    numbers = numbers_of(runs)
    if not numbers:
        return text
    return "\n".join("" if number in numbers else line for number, line in enumerate(text.split("\n"), 1))


def manifest_runs(text: str, taken: Collection[int]) -> list[Lines]:
    """Files of Kubernetes and compose that stand between the commands of a page without fences."""
    if has_fence(text) or not MANIFEST.search(text):
        return []
    lines = text.split("\n")
    found: list[Lines] = []
    end = 0
    for match in MANIFEST.finditer(text):
        first = text.count("\n", 0, match.start())
        if first < end or first + 1 in taken:
            continue
        end = first + 1
        while end < len(lines) and end + 1 not in taken and YAML_LINE.match(lines[end]):
            end += 1
        piece = "\n".join(lines[first:end]).rstrip()
        if OF_MANIFEST.search(piece) and is_yaml(piece):
            found.append(Lines(first + 1, first + 1 + piece.count("\n"), piece))
    return found


def is_shell_with_manifests(text: str) -> bool:
    """True for what is called YAML and begins with a command of a shell."""
    first = next((line for line in text.split("\n") if line.strip() and not line.lstrip().startswith("#")), "")
    return OF_SHELL.match(first) is not None and not is_yaml(text)


def option_runs(text: str) -> list[Lines]:
    """Options of the LLM API between commands: runs of ``name: value``."""
    return [
        run
        for run in _runs(text, lambda line: OPTION.fullmatch(line))
        if run.last > run.first and is_options(dedent(run.text))
    ]


def posts(text: str) -> Iterator[Post]:
    """The requests of Python code whose URL and body are literals, or names of literals."""
    if ".post(" not in text:
        return
    text = text.translate(BLANKS)
    values = {match["name"]: found for match in ASSIGNED.finditer(text) if (found := _literal(text, match.end()))}
    for match in POST.finditer(text):
        call = text[match.end() : _closing(text, match.end() - 1)]
        url = _argument(re.match(r"\s*(?:url\s*=\s*)?", call), call, match.end(), text, values)
        body = _argument(re.search(r"\b(?:json|data)\s*=\s*", call), call, match.end(), text, values)
        if url and body and isinstance(url[0], str) and isinstance(body[0], dict):
            yield Post(url[0], url[1], body[0], body[1])


def _argument(
    match: re.Match[str] | None, call: str, begin: int, text: str, values: Mapping[str, Found]
) -> Found | None:
    """The value of one argument of a call, given there or by its name."""
    if match is None:
        return None
    name = re.match(r"[A-Za-z_]\w*", call[match.end() :])
    return values.get(name[0]) if name else _literal(text, begin + match.end())


def _literal(text: str, begin: int) -> Found | None:
    """The string or dictionary that begins at ``begin``."""
    if text[begin : begin + 1] == "{":
        end = _closing(text, begin) + 1
    else:
        quoted = re.match(r"\"[^\"\n]*\"|'[^'\n]*'", text[begin:])
        end = begin + (quoted.end() if quoted else 0)
    try:
        return ast.literal_eval(text[begin:end]), (begin, end)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def _closing(text: str, begin: int) -> int:
    """Where the bracket at ``begin`` is closed; strings may hold others."""
    depth = 0
    for match in re.finditer(r"\"[^\"\n]*\"|'[^'\n]*'|[(\[{]|[)\]}]", text[begin : begin + LONGEST]):
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(match[0], 0)
        if depth == 0:
            return begin + match.start()
    return begin


def _is_property(line: str) -> bool:
    return (PROPERTY.fullmatch(line) is not None and not line.rstrip().endswith("\\")) or line.lstrip().startswith("#")


def _lmi_lines(text: str) -> int:
    return sum(LMI_LINE.match(line) is not None for line in text.split("\n"))


def _runs(text: str, belongs: Any) -> Iterator[Lines]:
    """Lines one after the other that ``belongs`` takes."""
    lines = text.split("\n")
    start = 0
    for number in range(len(lines) + 1):
        if number < len(lines) and belongs(lines[number].rstrip("\r")):
            continue
        if number > start:
            yield Lines(start + 1, number, "\n".join(lines[start:number]))
        start = number + 1


def numbers_of(runs: Iterable[Lines]) -> set[int]:
    """The numbers of all lines of ``runs``."""
    return {number for run in runs for number in range(run.first, run.last + 1)}
