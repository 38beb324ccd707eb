"""docs/releases.md: releases, flags, rules, ways to run an engine and the way to PyTorch, made from the data."""

import re
from collections.abc import Iterable, Sequence
from itertools import groupby

from trtllm_check.releases.guide import TEMPLATES, FlagGuide, Replacement, Step, flag_guides, migration, run_modes
from trtllm_check.releases.history import FlagHistory, all_releases, all_tools, default, flag_history, ranges
from trtllm_check.releases.load import container_release
from trtllm_check.releases.release import Release
from trtllm_check.releases.templates import release_templates, template_releases
from trtllm_check.rules import TOPICS, Entry, Rule, topic
from trtllm_check.rules.table import sentence, sentences

NO_BREAK_HYPHEN = "\u2011"
NO_BREAK_SPACE = "\u00a0"

HEAD = """# TensorRT-LLM releases

Made from the data in `packages/trtllm_check/releases/data` and `packages/trtllm_check/rules` by `make docs`; a test
keeps the two equal. Each source stands in the data.
`playbook explain FLAG --release R` answers for one flag and one release, sources included; `playbook commands` prints
the commands of a profile in a release's own flags.

- [Releases](#releases)
- [Flags](#flags)
- [Compatibility rules](#compatibility-rules)
- [Ways to run an engine](#ways-to-run-an-engine)
- [From engines to PyTorch](#from-engines-to-pytorch)
"""

RELEASES = """## Releases

Triton containers are `nvcr.io/nvidia/tritonserver:<tag>-trtllm-python-py3`; LMI images are
`djl-inference:<tag>-tensorrtllm<release>-...`. An engine runs only in the TensorRT that built it, so build in the
container that serves. *Facts*: exact means read in the release itself, or equal in one before and one after it; tools
counted as near were read in a version close to the release, and a flag of theirs may be missing. *modelopt*: the
version that the release pins (ammo is its older name).
"""

TRAPS = """### Known traps
"""

FLAGS = """## Flags

One table per tool, in the order of the road. A "?" marks releases in which the flag is not confirmed. *Default*: over
time, oldest first; "-" means none. *In italics*: when to use it. **Instead**: what to write where it is gone.
"""

RULES = """## Compatibility rules

What must hold between flags, model and machine. **error**: the tool refuses, or its result is wrong; **warning**: the
tool changes it, or it is silently not what was meant; **info**: quality, speed, good to know. *Words in italics* stand
for what a command says. `playbook check` finds most of them in commands: [checks.md](checks.md) has the examples.
"""

WAYS = """## Ways to run an engine
"""

MIGRATION = """## From engines to PyTorch

The engine flow ends with 1.3.0rc20 (June 2026); 1.2.1 is the newest stable release that has it. After it a Hugging Face
checkpoint is served as it is. "YAML" keys belong in the file of `trtllm-serve --config`, or in `model.yaml` of Triton's
LLM-API model.
"""


def releases_page() -> str:
    """The whole page, as Markdown."""
    parts = [
        HEAD,
        RELEASES,
        _releases(),
        TRAPS,
        _traps(),
        FLAGS,
        *_flags(),
        RULES,
        *_rules(),
        WAYS,
        _ways(),
        MIGRATION,
        _migration(),
    ]
    return "\n".join(parts)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def _releases() -> str:
    head = ("Release", "Date", "Triton", "LMI", "Python", "modelopt", "Llama", "Facts")
    return _table(head, [_release_row(release) for release in all_releases()])


def _release_row(release: Release) -> tuple[str, ...]:
    modelopt, ammo = (release.pins.get(name, "").lstrip("~=") for name in ("nvidia-modelopt", "nvidia-ammo"))
    own = [image for image in release.containers.triton if container_release(image) == release.name]
    supported = [model.removeprefix("llama-") for model, support in release.models.items() if support.supported]
    return (
        release.name,
        str(release.date).replace("-", NO_BREAK_HYPHEN),
        ", ".join(_tag(image) for image in own) or "-",
        ", ".join(image.partition("-")[0] for image in release.containers.lmi) or "-",
        ".".join(release.python.split(".")[:2]),
        modelopt or (f"ammo {ammo}" if ammo else "-"),
        f",{NO_BREAK_SPACE}".join(supported) or "not listed",
        _exactness(release),
    )


def _traps() -> str:
    """The releases' notes, one that several releases have once."""
    releases: dict[str, list[str]] = {}
    for release in all_releases():
        for note in release.notes:
            releases.setdefault(note.text, []).append(release.name)
    return "".join(f"- **{ranges(names)}**: {_code(text)}\n" for text, names in releases.items())


def _tag(image: str) -> str:
    return image.rpartition(":")[2].removesuffix("-trtllm-python-py3")


def _exactness(release: Release) -> str:
    near = [tool for tool in release.tools.values() if tool.confidence != "high"]
    return f"{len(near)} of {len(release.tools)} tools near" if near else "exact"


def _flags() -> list[str]:
    parts = []
    for tool in all_tools():
        of_tool = [guide for guide in flag_guides().values() if guide.tool == tool]
        found = [(guide, history) for guide in of_tool if (history := flag_history(tool, guide.flag))]
        if found:
            parts.append(f"### {tool}\n\n{_facts(tool)}\n")
            parts.append(_table(_FLAG_HEAD, [_flag_row(guide, history) for guide, history in found]))
    parts += ["### config.pbtxt\n\nVariables of Triton's templates, `inflight_batcher_llm`.\n", _variables()]
    return parts


