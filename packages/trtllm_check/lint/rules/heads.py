"""A number of ranks that does not divide the heads of the model, of every tool that splits one; and its layers."""

import re
from collections.abc import Iterator

from serving_base.facts.models import shape_of_size
from serving_base.facts.published import PublishedModel, published_model
from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Edit, Platform, Put, drafts
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.rules.arguments import is_checked, missing
from trtllm_check.lint.rules.served import LMI, MAKERS, TENSORRT_LLM, ServedModel, served

FLAGS = ("--tp_size", "--inference_tensor_parallel", "--tensor_parallel_size")
STAGES = ("--pp_size", "--inference_pipeline_parallel")
OPTION = "tensor_parallel_size"
MOST = 64
NEURON = re.compile(r"neuron|inf2|trn[12]", re.IGNORECASE)  # its compiler fills heads up


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """heads-not-divided, of the model that a command names and of the one that its checkpoint is known to be."""
    release = platform.release.name
    done = set()
    for one in served(document):
        model = published_model(one.weights) if one.weights else None
        ranks = one.number(OPTION)
        if model is None or ranks is None or not 1 < ranks <= MOST or model.divides(ranks):
            continue
        if one.engine == TENSORRT_LLM and model.heads % ranks == 0:
            continue  # its converters copy or refuse KV heads by model and release
        if one.tool == LMI and any(NEURON.search(text) for _, text in document.texts):
            continue
        done.add(id(one.invocation))
        yield from _not_divided(one, model, ranks, release)
    for invocation in document.of(*MAKERS, "trtllm-build"):
        if is_checked(invocation, platform.release):
            yield from _layers(release, invocation, document.facts_of(invocation).model)
    for invocation in document.invocations:
        if id(invocation) in done or not invocation.has(*FLAGS):
            continue
        if is_checked(invocation, platform.release) and not missing(invocation, platform.release):
            yield from _of_checkpoint(release, invocation, document.facts_of(invocation).model)


def _not_divided(one: ServedModel, model: PublishedModel, ranks: int, release: str) -> Iterator[Draft]:
    flag = one.flag(OPTION)
    smaller = [number for number in model.ranks if number < ranks]
    edits: tuple[Edit, ...] = (Put(flag, str(smaller[-1])),) if flag.startswith("-") else ()
    said = drafts(
        release,
        "heads-not-divided",
        one.place(OPTION),
        form="" if model.heads % ranks else "KV heads of the model",
        edits=edits,
        invocation=one.invocation,
        file=one.file,
        tool=one.tool,
        flag=flag,
        tp=ranks,
        heads=model.heads if model.heads % ranks else model.kv_heads,
        model=one.weights,
        divisors=", ".join(map(str, model.ranks)),
        where=model.source,
    )
    yield from said if model.heads_read else (draft._replace(severity="warning") for draft in said)


def _of_checkpoint(release: str, invocation: Invocation, model: str) -> Iterator[Draft]:
    """A Llama-3 that is known by its folder only."""
    given = invocation.find(*FLAGS)
    shape = shape_of_size(model) if model.startswith("llama-3") else None
    text = given.values[0].text if given and given.values else ""
    ranks = int(text) if text.isascii() and text.isdecimal() and len(text) < 9 else 0
    if given is None or not shape or not ranks or shape.num_attention_heads % ranks == 0:
        return
    heads = shape.num_attention_heads
    divisors = [number for number in range(1, ranks) if heads % number == 0]
    yield from drafts(
        release,
        "heads-not-divided",
        given.word,
        edits=(Put(given.name, str(divisors[-1])),),
        invocation=invocation,
        tool=invocation.tool,
        flag=given.name,
        tp=ranks,
        heads=heads,
        model=model,
        divisors=", ".join(str(number) for number in (1, 2, 4, 8)),
        where=shape.source,
    )


def _layers(release: str, invocation: Invocation, model: str) -> Iterator[Draft]:
    """layers-not-divided, of a Llama-3."""
    given = invocation.find(*STAGES)
    shape = shape_of_size(model) if model.startswith("llama-3") else None
    text = given.values[0].text if given and given.values else ""
    stages = int(text) if text.isascii() and text.isdecimal() and len(text) < 9 else 0
    if given is None or shape is None or not 1 < stages <= MOST or shape.num_hidden_layers % stages == 0:
        return
    layers = shape.num_hidden_layers
    divisors = [number for number in range(1, 17) if layers % number == 0]
    yield from drafts(
        release,
        "layers-not-divided",
        given.word,
        invocation=invocation,
        flag=given.name,
        pp=stages,
        layers=layers,
        left=layers % stages,
        model=model,
        divisors=", ".join(map(str, divisors)),
        where=shape.source,
    )
