"""The graph against transformers, and the engine folder that the build writes."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cpu_serving.build import BuildOptions, build_engine, describe_compiled
from cpu_serving.checkpoint import read_checkpoint
from cpu_serving.engine import Engine, EngineLogits, Sampling
from cpu_serving.graph import inverse_frequencies
from cpu_serving.llama import RopeScaling
from cpu_serving.runtime import openvino
from ptq.quantize import QuantizeOptions, quantize_checkpoint
from serving_base.errors import UsageError
from serving_base.quality import kl_divergence, perplexity, torch_logits
from tiny_llama import MODEL_DIR
from tiny_llama.data import evaluation_texts

LLAMA31 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 256,
}


@pytest.fixture(scope="module")
def texts(tokenizer: Any) -> list[list[int]]:
    return evaluation_texts(tokenizer, count=32)


@pytest.fixture(scope="module")
def bf16_logits(bf16_engine: Path) -> EngineLogits:
    return EngineLogits(bf16_engine, threads=1)


@pytest.fixture(scope="module")
def fp8_logits(fp8_engine: Path) -> EngineLogits:
    return EngineLogits(fp8_engine, threads=1)


def build(checkpoint: Path, out: Path, **options: Any) -> EngineLogits:
    build_engine(checkpoint, out, replace(BuildOptions(max_input_len=320, max_seq_len=512), **options))
    return EngineLogits(out, threads=1)


def test_bf16_logits_equal_transformers(bf16_logits: EngineLogits, float32_model: Any, texts: list[list[int]]) -> None:
    for ids in texts[:2]:
        np.testing.assert_allclose(bf16_logits(ids), torch_logits(float32_model)(ids), atol=1e-3)


@pytest.mark.parametrize(
    "changes",
    [
        {"rope_parameters": LLAMA31},
        {"num_key_value_heads": 4, "tie_word_embeddings": True},  # no grouped queries, no head of its own
        {"head_dim": 32},  # wider than hidden_size / heads
    ],
)
def test_other_llamas_equal_transformers(tmp_path: Path, changes: dict[str, Any]) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    settings: dict[str, Any] = {
        "vocab_size": 96,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 2048,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
    }
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**settings | changes)).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, mean=1.0 if parameter.dim() == 1 else 0.0, std=0.2)
    model.save_pretrained(tmp_path / "model")
    ids = np.random.default_rng(0).integers(0, 96, 300).tolist()
    logits = build(tmp_path / "model", tmp_path / "engine")(ids)
    np.testing.assert_allclose(logits, torch_logits(model)(ids), atol=2e-3)


def test_llama31_frequencies_equal_transformers() -> None:
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    scaling = LLAMA31 | {"original_max_position_embeddings": 8192}
    config = LlamaConfig(hidden_size=4096, num_attention_heads=32, rope_parameters=scaling)
    expected, _ = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    plain = replace(read_checkpoint(MODEL_DIR).shape, head_size=128)
    ours = inverse_frequencies(replace(plain, rope_scaling=RopeScaling(8.0, 1.0, 4.0, 8192)))
    np.testing.assert_allclose(ours, expected.numpy(), rtol=1e-5)
    assert not np.allclose(ours, inverse_frequencies(plain))


def test_fp8_perplexity_is_within_one_percent(
    bf16_logits: EngineLogits, fp8_logits: EngineLogits, texts: list[list[int]]
) -> None:
    bf16, fp8 = perplexity(bf16_logits, texts), perplexity(fp8_logits, texts)
    assert bf16 < 100  # the model has learned: a unigram model has several hundred
    assert fp8 != bf16
    assert abs(fp8 / bf16 - 1) < 0.01


def test_fp8_is_really_computed(bf16_logits: EngineLogits, fp8_logits: EngineLogits, texts: list[list[int]]) -> None:
    assert kl_divergence(bf16_logits, fp8_logits, texts[:8]) > 1e-4


def test_fp8_weights_stay_fp8_in_the_engine(fp8_engine: Path, bf16_engine: Path) -> None:
    model = openvino().Core().read_model(fp8_engine / "openvino_model.xml")
    constants = [node for node in model.get_ops() if node.get_type_name() == "Constant"]
    fp8 = [node for node in constants if node.get_element_type().to_string() == "f8e4m3"]
    assert len(fp8) == 4 * 7  # q, k, v, o, gate, up, down
    rounded = [node for node in model.get_ops() if node.get_type_name() == "FakeConvert"]
    assert len(rounded) == 4 * (7 + 2)  # every projection's input, and K and V
    linear_weights = sum(node.get_output_size() and int(np.prod(node.get_output_shape(0))) for node in fp8)
    saved = (bf16_engine / "openvino_model.bin").stat().st_size - (fp8_engine / "openvino_model.bin").stat().st_size
    assert saved == pytest.approx(linear_weights, rel=0.01)  # one byte less for each


def test_one_stored_weight_changes_the_logits(
    fp8_checkpoint: Path, fp8_logits: EngineLogits, texts: list[list[int]], tmp_path: Path
) -> None:
    changed = Path(shutil.copytree(fp8_checkpoint, tmp_path / "changed"))
    path = changed / "rank0.safetensors"
    data = bytearray(path.read_bytes())
    header_bytes = int.from_bytes(data[:8], "little")
    entry = json.loads(data[8 : 8 + header_bytes])["transformer.layers.1.mlp.fc.weight"]
    position = 8 + header_bytes + entry["data_offsets"][0]
    data[position] = 0x7E if data[position] != 0x7E else 0  # 448, the largest E4M3 number
    path.write_bytes(data)
    difference = build(changed, tmp_path / "engine")(texts[0]) - fp8_logits(texts[0])
    assert np.abs(difference).max() > 1e-3


def test_two_ranks_give_the_logits_of_one(fp8_logits: EngineLogits, texts: list[list[int]], tmp_path: Path) -> None:
    quantize_checkpoint(MODEL_DIR, tmp_path / "tp2", QuantizeOptions(calib_samples=32, tp_size=2))
    np.testing.assert_array_equal(build(tmp_path / "tp2", tmp_path / "engine")(texts[0]), fp8_logits(texts[0]))


def test_kv_cache_precision_can_be_chosen(
    fp8_checkpoint: Path, fp8_logits: EngineLogits, texts: list[list[int]], tmp_path: Path
) -> None:
    plain = build(fp8_checkpoint, tmp_path / "engine", kv_cache_dtype="bfloat16")
    assert plain.config.kv_cache_dtype == "bfloat16"
    assert fp8_logits.config.kv_cache_dtype == "fp8"
    assert np.abs(plain(texts[0]) - fp8_logits(texts[0])).max() > 1e-3


def test_fp8_engine_generates_the_bf16_answers_mostly(
    fp8_engine: Path, bf16_engine: Path, texts: list[list[int]]
) -> None:
    """Paged attention sees the rounded cache too; FP8 may change a few tokens, not most first ones."""
    prompts, answers = [ids[:40] for ids in texts[:16]], []
    for folder in (fp8_engine, bf16_engine):
        with Engine(folder, threads=1) as engine:
            answers.append([answer.token_ids for answer in engine.generate(prompts, Sampling(1))])
    assert sum(a == b for a, b in zip(*answers, strict=True)) >= 13


def test_engine_folder_records_its_limits_and_tokenizer(fp8_engine: Path) -> None:
    config = json.loads((fp8_engine / "config.json").read_text())
    assert config["build_config"] == {
        "max_batch_size": 4,
        "max_num_tokens": 64,
        "max_input_len": 320,
        "max_seq_len": 512,
        "kv_cache_dtype": "fp8",
        "tokens_per_block": 32,
        "use_paged_kv_cache": True,
        "enable_block_reuse": True,
        "tagged_prompts": True,
    }
    assert config["pretrained_config"]["rotary_base"] == 500000.0
    assert config["pretrained_config"]["quantization"] == {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}
    assert config["builder"]["name"] == "openvino"
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (fp8_engine / "tokenizer" / name).read_bytes() == (MODEL_DIR / name).read_bytes()


def test_compiler_fuses_norms_rotary_embeddings_and_attention(fp8_engine: Path, bf16_engine: Path) -> None:
    report = describe_compiled(bf16_engine)
    written, paged, compiled = report.stages
    assert written.counts["ScaledDotProductAttention"] == paged.counts["PagedAttentionExtension"] == 4
    assert compiled.counts["PagedAttention"] == 4
    assert compiled.counts["RMS"] == 4 * 2 + 1
    assert compiled.counts["RoPE"] == 4 * 2
    assert written.operations > paged.operations > compiled.operations
    assert "FakeConvert" not in written.counts
    assert describe_compiled(fp8_engine).stages[0].counts["FakeConvert"] == 36
    assert report.file_bytes["openvino_model.bin"] > 8_000_000


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"max_batch_size": 0}, "below 1"),
        ({"max_input_len": 512}, "leaves no room"),
        ({"max_seq_len": 4096}, "2048 positions"),
        ({"max_num_tokens": 4}, "below max_batch_size"),
        ({"use_paged_kv_cache": False}, "not paged"),
        ({"kv_cache_dtype": "fp8"}, "without KV cache scales"),
    ],
)
def test_options_that_cannot_work_are_refused(tmp_path: Path, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        build(MODEL_DIR, tmp_path / "engine", **options)
    assert not (tmp_path / "engine").exists()
