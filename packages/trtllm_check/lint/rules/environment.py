"""Variables of the environment: names that vLLM does not read, and settings that no program gets."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.programs import VLLM_IMAGE
from trtllm_check.lint.rules.box import boxes
from trtllm_check.lint.rules.settings import settings
from trtllm_check.lint.rules.vllm import engine_arguments
from trtllm_check.lint.rules.vllm_table import absence, instead_of, release_for
from trtllm_check.lint.shell.pasted import fences, has_fence
from trtllm_check.lint.shell.words import ShellCommand, Word
from trtllm_check.releases.vllm import Changes, VllmRelease, vllm_facts

FAMILY = "environment"
OWN = re.compile(r"VLLM_[A-Z0-9_]+")
SAYS = re.compile(r"^[ \t]*(?:[-*+•] \S|[A-Z][\w ]*:[ \t]*$)", re.MULTILINE)
OF_SETTINGS = re.compile(r"\s*(?:(?:[A-Z][A-Z0-9_]*=[^\n]*|#[^\n]*|--[a-z][^\n]*)\s*)+[`~]*\s*")
OF_A_FILE = re.compile(r"(?<![\w])[\w./-]*\.env\b")
ABOVE, OF_DOTENV = 8, re.compile(r"#[^\n]*\.env\b")  # lines that say that a file of settings follows
ASSIGNED = re.compile(r"(?P<name>[A-Z][A-Z0-9_]*)=(?P<value>.*)", re.DOTALL)
NEAR = 0.86
OF_SCRIPTS = re.compile(r"(?:TRTLLM|TLLM|VLLM|HF)_(?:\w+_)?(?:DIR|PATH|ROOT|REPO|IMAGE|TAG|VERSION|ARGS|URL)")
"""Names that scripts give to places of their own."""
INTERNAL = re.compile(r"(?P<option>--port|--host)(?:=|\s+)[\"']?\$\{?(?P<name>VLLM_PORT|VLLM_HOST_IP)\b")
SOURCED = re.compile(r"^[ \t]*(?:source|\.)[ \t]+\S", re.MULTILINE)  # which may set it, exported or not
COMPOSE = re.compile(r"^services[ \t]*:", re.MULTILINE)
INDENTED = re.compile(r"^([ ]+)(?=[\w\"'])", re.MULTILINE)
MERGED = re.compile(r"^[ \t]*(?:<<|extends)[ \t]*:", re.MULTILINE)
OWN_IMAGE = re.compile(r"(?:docker\.io/)?vllm/vllm-openai(?::|@|$)")
MODEL_NAME = re.compile(r"(?:VLLM_|HF_|LLM_|BASE_)?MODEL(?:_NAME|_ID|_PATH)?")
OF_AMD = "AITER"  # in names that AMD's own builds of vLLM read, more than its releases do
SEVERAL = 3  # variables of a beginning that vLLM has none of
ENOUGH = 4  # parts of a name, of which one more is the same name
OPTION = re.compile(r"write (?P<flag>--[a-z][\w-]+)")
SOURCES = frozenset({".", "source", "set", "eval"})
STARTERS = ("vllm", "trtllm-serve", "trtllm-bench", "trtllm-build", "tritonserver", "launch_triton_server.py", "run.py")
PROGRAMS = re.compile(
    r"(?:.*/)?(?:python[\d.]*|torchrun|accelerate|deepspeed|mpirun|mpiexec|ray|lmdeploy|sglang|swift|xinference\S*"
    r"|llamafactory-cli|huggingface-cli|hf|lm_eval|lm-eval|aphrodite|llm|fschat|uvicorn|gunicorn)"
)
"""Programs beside ``STARTERS`` that read such variables, whatever they run."""


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """Both kinds."""
    release = platform.release.name
    seen: set[tuple[str, str]] = set()
    given = tuple(settings(document))
    own = _prefixes_of_its_own({one.name for one in given})
    for name, _, place, file in given:
        word = place if place.text.startswith(name) else Word(name, place.line, place.column)
        if not OWN.fullmatch(name) or (file, name) in seen or word.text in rule_data(FAMILY)["as_today"].split():
            continue
        if name.startswith(own) and name not in _variables():
            continue
        if re.search(rf"--[a-z][\w-]*[ =]+[\"']?\$\{{?{name}\b", dict(document.texts).get(file, "")):
            continue  # handed to an option, which is what it is for
        seen.add((file, name))
        for form, known in _said(name, release_for(document, None)):
            option = OPTION.match(known.get("instead", ""))
            if option and option["flag"] in dict(document.texts).get(file, ""):
                known["instead"] = f"leave it out: {option['flag']} is given"
            yield from drafts(release, "variable-unknown", word, form=form, file=file, name=name, **known)
    yield from _arguments(document, release)
    yield from _without_arguments(document, release)
    yield from _read_by_nobody(document, release, own)
    yield from _not_exported(document, release)
    yield from _internal(document, release)


def _prefixes_of_its_own(names: Iterable[str]) -> tuple[str, ...]:
    """``VLLM_ARGV_`` where a script gives several variables of this beginning, of which vLLM reads none of."""
    known = tuple(_variables())
    beginnings = Counter("_".join([*name.split("_")[:2], ""]) for name in names if OWN.fullmatch(name))
    return tuple(
        one
        for one, number in beginnings.items()
        if number >= SEVERAL and not any(name.startswith(one) for name in known)
    )


def _internal(document: Document, release: str) -> Iterator[Draft]:
    """``--port $VLLM_PORT`` from the environment: the variable is vLLM's own, for the ports between its processes."""
    for file, text in document.texts:
        for match in INTERNAL.finditer(text):
            if re.search(rf"^[ \t]*(?:local[ \t]+)?{match['name']}=", text, re.MULTILINE):
                continue  # the script's own: it does not reach the server
            if text[text.rfind("\n", 0, match.start()) + 1 : match.start()].count("`") % 2:
                continue  # words of code in a sentence
            if SOURCED.search(text) or _is_filled_by_compose(text, match.start(), match["name"]):
                continue
            start = match.start("name")
            place = Word(match["name"], text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start))
            known: dict[str, Any] = {"option": match["option"], "name": match["name"]}
            yield from drafts(release, "variable-of-its-own", place, file=file, **known)


