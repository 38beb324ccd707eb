"""Triton's model repository: what fill_template.py leaves or drops, config.pbtxt files, and what the engine lacks."""

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from trtllm_check.lint.backend_config import filled_problems
from trtllm_check.lint.document import Document, VariableList
from trtllm_check.lint.facts import model_name
from trtllm_check.lint.filling import Filling, filled_by_default, fillings, needed_strings, prompt_drafts
from trtllm_check.lint.finding import Draft, Platform, Put, drafts, rule_data
from trtllm_check.lint.installs import clones
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.rules.fill_pairs import with_comma
from trtllm_check.lint.rules.pairs import command_facts
from trtllm_check.lint.rules.versions import NEW_ROPE
from trtllm_check.lint.shell.words import Word
from trtllm_check.releases.templates import ModelSpec, all_variables, release_templates, template_releases
from trtllm_check.rules import rule
from trtllm_check.rules.table import met

FAMILY = "templates"
ENGINE_MODEL = "tensorrt_llm"
TRUE = ("true", "True", "TRUE")
PAGED = "--use_paged_context_fmha"
TYPED = "the server's parser stops with `Expected integer or identifier, got: $`"
COMMIT, BACKEND = re.compile(r"[0-9a-f]{7,40}"), "tensorrtllm_backend"
FIRST_OF_ALL = "0.5 to 0.7"  # releases without facts
OF_ENGINES = re.compile(r"nvidia/tritonserver:\d\d\.\d\d-trtllm")
HINTS = ("queue-instances",)
OF_TEMPLATES = frozenset({"unfilled-variable", "unknown-variable"})
OF_ITS_OWN = 2  # variables that no template has
MOST_BLS, MOST_WORKERS = 64, 8  # each instance is a Python process
REASONS = {
    "bls_instance_count": "an instance of the BLS holds one request to its end",
    "preprocessing_instance_count": "one instance tokenizes one batch at a time",
    "postprocessing_instance_count": "one instance writes out the text of one answer at a time",
}


@dataclass
class _Correction:
    """A command's findings, each with what it knows, and the new values that correct all of them together.

    ``hinted``: what hints would change beyond that, and nobody else.
    """

    filling: Filling
    found: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    changes: dict[str, str | None] = field(default_factory=dict)
    hinted: dict[str, str | None] = field(default_factory=dict)

    def add(self, rule: str, variable: str, new: str | None, **known: Any) -> None:
        """``new``: what the variable has to be; None takes it out."""
        self.found.append((rule, {"variable": variable, "model": self.filling.model, **known}))
        (self.hinted if rule in HINTS else self.changes).setdefault(variable, new)

    def values(self, rule: str) -> dict[str, str | None]:
        """What the fix of a finding of ``rule`` writes."""
        return self.changes | self.hinted if rule in HINTS else self.changes


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    commands = fillings(document, platform.release) if document.of("fill_template.py") else []
    if commands and platform.release.name in template_releases():
        at_a_commit = any(COMMIT.fullmatch(one.reference) and one.name.endswith(BACKEND) for one in clones(document))
        is_own = len(_of_no_template(commands)) >= OF_ITS_OWN
        for draft in _fill_commands(document, platform, commands):  # whose templates no release may have
            is_open = at_a_commit or (is_own and draft.rule in OF_TEMPLATES)
            yield draft._replace(severity="info") if is_open else draft
    if document.configs:
        from trtllm_check.lint.config_files import config_drafts

        yield from config_drafts(document, platform)
    if document.variable_lists and platform.release.name in template_releases():
        for listed in document.variable_lists:
            yield from _listed(listed, platform.release.name)
    yield from prompt_drafts(document, platform, commands)
    yield from _of_a_newer_model(document, platform, commands)


def _of_a_newer_model(document: Document, platform: Platform, commands: list[Filling]) -> Iterator[Draft]:
    """Llama-3.1 and later by the folder of its tokenizer, in a container whose TensorRT-LLM builds no engine of it."""
    images = {word.text: word for word in reversed(document.images) if OF_ENGINES.search(word.text)}
    support = platform.release.models.get("llama-3.1")
    if len(images) != 1 or support is None or support.supported or (platform.guessed and not platform.earlier):
        return
    for filling in commands:
        for name in ("tokenizer_dir", "engine_dir"):
            model = model_name(filling.values.get(name, ""))
            if NEW_ROPE.match(model):
                image, place = images.popitem()
                held = FIRST_OF_ALL if platform.earlier else platform.release.name
                known: dict[str, Any] = {"image": image, "model": model, "held": held}
                file = filling.invocation.command.file
                yield from drafts(platform.release.name, "model-too-new", place, form="engine", file=file, **known)
                return


def _of_no_template(commands: Sequence[Filling]) -> set[str]:
    """The variables that no release's templates have, nor any that is called nearly so."""
    import difflib

    known = all_variables()
    given = {name for one in commands for name in one.values if name not in known and "$" not in name}
    return {name for name in given if not difflib.get_close_matches(name, known)}


