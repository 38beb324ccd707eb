"""`playbook explain FLAG`: what a flag does, in which releases it lives, and what to write instead.

:mod:`trtllm_check.explain.page` makes the whole of it the page docs/releases.md.
"""

import textwrap
from difflib import get_close_matches

from serving_base.errors import UsageError
from trtllm_check.releases import Release, load_release
from trtllm_check.releases.history import Life, all_names, bare, default, lives, ranges, takes
from trtllm_check.releases.lmi import LmiImage, lmi_facts
from trtllm_check.releases.lore import TEMPLATES, FlagLore, Successor, flag_lore, lore_of, migration
from trtllm_check.releases.templates import release_templates, template_releases
from trtllm_check.rules import Entry, Rule, all_rules
from trtllm_check.rules.wording import sentence, sentences

WIDTH = 100
OPTION = "option."  # of LMI's serving.properties
Rows = list[tuple[str, str]]


def explain(flag: str, release: str = "") -> str:
    """All about ``flag``: a flag with or without dashes, an alias, a template variable, or an option of LMI.

    With ``release`` also how that release takes it, or what to write there instead. Raises :class:`UsageError` for a
    name that no release knows, with those that are near.
    """
    chosen = load_release(release) if release else None
    found = lives(all_names().get(bare(flag), flag))
    parts = _about_flags(found, chosen)
    names = {flag, bare(flag), *(name for life in found for name in life.names)}
    if not flag.startswith("-"):
        if not parts or (TEMPLATES, flag) in flag_lore():  # the templates' files are read only when they are needed
            parts += _about_variable(flag, chosen)
        if not parts or flag.startswith(OPTION):
            option = OPTION + flag.removeprefix(OPTION)
            parts += _about_option(option, chosen)
            names.add(option)
    if not parts:
        raise _unknown(flag)
    concerned = [rule for rule in all_rules() if names & set(rule.about)]
    return "\n\n".join(parts + _about_rules(concerned, chosen))


def _about_flags(found: list[Life], release: Release | None) -> list[str]:
    """One part per tool; with a release, only those tools that it has, if it has any of them."""
    there = [life for life in found if release and life.tool in release.tools] or found
    parts = [_about_flag(life, release) for life in there]
    elsewhere = [life for life in found if life not in there]
    if release and elsewhere:
        others = "; ".join(f"{life.tool} ({', '.join(span.releases for span in life.spans)})" for life in elsewhere)
        parts.append(textwrap.fill(f"Not in the facts of {release.name}: {others}", WIDTH))
    return parts


def _about_flag(life: Life, release: Release | None) -> str:
    lore = lore_of(life.tool, life.names)
    rows: Rows = [("does", lore.does), ("when", lore.when)] if lore else []
    if release:
        rows.append((f"in {release.name}", _in_release(life, lore, release)))
    rows += [("life", line) for line in _life_lines(life)]
    if lore:
        rows += [("instead", successor_text(successor, lore)) for successor in lore.instead]
        rows += [("changed", f"{change.release}: {change.text}") for change in lore.changed]
    rows += [
        ("PyTorch", f"{step.new}. {step.note}".strip())
        for step in migration()
        if step.tool == life.tool and set(life.names) & set(step.flags)
    ]
    if lore:
        rows.append(("source", "; ".join(lore.source)))
    others = f" (also {', '.join(life.names[1:])})" if len(life.names) > 1 else ""
    return _part(f"{life.flag} of {life.tool}{others}", rows)


def _life_lines(life: Life) -> list[str]:
    lines = []
    for span in life.spans:
        argument = span.argument
        doubt = f" ({argument.confidence} confidence: {argument.note})" if argument.confidence else ""
        lines.append(f"{span.releases}: {takes(argument)}; {_default(default(argument))}{doubt}")
    return [*lines, f"from {life.gone_since}: gone"] if life.gone_since else lines


def _default(value: str) -> str:
    return {"": "no default", "required": "required"}.get(value, f"default {value}")


