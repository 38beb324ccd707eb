import json
from pathlib import Path

import pytest

from playbook.check.document import Setting, read_document
from playbook.check.fixing import findings
from playbook.check.rules import memory
from playbook.errors import UsageError
from playbook.models import model_shape, model_shapes, model_weight
from playbook.plan.case import parse_case
from playbook.plan.memory import weights_bytes
from playbook.releases import load_release
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


@pytest.mark.parametrize("size", ["8b", "70b"])
@pytest.mark.parametrize(("qformat", "weights"), [("fp8", "fp8"), ("full_prec", "bf16")])
def test_shape_planner_and_checker_count_the_same_bytes(size: str, qformat: str, weights: str) -> None:
    """8B in FP8: 9.08 GB. With embedding and lm_head at one byte too it were 8.03."""
    ours = model_shape(f"llama-3-{size}-instruct").weight_bytes(qformat)
    gpus = {"gpu": "h200", "gpus": 1, "tp": 1}
    case = parse_case({"model": f"llama3-{size}", "isl": 1, "osl": 1, "weights": weights, **gpus})
    assert weights_bytes(case) == ours
    assert memory.weight_bytes(f"llama-3-{size}", qformat) == ours
    if (size, qformat) == ("8b", "fp8"):
        assert round(ours / 1e9, 2) == 9.08


def test_the_checker_says_the_size_that_is_stored() -> None:
    """70B in FP8 on an L4: 72.7 GB, not the 70.6 of a byte for each parameter."""
    text = (
        "python3 quantize.py --model_dir /m/Meta-Llama-3-70B --qformat fp8 --output_dir c\n"
        "trtllm-build --checkpoint_dir c --output_dir e\n"
    )
    found = findings(read_document(text, "shell"), Setting(load_release("0.12.0"), "l4", 8), [memory.check])
    said = [one.message for one in found if one.rule == "weights-do-not-fit"]
    assert len(said) == 1 and "73 GB per rank" in said[0]


def test_the_largest_llama_has_the_published_size() -> None:
    assert memory.weight_bytes("llama-3.1-405b", "full_prec") == 2 * 405_853_388_800
    assert memory.weight_bytes("llama-3.1-123b", "fp8") is None
