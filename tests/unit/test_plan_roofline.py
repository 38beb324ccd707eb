"""The roofline: points under the roofs, batches that move along the slope, and FLOPs that add up by hand."""

from itertools import pairwise
from typing import Any

import pytest

from serving_base.errors import UsageError
from serving_planner.case import Case, parse_case
from serving_planner.cost_model.step import StepLoad
from serving_planner.replicas import resolve
from serving_planner.roofline import StepPoint, roofline_of


def case(**changes: Any) -> Case:
    base = {"model": "llama3-70b", "gpu": "h100-sxm", "tp": 8, "isl": 1024, "osl": 256, "concurrency": 64}
    return parse_case({**base, **changes})


CASES = (
    case(),
    case(weights="bf16", kv="bf16"),
    case(tp=4, pp=2),
    case(gpu="h200", tp=1),
    case(model="llama3-8b", tp=1, engine="vllm"),
    case(model="llama3-8b", gpu="l40s", tp=1, engine="sglang", kv="bf16"),
    case(model="llama3-8b", gpu="a100-sxm", tp=1, weights="bf16", kv="bf16", isl=128, osl=2048),
)
each_case = pytest.mark.parametrize("one", CASES, ids=lambda one: f"{one.gpu}-{one.engine}-{one.weights}-tp{one.tp}")


def decode(one: Case, *batches: int) -> tuple[StepPoint, ...]:
    return tuple(p for p in roofline_of(one, batches=batches).points if p.kind == "decode")


@each_case
def test_every_point_is_under_the_roof_of_its_precision(one: Case) -> None:
    found = roofline_of(one, prefill_tokens=(1, 128, 1024, 8192))
    for point in found.points:
        assert 0 < point.flops_per_s_per_gpu < found.roof_flops_per_s(point.flops_per_byte, one.weights), point


@each_case
def test_intensity_grows_with_the_batch_and_so_does_the_rate(one: Case) -> None:
    points = decode(one, 1, 2, 8, 16)
    for few, many in pairwise(points):
        assert few.flops_per_byte < many.flops_per_byte < few.flops_per_byte * many.tokens / few.tokens
        assert few.flops_per_s_per_gpu < many.flops_per_s_per_gpu


def test_one_sequence_reads_a_byte_for_two_flops_in_fp8_and_for_one_in_bf16() -> None:
    assert decode(case(), 1)[0].flops_per_byte == pytest.approx(2, rel=0.05)
    assert decode(case(weights="bf16", kv="bf16"), 1)[0].flops_per_byte == pytest.approx(1, rel=0.05)


def test_flops_and_bytes_of_a_decode_step_by_hand() -> None:
    """Llama-3-70B: 80 layers, 64 heads of 128, 8 of them for keys and values; contexts of 922 + 115.5 tokens."""
    layers, hidden, heads, kv_heads, size, ff, words, context = 80, 8192, 64, 8, 128, 28672, 128256, 1038
    linear = layers * (hidden * (2 * hidden + 2 * kv_heads * size) + 3 * hidden * ff)
    flops = 64 * (2 * (linear + hidden * words) + 4 * layers * heads * size * context)
    moved = linear + 2 * hidden * words + 64 * context * 2 * layers * kv_heads * size
    (point,) = decode(case(), 64)
    assert point.flops_per_byte == pytest.approx(flops / moved, rel=1e-3)
    assert point.flops_per_s_per_gpu == pytest.approx(flops / 8 / (point.step_ms / 1e3), rel=1e-3)


def test_a_step_takes_what_the_step_model_says() -> None:
    one = case()
    model = resolve(one).model
    found = roofline_of(one, batches=(64,), prefill_tokens=(8192,))
    assert found.points[0].step_ms == pytest.approx(1e3 * model.seconds(StepLoad(64, 64 * 1038)), rel=1e-3)
    prompts = StepLoad(prefill_tokens=8192, prefill_pairs=8192 * 923 / 2, prefill_sequences=9)
    assert found.points[1].step_ms == pytest.approx(1e3 * model.seconds(prompts), rel=1e-3)


def test_a_decoding_batch_waits_for_memory_and_a_step_of_prompts_for_arithmetic() -> None:
    found = roofline_of(case())
    ridge = found.ridge_flops_per_byte("fp8")
    assert ridge == pytest.approx(590, rel=0.01) == 2 * found.ridge_flops_per_byte("bf16")
    assert found.roof_flops_per_s(ridge / 2, "fp8") == pytest.approx(found.peaks_flops_per_s["fp8"] / 2)
    assert [(p.name, p.flops_per_byte > ridge) for p in found.points] == [
        ("decode, batch 1", False),
        ("decode, batch 8", False),
        ("decode, batch 64", False),
        ("decode, batch 2048", True),
        ("prefill, 8192 tokens", True),
    ]


def test_a_pipeline_stage_computes_its_share() -> None:
    """Half of the layers on each GPU: near half of the step's time, so near the same rate."""
    whole = decode(case(gpu="h200", tp=1), 8)[0]
    stage = decode(case(gpu="h200", tp=1, pp=2), 8)[0]
    assert stage.flops_per_byte == whole.flops_per_byte
    assert stage.step_ms == pytest.approx(whole.step_ms / 2, rel=0.1)
    assert stage.flops_per_s_per_gpu == pytest.approx(whole.flops_per_s_per_gpu, rel=0.1)


@pytest.mark.parametrize(
    ("steps", "complaint"),
    [
        ({"batches": (65,)}, "batch 65"),
        ({"batches": (0,)}, "batch 0"),
        ({"prefill_tokens": (8193,)}, "prefill_tokens 8193"),
    ],
)
def test_a_step_that_the_engine_cannot_run_is_refused(steps: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError, match=f"{complaint} is no step of this engine"):
        roofline_of(case(max_batch_size=64), **steps)
