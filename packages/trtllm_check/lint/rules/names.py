"""Names that a release does not take: tools, flags and values, and what it takes instead."""

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pydantic import Field

from serving_base.record import Record
from trtllm_check.lint.finding import Draft, Drop, Edit, Put, Swap, rule_data
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.programs import Given
from trtllm_check.releases import Argument, Release, Tool, known_releases
from trtllm_check.releases.history import bare, ranges, tool_history, with_flag

if TYPE_CHECKING:
    from trtllm_check.releases.guide import FlagGuide

YES = ("enabled", "true", "yes", "on", "1")
NO = ("disabled", "false", "no", "off", "0", "disable", "none")
# What the shell or the reader fills in: $X, $(...), `...`, <name>, {name}, [options]
OPEN = re.compile(
    r"\$[{(@*\w]|`|<[^<>]*>|\{\{|\{[\w.]+\}|^\$$|^\{.*\}$|^\[.*\]?$|^[^\[]*\]$|\.\.\.|…|%\w+%"
    r"|^(?i:your|my|some) (?:\w+ ){0,4}\w+$",  # your model here
    re.DOTALL,
)
THOUSANDS = re.compile(r"(\d+)k", re.IGNORECASE)
Rule = Literal["unknown-flag", "flag-removed", "flag-too-new"]
NEAR = 0.8
SHORTEST = 5  # --host is meant by --hostname
DEFAULT_LENGTH = 1024  # of max_input_len and max_output_len where both exist: tools/trtllm-build.yml to 0.10.0
CONTAINER = "/app/"
CONTAINERS_OWN = re.compile(r"/app/(?:\w+\.py$|(?:examples|scripts|tools|all_models|inflight_batcher_llm|benchmarks)/)")
NEXT = 2  # releases: this one and the one behind it
# Clones in the image: of tensorrt-llm/release (TensorRT-LLM docker/Dockerfile.multi), and the reader's own.
CLONES_IN_IMAGE = re.compile(r"/app/(?:tensorrt_llm|tensorrtllm_backend)/")


class Successor(Record):
    """How a flag is written in another release, beyond what the guide says of it. ``to`` None: the guide's flags."""

    to: tuple[str, ...] | None = None
    all: bool = False
    values: dict[str, str] = Field(default={})


class Absent(Record):
    """A tool that releases up to ``until`` are known not to have."""

    tool: str
    until: str
    instead: str
    source: str


@lru_cache(maxsize=4096)
def is_open(text: str) -> bool:
    """True for a word that only the reader's shell, or the reader, can fill in; asked of a word by many rules."""
    return OPEN.search(text) is not None


def corrected_value(text: str, argument: Argument) -> str | None:
    """The value that was meant, if that can be told."""
    if not argument.choices:
        match = THOUSANDS.fullmatch(text)
        if argument.type == "int" and match:
            return str(int(match[1]) * 1024)
        digits = re.sub(r"[,_]", "", text)
        return digits if argument.type == "int" and digits.isdecimal() and digits.isascii() else None
    choices = [str(choice) for choice in argument.choices]
    wanted = text.lower().strip()
    for words, choice in ((YES, "enable"), (NO, "disable")):
        if wanted in words and choice in choices:
            return choice
    if wanted in choices:
        return wanted
    if "auto" in choices and wanted in ("float16", "bfloat16", "float32", "fp16", "bf16"):
        return "auto"
    if wanted == "auto" and "bfloat16" in choices:
        return "bfloat16"  # Llama-3's type
    close = get_close_matches(wanted, choices, 1, 0.8)
    return close[0] if close else None


def successor(tool: str, flag: str) -> Successor:
    """What changes with the name where ``flag`` of ``tool`` is written otherwise in another release."""
    found: Successor = _data()["successors"].get(tool, {}).get(flag, Successor())
    return found


def examples() -> dict[str, str]:
    """Required flag -> a value to start from."""
    found: dict[str, str] = _data()["examples"]
    return found


def positional_names(tool: str) -> tuple[str, ...]:
    """Options that people give for what the tool takes without one."""
    found: tuple[str, ...] = _data()["positional"].get(tool, ())
    return found


def absent_tools() -> tuple[Absent, ...]:
    found: tuple[Absent, ...] = _data()["absent"]
    return found


def foreign_folders() -> frozenset[str]:
    """Folders of the examples whose scripts are not Llama's."""
    found: frozenset[str] = _data()["foreign"]
    return found


