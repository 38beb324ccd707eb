"""GPUs that are asked for and that the one engine of a text leaves alone: it takes one, and no size says more."""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.rules.gpus_seen import LISTS, SPREAD, seen
from trtllm_check.lint.rules.served import MAKERS, TENSORRT_LLM, VLLM, Around, ServedModel, served
from trtllm_check.lint.shell.words import Word

RULE = "gpus-unused"
STARTS = ("vllm serve", "trtllm-serve", "LLM", "EngineArgs", "AsyncEngineArgs")
SEVERAL = re.compile(r"parallel|^config$|extra_llm_api_options|node|device|executor|headless|api_server_count|gpus")
# What may use the other GPUs, or start the engine more than once.
OTHERS = re.compile(
    r"\bray\b|torchrun|mpirun|\bsrun\b|accelerate|deepspeed|nginx|haproxy|litellm|sglang|text-generation|tritonserver"
    r"|cuda:\d|device_map|\.cuda\(|\.to\(|Trainer|multiprocessing|ProcessPool|tensor_parallel|tensor-parallel|\btp\b"
    r"|resourceProfile:[ ]*[\"']?cpu"
    r"|nproc|\bfor \w+ in\b|\bxargs\b|\bparallel\b|MIG|embedding|rerank|\bAsyncLLM\b|setattr",
    re.IGNORECASE,
)
SET_LATER = re.compile(r"\*\*\w+|kwargs|parser\.add_argument|\.update\(")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """One engine of one rank in a text that gives it several GPUs."""
    found = list(_of_one_rank(document, platform))
    if found and not any(OTHERS.search(text) for _, text in document.texts):
        yield from found


def _of_one_rank(document: Document, platform: Platform) -> Iterator[Draft]:
    around = Around.of(document)
    starts = [one for one in served(document) if one.tool not in MAKERS and not one.is_part]
    for one in starts:
        if not _takes_one(one) or (one.invocation is None and _is_set_later(document)):
            continue
        workload = around.workload(one)
        if workload is not None and sum(around.workload(other) is workload for other in starts) == 1:
            if workload.gpus and workload.gpus > 1:
                yield from _said(one, workload.gpus, workload.gpus_place, "the container gets", platform)
        elif len(starts) == 1 and len(document.of("docker")) < 2 and not document.workloads:
            number, place, how = next(seen(document, around, one, None), (0, one.at, ""))
            if number > 1:
                yield from _said(one, number, place, how, platform)


def _is_set_later(document: Document) -> bool:
    return any(SET_LATER.search(text) for _, text in document.texts)


def _said(one: ServedModel, number: int, place: Word, how: str, platform: Platform) -> Iterator[Draft]:
    known: dict[str, Any] = {"tool": one.tool, "seen": number, "how": how, "line": place.line}
    flag = "--tp_size" if one.engine == TENSORRT_LLM else "--tensor-parallel-size"
    known["flag"] = flag if one.invocation else "tensor_parallel_size"
    known["sign"] = " " if one.invocation else "="
    yield from drafts(platform.release.name, RULE, one.at, file=one.file, invocation=one.invocation, **known)


def _takes_one(one: ServedModel) -> bool:
    """True for an engine whose options are all told, and none of which is about more than one GPU."""
    if one.engine not in (VLLM, TENSORRT_LLM) or one.tool not in STARTS or one.is_open or not one.model:
        return False
    if any(SEVERAL.search(name) for name in one.options):
        return False
    for before, word in pairwise(one.invocation.arguments if one.invocation else ()):
        is_value = before.text == "serve" or (before.text.startswith("-") and "=" not in before.text)
        if SPREAD.search(word.text) and (not is_value or LISTS.search(word.text)):
            return False
    return True
