"""config.pbtxt files: what is left in them, their syntax, and how an ensemble's steps fit together."""

import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Any

from trtllm_check.lint.backend_config import always_required, config_problems
from trtllm_check.lint.document import ConfigFile, Document
from trtllm_check.lint.filling import needed_strings
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.pbtxt import (
    PLACEHOLDER,
    TRUE,
    VARIABLE,
    ConfigError,
    Message,
    Scalar,
    read_config,
    refusal,
)
from trtllm_check.lint.pbtxt_mending import ends_within, mended_config, open_brackets
from trtllm_check.lint.pbtxt_pages import MODELS
from trtllm_check.lint.pbtxt_schema import misfits
from trtllm_check.lint.shell.words import Word, lines_of
from trtllm_check.lint.triton_configs import refused
from trtllm_check.lint.triton_ensembles import ensemble_objections, foreign_keys, loose_ends
from trtllm_check.releases.templates import ModelSpec, all_variables, release_templates, template_releases

FAMILY = "templates"
CONFIG = "config.pbtxt"
HEAD = ("name", "platform", "max_batch_size")  # how a file begins, where a piece of it does not
ENGINE_MODEL = "tensorrt_llm"
TEXT_MODEL = "postprocessing"
ELISION = re.compile(r"\.\.\.|…|<[A-Za-z][\w -]*>")
FILLS = "fill_template"
PAGE = re.compile(r"(?:^|/)(?:[^/]+\.(?:md|rst|ipynb)|Dockerfile[^/]*|docker-compose[^/]*)$")
CLOSE = "close the bracket before line {}"
LEFT_OUT = re.compile(r"^[^\"#\n]*(?:\.\.\.|…)", re.MULTILINE)
FEW = 2  # inputs: the backend wants more of any model
ABOVE = 4  # lines of a page that say what a piece is
COMMENT = re.compile(r"#[^\n]*")
TWICE, OR = "should not have multiple", re.compile(r"^[ \t]*#+[ \t]*(?:or|alternative(?:ly)?)\b", re.I | re.M)
HEADED = re.compile(r"^[ \t]*#[^\n]*\n[ \t]*name[ \t]*:", re.MULTILINE)  # one file behind another, each below its name
INPUTS, BACKEND = re.compile(r"\binput\s*:?\s*[\[{]"), re.compile(r"^\W*(?:backend|platform)\s*:", re.MULTILINE)
MORE = re.compile(
    r"\b(?:rest|others?|more|remaining|omitted|unchanged|same as|etc|excerpts?|snippets?|partial|abridged|essentials?"
    r"|relevant|basics?|skeleton|outline|parts? of|sections?|add(?:ed|ing)?|append|edit|modify|change|update|set)\b"
    r"|省略|其他|其余|片段|部分|抜粋|생략|일부",
    re.IGNORECASE,
)
MOST_LEFT = {"tensorrt_llm": 10, "preprocessing": 4, "postprocessing": 4, "tensorrt_llm_bls": 4, "ensemble": 1}
ENGINE_BACKEND = "tensorrtllm"
OUR_MODELS = re.compile(r"inflight_batcher_llm|tensorrtllm_backend")
NAMED_DIMS = re.compile(r"[ \t]*[,x×*|][ \t]*")
FIRST_IS_BATCH = re.compile(
    r"\W*(?:shape:?\W*)?(?:dynamic |variable |any )?batch(?:[ _-]?(?:size|dim(?:ension)?))?$|\W*(?:B|N|bs)$", re.I
)
OF_NO_ENGINE = "input input_lengths is not mapped"  # a model of another kind that is called so, perhaps
LACKING = ("missing-parameter", "engine-inputs")
OF_A_SHELL = re.compile(r"\$\{?(?P<name>(?!TRITON)[A-Z][A-Z0-9_]*)\}?(?=/|$)")
ONE_OF = "another member of oneof"  # in a piece without a head two ways to do it
OF_THE_ENGINE = ("gpt_model_path", "gpt_model_type")
NO_FORM = 'ModelParameter" has no field'
STRING_VALUE = re.compile(r"\bstring_value\s*:\s*\"([^\"\n]*)\"")


