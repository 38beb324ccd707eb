"""Slips that a shell takes at its word: blanks in an assignment, a bracket or a dollar too few, a commit not cloned."""

import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any

from trtllm_check.lint.carriers.notebooks import is_notebook
from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.programs import PYTHON
from trtllm_check.lint.rules.vllm import is_vllm_option
from trtllm_check.lint.shell.words import ShellCommand, Word, file_name, lines_of

OF_PYTHON = re.compile(r"=\s*(?:[frb]\\?[\"']|[\w.]+\()")  # an f-string, a call
UPPER = re.compile(r"[A-Z][A-Z0-9_]*")
IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
SHELLISH = re.compile(r"\A(?:[^\n]*\n)?#!.*sh\b")
PYTHONIC = re.compile(r"\bf[\"']|\.format\(|^import |^from \w+ import ", re.MULTILINE)
OF_A_NOTEBOOK = re.compile(r"[ \t]*+(?:\"[ \t]*+)?[!%]")
OF_A_TEMPLATE = 5  # names in braces: a template that str.format fills
BRACES = re.compile(r"\{(?<![$\\{%#@]\{)(?<!%q\{)(?P<name>[A-Z][A-Z0-9_]{3,})\}")  # %q{NAME} is what nsys reads
COMMIT = re.compile(r"[0-9a-f]{7,40}|.*\$\{?\w*(?:SHA|COMMIT|HASH)\w*\}?", re.IGNORECASE)
TAKES_EQUALS = frozenset(
    {"test", "[", "[[", "expr", "let", "local", "export", "declare", "readonly", "typeset", "set", "echo"}
)
SETS = frozenset({"local", "export", "declare", "readonly", "typeset"})
OPERATOR = re.compile(r"-[a-zA-Z]{1,2}|==?|=~|!=?|[<>]")
ENDS = {"[": "]", "[[": "]]"}
# Images without a compiler for CUDA, and requirements that are compiled with one.
WITHOUT_NVCC = re.compile(r"^(?:python|ubuntu|debian|continuumio/\S+):|nvidia/cuda:\S*-(?:runtime|base)-")
COMPILED = re.compile(
    r"flash[-_]attn(?:$|[=<>~!\[])|git\+https://github\.com/(?:vllm-project/vllm|Dao-AILab/flash-attention)"
)
HAS_NVCC = re.compile(r"nvcc|cuda-toolkit|nvidia-cuda-toolkit|cuda-compiler|VLLM_USE_PRECOMPILED|SKIP_CUDA_BUILD")
# Images that lack programs which scripts take for granted, and how each gets there.
BARE = re.compile(r"^(?:python:\S*slim\S*|ubuntu(?::\S+)?|debian(?::\S+)?|nvidia/cuda:\S+)$")
OTHERWISE = re.compile(r"COPY --from|\.sh\b|ansible|conda|ONBUILD")  # other ways for a program into an image
# Images that come with no environment of Python, and what makes one, or says that there is to be none.
PLAIN_PYTHON = re.compile(r"^(?:docker\.io/)?(?:python:|ubuntu(?::|$)|debian(?::|$)|nvidia/cuda:)")
ENVIRONMENT_OF_UV = re.compile(
    r"UV_SYSTEM_PYTHON|UV_PROJECT|UV_PYTHON|\buv venv\b|VIRTUAL_ENV|-m venv|virtualenv|conda|\.venv|/venv|ONBUILD"
)
ELSEWHERE = ("--system", "--python", "-p", "--target", "-t", "--prefix", "--help")
OF_APT = {"git": "git", "curl": "curl", "wget": "wget"}
MPI = re.compile(r"^(?:tensorrt[-_]llm|mpi4py)(?:$|[=<>~!\[])")

