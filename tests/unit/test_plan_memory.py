from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving_base.errors import UsageError
from serving_base.facts.gpus import gpus
from serving_planner.case import BYTES, Case, changed, parse_case
from serving_planner.cost_model.memory import (
    GIB,
    MIB,
    activations_bytes,
    engines,
    kv_bytes_per_token,
    memory,
    memory_of,
    nearest_that_fits,
)
from serving_planner.hardware import local_machine


def case(**keys: Any) -> Case:
    return parse_case({"model": "llama3-70b", "gpu": "h100-sxm", "isl": 1024, "osl": 256, **keys})


def weights_bytes(case: Case) -> int:
    return memory_of(case).weights_bytes


# Weights and KV bytes: the exact sizes of the published checkpoints.


def test_weights_on_one_gpu_are_the_checkpoint() -> None:
    assert weights_bytes(case()) == 72_656_371_712  # 72.66 GB: linear layers 1 byte, embedding, lm_head, norms 2
    assert weights_bytes(case(weights="bf16", kv="bf16")) == 2 * 70_553_706_496
    assert weights_bytes(case(model="llama3-8b", weights="bf16")) == 2 * 8_030_261_248


def test_tp_shares_all_weights_but_the_norms() -> None:
    norms = 2 * 1_318_912
    assert weights_bytes(case(tp=8)) == pytest.approx((72_656_371_712 - norms) / 8 + norms, abs=1)


def test_the_last_stage_is_the_fullest() -> None:
    # 40 of 80 layers, lm_head and no embedding; the first stage has the embedding, as large, and no final norm
    layers, head, norms = 68_451_041_280 // 2, 2 * 1_050_673_152, 2 * (2 * 40 + 1) * 8192
    assert weights_bytes(case(pp=2)) == layers + head + norms
    assert weights_bytes(case(pp=2)) > weights_bytes(case()) // 2


def test_kv_heads_are_copied_above_tp_8() -> None:
    assert kv_bytes_per_token(case(kv="bf16")) == 327_680
    assert kv_bytes_per_token(case()) == 163_840
    assert kv_bytes_per_token(case(tp=8)) == kv_bytes_per_token(case(tp=4, pp=2)) == 20_480
    assert kv_bytes_per_token(case(tp=16)) == 20_480  # one head, as at TP 8
    assert kv_bytes_per_token(case(tp=16, pp=2)) == 10_240
    # the copied K and V projections are weights too
    shape = case().shape
    extra = 80 * 2 * shape.hidden_size * (1 - 8 / 16) * shape.head_dim
    assert weights_bytes(case(tp=16)) == pytest.approx(
        (weights_bytes(case(tp=8)) - 2 * 1_318_912) / 2 + 2 * 1_318_912 + extra, rel=1e-6
    )


# Activations.


def test_activations_are_near_what_was_measured_for_llama() -> None:
    # aiconfigurator: 11, 6.5, 5, 5 units of tokens x hidden x 2 bytes at TP 1, 2, 4, 8
    for tp, units in {1: 11, 2: 6.5, 4: 5, 8: 5}.items():
        ours = activations_bytes(case(tp=tp, max_num_tokens=16384)) / (16384 * 8192 * 2)
        assert ours == pytest.approx(units, rel=0.16), tp


def test_activations_grow_with_max_num_tokens_and_shrink_with_tp() -> None:
    assert activations_bytes(case(max_num_tokens=16384)) == 2 * activations_bytes(case(max_num_tokens=8192))
    assert activations_bytes(case(tp=2)) < activations_bytes(case())
    assert activations_bytes(case(max_num_tokens=1, max_batch_size=1)) == 70 * MIB


def test_a_large_batch_costs_its_logits() -> None:
    small, large = (activations_bytes(case(tp=8, max_num_tokens=2048, max_batch_size=n)) for n in (1, 2048))
    assert large - small > 500 * MIB
    assert large == 1024 * 128256 * 10  # logits in BF16, in FP32, and probabilities, of at most 1024 sequences


# The KV cache: what engines print when they start.


