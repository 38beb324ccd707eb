"""Files of requirements, conda environments, and the dependencies of a pyproject.toml: what pip would be asked for.

Poetry's ``^1.2`` and ``~1.2`` become the ranges that they stand for: python-poetry.org, dependency specification.
"""

import re
from collections.abc import Iterator, Sequence

from trtllm_check.lint.carriers.script import Carried, Script
from trtllm_check.lint.shell import Word

LINE = re.compile(
    r"^[ \t]*(?P<word>[A-Za-z0-9][\w.-]*(?:\[[\w, -]*\])?[ \t]*(?:(?:===?|[<>~!]=?)[ \t]*[\w.*+!-]+[ \t]*,?[ \t]*)*)"
    r"(?:;(?P<marker>[^\n#]*))?[ \t]*(?:[ \t]*#[^\n]*)?\r?$",
    re.MULTILINE,
)
QUOTED = re.compile(
    r"(?P<quote>[\"'])(?P<word>[A-Za-z0-9][\w.-]*(?:\[[\w, -]*\])?[ \t]*(?:[<>=~!][^\"';]*)?)"
    r"(?:;(?P<marker>(?:(?!(?P=quote))[^\n])*))?(?P=quote)"
)
DEPENDENCIES = re.compile(
    r"^[ \t]*dependencies[ \t]*=[ \t]*\[(?P<list>.*?)\n?[ \t]*\][ \t]*$", re.MULTILINE | re.DOTALL
)
SECTION = re.compile(r"^\[(?P<name>[^\[\]\n]+)\][ \t]*\r?$", re.MULTILINE)
GROUPS = ("project.optional-dependencies", "dependency-groups")
LIST = re.compile(
    r"^[ \t]*[\"']?[\w-]+[\"']?[ \t]*=[ \t]*\[(?P<list>[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*)\]", re.MULTILINE
)
POETRY = re.compile(r"tool\.poetry\.(?:dev-)?(?:dependencies|group\.[\w-]+\.dependencies)")
PAIR = re.compile(
    r"^[ \t]*[\"']?(?P<name>[A-Za-z][\w.-]*)[\"']?[ \t]*=[ \t]*(?:\{[^\n}]*?\bversion[ \t]*=[ \t]*)?"
    r"[\"'](?P<version>[^\"'\n]+)[\"']",
    re.MULTILINE,
)
CONDA = re.compile(r"^dependencies:[ \t]*\r?$", re.MULTILINE)
CONDA_HEAD = re.compile(r"^(?:channels|name|prefix):|^[ \t]*-[ \t]+pip:?[ \t]*\r?$", re.MULTILINE)
CONDA_LINE = re.compile(
    r"^[ \t]*-[ \t]+[\"']?(?:[\w-]+::)?"
    r"(?P<word>[A-Za-z][\w.-]*(?:\[[\w, -]*\])?[ ]?(?:[<>=~!][^\"'#\n]*?)?)[\"']?[ \t]*(?:#[^\n]*)?\r?$",
    re.MULTILINE,
)
CONDA_NAMES = {"pytorch": "torch"}
PINNED = re.compile(r"[<>=~!]=?")
OPTION = re.compile(r"^[ \t]*(?:-|#|$|git\+|https?:|\./)")
# One line that pip may refuse, and that is still a requirement.
LOOSE = re.compile(r"[ \t]*[A-Za-z][\w.-]*(?:\[[\w, -]*\])?[ \t]*(?:@[ \t]|==)[ \t]*\S[^\n]*")
NOTED = re.compile(r"==\S+[ ]+\([a-z]+ ")  # a list of what was tested, for people
ENOUGH = 2
LINUX = {
    "sys_platform": "linux",
    "platform_system": "Linux",
    "os_name": "posix",
    "platform_machine": "x86_64",
    "python_version": "3.11",
    "python_full_version": "3.11.9",
    "extra": "",
    "implementation_name": "cpython",
}


def is_requirements(text: str) -> bool:
    """True where each line is a requirement, an option of pip or a comment, and several say a version."""
    pinned = 0
    for line in text.split("\n"):
        if OPTION.match(line):
            continue
        if (not LINE.fullmatch(line) and not LOOSE.fullmatch(line)) or NOTED.search(line):
            return False
        pinned += PINNED.search(line) is not None
    return pinned >= ENOUGH


def is_conda(text: str) -> bool:
    """True for the YAML of a conda environment."""
    return CONDA.search(text) is not None and CONDA_HEAD.search(text) is not None


def carried(word: Word) -> Carried:
    """One pip install of all requirements; of a pyproject.toml one more for each group, with the main ones."""
    text = word.text
    match = DEPENDENCIES.search(text)
    if match is not None or (SECTION.search(text) and not is_requirements(text)):
        spans = _quoted(text, match.start("list"), match.end("list")) if match is not None else []
        main = [_without_blanks(word.part(start, end)) for start, end in spans]
        groups = list(_groups(word))
        return _installed([[*main, *_of_poetry(word)], *([*main, *group] for group in groups)])
    return _installed([[_without_blanks(word.part(*one.span("word"))) for one in lines] for lines in _lists(text)])