NAMELESS = re.compile(r"(?:^|/)\.py$")
FOLDER_OF_SCRIPTS = re.compile(r"(?:^|/)examples/(?:models/(?:core|contrib)/)?[\w.-]+/$")
NO_SHEBANG = re.compile(r"\A\s*(?P<line>!/(?:usr/)?bin/(?:env[ ]+)?(?:ba|z|da)?sh)[ \t]*$", re.MULTILINE)
# A command whose lines after the first begin with the backslash that should end the one above.
STARTS_WITH = re.compile(
    r"^[ \t]*(?P<tool>(?:sudo[ ]+)?(?:docker[ ]run|vllm[ ]serve|trtllm-\w+|python3?[ ]-m[ ]vllm\S*|helm|kubectl|curl"
    r"|mpirun)\b)[^\n]*(?<!\\)\n(?P<line>[ \t]*\\[ \t]+-[^\n]*)",
    re.MULTILINE,
)
NEEDS_NO_MORE = frozenset({"git-lfs", "python-is-python3", "sudo", "unzip", "net-tools", "nano", "less", "make"})
"""Packages that bring no other along, git-lfs where git is already: apt-get does not ask then."""
USES_GIT = re.compile(
    r"(?<![\w./-])git (?:-C \S+ )?(?:clone|config|fetch|pull|checkout)\b|[ \t]git(?=[ \t\\]|$)", re.MULTILINE
)


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    texts = dict(document.texts)
    for file, text in document.texts:
        if (first := NO_SHEBANG.match(text)) is not None:
            place = Word(first["line"], text.count("\n", 0, first.start("line")) + 1, 1)
            yield from drafts(release, "shebang", place, file=file, written=first["line"])
    pythonic = cache(PYTHONIC.search)  # each text is searched once, not once for each of its commands
    for command in document.commands:
        yield from _bracket(command, release)
        yield from _nameless(command, release)
        text = texts.get(command.file, "")
        if SHELLISH.match(text) or _is_used(command, text):
            yield from _assignment(command, text, release)
        is_told = any(word.text.endswith(":") for word in command.words[:3])  # API: http://localhost:{PORT}, on a page
        for word in () if is_told else (*command.words, *command.assignments):
            if BRACES.search(word.text) and not pythonic(text):
                yield from _dollar(text, word, command.file, release)
    for file, text in document.texts:
        for match in STARTS_WITH.finditer(text) if "\n" in text else ():
            place = Word(match["line"].strip(), text.count("\n", 0, match.start("line")) + 1, 1)
            known: dict[str, Any] = {"tool": match["tool"]}
            yield from drafts(release, "line-cut", place, form="start", file=file, **known)
    for image in document.images:
        text = next((text for _, text in document.texts if image.text in text), "")
        if BRACES.search(image.text) and not pythonic(text):
            yield from _dollar(text, image, "", release)
    for one in document.invocations:
        if one.tool == "vllm":
            yield from _apart(one, release)
        yield from _unanswered(one, texts.get(one.command.file, ""), release)
        yield from _archive(one, release)
        if one.tool == "git":
            for word in one.positional:
                if word.text.startswith("git://github.com/"):
                    known = {"address": word.text, "right": f"https{word.text.removeprefix('git')}"}
                    yield from drafts(release, "git-protocol", word, invocation=one, **known)
        if one.tool == "pip":
            yield from _no_environment(document, one, release)
    yield from _shallow(document, release)
    yield from _lacking(document, release)


def _bracket(command: ShellCommand, release: str) -> Iterator[Draft]:
    """``[ -n "$X"]``."""
    first = command.words[0].text if command.words else ""
    end = ENDS.get(first)
    if end is None or len(command.words) < 2:
        return
    last = command.words[-1]
    if not any(OPERATOR.fullmatch(word.text) for word in command.words[1:-1]):
        return  # numbers in brackets, which a page shows as an answer
    if last.text != end and last.text.endswith("]") and not re.search(r"\[[^\]]*\]$", last.text):
        yield from drafts(release, "blank-missing", last, file=command.file, first=first, end=end, word=last.text)


def _nameless(command: ShellCommand, release: str) -> Iterator[Draft]:
    """``python3 examples/llama/.py --model_dir m``, and a folder of the examples in its place."""
    for before, word in pairwise(command.words[:8]):
        is_script = PYTHON.fullmatch(file_name(before.text)) is not None
        if is_script and (NAMELESS.search(word.text) or FOLDER_OF_SCRIPTS.search(word.text)):
            known: dict[str, Any] = {"path": word.text}
            yield from drafts(release, "script-without-name", word, file=command.file, **known)


