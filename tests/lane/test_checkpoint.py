"""Reading checkpoints without torch: what is stored comes out, and what is wrong is named."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cpu_serving.checkpoint import checkpoint_tensors, read_checkpoint
from cpu_serving.llama import LlamaWeights, read_safetensors
from ptq.quantize import QuantizeOptions, quantize_checkpoint
from serving_base.errors import CheckpointError
from tiny_llama import MODEL_DIR

NAMES = {
    np.dtype(np.float32): "F32",
    np.dtype(np.float16): "F16",
    np.dtype(ml_dtypes.bfloat16): "BF16",
    np.dtype(ml_dtypes.float8_e4m3fn): "F8_E4M3",
}


def write_safetensors(path: Path, tensors: dict[str, np.ndarray]) -> None:
    header, data = {}, b""
    for name, array in tensors.items():
        begin, data = len(data), data + np.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": NAMES[array.dtype], "shape": array.shape, "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def edit_config(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    config = json.loads((folder / "config.json").read_text())
    edit(config)
    (folder / "config.json").write_text(json.dumps(config))


def edit_rank(folder: Path, rank: int, edit: Callable[[dict[str, np.ndarray]], object]) -> None:
    path = folder / f"rank{rank}.safetensors"
    tensors = {name: np.array(array) for name, array in read_safetensors(path).items()}
    edit(tensors)
    write_safetensors(path, tensors)


@pytest.fixture(scope="module")
def tp_checkpoints(artifacts: Path) -> dict[int, Path]:
    """FP8 over 2 ranks, and over 4 ranks that share 2 KV heads."""
    folders = {tp: artifacts / f"checkpoint-tp{tp}" for tp in (2, 4)}
    for tp, folder in folders.items():
        quantize_checkpoint(MODEL_DIR, folder, QuantizeOptions(calib_samples=32, tp_size=tp))
    return folders


@pytest.fixture
def copied(fp8_checkpoint: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(fp8_checkpoint, tmp_path / "copy"))


@pytest.fixture
def copied_tp4(tp_checkpoints: dict[int, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(tp_checkpoints[4], tmp_path / "copy"))


def arrays(weights: LlamaWeights) -> dict[str, np.ndarray]:
    found = {"embedding": weights.embedding, "norm": weights.norm, "head": weights.head.weight}
    for number, layer in enumerate(weights.layers):
        for name, value in vars(layer).items():
            array = getattr(value, "weight", value)
            if isinstance(array, np.ndarray):
                found[f"{number}.{name}"] = array
    return found


def scales(weights: LlamaWeights) -> list[tuple[float | None, ...]]:
    found: list[tuple[float | None, ...]] = []
    for layer in weights.layers:
        linears = (layer.query, layer.key, layer.value, layer.output, layer.gate, layer.up, layer.down)
        found += [(linear.weight_scale, linear.input_scale) for linear in linears]
        found.append((layer.key_scale, layer.value_scale))
    return found


def test_every_dtype_is_read_back(tmp_path: Path) -> None:
    values = np.array([[0.5, -1.75, 448.0], [0.0, 2.0**-9, -3.0]], dtype=np.float32)
    stored = {dtype.name: values.astype(dtype) for dtype in NAMES}
    stored["odd"] = np.array([1.0], dtype=ml_dtypes.float8_e4m3fn)  # what follows is not aligned
    stored["after"] = values
    write_safetensors(tmp_path / "x.safetensors", stored)
    read = read_safetensors(tmp_path / "x.safetensors")
    assert list(read) == list(stored)
    for name, array in stored.items():
        assert read[name].dtype == array.dtype
        np.testing.assert_array_equal(read[name].astype(np.float32), array.astype(np.float32))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda data: b"", "cut short inside its header"),
        (lambda data: data[:20], "cut short inside its header"),
        (lambda data: data[:-1], "cut short inside x"),
        (lambda data: data.replace(b"BF16", b"F4_9"), "dtype F4_9"),
        (lambda data: data.replace(b"[2, 2]", b"[2, 3]"), "its shape"),
        (lambda data: data[:8] + b"?" + data[9:], "not JSON"),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, damage: Callable[[bytes], bytes], reason: str) -> None:
    path = tmp_path / "x.safetensors"
    write_safetensors(path, {"x": np.ones((2, 2), dtype=ml_dtypes.bfloat16)})
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CheckpointError) as caught:
        read_safetensors(path)
    assert reason in caught.value.why


def test_hugging_face_folder_and_its_tensorrt_llm_checkpoint_hold_the_same_weights(tmp_path: Path) -> None:
    quantize_checkpoint(MODEL_DIR, tmp_path, QuantizeOptions(qformat="full_prec", kv_cache_dtype="auto"))
    ours, theirs = read_checkpoint(tmp_path), read_checkpoint(MODEL_DIR)
    assert ours.shape == theirs.shape
    assert ours.shape.rope_theta == 500000.0
    expected = arrays(theirs)
    for name, array in arrays(ours).items():
        np.testing.assert_array_equal(array.view(np.uint16), expected[name].view(np.uint16), err_msg=name)


def test_merged_ranks_equal_one_rank(fp8_checkpoint: Path, tp_checkpoints: dict[int, Path]) -> None:
    one = read_checkpoint(fp8_checkpoint)
    for tp, folder in tp_checkpoints.items():
        merged = read_checkpoint(folder)
        assert scales(merged) == scales(one), f"tp {tp}"
        expected = arrays(one)
        for name, array in arrays(merged).items():
            np.testing.assert_array_equal(array.view(np.uint8), expected[name].view(np.uint8), err_msg=f"{tp} {name}")


def test_tensors_show_scales_and_bytes(fp8_checkpoint: Path) -> None:
    rows = {row.name: row for row in checkpoint_tensors(fp8_checkpoint)}
    qkv = rows["transformer.layers.0.attention.qkv.weight"]
    assert (qkv.file, qkv.dtype, qkv.shape, qkv.nbytes) == ("rank0.safetensors", "F8_E4M3", (384, 256), 384 * 256)
    assert qkv.scale is not None
    assert qkv.amax == pytest.approx(448 * qkv.scale)
    norm = rows["transformer.ln_f.weight"]
    assert (norm.dtype, norm.scale, norm.amax) == ("BF16", None, None)


def test_folder_without_tensors_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no tensors"):
        checkpoint_tensors(tmp_path)


def test_checkpoint_without_rotary_base_is_refused(copied: Path) -> None:
    edit_config(copied, lambda config: config.pop("rotary_base"))
    with pytest.raises(CheckpointError, match="no rotary_base") as caught:
        read_checkpoint(copied)
    assert "10000" in caught.value.why


def test_pipeline_split_is_refused(tmp_path: Path) -> None:
    quantize_checkpoint(MODEL_DIR, tmp_path, QuantizeOptions(qformat="full_prec", kv_cache_dtype="auto", pp_size=2))
    with pytest.raises(CheckpointError, match="2 pipeline stages"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda config: config["mapping"].update(world_size=2), "world_size 2, tp_size 1, 1 rank files"),
        (lambda config: config["mapping"].update(world_size=2, tp_size=2), "world_size 2, tp_size 2, 1 rank files"),
        (lambda config: config["quantization"].update(quant_algo="W8A8_SQ_PER_CHANNEL"), "W8A8_SQ_PER_CHANNEL"),
        (lambda config: config["quantization"].update(kv_cache_quant_algo="INT8"), "KV cache INT8"),
        (lambda config: config.update(architecture="GPTForCausalLM"), "GPTForCausalLM"),
        (lambda config: config.update(bias=True), "bias"),
        (lambda config: config.update(rotary_scaling={"rope_type": "yarn"}), "'yarn'"),
        (lambda config: config.pop("vocab_size"), "'vocab_size'"),
        (lambda config: config.update(intermediate_size=1024), r"gate has shape \(768, 256\)"),
        (lambda config: config.update(num_key_value_heads=4), r"has \[384\] rows"),
        (lambda config: config.update(num_hidden_layers=5), "layers.4"),
    ],
)
def test_config_that_does_not_fit_is_named(copied: Path, edit: Callable[[dict[str, Any]], object], reason: str) -> None:
    edit_config(copied, edit)
    with pytest.raises(CheckpointError, match=reason):
        read_checkpoint(copied)


def test_missing_tensors_and_scales_are_named(copied: Path) -> None:
    edit_rank(copied, 0, lambda tensors: tensors.pop("transformer.layers.2.mlp.fc.weights_scaling_factor"))
    with pytest.raises(CheckpointError, match=r"layers\.2\.mlp\.fc is FP8 without its scales"):
        read_checkpoint(copied)
    edit_rank(copied, 0, lambda tensors: tensors.pop("transformer.layers.1.mlp.proj.weight"))
    with pytest.raises(CheckpointError, match=r"no tensor transformer\.layers\.1\.mlp\.proj\.weight"):
        read_checkpoint(copied)


def test_per_channel_scales_are_refused(copied: Path) -> None:
    name = "transformer.layers.0.mlp.fc.weights_scaling_factor"
    edit_rank(copied, 0, lambda tensors: tensors.update({name: np.ones(768, np.float32)}))
    with pytest.raises(CheckpointError, match=r"has shape \(768,\)"):
        read_checkpoint(copied)


def test_ranks_with_different_scales_are_refused(copied_tp4: Path) -> None:
    name = "transformer.layers.0.mlp.proj.weights_scaling_factor"
    edit_rank(copied_tp4, 3, lambda tensors: tensors.update({name: tensors[name] * 2}))
    with pytest.raises(CheckpointError, match="ranks disagree"):
        read_checkpoint(copied_tp4)


def test_different_copies_of_a_kv_head_are_refused(copied_tp4: Path) -> None:
    name = "transformer.layers.0.attention.qkv.weight"
    edit_rank(copied_tp4, 1, lambda tensors: tensors[name][-1].fill(1))
    with pytest.raises(CheckpointError, match="share a KV head"):
        read_checkpoint(copied_tp4)


def test_folders_that_are_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint in"):
        read_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match="is not JSON"):
        read_checkpoint(tmp_path)


def test_hugging_face_folder_without_rope_theta_is_refused(tmp_path: Path) -> None:
    shutil.copytree(MODEL_DIR, tmp_path, dirs_exist_ok=True)
    edit_config(tmp_path, lambda config: (config.pop("rope_parameters"), config.pop("rope_theta")))
    with pytest.raises(CheckpointError, match="no rope_theta"):
        read_checkpoint(tmp_path)
