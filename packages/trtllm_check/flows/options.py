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
TOP_LEVEL = re.compile(r"^(\w+):(?=[ \t\r]|$)", re.MULTILINE)
BACKENDS = ("pytorch", "tensorrt")
AMBIGUOUS = (
    "dtype",
    "backend",
    "max_num_tokens",
    "max_batch_size",
    "host_cache_size",
    "load_format",
)  # of several classes
PARTS = ("context_servers", "generation_servers")  # of the file of `trtllm-serve disaggregated`
OF_SERVERS = frozenset(
    {
        *(
            "hostname",
            "port",
            "num_instances",
            "urls",
            "router",
            "conditional_disagg_config",
            "otlp_config",
            "max_retries",
        ),
        *("perf_metrics_max_requests", "disagg_cluster", "node_id", "schedule_style", "health_check_interval_secs"),
        *("extra_llm_api_options", "server_role", "backend", "model", "free_gpu_memory_fraction", "request_timeout"),
    }
)
"""Names of that file that are no options of the LLM API."""
MOST_KNOWN = 2  # names of options for one that is none
UNKNOWN = re.compile(r"\$[{(\w]|`|\{\{|<\w")
OF_A_CLASS = re.compile(r"[A-Z]\w*Config")  # which takes a mapping of its own options
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
    """All that is known of one release's options. ``telling``: names that no other program's files have."""

    read: OptionsRead
    telling: frozenset[str]
    foreign: frozenset[str]
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


def is_disaggregated(written: Mapping[str, Any]) -> bool:
    """True for the file of ``trtllm-serve disaggregated``, which has options for two kinds of servers."""
    return all(isinstance(written.get(part), dict) for part in PARTS)


def check_options(text: str, release: str) -> tuple[OptionProblem, ...]:
    """What the LLM API of ``release`` does not take of the YAML file ``text``; empty: it takes all of it.

    :class:`NotYaml` for a text that is no mapping.
    """
    written, known = _read(text), llm_options(release)
    return tuple(_of_servers(written, known) if is_disaggregated(written) else _problems(written, known))


def looks_like_options(text: str) -> bool:
    """True for a mapping whose names are all options of some release, or were; one alone has options of its own.

    A few names may be no options, where others are found in files of options only: what is wrong has to be seen, too.
    """
    if len(text) > LONGEST_OPTIONS:
        return False
    try:
        written = _read(text)
    except NotYaml:
        return False
    newest = llm_options(option_releases()[-1])
    if is_disaggregated(written):
        return True
    known = {name for release in option_releases() for name in _names(llm_options(release))}
    has_own = any(isinstance(value, dict) and name in newest.telling for name, value in written.items())
    if written.keys() <= known:
        return len(written) > 1 or has_own
    strange = written.keys() - known
    return (
        _is_telling(written, newest)
        and not strange & newest.foreign
        and MOST_KNOWN * len(strange) <= len(written.keys() & known)
    )


def may_be_options(text: str) -> bool:
    """False, without reading it as YAML, for a text with no name that tells of options at the start of a line."""
    telling = llm_options(option_releases()[-1]).telling
    return len(text) <= LONGEST_OPTIONS and any(found[1] in telling for found in TOP_LEVEL.finditer(text))


def _is_telling(written: Mapping[str, Any], known: LlmOptions) -> bool:
    return not known.telling.isdisjoint(written) or written.get("backend") in BACKENDS


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


def _of_servers(written: Mapping[str, Any], known: LlmOptions) -> Iterator[OptionProblem]:
    """The options of both kinds of servers, and what stands above them for both."""
    for part in ("", *PARTS):
        own = written[part] if part else {name: value for name, value in written.items() if name not in PARTS}
        for one in _problems({name: value for name, value in own.items() if name not in OF_SERVERS}, known):
            yield one.model_copy(
                update={"option": f"{part}.{one.option}" if part else one.option, "certain": one.certain and bool(part)}
            )


def _problems(written: Mapping[Any, Any], known: LlmOptions) -> Iterator[OptionProblem]:
    yield from _graphs(written.get("cuda_graph_config"), known)
    for name, value in written.items():
        yield from _one(str(name), value, known, "")
        if name in known.nested and isinstance(value, dict) and str(name) in known.options:
            for inner, deep in value.items():
                yield from _one(str(inner), deep, known, str(name))


def _graphs(written: Any, known: LlmOptions) -> Iterator[OptionProblem]:
    """The largest of the batch sizes is the limit; both may be given, and have to agree."""
    if not isinstance(written, dict) or "cuda_graph_config" not in known.options:
        return
    sizes, limit = written.get("batch_sizes"), written.get("max_batch_size")
    if not isinstance(limit, int) or not isinstance(sizes, list) or not all(isinstance(size, int) for size in sizes):
        return
    largest = max(sizes, default=limit)
    if limit not in (0, largest):
        message = f"is {limit}, and the largest of batch_sizes {largest}: they have to be equal"
        yield OptionProblem(option="cuda_graph_config.max_batch_size", message=message, how=str(largest), certain=False)


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
    elif name.endswith("_fraction") and isinstance(value, int | float) and not 0 <= value <= 1:
        yield OptionProblem(option=written, message=f"takes a number from 0 to 1, not {value}", certain=False)
    elif (
        (values := options[name].values)
        and isinstance(value, str)
        and not UNKNOWN.search(value)
        and value not in values
    ):
        plain = {one.casefold(): one for one in values}
        close = [plain[one] for one in get_close_matches(value.casefold(), plain, n=1, cutoff=0.6)]
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
    if not found or (not below and found != older):
        elsewhere = _at_another_place(name, known, below)
        if elsewhere[0]:
            return elsewhere
    return (f"{below}.{found}" if below and found else found), ""


def _at_another_place(name: str, known: LlmOptions, below: str) -> tuple[str, str]:
    """The option with exactly this name that stands at the top, or below another one; how to write it there."""
    if name in AMBIGUOUS:
        return "", ""
    if below and name in known.options:
        return name, "at the top level"
    for outer, nested in known.nested.items():
        if name in nested.options and outer in known.options:
            return outer, f"{outer}.{name}"
    return "", ""


def _in_another_order(name: str, options: Iterable[str]) -> list[str]:
    """The option with the words of ``name``, as they may be written, in another order."""
    ordered = {" ".join(sorted(option.split("_"))): option for option in options if "_" in option}
    return [ordered[one] for one in get_close_matches(" ".join(sorted(name.split("_"))), ordered, n=1, cutoff=0.9)]


def _known(known: LlmOptions, below: str) -> Mapping[str, LlmOption]:
    if not below:
        return known.options
    return known.nested[below].options if below in known.nested else {}


def _fits(value: Any, option: LlmOption) -> bool:
    """Whether a value is of the option's plain type; null means the default; of a class, a number is none.

    A value that a shell or a template has yet to fill in is unknown.
    """
    if value is None or option.type not in KINDS:
        return not (OF_A_CLASS.fullmatch(option.type) and isinstance(value, bool | int | float))
    if isinstance(value, str) and UNKNOWN.search(value):
        return True
    if isinstance(value, bool):
        return option.type == "bool"
    return isinstance(value, KINDS[option.type])
