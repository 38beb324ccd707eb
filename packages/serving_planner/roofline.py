"""Where the steps of a plan lie under the roofs of their GPU: FLOP per byte against FLOP/s.

FLOPs and bytes of a step are those of the bound below: the products and the attention; the
weights once and the keys and values of every sequence. What moves besides (activations) is left out, so a point lies as
far to the right as any software could bring it. The time is the planned one (:mod:`serving_planner.cost_model.step`),
so the distance to the roof above a point is what planned software leaves unused. Everything is per GPU of one replica;
with a pipeline a step is that of one micro-batch on one stage.

The physical bound: what no software on these GPUs can pass.

n GPUs work as one, without a link between them, without overhead, at their peaks, computing and reading at the same
time, and one copy of the weights serves every request in flight. For a request of ``isl`` prompt and ``osl`` answer
tokens, with N weights in the linear layers, L layers, h heads of size hd, hidden size d, V words and T = isl + osl - 1
computed tokens:

- FLOPs = 2 N T + 2 d V osl + 4 L h hd T (T + 1) / 2: linear layers, ``lm_head`` per answer token, causal attention.
- bytes = (osl - 1) x (N w + 2 d V) / b + KV bytes x (isl + 1 + ... + isl + osl - 1): every decoding step reads the
  weights once for its b requests and the context of each; prefill rides along and reads nothing more.
- tokens/s <= osl x n / max(FLOPs / peak, bytes / bandwidth).

Peaks are dense; attention and ``lm_head`` count at the peak of the weights' precision, which only raises the bound.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from serving_base.errors import UsageError
from serving_base.facts.gpus import Gpu
from serving_base.facts.models import ModelShape
from serving_base.record import Record
from serving_planner.case import BYTES, Case, Precision
from serving_planner.cost_model.step import StepLoad
from serving_planner.plans import Figure
from serving_planner.replicas import ResolvedCase, resolve

Limit = Literal["compute", "bandwidth"]


@dataclass(frozen=True)
class Machine:
    """``count`` GPUs that hold one copy of ``shape`` in the given precisions."""

    shape: ModelShape
    gpu: Gpu
    count: int
    weights: Precision
    kv: Precision

    @property
    def gpu_peak(self) -> float:
        """FLOP/s of one GPU; without units for the precision it computes in BF16 and still reads fewer bytes."""
        return self.gpu.dense_flops.get(self.weights, self.gpu.dense_flops["bf16"])

    @property
    def resident_bytes(self) -> int:
        """The weights, once."""
        return self.shape.weight_bytes(self.weights)

    @property
    def read_bytes(self) -> float:
        """Weights that a decoding step reads: all but the embedding, of which it takes single rows."""
        head = self.shape.vocab_size * self.shape.hidden_size
        return self.shape.linear_parameters * BYTES[self.weights] + 2 * head

    @property
    def kv_bytes_per_token(self) -> int:
        return self.shape.kv_bytes_per_token(self.kv)

    def most_requests(self, tokens: float) -> float:
        """Requests of ``tokens`` on average that the memory holds, with nothing but the weights beside them."""
        free = self.count * self.gpu.memory_bytes - self.resident_bytes
        return max(1.0, free / (self.kv_bytes_per_token * tokens)) if tokens else math.inf


@dataclass(frozen=True)
class Bound:
    """A bound (tokens/s or seconds), what sets it, and the FLOPs and bytes that it follows from."""

    value: float
    limit: Limit
    flops: float
    bytes: float


def request_flops(shape: ModelShape, isl: int, osl: int) -> float:
    """FLOPs of one request, see above; ``osl`` 1: the prompt alone."""
    tokens = isl + osl - 1
    attention = 4 * shape.num_hidden_layers * shape.num_attention_heads * shape.head_dim * tokens * (tokens + 1) / 2
    return 2 * shape.linear_parameters * tokens + 2 * shape.hidden_size * shape.vocab_size * osl + attention


def throughput(machine: Machine, isl: int, osl: int, requests: float) -> Bound:
    """Output tokens/s of all GPUs together with ``requests`` in flight; the numbers are per output token."""
    context = _sum(isl + 1, isl + osl - 1) * machine.kv_bytes_per_token
    read = ((osl - 1) * machine.read_bytes / requests + context) / osl
    return _rate(_time(machine, request_flops(machine.shape, isl, osl) / osl, read))


def decode_throughput(machine: Machine, context: float, requests: float) -> Bound:
    """As :func:`throughput` without the prompts' own work, for requests of ``context`` tokens on average."""
    read = machine.read_bytes / requests + context * machine.kv_bytes_per_token
    return _rate(_time(machine, _token_flops(machine.shape, context), read))


def token_time(machine: Machine, context: float, requests: float) -> Bound:
    """Seconds between two tokens of a request while ``requests`` of ``context`` tokens each decode together."""
    read = machine.read_bytes + requests * machine.kv_bytes_per_token * context
    return _time(machine, requests * _token_flops(machine.shape, context), read)


def first_token_time(machine: Machine, isl: int) -> Bound:
    """Seconds of a prompt of ``isl`` tokens alone on the machine."""
    return _time(machine, request_flops(machine.shape, isl, 1), machine.read_bytes)


