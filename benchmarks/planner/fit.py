"""Fit the planner's laws to operation tables, and say how well they fit.

    python benchmarks/planner/fit.py            # writes constants.yml and three tables to playbook/plan/data
    python benchmarks/planner/fit.py --check    # the error table alone

Opens ``benchmarks/planner/data/*.csv`` and nothing else; needs numpy and scipy. Every residual is a logarithm of
predicted over measured, so short and long operations count alike; a soft loss keeps single bad points from leading.
"""

import argparse
import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

import tables as t
from gemms import SHIPPED_GPUS, gemm_law, mended
from kernels import STREAMS, stream_samples
from solve import chip, errors, fit

from playbook.plan.operations import AllReduceLaw, DecodeLaw, GemmLaw, PrefillLaw, StreamLaw

OUT = Path(__file__).parents[2] / "playbook" / "plan" / "data"
KINDS = (("bf16", "bf16"), ("bf16", "fp8"), ("fp8", "fp8"))  # of the products, of the cache
Errors = dict[str, list[float]]  # relative errors by what was predicted


# Attention


def decode_points(gpu: str, engine: str, kv: str) -> list[tuple[float, Callable[[DecodeLaw], float]]]:
    at, found = chip(gpu), []
    for group in (4, 8):
        for (row, keys), us in t.decode(gpu, engine, kv, group).items():
            read = row * keys * 256 * t.WIDTH[kv] / at.bandwidth * 1e6
            found.append((us, lambda law, row=row, keys=keys, read=read: law.us(row, keys, read)))  # type: ignore[misc]
    return found


def decode_law(gpu: str, engine: str, kv: str) -> DecodeLaw | None:
    points = decode_points(gpu, engine, kv)
    if not points:
        return None
    high = (30, 10, 5, 60, 100, 1)
    return fit(DecodeLaw, (8, 0.5, 0.5, 5, 10, 0.9), (0, 0, 0, 0, 0.5, 0.3), high, points)


def decode_grid(gpu: str, engine: str, kv: str, group: int, law: DecodeLaw) -> Iterator[list[str]]:
    """The measured times on a full grid; what did not fit the memory of the benchmark is added at the law's slope."""
    found, at = t.decode(gpu, engine, kv, group), chip(gpu)
    keys_known = sorted({keys for _, keys in found})
    rows_known = sorted({row for row, _ in found})
    for row in rows_known:
        times: list[float] = []
        for keys in keys_known:
            us = found.get((row, keys))
            if us is None:
                least = max(r for r in rows_known if (r, keys) in found and r < row)
                more = (row - least) * keys * 256 * t.WIDTH[kv] / at.bandwidth * 1e6 / law.bandwidth_efficiency
                us = found[least, keys] + more
            times.append(us)
        yield [gpu, engine, kv, str(group), str(row), *(f"{us:.4g}" for us in times)]


def prefill_points(gpu: str, engine: str, attention: str, kv: str) -> list[tuple[float, Callable[[PrefillLaw], float]]]:
    at = chip(gpu)
    return [
        (us, lambda law, h=h, k=k, b=b, s=s: law.us(b * s, b * s * (s + 1) / 2, h, k, 128, at))  # type: ignore[misc]
        for h, k, b, s, us in t.prefill(gpu, engine, attention, kv)
        if s >= 64
    ]


def prefill_law(gpu: str, engine: str, attention: str, kv: str) -> PrefillLaw | None:
    points = prefill_points(gpu, engine, attention, kv)
    if not points:
        return None
    return fit(PrefillLaw, (14, 0.05, 0.6, 64, 5), (0, 0, 0.1, 0, 0), (50, 1, 1.2, 1500, 80), points)


# All-reduce and kernels that only read and write


def all_reduce_points(gpu: str, engine: str, gpus: int) -> list[tuple[float, Callable[[AllReduceLaw], float]]]:
    at = chip(gpu)
    times = t.all_reduce(gpu, engine, gpus)
    return [(us, lambda law, size=size: law.us(size, at)) for size, us in times.items() if size >= 4096]  # type: ignore[misc]


