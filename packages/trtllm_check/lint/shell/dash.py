"""What bash knows and dash, the ``sh`` of Debian and Ubuntu, does not: where it stands and what dash says.

Source: POSIX.1-2017, Shell Command Language; dash 0.5.11 and 0.5.12 (Ubuntu 22.04, 24.04; Debian 12): messages.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

# What is no code of the script: a word in quotes, a comment, a here-document.
QUIET = re.compile(
    r"\\.|'[^']*'|\"(?P<double>(?:\\.|[^\"\\])*)\"|(?<![^\s;&|(])#[^\n]*"
    r"|(?<!<)<<(?!<)-?[ \t]*(?P<quote>['\"]?)(?P<mark>\w+)(?P=quote)(?P<rest>[^\n]*)\n"
    r".{0,40000}?^[ \t]*(?P=mark)[ \t]*$",
    re.DOTALL | re.MULTILINE,
)
IN_BRACES = re.compile(r"\$\{[^{}\n]*\}")
FIRST = r"(?:^|[;&|(]|\b(?:then|do|else|if|elif|while|until|!))[ \t]*"


class Form(NamedTuple):
    """One thing of bash: ``says`` is what becomes of it, ``instead`` what sh knows."""

    pattern: re.Pattern[str]
    says: str
    instead: str


def _form(pattern: str, says: str, instead: str) -> Form:
    return Form(re.compile(pattern, re.MULTILINE), says, instead)


UNEXPECTED = 'Syntax error: "(" unexpected'
FORMS = (
    _form(r"(?<![\w$-])(?P<what>[A-Za-z_]\w*\+?=\()", f"{UNEXPECTED}: it has no arrays", 'set -- WORDS and "$@"'),
    _form(r"(?P<what>\$\{!?\w+\[[^\]\n]*\])", "Bad substitution: it has no arrays", 'set -- WORDS and "$@"'),
    _form(r"(?P<what>\$\{(?:!\w+|\w+(?:,,?|\^\^?|/[^}\n]*))\})", "Bad substitution", "sed, tr or another program"),
    _form(r"(?P<what>\$\{\w+:(?: -)?\d+(?::-?\d+)?\})", "Bad substitution", "cut, or another program"),
    _form(rf"{FIRST}(?P<what>\[\[)(?=\s)", "[[: not found, which counts as false", "[ ], with = for =="),
    _form(rf"{FIRST}(?P<what>source)[ \t]+[\w./~$\"']", "source: not found", ". FILE"),
    _form(r"(?<![<\w$])(?P<what>[<>]\()", UNEXPECTED, "a pipe or a file"),
    _form(r"(?P<what><<<)", "Syntax error: redirection unexpected", "a pipe from printf or echo"),
    _form(rf"{FIRST}(?P<what>function)[ \t]+[\w-]+[ \t]*\(\)", UNEXPECTED, "NAME() {"),
    _form(rf"{FIRST}(?P<what>function)[ \t]+[\w-]+[ \t]*\{{", "function: not found", "NAME() {"),
    _form(r"\bfor[ \t]+(?P<what>\(\()", "Syntax error: Bad for loop variable", "for NAME in $(seq N)"),
    _form(rf"{FIRST}set[ \t][^\n;&|]*(?P<what>\bpipefail)\b", "set: Illegal option -o pipefail", "set -eu"),
    _form(
        r"(?<![<>&\d])(?P<what>&>>?)(?=[ \t]*[\w./~$\"'])",
        "nothing of it: it starts the command in the background, and its output is not in the file",
        "> FILE 2>&1",
    ),
    _form(
        rf"{FIRST}(?P<what>declare|typeset|shopt|pushd|popd|mapfile|readarray)[ \t]",
        "not found",
        "what POSIX has",
    ),
    _form(
        r"\bin[ \t]+(?P<what>\{\d+\.\.\d+\})",
        "nothing of it: the loop runs once, with these characters as its word",
        "$(seq FIRST LAST)",
    ),
)
MOST = 3
# Images of Debian and Ubuntu, whose sh is dash.
WITH_DASH = re.compile(
    r"^(?:docker\.io/)?(?:(?:\S*/)?(?:ubuntu|debian|python|nvidia/cuda)(?=:|$)|rocm/|nvcr\.io/nvidia/|vllm/|lmsysorg/"
    r"|ghcr\.io/huggingface/text-generation|rayproject/|pytorch/)(?!\S*(?:alpine|ubi\d|rocky|centos|redhat|distroless))"
)


class OfBash(NamedTuple):
    """``what`` stands at ``start``; ``says`` and ``instead`` as in :class:`Form`."""

    start: int
    what: str
    says: str
    instead: str


def of_bash(script: str) -> Iterator[OfBash]:
    """What dash stops at in a script or takes another way, each kind once, the first of them first."""
    code = QUIET.sub(_quiet, script)
    found = []
    for form in FORMS:
        match = form.pattern.search(code)
        if match is not None:
            says = f"{match['what']}: {form.says}" if form.says == "not found" else form.says
            found.append(OfBash(match.start("what"), match["what"], says, form.instead))
    said: set[str] = set()
    for one in sorted(found):
        if one.instead not in said and len(said) < MOST:
            said.add(one.instead)
            yield one


def _quiet(match: re.Match[str]) -> str:
    """Blanks of the same length; ``${...}`` in double quotes stays, and the rest of a here-document's line."""
    if match["double"] is not None:
        inside = list(_blank(match[0]))
        for part in IN_BRACES.finditer(match[0]):
            inside[part.start() : part.end()] = part[0]
        return f'"{"".join(inside)[1:-1]}"'
    if match["mark"] is not None:
        start, end = match.start("rest") - match.start(), match.end("rest") - match.start()
        return f"{_blank(match[0][:start])}{match['rest']}{_blank(match[0][end:])}"
    return f"'{_blank(match[0])[1:-1]}'" if match[0][0] == "'" else _blank(match[0])


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)