@cache
def _data() -> dict[str, Any]:
    data = rule_data("arguments")
    successors = {
        tool: {flag: Successor.model_validate(entry) for flag, entry in flags.items()}
        for tool, flags in data["successors"].items()
    }
    absent = tuple(Absent.model_validate(entry) for entry in data["absent"])
    return {**data, "successors": successors, "absent": absent, "foreign": frozenset(data["foreign"])}


class Unknown(NamedTuple):
    """``source`` is empty where the tool's own facts are the source."""

    rule: Rule
    why: str
    edits: tuple[Edit, ...]
    source: str = ""


def unknown(invocation: Invocation, release: Release, given: Given, everything: Sequence[Given]) -> Unknown:
    """What to say of ``given``, which ``release``'s tool lacks, among ``everything`` that is given."""
    tool, flag = invocation.tool, given.name
    where = with_flag(tool, flag)
    if not where:
        return _nowhere(tool, release, given)
    from trtllm_check.releases.guide import guide_of  # takes as long to import as a script to read

    order = known_releases()
    older = [name for name in where if order.index(name) < order.index(release.name)]
    guide = guide_of(tool, [flag])
    why = f"{flag} was in {ranges(older)}." if older else f"{flag} came with {where[0]}."
    advice = _advice(release, guide)
    edits = _edits(release, tool, given, everything)
    source = "; ".join(guide.source) if guide else ""
    return Unknown("flag-removed" if older else "flag-too-new", f"{why} {advice}".strip(), edits, source)


def _advice(release: Release, guide: "FlagGuide | None") -> str:
    """What took the flag's place, in words."""
    if guide is None:
        return ""
    found = []
    for one in guide.instead:
        tool = release.tools.get(one.tool or guide.tool)
        if not one.flag or (tool is not None and tool.has(one.flag)):
            of = f" of {one.tool}" if one.tool else ""
            found.append(f"{one.flag or one.setting}{of}: {one.how}")
    return f"Instead: {'; or '.join(found)}." if found else ""


def _edits(release: Release, tool: str, given: Given, everything: Sequence[Given]) -> tuple[Edit, ...]:
    """Takes ``given`` out, and puts in what this release has for it and ``everything`` lacks."""
    from trtllm_check.releases.guide import counterparts

    flag, facts = given.name, release.tools[tool]
    others = {one.name: one for one in everything if one.flag}
    if tool == "trtllm-build" and flag in ("--max_output_len", "--max_seq_len"):
        return (Drop(flag), *_lengths(given, others, has_sum=facts.has("--max_seq_len")))
    new = successor(tool, flag)
    named = counterparts(tool, flag) if new.to is None else new.to
    wanted = [name for name in named if facts.has(name) and name not in others]
    return _replaced(given, wanted if new.all else wanted[:1], new.values, facts)


def _replaced(given: Given, wanted: Sequence[str], values: Mapping[str, str], tool: Tool) -> tuple[Edit, ...]:
    """``wanted`` instead of ``given``, with its value, or with what ``values`` says for that one."""
    drop = Drop(given.name)
    argument = tool.argument(wanted[0]) if wanted else None
    if argument is not None and argument.is_switch:
        return (drop, *(Put(name) for name in wanted))
    if len(given.values) > 1 and len(wanted) == 1:  # only the flag's own part of the word: the values stay
        return (Swap(given.word.part(0, len(given.flag)), wanted[0]),)
    text = given.values[0].text if given.values else "enable"
    return (drop, *(Put(name, values.get(text, text)) for name in wanted))


def _lengths(given: Given, others: dict[str, Given], *, has_sum: bool) -> list[Edit]:
    """From prompt and answer to their sum, and back."""
    if given.name == "--max_output_len":
        sums = _sum(given, others.get("--max_input_len"))
        return [Put("--max_seq_len", sums)] if has_sum and sums and "--max_seq_len" not in others else []
    total = _number(given)
    if total is None or total < 2:
        return []
    prompt = _number(others.get("--max_input_len")) or total // 2
    if prompt >= total:
        prompt = total // 2
    return [Put("--max_input_len", str(prompt)), Put("--max_output_len", str(total - prompt))]


def _sum(answer: Given, prompt: Given | None) -> str:
    texts = [one.values[0].text if one and one.values else str(DEFAULT_LENGTH) for one in (prompt, answer)]
    if all(text.isdecimal() for text in texts):
        return str(sum(map(int, texts)))
    if all(text.isdecimal() or is_open(text) for text in texts):
        return f"$(({' + '.join(texts)}))"
    return ""


def _number(given: Given | None) -> int | None:
    text = given.values[0].text if given and given.values else ""
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 9 else None