def config_drafts(document: Document, platform: Platform) -> Iterator[Draft]:
    """The drafts of all config.pbtxt of ``document``."""
    configs: list[tuple[ConfigFile, Message]] = []
    is_complete = not _parameters_elsewhere(document)
    for written in document.configs:
        if written.is_file and written.model.isdecimal():
            continue  # in the folder of a version, where the server does not read it
        is_piece = not written.is_file
        config = written._replace(is_file=written.is_file or (is_complete and "input" in written.text))
        try:
            message = read_config(config.text)
        except ConfigError as error:
            is_cut = ELISION.search(config.text) or (is_piece and ends_within(config.text))
            is_shown = is_piece and _is_one_field(config.text)
            for draft in _mended(config, platform, None if is_cut else error):
                yield draft._replace(severity="warning") if is_shown and draft.severity == "error" else draft
            continue
        configs.append((written, message))
        alone = len(document.configs) == 1 and _is_template(config)
        yield from _left(config, message, platform, is_shown=alone)
        against = None
        is_left_out = LEFT_OUT.search(config.text) is not None
        if not is_left_out and not any(
            VARIABLE.search(value.text) for _, value in message.all_scalars() if not value.quoted
        ):
            against = refusal(config.text) or (None if is_piece else _other_name(config, message, document))
            is_headless = is_piece and not any(map(message.text, (*HEAD, "platform", "name")))
            is_choice = is_headless and ONE_OF in (against.message if against is not None else "")
            if against is not None and not is_choice and not _are_ways(config, against.message):
                yield from _broken(config, platform, against)
        yield from () if is_left_out else _misfits(config, message, platform, against)
        is_bare = len(message.messages("input")) < (1 if config.is_file else FEW)
        for draft in _judged(config, message, platform):
            if draft.rule not in LACKING or not is_bare:
                yield draft
            elif not _is_excerpt(config, document):  # a page seldom says that it shows all
                yield draft._replace(severity="warning") if is_piece else draft
    for config, message in configs:
        yield from _order(config, message, configs, platform)
        page = dict(document.texts).get(config.path, "")
        yield from _ensemble(config, message, configs, platform, page)


def _is_one_field(text: str) -> bool:
    """True for a single input or output, which a page shows to say how one is written."""
    return {name for name, _ in mended_config(text).fields} in ({"input"}, {"output"})


def _ensemble(
    config: ConfigFile, message: Message, configs: list[tuple[ConfigFile, Message]], platform: Platform, page: str
) -> Iterator[Draft]:
    """Its steps, and what must not stand beside them."""
    is_file, is_of_a_folder = config.is_file, posixpath.basename(config.path) == CONFIG
    is_cut = LEFT_OUT.search(config.text) is not None or ELISION.search(config.text) is not None
    is_shown = is_file or all(message.messages(name) for name in ("input", "output"))
    is_whole = not is_cut and (is_shown or all(map(message.text, HEAD)))
    for one in ensemble_objections(message, is_whole=is_whole):
        known = {"problem": one.problem, "model": config.model, "instead": one.instead}
        for draft in _draft("config-refused", config, platform, one.place, **known):
            yield draft if is_shown else draft._replace(severity="warning")  # perhaps not all of the file
    is_headed = not is_cut and all(map(message.text, HEAD))
    if not message.messages("ensemble_scheduling") or not (is_file or message.messages("input") or is_headed):
        return
    others = [(other, found) for other, found in configs if other is not config and _siblings(other, config)]
    models = {other.model: found for other, found in others}
    is_open = not is_of_a_folder and len(models) < len(others)  # a page with two editions of a model
    if not is_cut and not is_of_a_folder and OUR_MODELS.search(page):
        for loose in foreign_keys(message, models):
            for draft in _draft("ensemble-wiring", config, platform, loose.place, problem=loose.problem):
                yield draft._replace(severity="warning")  # a repository whose models somebody has changed, perhaps
    is_told = is_file or bool(message.messages("input"))
    for loose in loose_ends(message, models, _inputs_of_engine(platform.release.name), is_whole=is_told):
        form = "missing model" if loose.model else ""
        known = {"problem": loose.problem, "model": loose.model}
        for draft in _draft("ensemble-wiring", config, platform, loose.place, form=form, **known):
            if loose.model and not is_of_a_folder:  # of a page or one file, which show no whole repository
                yield draft._replace(severity="info")
            elif loose.model and loose.model not in MODELS:  # some need no config.pbtxt, and some are not in git
                yield draft._replace(severity="warning")
            else:
                is_free = is_open or not is_shown or OF_NO_ENGINE in loose.problem
                yield draft._replace(severity="warning") if is_free else draft


