"""Commands of a text in which its own reader saw none: a client's call, TOML, Nix, a quadlet, a job of Nomad.

Literals and settings hold them alike in nearly all languages. vLLM's image gets its arguments behind its name:
``containers.run("vllm/vllm-openai:v0.9.0", ["--model", ...])``, ``Exec=--model ...``.
"""

import re
from collections.abc import Iterator, Sequence

from trtllm_check.lint.carriers.literals import (
    LITERAL,
    NEXT,
    Literal,
    command_of,
    is_program,
    literals_of,
    scripts,
)
from trtllm_check.lint.carriers.python_words import split
from trtllm_check.lint.carriers.script import Script
from trtllm_check.lint.held_arguments import led, started_at
from trtllm_check.lint.programs import TOOL_NAMES
from trtllm_check.lint.shell import ShellCommand, Word, read_inside
from trtllm_check.lint.shell.pasted import fences
from trtllm_check.lint.shell.words import lines_of, whole_text
from trtllm_check.releases.vllm import options_of

ABOUT = re.compile(rf"{TOOL_NAMES}|vllm\.entrypoints|[\"']vllm[\"']|vllm-openai|\bvllm (?:serve\b|-ArgumentList)")
IMAGE = re.compile(r"(?<![\w./-])(?:[\w.-]+/)*vllm-openai(?::[\w.+-]+|@sha256:\w+)?(?![\w/])")
REMARKED = re.compile(r"^[ \t]*(?:#|//)[^\n]*\Z", re.MULTILINE)
REPLACED = re.compile(r"\bentry_?point\b[\"']?\s*[:=\[]", re.IGNORECASE)
BEHIND = re.compile(r"\bvllm[\"']?[ \t]*(?:,|-ArgumentList)[ \t]*(?P<quote>[\"'])(?P<line>serve [^\"'\n]+)(?P=quote)")
"""``Process.Start("vllm", "serve ...")``, ``Start-Process vllm -ArgumentList 'serve ...'``."""
SETTING = re.compile(r"^[ \t]*(?:Exec|args|cmd|command)[ \t]*[=:][ \t]*(?P<line>--[a-z][^\n]*)$", re.MULTILINE)
# The options of docker or podman beside the image: Nix, Ansible, Nomad, devcontainers.
OF_THE_ENGINE = re.compile(
    r"\b(?:extra_?[oO]ptions|(?:docker|podman|run|create|container)_?(?:[aA]rgs|[oO]ptions)|PodmanArgs|runArgs)\b[\"']?\s*[=:]\s*"
    r"(?:\[[^\]]*\]|\([^)]*\))"
)
EXPECTS = re.compile(r"^[ \t]*(?:assert\b|def test_|async def test_|expect\()|\bself\.assert", re.MULTILINE)  # a test's
WORKS_ON = re.compile(r"--?(?:model|checkpoint|engine|config|m\b|c\b)", re.IGNORECASE)
OPTION = re.compile(r"(?:^|[\s\"'])--?[A-Za-z]")
GIVEN = re.compile(r"^\s*[\w.-]+\s*=\s*\Z|(?:arg|command|cmd|exec)\w*[\"']?\s*(?:[:=(,]|=>)[^\"'`\n]*\Z", re.IGNORECASE)
CHOICE = re.compile(r"\s*(?:if\b|\?)")
PROGRAM = re.compile(r"^(?:\S*/)?(?:python[\d.]*|(?:ba)?sh)$|\.(?:py|sh)$")
OTHER_IMAGE = re.compile(r"^[ \t]*(?:-[ ])?image:[ \t]*[\"']?(?!\S*vllm)[\w./-]+[:@]", re.MULTILINE)
NEXT_IN_PYTHON = re.compile(rf"(?:{NEXT.pattern})(?:[\w.]+,\s*)*[fFrR]{{0,2}}")  # f"--namespace={name}"
CLIENTS = frozenset({"kubectl", "oc", "helm", "kind", "minikube", "aws", "gcloud", "az", "git", "ssh", "scp", "curl"})
REACH = 2_000  # characters between the image and the last of its arguments
ENOUGH = 2  # words of a list that is one of arguments
LONGEST = 400_000


