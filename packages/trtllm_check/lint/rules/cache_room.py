"""A KV cache that cannot hold one sequence of the longest length, beside the weights, on a GPU that the text tells."""

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

from serving_base.facts.published import PublishedModel, published_model
from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Edit, Platform, Put, drafts
from trtllm_check.lint.gpu_labels import gpu_told
from trtllm_check.lint.rules.room import OTHER_HARDWARE, PP, SET_LATER, STARTS, TP, gpu_memory, memory_here
from trtllm_check.lint.rules.served import LMI, VLLM, ServedModel, served
from trtllm_check.lint.rules.weight_bits import bits_of

RULE = "cache-too-small"
LENGTH, SHARE, TYPE = "max_model_len", "gpu_memory_utilization", "kv_cache_dtype"
DEFAULT, LARGEST_DEFAULT = 0.9, 0.92  # share of the GPU that any release takes where nothing is said
ROUNDED = 0.96  # a model of 6.74 billion parameters is called 7B
STEP = 1024
LEAST_ACTIVATIONS = 0.7e9  # bytes that a step of the engine takes at least
ACTIVATIONS = 1.5e9  # bytes that a step of the engine may take, for what is put in place of a length
# What makes the weights or the cache of a size that the text does not tell.
UNKNOWN = frozenset(
    {
        *("cpu_offload_gb", "device", "config", "nnodes", "headless", "node_rank", "num_gpu_blocks_override"),
        *("kv_cache_memory_bytes", "decode_context_parallel_size", "load_format", "kv_offloading_size"),
    }
)
LONGER = frozenset({"hf_overrides", "rope_scaling", "rope_theta", "config_format", "hf_config_path"})
OPEN = re.compile(
    r"gguf|exl\d|hqq|aqlm|mlx|lora|adapter|draft|eagle|medusa|prun|sparse|tiny|dummy|engine|ckpt", re.IGNORECASE
)
NARROW = re.compile(r"fp8|int8|fp4", re.IGNORECASE)  # a checkpoint that may tell the type of the cache, too
VALUES = {"auto": 2, "bfloat16": 2, "float16": 2, "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1}


class _Room(NamedTuple):
    """Bytes on one GPU: of the weights, no more than there are, of one token in the cache, and what there is."""

    weights: float
    token: float
    have: float


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    starts = [one for one in served(document) if one.engine == VLLM and one.tool in STARTS and one.weights]
    gpu, have = gpu_memory(document, platform) if starts else ("", 0)
    if any(OTHER_HARDWARE.search(text) for _, text in document.texts):
        return
    machine = gpu_told(document)
    later = {file for file, text in document.texts if SET_LATER.search(text)}
    for one in starts:
        model = published_model(one.weights)
        if model is None or (one.invocation is None and one.file in later):
            continue
        ranks = machine.gpus if one.tool == LMI and TP not in one.options and machine is not None else None
        here, own = memory_here(document, one.file, one.place(TP)) or (gpu, have)
        room = _room(one, model, own, ranks) if own else None
        tokens = _tokens(one, model)
        if room is None or not tokens:
            continue
        sure = room.have < room.weights + tokens * room.token
        if sure or room.have < room.weights / ROUNDED + tokens * room.token + LEAST_ACTIVATIONS:
            yield from _said(one, model, room, tokens, here, platform.release.name, sure=sure)


def _room(one: ServedModel, model: PublishedModel, have: float, ranks: int | None) -> _Room | None:
    """None where the text does not tell all of it."""
    unread = any(name in one.options and one.number(name) is None for name in (TP, PP))
    if not model.token_values or not model.billions or one.is_open or unread or OPEN.search(one.weights):
        return None
    if one.tool == LMI and TP not in one.options and ranks is None:
        return None
    if not UNKNOWN.isdisjoint(one.options) or any(" " in name for name in one.options):
        return None
    word = one.options.get(TYPE)
    value = VALUES.get(word.text if word is not None else "auto", 0)
    if value > 1 and NARROW.search(one.weights):
        value = 1
    share, usual = _share(one, LARGEST_DEFAULT), _share(one, DEFAULT)
    tensor, stages = ranks or one.number(TP) or 1, one.number(PP) or 1
    if not value or not share:
        return None
    weights = model.billions * 1e9 * ROUNDED * bits_of(one, model) / 8 / (tensor * stages)
    if weights / ROUNDED > have * usual:
        return None  # that the weights alone do not fit is another finding
    return _Room(weights, model.cache_bytes(tensor, stages, value), have * share)


def _share(one: ServedModel, otherwise: float) -> float:
    word = one.options.get(SHARE)
    try:
        share = float(word.text) if word is not None else otherwise
    except ValueError:
        return 0
    return share if 0 < share <= 1 else 0


def _tokens(one: ServedModel, model: PublishedModel) -> int:
    """The length that the cache has to hold once; 0 where it is not told."""
    if LENGTH in one.options:
        return one.number(LENGTH) or 0
    return model.context if LONGER.isdisjoint(one.options) else 0


def _said(
    one: ServedModel, model: PublishedModel, room: _Room, tokens: int, gpu: str, release: str, *, sure: bool
) -> Iterator[Draft]:
    given = LENGTH in one.options
    flag = one.flag(LENGTH) if given else "--max-model-len" if one.invocation else LENGTH
    fitting = int((room.have - room.weights - ACTIVATIONS) / room.token)
    half = 2 ** int(math.log2(fitting)) if fitting > STEP else STEP
    edits: tuple[Edit, ...] = (Put(flag, str(half)),) if one.invocation is not None and flag.startswith("-") else ()
    known = {
        "tool": one.tool,
        "model": one.weights,
        "tokens": tokens,
        "cache": tokens * room.token / 1e9,
        "weights": room.weights / 1e9,
        "left": (room.have - room.weights) / 1e9,
        "have": room.have / 1e9,
        "gpu": gpu,
        "flag": flag,
        "half": half,
    }
    certain = sure and model.official and (given or model.context_read)
    for draft in drafts(
        release,
        RULE,
        one.place(LENGTH),
        form="" if given else "own length",
        edits=edits,
        invocation=one.invocation,
        file=one.file,
        **known,
    ):
        yield draft if certain else draft._replace(severity="warning")