def _is_filled_by_compose(text: str, start: int, name: str) -> bool:
    """True for ``${VLLM_PORT}`` that docker compose replaces from its own environment: the container has none."""
    services = COMPOSE.search(text)
    if services is None:
        return False
    own = _service_at(text, services.end(), start)
    return re.search(rf"(?<![$\w{{]){name}\s*(?::(?!-)|=)|env_file", text if MERGED.search(own) else own) is None


def _service_at(text: str, begin: int, start: int) -> str:
    """The service around ``start``; all of the text where its lines do not tell."""
    first = INDENTED.search(text, begin)
    if first is None or start < begin:
        return text
    names = [match.start() for match in re.finditer(rf"^{first[1]}(?=[\w\"'])", text[begin:], re.MULTILINE)]
    before = max((begin + one for one in names if begin + one <= start), default=begin)
    behind = min((begin + one for one in names if begin + one > start), default=len(text))
    return text[before:behind]


def _arguments(document: Document, release: str) -> Iterator[Draft]:
    """``VLLM_MAX_MODEL_LEN`` for a container of vLLM, which has no such variable, where nothing in the text uses it."""
    for box in boxes(document):
        if box.replaced or not VLLM_IMAGE.search(box.image):
            continue
        text = dict(document.texts).get(box.file, "")
        for name, word in box.settings.items():
            argument = name.removeprefix("VLLM_").lower()
            if name != f"VLLM_{argument.upper()}" or argument not in engine_arguments():
                continue
            if name in _variables() or re.search(rf"\$\(?\{{?{name}\b", text):
                continue
            option = f"--{argument.replace('_', '-')}"
            if any(option in given.text.replace("_", "-") for given in box.words):
                continue  # the command says it
            yield from drafts(
                release, "variable-unknown", word, form="argument", file=box.file, name=name, instead=option
            )


def _without_arguments(document: Document, release: str) -> Iterator[Draft]:
    """``MODEL_NAME=...`` for vLLM's own image, and no argument at all."""
    for box in boxes(document):
        if box.replaced or box.words or OWN_IMAGE.match(box.image) is None:
            continue
        for name, word in box.settings.items():
            if MODEL_NAME.fullmatch(name):
                known: dict[str, Any] = {"name": name}
                yield from drafts(release, "variable-unknown", word, form="model", file=box.file, **known)
                break


def _read_by_nobody(document: Document, release: str, own: tuple[str, ...]) -> Iterator[Draft]:
    """``VLLM_USE_FLASH_ATTN`` for vLLM's own image, where nothing else in the text has the name."""
    data = rule_data(FAMILY)
    for box in boxes(document):
        if OWN_IMAGE.match(box.image) is None:
            continue
        text = dict(document.texts).get(box.file, "")
        for name, word in box.settings.items():
            argument = name.removeprefix("VLLM_").lower()
            known = name in _variables() or name in data["builds"].split() or name.startswith((*data["others"], *own))
            if not OWN.fullmatch(name) or known or OF_SCRIPTS.fullmatch(name) or argument in engine_arguments():
                continue
            if not _near(name) and len(re.findall(rf"\b{name}\b", text)) == 1:
                yield from drafts(release, "variable-unknown", word, form="nobody", file=box.file, name=name)