_FLAG_HEAD = ("Flag", "Releases", "Default", "What it does")


def _facts(tool: str) -> str:
    confidence = {release.name: release.tools[tool].confidence for release in all_releases() if tool in release.tools}
    near = ranges(name for name, how_sure in confidence.items() if how_sure != "high")
    return f"Facts: {ranges(confidence)}{f'; near the release, not in it: {near}' if near else ''}."


def _flag_row(guide: FlagGuide, history: FlagHistory) -> tuple[str, ...]:
    return (f"`{guide.flag}`", _lived(history), _defaults(history), _told(guide))


def _told(guide: FlagGuide) -> str:
    text = f"{guide.does} *{guide.when}*"
    if guide.changed:
        text += " Changed: " + "; ".join(f"{change.release} {change.text}" for change in guide.changed) + "."
    if guide.instead:
        text += " **Instead:** " + "; ".join(_replacement(replacement, guide) for replacement in guide.instead) + "."
    return text


def _lived(history: FlagHistory) -> str:
    """The releases that have the flag, those where it is not confirmed with a question mark."""
    texts, everything = [], set()
    for doubt, spans in groupby(history.spans, key=lambda span: bool(span.argument.confidence)):
        names = {name for span in spans for name in _within(history, span.first, span.last)}
        everything |= names
        texts.append(ranges(names) + ("?" if doubt else ""))
    return "all" if everything == set(history.releases) and len(texts) == 1 else ", ".join(texts)


def _within(history: FlagHistory, first: str, last: str) -> tuple[str, ...]:
    known = history.releases
    return known[known.index(first) : known.index(last) + 1]


def _defaults(history: FlagHistory) -> str:
    """Defaults one after the other, each with the release that brought it."""
    steps: list[tuple[str, str]] = []
    for span in history.spans:
        value = _switch_or_default(history, span.argument.is_switch, default(span.argument))
        if not steps or steps[-1][1] != value:
            steps.append((span.first, value))
    if len(steps) == 1:
        return steps[0][1]
    first, *later = steps
    return "; ".join([first[1], *(f"{value} from {release}" for release, value in later)])


def _switch_or_default(history: FlagHistory, is_switch: bool, value: str) -> str:
    """A flag that became one with a value says which it was."""
    changed = len({span.argument.is_switch for span in history.spans}) > 1
    kind = ("switch, " if is_switch else "value, ") if changed else ""
    return kind + (f"`{value}`" if value not in ("", "required", "on", "off") else value or "-")


def _replacement(replacement: Replacement, guide: FlagGuide) -> str:
    elsewhere = f" of {replacement.tool}" if replacement.tool not in ("", guide.tool) else ""
    what = f"`{replacement.flag}`{elsewhere}" if replacement.flag else replacement.setting
    return f"{what} ({replacement.how})"


def _variables() -> str:
    rows = []
    for guide in (guide for guide in flag_guides().values() if guide.tool == TEMPLATES):
        models: dict[str, None] = {}
        names = []
        for release in template_releases():
            having = [name for name, spec in release_templates(release).models.items() if guide.flag in spec.variables]
            models |= dict.fromkeys(having)
            names += [release] if having else []
        everywhere = tuple(names) == template_releases()
        rows.append((f"`{guide.flag}`", "all" if everywhere else ranges(names), ", ".join(models), _told(guide)))
    return _table(("Variable", "Releases", "Models", "What it does"), rows)


def _rules() -> list[str]:
    parts = []
    for name, title in TOPICS.items():
        rows = [row for rule in topic(name) if rule.about for row in _rule_rows(rule)]
        if rows:
            parts.append(f"### {title}\n")
            parts.append(_table(("Rule", "Releases", "Severity", "What holds, and what to do"), rows))
    return parts


def _rule_rows(rule: Rule) -> list[tuple[str, ...]]:
    """One row for each of its entries; the last has the note."""
    told = [_entry(rule, entry) for entry in rule.says]
    if rule.note:
        told[-1] += f" {_code(sentence(rule.note))}"
    return [(f"`{rule.id}`", entry.releases, entry.severity, text) for entry, text in zip(rule.says, told, strict=True)]


def _entry(rule: Rule, entry: Entry) -> str:
    what, *rest = (_code(text) for text in sentences(rule, entry, "*{}*"))
    return " ".join([what, *(re.sub(r"^Do:", "**Do:**", text) for text in rest)])


def _ways() -> str:
    rows = [(mode.name, mode.releases, mode.how, mode.note) for mode in run_modes()]
    return _table(("Way", "Releases", "How", "Note"), rows)


def _migration() -> str:
    rows = [(step.step, _old(step), _code(step.new), step.note) for step in migration()]
    return _table(("Step", "Engine flow", "PyTorch flow", "Note"), rows)


def _old(step: Step) -> str:
    if step.old:
        return _code(step.old)
    return f"{step.tool} " + ", ".join(f"`{flag}`" for flag in step.flags)


def _code(text: str) -> str:
    """Flags and settings in running text as code, where the text does not say so itself."""
    if "`" in text:
        return text
    return re.sub(r"(?<![\w-])(--[\w-]+( (enable|disable|fp8|bfloat16|abisee/cnn_dailymail)\b)?)", r"`\1`", text)
