"""Options of the LLM API, per release: what ``trtllm-serve`` takes in its YAML file, and what is wrong with one."""

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

import yaml12
from pydantic import Field

from serving_base.errors import NotInRelease, NotYaml
from serving_base.record import Record
from serving_base.yaml_files import refuse_multiplied
from trtllm_check.releases import load_release
from trtllm_check.releases.load import checked, known_releases, view
from trtllm_check.releases.release import Confidence, Value

FILE = Path(__file__).parent / "options.yml"
LONGEST_OPTIONS = 20_000  # characters
MOST_OF_THEM = 5  # options, that a name beside them counts as a slip
UNKNOWN = re.compile(r"\$[{(\w]|`|\{\{|<\w")
KINDS: Mapping[str, tuple[type, ...]] = {
    "bool": (bool,),
    "int": (int,),
    "float": (int, float),
    "str": (str,),
    "dict": (dict,),
    "list": (list,),
}


class LlmOption(Record):
    """One option. ``type``: a plain one, or the name of its own class of options; ``status``: NVIDIA's own word.

    ``confidence`` "low": not read in this release, only near it. ``values``: all that it takes, empty for any.
    """

    type: str
    values: tuple[str, ...] = ()
    default: Value | None = None
    status: str = ""
    confidence: Confidence | None = None


class Renamed(Record):
    """What a name became in later releases."""

    to: str
    how: str


class OptionsRead(Record):
    """Where the options of a release were read, how surely, and which class they are of."""

    confidence: Confidence
    holds: str
    source: str
    note: str = ""


class NestedOptions(Record):
    """Options below one option. They were read near the releases and in none of them, so none is certain."""

    source: str
    options: dict[str, LlmOption]


class ServeWords(Record):
    """How the server is told the backend and the file."""

    backend: tuple[str, ...]
    file_flag: str
    source: str


class LlmOptions(Record):
    """All that is known of one release's options."""

    read: OptionsRead
    renamed: dict[str, Renamed] = Field(default={})
    options: dict[str, LlmOption]
    nested: dict[str, NestedOptions]
    command: ServeWords

    def certain(self, name: str, below: str = "") -> bool:
        """True if the release surely has the option ``name``; never of one ``below`` another, see NestedOptions."""
        found = self.options.get(name)
        return not below and found is not None and found.confidence != "low" and self.read.confidence != "low"


class OptionProblem(Record):
    """One line of a file that the release does not take. ``certain`` False: not read there, so look before you trust.

    ``nearest``: the option to use instead, "" for none; ``has``: releases with the option as it is written.
    """

    option: str
    message: str
    nearest: str = ""
    how: str = ""
    has: tuple[str, ...] = ()
    certain: bool = True

    def __str__(self) -> str:
        sure = "" if self.certain else " (not read in this release: look before you trust)"
        instead = f"; use {self.nearest}" if self.nearest else ""
        how = f" ({self.how})" if self.how else ""
        where = f"; {self.option} is an option of {', '.join(self.has)}" if self.has else ""
        return f"{self.option}: {self.message}{sure}{instead}{how}{where}"


@cache
def option_releases() -> tuple[str, ...]:
    """The releases whose options are known, oldest first."""
    return tuple(name for name in known_releases() if "read" in view(name).of_file(FILE))


@cache
def llm_options(release: str) -> LlmOptions:
    """The options of ``release``; :class:`NotInRelease` where they were not read."""
    name = load_release(release).name
    if name not in option_releases():
        raise NotInRelease(
            f"the LLM API's options of TensorRT-LLM {name} are not known here",
            why=f"they were read from {option_releases()[0]} on; before it an engine was the way",
            fix=f"use one of {', '.join(option_releases())}",
        )
    return checked(LlmOptions, view(name).of_file(FILE), f"the LLM API's options in {name}", FILE)


def have(option: str, below: str = "") -> tuple[str, ...]:
    """The releases that have ``option``, or ``option`` below the option ``below``."""
    return tuple(name for name in option_releases() if option in _known(llm_options(name), below))


def effective(text: str, release: str) -> dict[str, Any]:
    """The file's options with the release's defaults where it says nothing; ``kv_cache_config`` as a mapping too.

    Raises as :func:`check_options`. The text should be one that it takes.
    """
    written, known = _read(text), llm_options(release)
    found: dict[str, Any] = {name: option.default for name, option in known.options.items()} | written
    for outer, nested in known.nested.items():
        below = written.get(outer)
        found[outer] = {name: option.default for name, option in nested.options.items()} | (
            below if isinstance(below, dict) else {}
        )
    return found


def option_counts() -> list[dict[str, Any]]:
    """A row for each release: its options, by NVIDIA's word on them, and where they were read."""
    rows: list[dict[str, Any]] = []
    for name in option_releases():
        found = llm_options(name)
        sure = [option for option in found.options if found.certain(option)]
        kinds = [found.options[option].status or "no word" for option in sure]
        rows.append(
            {
                "release": name,
                "options": len(found.options),
                "read there": len(sure),
                "stable": kinds.count("stable"),
                "beta": kinds.count("beta"),
                "prototype": kinds.count("prototype"),
                "holds": found.read.holds,
                "source": found.read.source,
            }
        )
    return rows