def all_reduce_law(gpu: str, engine: str, gpus: int) -> AllReduceLaw | None:
    points = all_reduce_points(gpu, engine, gpus)
    if not points:
        return None
    start, high = (3, 0.5, 8, 0.6, 15, 0.8), (80, 1, 120, 1, 120, 1)
    return fit(AllReduceLaw, start, (1, 0.01, 1, 0.01, 3, 0.01), high, points, gpus=gpus)


def stream_points(kind: str, precision: str) -> list[tuple[float, Callable[[StreamLaw], float]]]:
    at = chip("h200")
    return [
        (us, lambda law, row=row, m=m, moved=moved: law.us(row, m, moved, at))  # type: ignore[misc]
        for us, row, m, moved in stream_samples(kind, precision)
    ]


def stream_law(kind: str, precision: str) -> StreamLaw:
    by_row, by_token = STREAMS[kind].by_row, STREAMS[kind].by_token
    fixed: dict[str, float] = {} if by_row else {"row_us": 0.0}
    fixed |= {} if by_token else {"token_us": 0.0}
    start, low, high = [1.5], [0.3], [6.0]
    for free, bounds in ((by_row, (0.2, 0.0, 2.0)), (by_token, (3.0, 0.0, 30.0))):
        if free:
            start, low, high = [*start, bounds[0]], [*low, bounds[1]], [*high, bounds[2]]
    if by_token:  # few bytes: the block of each token sets the pace
        fixed["bandwidth_efficiency"] = 1.0
    else:
        start, low, high = [*start, 0.7], [*low, 0.2], [*high, 1.0]
    return fit(StreamLaw, start, low, high, stream_points(kind, precision), **fixed)


# What is written


def plain(law: Any) -> dict[str, float]:
    return {field.name: getattr(law, field.name) for field in fields(law)}


Found = tuple[tuple[Any, ...], Any, list[float]]  # where in constants.yml, what, errors


def gemm_laws(gpu: str, engine: str) -> Iterator[Found]:
    for precision in t.WIDTH:
        if t.gemm(gpu, engine, precision):
            law, wrong = gemm_law(gpu, engine, precision)
            yield ("gemm", engine, gpu, precision), plain(law), wrong


def attention_laws(gpu: str, engine: str) -> Iterator[Found]:
    for kv in t.WIDTH:
        decoded = decode_law(gpu, engine, kv)
        if decoded:
            wrong = errors(decoded, decode_points(gpu, engine, kv))
            yield ("attention_decode", engine, gpu, kv), plain(decoded), wrong
    for attention, kv in KINDS:
        filled = prefill_law(gpu, engine, attention, kv)
        if filled:
            wrong = errors(filled, prefill_points(gpu, engine, attention, kv))
            yield ("attention_prefill", engine, gpu, f"{attention}-{kv}"), plain(filled), wrong


def all_reduce_laws(gpu: str, engine: str) -> Iterator[Found]:
    for ranks in (2, 4, 8):
        law = all_reduce_law(gpu, engine, ranks)
        if law:
            yield ("all_reduce", engine, gpu, ranks), plain(law), errors(law, all_reduce_points(gpu, engine, ranks))


def stream_laws() -> Iterator[Found]:
    for kind, stream in STREAMS.items():
        for precision in stream.precisions:
            law = stream_law(kind, precision)
            moved = {row: values[precision] for row, values in stream.bytes_per_value.items() if values[precision]}
            entry = {"law": plain(law), "bytes": moved}
            yield ("stream", kind, precision), entry, errors(law, stream_points(kind, precision))


def fit_all(report: Errors, gpus: Sequence[str] = tuple(t.GPUS), engines: Sequence[str] = t.ENGINES) -> dict[str, Any]:
    """Every law of these GPUs and engines; ``report`` takes the errors."""
    jobs: list[Iterator[Found]] = [stream_laws()]
    for gpu in gpus:
        jobs += [all_reduce_laws(gpu, engine) for engine in (*engines, "nccl")]
        jobs += [job(gpu, engine) for engine in engines for job in (gemm_laws, attention_laws)]
    found: dict[str, Any] = {}
    for path, entry, wrong in chain.from_iterable(jobs):
        place = found
        for part in path[:-1]:
            place = place.setdefault(part, {})
        place[path[-1]] = entry
        report[" ".join(map(str, path))] = wrong
    return found


