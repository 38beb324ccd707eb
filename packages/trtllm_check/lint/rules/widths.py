"""Ranks that cut a quantized model through the blocks that its weights are quantized in: vLLM's, and quantize.py's."""

from collections.abc import Iterator
from typing import Any

from serving_base.facts.widths import PARTS, cut_widths
from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Edit, Platform, Put, drafts
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.rules.engine_limits import number_of
from trtllm_check.lint.rules.served import LMI, VLLM, ServedModel, served

RULE = "width-not-divided"
OPTION = "tensor_parallel_size"
MOST = 64
OF_AWQ = ("int4_awq", "w4a8_awq")
SOURCES = ("--model_dir", "--pyt_ckpt_path")
RANKS = ("--tp_size", "--inference_tensor_parallel")
DEFAULT_BLOCK = 128
FORMS = {"FP8": ""}  # others: by groups


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    for one in served(document):
        if one.engine == VLLM and one.tool != LMI:
            yield from _cut(one, platform.release.name)
    for quantize in document.of("quantize.py"):
        if quantize.value("--qformat") in OF_AWQ:
            yield from _quantized(quantize, platform.release.name)


def _quantized(quantize: Invocation, release: str) -> Iterator[Draft]:
    """``--qformat int4_awq --tp_size 4`` of a model whose MLP is no multiple of four blocks."""
    source, ranks = quantize.value(*SOURCES) or "", number_of(quantize.value(*RANKS))
    block = number_of(quantize.value("--awq_block_size") or str(DEFAULT_BLOCK))
    model = cut_widths(f"{source.rstrip('/')}-awq") if source and ranks and block else None
    given = quantize.find(*RANKS)
    if model is None or given is None or not ranks or not block or not 1 < ranks <= MOST:
        return
    found = model._replace(unit=block).uneven(ranks)
    if found is not None:
        part, width = found
        share = f"{width // ranks}" if width % ranks == 0 else f"{width / ranks:.1f}"
        fitting = [number for number in (1, 2, 4, 8, 16) if width % (number * block) == 0]
        known: dict[str, Any] = {
            "flag": given.name,
            "ranks": ranks,
            "model": source,
            "part": PARTS[part],
            "width": width,
        }
        known |= {"share": share, "unit": block, "fitting": ", ".join(map(str, fitting)), "where": model.source}
        known["format"] = quantize.value("--qformat")
        yield from drafts(release, RULE, given.word, form="ModelOpt", invocation=quantize, **known)


def _cut(one: ServedModel, release: str) -> Iterator[Draft]:
    ranks, replicas = one.number(OPTION), one.number("data_parallel_size") or 1
    model = cut_widths(one.weights) if one.weights and ranks else None
    if model is None or ranks is None or not 1 < ranks <= MOST or "hf_overrides" in one.options:
        return
    spread = one.is_on("enable_expert_parallel")
    found = model.uneven(ranks, replicas=replicas, spread=spread)
    if found is None:
        return
    part, width = found
    fitting = [number for number in model.ranks(replicas=replicas, spread=spread) if number < ranks] or [1]
    cuts = ranks * replicas if part == "experts" else ranks
    share = f"{width // cuts}" if width % cuts == 0 else f"{width / cuts:.1f}"
    also = ", or spread the experts with --enable-expert-parallel" if part == "experts" else ""
    known: dict[str, Any] = {
        "tool": one.tool,
        "flag": one.flag(OPTION),
        "ranks": ranks,
        "model": one.weights,
        "what": model.what,
        "part": PARTS[part],
        "width": width,
        "share": share,
        "unit": model.unit,
        "fitting": ", ".join(map(str, fitting)),
        "also": also,
        "where": model.source,
    }
    edits: tuple[Edit, ...] = (Put(one.flag(OPTION), str(fitting[-1])),) if one.flag(OPTION).startswith("-") else ()
    for draft in drafts(
        release,
        RULE,
        one.place(OPTION),
        form=FORMS.get(model.what, "group"),
        edits=edits if one.invocation else (),
        invocation=one.invocation,
        file=one.file,
        **known,
    ):
        yield draft if model.certain else draft._replace(severity="warning")
