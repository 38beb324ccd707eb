"""The engine's tensors in config.pbtxt against those of the release's template."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any, NamedTuple

from trtllm_check.lint.pbtxt import PLACEHOLDER, Message, Scalar
from trtllm_check.releases.backend import BackendReads
from trtllm_check.releases.templates import ModelSpec, release_templates, template_releases

DATA_TYPES = frozenset(
    {
        *(f"TYPE_{kind}{bits}" for kind in ("INT", "UINT") for bits in (8, 16, 32, 64)),
        *("TYPE_FP16", "TYPE_FP32", "TYPE_FP64", "TYPE_BF16", "TYPE_BOOL", "TYPE_STRING"),
    }
)
ENGINE_MODEL = "tensorrt_llm"
INSTEAD = {  # inputs of the other models, and of other engines
    **dict.fromkeys(
        ("max_tokens", "max_output_len", "max_new_tokens", "max_length", "output_len"), "request_output_len"
    ),
    **dict.fromkeys(("text_input", "prompt", "tokens", "token_ids", "input_tokens"), "input_ids"),
    **dict.fromkeys(("input_length", "input_len", "sequence_length", "seq_len"), "input_lengths"),
}
OF_BATCHES = ("input_lengths",)  # read only where a request holds several prompts: inflight_batcher_llm/src/utils.cc


class Problem(NamedTuple):
    """One thing that the backend does not take: the rule, what it knows, and where."""

    rule: str
    form: str
    place: Scalar
    known: Mapping[str, Any]


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


def tensor_problems(
    message: Message, place: Scalar, reads: BackendReads, release: str, *, is_whole: bool
) -> Iterator[Problem]:
    """Inputs that the backend does not read, and those that it cannot do without; ``place``: of the backend."""
    if release not in template_releases():
        return
    model = release_templates(release).models[ENGINE_MODEL]
    if not message.messages("input"):
        yield from _nothing(message, model, place) if is_whole else ()
        return
    yield from _known(message, model, reads)
    yield from _missing(message, model) if is_whole else ()


def _nothing(message: Message, model: ModelSpec, place: Scalar) -> Iterator[Problem]:
    """A model without inputs: Triton fills them in for backends that tell them, and this one does not."""
    inputs = ", ".join(one.name for one in model.inputs if not one.optional or one.name in OF_BATCHES)
    lacking = "no input and no output" if not message.messages("output") else "no input"
    known = {"lacking": lacking, "names": inputs, "first": model.inputs[0].name}
    yield Problem("engine-inputs", "none", place, known)


def _missing(message: Message, model: ModelSpec) -> Iterator[Problem]:
    """Inputs that each request has to have, at the last one that is declared."""
    names = {tensor.text("name"): tensor.scalar("name") for tensor in message.messages("input")}
    lacking = [one for one in model.inputs if one.name not in names and not one.optional]
    if all(one.name in OF_BATCHES for one in lacking):
        return
    place = [one for one in names.values() if one is not None][-1:] or [_start(message)]
    needed = [one.name for one in lacking if one.name not in OF_BATCHES]
    texts = [f"{one.name} ({one.data_type}, dims: {list(one.dims)})" for one in lacking]
    shown = {"input": " and ".join(needed), "instead": f"add the input{'s' * (len(texts) > 1)} {', '.join(texts)}"}
    yield Problem("engine-inputs", "missing", place[0], shown)


def _start(message: Message) -> Scalar:
    first = message.messages("input")[0]
    return Scalar("", first.line, first.column)


def _known(message: Message, model: ModelSpec, reads: BackendReads) -> Iterator[Problem]:
    """Inputs and outputs that are declared, one by one."""
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
