"""`playbook explain FLAG`: what a flag does, in which releases it lives, and what to write instead.

:mod:`trtllm_check.explain.page` makes the whole of it the page docs/releases.md.
"""

import textwrap
from difflib import get_close_matches

from serving_base.errors import UsageError
from trtllm_check.explain.layout import WIDTH, Rows, part, wrapped
from trtllm_check.explain.settings import OPTION, about_earlier, about_option, about_parameter, option_name
from trtllm_check.releases import Release, load_release
from trtllm_check.releases.guide import TEMPLATES, FlagGuide, Replacement, flag_guides, guide_of, migration
from trtllm_check.releases.history import FlagHistory, all_names, bare, default, flag_histories, ranges, takes
from trtllm_check.releases.lmi import lmi_facts
from trtllm_check.releases.templates import release_templates, template_releases
from trtllm_check.rules import Entry, Rule, all_rules
from trtllm_check.rules.table import sentence, sentences

LONG = 40  # lines that ask for a summary


def explain(flag: str, release: str = "") -> str:
    """All about ``flag``: a flag with or without dashes, an alias, a template variable, or an option of LMI.

    With ``release`` also how that release takes it, or what to write there instead. Raises :class:`UsageError` for a
    name that no release knows, with those that are near.
    """
    chosen = load_release(release) if release else None
    found = flag_histories(all_names().get(bare(flag), flag))
    parts = _about_flags(found, chosen)
    names = {flag, bare(flag), *(name for history in found for name in history.names)}
    if not flag.startswith("-"):
        if not parts or (TEMPLATES, flag) in flag_guides():  # the templates' files are read only when they are needed
            parts += _about_variable(flag, chosen)
        parts += [] if parts else about_parameter(flag, chosen)
        if not parts or flag.startswith(OPTION):
            option = option_name(flag)
            parts += about_option(option, chosen)
            names.add(option)
    parts = parts or about_earlier(bare(flag))
    if not parts:
        raise _unknown(flag)
    concerned = [rule for rule in all_rules() if names & set(rule.about)]
    told = parts + _about_rules(concerned, chosen)
    return "\n\n".join([*_summary(told, parts, concerned), *told])


def _summary(told: list[str], parts: list[str], concerned: list[Rule]) -> list[str]:
    """What a long explanation holds, first: its parts, what the first of them does, and the rules by their names."""
    if sum(text.count("\n") + 1 for text in told) <= LONG:
        return []
    first = [line.strip() for line in parts[0].split("\n")[1:2] if line.strip().startswith("does")]
    lines = [f"  {line.removeprefix('does').strip()}" for line in first]
    lines += [f"  {text.partition(chr(10))[0]}" for text in parts]
    if concerned:
        lines += wrapped(f"rules: {', '.join(rule.id for rule in concerned)}", "  ", "    ")
    return ["\n".join(["In short", *lines])]


def _about_flags(found: list[FlagHistory], release: Release | None) -> list[str]:
    """One part per tool; with a release, only those tools that it has, if it has any of them."""
    there = [history for history in found if release and history.tool in release.tools] or found
    parts = [_about_flag(history, release) for history in there]
    elsewhere = [history for history in found if history not in there]
    if release and elsewhere:
        others = "; ".join(
            f"{history.tool} ({', '.join(span.releases for span in history.spans)})" for history in elsewhere
        )
        parts.append(textwrap.fill(f"Not in the facts of {release.name}: {others}", WIDTH))
    return parts


def _about_flag(history: FlagHistory, release: Release | None) -> str:
    guide = guide_of(history.tool, history.names)
    rows: Rows = [("does", guide.does), ("when", guide.when)] if guide else []
    if release:
        rows.append((f"in {release.name}", _in_release(history, guide, release)))
    rows += [("history", line) for line in _history_lines(history)]
    if guide:
        rows += [("instead", replacement_text(replacement, guide)) for replacement in guide.instead]
        rows += [("changed", f"{change.release}: {change.text}") for change in guide.changed]
    rows += [
        ("PyTorch", f"{step.new}. {step.note}".strip())
        for step in migration()
        if step.tool == history.tool and set(history.names) & set(step.flags)
    ]
    if guide:
        rows.append(("source", "; ".join(guide.source)))
    others = f" (also {', '.join(history.names[1:])})" if len(history.names) > 1 else ""
    return part(f"{history.flag} of {history.tool}{others}", rows)


def _history_lines(history: FlagHistory) -> list[str]:
    lines = []
    for span in history.spans:
        argument = span.argument
        doubt = f" ({argument.confidence} confidence: {argument.note})" if argument.confidence else ""
        lines.append(f"{span.releases}: {takes(argument)}; {_default(default(argument))}{doubt}")
    return [*lines, f"from {history.gone_since}: gone"] if history.gone_since else lines


