"""The engine's model in config.pbtxt and in fill_template.py, against what the C++ backend of a release reads."""

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from typing import Any, NamedTuple

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

DATA_TYPES = frozenset(
    {
        *(f"TYPE_{kind}{bits}" for kind in ("INT", "UINT") for bits in (8, 16, 32, 64)),
        *("TYPE_FP16", "TYPE_FP32", "TYPE_FP64", "TYPE_BF16", "TYPE_BOOL", "TYPE_STRING"),
    }
)
ENGINE_BACKEND = "tensorrtllm"
ENGINE_MODEL = "tensorrt_llm"
MODE, BATCHING = "decoding_mode", "gpt_model_type"
OF_AN_ENGINE = re.compile(
    r"max_\w+|\w+_plugin|[tp]p_size|remove_input_padding|\w+_context_fmha|opt_num_tokens|paged_state"
)
"""Options of a build whose names no model of another kind would have for something else."""
MEANT = re.compile(r"(?:pytorch_)?(?:tensorrt[-_]?llm|trt[-_]?llm)(?:[-_]\w+)?", re.IGNORECASE)
INSTEAD = {  # inputs of the other models, and of other engines
    **dict.fromkeys(
        ("max_tokens", "max_output_len", "max_new_tokens", "max_length", "output_len"), "request_output_len"
    ),
    **dict.fromkeys(("text_input", "prompt", "tokens", "token_ids", "input_tokens"), "input_ids"),
    **dict.fromkeys(("input_length", "input_len", "sequence_length", "seq_len"), "input_lengths"),
}
OF_BATCHES = ("input_lengths",)  # read only where a request holds several prompts: inflight_batcher_llm/src/utils.cc
MANY = 4  # names of another release that are no slip any more
ENGINE_PATH = "gpt_model_path"
NOWHERE = Scalar("", 1, 1)


class Problem(NamedTuple):
    """One thing that the backend does not take: the rule, what it knows, and where."""

    rule: str
    form: str
    place: Scalar
    known: Mapping[str, Any]


OF_A_SHELL = re.compile(r"\$[A-Za-z_]\w*")  # of a here-document that is written where the variable is known


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
    if is_told:
        backend = Scalar(ENGINE_BACKEND, *_start(given))
    if backend is None or backend.text != ENGINE_BACKEND or reads is None:
        return
    if is_whole:
        yield from _missing(given, reads, backend)
    strangers: list[Problem] = []
    for name, one in given.items():
        parameter = reads.parameters.get(name)
        if parameter is None:
            strangers += _unknown(name, one, given, reads, release, is_whole=is_whole)
        elif one.text and one.value is not None and not parameter.takes(one.text):
            yield _refused(name, one.text, parameter, one.value)
    for problem in _inputs(message, backend, reads, release, is_whole=is_whole):
        if problem.form == "unknown":
            strangers.append(problem)
        else:
            yield problem
    yield from _of_another_release(strangers, backend)


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
    return str(stranger.known.get("input") or stranger.known["parameter"])


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


def filled_problems(values: Mapping[str, str], release: str) -> Iterator[Problem]:
    """The same, without places, for the values that fill_template.py puts into the engine's template."""
    reads = backend_reads(release)
    if reads is None or release not in template_releases() or values.get("triton_backend", ENGINE_BACKEND) == "python":
        return
    model = release_templates(release).models[ENGINE_MODEL]
    variables = {match[1]: name for name, text in model.parameters.items() if (match := VARIABLE.fullmatch(text))}
    for variable, value in values.items():
        parameter = reads.parameters.get(variables.get(variable, ""))
        if parameter and value and "$" not in value and not parameter.takes(value):
            yield _refused(variable, value, parameter, NOWHERE)


def _is_whole(message: Message, *, is_file: bool) -> bool:
    """True for a file that a server may have; a part of one, as pages show it, lacks what it does not show."""
    given = _given(message)
    few = len(message.messages("input")) == 1 and not is_file and not (ENGINE_PATH in given and len(given) > 1)
    return bool(message.messages("input")) and not few and bool(message.messages("output"))


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
            where = given[wrong].key if wrong else place
            instead = (
                f"call the parameter {name}, not {wrong}" if wrong else f"add the parameter {name}{_such_as(parameter)}"
            )
            known = {"parameter": name, "consequence": parameter.required, "instead": instead}
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
    yield Problem("unknown-parameter", "", one.key, {"parameter": name, "instead": instead, "elsewhere": where})


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


