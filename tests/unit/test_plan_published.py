"""What others published, as data that can be trusted, and how far the planner is from it.

The rows judge the planner; nothing is fitted on them (tests/published/README.md). A bound below is a statement that
docs/planner.md makes: it may be lowered when the planner gets better, and raised only together with that page.
"""

import importlib.util
import re
import sys
import types
from collections import defaultdict
from collections.abc import Callable, Iterator
from statistics import fmean

import pytest

from benchmarks.planner import published, trtllm_bench
from benchmarks.planner.published import THROUGHPUT, UNITS, Comparison, Row, Summary
from serving_base.errors import UsageError
from serving_planner.case import Case, parse_case
from serving_planner.cost_model.memory import memory

# Mean absolute error allowed, as a share; None: reported only.
BOUNDS: dict[str, float | None] = {
    "70B FP8 TP1, tokens/s": 0.09,
    "70B FP8 TP2, tokens/s": 0.11,
    "70B FP8 TP4, tokens/s": 0.08,
    "70B FP8 TP8, tokens/s": 0.105,
    "8B FP8 TP1, tokens/s": 0.09,
    "MLPerf offline, tokens/s": 0.12,
    "MLPerf server, TPOT p50": None,
    "MLPerf server, TTFT p50": None,
}


def pytorch(size: str, tp: int) -> Callable[[Row], bool]:
    return lambda row: row.flow == "pytorch" and row.model.endswith(size) and row.tp == tp


def mlperf(*metrics: str) -> Callable[[Row], bool]:
    return lambda row: row.release.startswith("mlperf") and row.metric in metrics


GROUPS: dict[str, Callable[[Row], bool]] = {
    "70B FP8 TP1, tokens/s": pytorch("70b", 1),
    "70B FP8 TP2, tokens/s": pytorch("70b", 2),
    "70B FP8 TP4, tokens/s": pytorch("70b", 4),
    "70B FP8 TP8, tokens/s": pytorch("70b", 8),
    "8B FP8 TP1, tokens/s": pytorch("8b", 1),
    "MLPerf offline, tokens/s": mlperf(*THROUGHPUT),
    "MLPerf server, TPOT p50": mlperf("tpot_ms_p50"),
    "MLPerf server, TTFT p50": mlperf("ttft_ms_p50"),
}

SOURCE = re.compile(
    r"^(NVIDIA/TensorRT-LLM docs/source/\S+\.md|mlcommons/inference_results_v\d\.\d \S+)(@\S|, first text)"
)
BYTES = {"bf16": 2, "fp8": 1}
ROWS = published.published()

needs_planner = pytest.mark.skipif(
    importlib.util.find_spec("serving_planner.predict") is None, reason="serving_planner.predict is not there yet"
)


def total(row: Row) -> float:
    """Tokens/s of all GPUs."""
    return row.value * (row.gpus if row.metric.endswith("_per_gpu") else 1)


def most_tokens_per_s(case: Case, requests: int | None) -> float:
    """The roofline of one row, written down once more and apart from the planner: GPUs without links and overhead.

    A request computes its tokens once (2 FLOPs per weight, attention left out), and reads its own context for each
    answer token and its share of the weights; as many share them as the memory holds beside one copy of the weights.
    """
    shape, gpu, count = case.shape, case.hardware, case.world_size
    weights, context = shape.weight_bytes(case.weights.replace("bf16", "bfloat16")), case.isl + case.osl / 2
    per_token = 2 * shape.num_hidden_layers * shape.num_key_value_heads * shape.head_dim * BYTES[case.kv]
    held = (count * gpu.memory_bytes - weights) / (per_token * context)
    sharing = min(held, requests or held)
    flops = 2 * shape.linear_parameters * (case.isl + case.osl - 1)
    read = (case.osl - 1) * (shape.linear_parameters * BYTES[case.weights] / sharing + per_token * context)
    seconds = max(flops / gpu.dense_flops[case.weights], read / gpu.bandwidth_bytes_per_s) / count
    return case.replicas * case.osl / seconds


def share_of_bound(row: Row, **changes: object) -> float:
    case = published.case_of(row)
    case = parse_case({**case.model_dump(), **changes})
    requests = row.concurrency // case.replicas if isinstance(row.concurrency, int) else None
    return total(row) / most_tokens_per_s(case, requests)


