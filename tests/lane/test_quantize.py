"""modelopt's quantization: what is stored, what it costs, and what is refused."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cpu_serving.build import BuildOptions, build_engine
from cpu_serving.checkpoint import read_checkpoint
from cpu_serving.engine import EngineLogits
from cpu_serving.llama import dtype_name, read_safetensors
from playbook.profile import load_profile
from ptq.numerics import add_outliers, layer_input, round_fp8, round_int8, sqnr_db
from ptq.quantize import (
    QuantizeOptions,
    QuantizeReport,
    apply_quantization,
    export_checkpoint,
    layer_scales,
    load_model,
    quantize_checkpoint,
)
from serving_base.errors import CheckpointError, UsageError
from serving_base.quality import perplexity, remembered, torch_logits
from tiny_llama import MODEL_DIR
from tiny_llama.data import calibration_texts, evaluation_texts


@pytest.fixture(scope="module")
def texts(tokenizer: Any) -> list[list[int]]:
    return evaluation_texts(tokenizer, count=8)


@pytest.fixture(scope="module")
def calibration(tokenizer: Any) -> list[list[int]]:
    return calibration_texts(tokenizer, 32, 256)


@pytest.fixture(scope="module")
def plain(texts: list[list[int]]) -> float:
    """Perplexity of the model in its 16 bits."""
    return perplexity(torch_logits(load_model(MODEL_DIR)), texts)


@pytest.fixture(scope="module")
def faked(calibration: list[list[int]], texts: list[list[int]]) -> float:
    """Perplexity of the model that computes with values rounded to FP8."""
    model = apply_quantization(load_model(MODEL_DIR), QuantizeOptions(), calibration)
    return perplexity(torch_logits(model), texts)


# Layers that TensorRT-LLM fuses share one scale: its name -> the names in the Hugging Face model.
FUSED = (
    {"attention.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")},
    {"attention.dense": ("self_attn.o_proj",)},
    {"mlp.fc": ("mlp.gate_proj",), "mlp.gate": ("mlp.up_proj",)},
    {"mlp.proj": ("mlp.down_proj",)},
)


def concatenate(tensors: dict[str, np.ndarray], number: int, names: tuple[str, ...]) -> np.ndarray:
    parts = [tensors[f"model.layers.{number}.{name}.weight"] for name in names]
    return np.concatenate(parts).astype(np.float32)


def test_rank_file_holds_fp8_weights_with_amax_448_scales(fp8_checkpoint: Path) -> None:
    """Recomputed from the BF16 weights: scale = amax / 448, stored = round(weight / scale)."""
    original = read_safetensors(MODEL_DIR / "model.safetensors")
    stored = read_safetensors(fp8_checkpoint / "rank0.safetensors")
    for number in range(4):
        for parts in FUSED:
            weights = {ours: concatenate(original, number, theirs) for ours, theirs in parts.items()}
            scale = max(float(np.abs(weight).max()) for weight in weights.values()) / 448
            for ours, weight in weights.items():
                prefix = f"transformer.layers.{number}.{ours}"
                quantized = stored[f"{prefix}.weight"]
                assert dtype_name(quantized) == "F8_E4M3"
                assert float(stored[f"{prefix}.weights_scaling_factor"][0]) == pytest.approx(scale, rel=1e-6), prefix
                error = np.abs(quantized.astype(np.float32) * scale - weight)
                # Half a step: 3 mantissa bits, and 2^-10 below the smallest normal number.
                assert (error <= np.maximum(np.abs(weight) / 16, scale * 2.0**-10) * 1.01).all()
    assert dtype_name(stored["lm_head.weight"]) == "BF16"


def test_config_records_the_quantization(fp8_checkpoint: Path) -> None:
    config = json.loads((fp8_checkpoint / "config.json").read_text())
    assert config["rotary_base"] == 500000.0
    assert config["quantization"]["quant_algo"] == config["quantization"]["kv_cache_quant_algo"] == "FP8"
    assert (fp8_checkpoint / "tokenizer" / "tokenizer.json").is_file()


def test_report_shows_what_calibration_saw(fp8_report: QuantizeReport, fp8_checkpoint: Path) -> None:
    rows = {row.layer: row for row in fp8_report.scales}
    assert len(rows) == 4 * (7 + 1)
    weights = read_checkpoint(fp8_checkpoint)
    down = rows["model.layers.1.mlp.down_proj"]
    assert down.input_amax is not None
    assert weights.layers[1].down.input_scale == pytest.approx(down.input_amax / 448)
    assert weights.layers[1].down.weight_scale == pytest.approx((down.weight_amax or 0) / 448)
    attention = rows["model.layers.0.self_attn"]
    assert attention.key_amax is not None
    assert 0 < attention.key_amax < 448
    assert weights.layers[0].key_scale == 1.0  # the export does not go below 1
    assert fp8_report.checkpoint_bytes == (fp8_checkpoint / "rank0.safetensors").stat().st_size
    assert fp8_report.checkpoint_bytes < 0.65 * (MODEL_DIR / "model.safetensors").stat().st_size


def test_fake_quantized_model_loses_less_than_a_percent(plain: float, faked: float) -> None:
    assert faked != plain
    assert abs(faked / plain - 1) < 0.01


def test_remembered_logits_are_computed_once_for_each_text() -> None:
    asked: list[list[int]] = []

    def logits(ids: Sequence[int]) -> np.ndarray:
        asked.append(list(ids))
        return np.array([[len(asked)]], dtype=np.float32)

    known = remembered(logits)
    assert [float(known(ids)[0, 0]) for ids in ([1, 2], [3], [1, 2], (3,))] == [1, 2, 1, 2]
    assert asked == [[1, 2], [3]]


def test_only_the_kv_cache_can_be_quantized(tmp_path: Path) -> None:
    report = quantize_checkpoint(MODEL_DIR, tmp_path, QuantizeOptions(qformat="full_prec", calib_samples=4))
    assert [(row.weight_amax, row.input_amax) for row in report.scales] == [(None, None)] * 4
    shape = read_checkpoint(tmp_path).shape
    assert (shape.quant_algo, shape.kv_cache_quant_algo) == (None, "FP8")


def test_outliers_change_nothing_in_bf16_break_int8_and_spare_fp8(
    calibration: list[list[int]], texts: list[list[int]], plain: float
) -> None:
    model = load_model(MODEL_DIR)
    before = torch_logits(model)(texts[0])
    add_outliers(model, 256, [3, 70, 131, 200])
    np.testing.assert_array_equal(torch_logits(model)(texts[0]), before)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}

    def loss_of(qformat: str) -> float:
        fresh = load_model(MODEL_DIR)
        fresh.load_state_dict(state)
        options = QuantizeOptions(qformat=qformat, kv_cache_dtype="auto")
        return perplexity(torch_logits(apply_quantization(fresh, options, calibration)), texts) / plain

    assert loss_of("fp8") == pytest.approx(1, abs=0.01)
    assert loss_of("int8_sq") < 1.05
    assert loss_of("int8") > 2


def test_outlier_factor_must_be_exact() -> None:
    with pytest.raises(UsageError, match="not a power of two"):
        add_outliers(load_model(MODEL_DIR), 100, [0])


def test_unified_checkpoint_is_fp8_and_builds(tmp_path: Path, texts: list[list[int]], faked: float) -> None:
    """transformers would ignore its scales; the embedded engine reads them."""
    report = quantize_checkpoint(MODEL_DIR, tmp_path / "hf", QuantizeOptions(calib_samples=32), layout="hf")
    assert report.checkpoint_bytes == (tmp_path / "hf" / "model.safetensors").stat().st_size
    weights = read_checkpoint(tmp_path / "hf")
    assert (weights.shape.quant_algo, weights.shape.kv_cache_quant_algo) == ("FP8", "FP8")
    assert dtype_name(weights.layers[0].query.weight) == "F8_E4M3"
    build_engine(tmp_path / "hf", tmp_path / "engine", BuildOptions())
    assert perplexity(EngineLogits(tmp_path / "engine", threads=1), texts) == pytest.approx(faked, rel=0.01)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (QuantizeOptions(qformat="nvfp4"), "cannot be made on a CPU"),
        (QuantizeOptions(qformat="mxfp8"), "cannot be made on a CPU"),
        (QuantizeOptions(qformat="fp9"), "unknown qformat"),
        (QuantizeOptions(kv_cache_dtype="int8"), "kv_cache_dtype 'int8'"),
        (QuantizeOptions(dtype="float32"), "dtype 'float32'"),
        (QuantizeOptions(tp_size=0), "tp_size"),
        (QuantizeOptions(tp_size=3, calib_samples=4), "does not divide 8 attention heads"),
        (QuantizeOptions(qformat="int8", calib_samples=4), "no TensorRT-LLM checkpoint"),
    ],
)
def test_what_cannot_be_done_is_refused(tmp_path: Path, options: QuantizeOptions, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        quantize_checkpoint(MODEL_DIR, tmp_path / "out", options)
    assert not (tmp_path / "out").exists()


def test_export_without_rotary_base_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import modelopt.torch.export as export

    real = export.export_tensorrt_llm_checkpoint

    def forgetful(model: Any, *args: Any, **kwargs: Any) -> None:
        del model.config.rope_theta  # what transformers 5 does
        real(model, *args, **kwargs)

    monkeypatch.setattr(export, "export_tensorrt_llm_checkpoint", forgetful)
    with pytest.raises(CheckpointError, match="rotary_base None for a model with 500000"):
        export_checkpoint(load_model(MODEL_DIR), MODEL_DIR, tmp_path, QuantizeOptions(qformat="full_prec"))


def test_quantization_prints_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    quantize_checkpoint(MODEL_DIR, tmp_path, QuantizeOptions(calib_samples=2, calib_max_length=16))
    assert capfd.readouterr() == ("", "")
    assert not [str(warning.message) for warning in recwarn if "modelopt" in str(warning.filename)]


def test_options_come_from_the_profile() -> None:
    profile = load_profile("local")
    options = QuantizeOptions.from_profile(profile)
    assert (options.qformat, options.kv_cache_dtype, options.tp_size) == ("fp8", profile.kv_cache_dtype, profile.tp)
    assert (options.calib_samples, options.calib_max_length) == (profile.calib_samples, profile.calib_max_length)
    build = BuildOptions.from_profile(profile)
    assert (build.max_batch_size, build.max_seq_len) == (profile.max_batch_size, profile.max_seq_len)


def test_model_without_quantizers_has_no_scales() -> None:
    assert not list(layer_scales(load_model(MODEL_DIR)))


def test_fp8_rounding_is_exact_on_its_own_numbers_and_relative_elsewhere() -> None:
    own = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    own = own[own.isfinite()]
    torch.testing.assert_close(round_fp8(own), own, rtol=0, atol=0)
    assert round_fp8(torch.tensor([1.0, 500.0]), amax=448.0).tolist() == [1.0, 448.0]  # saturates
    assert round_fp8(torch.tensor([17.0, 448.0])).tolist() == [16.0, 448.0]  # 17 lies between 16 and 18: to even
    assert round_fp8(torch.zeros(3)).tolist() == [0.0] * 3


def test_int8_rounding_has_equal_steps() -> None:
    x = torch.linspace(-127, 127, 255)
    torch.testing.assert_close(round_int8(x), x, rtol=0, atol=0)
    assert round_int8(torch.tensor([0.4, 0.6, 127.0])).tolist() == [0.0, 1.0, 127.0]
    assert round_int8(torch.tensor([-9.0, 9.0]), amax=4.0).tolist() == pytest.approx([-4.0, 4.0])


def test_noise_depends_on_the_distribution_for_int8_only() -> None:
    generator = torch.Generator().manual_seed(0)
    gaussian = torch.randn(100_000, generator=generator)
    outliers = gaussian.clone()
    outliers[::1000] *= 100
    assert sqnr_db(gaussian, round_fp8(gaussian)) == pytest.approx(31.6, abs=0.3)
    assert sqnr_db(outliers, round_fp8(outliers)) == pytest.approx(31.6, abs=0.5)
    assert sqnr_db(gaussian, round_int8(gaussian)) > 35
    normal = outliers.abs() < 5
    assert sqnr_db(outliers[normal], round_int8(outliers)[normal]) < 10
    assert sqnr_db(gaussian, gaussian) == math.inf
    assert sqnr_db(torch.tensor([1.0, 0.0]), torch.tensor([0.9, 0.0])) == pytest.approx(20)


def test_layer_input_is_what_the_layer_sees(texts: list[list[int]]) -> None:
    model = load_model(MODEL_DIR)
    seen = layer_input(model, "model.layers.0.self_attn.q_proj", texts[0])
    with torch.inference_mode():
        embedded = model.model.embed_tokens(torch.tensor([texts[0]]))
        expected = model.model.layers[0].input_layernorm(embedded)[0].float()
    torch.testing.assert_close(seen, expected)
