import json
from pathlib import Path

import pytest

from playbook.errors import UsageError
from playbook.models import model_shape, model_shapes, model_weight
from playbook.tiny import MODEL_DIR


def test_parameters_of_the_published_models() -> None:
    # the totals that Hugging Face shows for the safetensors of both models
    assert model_shape("llama-3-8b-instruct").parameters == 8_030_261_248
    assert model_shape("llama-3-70b-instruct").parameters == 70_553_706_496


def test_kv_bytes_per_token() -> None:
    # TensorRT-LLM examples/llama/README.md: 70B, FP8 KV cache, 32K tokens = 5 GB
    assert model_shape("llama-3-70b-instruct").kv_bytes_per_token("fp8") == 163_840
    assert model_shape("llama-3-8b-instruct").kv_bytes_per_token("bfloat16") == 131_072


def test_tiny_shape_is_the_shipped_config() -> None:
    config = json.loads((MODEL_DIR / "config.json").read_text())
    shape = model_shape("tiny")
    fields = set(type(shape).model_fields) & set(config) - {"name"}
    assert len(fields) >= 8
    assert {name: getattr(shape, name) for name in fields} == {name: config[name] for name in fields}
    assert shape.rope_theta == config["rope_theta"] == config["rope_parameters"]["rope_theta"]


def test_weight_bytes_of_tiny_match_its_file() -> None:
    header_bytes = 8192
    size = (MODEL_DIR / "model.safetensors").stat().st_size
    assert 0 < size - model_shape("tiny").weight_bytes("full_prec") < header_bytes


def test_unknown_model_names_the_known() -> None:
    with pytest.raises(UsageError, match="unknown model 'llama-4'") as error:
        model_shape("llama-4")
    assert all(name in error.value.fix for name in model_shapes())


def test_model_weight_finds_its_file(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    save_file({"a.weight": torch.ones(2)}, tmp_path / "part-2.safetensors")
    index = {"weight_map": {"a.weight": "part-2.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert model_weight(tmp_path, "a.weight").tolist() == [1, 1]
    assert model_weight(MODEL_DIR, "model.norm.weight").shape == (256,)
    with pytest.raises(UsageError, match="no tensor 'b'"):
        model_weight(MODEL_DIR, "b")