@pytest.mark.parametrize(
    ("keys", "tokens", "tolerance"),
    [
        # vLLM, Llama-3.3-70B FP8 on one H100, max-num-seqs 8; the share is not stated, 0.95 taken: "GPU KV cache size"
        (
            {"engine": "vllm", "kv_fraction": 0.95, "max_batch_size": 8},
            33_504,
            0.05,
        ),
        # vLLM, Llama-3.1-8B BF16 on one 80 GB GPU, its defaults (vllm-project/vllm#18322)
        ({"engine": "vllm", "model": "llama3.1-8b", "weights": "bf16", "kv": "bf16"}, 442_160, 0.02),
    ],
)
def test_kv_capacity_is_what_engines_print(keys: dict[str, Any], tokens: int, tolerance: float) -> None:
    assert memory(case(**keys)).kv_capacity_tokens == pytest.approx(tokens, rel=tolerance)


def test_vllm_s_overhead_is_between_that_of_half_and_of_all_its_default_tokens() -> None:
    # Llama-3.1-70B FP8 on a card of 94.8 GiB at 0.90: weights 67.7, KV cache 14.54 GiB; the log does not say the tokens
    overhead = 0.9 * 94.8 - 67.7 - 14.54
    buffers = engines().engines["vllm"].buffers_mib / 1024
    low, high = (activations_bytes(case(engine="vllm", max_num_tokens=n)) / GIB + buffers for n in (8192, 16384))
    assert low < overhead < high


def test_tensorrt_llm_s_own_example_adds_up() -> None:
    # docs/source/reference/memory.md: of 79.10 GiB an engine of 6695 MiB and 1134.01 of activations leave 70.48 free
    engine = engines().engines["tensorrt-llm"]
    # and 224 MiB of buffers, which a PyTorch engine exceeds
    left = 79.10 * 1024 - 6695 - 1134.01 - 224 - engine.context_mib
    assert left / 1024 == pytest.approx(70.48, abs=0.01)
    assert engine.buffers_mib > 224


def test_sizes_of_the_facts() -> None:
    # roofline.md's own estimate with 4 GB for everything else: 3.15 M tokens at TP8, 1.37 M at TP4, 0.40 M on one H200
    for keys, tokens in (({"tp": 8}, 3.15e6), ({"tp": 4}, 1.37e6), ({"tp": 2}, 0.48e6), ({"gpu": "h200"}, 0.40e6)):
        assert memory(case(**keys)).kv_capacity_tokens == pytest.approx(tokens, rel=0.06)


def test_the_three_flags_are_shares_of_different_things() -> None:
    # 0.9 of what is left, 0.9 of everything less weights, 0.9 of what was free before loading less weights
    trt, vllm, sglang = (
        memory_of(case(tp=2, engine=name, max_batch_size=256)) for name in ("trtllm", "vllm", "sglang")
    )
    visible = case().hardware.visible_bytes
    assert trt.kv_cache_bytes / (visible - trt.weights_bytes) > 0.83
    assert vllm.kv_cache_bytes + vllm.weights_bytes < 0.9 * visible < trt.kv_cache_bytes + trt.weights_bytes
    assert vllm.kv_cache_bytes < sglang.kv_cache_bytes  # SGLang's activations live in the other tenth
    assert sglang.kv_cache_bytes + sglang.weights_bytes < 0.9 * visible


def test_a_share_that_leaves_no_room_for_the_rest_is_cut_and_said() -> None:
    greedy = memory(case(tp=2, engine="sglang", kv_fraction=0.99))
    assert greedy.total_bytes <= greedy.gpu_bytes
    assert "only" in greedy.warnings[0]
    assert memory(case(tp=2, engine="sglang")).warnings == ()


def test_what_each_knob_changes() -> None:
    plain = memory(case(tp=4, gpus=8))
    assert memory(case(tp=4, gpus=8, kv="bf16")).kv_capacity_tokens == pytest.approx(
        plain.kv_capacity_tokens / 2, rel=1e-3
    )
    assert memory(case(tp=4, gpus=8, kv_fraction=0.45)).kv_capacity_tokens == pytest.approx(
        plain.kv_capacity_tokens / 2, rel=1e-3
    )
    assert memory(case(tp=4, gpus=8, max_num_tokens=32768)).kv_capacity_tokens < plain.kv_capacity_tokens
    assert plain.max_concurrency == 2 * plain.sequences
    assert memory(case(tp=4, gpus=8, max_batch_size=64)).max_concurrency == 128


