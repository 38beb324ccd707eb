"""Plan what others have measured end to end and published, and print how far off the planner is, class by class.

The figures are in ``tests/published/*.csv``, how each was measured in ``tests/published/README.md``. They judge the
planner and never feed it: no constant may change because of them without a physical reason that is written down::

    python benchmarks/planner/published.py                      # the tables of the PyTorch flow, and MLPerf
    python benchmarks/planner/published.py --releases 0.17      # one release; "all" for every row
    python benchmarks/planner/published.py --how run            # simulate each run, its ramp and drain included
    python benchmarks/planner/published.py --as-asked           # defaults instead of the settings of the benchmark
    python benchmarks/planner/published.py --markdown           # for docs/planner.md
"""

import argparse
import csv
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from benchmarks.planner import trtllm_bench  # noqa: E402
from serving_base.errors import UsageError  # noqa: E402
from serving_planner.case import Case, Engine, Precision, parse_case  # noqa: E402

FOLDER = ROOT / "tests" / "published"
FILES = ("perf_overview.csv", "mlperf.csv")
UNITS = {
    "output_tokens_per_s": "tokens/s",
    "output_tokens_per_s_per_gpu": "tokens/s/GPU",
    "ttft_ms": "ms",
    "ttft_ms_p50": "ms",
    "ttft_ms_p99": "ms",
    "tpot_ms_p50": "ms",
    "tpot_ms_p99": "ms",
}
THROUGHPUT = ("output_tokens_per_s", "output_tokens_per_s_per_gpu")
How = Literal["steady", "plan", "run"]


class Row(BaseModel):
    """One published figure. Empty settings were not published; ``tests/published/README.md`` explains the columns."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    id: str = Field(min_length=1)
    model: str
    gpu: str
    gpus: int = Field(ge=1)
    tp: int = Field(ge=1)
    pp: int = Field(ge=1)
    weights: Precision
    kv: Precision
    isl: int = Field(ge=1)
    osl: int = Field(ge=1)
    concurrency: int | Literal["max"] | None
    rate: float | None
    metric: str
    value: float = Field(gt=0)
    unit: str
    engine: Engine
    flow: str = Field(min_length=1)
    release: str = Field(min_length=1)
    requests: int | None
    max_batch_size: int | None
    max_num_tokens: int | None
    kv_fraction: float | None = Field(gt=0, le=1)
    source: str = Field(min_length=1)
    note: str

    @field_validator(
        "concurrency", "rate", "requests", "max_batch_size", "max_num_tokens", "kv_fraction", mode="before"
    )
    @classmethod
    def _empty(cls, text: Any) -> Any:
        return None if text == "" else text

    @property
    def klass(self) -> str:
        """What is summed up together: engine, model, precision, GPU, parallelism, metric."""
        size = "2-70b" if self.model == "llama2-70b" else self.model.rsplit("-", 1)[-1]
        split = f"tp{self.tp}" + (f"pp{self.pp}" if self.pp > 1 else "")
        return f"{self.engine} {size} {self.weights} {self.gpu} {split} {self.metric.removesuffix('_per_gpu')}"

    @property
    def headline(self) -> bool:
        """Whether it is of the flow and the years that the planner describes: PyTorch flow with CUDA graphs, MLPerf."""
        return self.flow == "pytorch" or self.release.startswith("mlperf")


class Comparison(BaseModel):
    """A row and what the planner says; ``refused`` holds its words where it gives no number."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    row: Row
    planned: float | None = None
    refused: str = ""

    @property
    def error(self) -> float | None:
        """Relative, signed: planned above published is positive."""
        return None if self.planned is None else self.planned / self.row.value - 1


