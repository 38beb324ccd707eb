"""Cut the operation tables that the planner is fitted on down to the shapes of Llama-3, as small CSV files.

Two sources: NVIDIA's ``aiconfigurator-core`` wheel (Apache-2.0), whose tables are read by name and nothing else of it
is opened, and this project's own measurements on H200s. Needs pandas and pyarrow, which the project does not::

    pip install pandas pyarrow
    python benchmarks/planner/extract.py --wheel aiconfigurator_core-0.12.0-*.whl --own ../shared/data/hopper

What is written, and the columns of each file: ``benchmarks/planner/data/README.md``.
"""

import argparse
import csv
import io
import json
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"
TABLES = "aiconfigurator_core/systems/data/{gpu}/{room}/{engine}/{version}/{table}.parquet"
GPUS = {"h200_sxm": "h200", "h100_sxm": "h100-sxm", "l40s": "l40s", "a100_sxm": "a100-sxm"}  # theirs: ours
ENGINES = {"trtllm": "tensorrt-llm", "vllm": "vllm", "sglang": "sglang"}
NEWEST = {"trtllm": "1.3.0rc20", "vllm": "0.24.0", "sglang": "0.5.14"}
VERSIONS = {
    "h200_sxm": NEWEST,
    "h100_sxm": NEWEST,
    "l40s": {"trtllm": "1.3.0rc20", "vllm": "0.24.0"},
    "a100_sxm": {"trtllm": "1.0.0", "vllm": "0.14.0"},
}
ALL_REDUCE_VERSIONS = {"l40s": {"trtllm": "1.3.0rc20", "vllm": "0.22.0"}}
NCCL_VERSIONS = {"h200_sxm": "2.29.2", "h100_sxm": "2.29.2", "l40s": "2.27.3", "a100_sxm": "2.27.3"}

# What a rank multiplies by: rows n (outputs) x k (inputs), of Llama-3 8B and 70B at TP 1, 2, 4, 8.
MODELS = ((4096, 14336, 32, 8), (8192, 28672, 64, 8))  # hidden, intermediate, heads, KV heads; head size 128
VOCABULARY = 128256
TP = (1, 2, 4, 8)
TOKENS: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512, 768)
TOKENS += (1024, 1536, 2048, 3072, 4096, 8192, 16384)
CONTEXTS = (1, 15, 127, 255, 511, 1023, 2047, 4095, 8191, 16383, 32767)
PROMPTS = (16, 64, 128, 256, 512, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384)
DECODE_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
PROMPT_BATCHES = (1, 2, 4, 8, 16)
WIDTHS = (512, 1024, 1792, 2048, 3584, 4096, 7168, 8192, 14336, 16384)