def _is_used(command: ShellCommand, text: str) -> bool:
    """True for ``export NAME = value``, and for ``NAME = value`` where the text has ``$NAME``."""
    words = [word.text for word in command.words[:3]]
    if "=" not in words[1:]:
        return False
    line = "".join(lines_of(text)[command.line - 1 : command.line])
    if OF_PYTHON.search(line):
        return False
    if len(words) > 2 and words[0] == "export":
        return words[2] == "=" and IDENTIFIER.fullmatch(words[1]) is not None
    is_name = len(words) > 2 and words[1] == "=" and UPPER.fullmatch(words[0]) is not None
    return is_name and re.search(rf"\$\{{?{words[0]}\b", text) is not None and "$(" not in words[0]


def _assignment(command: ShellCommand, text: str, release: str) -> Iterator[Draft]:
    """``name = value``."""
    words = [word.text for word in command.words[:4]]
    at = 1 if words[:1] and words[0] in SETS else 0
    if len(words) < at + 3 or words[at + 1] != "=" or (not at and words[0] in TAKES_EQUALS):
        return
    line = lines_of(text)[command.line - 1 : command.line]
    if IDENTIFIER.fullmatch(words[at]) and line and not re.search(r"\(\(|\b(?:select|where|and|or)\b", line[0], re.I):
        known: dict[str, Any] = {"name": words[at], "value": words[at + 2]}
        form = "export" if at else "assignment"
        yield from drafts(release, "blank-missing", command.words[at], form=form, file=command.file, **known)


def _is_filled_in(name: str, text: str) -> bool:
    """True on a page that has other names in braces, which are no variables: the reader puts something in for them."""
    others = {one for one in BRACES.findall(text) if one != name}
    return any(re.search(rf"\$\{{?{one}\b|^\s*(?:export\s+)?{one}=", text, re.MULTILINE) is None for one in others)


def _dollar(text: str, word: Word, file: str, release: str) -> Iterator[Draft]:
    """``r{VERSION}`` where VERSION is a variable of the text; in a notebook Python fills it in."""
    if is_notebook(text) or len(set(BRACES.findall(text))) >= OF_A_TEMPLATE:
        return
    for match in BRACES.finditer(word.text):
        name = match["name"]
        at = word.part(match.start(), match.end()).line
        line = lines_of(text)[at - 1 : at] if at > 0 else ()
        if not line or not re.search(rf"(?<![$\\{{]){{{name}}}", line[0]) or "$${" in text:
            continue
        if OF_A_NOTEBOOK.match(line[0]):
            continue  # a notebook fills in the names of Python
        is_glued = text.startswith("#!") and match.start() > 0 and word.text[match.start() - 1].isalnum()
        is_single = is_glued and "_" in name and len(set(BRACES.findall(text))) == 1
        if _is_filled_in(name, text):
            continue
        if is_single or re.search(rf"\$\{{?{name}\b|^\s*(?:export\s+|ARG\s+|ENV\s+)?{name}=", text, re.MULTILINE):
            place = word.part(match.start(), match.end())
            yield from drafts(release, "dollar-missing", place, file=file, name=name)


def _apart(invocation: Invocation, release: str) -> Iterator[Draft]:
    """``-- host 0.0.0.0``."""
    for word, following in zip(invocation.arguments, invocation.arguments[1:], strict=False):
        if word.text == "--" and is_vllm_option(following.text):
            known: dict[str, Any] = {"name": following.text, "tool": invocation.tool}
            yield from drafts(release, "blank-missing", word, form="dashes", file=invocation.command.file, **known)


def _archive(invocation: Invocation, release: str) -> Iterator[Draft]:
    """``apt install some.deb``: a name of a package, not the file of this folder."""
    words = invocation.positional
    if invocation.tool != "apt-get" or not words or words[0].text != "install":
        return
    for word in words[1:]:
        if word.text.endswith(".deb") and "/" not in word.text and "$" not in word.text:
            yield from drafts(release, "package-file", word, file=invocation.command.file, name=word.text)
        elif instead := rule_data("apt_names").get(word.text):
            known: dict[str, Any] = {"name": word.text, "instead": instead}
            yield from drafts(release, "package-file", word, form="of pip", file=invocation.command.file, **known)


