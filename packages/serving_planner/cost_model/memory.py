"""What a case needs of a GPU's memory, what is left for the KV cache, and what would fit if it does not.

Bytes are per GPU of the fullest rank; tokens and sequences are per replica. Formulas (L layers, g KV heads of size hd):

- weights: :mod:`serving_base.facts.fit`, in the case's precision.
- KV cache: 2 x L/PP x max(g/TP, 1) x hd x bytes per token and GPU: above TP = g the heads are copied, not split.
- activations: a pass over ``max_num_tokens`` or the sampling of ``max_batch_size`` rows, whichever is larger.
- runtime: what the driver keeps, CUDA context, NCCL, buffers (``data/engines.yml``, with what is assumed there).
- KV share: ``kv_fraction`` is each engine's own flag and multiplies what that flag does (``fraction_of`` there).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Literal

from serving_base.errors import UsageError
from serving_base.facts.fit import weights_per_gpu
from serving_base.facts.gpus import instance
from serving_base.record import Record
from serving_base.yaml_files import read_yaml
from serving_planner.case import BYTES, Case, Engine, changed
from serving_planner.hardware import gpus

MIB, GIB = 2**20, 2**30
BF16 = BYTES["bf16"]


class EngineMemory(Record):
    """One engine of ``data/engines.yml``, where the fields are explained."""

    fraction_of: Literal["free", "total", "static"]
    block_tokens: int
    context_mib: float
    buffers_mib: float
    sampler_bytes: float
    sampler_rows: int | None = None
    source: str
    assumed: str


class Activations(Record):
    """Units of tokens x hidden size x 2 bytes, and the least."""

    whole_rows: float
    split_ff: float
    least_mib: float


class Engines(Record):
    """The whole of ``data/engines.yml``."""

    engines: dict[Engine, EngineMemory]
    nccl_mib: dict[int, float]
    activations: Activations


@cache
def engines() -> Engines:
    return Engines(**read_yaml(Path(__file__).parents[1] / "data" / "engines.yml"))


@dataclass(frozen=True)
class Memory:
    """Bytes per GPU of the fullest rank; tokens and sequences per replica; ``max_concurrency`` over all replicas."""

    gpu_bytes: int
    weights_bytes: int
    kv_cache_bytes: int
    activations_bytes: int
    runtime_bytes: int
    kv_bytes_per_token: int
    block_tokens: int
    kv_capacity_tokens: int
    sequences: int
    max_concurrency: int
    warnings: tuple[str, ...] = ()

    @property
    def total_bytes(self) -> int:
        """What the engine takes once it is up."""
        return self.weights_bytes + self.kv_cache_bytes + self.activations_bytes + self.runtime_bytes

    def gib(self) -> dict[str, float]:
        """The bar of one GPU: weights, kv_cache, activations, runtime and total, in GiB."""
        parts = {
            "weights": self.weights_bytes,
            "kv_cache": self.kv_cache_bytes,
            "activations": self.activations_bytes,
            "runtime": self.runtime_bytes,
            "total": self.total_bytes,
        }
        return {name: size / GIB for name, size in parts.items()}


def memory(case: Case) -> Memory:
    """What ``case`` takes of each GPU, and how many tokens and requests its KV cache holds.

    :class:`UsageError` if not even one request of isl + osl fits, naming the nearest case that holds one.
    """
    room = memory_of(case)
    if room.sequences < 1:
        raise _does_not_fit(case, room)
    return room


def memory_of(case: Case) -> Memory:
    """As :func:`memory`, but a case that does not fit is answered too: with no sequences."""
    gpu, engine = case.hardware, engines().engines[case.engine]
    weights = weights_per_gpu(case.shape, case.weights, case.tp, case.pp)
    activations = activations_bytes(case)
    nccl = 0 if gpu.measured else _nccl_bytes(case.tp)
    context = 0 if gpu.measured else int(engine.context_mib * MIB)
    buffers = 0 if gpu.measured else int(engine.buffers_mib * MIB)
    outside = context + nccl
    free = gpu.visible_bytes - weights - activations - buffers - outside
    budget = {
        "free": case.kv_fraction * free,
        "total": case.kv_fraction * gpu.visible_bytes - weights - activations - buffers,
        "static": case.kv_fraction * (gpu.visible_bytes - outside) - weights,
    }[engine.fraction_of]
    per_token = kv_bytes_per_token(case)
    blocks = max(0, int(min(budget, free)) // (per_token * engine.block_tokens))
    sequences = blocks // -(-(case.isl + case.osl) // engine.block_tokens)
    return Memory(
        gpu_bytes=gpu.memory_bytes,
        weights_bytes=weights,
        kv_cache_bytes=blocks * engine.block_tokens * per_token,
        activations_bytes=activations,
        runtime_bytes=gpu.memory_bytes - gpu.visible_bytes + outside + buffers,
        kv_bytes_per_token=per_token,
        block_tokens=engine.block_tokens,
        kv_capacity_tokens=blocks * engine.block_tokens,
        sequences=sequences,
        max_concurrency=case.replicas * min(sequences, case.max_batch_size),
        warnings=_cut_short(case, budget, free),
    )


def _cut_short(case: Case, budget: float, free: float) -> tuple[str, ...]:
    if budget <= free or free <= 0:
        return ()
    return (
        f"kv_fraction {case.kv_fraction} asks {case.engine} for {budget / GIB:.1f} GiB of KV cache and only "
        f"{free / GIB:.1f} GiB are free beside activations and runtime; the engine may stop at start or run out later",
    )


def kv_bytes_per_token(case: Case) -> int:
    """Bytes of keys and values that one token takes on one GPU."""
    shape = case.shape
    heads = max(shape.num_key_value_heads / case.tp, 1)
    return int(2 * shape.num_hidden_layers / case.pp * heads * shape.head_dim * BYTES[case.kv])


def activations_bytes(case: Case) -> int:
    """What a forward pass or the sampling of a full batch holds at its peak, per GPU."""
    shape, engine, units = case.shape, engines().engines[case.engine], engines().activations
    rows = units.whole_rows + units.split_ff * shape.intermediate_size / shape.hidden_size / case.tp
    forward = rows * case.max_num_tokens * shape.hidden_size * BF16
    batch = min(case.max_batch_size, case.max_num_tokens, engine.sampler_rows or case.max_batch_size)
    sampling = batch * shape.vocab_size * engine.sampler_bytes
    least = 0 if case.hardware.measured else units.least_mib * MIB
    return int(max(forward, sampling, least))


def _nccl_bytes(tp: int) -> int:
    table = engines().nccl_mib
    return int(table[max(size for size in table if size <= tp)] * MIB)


def nearest_that_fits(case: Case) -> Case | None:
    """``case`` with as few changes as possible so that one request fits; None if nothing the planner knows does.

    Preferred in this order: TP, PP, the precisions, another GPU, more GPUs than were named; then several together.
    """
    best: tuple[tuple[int, int, int, int], dict[str, Any]] | None = None
    for settings in _changes(case):
        cost = _cost(case, settings)
        if (best is None or cost < best[0]) and memory_of(case.model_copy(update=settings)).sequences >= 1:
            best = cost, settings
    return changed(case, **best[1]) if best else None


def _changes(case: Case) -> Iterator[dict[str, Any]]:
    """Cases with no less parallelism and no more bits than ``case``, as what differs; itself too."""
    heads, layers, most = case.shape.num_attention_heads, case.shape.num_hidden_layers, case.hardware.link_gpus
    for name, gpu in gpus().items():
        if name != case.gpu and gpu.measured:
            continue
        for weights, kv in product(dict.fromkeys((case.weights, "fp8")), dict.fromkeys((case.kv, "fp8"))):
            for tp, pp in product(range(case.tp, most + 1, case.tp), range(case.pp, most + 1, case.pp)):
                world = tp * pp
                if heads % tp or layers % pp or world > most or (not gpu.fp8 and "fp8" in (weights, kv)):
                    continue
                settings: dict[str, Any] = {"tp": tp, "pp": pp, "weights": weights, "kv": kv, "gpu": name}
                if case.instance and (name != case.gpu or world > instance(case.instance).gpus):
                    settings |= {"instance": None, "usd_per_hour": None}
                if case.gpus and case.gpus % world:
                    settings |= {"gpus": world}
                yield settings


def _cost(case: Case, settings: dict[str, Any]) -> tuple[int, int, int, int]:
    """Kinds of change, how disliked they are, GPUs, memory of one: less of the first counts most."""
    kinds = (
        settings["tp"] != case.tp,
        settings["pp"] != case.pp,
        (settings["weights"], settings["kv"]) != (case.weights, case.kv),
        settings["gpu"] != case.gpu,
        "gpus" in settings or "instance" in settings,
    )
    dislike = sum(2**place for place, differs in enumerate(kinds) if differs)
    return sum(kinds), dislike, settings["tp"] * settings["pp"], gpus()[settings["gpu"]].memory_bytes


def _does_not_fit(case: Case, room: Memory) -> UsageError:
    beside = room.activations_bytes + room.runtime_bytes
    needed = (case.isl + case.osl) * room.kv_bytes_per_token
    near = nearest_that_fits(case)
    return UsageError(
        f"{case.model} (weights {case.weights}, kv {case.kv}) does not fit {case.gpu} at tp {case.tp} x pp {case.pp}",
        why=(
            f"each GPU has {room.gpu_bytes / GIB:.1f} GiB; weights take {room.weights_bytes / GIB:.1f}, activations "
            f"and runtime {beside / GIB:.1f}; one request of {case.isl} + {case.osl} tokens needs {needed / GIB:.2f} "
            f"of KV cache, and kv_fraction {case.kv_fraction} of {case.engine} leaves {room.kv_cache_bytes / GIB:.2f}"
        ),
        fix=f"use {_difference(case, near)}, the nearest that fits"
        if near
        else "take a smaller model or a shorter load",
    )


def _difference(case: Case, other: Case) -> str:
    keys = ("gpu", "tp", "pp", "weights", "kv", "gpus")
    words = [f"{key} {getattr(other, key)}" for key in keys if getattr(other, key) not in (getattr(case, key), None)]
    return ", ".join(words) + (" on another instance" if case.instance and not other.instance else "")