def _nowhere(tool: str, release: Release, given: Given) -> Unknown:
    """A flag of no release: another tool's, or a misspelt one."""
    flag = given.name
    own = sorted(name for name in release.tools[tool].names if name.startswith("-"))
    same = [name for name in own if bare(name) == bare(flag)]
    meant = successor(tool, flag)
    named = [name for name in meant.to or () if name in own]
    if flag in positional_names(tool) and given.values and given.word.text == given.flag:
        written = given.word.part(0, len(given.flag))
        return Unknown("unknown-flag", "It has no name: the model stands alone.", (Swap(written, ""),))
    if not same and not named:
        others = [name for name, other in release.tools.items() if name != tool and other.has(flag)]
        if others:
            return Unknown("unknown-flag", f"It is a flag of {' and '.join(others[:2])}.", (Drop(flag),))
    near = same or named or (get_close_matches(flag, own, 1, NEAR) if flag.startswith("--") else [])
    near = near or sorted((name for name in own if len(name) > SHORTEST and flag.startswith(name)), key=len)[-1:]
    if near:
        written = given.word.part(0, len(given.flag))
        return Unknown(
            "unknown-flag",
            f"No release has it; {near[0]} is {'meant' if named else 'near'}.",
            (Swap(written, near[0]),),
        )
    return Unknown("unknown-flag", "No release's facts have it.", (Drop(flag),))


def tool_drafts(invocation: Invocation, release: Release) -> Iterator[Draft]:
    """tool-not-in-release, moved-script."""
    tool = release.tools.get(invocation.tool)
    if tool is None:
        yield from _absent(invocation, release)
    elif tool.repo_path:
        yield from _moved(invocation, release, tool)


def _absent(invocation: Invocation, release: Release) -> Iterator[Draft]:
    for absent in absent_tools():
        if absent.tool == invocation.tool and _is_before(release.name, absent.until):
            yield Draft(
                "tool-not-in-release",
                "error",
                invocation.path,
                f"The shell stops: {absent.tool}: command not found",
                f"TensorRT-LLM {release.name} has no {absent.tool}; the last release without it is {absent.until}.",
                absent.source,
                action=absent.instead,
                invocation=invocation,
            )


def is_absent(tool: str, release: Release) -> bool:
    """True for a tool that came after ``release``."""
    return any(one.tool == tool and _is_before(release.name, one.until) for one in absent_tools())


def _is_before(release: str, until: str) -> bool:
    order = known_releases()
    return order.index(release) <= order.index(until)


def _moved(invocation: Invocation, release: Release, tool: Tool) -> Iterator[Draft]:
    written = invocation.path.text
    path = posixpath.normpath(written)
    while path.startswith("../"):
        path = path[3:]
    if path == tool.container_path or is_open(path):
        return
    if _is_readers(path):
        return
    path = CLONES_IN_IMAGE.sub("", path, count=1) if CLONES_IN_IMAGE.match(path) else path
    if not path.startswith(CONTAINER) and (_ends(path, tool.repo_path) or _ends(tool.repo_path, path)):
        return
    others = [(name, other) for name, other in tool_history(invocation.tool) if other]
    for _, other in reversed(others):
        old = other.container_path
        if not (old and path == old) and not _ends(path, old := other.repo_path):
            continue
        where = [name for name, one in others if old in (one.container_path, one.repo_path)]
        next_ones = known_releases()[known_releases().index(release.name) :][:NEXT]
        is_near = path.startswith(CONTAINER) and any(name in next_ones for name in where)  # its image was not read
        yield Draft(
            "moved-script",
            "warning" if is_near else "error",
            invocation.path,
            f"Python stops: can't open file '{written}': No such file or directory",
            f"{old} is its path in {ranges(where)}; in {release.name} it is {tool.container_path or tool.repo_path}.",
            tool.source,
            edits=(Swap(invocation.path, _new_path(written, old, release, tool)),),
            invocation=invocation,
        )
        return


def _is_readers(path: str) -> bool:
    """True for an absolute path outside of the image's own folders: what the reader put there is not known."""
    return path.startswith("/") and CONTAINERS_OWN.match(path) is None


def _new_path(written: str, old: str, release: Release, tool: Tool) -> str:
    if written.startswith(CONTAINER) and not CLONES_IN_IMAGE.match(written):
        return tool.container_path or f"{release.checkouts[tool.repo].folder}/{tool.repo_path}"
    before = written.removesuffix(old)
    return f"{before}{tool.repo_path}" if before != written else tool.repo_path


def _ends(path: str, end: str) -> bool:
    """True if ``end``, with a folder in it, is the end of ``path``."""
    return "/" in end and (path == end or path.endswith(f"/{end}"))
