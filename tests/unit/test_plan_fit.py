"""Where the planner's constants come from: operation tables and nothing else, and how far they are off them."""

import csv
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import yaml

from benchmarks.planner import all_reduce, fit, gemms, tables
from benchmarks.planner.solve import chip, errors
from serving_planner.cost_model.operations import AllReduceLaw, DecodeLaw, GemmLaw, PrefillLaw

ROOT = Path(__file__).parents[2]
PLANNER = ROOT / "benchmarks" / "planner"
SHIPPED = ROOT / "packages" / "serving_planner" / "data"

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
    assert list(fit.laws(gpus=("h100-sxm",), engines=("vllm",)))
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


@pytest.fixture(scope="module")
def fitted() -> list[fit.Found]:
    """Every law, fitted on this machine."""
    return list(fit.laws())


def shipped_law(shipped: dict[str, Any], found: fit.Found) -> Any:
    entry: Any = shipped
    for part in found.path:
        entry = entry[part]
    return type(found.law)(**entry.get("law", entry))


def predictions(law: Any, found: fit.Found) -> list[float]:
    return [predict(law) for _, predict in found.points]


def test_the_shipped_laws_predict_what_the_fit_on_this_machine_predicts(
    shipped: dict[str, Any], fitted: list[fit.Found]
) -> None:
    """At every measured size. Constants have four digits and the fit stops within 1e-8 of its cost: far below 1 %."""
    assert fit.by_section(fitted).keys() == shipped.keys() and len(fitted) > 90
    for found in fitted:
        ours = predictions(shipped_law(shipped, found), found)
        assert predictions(found.law, found) == pytest.approx(ours, rel=0.01), found.path


def undetermined(law: Any, found: fit.Found) -> list[str]:
    """The constants that may be another by half (0: as much as 20) and leave every prediction as it was."""
    names = [name for name in fit.plain(law) if name not in FIXED.get(found.path[0], ())]
    was = predictions(law, found)
    nudged = {name: replace(law, **{name: 1.5 * getattr(law, name) or 20.0}) for name in names}
    return [name for name, other in nudged.items() if predictions(other, found) == pytest.approx(was, rel=1e-3)]


FIXED = {"all_reduce": ("gpus",), "attention_decode": ("ramp_half_us",), "stream": ("row_us", "token_us")}


def test_the_measurements_determine_every_constant_that_ships(shipped: dict[str, Any], fitted: list[fit.Found]) -> None:
    """Else it is what the optimizer left, and another on the next processor."""
    for found in fitted:
        assert undetermined(shipped_law(shipped, found), found) == [], found.path
        if found.path[0] == "attention_decode":
            law = shipped_law(shipped, found)
            assert law.ramp_us > 0.1 or (law.ramp_us, law.ramp_half_us) == (0, 1), found.path


def test_a_way_that_never_wins_is_found(fitted: list[fit.Found]) -> None:
    """As it shipped once: one_shot_us 70.24 here, 18.77 where the same fit ran with AVX2 alone."""
    found = next(found for found in fitted if found.path == ("all_reduce", "nccl", "h200", 2))
    law = AllReduceLaw(2, 70.24, 0.2495, 7.274, 0.5781, 44.89, 0.2959)
    assert {"one_shot_us", "one_shot_efficiency"} <= set(undetermined(law, found))


def test_each_way_of_an_all_reduce_is_the_fastest_at_three_measured_sizes(
    shipped: dict[str, Any], fitted: list[fit.Found]
) -> None:
    reduced = [found for found in fitted if found.path[0] == "all_reduce"]
    assert len(reduced) > 40
    for found in reduced:
        _, engine, gpu, gpus = found.path
        law, sizes = shipped_law(shipped, found), all_reduce.sizes(gpu, engine, gpus)
        wins = all_reduce.wins(law, sizes, chip(gpu))
        assert min(wins.values()) >= 3 and sum(wins.values()) == len(sizes) > 15, found.path


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
        wrong = errors(DecodeLaw(**constants), fit.decode_points(gpu, engine, key))
    else:
        wrong = errors(PrefillLaw(**constants), fit.prefill_points(gpu, engine, *key.split("-")))
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
    law, at = GemmLaw(**shipped["gemm"][engine][gpu][precision]), chip(gpu, precision)
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
    wrong = errors(PrefillLaw(**constants), fit.prefill_points("h200", "tensorrt-llm", "fp8", "fp8"))
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