def _lists(text: str) -> list[list[re.Match[str]]]:
    """The requirements of a file; as several lists where blocks of it name the same packages again."""
    lists: list[list[re.Match[str]]] = [[]]
    names: set[str] = set()
    for begin, end in _blocks(text):
        lines = list(LINE.finditer(text, begin, end))
        own = {re.split(r"[\s\[<>=~!]", one["word"].lower(), maxsplit=1)[0].replace("_", "-") for one in lines}
        if len(own & names) >= ENOUGH:
            lists.append([])
            names = set()
        names |= own
        lists[-1] += [one for one in lines if _applies(one["marker"])]
    return lists


def _blocks(text: str) -> Iterator[tuple[int, int]]:
    """Where the lines between blank ones begin and end."""
    begin = 0
    for match in re.finditer(r"\n[ \t]*\r?\n", text):
        yield begin, match.start() + 1
        begin = match.start() + 1
    yield begin, len(text)


def of_conda(word: Word) -> Carried:
    """What a conda environment asks for, of conda and of pip: one installation."""
    found: list[Word] = []
    for match in CONDA_LINE.finditer(word.text, max(word.text.find("dependencies:"), 0)):
        one = _without_blanks(word.part(*match.span("word")))
        name, sign, version = one.text.partition("=")
        if name in ("pip", "python", "channels"):
            continue
        if sign and not version.startswith("=") and name[-1] not in "<>~!":  # conda's own single sign
            one = _rewritten(one, f"{CONDA_NAMES.get(name, name)}=={version.partition('=')[0].rstrip('*.')}.*")
        found.append(one)
    return _installed([found])


def _quoted(text: str, start: int, end: int) -> list[tuple[int, int]]:
    plain = re.sub(r"#[^\n]*", lambda match: " " * len(match[0]), text)
    return [one.span("word") for one in QUOTED.finditer(plain, start, end) if _applies(one["marker"])]


def _applies(marker: str | None) -> bool:
    """False for a requirement of another system, or of an older or newer Python than most have."""
    if not marker or not marker.strip():
        return True
    from packaging.markers import InvalidMarker, Marker, UndefinedEnvironmentName

    try:
        return Marker(marker.strip()).evaluate(LINUX)
    except (InvalidMarker, UndefinedEnvironmentName):
        return False


def _sections(text: str) -> Iterator[tuple[str, int, int]]:
    """Each table of TOML: its name, and where it begins and ends."""
    found = list(SECTION.finditer(text))
    for one, following in zip(found, [*found[1:], None], strict=True):
        yield one["name"].strip(), one.end(), following.start() if following else len(text)


def _groups(word: Word) -> Iterator[list[Word]]:
    for name, start, end in _sections(word.text):
        if name not in GROUPS:
            continue
        for match in LIST.finditer(word.text, start, end):
            spans = _quoted(word.text, match.start("list"), match.end("list"))
            yield [_without_blanks(word.part(*span)) for span in spans]


def _of_poetry(word: Word) -> Iterator[Word]:
    for name, start, end in _sections(word.text):
        for match in PAIR.finditer(word.text, start, end) if POETRY.fullmatch(name) else ():
            specifier = as_range(match["version"])
            if specifier is not None and match["name"] != "python":
                yield _rewritten(word.part(*match.span("name")), f"{match['name']}{specifier}")


def as_range(version: str) -> str | None:
    """``>=0.6.4.post1,<0.7`` for ``^0.6.4.post1``; None where it is no version."""
    version = re.sub(r"(?<=[\w*])\s*(?=[<>=~!^])", ",", version.strip()).replace(" ", "").replace(",,", ",")
    if version == "*":
        return ""
    match = re.fullmatch(r"(?P<sign>[\^~]?)(?P<version>\d+(?:\.\d+)*(?P<rest>[\w.]*))", version)
    if match is None:
        return version if re.fullmatch(r"(?:[<>=~!]=?=?[\w.*+]+,?)+", version) else None
    if not match["sign"]:
        return f"=={version}"
    numbers = [int(part) for part in re.findall(r"\d+", match["version"].removesuffix(match["rest"]))]
    place = 1 if match["sign"] == "~" else next((n for n, one in enumerate(numbers) if one), len(numbers) - 1)
    place = min(place, len(numbers) - 1)
    above = ".".join(map(str, [*numbers[:place], numbers[place] + 1]))
    return f">={match['version']},<{above}"


def _installed(groups: Sequence[Sequence[Word]]) -> Carried:
    script = Script()
    for words in groups:
        if words:
            place = (words[0].line, words[0].column)
            begin = [Word(text, *place, (place,) * len(text)) for text in ("pip", "install")]
            script.words([*begin, *words])
    word = script.word()
    return Carried(scripts=((word, ""),)) if word.text else Carried()


def _rewritten(word: Word, text: str) -> Word:
    place = (word.line, word.column)
    return Word(text, *place, (place,) * len(text))


def _without_blanks(word: Word) -> Word:
    kept = [(letter, place) for letter, place in zip(word.text, word.places, strict=True) if not letter.isspace()]
    return Word("".join(letter for letter, _ in kept), word.line, word.column, tuple(place for _, place in kept))
