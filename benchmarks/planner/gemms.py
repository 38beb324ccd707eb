"""GEMM times at the shapes of Llama-3 from two sources, and the law that fits them."""

import math
from collections.abc import Callable, Sequence
from functools import cache

from benchmarks.planner import tables as t
from benchmarks.planner.solve import chip, fit
from serving_planner.cost_model.operations import Chip, Curve, GemmLaw

SHIPPED_GPUS = ("h100-sxm", "h200")  # with tables of their own beside the laws
MODELS = ((4096, 14336, 32, 8), (8192, 28672, 64, 8))  # hidden, intermediate, query heads, KV heads
TP = (1, 2, 4, 8)


def layer_shapes() -> list[t.Shape]:
    """(n, k) of the four linear layers of Llama-3 8B and 70B on one rank."""
    shapes = set()
    for hidden, ff, heads, kv_heads in MODELS:
        for tp in TP:
            shapes |= {(128 * (heads + 2 * kv_heads) // tp, hidden), (hidden, hidden // tp)}
            shapes |= {(2 * ff // tp, hidden), (hidden, ff // tp)}
    return sorted(shapes)


def gemm_points(gpu: str, engine: str, precision: str) -> list[tuple[float, Callable[[GemmLaw], float]]]:
    """Cold shapes of the grid, up to 8192 tokens."""
    at, width = chip(gpu, precision), t.WIDTH[precision]
    return [
        (us, lambda law, n=shape[0], k=shape[1], m=m: law.us(n, k, m, width, at))  # type: ignore[misc]
        for shape, times in t.gemm(gpu, engine, precision).items()
        if not t.cached_weights(gpu, precision, shape) and shape[0] < 60000
        for m, us in times.items()
        if m <= 8192
    ]


def gemm_fit(points: list[tuple[float, Callable[[GemmLaw], float]]]) -> GemmLaw:
    return fit(GemmLaw, (3, 0.85, 0.7, 0.2, 0.2, 4), (0, 0.3, 0.3, 0, 0, 1.5), (15, 1, 1, 3, 5, 8), points)


@cache
def grid_law(gpu: str, engine: str, precision: str) -> GemmLaw:
    """The law of the wheel's times alone."""
    return gemm_fit(gemm_points(gpu, engine, precision))


def gemm_law(gpu: str, engine: str, precision: str) -> tuple[GemmLaw, list[tuple[float, Callable[[GemmLaw], float]]]]:
    """The law that ships, and what it is fitted to: the mended times at the shapes of Llama-3 where there are such."""
    if gpu not in SHIPPED_GPUS:
        law, points = grid_law(gpu, engine, precision), gemm_points(gpu, engine, precision)
    else:
        at, width = chip(gpu, precision), t.WIDTH[precision]
        points = [
            (us, lambda law, n=n, k=k, m=m: law.us(n, k, m, width, at))  # type: ignore[misc]
            for (n, k), times in mended(gpu, engine, precision).items()
            for m, us in times.items()
            if m <= 8192
        ]
        law = gemm_fit(points)
    return law, points


def on_grid(samples: t.Samples, law: GemmLaw, width: int, at: Chip, shape: t.Shape, m: int) -> float:
    """Measured over law at a shape, between the neighbours that the table has: linear in log n, then in log k."""

    def ratio(n: int, k: int) -> float:
        return samples[n, k][m] / law.us(n, k, m, width, at)

    widths = sorted({k for n, k in samples if m in samples[n, k]})
    below, above = _around(shape[1], widths)
    found = []
    for k in {below, above}:
        left, right = _around(shape[0], sorted(n for n, other in samples if other == k and m in samples[n, other]))
        value = ratio(left, k)
        if right != left:
            value += (ratio(right, k) - value) * math.log(shape[0] / left) / math.log(right / left)
        found.append((k, value))
    (k_low, low), (k_high, high) = min(found), max(found)
    if k_low == k_high:
        return low
    return low + (high - low) * math.log(shape[1] / k_low) / math.log(k_high / k_low)


def _around(value: float, known: Sequence[int]) -> tuple[int, int]:
    """The known values on both sides; twice the same at an end or at the value itself."""
    below = [point for point in known if point <= value]
    above = [point for point in known if point >= value]
    return (below or above)[-1 if below else 0], (above or below)[0 if above else -1]


@cache
def mended(gpu: str, engine: str, precision: str) -> t.Samples:
    """Times at the shapes of Llama-3, by tokens.

    The wheel's times at the neighbouring shapes, then the ratio to them of this project's own times on an H200, which
    are of the very shapes, with weights read from memory and nothing else timed; on an H100 that ratio is carried
    over. Two machines: the ratio is halved, so that the two are averaged. Not for vLLM's FP8, of which the wheel times
    other kernels too (tables.vllm_beside): there this project's times stand, which whole traced steps agree with.
    """
    law, at, width = grid_law(gpu, engine, precision), chip(gpu, precision), t.WIDTH[precision]
    samples, mode = t.gemm(gpu, engine, precision), t.OWN_MODE.get((engine, precision))
    tokens = sorted(next(iter(samples.values())))
    result = {}
    for shape in layer_shapes():
        times = {m: on_grid(samples, law, width, at, shape, m) * law.us(*shape, m, width, at) for m in tokens}
        own = t.own_gemm(mode)[shape] if mode else {}
        if own:
            points = sorted(own)
            curve = Curve(tuple(points), tuple(own_ratio(engine, precision, shape, m, own[m], gpu) for m in points))
            times = {m: us * curve.at(m) for m, us in times.items()}
        if (engine, precision) == ("vllm", "fp8") and gpu != "h200":
            times = {m: math.sqrt(us * as_on_h200(engine, precision, shape, m, gpu)) for m, us in times.items()}
        result[shape] = {
            m: max(us, law.time(*shape, m, width, at).floor_seconds * 1e6 / 0.95) for m, us in times.items()
        }
    return result


def as_on_h200(engine: str, precision: str, shape: t.Shape, m: int, gpu: str) -> float:
    """The law of ``gpu`` times what an H200 takes over its own law: the same kernels, on as many multiprocessors.

    vLLM's FP8 table of the H100 scatters by 15 % from one token count to the next; it is averaged with this.
    """
    width, (n, k) = t.WIDTH[precision], shape
    here = grid_law(gpu, engine, precision).us(n, k, m, width, chip(gpu, precision))
    there = grid_law("h200", engine, precision).us(n, k, m, width, chip("h200", precision))
    return here * mended("h200", engine, precision)[shape][m] / there


def own_ratio(engine: str, precision: str, shape: t.Shape, m: int, own_us: float, gpu: str) -> float:
    """How this project's time relates to the wheel's on an H200, as far as it is believed."""
    law, at, width = grid_law("h200", engine, precision), chip("h200", precision), t.WIDTH[precision]
    samples = t.gemm("h200", engine, precision)
    ratio = own_us / (on_grid(samples, law, width, at, shape, m) * law.us(*shape, m, width, at))
    if t.cached_weights("h200", precision, shape) and m <= 256 and ratio > 1:
        slower = t.GPUS["h200"]["bandwidth"] / t.GPUS[gpu]["bandwidth"]  # what was read from L2 must come from memory
        return min(1 + (ratio - 1) * slower, 2.0)
    believed = 1.0 if (engine, precision) == ("vllm", "fp8") else 0.5
    return min(max(float(ratio**believed), 0.7), 1.4)