def test_there_are_enough_rows_of_both_sources() -> None:
    assert len([row for row in ROWS if row.flow == "pytorch"]) >= 60
    assert len([row for row in ROWS if row.release.startswith("mlperf")]) >= 40
    assert {"0.9", "0.12", "0.14", "0.15", "0.17", "0.19", "0.20", "0.21", "1.0", "1.1"} <= {
        row.release for row in ROWS
    }
    assert len({row.id for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("name", published.FILES)
def test_files_are_sorted_text_without_odd_bytes(name: str) -> None:
    content = (published.FOLDER / name).read_bytes()
    assert content.endswith(b"\n") and b"\r" not in content
    content.decode("ascii")


def test_every_row_says_where_it_is_from_and_in_what_unit() -> None:
    for row in ROWS:
        assert SOURCE.match(row.source), row
        assert row.unit == UNITS[row.metric], row
        assert row.release.startswith("mlperf") == row.source.startswith("mlcommons"), row


@pytest.mark.parametrize(
    "source", ["InferenceMAX results/h200.json@1234567", "NVIDIA/TensorRT-LLM docs/source/x.md", ""]
)
def test_a_source_without_a_commit_or_from_elsewhere_is_noticed(source: str) -> None:
    assert not SOURCE.match(source)


def test_every_row_has_one_load_and_a_metric_that_fits_it() -> None:
    for row in ROWS:
        assert (row.concurrency is None) != (row.rate is None), row
        assert ("_p" in row.metric.removesuffix("_per_gpu").replace("_per_s", "")) == (row.rate is not None), row
        assert row.gpus % (row.tp * row.pp) == 0, row
        assert row.osl >= 1 and row.isl + row.osl <= 2**16, row


def test_every_row_is_a_case_with_the_settings_of_the_benchmark_and_without() -> None:
    for row in ROWS:
        case, asked = published.case_of(row), published.case_of(row, as_asked=True)
        assert case.length_ratio == 1 and asked.length_ratio == 0.8
        assert case.model_dump(include={"gpu", "tp", "pp", "isl", "osl"}) == asked.model_dump(
            include={"gpu", "tp", "pp", "isl", "osl"}
        )


def test_no_throughput_is_above_the_physical_bound_and_none_is_a_slip_of_a_digit() -> None:
    shares = {row.id: share_of_bound(row) for row in ROWS if row.metric in THROUGHPUT}
    assert max(shares.values()) < 1, max(shares, key=shares.__getitem__)
    assert min(shares.values()) > 0.02, min(shares, key=shares.__getitem__)


def test_a_row_above_the_bound_would_be_noticed() -> None:
    row = next(row for row in ROWS if row.id == "trtllm-1.0-llama3.1-8b-h100-sxm-tp1-fp8-128-4096")
    assert 0.5 < share_of_bound(row) < 1
    assert share_of_bound(row.model_copy(update={"value": 2 * row.value})) > 1


def test_the_kv_cache_of_the_fp8_rows_was_fp8() -> None:
    """The documents leave it to the checkpoint; with a BF16 cache these figures would pass the bound."""
    for name in ("8b-h100-sxm-tp1", "8b-h200-tp1"):
        (row,) = [row for row in ROWS if row.id == f"trtllm-1.0-llama3.1-{name}-fp8-128-4096"]
        assert share_of_bound(row, kv="bf16") > 1 > share_of_bound(row)


def test_the_planned_memory_holds_what_was_run() -> None:
    """A published rate needs a number of sequences in flight even at full bandwidth; the planner's memory holds them.

    The fewest are b = v (W + b K) / BW for v tokens/s, W bytes of weights a step and K of context a sequence. A share
    close to 1 would mean that the planner leaves too little memory: a step of 70B takes about 1 / 0.75 of its floor.
    """
    shares = {}
    for row in ROWS:
        if row.concurrency != "max" or row.metric not in THROUGHPUT:
            continue
        case = published.case_of(row)
        shape, rate = case.shape, total(row) / case.replicas
        bandwidth = case.hardware.bandwidth_bytes_per_s * case.world_size
        context = shape.kv_bytes_per_token(case.kv.replace("bf16", "bfloat16")) * (case.isl + case.osl / 2)
        fewest = rate * shape.linear_parameters * BYTES[case.weights] / bandwidth / (1 - rate * context / bandwidth)
        shares[row.id] = fewest / min(memory(case).sequences, case.max_batch_size)
    assert 0.6 < max(shares.values()) < 0.85, max(shares, key=shares.__getitem__)


def test_latencies_are_above_their_floor_and_in_order() -> None:
    by_run: dict[str, dict[str, float]] = defaultdict(dict)
    for row in ROWS:
        if row.unit != "ms":
            continue
        case = published.case_of(row)
        weights = case.shape.linear_parameters * BYTES[case.weights] / case.hardware.bandwidth_bytes_per_s / row.tp
        prompt = 2 * case.shape.linear_parameters * row.isl / case.hardware.dense_flops[row.weights] / row.tp
        floor = weights if row.metric.startswith("tpot") else max(weights, prompt if row.rate is None else 0)
        assert row.value > 1000 * floor, row
        by_run[row.id.rsplit("-p", 1)[0]][row.metric[-3:]] = row.value
    pairs = [run for run in by_run.values() if "p50" in run]
    assert pairs and all(run["p50"] < run["p99"] for run in pairs)


def test_the_same_cell_moves_little_between_releases_of_the_pytorch_flow() -> None:
    """A slip while copying would stand out: the largest true step is 15 %."""
    cells: dict[tuple[object, ...], list[Row]] = defaultdict(list)
    for row in ROWS:
        if row.flow == "pytorch":
            cells[row.model.rsplit("-")[-1], row.gpu, row.tp, row.isl, row.osl].append(row)
    for rows in cells.values():
        values = [total(row) for row in rows]
        assert max(values) < 1.2 * min(values), rows
    count, spread = published.repeatability(ROWS)
    assert count > 80 and 0.005 < spread < 0.05


def test_more_gpus_and_more_bandwidth_are_never_slower_on_hopper() -> None:
    cells: dict[tuple[object, ...], float] = {
        (row.release, row.flow, row.model, row.weights, row.isl, row.osl, row.gpu, row.tp): total(row)
        for row in ROWS
        if row.metric in THROUGHPUT and row.flow != "static" and not row.release.startswith("mlperf")
    }
    for (*rest, gpu, tp), value in cells.items():
        assert isinstance(tp, int)
        if gpu in ("h100-sxm", "h200") and (half := cells.get((*rest, gpu, tp // 2))):
            assert value > 1.1 * half, (rest, gpu, tp)
        if gpu == "h200" and (h100 := cells.get((*rest, "h100-sxm", tp))):
            assert value > 0.95 * h100, (rest, tp)


@pytest.mark.parametrize(
    ("tp", "pp", "isl", "osl", "batch", "tokens"),
    [
        (8, 1, 1024, 256, 2816, 14336),
        (4, 2, 1024, 256, 1536, 7168),
        (8, 1, 2000, 200, 1792, 18432),
        (4, 2, 2000, 200, 896, 9216),
    ],
)
def test_the_benchmark_chooses_its_own_limits(tp: int, pp: int, isl: int, osl: int, batch: int, tokens: int) -> None:
    """Figures of TensorRT-LLM's own function, for 70B in FP8 on H100."""
    case = parse_case({"model": "llama3.3-70b", "gpu": "h100-sxm", "tp": tp, "pp": pp, "isl": isl, "osl": osl})
    assert trtllm_bench.settings(case) == trtllm_bench.Settings(batch, tokens)


def test_without_chunked_prefill_a_step_holds_a_prompt_beside_a_full_batch() -> None:
    asked = {"model": "llama3.1-8b", "gpu": "h200", "isl": 20000, "osl": 2000, "max_num_tokens": 32768}
    chunked = trtllm_bench.settings(parse_case(asked))
    whole = trtllm_bench.settings(parse_case(asked | {"chunked": False}))
    assert chunked.max_num_tokens == 2048
    assert whole.max_num_tokens == 20000 + whole.max_batch_size
    assert whole.max_batch_size == chunked.max_batch_size


class Answer:
    """A plan as published.py reads it."""

    output_tokens_per_s = 1000.0
    ttft_ms = types.SimpleNamespace(p50=100.0, p99=200.0)
    tpot_ms: dict[str, float] = {"p50": 10.0, "p99": 20.0}  # noqa: RUF012 - stands in for a plan


@pytest.fixture
def planner(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, Case]]]:
    """A planner that says the same to everything, and the list of what it was asked."""
    asked: list[tuple[str, Case]] = []

    def answers(name: str) -> Callable[[Case], Answer]:
        def answer(case: Case) -> Answer:
            asked.append((name, case))
            return Answer()

        return answer

    module = types.ModuleType("serving_planner.predict")
    module.steady, module.plan = answers("steady"), answers("plan")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "serving_planner.predict", module)
    monkeypatch.setattr("serving_planner.predict", module, raising=False)
    published._answer.cache_clear()
    yield asked
    published._answer.cache_clear()


def row(**changes: object) -> Row:
    first = next(row for row in ROWS if row.id == "trtllm-1.0-llama3.3-70b-h200-tp1-fp8-1000-1000")
    return first.model_copy(update=changes)


def test_each_metric_is_read_from_the_plan_in_its_unit(planner: list[tuple[str, Case]]) -> None:
    rate = {"concurrency": None, "rate": 2.0}
    assert published.planned(row()) == 1000
    assert published.planned(row(metric="output_tokens_per_s_per_gpu", gpus=4, tp=2)) == 250
    assert published.planned(row(metric="ttft_ms", concurrency=1)) == 100
    assert published.planned(row(metric="ttft_ms_p99", **rate)) == 200
    assert published.planned(row(metric="tpot_ms_p50", **rate)) == 10
    assert published.planned(row(), "plan") == 1000
    assert [name for name, _ in planner] == ["steady", "steady", "plan", "plan", "plan"]  # one plan serves two figures


def test_a_refused_case_is_kept_with_its_words(planner: list[tuple[str, Case]]) -> None:
    good, bad = published.compare([row(value=800.0), row(gpu="h900")])
    assert good.error == pytest.approx(0.25)
    assert bad.planned is None and bad.error is None and "h900" in bad.refused
    (summary,) = published.summarise([good, bad.model_copy(update={"row": good.row})])
    assert (summary.n, summary.refused) == (1, 1) and summary.mape == pytest.approx(0.25)


def test_errors_are_summed_up_by_class() -> None:
    found = [
        Comparison(row=row(value=100.0), planned=110.0),
        Comparison(row=row(value=100.0, isl=2000), planned=80.0),
        Comparison(row=row(value=100.0, tp=2), planned=100.0),
    ]
    one, two = published.summarise(found)
    assert one.name == "tensorrt-llm 70b fp8 h200 tp1 output_tokens_per_s"
    assert (one.n, two.n) == (2, 1)
    assert one.mape == pytest.approx(0.15) and one.median == pytest.approx(0.15) and one.bias == pytest.approx(-0.05)
    assert one.worst == ("2000/1000 -20% (1.0)",)
    text = published.table([one, two])
    assert "15.0 %" in text and "-5.0 %" in text
    assert published.table([one, two], markdown=True).splitlines()[1].startswith("| ---")


def test_the_command_prints_a_table_and_refuses_an_unknown_release(
    planner: list[tuple[str, Case]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert published.main(["--releases", "1.0", "--markdown"]) == 0
    printed = capsys.readouterr().out
    assert "| tensorrt-llm 8b fp8 h100-sxm tp1 output_tokens_per_s" in printed and "published by several" in printed
    assert published.main(["--releases", "1.1", "--rows", "--as-asked"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 7
    assert published.main(["--releases", "9.9"]) == UsageError.exit_code
    assert "no rows of release '9.9'" in capsys.readouterr().err


def beyond(errors: dict[str, float]) -> list[str]:
    """Groups whose mean absolute error is above its bound."""
    limits = {name: bound for name, bound in BOUNDS.items() if bound is not None}
    return [f"{name}: {errors[name]:.1%} > {bound:.1%}" for name, bound in limits.items() if errors[name] > bound]


def test_a_group_beyond_its_bound_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BOUNDS, "8B FP8 TP1, tokens/s", 0.1)
    errors = dict.fromkeys(BOUNDS, 0.05)
    assert beyond(errors) == []
    assert beyond(errors | {"8B FP8 TP1, tokens/s": 0.2}) == ["8B FP8 TP1, tokens/s: 20.0% > 10.0%"]


def test_every_group_has_rows_and_a_bound() -> None:
    assert BOUNDS.keys() == GROUPS.keys()
    for name, member in GROUPS.items():
        assert len([row for row in ROWS if member(row)]) >= 8, name


@needs_planner
def test_the_planner_stays_within_its_stated_errors() -> None:
    """Prints the whole table; run it with -s to read it."""
    found = published.compare(row for row in ROWS if row.headline)
    summaries: list[Summary] = published.summarise(found)
    print("\n" + published.table(summaries))
    refused = [(item.row.id, item.refused) for item in found if item.refused]
    errors = {}
    for name, member in GROUPS.items():
        off = [abs(item.error) for item in found if item.error is not None and member(item.row)]
        errors[name] = fmean(off) if off else float("inf")
        print(f"{name}: mean absolute error {errors[name]:.1%} over {len(off)} rows, bound {BOUNDS[name]}")
    assert not refused, f"refused although somebody ran it: {refused[:5]}"
    assert not beyond(errors)
