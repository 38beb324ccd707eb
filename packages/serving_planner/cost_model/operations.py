"""The time of one operation on one GPU: t = t0 + floor / efficiency, with the few terms that the kernels add to it.

Every law is a small frozen class over constants that ``benchmarks/planner/fit.py`` takes from operation tables
(``data/constants.yml``); where a GPU was measured at the very shapes, tables beside it (``data/gemm_factors.csv``,
``data/decode_attention.csv``) correct the law. Units: microseconds, bytes, FLOPs; M is the number of tokens in a step.
"""

import math
from bisect import bisect_right
from dataclasses import dataclass
from typing import Literal, NamedTuple

Limit = Literal["compute", "bandwidth", "link", "overhead"]
SHORTEST_SPAN = 128  # keys: a decode kernel takes the cache in tiles of this many


class OpTime(NamedTuple):
    """What an operation takes, the least that it can take, and what sets the difference or the time itself.

    ``limit``: the roofline that binds, or ``overhead`` where more than half of the time is none of it.
    """

    seconds: float
    floor_seconds: float
    limit: Limit


@dataclass(frozen=True, slots=True)
class Chip:
    """The rooflines of one GPU: bytes/s of its memory and its link (one direction), dense FLOP/s, cache bytes."""

    bandwidth: float
    flops: float  # of the precision that multiplies
    attention_flops: float  # of BF16
    link: float


def op_time(us: float, floor_us: float, limit: Limit) -> OpTime:
    """Seconds from microseconds; a time below its floor is raised to it."""
    us = max(us, floor_us)
    return OpTime(us * 1e-6, floor_us * 1e-6, limit if us < 2 * floor_us else "overhead")


def total(times: list[OpTime], repeat: int = 1) -> OpTime:
    """Operations one after the other, ``repeat`` times over; the limit is that of the longest kind."""
    seconds = sum(time.seconds for time in times)
    by_limit: dict[Limit, float] = {}
    for time in times:
        by_limit[time.limit] = by_limit.get(time.limit, 0.0) + time.seconds
    limit = max(by_limit, key=lambda name: by_limit[name]) if by_limit else "overhead"
    return OpTime(repeat * seconds, repeat * sum(time.floor_seconds for time in times), limit)


@dataclass(frozen=True, slots=True)
class GemmLaw:
    """M x k activations times k x n weights, BF16 out.

    ``t0_us``: launch, first loads, epilogue. ``depth_us``: per 1024 of k, the loop of a tile that nothing hides when
    there are few tiles. ``ramp_us``: the same in the compute-bound regime (filling the pipeline, the last wave).
    Memory and compute overlap imperfectly where they are alike: their p-norm, p = ``sharpness``.
    """

    t0_us: float
    bandwidth_efficiency: float
    compute_efficiency: float
    depth_us: float
    ramp_us: float
    sharpness: float

    def floors(self, n: int, k: int, m: int, width: int, chip: Chip) -> tuple[float, float]:
        """Microseconds at the peak bandwidth and at the peak FLOP/s; ``width``: bytes of a weight and an activation."""
        return (n * k * width + m * k * width + 2 * m * n) / chip.bandwidth * 1e6, 2e6 * n * k * m / chip.flops

    def us(self, n: int, k: int, m: int, width: int, chip: Chip) -> float:
        memory, compute = self.floors(n, k, m, width, chip)
        memory /= self.bandwidth_efficiency
        compute = compute / self.compute_efficiency + self.ramp_us * k / 1024
        longer, shorter = (memory, compute) if memory > compute else (compute, memory)
        overlap: float = longer * (1 + (shorter / longer) ** self.sharpness) ** (1 / self.sharpness)
        return self.t0_us + self.depth_us * k / 1024 + overlap

    def time(self, n: int, k: int, m: int, width: int, chip: Chip, factor: float = 1.0) -> OpTime:
        """``factor``: measured over law at this shape, where it was measured."""
        memory, compute = self.floors(n, k, m, width, chip)
        limit: Limit = "compute" if compute > memory else "bandwidth"
        return op_time(factor * self.us(n, k, m, width, chip), max(memory, compute), limit)


@dataclass(frozen=True, slots=True)
class DecodeLaw:
    """One query token a sequence over its paged cache: x = the microseconds of reading keys and values at peak.

    ``row_us``: per 128 (sequence, KV head) pairs, each at least one block of threads. ``doubling_us``: per doubling of
    the context, which splits it among more blocks whose results are combined. ``ramp_us`` x / (x + ``ramp_half_us``):
    bandwidth is not reached until enough loads are in flight.
    """

    t0_us: float
    row_us: float
    doubling_us: float
    ramp_us: float
    ramp_half_us: float
    bandwidth_efficiency: float

    def us(self, rows: float, context: float, read_us: float) -> float:
        """``rows``: sequences x KV heads on this GPU; ``context``: keys of one sequence, the mean where they differ."""
        ramp = self.ramp_us * read_us / (read_us + self.ramp_half_us)
        spread = self.doubling_us * math.log2(max(context, SHORTEST_SPAN) / SHORTEST_SPAN)
        return self.t0_us + self.row_us * rows / 128 + spread + ramp + read_us / self.bandwidth_efficiency


