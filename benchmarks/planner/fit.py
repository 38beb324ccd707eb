"""Fit the planner's laws to operation tables, and say how well they fit.

    python benchmarks/planner/fit.py            # writes constants.yml and three tables to packages/serving_planner/data
    python benchmarks/planner/fit.py --check    # the error table alone

Opens ``benchmarks/planner/data/*.csv`` and nothing else; needs numpy and scipy. Every residual is a logarithm of
predicted over measured, so short and long operations count alike; a soft loss keeps single bad points from leading.
"""

import argparse
import csv
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from benchmarks.planner import all_reduce  # noqa: E402
from benchmarks.planner import tables as t  # noqa: E402
from benchmarks.planner.gemms import SHIPPED_GPUS, gemm_law, mended  # noqa: E402
from benchmarks.planner.kernels import STREAMS, stream_samples  # noqa: E402
from benchmarks.planner.solve import chip, cost, errors, fit  # noqa: E402
from serving_planner.cost_model.operations import DecodeLaw, GemmLaw, PrefillLaw, StreamLaw  # noqa: E402

OUT = ROOT / "packages" / "serving_planner" / "data"
KINDS = (("bf16", "bf16"), ("bf16", "fp8"), ("fp8", "fp8"))  # of the products, of the cache
Errors = dict[str, list[float]]  # relative errors by what was predicted
Points = list[tuple[float, Callable[[Any], float]]]  # (measured us, law -> predicted us)


# Attention


def decode_points(gpu: str, engine: str, kv: str) -> Points:
    at = chip(gpu)
    found: Points = []
    for group in (4, 8):
        for (row, keys), us in t.decode(gpu, engine, kv, group).items():
            read = row * keys * 256 * t.WIDTH[kv] / at.bandwidth * 1e6
            found.append((us, lambda law, row=row, keys=keys, read=read: law.us(row, keys, read)))  # type: ignore[misc]
    return found


def decode_law(gpu: str, engine: str, kv: str) -> DecodeLaw | None:
    """Without a ramp where it brings nothing: its half would be what the optimizer left, another on each processor."""
    points = decode_points(gpu, engine, kv)
    if not points:
        return None
    start, low, high = (8, 0.5, 0.5, 5, 10, 0.9), (0, 0, 0, 0, 0.5, 0.3), (30, 10, 10, 60, 100, 1)
    whole = fit(DecodeLaw, start, low, high, points)
    no_ramp: dict[str, float] = {"ramp_us": 0.0, "ramp_half_us": 1.0}
    plain = fit(DecodeLaw, (*start[:3], start[5]), (*low[:3], low[5]), (*high[:3], high[5]), points, **no_ramp)
    return whole if cost(whole, points) < 0.99 * cost(plain, points) else plain


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


# Kernels that only read and write


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
    """Constants by name, without those of a way that is left out."""
    values = {field.name: getattr(law, field.name) for field in fields(law)}
    absent = {name.removesuffix("_us") for name, value in values.items() if value == math.inf}
    return {name: value for name, value in values.items() if name.rpartition("_")[0] not in absent}


class Found(NamedTuple):
    """A law, where it stands in constants.yml, and the points that it was fitted to."""

    path: tuple[Any, ...]
    law: Any
    points: Points
    facts: dict[str, Any] | None = None  # what stands beside the law

    @property
    def entry(self) -> dict[str, Any]:
        return {"law": plain(self.law), **self.facts} if self.facts else plain(self.law)


def gemm_laws(gpu: str, engine: str) -> Iterator[Found]:
    for precision in t.WIDTH:
        if t.gemm(gpu, engine, precision):
            yield Found(("gemm", engine, gpu, precision), *gemm_law(gpu, engine, precision))


def attention_laws(gpu: str, engine: str) -> Iterator[Found]:
    for kv in t.WIDTH:
        decoded = decode_law(gpu, engine, kv)
        if decoded:
            yield Found(("attention_decode", engine, gpu, kv), decoded, decode_points(gpu, engine, kv))
    for attention, kv in KINDS:
        filled = prefill_law(gpu, engine, attention, kv)
        if filled:
            points = prefill_points(gpu, engine, attention, kv)
            yield Found(("attention_prefill", engine, gpu, f"{attention}-{kv}"), filled, points)


def all_reduce_laws(gpu: str, engine: str) -> Iterator[Found]:
    for ranks in (2, 4, 8):
        law = all_reduce.all_reduce_law(gpu, engine, ranks)
        if law:
            yield Found(("all_reduce", engine, gpu, ranks), law, all_reduce.points(gpu, engine, ranks))


def stream_laws() -> Iterator[Found]:
    for kind, stream in STREAMS.items():
        for precision in stream.precisions:
            law = stream_law(kind, precision)
            moved = {row: values[precision] for row, values in stream.bytes_per_value.items() if values[precision]}
            yield Found(("stream", kind, precision), law, stream_points(kind, precision), {"bytes": moved})


def laws(gpus: Sequence[str] = tuple(t.GPUS), engines: Sequence[str] = t.ENGINES) -> Iterator[Found]:
    """Every law of these GPUs and engines."""
    yield from stream_laws()
    for gpu in gpus:
        for engine in (*engines, "nccl"):
            yield from all_reduce_laws(gpu, engine)
        for engine in engines:
            yield from gemm_laws(gpu, engine)
            yield from attention_laws(gpu, engine)


def by_section(found: Iterable[Found]) -> dict[str, Any]:
    """The laws as constants.yml holds them."""
    sections: dict[str, Any] = {}
    for law in found:
        place = sections
        for part in law.path[:-1]:
            place = place.setdefault(part, {})
        place[law.path[-1]] = law.entry
    return sections


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
# Written by benchmarks/planner/fit.py; do not edit. Microseconds.
# The laws: packages/serving_planner/cost_model/operations.py.
# Fitted on operation tables only: aiconfigurator-core 0.12.0 (PyPI, NVIDIA, Apache-2.0), systems/data/<gpu>/
# {gemm,attention,comm,quantize}, TensorRT-LLM 1.3.0rc20 (A100: 1.0.0), vLLM 0.24.0 (A100: 0.14.0), SGLang 0.5.14; and
# this project's own times on one and two H200s (2026-11-20). Files and columns: benchmarks/planner/data/README.md.
# all_reduce: a way that is left out (one_shot, two_shot) is not the fastest at three or more of the measured sizes, or
# makes the law no better: its constants would be in no prediction, so nothing would determine them. Of the table nccl,
# which has NCCL's own ways alone, one_shot and two_shot are those of the smaller messages. attention_decode: ramp_us 0
# with ramp_half_us 1 is a law without that term, where the times do not show it.
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
    found = list(laws())
    if not given.check:
        write(by_section(found))
    show({" ".join(map(str, law.path)): errors(law.law, law.points) for law in found})


if __name__ == "__main__":
    main()