class Summary(BaseModel):
    """Errors of one class; shares, not per cent."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    n: int
    refused: int
    median: float | None
    mape: float | None
    bias: float | None
    worst: tuple[str, ...]


@cache
def published() -> tuple[Row, ...]:
    """Every row of both files, in their order."""
    found: list[Row] = []
    for name in FILES:
        with (FOLDER / name).open(encoding="utf-8", newline="") as file:
            found += [Row.model_validate(line) for line in csv.DictReader(file)]
    return tuple(found)


def case_of(row: Row, *, as_asked: bool = False) -> Case:
    """The case of ``row``. ``as_asked``: only what a user would say, all settings of the benchmark left to defaults."""
    keys = ("model", "gpu", "gpus", "tp", "pp", "weights", "kv", "isl", "osl", "concurrency", "rate", "engine")
    asked: dict[str, Any] = {key: getattr(row, key) for key in keys}
    if as_asked:
        return parse_case(asked)
    asked |= {"length_ratio": 1.0, "kv_fraction": row.kv_fraction}
    if row.max_batch_size or row.max_num_tokens or not row.release[0].isdigit():
        return parse_case(asked | {"max_batch_size": row.max_batch_size, "max_num_tokens": row.max_num_tokens})
    # Chunked prefill is off in the PyTorch flow unless it is asked for, on in trtllm-bench's engines.
    asked["chunked"] = not row.flow.startswith("pytorch")
    most = parse_case(asked | {"max_num_tokens": max(row.isl, trtllm_bench.LEAST_TOKENS)})
    chosen = trtllm_bench.settings(most)
    limits = {"max_batch_size": chosen.max_batch_size, "max_num_tokens": chosen.max_num_tokens}
    return parse_case(asked | limits)


def planned(row: Row, how: How = "steady", *, as_asked: bool = False) -> float:
    """What the planner says for the metric of ``row``, in its unit.

    ``steady``: without simulation where the metric is a throughput; ``plan``: with; ``run``: the run itself, with as
    many requests as were sent, all queued at once. Percentiles under a rate always come from the simulation.
    """
    case = case_of(row, as_asked=as_asked)
    per_gpu = case.gpu_count if row.metric.endswith("_per_gpu") else 1
    if row.metric in THROUGHPUT and how == "run" and row.requests:
        return trtllm_bench.run(case, row.requests).output_tokens_per_s * case.replicas / per_gpu
    answer = _answer("steady" if row.metric in THROUGHPUT and how == "steady" else "plan", case)
    if row.metric in THROUGHPUT:
        return float(answer.output_tokens_per_s) / per_gpu
    name, _, percentile = row.metric.rpartition("_p")
    return float(_item(getattr(answer, name or row.metric), f"p{percentile}" if name else "p50"))


@cache
def _answer(name: Literal["steady", "plan"], case: Case) -> Any:
    """A plan; several rows are figures of one run, so it is kept."""
    from serving_planner import predict

    return getattr(predict, name)(case)


def _item(values: Any, key: str) -> float:
    return float(values[key] if isinstance(values, dict) else getattr(values, key))


def compare(rows: Iterable[Row], how: How = "steady", *, as_asked: bool = False) -> list[Comparison]:
    """Plan every row; a case that the planner refuses is kept with its words."""
    found = []
    for row in rows:
        try:
            found.append(Comparison(row=row, planned=planned(row, how, as_asked=as_asked)))
        except UsageError as refusal:
            found.append(Comparison(row=row, refused=refusal.what))
    return found


def summarise(comparisons: Iterable[Comparison], worst: int = 1) -> list[Summary]:
    """One summary per class, in order of their names."""
    classes: dict[str, list[Comparison]] = defaultdict(list)
    for item in comparisons:
        classes[item.row.klass].append(item)
    return [_summary(name, items, worst) for name, items in sorted(classes.items())]


def _summary(name: str, items: Sequence[Comparison], worst: int) -> Summary:
    errors = [(item.error, item.row) for item in items if item.error is not None]
    off = [abs(error) for error, _ in errors]
    ranked = sorted(errors, key=lambda pair: -abs(pair[0]))[:worst]
    return Summary(
        name=name,
        n=len(errors),
        refused=len(items) - len(errors),
        median=statistics.median(off) if off else None,
        mape=statistics.fmean(off) if off else None,
        bias=statistics.fmean(error for error, _ in errors) if errors else None,
        worst=tuple(f"{row.isl}/{row.osl} {error:+.0%} ({row.release})" for error, row in ranked),
    )


def repeatability(rows: Iterable[Row]) -> tuple[int, float]:
    """How far the same cell moves between releases of one flow: cells published twice, median of largest/smallest - 1.

    No planner that does not know the release can be closer than about half of it.
    """
    cells: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for row in rows:
        if row.flow == "pytorch" and row.metric in THROUGHPUT:
            size = row.model.rsplit("-", 1)[-1]
            total = row.value * (row.gpus if row.metric.endswith("_per_gpu") else 1)
            cells[size, row.gpu, row.tp, row.weights, row.isl, row.osl].append(total)
    spreads = [max(values) / min(values) - 1 for values in cells.values() if len(values) > 1]
    return len(spreads), statistics.median(spreads) if spreads else 0.0


def table(summaries: Sequence[Summary], *, markdown: bool = False) -> str:
    """The error table as text, or as Markdown."""
    head = ("class", "n", "refused", "median", "MAPE", "bias", "worst rows")
    body = [head] + [
        (
            item.name,
            str(item.n),
            str(item.refused or ""),
            _percent(item.median),
            _percent(item.mape),
            _percent(item.bias, sign=True),
            "; ".join(item.worst),
        )
        for item in summaries
    ]
    widths = [max(len(line[column]) for line in body) for column in range(len(head))]
    padded = [[text.ljust(width) for text, width in zip(line, widths, strict=True)] for line in body]
    if not markdown:
        return "\n".join("  ".join(line).rstrip() for line in padded)
    rule = ["-" * width for width in widths]
    return "\n".join("| " + " | ".join(line) + " |" for line in (padded[0], rule, *padded[1:]))


def _percent(share: float | None, *, sign: bool = False) -> str:
    if share is None:
        return ""
    return f"{100 * share:+.1f} %" if sign else f"{100 * share:.1f} %"


def chosen(releases: Sequence[str]) -> list[Row]:
    """The rows of the given releases; none given: the headline rows; ``all``: all."""
    if not releases:
        return [row for row in published() if row.headline]
    known = sorted({row.release for row in published()})
    for name in releases:
        if name != "all" and name not in known:
            raise UsageError(f"no rows of release {name!r}", why=f"there are {', '.join(known)}", fix="use one of them")
    return [row for row in published() if "all" in releases or row.release in releases]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; the exit status is 0 unless the flags are wrong."""
    parser = argparse.ArgumentParser(description="The planner against published end-to-end figures.")
    parser.add_argument("--releases", default="", help="comma-separated: 1.0,mlperf-v5.1; all: every row")
    parser.add_argument("--how", choices=("steady", "plan", "run"), default="steady", help="see planned()")
    parser.add_argument("--as-asked", action="store_true", help="defaults instead of the benchmark's settings")
    parser.add_argument("--worst", type=int, default=1, help="worst rows to name per class")
    parser.add_argument("--rows", action="store_true", help="print every row instead of the classes")
    parser.add_argument("--markdown", action="store_true")
    flags = parser.parse_args(arguments)
    try:
        rows = chosen([name for name in flags.releases.split(",") if name])
    except UsageError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    comparisons = compare(rows, flags.how, as_asked=flags.as_asked)
    if flags.rows:
        for item in comparisons:
            said = item.refused or f"{item.planned:.1f} ({item.error:+.1%})"
            print(f"{item.row.id}: published {item.row.value:g} {item.row.unit}, planned {said}")
        return 0
    print(table(summarise(comparisons, flags.worst), markdown=flags.markdown))
    cells, spread = repeatability(published())
    print(f"\n{cells} cells were published by several releases; their figures differ by {spread:.1%} in the median.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
