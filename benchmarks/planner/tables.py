"""The operation tables of ``benchmarks/planner/data`` as samples for the laws, cleaned where they need it.

Everything is opened through :func:`rows`. What is cleaned, and why, is said at each function; microseconds throughout.
"""

import csv
import math
from collections import defaultdict
from functools import cache
from pathlib import Path
from statistics import median

from serving_base.facts.gpus import known_gpu

DATA = Path(__file__).parent / "data"
L2_BYTES = {"h200": 60e6, "h100-sxm": 50e6, "l40s": 96e6, "a100-sxm": 40e6}  # last-level cache


def _rates(name: str) -> dict[str, float]:
    """bytes/s, FLOP/s and bytes/s of a link in one direction; FP8 at BF16's peak where a GPU has none of its own."""
    gpu = known_gpu(name)
    peaks = {"bf16": gpu.dense_flops["bf16"], "fp8": gpu.dense_flops.get("fp8", gpu.dense_flops["bf16"])}
    return {"bandwidth": gpu.bandwidth_bytes_per_s, "link": gpu.link_bytes_per_s, "l2": L2_BYTES[name], **peaks}


GPUS = {name: _rates(name) for name in L2_BYTES}
ENGINES = ("tensorrt-llm", "vllm", "sglang")
WIDTH = {"bf16": 2, "fp8": 1}
COPIES = 5  # weights that the wheel's benchmark goes round: with fewer bytes than the cache they are read from it
OWN_MODE = {  # the kernels of this project's own GEMM runs on an H200 that an engine uses
    ("tensorrt-llm", "bf16"): "bf16",
    ("vllm", "bf16"): "bf16",
    ("sglang", "bf16"): "bf16",
    ("tensorrt-llm", "fp8"): "fp8_fast",
    ("vllm", "fp8"): "fp8_vllm_cutlass",
}
COOL = 2048  # tokens: longer products in a loop hold an H200 at its power limit, and two machines differ in that

Shape = tuple[int, int]
Samples = dict[Shape, dict[int, float]]


def tables() -> dict[str, Path]:
    """The only files that fitting opens."""
    return {path.stem: path for path in sorted(DATA.glob("*.csv"))}


@cache
def rows(name: str) -> list[dict[str, str]]:
    """One table, row by row."""
    with tables()[name].open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def across(row: dict[str, str], letter: str) -> dict[int, float]:
    """The columns ``m1, m2 ...`` or ``s1, s15 ...`` of a row that hold a time."""
    return {
        int(key[1:]): float(value) for key, value in row.items() if key[0] == letter and key[1:].isdigit() and value
    }


@cache
def quantize_us(gpu: str, engine: str, operation: str) -> dict[int, dict[int, float]]:
    """Times of ``computescale`` or ``scale_matrix`` by width and tokens; empty where there is no such table."""
    key = (gpu, engine, operation)
    return {
        int(row["k"]): across(row, "m")
        for row in rows("quantize")
        if (row["gpu"], row["engine"], row["operation"]) == key
    }


def _at_width(table: dict[int, dict[int, float]], k: int, m: int) -> float:
    """The time at the nearest measured width, scaled to ``k`` where bytes and not the launch set it."""
    if not table:
        return 0.0
    width = min(table, key=lambda known: abs(math.log(known / k)))
    start = table[width][1]
    return start + max(0.0, table[width][m] - start) * k / width


def _raw(gpu: str, engine: str, precision: str) -> Samples:
    """The GEMM table as collected, less the kernels beside the GEMM that it times.

    TensorRT-LLM's FP8 layer was timed with dynamic scales: finding the scale (``computescale``) and applying it
    (``scale_matrix``) are tables of their own and are taken off; a served model has static scales, and where a
    separate kernel applies them it is counted among the element-wise ones. SGLang's times the product alone.
    """
    result: Samples = {}
    for row in rows("gemm"):
        if (row["gpu"], row["engine"], row["precision"]) != (gpu, engine, precision):
            continue
        n, k, times = int(row["n"]), int(row["k"]), across(row, "m")
        if precision == "fp8" and engine == "tensorrt-llm":
            for m in times:
                kernels = ("computescale", "scale_matrix")
                beside = sum(_at_width(quantize_us(gpu, engine, kernel), k, m) for kernel in kernels)
                times[m] = max(times[m] - beside, 0.3 * times[m])
        result[n, k] = times
    return result


@cache
def own_gemm(mode: str) -> Samples:
    """This project's own GEMM times on one H200, at the very shapes of Llama-3 and with weights out of the cache."""
    result: Samples = defaultdict(dict)
    for row in rows("own_gemm"):
        if row["mode"] == mode:
            result[int(row["n"]), int(row["k"])][int(row["m"])] = float(row["us"])
    return dict(result)