def options_gone(before: str, after: str) -> dict[str, Renamed | None]:
    """Options of the release ``before`` that ``after`` does not have, each with what it became, None for nothing."""
    older, newer = llm_options(before), llm_options(after)
    return {name: newer.renamed.get(name) for name in older.options if name not in newer.options}


def check_options(text: str, release: str) -> tuple[OptionProblem, ...]:
    """What the LLM API of ``release`` does not take of the YAML file ``text``; empty: it takes all of it.

    :class:`NotYaml` for a text that is no mapping.
    """
    return tuple(_problems(_read(text), llm_options(release)))


def looks_like_options(text: str) -> bool:
    """True for a mapping whose names are all options of some release, or were; one alone has options of its own.

    Also where a few names of many are none, beside an option that has options of its own as the LLM API's do.
    """
    if len(text) > LONGEST_OPTIONS:
        return False
    try:
        written = _read(text)
    except NotYaml:
        return False
    known = {name for release in option_releases() for name in _names(llm_options(release))}
    has_own = any(
        isinstance(value, dict) and name in llm_options(option_releases()[-1]).nested for name, value in written.items()
    )
    if written.keys() <= known:
        return len(written) > 1 or has_own
    ours = len(written.keys() & known)
    return has_own and ours >= MOST_OF_THEM and ours * 4 >= len(written) * 3


def written_options(text: str) -> dict[str, Any]:
    """The options of a file as they are written. :class:`NotYaml` for a text that is no mapping."""
    return _read(text)


def _names(known: LlmOptions) -> set[str]:
    return {*known.options, *known.renamed}


def _read(text: str) -> dict[str, Any]:
    refuse_multiplied(text, "the file of options")
    try:
        written: Any = yaml12.parse_yaml(text)
    except ValueError as error:
        raise NotYaml("the options are not valid YAML", why=str(error), fix="mend the line it names") from error
    if not isinstance(written, dict | None):
        raise NotYaml(
            "the options are no mapping", why=f"the file holds a {type(written).__name__}", fix="write option: value"
        )
    return {str(name): value for name, value in (written or {}).items()}


def _problems(written: Mapping[Any, Any], known: LlmOptions) -> Iterator[OptionProblem]:
    for name, value in written.items():
        yield from _one(str(name), value, known, "")
        if name in known.nested and isinstance(value, dict) and str(name) in known.options:
            for inner, deep in value.items():
                yield from _one(str(inner), deep, known, str(name))


def _one(name: str, value: Any, known: LlmOptions, below: str) -> Iterator[OptionProblem]:
    options = _known(known, below)
    written = f"{below}.{name}" if below else name
    if name not in options:
        nearest, how = _nearest(name, known, below)
        where = f"no option of {below}" if below else "no option of this release"
        certain = known.read.confidence != "low" and not below
        yield OptionProblem(
            option=written, message=where, nearest=nearest, how=how, has=have(name, below), certain=certain
        )
    elif not _fits(value, options[name]):
        message = f"takes {options[name].type}, not {value!r}"
        yield OptionProblem(option=written, message=message, certain=known.certain(name, below))
    elif (
        (values := options[name].values)
        and isinstance(value, str)
        and not UNKNOWN.search(value)
        and value not in values
    ):
        close = get_close_matches(value.upper(), values, n=1, cutoff=0.7)
        message = f"takes one of {', '.join(values)}, not {value}"
        yield OptionProblem(option=written, message=message, how=close[0] if close else "", certain=False)


def _nearest(name: str, known: LlmOptions, below: str) -> tuple[str, str]:
    renamed = known.renamed.get(name)
    if renamed and not below and renamed.to in known.options:
        return renamed.to, renamed.how
    options = _known(known, below)
    older = next((old for old, new in known.renamed.items() if new.to == name and old in options), "")
    moved = renamed.how.removeprefix(f"{below}.") if renamed and below else ""
    close = get_close_matches(name, options, n=1, cutoff=0.7) or _in_another_order(name, options)
    found = (moved if moved in options else "") or older or (close[0] if close else "")
    if not found and not below:
        deep = ((outer, inner) for outer, nested in known.nested.items() for inner in nested.options)
        return next(((outer, f"{outer}.{inner}") for outer, inner in deep if inner == name), ("", ""))
    return (f"{below}.{found}" if below and found else found), ""


def _in_another_order(name: str, options: Iterable[str]) -> list[str]:
    """The option with the words of ``name``, as they may be written, in another order."""
    ordered = {" ".join(sorted(option.split("_"))): option for option in options if "_" in option}
    return [ordered[one] for one in get_close_matches(" ".join(sorted(name.split("_"))), ordered, n=1, cutoff=0.9)]


def _known(known: LlmOptions, below: str) -> Mapping[str, LlmOption]:
    if not below:
        return known.options
    return known.nested[below].options if below in known.nested else {}


def _fits(value: Any, option: LlmOption) -> bool:
    """Whether a value is of the option's plain type; null means the default, and other classes are not looked into.

    A value that a shell or a template has yet to fill in is unknown.
    """
    if value is None or option.type not in KINDS:
        return True
    if isinstance(value, str) and UNKNOWN.search(value):
        return True
    if isinstance(value, bool):
        return option.type == "bool"
    return isinstance(value, KINDS[option.type])
