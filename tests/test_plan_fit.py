"""Where the planner's constants come from: operation tables and nothing else, and how far they are off them."""

import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PLANNER = ROOT / "benchmarks" / "planner"
SHIPPED = ROOT / "playbook" / "plan" / "data"
sys.path.insert(0, str(PLANNER))

import fit  # noqa: E402
import gemms  # noqa: E402
import tables  # noqa: E402

opened: list[Path] = []
watching = False


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    if watching and event == "open" and isinstance(arguments[0], str | bytes | Path):
        name = arguments[0].decode() if isinstance(arguments[0], bytes) else str(arguments[0])
        opened.append(Path(name).resolve())


sys.addaudithook(watch)


@pytest.fixture
def audited() -> Iterator[list[Path]]:
    """Every file that is opened while the test runs; caches of what was read before are emptied."""
    global watching
    import scipy.optimize  # noqa: F401 - its modules are opened here and not while fitting

    for module in (tables, fit, gemms):
        for value in vars(module).values():
            if hasattr(value, "cache_clear"):
                value.cache_clear()
    opened.clear()
    watching = True
    yield opened
    watching = False


@pytest.fixture(scope="module")
def shipped() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((SHIPPED / "constants.yml").read_text(encoding="utf-8"))
    return found


def test_fitting_opens_operation_tables_only(audited: list[Path]) -> None:
    """The laws of vLLM on an H100 need every table: the wheel's, this project's own, and an H200's for the ratio."""
    fit.fit_all({}, gpus=("h100-sxm",), engines=("vllm",))
    data = [path for path in audited if path.suffix not in (".py", ".pyc", ".so")]
    assert set(data) <= {path.resolve() for path in tables.tables().values()}
    needed = ("gemm", "attention_decode", "attention_prefill", "all_reduce", "own_gemm", "own_kernels")
    assert {path.stem for path in data} >= set(needed)
    assert all(path.parent == PLANNER / "data" for path in data)


def test_the_audit_sees_a_file_that_is_not_a_table(audited: list[Path], tmp_path: Path) -> None:
    other = tmp_path / "measured.csv"
    other.write_text("tpot\n")
    with other.open():
        pass
    assert other.resolve() in audited and other.resolve() not in set(tables.tables().values())


def test_the_tables_hold_single_operations() -> None:
    """By their columns: nothing of requests, served throughput or latency."""
    for path in tables.tables().values():
        with path.open(encoding="utf-8") as file:
            header = next(csv.reader(file))
        text = " ".join(header).lower()
        assert not any(word in text for word in ("ttft", "tpot", "itl", "throughput", "concurrency", "request")), path


def test_the_shipped_constants_are_what_the_fit_gives(shipped: dict[str, Any]) -> None:
    found = [*fit.attention_laws("h200", "tensorrt-llm"), *fit.all_reduce_laws("h200", "nccl"), *fit.stream_laws()]
    assert len(found) > 12
    for path, entry, _ in found:
        ours: Any = shipped
        for part in path:
            ours = ours[part]
        law = entry.get("law", entry)
        assert law == pytest.approx(ours.get("law", ours), rel=0.02, abs=0.01), path


BOUNDS = {  # median error in per cent of the bare law, without the tables that correct it on H100 and H200
    ("attention_prefill", "tensorrt-llm", "fp8-fp8"): 3,
    ("attention_prefill", "tensorrt-llm", "bf16-bf16"): 4,
    ("attention_prefill", "vllm", "bf16-bf16"): 5,
    ("attention_decode", "vllm", "bf16"): 4,
    ("attention_decode", "vllm", "fp8"): 4,
    ("attention_decode", "tensorrt-llm", "fp8"): 8,
    ("attention_decode", "tensorrt-llm", "bf16"): 12,
}


@pytest.mark.parametrize("gpu", ["h100-sxm", "h200"])
@pytest.mark.parametrize("what", BOUNDS, ids="-".join)
def test_the_attention_laws_stay_within_their_bounds(shipped: dict[str, Any], gpu: str, what: tuple[str, ...]) -> None:
    section, engine, key = what
    constants = shipped[section][engine][gpu][key]
    if section == "attention_decode":
        wrong = fit.errors(fit.DecodeLaw(**constants), fit.decode_points(gpu, engine, key))
    else:
        wrong = fit.errors(fit.PrefillLaw(**constants), fit.prefill_points(gpu, engine, *key.split("-")))
    assert len(wrong) > 200
    assert 100 * median(map(abs, wrong)) < BOUNDS[section, engine, key]
    assert abs(100 * median(wrong)) < 1.5