def _is_excerpt(config: ConfigFile, document: Document) -> bool:
    """True for a piece whose page has other pieces of the same file, or says that there is more."""
    others = [mended_config(one.text) for one in document.configs if one.text != config.text and not one.is_file]
    if any(not one.text("backend") and not one.text("platform") for one in others):
        return True
    lines = lines_of(dict(document.texts).get(config.path, ""))
    above = "\n".join(lines[max(config.line - ABOVE, 0) : config.line - 1])
    below = "\n".join(lines[config.line + config.text.count("\n") - 1 :])
    goes_on = INPUTS.search(below[: found.start() if (found := BACKEND.search(below)) else None])
    return bool(goes_on) or any(MORE.search(text) for text in (above, *COMMENT.findall(config.text)))


def _inputs_of_engine(release: str) -> list[str]:
    """What the engine's model of the release's templates wants from each request."""
    known = [release] if release in template_releases() else template_releases()
    models = [release_templates(one).models[ENGINE_MODEL] for one in known]
    return [one.name for one in models[0].inputs if all(_wants(model, one.name) for model in models)]


def _wants(model: ModelSpec, name: str) -> bool:
    return any(one.name == name and not one.optional for one in model.inputs)


def _parameters_elsewhere(document: Document) -> bool:
    """True where parameters of models stand anywhere in the text, so that a piece without them may have them, too."""
    return any(FILLS in text or "parameters" in text for _, text in document.texts)


def _judged(config: ConfigFile, message: Message, platform: Platform, *, is_whole: bool = True) -> Iterator[Draft]:
    """What the server and the backend say of fields that are read."""
    is_whole = is_whole and ELISION.search(config.text) is None
    for one in refused(message, is_whole=is_whole):
        known = {"problem": one.problem, "model": config.model, "instead": one.instead}
        yield from _draft("config-refused", config, platform, one.place, **known)
    yield from _on_gpus(config, message, platform)
    yield from _batch_in_dims(config, message, platform)
    for problem in config_problems(message, platform.release.name, config.model, is_file=config.is_file):
        is_lacking = problem.rule in LACKING and problem.form in ("", "missing")
        if is_lacking and ELISION.search(config.text):
            continue
        name = str(problem.known.get("parameter", ""))
        is_open = platform.guessed or not message.messages("input")
        if is_lacking and name and is_open and not always_required(name):
            continue  # of some releases only, and which one is meant is not told
        yield from _draft(problem.rule, config, platform, problem.place, form=problem.form, **problem.known)


def _batch_in_dims(config: ConfigFile, message: Message, platform: Platform) -> Iterator[Draft]:
    """``dims: [ -1, 128 ]  # batch, features``: Triton puts the batch in front of them by itself."""
    batch = message.text("max_batch_size")
    if not batch.isdecimal() or batch == "0":
        return
    lines = lines_of(config.text)
    for tensor in message.messages("input", "output"):
        dims = tensor.scalars("dims")
        comment = lines[dims[-1].line - 1].partition("#")[2] if dims else ""
        named = NAMED_DIMS.split(comment.strip(" \t[]()"))
        if len(dims) > 1 and len(named) == len(dims) and dims[0].text == "-1" and FIRST_IS_BATCH.match(named[0]):
            shown = f"[{', '.join(one.text for one in dims)}]"
            known = {"name": tensor.text("name"), "dims": shown, "more": len(dims) + 1, "batch": batch}
            rest = ", ".join(one.text for one in dims[1:])
            yield from _draft("batch-in-dims", config, platform, dims[0], right=rest, **known)


def _mended(config: ConfigFile, platform: Platform, error: ConfigError | None) -> Iterator[Draft]:
    """A file that does not end its reading: its first fault, none where a page leaves lines out, and all behind it."""
    message = mended_config(config.text)
    if error is not None:
        error = _first_of(config.text, error)
        yield from _broken(config, platform, error)
        yield from _misfits(config, message, platform, error)
        for one in open_brackets(config.text):
            if one.line > error.line:
                known = {"problem": one.message, "model": config.model, "instead": CLOSE.format(_line(config, one))}
                yield from _draft("config-syntax", config, platform, Scalar("", one.line, one.column), **known)
    yield from _left(config, message, platform, is_shown=error is None or _is_template(config))
    for draft in _judged(config, message, platform, is_whole=False):
        if draft.rule not in LACKING or not any(f'"{one}"' in config.text for one in draft.message.split()):
            yield draft


