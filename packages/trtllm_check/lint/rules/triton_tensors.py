"""Tensors that clients and models in Python name, against the config.pbtxt of the model in the same text.

What Triton says: core src/infer_request.cc (Normalize, ValidateRequestInputs), server src/http_server.cc, src/grpc.
"""

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from trtllm_check.lint.carriers.python_tensors import TensorUse
from trtllm_check.lint.document import ConfigFile, Document
from trtllm_check.lint.endpoints import TritonRequest, triton_requests
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.pbtxt import TRUE, ConfigError, Message, read_config
from trtllm_check.lint.triton_configs import is_told
from trtllm_check.releases.templates import release_templates, template_releases

RULE = "tensor-of-a-model"
OF_THE_BACKEND = {  # its models, and the inputs by which a request for one of them is known
    "ensemble": {"text_input", "max_tokens"},
    "tensorrt_llm_bls": {"text_input", "max_tokens"},
    "tensorrt_llm": {"input_ids", "request_output_len"},
}
VLLM, PYTHON = "vllm", "python"
OF_VLLM = {  # what the vLLM backend adds to a configuration by itself: vllm_backend src/model.py
    **dict.fromkeys(("text_input", "sampling_parameters", "image", "embedding_request"), "TYPE_STRING"),
    **dict.fromkeys(("stream", "exclude_input_in_output", "return_finish_reason"), "TYPE_BOOL"),
    **dict.fromkeys(("return_cumulative_logprob", "return_logprobs", "return_num_input_tokens"), "TYPE_BOOL"),
    "return_num_output_tokens": "TYPE_BOOL",
}
GIVEN_BY_VLLM = (
    *("text_output", "finish_reason", "cumulative_logprob", "logprobs", "num_input_tokens", "num_output_tokens"),
)
ENDPOINTS = {"http": "HTTP end point", "grpc": "ModelInfer RPC"}
ANY, FEW = -1, 2


class Declared(NamedTuple):
    """A tensor of a configuration; ``dims``: with the batch, None where a variable or the model itself tells."""

    data_type: str
    dims: tuple[int, ...] | None
    optional: bool


class Model(NamedTuple):
    """A configuration that shows all of its tensors; ``open``: the backend adds inputs of its own.

    ``added``: inputs of the model that no client sends, such as those of a sequence.
    """

    name: str
    config: ConfigFile
    inputs: Mapping[str, Declared]
    outputs: Mapping[str, Declared]
    decoupled: bool
    open: bool
    backend: str
    added: frozenset[str] = frozenset()


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    if not document.tensors and not document.requests:
        return
    models = [model for config in document.configs if (model := _model(config))]
    yield from _of_templates(document, {one.name for one in models}, platform)
    known = _Models(models)
    for use in document.tensors:
        if use.kind in ("reads", "gives", "returns"):
            if model := _of_file(use, models, document):
                yield from _in_model(use, model, platform)
        elif use.kind == "asks some":
            yield from _decoupled_piece(use, document, platform)
        elif model := known.of(use.model, use.file):
            yield from _in_client(use, model, platform)
    yield from _missing(document, known, platform)
    for request in triton_requests(document):
        model = known.of(request.target.model, request.request.file)
        if model and request.target.verb == "infer" and request.tensors:
            yield from _in_request(request, model, platform)


def _decoupled_piece(use: TensorUse, document: Document, platform: Platform) -> Iterator[Draft]:
    """A page with nothing but a decoupled policy, and a client whose model it does not tell."""
    pieces = [one for one in document.configs if one.path == use.file]
    if len(pieces) != 1 or len(document.configs) != 1 or pieces[0].is_file:
        return
    try:
        message = read_config(pieces[0].text)
    except ConfigError:
        return
    policies = message.messages("model_transaction_policy")
    if len(message.fields) == 1 and policies and policies[0].text("decoupled").lower() in TRUE:
        known: dict[str, Any] = {"name": "", "model": "it", "endpoint": "ModelInfer"}
        for draft in drafts(platform.release.name, RULE, use.place, form="decoupled", file=use.file, **known):
            yield draft._replace(severity="warning")


