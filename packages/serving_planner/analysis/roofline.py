"""Where the steps of a plan lie under the roofs of their GPU: FLOP per byte against FLOP/s.

FLOPs and bytes of a step are those of :mod:`serving_planner.analysis.bound`: the products and the attention; the
weights once and the keys and values of every sequence. What moves besides (activations) is left out, so a point lies as
far to the right as any software could bring it. The time is the planned one (:mod:`serving_planner.cost_model.step`),
so the distance to the roof above a point is what planned software leaves unused. Everything is per GPU of one replica;
with a pipeline a step is that of one micro-batch on one stage.
"""

from collections.abc import Sequence
from typing import Literal

from serving_base.errors import UsageError
from serving_base.record import Record
from serving_planner.analysis.bound import Machine, request_flops, token_time
from serving_planner.case import Case
from serving_planner.cost_model.load import Load
from serving_planner.planned import Figure
from serving_planner.resolved import Asked, ask

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
    asked = ask(case)
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


def _decode(asked: Asked, batch: int) -> StepPoint:
    isl, osl = asked.mean_lengths
    context = round(isl + (osl + 1) / 2)
    work = token_time(_machine(asked.case), context, batch)
    return _point(asked, "decode", batch, Load(batch, batch * context), work.flops, work.bytes)


def _prefill(asked: Asked, tokens: int) -> StepPoint:
    machine = _machine(asked.case)
    prompt = min(tokens, round(asked.mean_lengths[0]))
    prompts = tokens / prompt
    load = Load(
        prefill_tokens=tokens,
        prefill_pairs=tokens * (prompt + 1) / 2,
        prefill_sequences=round(prompts),
    )
    flops = prompts * request_flops(machine.shape, prompt, 1)
    return _point(asked, "prefill", tokens, load, flops, machine.read_bytes)


def _point(
    asked: Asked, kind: Literal["decode", "prefill"], tokens: int, load: Load, flops: float, moved_bytes: float
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