def loose_commands(sources: Sequence[tuple[str, str]]) -> Iterator[ShellCommand]:
    """What is started in texts that no reader found a start in; an image's name goes with its arguments."""
    for file, text in sources:
        if len(text) > LONGEST or not ABOUT.search(text) or EXPECTS.search(text):
            continue
        whole = whole_text(text)
        is_prose = not is_program(text)
        for found in scripts(whole):
            if is_prose and _is_mention(found, text):
                continue
            yield from read_inside(found, file) if OPTION.search(found.text) else ()
        for match in BEHIND.finditer(text):
            yield from read_inside(led(whole.part(*match.span("line")), "vllm"), file)
        blocks = fences(text)
        pieces = [whole.part(one.start, one.end) for one in blocks] if blocks else [whole]
        held = [found for piece in pieces for found in _of_images(piece)]
        for words, image in held or (_of_images(whole) if blocks else ()):
            script = Script()
            script.words(words)
            yield from (one._replace(image=image) for one in read_inside(script.word(), file))


def _is_mention(found: Word, text: str) -> bool:
    """True for a word of code in a sentence with a tool and its options, and nothing that the tool works on."""
    lines = lines_of(text)
    line = lines[found.line - 1] if 0 < found.line <= len(lines) else ""
    behind = line[found.column - 1 + len(found.text) :]
    if "\n" in found.text or line[: found.column - 1][-1:] != "`" or not behind.startswith("`"):
        return False
    words = found.text.split()
    first = next((word for word in words[1:] if word != "serve"), "")
    return first.startswith("-") and not any(WORKS_ON.match(word) for word in words)


def _of_images(whole: Word) -> Iterator[tuple[list[Word], str]]:
    """vLLM's image by its name, and the words that its entry point gets."""
    found = [match for match in IMAGE.finditer(whole.text) if not _is_remark(whole.text, match.start())]
    literals = literals_of(whole) if found else []
    if not is_program(whole.text):  # of prose, backquotes mark a word of code
        literals = [one for one in literals if whole.text[one.start] != "`"]
    for number, match in enumerate(found):
        end = min(match.end() + REACH, found[number + 1].start() if number + 1 < len(found) else len(whole.text))
        other = OTHER_IMAGE.search(whole.text, match.end(), end)
        end = other.start() if other is not None else end  # what follows is for another container
        words = _arguments(whole, literals, match.end(), end)
        if words and _are_of_vllm(words):
            yield [*started_at(words[0], "vllm", "serve"), *words], match[0]


def _are_of_vllm(words: Sequence[Word]) -> bool:
    """True where vLLM's server has one of the options, as written or with dashes: others are another program's."""
    flags = [word.text.partition("=")[0].lstrip("-").replace("_", "-") for word in words if word.text.startswith("--")]
    known = options_of("serve")
    return any(flag in known or flag.removeprefix("no-") in known for flag in flags)


def _is_remark(text: str, start: int) -> bool:
    """True for an image that only a comment names."""
    return REMARKED.match(text, text.rfind("\n", 0, start) + 1, start) is not None


def _arguments(whole: Word, literals: Sequence[Literal], start: int, end: int) -> list[Word]:
    behind = [number for number, one in enumerate(literals) if start <= one.start and one.end <= end]
    apart = [match.span() for match in OF_THE_ENGINE.finditer(whole.text, start, end)]
    for number in behind:
        one = literals[number]
        if any(first <= one.start < last for first, last in apart):
            continue
        if not one.value.text.startswith("--") or _is_of_a_program(whole.text, literals, number):
            continue
        if REPLACED.search(whole.text, start, one.start):
            continue
        if " " in one.value.text and whole.text[one.start - 1 : one.start] == "=":
            return split(one.value)  # of a variable, which a shell takes apart
        words, behind_it = command_of(whole, literals, number)
        if behind_it - number >= ENOUGH:
            return words
        if " " in one.value.text and _is_given(whole.text, one):
            return split(one.value)
    setting = SETTING.search(whole.text, start, end)
    if setting is not None and not LITERAL.search(setting["line"]):
        return split(whole.part(*setting.span("line")))
    return []


def _is_given(text: str, one: Literal) -> bool:
    """True for a single text that something named after arguments gets: no quotation, no test's pattern, no choice."""
    line = text[text.rfind("\n", 0, one.start) + 1 : one.start]
    return text[one.start] != "`" and GIVEN.search(line) is not None and CHOICE.match(text, one.end) is None


def _is_of_a_program(text: str, literals: Sequence[Literal], number: int) -> bool:
    """True for an option of a script that the list begins with: ``["python3", "serve.py", "--config", ...]``."""
    first = number
    while first and NEXT_IN_PYTHON.fullmatch(text, literals[first - 1].end, literals[first].start):
        first -= 1
    words = [one.value.text for one in literals[first:number]]
    return any(map(PROGRAM.search, words)) or (bool(words) and words[0] in CLIENTS)