def _of_templates(document: Document, there: set[str], platform: Platform) -> Iterator[Draft]:
    """A client of the backend's own models: they have the batch in front in every release."""
    by_file: dict[str, list[TensorUse]] = {}
    for use in document.tensors:
        if use.kind == "input" and use.model in OF_THE_BACKEND and use.model not in there:
            by_file.setdefault(use.file, []).append(use)
    for number, request in enumerate(triton_requests(document)):
        if request.target.verb == "infer" and request.target.model in {*OF_THE_BACKEND} - there:
            by_file[f"{number}"] = list(_given(request))
    last = release_templates(template_releases()[-1]).models
    for uses in filter(None, by_file.values()):
        names = {one.name for one in uses}
        known = {one.name: one for one in last[uses[0].model].inputs}
        if not names <= known.keys() or not OF_THE_BACKEND[uses[0].model] <= names:
            continue  # somebody else's ensemble, perhaps
        for use in uses:
            wanted = (ANY, *known[use.name].dims)
            if use.shape is not None and len(use.shape) != len(wanted):
                shown: dict[str, Any] = {
                    "name": use.name,
                    "model": use.model,
                    "given": _shown(use.shape),
                    "wanted": _shown(wanted),
                }
                yield from drafts(platform.release.name, RULE, use.place, form="shape", file=use.file, **shown)


class _Models:
    """Which configuration a client means: that of its own project, where a folder holds several."""

    def __init__(self, models: Sequence[Model]) -> None:
        self.models = models
        repositories = {_repository(one) for one in models if one.config.is_file}
        self.is_one = len(repositories) < FEW

    def of(self, name: str, file: str) -> Model | None:
        found = [one for one in self.models if name and one.name == name and self._is_of(one, file)]
        return found[0] if len(found) == 1 else None

    def _is_of(self, model: Model, file: str) -> bool:
        if not model.config.is_file:
            return model.config.path == file
        project = posixpath.dirname(_repository(model))
        return self.is_one or not project or file.startswith(f"{project}/")


def _repository(model: Model) -> str:
    return posixpath.dirname(posixpath.dirname(model.config.path))


def _model(config: ConfigFile) -> Model | None:
    try:
        message = read_config(config.text)
    except ConfigError:
        return None
    backend = message.text("backend") or message.text("platform")
    if not config.model or any("$" in one for one in (config.model, backend)):
        return None
    inputs, outputs = _declared(message, "input"), _declared(message, "output")
    policies = message.messages("model_transaction_policy")
    decoupled = bool(policies) and policies[-1].text("decoupled").lower() in TRUE
    if backend == VLLM:
        added = {name: Declared(kind, None, True) for name, kind in OF_VLLM.items()}
        given = {name: Declared("", None, True) for name in GIVEN_BY_VLLM}
        return Model(config.model, config, {**added, **inputs}, {**given, **outputs}, True, True, backend)
    if "..." in config.text or "…" in config.text or not (inputs and outputs):
        return None
    return Model(config.model, config, inputs, outputs, decoupled, False, backend, frozenset(_added(message)))


def _added(message: Message) -> Iterator[str]:
    """What the scheduler hands to a model beside the request: signs and states of a sequence, sizes of a batch."""
    for batching in message.messages("sequence_batching"):
        yield from (one.text("name") for one in batching.messages("control_input"))
        for state in batching.messages("state"):
            yield from (state.text("input_name"), state.text("output_name"))
    for one in message.messages("batch_input"):
        yield from (place.text for place in one.scalars("target_name"))


def _declared(message: Message, kind: str) -> dict[str, Declared]:
    batch = message.text("max_batch_size")
    is_known = (batch.isdecimal() and (batch != "0" or is_told(message))) or (not batch and is_told(message))
    found = {}
    for one in message.messages(kind):
        texts = [place.text for place in one.scalars("dims")]
        dims = None
        if texts and is_known and all(text.lstrip("-").isdecimal() for text in texts):
            dims = (*((ANY,) if batch not in ("", "0") else ()), *map(int, texts))
        found[one.text("name")] = Declared(one.text("data_type"), dims, one.text("optional").lower() in TRUE)
    return found


def _of_file(use: TensorUse, models: list[Model], document: Document) -> Model | None:
    """The configuration of a model.py: that of its folder, or the only one of a page that shows both."""
    folder = posixpath.dirname(posixpath.dirname(use.file))
    if posixpath.basename(use.file) == "model.py":
        found = [one for one in models if one.config.is_file and posixpath.dirname(one.config.path) == folder]
        return found[0] if len(found) == 1 and posixpath.dirname(use.file) else None
    here = [one for one in models if one.config.path == use.file and one.backend in (PYTHON, "")]
    same = [one for one in document.tensors if one.file == use.file and one.kind == "returns"]
    alone = len(document.configs) == 1 and len(same) <= 1
    return here[0] if len(here) == 1 and alone else None