@cache
def _types() -> Mapping[str, frozenset[str]]:
    """The types of the engine's inputs in the templates of all releases, but for those that are filled in."""
    found: dict[str, set[str]] = {}
    for release in template_releases():
        for tensor in release_templates(release).models[ENGINE_MODEL].inputs:
            found.setdefault(tensor.name, set()).add(tensor.data_type)
    plain = {name: types for name, types in found.items() if not any("$" in one for one in types)}
    before = {"TYPE_INT32": "TYPE_UINT32"}  # of the templates before 0.8, and taken alike
    return {name: frozenset(types | {before.get(one, one) for one in types}) for name, types in plain.items()}


@cache
def _dims_of_inputs() -> Mapping[str, frozenset[tuple[str, ...]]]:
    """The dims of each input of the engine's model in the templates of the releases."""
    found: dict[str, set[tuple[str, ...]]] = {}
    for release in template_releases():
        for tensor in release_templates(release).models[ENGINE_MODEL].inputs:
            found.setdefault(tensor.name, set()).add(tuple(map(str, tensor.dims)))
    return {name: frozenset(dims) for name, dims in found.items()}


def _dims(message: Message) -> Iterator[Problem]:
    """Inputs whose dims have the batch once more, which Triton puts in front of them by itself."""
    if message.text("max_batch_size") in ("", "0"):
        return
    for one in message.messages("input"):
        dims, known = one.scalars("dims"), _dims_of_inputs().get(one.text("name"), frozenset())
        written = tuple(place.text for place in dims)
        if dims and written[1:] in known and all(len(other) != len(dims) for other in known):
            shown = {"input": one.text("name"), "given": len(dims), "wanted": len(dims) - 1}
            yield Problem("engine-inputs", "dims of an input", dims[0], shown)


def _outputs(message: Message, known: Mapping[str, int]) -> Iterator[Problem]:
    """Outputs with fewer or more dimensions than in the release's template: an ensemble of its models stops."""
    for one in message.messages("output"):
        dims, name = one.scalars("dims"), one.scalar("name")
        if dims and name is not None and name.text in known and len(dims) != known[name.text]:
            shown = {"input": name.text, "given": len(dims), "instead": ", ".join(["-1"] * known[name.text])}
            yield Problem("engine-inputs", "dims", dims[0], shown)


def _inputs(message: Message, place: Scalar, reads: BackendReads, release: str, *, is_whole: bool) -> Iterator[Problem]:
    """Inputs that the backend does not read, and those that it cannot do without."""
    if release not in template_releases() or not message.messages("input"):
        return
    model = release_templates(release).models[ENGINE_MODEL]
    known = {tensor.name: tensor for tensor in model.inputs}
    names = {tensor.text("name"): tensor.scalar("name") for tensor in message.messages("input")}
    for name, where in names.items():
        if name in known or name in reads.inputs_beside or where is None or PLACEHOLDER.search(name):
            continue
        left = [one for one in known if one not in names]
        other = INSTEAD.get(name, f"runtime_{name}")
        near = [other] if other in left else get_close_matches(name, left, 1, 0.7)
        instead = f"write {near[0]}" if near else f"leave the input {name} out"
        yield Problem("engine-inputs", "unknown", where, {"input": name, "instead": instead})
    for one in message.messages("input"):
        wanted, given = known.get(one.text("name")), one.scalar("data_type")
        if wanted is None or given is None or wanted.name not in _types() or given.text not in DATA_TYPES:
            continue
        if given.text not in _types()[wanted.name]:
            shown = {"input": wanted.name, "given": given.text, "instead": wanted.data_type}
            yield Problem("engine-inputs", "type", given, shown)
    if message.text("max_batch_size") not in ("", "0"):  # without batches the dims are the whole shape
        yield from _dims(message)
        yield from _outputs(message, {tensor.name: len(tensor.dims) for tensor in model.outputs})
    outputs = {tensor.name: tensor.data_type for tensor in model.outputs if not tensor.name.endswith("_logits")}
    for one in message.messages("output"):
        given = one.scalar("data_type")
        wanted_type = outputs.get(one.text("name"), "")
        if given is not None and wanted_type in DATA_TYPES and given.text in DATA_TYPES and given.text != wanted_type:
            shown = {"input": one.text("name"), "given": given.text, "instead": wanted_type}
            yield Problem("engine-inputs", "output type", given, shown)
    for name, tensor in known.items() if is_whole else ():
        if name not in names and not tensor.optional and name not in OF_BATCHES:
            text = f"add the input {name} ({tensor.data_type}, dims: {list(tensor.dims)})"
            yield Problem("engine-inputs", "missing", place, {"input": name, "instead": text})
