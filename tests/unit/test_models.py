import json
from pathlib import Path

import pytest

from serving_base.errors import UsageError
from serving_base.facts.fit import calibration_fits, fits, weights_per_gpu
from serving_base.facts.gpus import find_gpu
from serving_base.facts.models import known_shape, model_shape, model_shapes, model_weight, models_file, shape_of_size
from tiny_llama import MODEL_DIR
from trtllm_check.lint.finding import Platform
from trtllm_check.lint.fixing import findings
from trtllm_check.lint.reading import read_document
from trtllm_check.lint.rules import memory
from trtllm_check.releases import load_release


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


@pytest.mark.parametrize("name", models_file()["shapes"])
@pytest.mark.parametrize("qformat", ["fp8", "bf16", "full_prec", "int4_awq"])
def test_one_gpu_holds_the_whole_checkpoint(name: str, qformat: str) -> None:
    shape = known_shape(name)
    assert weights_per_gpu(shape, qformat, 1, 1) == shape.weight_bytes(qformat)


def test_embeddings_stay_in_16_bits() -> None:
    """8B in FP8: 9.08 GB. With embedding and lm_head at one byte too it were 8.03."""
    assert round(model_shape("llama-3-8b-instruct").weight_bytes("fp8") / 1e9, 2) == 9.08


@pytest.mark.parametrize(
    ("tp", "pp", "qformat", "gpu", "there"),
    [
        (1, 1, "full_prec", "h200", True),
        (1, 1, "full_prec", "h100", False),
        (2, 1, "full_prec", "h100", True),
        (1, 2, "full_prec", "h100", True),
        (1, 1, "fp8", "h100", True),
        (2, 1, "fp8", "l4", False),
        (2, 2, "fp8", "l4", True),
    ],
)
def test_70b_fits_where_people_serve_it(tp: int, pp: int, qformat: str, gpu: str, there: bool) -> None:
    card = find_gpu(gpu)
    assert card and bool(fits(model_shape("llama-3-70b-instruct"), card, qformat, tp=tp, pp=pp)) is there


@pytest.mark.parametrize(("gpu", "count"), [("h100", 3), ("h200", 2), ("l40s", 5)])
def test_the_machine_that_calibrates_70b(gpu: str, count: int) -> None:
    """212 GB: "more than 210GB" of TensorRT-LLM's README."""
    card, shape = find_gpu(gpu), model_shape("llama-3-70b-instruct")
    assert card and calibration_fits(shape, card, count) and not calibration_fits(shape, card, count - 1)
    assert round(calibration_fits(shape, card, count).needed_gb) == 212


def test_the_checker_says_the_size_that_is_stored() -> None:
    """70B in FP8 on an L4: 72.7 GB, not the 70.6 of a byte for each parameter."""
    text = (
        "python3 quantize.py --model_dir /m/Meta-Llama-3-70B --qformat fp8 --output_dir c\n"
        "trtllm-build --checkpoint_dir c --output_dir e\n"
    )
    found = findings(read_document(text, "shell"), Platform(load_release("0.12.0"), "l4", 8), [memory.check])
    said = [one.message for one in found if one.rule == "weights-do-not-fit"]
    assert len(said) == 1 and "73 GB per rank" in said[0]


def test_the_largest_llama_has_the_published_size() -> None:
    largest = shape_of_size("llama-3.1-405b")
    assert largest and largest.weight_bytes("full_prec") == 2 * 405_853_388_800
    assert shape_of_size("llama-3.1-123b") is None


def test_a_profile_names_no_model_that_the_course_cannot_run() -> None:
    assert set(model_shapes()) == {"tiny", "llama-3-8b-instruct", "llama-3-70b-instruct"}
    with pytest.raises(UsageError, match="unknown model"):
        model_shape("llama-3.1-405b-instruct")
