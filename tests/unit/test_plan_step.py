"""The time of an engine step: its parts, its floor, how it grows and splits, and the traced steps that it must meet."""

import csv
import re
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from serving_base.facts.models import model_shape
from serving_planner.case import parse_case
from serving_planner.cost_model import laws, step
from serving_planner.cost_model.step import OPERATIONS, StepLoad, StepModel, rank_of, step_model
from serving_planner.hardware import gpu, gpus, local_machine

KERNELS = Path(__file__).parents[2] / "benchmarks" / "planner" / "data" / "own_kernels.csv"
SHAPES = {"8b": model_shape("llama-3-8b-instruct"), "70b": model_shape("llama-3-70b-instruct")}
PROMPT = StepLoad(0, 0, 2048, 2048 * 2049 / 2, 1)
MIXED = StepLoad(32, 32_000, 1024, 1024 * 1025 / 2, 1)
ENGINES = ("tensorrt-llm", "vllm", "sglang")


def model(
    shape: str = "70b", name: str = "h200", *, weights: str = "fp8", kv: str = "fp8", tp: int = 1, pp: int = 1,
    engine: str = "tensorrt-llm",
) -> StepModel:  # fmt: skip
    return StepModel(SHAPES[shape], gpu(name), weights=weights, kv=kv, tp=tp, pp=pp, engine=engine)


def decode(sequences: int, context: int = 1000) -> StepLoad:
    return StepLoad(sequences, sequences * context)


def traced_steps() -> dict[tuple[str, int], float]:
    """Busy microseconds of vLLM 0.26 steps on H200s; with TP 2 those of its own all-reduce."""
    busy: dict[tuple[str, int], float] = defaultdict(float)
    with KERNELS.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            busy[row["step"], int(row["tp"])] += float(row["us"])
    return {key: us for key, us in busy.items() if key[1] == 1 or "customar" in key[0] or "prefill" in key[0]}


def test_the_laws_of_single_operations_add_up_to_traced_steps() -> None:
    """A check of the sum, not wholly independent: GEMM times are micro-benchmarks of the same machine, attention and
    all-reduce are the wheel's, but the small kernels' laws and the sampling are taken from these very traces. Gaps
    between kernels come on top of the busy time.
    """
    wrong = {}
    for (name, tp), busy_us in traced_steps().items():
        weights, kv = "fp8" if "fp8" in name else "bf16", "fp8" if "fp8kv" in name else "bf16"
        found = re.search(r"\.(decode|prefill)(\d+)$", name)
        assert found
        load = decode(int(found[2]), 1065) if found[1] == "decode" else StepLoad(0, 0, 4096, 4096 * 4097 / 2, 1)
        planned = model(name.split("-")[0], weights=weights, kv=kv, tp=tp, engine="vllm").seconds(load)
        wrong[name] = planned * 1e6 / busy_us - 1
    assert len(wrong) >= 20
    assert max(map(abs, wrong.values())) < 0.08, wrong
    assert abs(sum(wrong.values()) / len(wrong)) < 0.04, wrong


@pytest.mark.parametrize("load", [decode(1), decode(37), decode(256, 4000), PROMPT, MIXED], ids=str)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("tp", "pp"), [(1, 1), (8, 1), (4, 2)])
def test_the_parts_add_up_and_each_is_above_its_floor(engine: str, tp: int, pp: int, load: StepLoad) -> None:
    made = model(tp=tp, pp=pp, engine=engine)
    parts = made.split(load)
    assert tuple(parts) == OPERATIONS
    assert sum(part.seconds for part in parts.values()) == pytest.approx(made.seconds(load), rel=1e-9)
    assert all(part.seconds >= part.floor_seconds >= 0 for part in parts.values())
    assert made.floor_seconds(load) == pytest.approx(sum(part.floor_seconds for part in parts.values()))
    assert (parts["all_reduce"].seconds > 0) == (tp > 1) and (parts["pipeline"].seconds > 0) == (pp > 1)
    assert (parts["attention_prefill"].seconds > 0) == (load.prefill_tokens > 0)
    assert (parts["attention_decode"].seconds > 0) == (load.decode_sequences > 0)