def _token_flops(shape: ModelShape, context: float) -> float:
    linear = 2 * (shape.linear_parameters + shape.hidden_size * shape.vocab_size)
    return linear + 4 * shape.num_hidden_layers * shape.num_attention_heads * shape.head_dim * context


def _sum(first: int, last: int) -> int:
    """first + ... + last; 0 if there is nothing between them."""
    return (last - first + 1) * (first + last) // 2 if last >= first else 0


def _time(machine: Machine, flops: float, read: float) -> Bound:
    compute = flops / (machine.count * machine.gpu_peak)
    bandwidth = read / (machine.count * machine.gpu.bandwidth_bytes_per_s)
    return Bound(max(compute, bandwidth), "compute" if compute >= bandwidth else "bandwidth", flops, read)


def _rate(time: Bound) -> Bound:
    return Bound(1 / time.value, time.limit, time.flops, time.bytes)


BATCHES = (1, 8, 64)


class StepPoint(Record):
    """One engine step. ``tokens``: computed in it, of a decode step one for each sequence of the batch."""

    kind: Literal["decode", "prefill"]
    tokens: int
    step_ms: Figure
    flops_per_byte: Figure
    flops_per_s_per_gpu: Figure

    @property
    def name(self) -> str:
        """In a few words, for a plot."""
        return f"decode, batch {self.tokens}" if self.kind == "decode" else f"prefill, {self.tokens} tokens"


class Roofline(Record):
    """The roofs of one GPU, from its data sheet, and steps below them. ``peaks_flops_per_s``: dense, by precision."""

    gpu: str
    bandwidth_bytes_per_s: float
    peaks_flops_per_s: dict[str, float]
    points: tuple[StepPoint, ...]

    def ridge_flops_per_byte(self, precision: str) -> float:
        """Where bandwidth stops being the lower roof and the peak of ``precision`` begins."""
        return self.peaks_flops_per_s[precision] / self.bandwidth_bytes_per_s

    def roof_flops_per_s(self, flops_per_byte: float, precision: str) -> float:
        """The most that a GPU can compute at this intensity."""
        return min(self.peaks_flops_per_s[precision], flops_per_byte * self.bandwidth_bytes_per_s)


def roofline_of(
    case: Case, *, batches: Sequence[int] | None = None, prefill_tokens: Sequence[int] | None = None
) -> Roofline:
    """Decode steps of ``batches`` sequences half-way through their answers, and steps of prompts alone.

    ``batches``: by default 1, 8, 64 and the most that a replica holds. ``prefill_tokens``: prompt tokens in a step, of
    whole prompts of the case's mean length where they fit; by default ``max_num_tokens``, a full step. The GPU is as
    slow as the power limit makes it under the case's load. :class:`UsageError` for a step that the case's memory or its
    limits do not allow.
    """
    asked = resolve(case)
    most, full = min(asked.memory.sequences, case.max_batch_size), case.max_num_tokens
    batches = (*(batch for batch in BATCHES if batch < most), most) if batches is None else batches
    steps = (full,) if prefill_tokens is None else prefill_tokens
    _allow("batch", batches, most, "what the memory and max_batch_size hold")
    _allow("prefill_tokens", steps, full, "max_num_tokens of an engine step")
    gpu = asked.case.hardware
    return Roofline(
        gpu=gpu.name,
        bandwidth_bytes_per_s=gpu.bandwidth_bytes_per_s,
        peaks_flops_per_s=gpu.dense_flops,
        points=(*(_decode(asked, batch) for batch in batches), *(_prefill(asked, tokens) for tokens in steps)),
    )


def _allow(name: str, values: Sequence[int], most: int, limit: str) -> None:
    for value in values:
        if not 1 <= value <= most:
            raise UsageError(
                f"{name} {value} is no step of this engine", why=f"{most} is {limit}", fix=f"use 1 to {most}"
            )


def _decode(asked: ResolvedCase, batch: int) -> StepPoint:
    isl, osl = asked.mean_lengths
    context = round(isl + (osl + 1) / 2)
    work = token_time(_machine(asked.case), context, batch)
    return _point(asked, "decode", batch, StepLoad(batch, batch * context), work.flops, work.bytes)


def _prefill(asked: ResolvedCase, tokens: int) -> StepPoint:
    machine = _machine(asked.case)
    prompt = min(tokens, round(asked.mean_lengths[0]))
    prompts = tokens / prompt
    load = StepLoad(
        prefill_tokens=tokens,
        prefill_pairs=tokens * (prompt + 1) / 2,
        prefill_sequences=round(prompts),
    )
    flops = prompts * request_flops(machine.shape, prompt, 1)
    return _point(asked, "prefill", tokens, load, flops, machine.read_bytes)


def _point(
    asked: ResolvedCase,
    kind: Literal["decode", "prefill"],
    tokens: int,
    load: StepLoad,
    flops: float,
    moved_bytes: float,
) -> StepPoint:
    seconds = asked.model.seconds(load)
    return StepPoint(
        kind=kind,
        tokens=tokens,
        step_ms=1e3 * seconds,
        flops_per_byte=flops / moved_bytes,
        flops_per_s_per_gpu=flops / (asked.case.world_size * seconds),
    )


def _machine(case: Case) -> Machine:
    """One replica."""
    return Machine(case.shape, case.hardware, case.world_size, case.weights, case.kv)