def _unanswered(invocation: Invocation, text: str, release: str) -> Iterator[Draft]:
    """``apt-get install`` without -y, where nobody answers."""
    words = invocation.positional
    if invocation.tool != "apt-get" or not words or words[0].text != "install" or not invocation.command.image:
        return
    if words[1:] and all(word.text.endswith(".deb") for word in words[1:]):
        return  # a file that may need nothing more, as a repository's key does
    asked = {word.text for word in words[1:]}
    if asked and asked <= NEEDS_NO_MORE:
        before = "\n".join(lines_of(text)[: words[0].line - 1])
        if "git-lfs" not in asked or USES_GIT.search(before):
            return
    if not any(
        re.fullmatch(r"-\w*y\w*|--yes|--assume-yes|-qq|-\w*s\w*", one.flag) for one in invocation.given if one.flag
    ):
        yield from drafts(release, "nobody-answers", words[0], file=invocation.command.file)


def _no_environment(document: Document, pip: Invocation, release: str) -> Iterator[Draft]:
    """``RUN uv pip install`` in an image without a virtual environment."""
    launcher = [word.text.rpartition("/")[2] for word in pip.launcher]
    verb = pip.positional[0].text if pip.positional else ""
    if launcher[-1:] != ["uv"] or verb not in ("install", "sync") or pip.has(*ELSEWHERE):
        return
    text = dict(document.texts).get(pip.command.file, "")
    if PLAIN_PYTHON.search(pip.command.image) and not ENVIRONMENT_OF_UV.search(text):
        known: dict[str, Any] = {"image": pip.command.image, "verb": verb}
        yield from drafts(release, "uv-without-environment", pip.path, file=pip.command.file, **known)


def _shallow(document: Document, release: str) -> Iterator[Draft]:
    """A clone of depth 1, and another commit asked of it."""
    clone: Invocation | None = None
    for one in document.of("git"):
        verb = one.positional[0].text if one.positional else ""
        if verb == "clone":
            clone = one if one.value("--depth") == "1" and not one.has("-b", "--branch") else None
        elif verb in ("fetch", "pull"):
            clone = None
        elif verb in ("checkout", "reset") and clone is not None and clone.command.file == one.command.file:
            asked = next((word for word in one.positional[1:] if COMMIT.fullmatch(word.text)), None)
            if asked is not None:
                known: dict[str, Any] = {"commit": asked.text}
                yield from drafts(release, "commit-not-cloned", asked, file=one.command.file, **known)
            clone = None


def _lacking(document: Document, release: str) -> Iterator[Draft]:
    """What an image has not, and nothing installs."""
    said: set[tuple[str, str]] = set()
    for one in document.invocations:
        text = dict(document.texts).get(one.command.file, "")
        if one.tool == "pip" and WITHOUT_NVCC.search(one.command.image) and not HAS_NVCC.search(text):
            for word in one.positional:
                if COMPILED.match(word.text):
                    known: dict[str, Any] = {"name": word.text, "image": one.command.image}
                    yield from drafts(release, "image-lacks", word, form="nvcc", file=one.command.file, **known)
        if (
            one.tool == "pip"
            and BARE.search(one.command.image)
            and "mpi" not in re.sub(r"mpi4py|mpirun", "", text.lower())
        ):
            for word in one.positional:
                if MPI.match(word.text):
                    known = {"name": word.text, "image": one.command.image}
                    yield from drafts(release, "image-lacks", word, form="mpi", file=one.command.file, **known)
        if one.tool in OF_APT and BARE.search(one.command.image) and (one.tool, one.command.image) not in said:
            installed = rf"(?:install|add)\b[^&;|]*?\s{OF_APT[one.tool]}(?:\s|$|\\)"
            if not re.search(installed, text, re.DOTALL) and not OTHERWISE.search(text) and text.count("FROM ") == 1:
                said.add((one.tool, one.command.image))
                known = {"name": one.tool, "image": one.command.image}
                yield from drafts(release, "image-lacks", one.path, file=one.command.file, **known)
