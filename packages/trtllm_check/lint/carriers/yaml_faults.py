"""YAML that does not parse, and keys that stand twice: which line, and why."""

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

from trtllm_check.lint.carriers.faults import FormFault
from trtllm_check.lint.carriers.option_lines import AS_WORDS
from trtllm_check.lint.shell.words import Word

# What makes a text none of our business where it does not parse, and what makes it a template of another language.
OURS = re.compile(
    r"vllm|trtllm|tensorrt|tritonserver|sglang|text-generation|djl|\bnim\b|nvidia\.com/gpu|huggingface|HF_TOKEN|LLM"
    r"|^apiVersion: *(?:serving\.kserve\.io|inference\.networking|gateway\.networking\.k8s\.io|ray\.io)\b"
    r"|^apiVersion: *(?:apps\.nvidia\.com|kubeai\.org|kaito\.sh)\b",
    re.IGNORECASE | re.MULTILINE,
)
TEMPLATED = re.compile(r"(?<!\$)\{\{|\{%|<%|^\s*(?:\.\.\.|…)\s*$|^\s*\$\{?\w+\}?\s*$|^[<>=|]{7}", re.MULTILINE)
TAB = re.compile(r"^[ ]*\t[ \t]*(?=[^\s#])", re.MULTILINE)
NO_COLON = re.compile(r"^[ ]*(?:- )?[A-Za-z_][\w.-]*[ ]*$")
# What the reader or a program fills in; a name glued to a value stands for further lines.
PLACEHOLDER = re.compile(r":[ ]+[{<\[][\w -]+[}>\]]|^\s*<[^>]+>\s*$|@\w+@|(?:[\"'\]}:]|^\s+)[A-Z]+_[A-Z_]+\s*$")
WHOLE = re.compile(r"^(?:apiVersion|services|kind|version|image|servingEngineSpec)\s*:", re.MULTILINE)
FIRST_LINE = re.compile(r"\n*([ ]+)\S")
NEXT_FILE = re.compile(
    r"(?<=\n)(?P<above>#[^\n]*\n)?#+[ \t]*(?:(?:[Ss]ource|[Ff]ile)[ \t]*:[ \t]*)?[\w./-]+\.ya?ml[ \t:]*"
    r"(?=\n(?:[ \t]*(?:#[^\n]*)?\n)*[A-Za-z_\"'-])"
)
REFUSING = re.compile(r"^(?:apiVersion|services):", re.MULTILINE)  # kubectl and docker compose, whatever the values
# What a program printed, and what a line of YAML looks like.
OUTPUT = re.compile(
    r"^(?:usage: \S+ \[-|Traceback \(most|[\w.-]+: error: |(?:ERROR|INFO|WARNING) (?=\S))", re.MULTILINE
)
OF_YAML = re.compile(r"[ ]+\S|-|[\"'\w./-]+:(?:\s|$)|#|[\])}]")
HEREDOC_END = re.compile(r"[ \t]*(?:EO[A-Z]|END|YAML)[ \t]*")  # behind a file that a page's shell writes
MERGE = "<<"
UNDEFINED = "undefined alias"
# What has to stand in a text, and not only in a comment, before a key that stands twice is our business.
SERVES = re.compile(
    r"vllm|trtllm|tensorrt|tritonserver|sglang|text-generation|djl|\bnim\b|nvidia\.com/gpu|HF_TOKEN|capabilities:.*gpu",
    re.IGNORECASE,
)
# A message of several parts, as cloud-init reads it, and a terminal's lines around a document.
NOT_YAML = re.compile(r"\AMIME-Version:|^Content-Type: multipart/|^[ \t$]*kubectl .*<<", re.MULTILINE)
COMMENT = re.compile(r"(?<!\S)#.*$", re.MULTILINE)


def faults(word: Word, is_file: bool, *, is_ours: bool = False) -> Iterator[FormFault]:
    """What a parser stumbles on first; of a part of a page only where it begins like a whole file.

    ``is_ours``: it is a whole file of vLLM's options.
    """
    text = without_output(word.text)
    if (
        not (is_ours or OURS.search(text))
        or NOT_YAML.search(text)
        or TEMPLATED.search(text)
        or not (is_file or is_ours or WHOLE.match(text.lstrip()))
    ):
        return
    import yaml

    try:
        nodes: list[Any] = _composed(text)
    except yaml.MarkedYAMLError as error:
        if not is_file and UNDEFINED in (error.problem or ""):
            return  # what another part of the file makes
        mark = error.problem_mark or error.context_mark
        around = word.text.split("\n")[max(int(mark.line) - 1, 0) : int(mark.line) + 1] if mark else []
        if mark and is_cut_above(word.text, int(mark.line)):
            return
        is_printed = any(HEREDOC_END.fullmatch(line) for line in around)
        if not is_printed and not any(PLACEHOLDER.search(line) for line in around):
            yield _broken(word, error, is_ours=is_ours)
    except (yaml.YAMLError, ValueError, RecursionError):
        return
    else:
        if not SERVES.search(COMMENT.sub("", text)):
            return
        read: set[int] = set()
        found = (fault for node in nodes for fault in _twice(word, node, read))
        yield from islice(found, 1)