def _listed(listed: VariableList, release: str) -> Iterator[Draft]:
    """Variables that a page lists with their values, if most of them are some template's."""
    known = {
        name for model in release_templates(release).models.values() for name in (*model.variables, *model.uncertain)
    }
    pairs = [(number, *line.strip().partition(":")[::2]) for number, line in enumerate(listed.lines, listed.first)]
    if 2 * sum(name in known for _, name, _ in pairs) <= len(pairs):
        return
    for number, name, written in pairs:
        line = listed.lines[number - listed.first]
        place = Word(line.strip(), number, len(line) - len(line.lstrip()) + 1)
        draft = partial(drafts, release, place=place, file=listed.file, variable=name)
        if name not in known:
            yield from draft("unknown-variable", model="the repository", instead=f"leave {name} out")
        value = written.rstrip("* \t")
        if value != written.strip():
            mark = written.strip()[len(value) :].strip()
            yield from draft("footnote-in-value", written=written.strip(), mark=mark, value=value)


def _fill_commands(document: Document, platform: Platform, commands: list[Filling]) -> Iterator[Draft]:
    models = release_templates(platform.release.name).models
    by_file: dict[str, list[Filling]] = defaultdict(list)
    for filling in commands:
        by_file[posixpath.normpath(filling.path)].append(filling)
    corrections = {id(filling): _Correction(filling) for filling in commands}
    told = _Told.by(commands)
    for path, group in by_file.items():
        model = models.get(group[0].model)
        if any(filling.broken for filling in group):
            for filling in group:
                yield from _cut(platform, filling)
            continue
        if model is not None:
            for filling in group:
                _unknown(corrections[id(filling)], model)
            _unfilled(corrections[id(group[-1])], document, platform.release.name, told, group, path, model)
        for filling in group:
            _few_instances(corrections[id(filling)])
            if filling.model == ENGINE_MODEL:
                yield from _values_refused(document, filling, platform)
            yield from _needs_paged(document, platform, corrections[id(filling)])
    for correction in corrections.values():
        filling = correction.filling
        others = {name: one for name, one in models.items() if name != filling.model}
        for id_, known in correction.found:
            edits = (filling.with_values(correction.values(id_)),)
            for draft in drafts(
                platform.release.name,
                id_,
                filling.at(known["variable"]),
                edits=edits,
                invocation=filling.invocation,
                **known,
            ):  # a variable of another model of the repository does no harm here
                is_harmless = id_ == "unknown-variable" and _is_harmless(known["variable"], filling, others, commands)
                yield draft._replace(severity="info") if is_harmless else draft


def _is_harmless(variable: str, filling: Filling, others: Mapping[str, ModelSpec], commands: Sequence[Filling]) -> bool:
    """True for a variable of another model, which has it or is filled elsewhere, and for what is done anyway."""
    if filling.values.get(variable) in rule_data(FAMILY)["harmless"].get(variable, "").split():
        return True
    owners = {name for name, one in others.items() if variable in one.variables}
    filled = [one for one in commands if one.model in owners and not one.broken]
    return bool(owners) and (not filled or any(variable in one.values for one in filled))


def _values_refused(document: Document, filling: Filling, platform: Platform) -> Iterator[Draft]:
    release = platform.release.name
    text = dict(document.texts).get(filling.invocation.command.file, "")
    is_script = text.startswith("#!")
    for problem in filled_problems(filling.values, release, is_script=is_script, earlier=platform.earlier):
        yield from drafts(
            release,
            problem.rule,
            filling.at(problem.known.get("parameter", "")),
            form=problem.form,
            invocation=filling.invocation,
            **problem.known,
        )


def _cut(platform: Platform, filling: Filling) -> Iterator[Draft]:
    for variable in filling.broken:
        if with_comma(f"{variable}:{filling.values.get(variable, '')}"):
            continue  # fill-pairs says it
        if filling.escapes:
            escape = "a backslash keeps them, for a colon it takes two"
            instead = f"{variable}:{filling.written(filling.values.get(variable, ''))}"
        else:
            escape = f"this release cannot escape them: write {variable} into {filling.path} by hand"
            instead = f"leave {variable} out here"
        yield from drafts(
            platform.release.name,
            "unescaped-separator",
            filling.at(variable),
            edits=(filling.with_values({} if filling.escapes else dict.fromkeys(filling.broken)),),
            invocation=filling.invocation,
            variable=variable,
            escape=escape,
            instead=instead,
        )


def _unknown(correction: _Correction, model: ModelSpec) -> None:
    import difflib

    known = {*model.variables, *model.uncertain}
    for name, value in correction.filling.values.items():
        if name in known or "${" in name:
            continue
        near = [
            other for other in difflib.get_close_matches(name, sorted(known)) if other not in correction.filling.values
        ]
        instead = f"write {near[0]}" if near else f"leave {name} out"
        correction.add("unknown-variable", name, None, instead=instead)
        if near:
            correction.changes.setdefault(near[0], value)