def _in_release(life: Life, lore: FlagLore | None, release: Release) -> str:
    """How ``release`` takes the flag, or what to write there instead."""
    if life.tool not in release.tools:
        return (
            f"there are no facts on {life.tool} in this release"
            if release.builds_engines
            else (f"this release has no {life.tool}; its flow is PyTorch's")
        )
    argument = release.tools[life.tool].argument(life.flag)
    if argument:
        doubt = f" Not certain: {argument.note}." if argument.confidence else ""
        return f"takes {takes(argument)}; {_default(default(argument))}.{doubt}"
    advice = [successor_text(it, lore) for it in lore.instead if _usable(it, lore, release)] if lore else []
    advice += [
        f"{_of(other.flag, other.tool, life.tool)} ({other.does.rstrip('.')})"
        for other in _predecessors(life)
        if other.tool in release.tools and release.tools[other.tool].has(other.flag)
    ]
    return f"{life.tool} refuses it. " + (f"Instead: {'; or '.join(advice)}." if advice else "Leave it out.")


def _usable(successor: Successor, lore: FlagLore, release: Release) -> bool:
    tool = release.tools.get(successor.tool or lore.tool)
    return not successor.flag or (tool is not None and tool.has(successor.flag))


def _predecessors(life: Life) -> list[FlagLore]:
    """Flags that this one took the place of."""
    wanted = (life.tool, life.flag)
    return [
        lore for lore in flag_lore().values() if any((it.tool or lore.tool, it.flag) == wanted for it in lore.instead)
    ]


def successor_text(successor: Successor, lore: FlagLore) -> str:
    """What to write instead, and how."""
    what = _of(successor.flag, successor.tool, lore.tool) if successor.flag else successor.setting
    return f"{what} ({successor.how})"


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
    lore = lore_of(TEMPLATES, [name])
    rows: Rows = [("does", lore.does), ("when", lore.when)] if lore else []
    if release:
        there = [model for model, names in models.items() if release.name in names]
        rows.append((f"in {release.name}", f"a variable of {', '.join(there)}" if there else "no model has it"))
    rows += [("life", f"{model}: {ranges(names)}") for model, names in models.items()]
    if lore:
        rows += [("changed", f"{change.release}: {change.text}") for change in lore.changed]
        rows.append(("source", "; ".join(lore.source)))
    return [_part(f"{name} of config.pbtxt, a variable of Triton's templates", rows)]


def _about_option(name: str, release: Release | None) -> list[str]:
    """The option ``name`` of LMI's serving.properties, image by image, if some image's facts name it."""
    facts = lmi_facts()
    if not any(name in family.keys for family in facts.families.values()):
        return []
    images = [image for image in facts.images if release is None or image.engine_release in ("", release.name)]
    rows = [(image.tag.partition("-")[0], _option(name, image)) for image in images]
    return [_part(f"{name} of serving.properties, by LMI image", rows)]


def _option(name: str, image: LmiImage) -> str:
    """What an image does with an option: its facts' own words."""
    family = lmi_facts().family(image)
    inside = f"TensorRT-LLM {image.engine_release}" if image.engine_release else "vLLM"
    key = family.keys.get(name)
    if key is None:
        return f"({inside}) {family.unknown.reading}; {family.unknown.why}; {family.unknown.fix}"
    values = f", {' | '.join(key.values)}" if key.values else f", {key.kind}" if key.kind else ""
    return f"({inside}) {'; '.join(text for text in (key.reading + values, key.note, key.why, key.fix) if text)}"


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
    return [f"  {rule.id}", *(line for text in texts for line in _wrapped(text, "    ", "    "))]


def _part(title: str, rows: Rows) -> str:
    """A title and its rows: labels on the left, each once, and text wrapped beside them."""
    column = 4 + max(len(label) for label, _ in rows)
    lines, label_before = [title], ""
    for label, text in rows:
        lines += _wrapped(text, ("" if label == label_before else f"  {label}").ljust(column), " " * column)
        label_before = label
    return "\n".join(lines)


def _wrapped(text: str, first: str, indent: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _unknown(flag: str) -> UsageError:
    variables = {
        name: name
        for release in template_releases()
        for spec in release_templates(release).models.values()
        for name in spec.variables
    }
    names = variables | all_names()
    wanted = bare(flag)
    near = get_close_matches(wanted, names, n=4) or [name for name in names if wanted and wanted in name][:4]
    return UsageError(
        f"no release knows {flag}",
        why="no tool takes it, no template has it as a variable, and no LMI image's facts name it",
        fix=f"did you mean {', '.join(names[name] for name in near)}?" if near else "docs/releases.md lists the flags",
    )