@dataclass(frozen=True, slots=True)
class PrefillLaw:
    """Causal attention of prompt tokens, with rotary embedding and cache write where the engine fuses them in.

    ``token_us``: per 1024 tokens and head (query and KV heads alike), loads, rotary, stores. ``tile``: keys computed
    for each query beyond the causal ones, as blocks of the diagonal are computed whole. ``span_us``: per 1024 keys of
    the last query, the longest block of threads that the others wait for.
    """

    t0_us: float
    token_us: float
    compute_efficiency: float  # of the BF16 peak, also where the products are in FP8
    tile: float
    span_us: float

    def us(self, tokens: float, pairs: float, heads: int, kv_heads: int, head_dim: int, chip: Chip) -> float:
        """``pairs``: (query, key) pairs under the causal mask, summed over the prompts or chunks."""
        if not tokens:
            return 0.0
        flops = 4 * head_dim * heads * (pairs + self.tile * tokens)
        spread = self.token_us * tokens * (heads + 2 * kv_heads) + self.span_us * 2 * pairs / tokens
        return self.t0_us + spread / 1024 + flops / chip.attention_flops / self.compute_efficiency * 1e6

    def floor_us(self, pairs: float, heads: int, head_dim: int, chip: Chip) -> float:
        """The two products alone; ``chip.flops`` where keys and values are in FP8 and the kernel may multiply so."""
        return 4 * head_dim * heads * pairs / chip.attention_flops * 1e6


@dataclass(frozen=True, slots=True)
class AllReduceLaw:
    """The sum over p GPUs of T x hidden BF16 values: the fastest of three ways.

    One-shot: every GPU reads the p - 1 others whole. Two-shot: each sums a share and gathers the rest,
    2 (p - 1) / p of the message. NCCL: the same amount over rings or in the switch, after a longer start.
    A way without constants starts after an infinite time: no measured size took it.
    """

    gpus: int
    one_shot_us: float = math.inf
    one_shot_efficiency: float = 1.0
    two_shot_us: float = math.inf
    two_shot_efficiency: float = 1.0
    nccl_us: float = math.inf
    nccl_efficiency: float = 1.0

    def us(self, message_bytes: float, chip: Chip) -> float:
        return min(self.ways(message_bytes, chip).values())

    def ways(self, message_bytes: float, chip: Chip) -> dict[str, float]:
        """Microseconds of each way that has constants."""
        p, pass_us = self.gpus, message_bytes / chip.link * 1e6
        shared = 2 * (p - 1) / p * pass_us
        every = {
            "one_shot": self.one_shot_us + (p - 1) * pass_us / self.one_shot_efficiency,
            "two_shot": self.two_shot_us + shared / self.two_shot_efficiency,
            "nccl": self.nccl_us + shared / self.nccl_efficiency,
        }
        return {name: us for name, us in every.items() if us < math.inf}


@dataclass(frozen=True, slots=True)
class StreamLaw:
    """A kernel that reads and writes: norms, SwiGLU, quantization, rotary embedding, cache writes.

    ``row_us``: per 1024 values of one token's row, which one block of threads reduces. ``token_us``: per 1024 tokens,
    where a token has its own block and that, not bandwidth, sets the pace.
    """

    t0_us: float
    row_us: float
    token_us: float
    bandwidth_efficiency: float

    def us(self, row_values: float, tokens: int, moved_bytes: float, chip: Chip) -> float:
        moved = moved_bytes / chip.bandwidth * 1e6 / self.bandwidth_efficiency
        return self.t0_us + self.row_us * row_values / 1024 + self.token_us * tokens / 1024 + moved


@dataclass(frozen=True, slots=True)
class Curve:
    """Values measured at rising ``points``; between them a straight line in the logarithm of the point."""

    points: tuple[float, ...]
    values: tuple[float, ...]

    def at(self, point: float) -> float:
        """The end values outside the measured range."""
        upper = bisect_right(self.points, point)
        if upper == 0:
            return self.values[0]
        if upper == len(self.points):
            return self.values[-1]
        left, right = self.points[upper - 1], self.points[upper]
        share = math.log(point / left) / math.log(right / left)
        return self.values[upper - 1] + share * (self.values[upper] - self.values[upper - 1])


@dataclass(frozen=True, slots=True)
class Line:
    """Times measured at rising sizes: proportional between two of them, and beyond the last as its last two go on."""

    points: tuple[float, ...]
    values: tuple[float, ...]

    def at(self, point: float) -> float:
        """The first value below the first size."""
        if point <= self.points[0]:
            return self.values[0]
        upper = min(max(bisect_right(self.points, point), 1), len(self.points) - 1)
        left, right = self.points[upper - 1], self.points[upper]
        low, high = self.values[upper - 1], self.values[upper]
        return low + (point - left) / (right - left) * (high - low)


@dataclass(frozen=True, slots=True)
class DecodeTable:
    """Measured decode attention: microseconds by (sequence, KV head) pairs and context, straight lines between."""

    rows: tuple[float, ...]
    contexts: tuple[float, ...]
    us_by_row: tuple[tuple[float, ...], ...]

    def line(self, rows: float) -> Line:
        """Microseconds by context; beyond the measured rows as the last two go on, below them the first."""
        row, share = _place(self.rows, rows)
        pairs = zip(self.us_by_row[row], self.us_by_row[row + 1], strict=True)
        return Line(self.contexts, tuple(few + share * (many - few) for few, many in pairs))


def _place(points: tuple[float, ...], point: float) -> tuple[int, float]:
    """The interval that holds ``point`` (the last one beyond the end), and how far into it."""
    if point <= points[0]:
        return 0, 0.0
    left = min(max(bisect_right(points, point) - 1, 0), len(points) - 2)
    return left, (point - points[left]) / (points[left + 1] - points[left])
