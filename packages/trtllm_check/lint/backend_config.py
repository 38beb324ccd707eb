"""The engine's model in config.pbtxt and in fill_template.py, against what the C++ backend of a release reads."""

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from typing import NamedTuple

from trtllm_check.lint.backend_tensors import ENGINE_MODEL, Problem, tensor_problems
from trtllm_check.lint.pbtxt import PLACEHOLDER, Message, Scalar
from trtllm_check.releases import known_releases
from trtllm_check.releases.backend import (
    BackendParameter,
    BackendReads,
    backend_reads,
    parameter_releases,
    python_words,
)
from trtllm_check.releases.history import ranges
from trtllm_check.releases.load import load_tool
from trtllm_check.releases.templates import VARIABLE, release_templates, template_releases

ENGINE_BACKEND = "tensorrtllm"
MODE, BATCHING = "decoding_mode", "gpt_model_type"
OF_AN_ENGINE = re.compile(
    r"max_\w+|\w+_plugin|[tp]p_size|remove_input_padding|\w+_context_fmha|opt_num_tokens|paged_state"
)
"""Options of a build whose names no model of another kind would have for something else."""
MEANT = re.compile(r"(?:pytorch_)?(?:tensorrt[-_]?llm|trt[-_]?llm)(?:[-_]\w+)?", re.IGNORECASE)
MANY = 4  # names of another release that are no slip any more
ENGINE_PATH = "gpt_model_path"
NOWHERE = Scalar("", 1, 1)
FOLDERS = (ENGINE_PATH, "encoder_model_path", "engine_dir", "encoder_engine_dir", "tokenizer_dir")
LITERAL = re.compile(r"~/.*|.*\$\$?\{?TRITON_MODEL_(?:DIRECTORY|REPOSITORY|NAME)\b.*")
TO_FILL = re.compile(r"[A-Z]{4,}(?:_[A-Z]+)*")  # a word where a path belongs
CACHE_TOKENS, FEWEST_TOKENS = "max_tokens_in_paged_kv_cache", 256
OF_A_SHELL = re.compile(r"\$[A-Za-z_]\w*")  # of a here-document that is written where the variable is known
BEFORE_0_8 = ("max_num_sequences", "max_kv_cache_length")  # read by backends without facts here


class SetParameter(NamedTuple):
    """One parameter of a config.pbtxt: the places of its key and its value."""

    key: Scalar
    value: Scalar | None

    @property
    def text(self) -> str:
        """The value, "" for none and for one that is still to be filled in."""
        if self.value is None or PLACEHOLDER.search(self.value.text) or OF_A_SHELL.fullmatch(self.value.text):
            return ""
        return self.value.text


def config_problems(message: Message, release: str, model: str = "", *, is_file: bool = False) -> Iterator[Problem]:
    """What the backend of ``release`` does not take of the engine's model; nothing for any other model.

    ``model``: what a page calls it that shows only a piece; ``is_file``: no piece, but all that the server will have.
    """
    backend, reads = _backend(message), backend_reads(release)
    yield from _of_the_build(message)
    yield from _of_python(message, release)
    alone = all(name == "parameters" for name, _ in message.fields)
    given = _given(message)
    is_whole = backend is not None and _is_whole(message, is_file=is_file)
    is_told = backend is None and model == ENGINE_MODEL and bool(given)
    if backend is None and reads is not None and not is_told and (alone or BATCHING in given):
        yield from _words(given, reads)
        for name, one in given.items() if BATCHING in given else ():  # a piece of the engine's model
            found = _unknown(name, one, given, reads, release, is_whole=False) if name not in reads.parameters else ()
            yield from (problem for problem in found if problem.form == "never")
    if is_told:
        backend = Scalar(ENGINE_BACKEND, *_start(given))
    if backend is None or backend.text != ENGINE_BACKEND or reads is None:
        return
    if is_whole:
        yield from _missing(given, reads, backend)
    for name, one in given.items():
        yield from _at_all(name, one.value.text, one.value, is_script=False) if one.value is not None else ()
    strangers: list[Problem] = []
    for name, one in given.items():
        parameter = reads.parameters.get(name)
        if parameter is None:
            strangers += _unknown(name, one, given, reads, release, is_whole=is_whole)
        elif one.text and one.value is not None and not parameter.takes(one.text):
            yield _refused(name, one.text, parameter, one.value)
    for problem in tensor_problems(message, backend, reads, release, is_whole=is_whole):
        if problem.form == "unknown":
            strangers.append(problem)
        else:
            yield problem
    yield from _of_another_release(strangers, backend)


def _at_all(name: str, value: str, place: Scalar, *, is_script: bool) -> Iterator[Problem]:
    """What no release makes anything of: a path that nobody expands, and a cache that holds no request."""
    if name in FOLDERS and (LITERAL.fullmatch(value) or (is_script and TO_FILL.fullmatch(value))):
        yield Problem("path-taken-literally", "", place, {"parameter": name, "value": value})
    if name == CACHE_TOKENS and value.isascii() and value.isdecimal() and 0 < int(value) < FEWEST_TOKENS:
        yield Problem("cache-of-few-tokens", "", place, {"parameter": name, "value": value})