def is_cut_above(text: str, number: int) -> bool:
    """True where line ``number`` (from 0) goes on less deep than the text begins: what holds both stands above it.

    The first keys of a whole file hold nothing, so one that begins with them is indented in a wrong way.
    """
    lines = text.split("\n")
    first = next((line for line in lines if line.strip() and not line.lstrip().startswith("#")), "")
    depths = [len(line) - len(line.lstrip()) for line in (first, lines[min(number, len(lines) - 1)])]
    return depths[1] < depths[0] and WHOLE.match(first.lstrip()) is None


def without_output(text: str) -> str:
    """``text`` with what a program printed, and was pasted below the file, blanked; each line stays."""
    match = OUTPUT.search(text)
    if match is None or match.start() == 0:
        return text
    lines = text[: match.start()].split("\n")[:-1]
    while lines and not OF_YAML.match(lines[-1]):
        lines.pop()  # what introduces it
    kept = len("\n".join(lines))
    return text[:kept] + re.sub(r"[^\n]", " ", text[kept:])


def _next_file(match: re.Match[str]) -> str:
    """A mark in place of a file's name; the end of a sentence in a comment stays."""
    return match[0] if match["above"] else "---" + " " * (len(match[0]) - 3)


def starts_at_margin(text: str) -> str:
    """``text`` with the marks of its documents at the margin, where a page indents all of it; no longer.

    A comment that is the name of a file, and nothing else, begins one: so people hand over several of them.
    """
    text = NEXT_FILE.sub(_next_file, text) if "#" in text else text
    first = FIRST_LINE.match(text)
    if first is None:
        return text
    return re.sub(rf"^({first[1]})---(?=[ ]*\r?$)", r"---\1", text, flags=re.MULTILINE)


def _composed(text: str) -> list[Any]:
    """Its documents. Of an error speaks the parser that every machine has: libyaml's places and words are others."""
    import yaml

    text = starts_at_margin(text)
    try:
        return list(yaml.compose_all(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except yaml.MarkedYAMLError:
        return list(yaml.compose_all(text, yaml.SafeLoader))


def _broken(word: Word, error: Any, *, is_ours: bool = False) -> FormFault:
    lines = word.text.replace("\r\n", "\n").split("\n")
    mark = error.problem_mark or error.context_mark
    number = min(int(mark.line), len(lines) - 1) if mark else 0
    tab = TAB.search(word.text)
    problem = " ".join(part for part in (error.context, error.problem) if part)
    if tab and ("\\t" in problem or word.text.count("\n", 0, tab.start()) == number):
        number = word.text.count("\n", 0, tab.start())
        return FormFault("yaml-does-not-parse", _line(word, number), "tab", (("line", str(_line(word, number).line)),))
    if re.search(r"expected ':'|mapping values are not allowed", error.problem or ""):
        above = next((at for at in range(number - 1, -1, -1) if lines[at].strip()), number)
        words = next((at for at, line in enumerate(lines[: number + 1]) if AS_WORDS.match(line)), above)
        for at in (number, above, words):
            if NO_COLON.match(lines[at]) or (at == words and is_ours):
                return FormFault("yaml-does-not-parse", _line(word, at), "colon", (("text", lines[at].strip()),))
    other = _unlike(lines, number) if UNDEFINED not in problem else None
    known = (("problem", problem), ("line", str(_line(word, number).line)), ("text", lines[number].strip()[:60]))
    if other is not None:
        return FormFault("yaml-does-not-parse", _line(word, number), "indentation", (*known, ("indent", other)))
    return FormFault("yaml-does-not-parse", _line(word, number), "", known)


def _unlike(lines: list[str], number: int) -> str | None:
    """How far a line is indented, where no line above it in its block is indented so."""
    here = lines[number]
    indent = len(here) - len(here.lstrip())
    if not here.strip():
        return None
    above: list[int] = []
    for line in reversed(lines[:number]):
        if line.strip() and not line.lstrip().startswith("#"):
            depth = len(line) - len(line.lstrip())
            above += [depth, depth + 2] if line.lstrip().startswith("- ") else [depth]
            if depth == 0:
                break
    return f"{indent} blanks" if indent not in above else None


def _line(word: Word, number: int) -> Word:
    """Where the text of line ``number`` (from 0) begins."""
    start = 0
    for _ in range(number):
        start = word.text.index("\n", start) + 1
    end = word.text.find("\n", start)
    line = word.text[start : end if end >= 0 else None]
    begin = start + len(line) - len(line.lstrip())
    return word.part(begin, start + len(line)) if line.strip() else word.part(start, start + 1)


def _twice(word: Word, node: Any, read: set[int], depth: int = 0) -> Iterator[FormFault]:
    """A key that a mapping has twice. Every node once, aliases or not."""
    if node is None or node.id == "scalar" or depth > 60 or id(node) in read:
        return
    read.add(id(node))
    if node.id == "sequence":
        for one in node.value:
            yield from _twice(word, one, read, depth + 1)
        return
    seen: dict[str, int] = {}
    values: dict[str, Any] = {}
    for key, value in node.value:
        if key.id == "scalar" and key.value != MERGE:
            name, line = str(key.value), int(key.start_mark.line)
            same = value.id == "scalar" and name in values and values[name].value == value.value
            values.setdefault(name, value)
            if name in seen and not (same and not REFUSING.search(word.text)):
                known = (("key", name), ("line", str(line + 1)), ("first", str(seen[name] + 1)))
                yield FormFault("yaml-key-twice", _line(word, line), "", known)
            seen.setdefault(name, line)
        yield from _twice(word, value, read, depth + 1)