def write_csv(name: str, header: list[str], lines: Iterable[list[str]]) -> None:
    with (OUT / name).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(lines)


def factor_lines(found: dict[str, Any]) -> Iterator[list[str]]:
    """Mended over law, by shape and tokens."""
    for gpu in SHIPPED_GPUS:
        for engine in t.ENGINES:
            for precision in t.WIDTH:
                law = GemmLaw(**found["gemm"][engine][gpu][precision])
                at, width = chip(gpu, precision), t.WIDTH[precision]
                for (n, k), times in mended(gpu, engine, precision).items():
                    values = [f"{us / law.us(n, k, m, width, at):.3f}" for m, us in sorted(times.items())]
                    yield [gpu, engine, precision, str(n), str(k), *values]


def factor_header() -> list[str]:
    tokens = sorted(next(iter(t.gemm("h200", "vllm", "bf16").values())))
    return ["gpu", "engine", "precision", "n", "k", *(f"m{m}" for m in tokens)]


def decode_lines(found: dict[str, Any]) -> Iterator[list[str]]:
    for gpu in SHIPPED_GPUS:
        for engine in t.ENGINES:
            for kv in t.WIDTH:
                law = DecodeLaw(**found["attention_decode"][engine][gpu][kv])
                for group in (4, 8):
                    yield from decode_grid(gpu, engine, kv, group, law)


def all_reduce_lines() -> Iterator[list[str]]:
    for gpu in SHIPPED_GPUS:
        for engine, operation in (*((engine, "all_reduce") for engine in (*t.ENGINES, "nccl")), ("nccl", "all_gather")):
            for gpus in (2, 4, 8):
                for size, us in sorted(t.all_reduce(gpu, engine, gpus, operation).items()):
                    if size >= 4096:
                        yield [gpu, engine, operation, str(gpus), str(size), f"{us:.4g}"]


HEAD = """\
# Written by benchmarks/planner/fit.py; do not edit. The laws: playbook/plan/operations.py. Microseconds.
# Fitted on operation tables only: aiconfigurator-core 0.12.0 (PyPI, NVIDIA, Apache-2.0), systems/data/<gpu>/
# {gemm,attention,comm,quantize}, TensorRT-LLM 1.3.0rc20 (A100: 1.0.0), vLLM 0.24.0 (A100: 0.14.0), SGLang 0.5.14; and
# this project's own times on one and two H200s (2026-11-20). Files and columns: benchmarks/planner/data/README.md.
"""


def write(found: dict[str, Any]) -> None:
    import yaml

    text = yaml.safe_dump(found, sort_keys=False, default_flow_style=None, width=140)
    (OUT / "constants.yml").write_text(HEAD + text, encoding="utf-8")
    write_csv("gemm_factors.csv", factor_header(), factor_lines(found))
    keys = sorted({keys for _, keys in t.decode("h200", "vllm", "bf16", 8)})
    write_csv(
        "decode_attention.csv", ["gpu", "engine", "kv", "group", "rows", *(f"s{k}" for k in keys)], decode_lines(found)
    )
    write_csv("all_reduce.csv", ["gpu", "engine", "operation", "gpus", "bytes", "us"], all_reduce_lines())


def show(report: Errors) -> None:
    print(f"{'operation':76} {'n':>5} {'bias %':>7} {'median %':>9} {'p90 %':>6}")
    for name, values in report.items():
        sizes = sorted(abs(value) for value in values)
        figures = (median(values), sizes[len(sizes) // 2], sizes[int(0.9 * (len(sizes) - 1))])
        print(f"{name:76} {len(values):5} {100 * figures[0]:+7.1f} {100 * figures[1]:9.1f} {100 * figures[2]:6.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Fit the planner's laws to operation tables.")
    parser.add_argument("--check", action="store_true", help="print the errors, write nothing")
    given = parser.parse_args()
    report: Errors = {}
    found = fit_all(report)
    if not given.check:
        write(found)
    show(report)


if __name__ == "__main__":
    main()