def _backend(message: Message) -> Scalar | None:
    """The backend; also where the engine's is meant and has another name, or stands for a platform."""
    backend = message.scalar("backend") or message.scalar("platform")
    if backend is None or (backend.text != ENGINE_BACKEND and not MEANT.fullmatch(backend.text)):
        return message.scalar("backend")
    return Scalar(ENGINE_BACKEND, backend.line, backend.column)


def _start(given: Mapping[str, SetParameter]) -> tuple[int, int]:
    first = next(iter(given.values())).key
    return first.line, first.column


def _words(given: Mapping[str, SetParameter], reads: BackendReads) -> Iterator[Problem]:
    """Words among parameters that a page shows alone, or of a file without a backend: no other model has such names."""
    for name, one in given.items():
        parameter = reads.parameters.get(name)
        if parameter and parameter.values and one.text and one.value is not None and not parameter.takes(one.text):
            yield _refused(name, one.text, parameter, one.value)


def _of_python(message: Message, release: str) -> Iterator[Problem]:
    """Words that a model in Python does not compare with."""
    given = _given(message)
    for name, words in python_words(message.text("name"), release).items():
        one = given.get(name)
        if one is not None and one.value is not None and one.text and one.text.lower() not in words.values:
            near = get_close_matches(one.text.lower(), words.values, 1, 0.4) or words.values[:1]
            known = {"parameter": name, "value": one.text, "takes": ", ".join(words.values), "default": words.default}
            yield Problem("parameter-value", "", one.value, {**known, "instead": f"{name}: {near[0]}"})


def _of_the_build(message: Message) -> Iterator[Problem]:
    """Options of trtllm-build among parameters that a page shows alone: no backend of any release reads them."""
    if any(name != "parameters" for name, _ in message.fields):
        return
    for name, one in _given(message).items():
        if name in _build_only():
            yield Problem("unknown-parameter", "build", one.key, {"parameter": name})


@cache
def _build_only() -> frozenset[str]:
    """Options of trtllm-build in some release that are no parameter of a model of Triton in any."""
    tools = [tool for name in known_releases() if (tool := load_tool("trtllm-build", name))]
    options = {flag.removeprefix("--") for tool in tools for flag in tool.names}
    reads = [found for name in known_releases() if (found := backend_reads(name))]
    read = {name for one in reads for name in (*one.parameters, *one.others)}
    shipped = {
        name
        for release in template_releases()
        for model in release_templates(release).models.values()
        for name in model.parameters
    }
    return frozenset(name for name in options - read - shipped if OF_AN_ENGINE.fullmatch(name))


def _of_another_release(strangers: Sequence[Problem], place: Scalar) -> Iterator[Problem]:
    """Names that the release does not read; those of other releases as one problem, where they are many."""
    names = [_name(one) for one in strangers]
    foreign = [name for name in names if any(name in _read_by(other) for other in template_releases())]
    if len(foreign) < MANY:
        yield from strangers
        return
    all_of_them = [other for other in template_releases() if set(foreign) <= _read_by(other)]
    known = {
        "count": len(foreign),
        "names": f"{', '.join(foreign[:2])} and {foreign[-1]}",
        "releases": f"{ranges(all_of_them)} have them all" if all_of_them else "no release has them all",
    }
    yield Problem("config-of-another-release", "", place, known)
    yield from (one for one in strangers if _name(one) not in foreign)


def _name(stranger: Problem) -> str:
    """The input or the parameter that ``stranger`` is about."""
    return str(stranger.known.get("input") or stranger.known.get("parameter", ""))


@cache
def _read_by(release: str) -> frozenset[str]:
    """Inputs and parameters that the backend of ``release`` reads."""
    reads = backend_reads(release)
    model = release_templates(release).models[ENGINE_MODEL]
    return frozenset(
        {*(tensor.name for tensor in model.inputs), *model.parameters, *(reads.parameters if reads else ())}
    )


@cache
def always_required(parameter: str) -> bool:
    """True for one that the backend of every release wants."""
    reads = [found for name in known_releases() if (found := backend_reads(name))]
    return all((one := each.parameters.get(parameter)) is not None and bool(one.required) for each in reads)


def filled_problems(
    values: Mapping[str, str], release: str, *, is_script: bool = False, earlier: bool = False
) -> Iterator[Problem]:
    """The same, without places, for the values that fill_template.py puts into the engine's template.

    ``is_script``: nobody is to put a path of his own in; ``earlier``: the text is for one before those with facts.
    """
    for variable, value in values.items():
        yield from _at_all(variable, value, NOWHERE, is_script=is_script)
    reads = backend_reads(release)
    if reads is None or release not in template_releases() or values.get("triton_backend", ENGINE_BACKEND) == "python":
        return
    model = release_templates(release).models[ENGINE_MODEL]
    variables = {match[1]: name for name, text in model.parameters.items() if (match := VARIABLE.fullmatch(text))}
    for variable, value in values.items():
        parameter = reads.parameters.get(variables.get(variable, ""))
        if earlier and parameter and value in parameter.earlier:
            continue
        if parameter and value and "$" not in value and not parameter.takes(value):
            yield _refused(variable, value, parameter, NOWHERE)