@cache
def vllm_beside() -> tuple[float, float]:
    """What vLLM's FP8 table times besides the GEMM: (launch us, passes over the activations and the output).

    Its layer ran uncompiled: a kernel quantizes the activations (3 bytes a value) and the output is copied once more
    (4 bytes a value). Fitted as the difference to the same GEMM alone, timed on an H200 by this project.
    """
    mine, theirs = own_gemm("fp8_vllm_cutlass"), _raw("h200", "vllm", "fp8")
    pairs = []
    for shape in mine.keys() & theirs.keys():
        for m in mine[shape].keys() & theirs[shape].keys():
            if m <= COOL:
                moved = m * (3 * shape[1] + 4 * shape[0]) / GPUS["h200"]["bandwidth"] * 1e6
                pairs.append((moved, theirs[shape][m] - mine[shape][m]))
    launch = median(gap for moved, gap in pairs if moved < 0.3)
    return launch, median((gap - launch) / moved for moved, gap in pairs if moved > 5)


def _median(tables_of_engines: list[Samples]) -> Samples:
    first = tables_of_engines[0]
    return {
        shape: {m: median(found[shape][m] for found in tables_of_engines if m in found.get(shape, {})) for m in times}
        for shape, times in first.items()
    }


@cache
def gemm(gpu: str, engine: str, precision: str) -> Samples:
    """Times of the GEMM alone by (n, k) and tokens, on the grid of shapes that the wheel's tables have.

    In BF16 every engine calls cuBLAS: the median of their tables, as single times scatter by 10 % and more.
    """
    if precision == "bf16" and _raw(gpu, engine, precision):
        return _median([found for other in ENGINES if (found := _raw(gpu, other, precision))])
    samples = _raw(gpu, engine, precision)
    if precision == "fp8" and engine == "vllm" and samples:
        launch, passes = vllm_beside()
        for (n, k), times in samples.items():
            for m in times:
                moved = m * (3 * k + 4 * n) / GPUS[gpu]["bandwidth"] * 1e6
                times[m] = max(times[m] - launch - passes * moved, 0.3 * times[m])
    return samples


def cached_weights(gpu: str, precision: str, shape: Shape) -> bool:
    """Whether the wheel's benchmark went round so few bytes that it read the weights from the last-level cache."""
    return COPIES * shape[0] * shape[1] * WIDTH[precision] < 1.1 * GPUS[gpu]["l2"]


def cold_read_us(gpu: str, kv_bytes: float) -> float:
    """What reading the KV cache from memory adds to a time measured with the cache's lines still in L2.

    The tables replay one call, so keys and values below the size of L2 stay in it; between two attention layers of a
    model the weights of a whole layer pass through it. Reading from L2 was found to take 0.6 of the peak-bandwidth
    time less (the step in FlashAttention-3's times where the cache outgrows L2); the saving fades out around L2's size.
    """
    l2 = GPUS[gpu]["l2"]
    share = min(1.0, max(0.0, (1.2 * l2 - kv_bytes) / (0.6 * l2)))
    return 0.6 * share * kv_bytes / GPUS[gpu]["bandwidth"] * 1e6


@cache
def decode(gpu: str, engine: str, kv: str, group: int) -> dict[tuple[int, int], float]:
    """Decode attention by (sequences x KV heads, keys), of ``group`` query heads a KV head; cache cold.

    One pair of sequence and KV head is one unit of work, so tables of several head counts are averaged.
    """
    found: dict[tuple[int, int], list[float]] = defaultdict(list)
    for row in rows("attention_decode"):
        heads, kv_heads, batch = int(row["heads"]), int(row["kv_heads"]), int(row["batch"])
        if (row["gpu"], row["engine"], row["kv"]) == (gpu, engine, kv) and heads == group * kv_heads:
            for step, us in across(row, "s").items():
                keys = step + 1
                kv_bytes = batch * kv_heads * keys * 256 * WIDTH[kv]
                found[batch * kv_heads, keys].append(us + cold_read_us(gpu, kv_bytes))
    return {key: median(values) for key, values in found.items()}


@cache
def prefill(gpu: str, engine: str, attention: str, kv: str) -> list[tuple[int, int, int, int, float]]:
    """Prefill attention: (query heads, KV heads, prompts, tokens of each, us)."""
    found = []
    for row in rows("attention_prefill"):
        key = (row["gpu"], row["engine"], row["attention"], row["kv"])
        if key == (gpu, engine, attention, kv):
            head = (int(row["heads"]), int(row["kv_heads"]), int(row["batch"]))
            found += [(*head, tokens, us) for tokens, us in across(row, "s").items()]
    return found


@cache
def all_reduce(gpu: str, engine: str, gpus: int, operation: str = "all_reduce") -> dict[int, float]:
    """An all-reduce (or NCCL's all_gather: bytes of the result) inside a CUDA graph, by bytes."""
    key = (gpu, engine, operation, str(gpus))
    return {
        int(row["bytes"]): float(row["us"])
        for row in rows("all_reduce")
        if (row["gpu"], row["engine"], row["operation"], row["gpus"]) == key
    }