def _misfits(config: ConfigFile, message: Message, platform: Platform, said: ConfigError | None) -> Iterator[Draft]:
    """Fields that protobuf refuses behind the one that it stops at."""
    for one in misfits(message):
        if (said is not None and one.line == said.line) or _are_ways(config, one.problem):
            continue
        place = Scalar("", one.line, one.column)
        known = {"problem": one.problem, "model": config.model, "instead": one.instead}
        yield from _draft("config-syntax", config, platform, place, **known)


def _are_ways(config: ConfigFile, problem: str) -> bool:
    """True for a field that stands twice, where a comment says that it is one or the other."""
    return TWICE in problem and (OR.search(config.text) is not None or len(HEADED.findall(config.text)) > 1)


def paths_in(config: ConfigFile) -> Iterator[tuple[str, Word]]:
    """The folders of the engine and the tokenizer that ``config`` names, with their parameters."""
    message = mended_config(config.text)
    parameters = {entry["parameter"]: entry for entry in rule_data(FAMILY)["needed"] if "dir" in entry["variable"]}
    for value, entry in _needed_values(message, parameters):
        if value.text.startswith("/") and "$" not in value.text:
            yield entry["parameter"], _word(config, value)


def variables_in(config: ConfigFile) -> Iterator[tuple[str, Word, str]]:
    """The same of those that begin with a variable of a shell, and its name."""
    message = mended_config(config.text)
    parameters = {entry["parameter"]: entry for entry in rule_data(FAMILY)["needed"] if "dir" in entry["variable"]}
    for value, entry in _needed_values(message, parameters):
        if match := OF_A_SHELL.match(value.text):
            yield entry["parameter"], _word(config, value), match["name"]


def _is_template(config: ConfigFile) -> bool:
    """True for one that is as the release ships it: it has variables of the template, and none is filled."""
    left = set(PLACEHOLDER.findall(config.text))
    if left and left.isdisjoint(all_variables()):
        return True  # of somebody's own, with a program that fills it
    if {"max_num_sequences", "engine_dir"} <= left:
        return True  # before 0.8
    if "triton_max_batch_size" not in left:
        return False
    values = STRING_VALUE.findall(config.text)
    return len(left) >= MOST_LEFT.get(config.model, 1) or (len(values) > 1 and all(map(PLACEHOLDER.search, values)))


def _first_of(text: str, error: ConfigError) -> ConfigError:
    """``error``, or what protobuf stops at before it: an unknown field is wrong for it, and still text for us."""
    against = None if PLACEHOLDER.search(text) else refusal(text)
    return min((one for one in (against, error) if one is not None), key=lambda one: (one.line, one.column))


def _broken(config: ConfigFile, platform: Platform, error: ConfigError) -> Iterator[Draft]:
    lines = config.text.split("\n")
    line = "".join(lines[error.line - 1 : error.line]).strip()
    if not any(map(str.strip, lines[error.line - 1 :])):  # behind all of it: the place is its last word
        last = len(config.text.rstrip().split("\n"))
        error = ConfigError("it ends within a field", last, len(lines[last - 1].rstrip()))
        line = f"{lines[last - 1].strip()}, behind which something is missing"
    place = Scalar("", error.line, max(error.column, 1))
    near = next((one.instead for one in misfits(mended_config(config.text)) if one.line == error.line), "")
    instead = f"correct line {_line(config, error)}: {line}" + (f" ({near})" if near else "")
    if NO_FORM in error.message:
        instead += '; the value of a parameter has one form, string_value: "..."'
    yield from _draft(
        "config-syntax", config, platform, place, problem=error.message, model=config.model, instead=instead
    )


def _line(config: ConfigFile, error: ConfigError) -> int:
    """The line of the text that ``config`` is in."""
    return config.line + error.line - 1


def _left(config: ConfigFile, message: Message, platform: Platform, *, is_shown: bool) -> Iterator[Draft]:
    """What is still to be filled in; ``is_shown``: of a template that somebody only shows."""
    for draft in _unfilled_of(config, message, platform):
        yield draft._replace(severity="info") if is_shown else draft


def _unfilled_of(config: ConfigFile, message: Message, platform: Platform) -> Iterator[Draft]:
    needed = {entry.get("parameter", "backend"): entry for entry in needed_strings(config.model, platform.release.name)}
    for value, entry in _needed_values(message, needed):
        if PLACEHOLDER.search(value.text) or not value.text:
            no_default = (entry["consequence"], "it has no default", entry.get("form", ""))
            yield from _unfilled(config, platform, value, entry["variable"], *no_default)
    for _, value in message.all_scalars():
        variable = None if value.quoted else PLACEHOLDER.search(value.text)
        if variable:
            consequence = "the server's parser stops with `Expected integer or identifier, got: $`"
            reason = "a number, a boolean or a data type has to be there"
            yield from _unfilled(config, platform, value, variable[1], consequence, reason)