def _default(value: str) -> str:
    return {"": "no default", "required": "required"}.get(value, f"default {value}")


def _in_release(history: FlagHistory, guide: FlagGuide | None, release: Release) -> str:
    """How ``release`` takes the flag, or what to write there instead."""
    if history.tool not in release.tools:
        return (
            f"there are no facts on {history.tool} in this release"
            if release.builds_engines
            else (f"this release has no {history.tool}; its flow is PyTorch's")
        )
    argument = release.tools[history.tool].argument(history.flag)
    if argument:
        doubt = f" Not certain: {argument.note}." if argument.confidence else ""
        return f"takes {takes(argument)}; {_default(default(argument))}.{doubt}"
    advice = [replacement_text(it, guide) for it in guide.instead if _usable(it, guide, release)] if guide else []
    advice += [
        f"{_of(other.flag, other.tool, history.tool)} ({other.does.rstrip('.')})"
        for other in _predecessors(history)
        if other.tool in release.tools and release.tools[other.tool].has(other.flag)
    ]
    return f"{history.tool} refuses it. " + (f"Instead: {'; or '.join(advice)}." if advice else "Leave it out.")


def _usable(replacement: Replacement, guide: FlagGuide, release: Release) -> bool:
    tool = release.tools.get(replacement.tool or guide.tool)
    return not replacement.flag or (tool is not None and tool.has(replacement.flag))


def _predecessors(history: FlagHistory) -> list[FlagGuide]:
    """Flags that this one took the place of."""
    wanted = (history.tool, history.flag)
    return [
        guide
        for guide in flag_guides().values()
        if any((it.tool or guide.tool, it.flag) == wanted for it in guide.instead)
    ]


def replacement_text(replacement: Replacement, guide: FlagGuide) -> str:
    """What to write instead, and how."""
    what = _of(replacement.flag, replacement.tool, guide.tool) if replacement.flag else replacement.setting
    return f"{what} ({replacement.how})"


def _of(flag: str, tool: str, here: str) -> str:
    return flag if tool in ("", here) else f"{flag} of {tool}"


def _about_variable(name: str, release: Release | None) -> list[str]:
    """The variable ``name`` of Triton's templates, if it is one."""
    models: dict[str, list[str]] = {}
    for release_name in template_releases():
        for model, spec in release_templates(release_name).models.items():
            if name in spec.variables:
                models.setdefault(model, []).append(release_name)
    if not models:
        return []
    guide = guide_of(TEMPLATES, [name])
    rows: Rows = [("does", guide.does), ("when", guide.when)] if guide else []
    if release:
        there = [model for model, names in models.items() if release.name in names]
        rows.append((f"in {release.name}", f"a variable of {', '.join(there)}" if there else "no model has it"))
    rows += [("history", f"{model}: {ranges(names)}") for model, names in models.items()]
    if guide:
        rows += [("changed", f"{change.release}: {change.text}") for change in guide.changed]
        rows.append(("source", "; ".join(guide.source)))
    return [part(f"{name} of config.pbtxt, a variable of Triton's templates", rows)]


def _about_rules(concerned: list[Rule], release: Release | None) -> list[str]:
    told = [(rule, rule.says if release is None else rule.entries(release)) for rule in concerned]
    lines = [line for rule, entries in told if entries for line in _rule(rule, entries, with_range=release is None)]
    return ["\n".join([f"Rules in {release.name}" if release else "Rules", *lines])] if lines else []


def _rule(rule: Rule, entries: tuple[Entry, ...], *, with_range: bool) -> list[str]:
    """Its id, then what it says, entry by entry, and its note."""
    texts = []
    for entry in entries:
        head = f"{entry.severity}, {entry.releases}" if with_range else entry.severity
        source = f" [{entry.source}]" if entry.source else ""
        texts.append(f"{head}: {' '.join(sentences(rule, entry))}{source}")
    texts += [sentence(rule.note)] if rule.note else []
    return [f"  {rule.id}", *(line for text in texts for line in wrapped(text, "    ", "    "))]


def _unknown(flag: str) -> UsageError:
    variables = {
        name: name
        for release in template_releases()
        for spec in release_templates(release).models.values()
        for name in spec.variables
    }
    options = {
        option.removeprefix(OPTION): option for family in lmi_facts().families.values() for option in family.keys
    }
    names = options | variables | all_names()
    wanted = bare(flag)
    near = get_close_matches(wanted, names, n=4) or [name for name in names if wanted and wanted in name][:4]
    return UsageError(
        f"no release knows {flag}",
        why="no tool takes it, no template has it as a variable, and no LMI image's facts name it",
        fix=f"did you mean {', '.join(names[name] for name in near)}?" if near else "docs/releases.md lists the flags",
    )