@pytest.mark.parametrize(
    ("gpu", "engine", "precision", "bound"),
    [("h100-sxm", "vllm", "fp8", 9), ("h200", "tensorrt-llm", "fp8", 5.5), ("h200", "tensorrt-llm", "bf16", 6)],
)
def test_the_gemm_laws_stay_within_their_bounds(
    shipped: dict[str, Any], gpu: str, engine: str, precision: str, bound: float
) -> None:
    """Over the layers of 8B and 70B at TP 1 to 8; the factors that ship take the rest off, down to their digits."""
    law, at = gemms.GemmLaw(**shipped["gemm"][engine][gpu][precision]), gemms.chip(gpu, precision)
    width = tables.WIDTH[precision]
    with (SHIPPED / "gemm_factors.csv").open(encoding="utf-8") as file:
        factors = {
            (int(row["n"]), int(row["k"])): tables.across(row, "m")
            for row in csv.DictReader(file)
            if (row["gpu"], row["engine"], row["precision"]) == (gpu, engine, precision)
        }
    bare, corrected = [], []
    for (n, k), times in gemms.mended(gpu, engine, precision).items():
        for m, us in times.items():
            bare.append(law.us(n, k, m, width, at) / us - 1)
            corrected.append(law.us(n, k, m, width, at) * factors[n, k][m] / us - 1)
    assert len(bare) > 700
    assert 100 * median(map(abs, bare)) < bound and abs(100 * median(bare)) < 1.5
    assert 100 * max(map(abs, corrected)) < 0.5


def test_a_worse_law_is_caught_by_the_bounds(shipped: dict[str, Any]) -> None:
    constants = {**shipped["attention_prefill"]["tensorrt-llm"]["h200"]["fp8-fp8"], "compute_efficiency": 0.7}
    wrong = fit.errors(fit.PrefillLaw(**constants), fit.prefill_points("h200", "tensorrt-llm", "fp8", "fp8"))
    assert 100 * median(map(abs, wrong)) > BOUNDS["attention_prefill", "tensorrt-llm", "fp8-fp8"]


def test_scale_kernels_are_taken_off_the_fp8_table_of_tensorrt_llm() -> None:
    """What is left is what this project timed for the GEMM alone on an H200; with them it is far from it."""
    left, own = tables.gemm("h200", "tensorrt-llm", "fp8"), tables.own_gemm("fp8_fast")
    raw = {
        (int(row["n"]), int(row["k"])): tables.across(row, "m")
        for row in tables.rows("gemm")
        if (row["gpu"], row["engine"], row["precision"]) == ("h200", "tensorrt-llm", "fp8")
    }
    shapes = [shape for shape in own.keys() & left.keys() if not tables.cached_weights("h200", "fp8", shape)]
    assert len(shapes) > 10
    assert median(left[shape][32] / own[shape][32] for shape in shapes) == pytest.approx(1.06, abs=0.1)
    assert median(raw[shape][32] / own[shape][32] for shape in shapes) > 1.3


def test_what_vllm_times_beside_its_fp8_gemm_is_a_launch_and_one_pass_over_the_data() -> None:
    launch_us, passes = tables.vllm_beside()
    assert 1.5 < launch_us < 5 and 0.5 < passes < 1.5


def test_a_cache_read_from_l2_is_charged_and_a_larger_one_is_not() -> None:
    """16 MB stay in an H200's 60 MB; 100 MB do not."""
    assert tables.cold_read_us("h200", 16e6) == pytest.approx(0.6 * 16e6 / 4.8e12 * 1e6)
    assert tables.cold_read_us("h200", 100e6) == 0
    assert tables.cold_read_us("h100-sxm", 16e6) > tables.cold_read_us("h200", 16e6)


def test_small_weights_that_the_benchmark_kept_in_cache_are_known() -> None:
    assert tables.cached_weights("h200", "bf16", (768, 4096))
    assert not tables.cached_weights("h200", "bf16", (10240, 8192))


def test_every_shape_of_the_models_is_corrected_where_tables_are() -> None:
    with (SHIPPED / "gemm_factors.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    keys = {(row["gpu"], row["engine"], row["precision"]) for row in rows}
    assert len(keys) == 2 * 3 * 2
    factors = [float(value) for row in rows for key, value in row.items() if key[0] == "m"]
    assert len(rows) == 32 * len(keys) and min(factors) > 0.3 and max(factors) < 2.5
    assert 0.9 < median(factors) < 1.1