def _unfilled(
    correction: _Correction,
    document: Document,
    release: str,
    told: "_Told",
    group: list[Filling],
    path: str,
    model: ModelSpec,
) -> None:
    name = group[0].model
    named = {variable for filling in group for variable in filling.values}
    if not all(filling.known for filling in group):
        return
    strings = {entry["variable"]: entry for entry in needed_strings(name, release)}
    by_default = filled_by_default(release)
    for variable in (*model.typed, *(variable for variable in model.free if variable in strings)):
        filled = variable in named or variable in by_default
        if variable in model.uncertain or filled or _edited(document, path, variable):
            continue
        typed = variable in model.typed
        value = correction.changes.get(variable) or _value(document, told, variable)
        correction.add(
            "unfilled-variable",
            variable,
            value,
            form="" if typed else strings[variable].get("form", ""),
            consequence=TYPED if typed else strings[variable]["consequence"],
            reason="a number, a boolean or a data type has to be there" if typed else "it has no default",
            value=value,
        )


def _edited(document: Document, path: str, variable: str) -> bool:
    """True if a ``sed`` of the text fills the variable in this file."""
    return any(
        command.words[:1] and command.words[0].text == "sed" and any(variable in word.text for word in command.words)
        for command in document.lookups.naming(path)
    )


class _Told(NamedTuple):
    """What all commands of a text fill in: the first value of each variable, and the first batch size."""

    values: Mapping[str, str]
    batch: int

    @classmethod
    def by(cls, commands: Sequence[Filling]) -> "_Told":
        values: dict[str, str] = {}
        for filling in commands:
            for name, value in filling.values.items():
                if value:
                    values.setdefault(name, value)
        return cls(values, next((batch for one in commands if (batch := _batch(one))), 8))


def _value(document: Document, told: _Told, variable: str) -> str:
    """What the text says elsewhere, or what a user would have to say."""
    if variable in told.values:
        return told.values[variable]
    if variable == "engine_dir":
        for build in document.of("trtllm-build"):
            return build.value("--output_dir") or "engine_output"
    if variable.endswith("_instance_count"):
        return str(min(told.batch, MOST_BLS if variable.startswith("bls") else MOST_WORKERS))
    return str(rule_data(FAMILY)["values"].get(variable, ""))


def _batch(filling: Filling) -> int:
    value = filling.values.get("triton_max_batch_size", "")
    return int(value) if value.isascii() and value.isdecimal() and len(value) < 9 else 0


def _few_instances(correction: _Correction) -> None:
    values = correction.filling.values
    batch = _batch(correction.filling)
    for variable, reason in REASONS.items():
        value = values.get(variable, "")
        if not (value.isascii() and value.isdecimal() and len(value) < 9):
            continue
        few = int(value) < min(batch, MOST_BLS) if variable.startswith("bls") else value == "1" and batch > 1
        if few:
            wanted = str(min(batch, MOST_BLS if variable.startswith("bls") else MOST_WORKERS))
            correction.add("queue-instances", variable, wanted, value=value, batch=batch, wanted=wanted, reason=reason)


def _needs_paged(document: Document, platform: Platform, correction: _Correction) -> Iterator[Draft]:
    """KV cache reuse and chunked context against the engine that the text builds."""
    filling = correction.filling
    if filling.model != ENGINE_MODEL:
        return
    facts = document.facts_of(filling.invocation)
    reuses_fp8 = facts.kv_cache == "fp8" and filling.values.get("enable_kv_cache_reuse") in TRUE
    if reuses_fp8 and rule("kv-reuse-wrong-answers").entry(platform.release.name, "template"):
        correction.add("kv-reuse-wrong-answers", "enable_kv_cache_reuse", "false", form="template")
    build = _build(document, filling)
    if build is None or _is_paged(build, platform):
        return
    enabled = command_facts(platform, build, facts, "")._replace(value={PAGED: "enable"}.get)
    can = not any(met(("attention",), enabled, platform.release.name))
    id_ = "needs-paged-context-fmha"
    for variable, form in {"enable_kv_cache_reuse": "", "enable_chunked_context": "chunked context"}.items():
        if filling.values.get(variable) not in TRUE or correction.changes.get(variable):
            continue
        if not can:
            instead = f"{variable}:false: this KV cache goes without {PAGED}"
            correction.add(id_, variable, "false", form=form, instead=instead)
            continue
        yield from drafts(
            platform.release.name,
            id_,
            filling.at(variable),
            form=form,
            edits=(Put(PAGED, "enable"),),
            invocation=build,
            instead=f"build with {PAGED} enable",
        )


def _build(document: Document, filling: Filling) -> Invocation | None:
    """The trtllm-build of the text that writes the engine which the template names, or the only one."""
    builds = document.of("trtllm-build")
    same = document.lookups.writers("trtllm-build", filling.values.get("engine_dir", ""))
    likely = same or (builds if len(builds) == 1 else [])
    return likely[-1] if likely else None


def _is_paged(build: Invocation, platform: Platform) -> bool:
    """True also where it is not known."""
    value = build.value(PAGED)
    if value is None:
        tool = platform.release.tools.get("trtllm-build")
        argument = tool.argument(PAGED) if tool else None
        value = str(argument.default) if argument else ""
    return value not in ("disable", "False")