def test_sequences_take_whole_blocks() -> None:
    room = memory(case(isl=1, osl=64))  # 65 tokens: three blocks of 32
    assert room.sequences == room.kv_capacity_tokens // 96
    assert memory(case(isl=1, osl=63)).sequences == room.kv_capacity_tokens // 64
    vllm = memory(case(isl=1, osl=64, tp=2, engine="vllm"))
    assert vllm.sequences == vllm.kv_capacity_tokens // 80


def test_a_machine_without_gpu_has_no_cuda_to_pay() -> None:
    local_machine(20e9, 200e9, 2 * GIB, "memory test machine")
    room = memory(case(model="tiny", gpu="memory test machine", max_num_tokens=1024, max_batch_size=16))
    assert room.runtime_bytes == 0
    assert room.kv_capacity_tokens > 100_000


# What does not fit.


@pytest.mark.parametrize(
    ("keys", "fix"),
    [
        ({"weights": "bf16", "kv": "bf16"}, "use tp 2, the nearest that fits"),
        ({"weights": "bf16", "kv": "bf16", "gpus": 1}, "use weights fp8, the nearest that fits"),
        ({"gpu": "h200", "gpus": 1, "weights": "bf16", "kv": "bf16", "isl": 30000}, "use kv fp8,"),
        ({"gpu": "l4"}, "use tp 4,"),
        ({"gpu": "l40s", "instance": "g6e.xlarge"}, "use tp 2 on another instance"),
        ({"gpu": "l4", "gpus": 1}, "use gpu h100-sxm,"),
        ({"gpu": "l4", "gpus": 1, "model": "llama3-8b", "weights": "bf16", "kv": "bf16", "isl": 60000}, "use kv fp8"),
    ],
)
def test_what_does_not_fit_names_the_nearest_that_does(keys: dict[str, Any], fix: str) -> None:
    with pytest.raises(UsageError) as error:
        memory(case(**keys))
    assert "does not fit" in error.value.what
    assert "weights take" in error.value.why
    assert fix in error.value.fix


def test_the_nearest_that_fits_fits() -> None:
    near = nearest_that_fits(case(weights="bf16", kv="bf16", pp=5))
    assert near is not None and memory(near).sequences >= 1
    assert nearest_that_fits(case()) == case()  # which already fits


def test_nothing_fits_a_load_too_large_for_every_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    import serving_planner.cost_model.memory as module

    one = {"l4": gpus()["l4"].model_copy(update={"link_gpus": 1})}
    monkeypatch.setattr(module, "gpus", lambda: one)
    monkeypatch.setattr(Case, "hardware", property(lambda self: one["l4"]))
    with pytest.raises(UsageError) as error:
        memory(case(gpu="l4"))
    assert error.value.fix == "take a smaller model or a shorter load"


@given(
    model=st.sampled_from(["llama3-8b", "llama3-70b", "llama2-70b"]),
    gpu=st.sampled_from(["h100-sxm", "h200", "l40s", "l4"]),
    tp=st.sampled_from([1, 2, 4, 8, 16]),
    pp=st.sampled_from([1, 2, 4]),
    weights=st.sampled_from(["bf16", "fp8"]),
    kv=st.sampled_from(["bf16", "fp8"]),
    engine=st.sampled_from(["tensorrt-llm", "vllm", "sglang"]),
    kv_fraction=st.floats(0.1, 1),
    max_num_tokens=st.sampled_from([256, 8192, 65536]),
)
@settings(max_examples=80, deadline=None)
def test_laws(**keys: Any) -> None:
    asked = case(isl=500, osl=100, **keys)
    room = memory_of(asked)
    assert room.sequences * 600 <= room.kv_capacity_tokens
    assert room.kv_cache_bytes == room.kv_capacity_tokens * room.kv_bytes_per_token
    if room.kv_capacity_tokens:
        assert room.total_bytes <= room.gpu_bytes
    assert sum(room.gib().values()) == pytest.approx(2 * room.gib()["total"])
    assert room.weights_bytes * asked.world_size >= asked.shape.linear_parameters * BYTES[asked.weights]
    assert memory_of(changed(asked, kv="fp8")).kv_capacity_tokens >= room.kv_capacity_tokens
    assert memory_of(changed(asked, weights="fp8")).kv_capacity_tokens >= room.kv_capacity_tokens
    assert memory_of(changed(asked, gpu="h200")).kv_capacity_tokens >= room.kv_capacity_tokens