def _is_whole(message: Message, *, is_file: bool) -> bool:
    """True for a file that a server may have; a part of one, as pages show it, lacks what it does not show."""
    given, inputs, outputs = _given(message), message.messages("input"), message.messages("output")
    if not inputs and not outputs:
        return is_begun(message) and (is_file or message.text("name") not in ("", ENGINE_MODEL))
    is_own = bool(given) and is_begun(message) and message.text("name") not in ("", ENGINE_MODEL)
    few = len(inputs) == 1 and not is_file and not is_own and not (ENGINE_PATH in given and len(given) > 1)
    return bool(inputs) and not few and bool(outputs)


def is_begun(message: Message) -> bool:
    """True for fields that begin as a file does and go on: a backend, a batch size, and what is set behind them."""
    has_head = bool(message.text("backend") or message.text("platform")) and bool(message.text("max_batch_size"))
    return has_head and any(isinstance(value, Message) for _, value in message.fields)


def _given(message: Message) -> dict[str, SetParameter]:
    """The parameters by their key; the last of a key counts."""
    given = {}
    for entry in message.messages("parameters"):
        key = entry.scalar("key")
        if key is not None and not PLACEHOLDER.search(key.text):
            value = next((one.scalar("string_value") for one in entry.messages("value")), None)
            given[key.text] = SetParameter(key, value)
    return given


def _missing(given: Mapping[str, SetParameter], reads: BackendReads, place: Scalar) -> Iterator[Problem]:
    """Parameters that the backend wants; it stops at the first, but all of them have to be there."""
    misnamed = {reads.instead.get(name, "") for name in given}
    for name, parameter in reads.parameters.items():
        if name in given or _text(given, parameter.alternative):
            continue
        if parameter.required:
            wrong = next((one for one in given if name in misnamed and reads.instead.get(one) == name), "")
            beside = given[BATCHING].key if name == ENGINE_PATH and BATCHING in given else place
            where = given[wrong].key if wrong else beside
            instead = (
                f"call the parameter {name}, not {wrong}" if wrong else f"add the parameter {name}{_such_as(parameter)}"
            )
            misread = f", and {wrong} is not read" if wrong else ""
            known = {"parameter": name, "consequence": parameter.required, "instead": instead, "misread": misread}
            yield Problem("missing-parameter", "", where, known)
        elif parameter.needed_by and _text(given, MODE) == parameter.needed_by:
            known = {"parameter": name, "mode": parameter.needed_by}
            yield Problem("missing-parameter", "mode", given[MODE].key, known)


def _text(given: Mapping[str, SetParameter], name: str) -> str:
    return given[name].text if name in given else ""


def _such_as(parameter: BackendParameter) -> str:
    return f", such as {parameter.values[0]}" if parameter.values else ""


def _unknown(
    name: str,
    one: SetParameter,
    given: Mapping[str, SetParameter],
    reads: BackendReads,
    release: str,
    *,
    is_whole: bool,
) -> Iterator[Problem]:
    model = release_templates(release).models[ENGINE_MODEL] if release in template_releases() else None
    if name in reads.others or (model and name in model.parameters):
        return
    meant = reads.instead.get(name, "")
    if is_whole and meant and reads.parameters[meant].required and meant not in given:
        return  # said as missing
    elsewhere = parameter_releases(name)
    near = meant or next(
        iter(get_close_matches(name, [key for key in reads.parameters if key not in given], 1, 0.75)), ""
    )
    instead = f"write {near}" if near else f"leave {name} out"
    where = f"; {ranges(elsewhere)} read it" if elsewhere else ""
    form = "" if elsewhere or near or name in BEFORE_0_8 else "never"
    yield Problem("unknown-parameter", form, one.key, {"parameter": name, "instead": instead, "elsewhere": where})


def _refused(name: str, value: str, parameter: BackendParameter, place: Scalar) -> Problem:
    words = {"bool": "true or false", "int": "a whole number", "float": "a number"}
    takes = ", ".join(parameter.values) or words[parameter.type]
    near = get_close_matches(value, parameter.values, 1, 0.4) or parameter.values[:1]
    instead = f"{name}: {near[0]}" if near else f"write {words[parameter.type]} for {name}, or leave it out"
    form = "refused" if parameter.otherwise == "refused" else ""
    known = {"parameter": name, "value": value, "takes": takes, "instead": instead}
    return Problem(
        "parameter-value", form, place, {**known, "default": parameter.default, "consequence": parameter.says}
    )