def gemm_shapes() -> list[tuple[int, int]]:
    """(n, k) of every linear layer and of the vocabulary's, on one rank."""
    shapes = set()
    for hidden, intermediate, heads, kv_heads in MODELS:
        for tp in TP:
            shapes |= {
                (128 * (heads + 2 * kv_heads) // tp, hidden),
                (hidden, hidden // tp),
                (2 * intermediate // tp, hidden),
                (hidden, intermediate // tp),
                (VOCABULARY // tp, hidden),
            }
    return sorted(shapes)


def heads() -> list[tuple[int, int]]:
    """(query heads, KV heads) on one rank."""
    return sorted({(h // tp, kv // tp) for _, _, h, kv in MODELS for tp in TP})


def around(value: int, grid: Iterable[int]) -> set[int]:
    """The value itself where ``grid`` has it, else its two neighbours there; one at an end."""
    known = sorted(grid)
    if value in known:
        return {value}
    below = [point for point in known if point < value]
    above = [point for point in known if point > value]
    return set(below[-1:]) | set(above[:1])


def table(wheel: zipfile.ZipFile, gpu: str, room: str, engine: str, version: str, name: str) -> Any:
    """One table of the wheel as a data frame, by its name; None where the wheel has no such table."""
    try:
        import pandas
        import pyarrow  # noqa: F401 - what pandas reads parquet with
    except ImportError as error:
        raise SystemExit(f"{error.name} is missing; what to do: pip install pandas pyarrow") from error
    try:
        content = wheel.read(TABLES.format(gpu=gpu, room=room, engine=engine, version=version, table=name))
    except KeyError:
        return None
    return pandas.read_parquet(io.BytesIO(content))


def short(value: Any) -> str:
    """A time in microseconds with four digits; empty for none."""
    return "" if value is None or value != value else f"{float(value):.4g}"


def wide(frame: Any, keys: list[str], across: str, points: tuple[int, ...]) -> Iterator[list[str]]:
    """One row per ``keys``, one column per value of ``across``; milliseconds become microseconds."""
    pivot = frame[frame[across].isin(points)].pivot_table(index=keys, columns=across, values="latency", aggfunc="mean")
    for index, row in pivot.iterrows():
        key = index if isinstance(index, tuple) else (index,)
        times = [short(row[point] * 1e3) if point in row.index else "" for point in points]
        yield [*(f"{part:g}" if isinstance(part, float) else str(part) for part in key), *times]


def write(name: str, header: list[str], rows: Iterable[list[str]]) -> None:
    with (DATA / name).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        count = sum(1 for row in rows if writer.writerow(row))
    print(f"{name}: {count} rows, {(DATA / name).stat().st_size // 1024} KiB")


def gemm(wheel: zipfile.ZipFile) -> Iterator[list[str]]:
    for gpu, engine, version in pairs():
        frame = table(wheel, gpu, "gemm", engine, version, "gemm_perf")
        if frame is None:
            continue
        frame = frame[frame.gemm_dtype.isin(["bfloat16", "fp8"])]
        wanted = {
            (n, k)
            for shape in gemm_shapes()
            for n in around(shape[0], frame.n.unique())
            for k in around(shape[1], frame.k.unique())
        }
        frame = frame[[pair in wanted for pair in zip(frame.n, frame.k, strict=True)]]
        for row in wide(frame, ["gemm_dtype", "n", "k"], "m", TOKENS):
            yield [GPUS[gpu], ENGINES[engine], version, row[0].replace("bfloat16", "bf16"), *row[1:]]


def quantize(wheel: zipfile.ZipFile) -> Iterator[list[str]]:
    for gpu, engine, version in pairs():
        for name in ("computescale_perf", "scale_matrix_perf"):
            frame = table(wheel, gpu, "quantize", engine, version, name)
            if frame is None:
                continue
            frame = frame[frame.k.isin({k for width in WIDTHS for k in around(width, frame.k.unique())})]
            for row in wide(frame, ["k"], "m", TOKENS):
                yield [GPUS[gpu], ENGINES[engine], version, name.removesuffix("_perf"), *row]


def attention(wheel: zipfile.ZipFile, phase: str, across: str, points: tuple[int, ...]) -> Iterator[list[str]]:
    batches = DECODE_BATCHES if phase == "generation" else PROMPT_BATCHES
    for gpu, engine, version in pairs():
        frame = table(wheel, gpu, "attention", engine, version, f"{phase}_attention_perf")
        if frame is None:
            continue
        frame = frame[(frame.head_dim == 128) & frame.batch_size.isin(batches)]
        if "window_size" in frame:
            frame = frame[frame.window_size == 0]
        pairs_of_heads = zip(frame.num_heads, frame.num_key_value_heads, strict=True)
        frame = frame[[pair in heads() for pair in pairs_of_heads]]
        keys = ["attn_dtype", "kv_cache_dtype", "num_heads", "num_key_value_heads", "batch_size"]
        for row in wide(frame, keys, across, points):
            dtypes = [dtype.replace("bfloat16", "bf16") for dtype in row[:2]]
            yield [GPUS[gpu], ENGINES[engine], version, *dtypes, *row[2:]]


def all_reduce(wheel: zipfile.ZipFile) -> Iterator[list[str]]:
    """Custom all-reduces inside a CUDA graph, then NCCL's all-reduce and all-gather; sizes in bytes of bf16."""
    for gpu, engine, newest in pairs():
        version = ALL_REDUCE_VERSIONS.get(gpu, {}).get(engine, newest)
        frame = table(wheel, gpu, "comm", engine, version, "custom_allreduce_perf")
        if frame is None:
            continue
        if "backend" in frame:
            frame = frame[frame.backend.str.endswith("graph")]
        yield from _sizes(frame, GPUS[gpu], ENGINES[engine], version, "all_reduce")
    for gpu, version in NCCL_VERSIONS.items():
        frame = table(wheel, gpu, "comm", "nccl", version, "nccl_perf")
        if frame is None:
            continue
        for operation in ("all_reduce", "all_gather"):
            part = frame[(frame.op_name == operation) & (frame.nccl_dtype == "half")]
            yield from _sizes(part, GPUS[gpu], "nccl", version, operation)


def _sizes(frame: Any, gpu: str, engine: str, version: str, operation: str) -> Iterator[list[str]]:
    times = frame.groupby(["num_gpus", "message_size"]).latency.mean()
    for (gpus, elements), milliseconds in times.items():
        yield [gpu, engine, version, operation, str(gpus), str(2 * elements), short(milliseconds * 1e3)]


def pairs() -> list[tuple[str, str, str]]:
    return [(gpu, engine, version) for gpu, engines in VERSIONS.items() for engine, version in engines.items()]


def own_gemm(own: Path) -> Iterator[list[str]]:
    """This project's own GEMM times on one H200, both runs averaged."""
    times: dict[tuple[str, int, int, int], list[float]] = {}
    for name in ("gemm.csv", "gemm_second_run.csv"):
        with (own / name).open(encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if row["us"]:
                    key = (row["mode"], int(row["N"]), int(row["K"]), int(row["M"]))
                    times.setdefault(key, []).append(float(row["us"]))
    for (mode, n, k, m), values in sorted(times.items()):
        yield [mode, str(n), str(k), str(m), short(sum(values) / len(values))]


def own_attention(own: Path) -> Iterator[list[str]]:
    rows = json.loads((own / "attention.json").read_text(encoding="utf-8"))["rows"]
    for row in rows:
        if row["impl"] == "fa3":
            yield [row["model"], row["phase"], str(row["batch"]), str(row["seq"]), row["dtype"], short(row["us"])]


def own_all_reduce(own: Path) -> Iterator[list[str]]:
    with (own / "tp2" / "allreduce.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            yield [row["bytes"], short(row["nccl_graph_us"] or None), short(row["custom_graph_us"] or None)]


def own_kernels(own: Path) -> Iterator[list[str]]:
    """Kernels of whole vLLM steps on the H200s that take at least 0.02 % of the step; names cut to 120 characters."""
    for folder, tp in ((own / "kernels", 1), (own / "tp2" / "kernels", 2)):
        for path in sorted(folder.glob("*.csv")):
            if "eager" in path.name or "online" in path.name or "rank1" in path.name:
                continue
            with path.open(encoding="utf-8") as file:
                rows = list(csv.DictReader(file))
            total = sum(float(row["us_per_step"]) for row in rows)
            for row in rows:
                if float(row["us_per_step"]) > 2e-4 * total:
                    yield [path.stem, str(tp), row["kernel"][:120], row["calls"], short(row["us_per_step"])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--wheel", type=Path, required=True, help="aiconfigurator_core-0.12.0-*.whl")
    parser.add_argument("--own", type=Path, required=True, help="the folder of this project's measurements on H200s")
    given = parser.parse_args()
    start = ["gpu", "engine", "version"]
    tokens = [f"m{m}" for m in TOKENS]
    with zipfile.ZipFile(given.wheel) as wheel:
        write("gemm.csv", [*start, "precision", "n", "k", *tokens], gemm(wheel))
        write("quantize.csv", [*start, "operation", "k", *tokens], quantize(wheel))
        head = [*start, "attention", "kv", "heads", "kv_heads", "batch"]
        contexts = [f"s{s}" for s in CONTEXTS]
        write("attention_decode.csv", [*head, *contexts], attention(wheel, "generation", "step", CONTEXTS))
        prompts = [f"s{s}" for s in PROMPTS]
        write("attention_prefill.csv", [*head, *prompts], attention(wheel, "context", "isl", PROMPTS))
        write("all_reduce.csv", [*start, "operation", "gpus", "bytes", "us"], all_reduce(wheel))
    write("own_gemm.csv", ["mode", "n", "k", "m", "us"], own_gemm(given.own))
    write("own_attention.csv", ["model", "phase", "batch", "tokens", "dtype", "us"], own_attention(given.own))
    write("own_all_reduce.csv", ["bytes", "nccl_us", "custom_us"], own_all_reduce(given.own))
    write("own_kernels.csv", ["step", "tp", "kernel", "calls", "us"], own_kernels(given.own))


if __name__ == "__main__":
    main()
