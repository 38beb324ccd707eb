"""Names of the shell's variables: those that none may have, and those that differ from one that is set by a slip."""

import re
from collections.abc import Iterator
from difflib import SequenceMatcher

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.kinds import kind_of_text
from trtllm_check.lint.shell.words import ShellCommand, Word

BEGINS_WITH_DIGIT = re.compile(r"(?P<name>\d+[A-Za-z_]\w*)=.*", re.DOTALL)
USED = re.compile(r"\$(?<![\\$]\$)(?:\{(?P<braced>[A-Z][A-Z0-9_]*)\}|(?P<plain>[A-Z][A-Z0-9_]*))")
SET = re.compile(
    r"(?<![\w$-])(?P<name>[A-Z][A-Z0-9_]*)(?:\[[^\]\n]*\])?\+?=(?!=)|\bfor\s+(?P<loop>\w+)\s+in\b|\bread\s+(?P<read>[^\n;|&<]+)"
    r"|\$\{(?P<default>\w+)(?::?[=?+-])|\b(?:mapfile|readarray)\s+(?:-\w+\s+)*(?P<lines>\w+)|-v\s+(?P<asked>\w+)"
    r"|\b(?:ARG|ENV)\s+(?P<built>\w+)|(?<![\w$-])(?P<key>[A-Z][A-Z0-9_]{2,})\s*:|\bunset\s+(?P<unset>\w+)"
)
ASSIGNED = re.compile(r"(?<![\w$-])([A-Z][A-Z0-9_]*)\+?=(?!=)")
DEFAULTED = re.compile(r"\$\{([A-Z][A-Z0-9_]*):?[=?+-]")
OF_THE_SYSTEM = re.compile(
    r"(?:SLURM|OMPI|PMI|PMIX|CUDA|NCCL|HF|HUGGING|AWS|GITHUB|CI|RUNPOD|KUBE|POD|NODE|LD|PYTHON|XDG|SSH|LC|BASH)_?\w*"
    r"|PATH|HOME|USER|PWD|OLDPWD|SHELL|HOSTNAME|HOST|LANG|TERM|EDITOR|RANDOM|SECONDS|LINENO|IFS|UID|EUID|PPID|OPTARG"
    r"|OPTIND|REPLY|TMPDIR|LOGNAME|MASTER_\w+|WORLD_SIZE|RANK|LOCAL_RANK|DISPLAY|FUNCNAME|PIPESTATUS"
)
SHORTEST = 6
LIKE, FEWEST_LETTERS = 0.87, 3
SHELL = re.compile(r"\.(?:sh|bash|slurm|sbatch|md|rst)$|^$")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    for command in document.commands:
        yield from _digits(command, release)
    for file, text in document.texts:
        if SHELL.search(file) and "$" in text and kind_of_text(text) != "yaml":  # whose variables .env may set
            yield from _slips(document, file, text, release)


def _digits(command: ShellCommand, release: str) -> Iterator[Draft]:
    """``export 7B_MODEL=...``."""
    words = [word.text for word in command.words[:2]]
    if words[:1] == ["export"]:
        places = command.words[1:2]
    elif len(command.words) == 1:
        places = command.words
    else:
        return
    for word in places:
        match = BEGINS_WITH_DIGIT.fullmatch(word.text)
        if match:
            yield from drafts(release, "variable-name", word, file=command.file, name=match["name"])


def _slips(document: Document, file: str, text: str, release: str) -> Iterator[Draft]:
    """``$MODEL_PTAH`` in a text that sets MODEL_PATH."""
    used = {match["braced"] or match["plain"] for match in USED.finditer(text)}
    used = {name for name in used if len(name) >= SHORTEST and not OF_THE_SYSTEM.fullmatch(name)}
    if used <= {*ASSIGNED.findall(text), *DEFAULTED.findall(text)}:
        return  # which is quicker to see than all that sets a name
    known = _set(text)
    places = {word.line for command in document.commands for word in command.words if command.file == file}
    unset = sorted(used - known)
    said: set[str] = set()
    for match in USED.finditer(text):
        name = match["braced"] or match["plain"]
        if name not in used or name in known or name in said:
            continue
        line = text.count("\n", 0, match.start()) + 1
        near = [one for one in sorted(known) if _is_slip(name, one) or _lacks_a_letter(name, one)]
        beside = [one for one in unset if len(one) > len(name) and _lacks_a_letter(name, one)]
        if line not in places or len(near or beside) != 1:
            continue
        said.add(name)
        place = Word(match[0], line, match.start() - text.rfind("\n", 0, match.start()))
        form = "slip" if near else "beside"
        yield from drafts(release, "variable-name", place, form=form, file=file, name=name, near=(near or beside)[0])


def _lacks_a_letter(one: str, two: str) -> bool:
    """``ROO_DIR`` and ``ROOT_DIR``: the same parts, but for one letter that is no plural."""
    first, second = one.split("_"), two.split("_")
    unlike = [(a, b) for a, b in zip(first, second, strict=False) if a != b]
    if len(first) != len(second) or len(first) == 1 or len(unlike) != 1:
        return False
    (a, b) = unlike[0]
    return (
        len(b) == len(a) + 1
        and min(len(a), len(b)) >= FEWEST_LETTERS
        and b.isalpha()
        and b != f"{a}S"
        and any(b[:at] + b[at + 1 :] == a for at in range(len(b)))
    )


def _set(text: str) -> set[str]:
    found: set[str] = set()
    for match in SET.finditer(text):
        for value in match.groupdict().values():
            found |= set((value or "").replace("$", " ").split())
    return found


def _is_slip(one: str, two: str) -> bool:
    """Two names of the same parts of which one has a letter too many, too few or in another place."""
    first, second = one.split("_"), two.split("_")
    if len(first) != len(second) or re.findall(r"\d+", one) != re.findall(r"\d+", two):
        return False
    unlike = [(a, b) for a, b in zip(first, second, strict=True) if a != b]
    if len(unlike) != 1:
        return False
    a, b = unlike[0]
    plural = a.rstrip("S") == b.rstrip("S")
    ends = a.startswith(b) or b.startswith(a)
    return not plural and not ends and min(len(a), len(b)) > 3 and SequenceMatcher(None, one, two).ratio() >= LIKE