@pytest.mark.parametrize("name", [name for name, card in gpus().items() if not card.measured])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_step_takes_longer_with_more_of_anything(name: str, engine: str) -> None:
    precision = "fp8" if gpu(name).fp8 else "bf16"
    made = model("8b", name, weights=precision, kv=precision, engine=engine)
    for loads in (
        [decode(n) for n in (1, 8, 64, 128, 256, 512, 1024)],
        [decode(64, context) for context in (100, 1000, 4000, 16000)],
        [StepLoad(0, 0, n, n * (n + 1) / 2, 1) for n in (128, 1024, 4096, 8192)],
        [decode(32), MIXED, StepLoad(32, 32_000, 1024, 1024 * 3000, 1)],
        [StepLoad(0, 0, 4096, 4096 * 512, 8), StepLoad(0, 0, 4096, 4096 * 4097 / 2, 1)],
    ):
        times = [made.seconds(load) for load in loads]
        assert all(after >= before for before, after in pairwise(times)), loads
        assert times[-1] > times[0]


def test_nothing_to_do_takes_no_time() -> None:
    assert model().seconds(StepLoad()) == 0 and model().floor_seconds(StepLoad()) == 0
    assert set(model().split(StepLoad())) == set(OPERATIONS)


def test_the_floor_is_the_weights_over_the_bandwidth_at_one_sequence() -> None:
    shape, card = SHAPES["70b"], gpu("h200")
    head = 2 * shape.vocab_size * shape.hidden_size
    read_s = (shape.linear_parameters + head) / card.bandwidth_bytes_per_s
    assert model().floor_seconds(decode(1, 1)) == pytest.approx(read_s, rel=0.01)
    prompt_flops = 2 * shape.linear_parameters * 2048
    floor = model().floor_seconds(PROMPT)
    assert floor > prompt_flops / card.dense_flops["fp8"]
    assert floor == pytest.approx(prompt_flops / card.dense_flops["fp8"], rel=0.2)


def test_tensor_parallel_divides_what_each_rank_holds() -> None:
    shape = SHAPES["70b"]
    whole, eighth, stage = rank_of(shape, 1, 1), rank_of(shape, 8, 1), rank_of(shape, 4, 2)
    assert whole.gemms == ((10240, 8192), (8192, 8192), (57344, 8192), (8192, 28672))
    assert eighth.gemms == ((1280, 8192), (8192, 1024), (7168, 8192), (8192, 3584))
    assert (eighth.heads, eighth.kv_heads, eighth.vocabulary, eighth.layers) == (8, 1, 16032, 80)
    assert stage.layers == 40 and rank_of(shape, 16, 1).kv_heads == 1  # repeated, not divided further


@pytest.mark.parametrize("engine", ENGINES)
def test_more_ranks_are_faster_but_never_in_proportion(engine: str) -> None:
    for load in (decode(1), decode(64), PROMPT):
        times = [model(tp=tp, engine=engine).seconds(load) for tp in (1, 2, 4, 8)]
        assert all(1.0 < few / many < 2.0 for few, many in pairwise(times)), (engine, load)


def test_a_stage_of_a_pipeline_takes_half_the_layers_and_a_send() -> None:
    whole, stage = model(tp=4), model(tp=4, pp=2)
    assert 0.5 < stage.seconds(decode(64)) / whole.seconds(decode(64)) < 0.6
    sent = stage.split(PROMPT)["pipeline"].seconds
    assert sent > laws.pipeline().latency_us * 1e-6


def test_a_decode_step_is_padded_to_the_next_captured_size() -> None:
    made = model(engine="tensorrt-llm")
    linear = {n: made.split(decode(n))["linear"].seconds for n in (33, 40, 41, 129, 256)}
    assert linear[33] == linear[40] < linear[41] and linear[129] == linear[256]
    assert made.split(decode(129))["linear"].floor_seconds < made.split(decode(256))["linear"].floor_seconds
    assert laws.engine_step("tensorrt-llm").graph_tokens.sizes[:6] == (1, 2, 4, 8, 16, 24)
    assert model(engine="vllm").split(decode(129))["linear"].seconds < linear[129] * 1.05


def test_fp8_is_faster_than_bf16_and_gains_least_on_many_ranks() -> None:
    def gain(tp: int, load: StepLoad) -> float:
        return model(weights="bf16", kv="bf16", tp=tp).seconds(load) / model(tp=tp).seconds(load)

    assert gain(1, decode(1)) > gain(8, decode(1)) > 1.05
    assert 1.5 < gain(1, PROMPT) < 2.0
    assert model().seconds(decode(128, 8000)) < model(kv="bf16").seconds(decode(128, 8000))


