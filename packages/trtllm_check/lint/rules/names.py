"""A flag that the release's tool does not know: where it is from, and what to write instead."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Literal, NamedTuple

from trtllm_check.lint.commands.grouping import Given
from trtllm_check.lint.commands.invocations import Invocation
from trtllm_check.lint.report.drafts import Drop, Edit, Put, Swap
from trtllm_check.lint.rules.spelling import is_open, successor
from trtllm_check.releases import Release, known_releases
from trtllm_check.releases.history import bare, ranges, with_flag

if TYPE_CHECKING:
    from trtllm_check.releases.lore import FlagLore

Rule = Literal["unknown-flag", "flag-removed", "flag-too-new"]
NEAR = 0.8
DEFAULT_LENGTH = 1024  # of max_input_len and max_output_len where both exist: tools/trtllm-build.yml to 0.10.0


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
    from trtllm_check.releases.lore import lore_of  # takes as long to import as a script to read

    order = known_releases()
    older = [name for name in where if order.index(name) < order.index(release.name)]
    lore = lore_of(tool, [flag])
    why = f"{flag} was in {ranges(older)}." if older else f"{flag} came with {where[0]}."
    advice = _advice(release, lore)
    edits = _edits(release, tool, given, everything, lore)
    source = "; ".join(lore.source) if lore else ""
    return Unknown("flag-removed" if older else "flag-too-new", f"{why} {advice}".strip(), edits, source)


def _advice(release: Release, lore: "FlagLore | None") -> str:
    """What took the flag's place, in words."""
    if lore is None:
        return ""
    found = []
    for one in lore.instead:
        tool = release.tools.get(one.tool or lore.tool)
        if not one.flag or (tool is not None and tool.has(one.flag)):
            of = f" of {one.tool}" if one.tool else ""
            found.append(f"{one.flag or one.setting}{of}: {one.how}")
    return f"Instead: {'; or '.join(found)}." if found else ""


def _edits(
    release: Release, tool: str, given: Given, everything: Sequence[Given], lore: "FlagLore | None"
) -> tuple[Edit, ...]:
    flag, has = given.name, release.tools[tool].has
    drop = Drop(flag)
    others = {one.name: one for one in everything if one.flag}
    if tool == "trtllm-build" and flag in ("--max_output_len", "--max_seq_len"):
        return (drop, *_lengths(given, others, has_sum=has("--max_seq_len")))
    new = successor(tool, flag)
    wanted = [] if new is None else [name for name in new.to if has(name)]
    if new is None and lore:
        wanted = [one.flag for one in lore.instead if one.flag and not one.tool and has(one.flag)]
    wanted = [name for name in wanted if name not in others][: None if new and new.all else 1]
    if not wanted:
        return (drop,)
    values = {} if new is None else new.values
    argument = release.tools[tool].argument(wanted[0])
    if argument is not None and argument.is_switch:
        return (drop, *(Put(name) for name in wanted))
    text = given.values[0].text if given.values else "enable"
    if len(given.values) > 1 and len(wanted) == 1:
        return (Swap(given.word.part(0, len(given.flag)), wanted[0]),)
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
    if not same:
        others = [name for name, other in release.tools.items() if name != tool and other.has(flag)]
        if others:
            return Unknown("unknown-flag", f"It is a flag of {' and '.join(others[:2])}.", (Drop(flag),))
    near = same or (get_close_matches(flag, own, 1, NEAR) if flag.startswith("--") else [])
    if near:
        written = given.word.part(0, len(given.flag))
        return Unknown("unknown-flag", f"No release has it; {near[0]} is near.", (Swap(written, near[0]),))
    return Unknown("unknown-flag", "No release's facts have it.", (Drop(flag),))