def _needed_values(message: Message, needed: Mapping[str, dict[str, str]]) -> Iterator[tuple[Scalar, dict[str, str]]]:
    backend = message.scalar("backend")
    if backend is not None and "backend" in needed:
        yield backend, needed["backend"]
    for parameter in message.messages("parameters"):
        value = next((one.scalar("string_value") for one in parameter.messages("value")), None)
        if value is not None and parameter.text("key") in needed:
            yield value, needed[parameter.text("key")]


def _unfilled(
    config: ConfigFile,
    platform: Platform,
    place: Scalar,
    variable: str,
    consequence: str,
    reason: str,
    form: str = "",
) -> Iterator[Draft]:
    value = rule_data(FAMILY)["values"].get(variable, "a value")
    known = {"variable": variable, "model": config.model, "consequence": consequence, "reason": reason, "value": value}
    yield from _draft("unfilled-variable", config, platform, place, form=form, **known)


def _other_name(config: ConfigFile, message: Message, document: Document) -> ConfigError | None:
    """Triton wants a model to be called as its folder."""
    name, folder = message.scalar("name"), posixpath.dirname(config.path)
    if name is None or name.text == config.model:
        return None
    if not folder and not any(f"{config.model}/1" in text for _, text in document.texts):
        return None  # written by a command, which may put it elsewhere later
    if any(posixpath.dirname(file) == folder and PAGE.search(file) for file, _ in document.texts):
        return None  # an example beside its description, which somebody copies elsewhere
    if config.model.startswith(f"{name.text}_config_"):
        return None  # of a model analyzer, which gives each variant its name
    return ConfigError(f"its name is {name.text!r}, its folder {config.model!r}", name.line, name.column)


def _on_gpus(config: ConfigFile, message: Message, platform: Platform) -> Iterator[Draft]:
    backend = message.text("backend") or message.text("platform")
    of_its_own = any(one.text("key") in OF_THE_ENGINE for one in message.messages("parameters"))
    if config.model != ENGINE_MODEL and backend != ENGINE_BACKEND and not (of_its_own and not backend):
        return
    for group in message.messages("instance_group"):
        if group.text("count") in ("", "1") and [one.text for one in group.scalars("gpus")] in ([], ["0"]):
            continue  # the one copy runs there anyway
        kinds = [kind for kind in group.scalars("kind") if kind.text == "KIND_GPU"]
        for place in (*kinds, *group.scalars("gpus"))[:1]:
            yield from _draft("instance-group-on-gpus", config, platform, place, model=config.model or "the engine")


def _order(
    config: ConfigFile, message: Message, configs: list[tuple[ConfigFile, Message]], platform: Platform
) -> Iterator[Draft]:
    """Several processes make text of the pieces of one answer, and Triton sends first what is done first."""
    batching = message.messages("dynamic_batching")
    if config.model != TEXT_MODEL or any(one.text("preserve_ordering").lower() in TRUE for one in batching):
        return
    engines = [found for other, found in configs if other.model == ENGINE_MODEL and _siblings(other, config)]
    policies = [
        policy.text("decoupled").lower() for one in engines for policy in one.messages("model_transaction_policy")
    ]
    if engines and not any(policy in TRUE for policy in policies):
        return
    for group in message.messages("instance_group"):
        count = group.scalar("count")
        if count is not None and count.text.isdigit() and int(count.text) > 1:
            form = "" if engines else "perhaps"
            yield from _draft("stream-out-of-order", config, platform, count, form=form, count=count.text)


def _siblings(one: ConfigFile, other: ConfigFile) -> bool:
    """True for models of one repository."""
    return _repository(one) == _repository(other)


def _repository(config: ConfigFile) -> str:
    return posixpath.dirname(posixpath.dirname(config.path))


def _draft(rule: str, config: ConfigFile, platform: Platform, place: Scalar, **known: Any) -> Iterator[Draft]:
    return drafts(platform.release.name, rule, _word(config, place), file=config.path, **known)


def _word(config: ConfigFile, place: Scalar) -> Word:
    return Word(place.text, config.line + place.line - 1, place.column)