def test_the_host_sets_the_pace_where_its_step_is_the_longer_one() -> None:
    """Tiny GPU steps with many requests: FP8 8B on eight H100s."""
    host = laws.engine_step("tensorrt-llm").host
    made = model("8b", "h100-sxm", tp=8)
    many = decode(512, 100)
    assert made.seconds(many) == pytest.approx((host.step_us + 512 * host.request_us) * 1e-6)
    assert made.split(many)["overhead"].seconds > made.split(many)["linear"].seconds
    large = model(tp=1).split(decode(64))["overhead"].seconds
    assert large == pytest.approx(host.exposed_us * 1e-6)


def test_the_wait_for_the_last_rank_grows_with_the_ranks() -> None:
    skew = laws.skew()
    shares = [skew.share(ranks, 64) for ranks in (1, 2, 4, 8, 16)]
    assert shares[0] == 0 and shares == sorted(shares) and shares[3] < 0.02
    assert skew.share(8, 8192) == skew.share(8, 4096) > skew.share(8, 64)


def test_what_an_engine_does_is_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """NCCL instead of the engine's own all-reduce, as TensorRT-LLM 1.0 had on Hopper: eight ranks pay for it."""
    facts = laws.engine_step("tensorrt-llm")
    with_nccl = facts.model_copy(update={"all_reduce": facts.all_reduce.model_copy(update={"table": "nccl"})})
    before = model(tp=8).split(decode(4))["all_reduce"].seconds
    monkeypatch.setattr(step, "engine_step", lambda engine: with_nccl)
    assert model(tp=8).split(decode(4))["all_reduce"].seconds > 2 * before


def test_the_hot_path_looks_up_and_computes_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted, not timed: after the first step of a size, GEMMs, kernels and collectives are not computed again."""
    made = model(tp=8)
    calls: list[int] = []

    def counted(original: Callable[..., float]) -> Callable[..., float]:
        def call(*given: object) -> float:
            calls.append(1)
            return original(*given)

        return call

    for name in ("_linear_us", "_stream_us", "_reduce_us", "_head_us"):
        original = getattr(made, name)
        monkeypatch.setattr(made, name, counted(original))
    loads = [StepLoad(32, 32_000 + n, 1024, 1024 * 600.0 + n, 1) for n in range(100)]
    loads += [decode(32, 1000 + n) for n in range(100)]
    for load in loads:
        made.seconds(load)
    assert 0 < len(calls) <= 8


def test_tokens_above_a_few_tiles_share_their_times() -> None:
    made = model()
    for tokens in range(4096, 4096 + 64):
        made.seconds(StepLoad(0, 0, tokens, tokens * tokens / 2, 1))
    assert len(made._by_tokens) <= 5
    assert made.seconds(StepLoad(0, 0, 4097, 4097 * 2048, 1)) > made.seconds(StepLoad(0, 0, 4096, 4096 * 2048, 1))


def test_a_case_gives_its_step_model() -> None:
    case = parse_case({"model": "llama3-70b", "gpu": "h100-sxm", "tp": 4, "pp": 2, "isl": 1024, "osl": 128})
    made = step_model(case)
    assert (made.tp, made.pp, made.rank.layers) == (4, 2, 40)
    assert made.seconds(decode(8)) == model(name="h100-sxm", tp=4, pp=2).seconds(decode(8))


@pytest.mark.parametrize(
    ("architecture", "relative"), [("sm75", "a100-sxm"), ("sm86", "a100-sxm"), ("sm90", "h200"), ("sm100", "h200")]
)
def test_a_gpu_that_was_not_measured_is_planned_by_its_relative(architecture: str, relative: str) -> None:
    unknown = gpu("a100-sxm").model_copy(update={"name": "new", "architecture": architecture})
    assert laws.stand_in("tensorrt-llm", unknown)[1] == relative
    assert laws.gemm_law("tensorrt-llm", unknown, "bf16") == laws.gemm_law("tensorrt-llm", gpu(relative), "bf16")


def test_a_machine_that_was_measured_is_planned_by_its_bandwidth() -> None:
    machine = local_machine(40e9, 1e12, 64_000_000_000, name="step test machine")
    made = StepModel(SHAPES["8b"], machine, weights="bf16", kv="bf16", tp=1, pp=1, engine="tensorrt-llm")
    read_s = (2 * SHAPES["8b"].linear_parameters + 2 * 128256 * 4096) / 40e9
    assert 1 < made.seconds(decode(1, 100)) / read_s < 1.3


def test_every_fact_of_an_engine_has_a_source() -> None:
    for engine in ENGINES:
        sources = laws.engine_step(engine).sources
        assert {"kernels", "all_reduce", "graph_tokens", "host", "sampling"} <= sources.keys()
        assert all(sources.values())