def _variables() -> Mapping[str, Changes]:
    return vllm_facts().table("names", "variables")


def _said(name: str, told: VllmRelease | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """The form of the rule and what it tells of ``name``; nothing where vLLM reads it, or nobody can tell."""
    data = rule_data(FAMILY)
    if name.startswith(tuple(data["others"])) or name in data["builds"].split():
        return
    changes = _variables().get(name)
    if changes is None:
        if OF_AMD not in name.split("_") and (near := _near(name)):
            yield "", {"instead": near}
        return
    lacking = absence(changes, told)
    if lacking is None:
        return
    known = {"since": lacking.edge, "has": lacking.has, "version": told.written if told else ""}
    if not lacking.gone:
        if told is not None:
            yield "not yet", known
        return
    longer = _longer(name)
    instead = f"write {longer}" if longer else instead_of("variables", name)
    if told is not None:
        yield "of a release", {**known, "instead": instead}
    elif name not in data["harmless"].split():
        yield "left", {**known, "instead": instead}


def _longer(name: str) -> str:
    """The variable whose name has one part more."""
    parts = name.split("_")
    longer = [
        one
        for one, changes in _variables().items()
        if changes.until is None and set(parts) < set(one.split("_")) and len(one.split("_")) == len(parts) + 1
    ]
    return longer[0] if len(longer) == 1 and len(parts) >= ENOUGH else ""


def _near(name: str) -> str:
    """The same, or the variable whose name is spelt alike."""
    close = get_close_matches(name, sorted(_variables().keys()), 1, NEAR)
    return _longer(name) or (close[0] if close else "")


def _not_exported(document: Document, release: str) -> Iterator[Draft]:
    """``VLLM_USE_V1=0`` on a line of its own: a variable of the shell, which no program sees."""
    by_file: dict[str, list[ShellCommand]] = {}
    for command in document.commands:
        by_file.setdefault(command.file, []).append(command)
    starts = {(one.command.file, one.command.line) for one in document.of(*STARTERS)}
    starts |= {(one.file, one.line) for one in document.commands if _starts_a_program(one)}
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
                    above = "\n".join(text.split("\n")[max(0, word.line - 1 - ABOVE) : word.line - 1])
                    if not OF_DOTENV.search(above) and not _is_of_a_list(text, word.line):
                        yield from drafts(release, "variable-not-exported", word, file=file, name=name)


def _is_of_a_list(text: str, line: int) -> bool:
    """True for a page's list of variables between words, in a fence of no language, and for the lines of a ``.env``."""
    if not has_fence(text):
        return False
    start = len("\n".join(text.split("\n")[: line - 1])) + 1
    block = next((one for one in fences(text) if one.start <= start < one.end), None)
    if block is None:
        return False
    above = text[: text.rfind("\n", 0, max(block.start - 1, 0)) + 1].rstrip().rpartition("\n")[2]
    inside = text[block.start : block.end]
    is_told = not block.language and (SAYS.search(inside) is not None or OF_SETTINGS.fullmatch(inside) is not None)
    return OF_A_FILE.search(above) is not None or block.language in ("text", "txt", "env", "ini") or is_told


def _starts_a_program(command: ShellCommand) -> bool:
    words = [word.text for word in command.words if word.text != "nohup"]
    return not command.image and len(words) > 1 and PROGRAMS.fullmatch(words[0]) is not None


def _follows(command: ShellCommand, file: str, starts: set[tuple[str, int]]) -> bool:
    return any(where == file and line >= command.end_line for where, line in starts)


def _is_read(name: str) -> bool:
    if OF_SCRIPTS.fullmatch(name) and name not in _variables():
        return False
    return any(name == one or (one.endswith("_") and name.startswith(one)) for one in rule_data(FAMILY)["read"])


def _is_alone(name: str, text: str, word: Word) -> bool:
    """True where the line is nothing but the setting, and nothing else of the text uses the variable."""
    lines = text.split("\n")
    line = lines[word.line - 1].strip() if word.line <= len(lines) else ""
    return line.startswith(f"{name}=") and len(re.findall(rf"\b{name}\b", text)) == 1