def _draft(use: TensorUse, model: Model, platform: Platform, form: str, **known: Any) -> Iterator[Draft]:
    named = {"name": use.name, "model": model.name, **known}
    return drafts(platform.release.name, RULE, use.place, form=form, file=use.file, **named)


def _in_model(use: TensorUse, model: Model, platform: Platform) -> Iterator[Draft]:
    if use.kind == "returns":
        if model.decoupled:
            yield from _draft(use, model, platform, "returns")
        return
    declared = model.inputs if use.kind == "reads" else model.outputs
    if use.name not in declared and use.name not in model.added:
        yield from _draft(use, model, platform, use.kind, there=", ".join(declared))


def _in_client(use: TensorUse, model: Model, platform: Platform) -> Iterator[Draft]:
    draft = partial(_draft, use, model, platform)
    if use.kind == "asked":
        if model.decoupled and use.protocol in ENDPOINTS:
            yield from draft("decoupled", endpoint=ENDPOINTS[use.protocol])
        return
    if use.kind in ("output", "answer"):
        if use.name not in model.outputs:
            yield from draft(use.kind, there=", ".join(model.outputs))
        return
    one = model.inputs.get(use.name)
    if one is None:
        yield from draft("input", there=", ".join(model.inputs))
    elif use.datatype and _name_of(one.data_type) not in ("", use.datatype):
        yield from draft("type", given=use.datatype, wanted=_name_of(one.data_type))
    elif _misfits(use.shape, one.dims):
        yield from draft("shape", given=_shown(use.shape), wanted=_shown(one.dims))


def _missing(document: Document, known: _Models, platform: Platform) -> Iterator[Draft]:
    """Inputs that a client does not give, where all are seen that it gives."""
    by_file: dict[tuple[str, str], list[TensorUse]] = {}
    for use in document.tensors:
        if use.kind == "input" and known.of(use.model, use.file):
            by_file.setdefault((use.file, use.model), []).append(use)
    for (file, name), uses in by_file.items():
        model, given = known.of(name, file), {one.name for one in uses}
        if model is None:
            continue
        wanted = [one for one, tensor in model.inputs.items() if not tensor.optional and one not in given]
        if wanted and not model.open and all(one.is_all for one in uses) and given <= model.inputs.keys():
            yield from _draft(uses[0], model, platform, "missing", wanted=", ".join(wanted))


def _in_request(request: TritonRequest, model: Model, platform: Platform) -> Iterator[Draft]:
    """A body for ``/infer``; names are the requests' own family."""
    file, place = request.request.file, request.url
    if model.decoupled:
        use = TensorUse("asked", model.name, place, model.name, protocol="http", file=file)
        yield from _in_client(use, model, platform)
    for use in _given(request):
        if use.name in model.inputs:
            yield from _in_client(use, model, platform)


def _given(request: TritonRequest) -> Iterator[TensorUse]:
    """The tensors of a body for ``/infer``."""
    for tensor in (request.fields or {}).get("inputs", ()) if request.tensors else ():
        name, shape = str(tensor["name"]), tensor.get("shape")
        is_list = isinstance(shape, list) and all(type(one) is int for one in shape)
        use = TensorUse("input", name, request.request.at(name), request.target.model, str(tensor.get("datatype", "")))
        yield use._replace(shape=tuple(shape) if is_list else None, file=request.request.file)


def _name_of(data_type: str) -> str:
    """As requests write it."""
    return "" if "$" in data_type else data_type.removeprefix("TYPE_").replace("STRING", "BYTES")


def _misfits(given: tuple[int | None, ...] | None, wanted: tuple[int, ...] | None) -> bool:
    if given is None or wanted is None:
        return False
    return len(given) != len(wanted) or any(
        one is not None and other != ANY and one != other for one, other in zip(given, wanted, strict=True)
    )


def _shown(shape: tuple[int | None, ...] | None) -> str:
    return f"[{','.join('?' if one is None else str(one) for one in shape or ())}]"
