"""The stages on the embedded lane: what is made, found again, and refused."""

import json
import shutil
from pathlib import Path

import pytest

from playbook import stages
from playbook.artifact import Artifact
from playbook.profile import load_profile
from playbook.stages import Workspace
from ptq.quantize import QuantizeOptions, apply_quantization, calibration_texts, load_model
from serving_base.errors import ForeignArtifact, MissingArtifact, ProfileError, StaleArtifact, UsageError


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    profile = load_profile("local").model_copy(update={"calib_samples": 16})
    return Workspace(tmp_path_factory.mktemp("stages"), profile)


@pytest.fixture(scope="module")
def engine(workspace: Workspace) -> Artifact:
    stages.prepare(workspace)
    return stages.build(workspace, stages.quantize(workspace))


def test_the_road_from_model_to_repository(workspace: Workspace, engine: Artifact) -> None:
    repository = stages.write_repository(workspace, engine, add_special_tokens=False)
    chain = {name: stages.require(workspace, name).manifest for name in ("model", "checkpoint", "engine", "repository")}
    assert chain["repository"].origin.inputs == {"engine": chain["engine"].digest}
    assert chain["engine"].origin.inputs == {"checkpoint": chain["checkpoint"].digest}
    assert chain["checkpoint"].origin.inputs == {"model": chain["model"].digest}
    assert {manifest.origin.release for manifest in chain.values()} == {"0.12.0"}
    assert (chain["checkpoint"].origin.gpu_arch, chain["engine"].origin.gpu_arch) == ("any", "cpu")
    assert str(engine.path) in (repository.path / "tensorrt_llm" / "config.pbtxt").read_text()


def test_a_second_run_finds_everything(workspace: Workspace, engine: Artifact) -> None:
    again = [stages.prepare(workspace), stages.quantize(workspace), stages.build(workspace, stages.quantize(workspace))]
    assert all(artifact.up_to_date for artifact in again)
    assert "up to date" in str(again[-1])


def test_generate_answers_in_text(workspace: Workspace, engine: Artifact) -> None:
    prompt = "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHow do I count to nine in French?<|eot_id|>"
    prompt += "<|start_header_id|>assistant<|end_header_id|>\n\n"
    answers = stages.generate(workspace, engine, [prompt, prompt], max_new_tokens=64)
    assert answers == ["To count to nine in French, say: un, deux, trois, quatre, cinq, six, sept, huit, neuf."] * 2
    assert stages.generate(workspace, engine, [prompt], max_new_tokens=3) == ["To count to"]


def test_changed_settings_are_refused_not_overwritten(workspace: Workspace, engine: Artifact) -> None:
    with pytest.raises(StaleArtifact, match="max_batch_size was 16 and is now 4"):
        stages.build(workspace, stages.require(workspace, "checkpoint"), max_batch_size=4)
    fewer = Workspace(workspace.root, workspace.profile.model_copy(update={"calib_samples": 8}))
    with pytest.raises(StaleArtifact, match="calib_samples was 16 and is now 8"):
        stages.quantize(fewer)


def test_another_release_is_refused(workspace: Workspace, engine: Artifact) -> None:
    newer = Workspace(workspace.root, load_profile("local", "1.2.1"))
    with pytest.raises(ForeignArtifact, match=r"its release is 0\.12\.0, this run's is 1\.2\.1"):
        stages.require(newer, "engine")


def test_missing_artifacts_name_their_chapter(tmp_path: Path) -> None:
    empty = Workspace(tmp_path, load_profile("local"))
    with pytest.raises(MissingArtifact, match="chapter 01"):
        stages.quantize(empty)
    with pytest.raises(UsageError, match="no stage makes"):
        stages.require(empty, "enigne")


def test_impossible_changes_are_refused_before_any_work(workspace: Workspace, engine: Artifact) -> None:
    with pytest.raises(ProfileError, match="tp 3 does not divide the 8 attention heads"):
        stages.quantize(workspace, tp=3, name="checkpoint-tp3")
    assert not workspace.folder("checkpoint-tp3").exists()


def test_unified_layout_holds_the_same_scales(workspace: Workspace, engine: Artifact) -> None:
    from cpu_serving.checkpoint import checkpoint_tensors

    unified = stages.quantize(workspace, layout="hf", name="checkpoint-hf")
    assert json.loads((unified.path / "hf_quant_config.json").read_text())["quantization"]["quant_algo"] == "FP8"
    ours = {t.name: t.scale for t in checkpoint_tensors(workspace.folder("checkpoint"))}
    theirs = {t.name: t.scale for t in checkpoint_tensors(unified.path)}
    assert ours["transformer.layers.0.mlp.proj.weight"] == theirs["model.layers.0.mlp.down_proj.weight"] is not None


def test_outliers_leave_the_unquantized_function_alone(workspace: Workspace, engine: Artifact) -> None:
    import torch

    model = stages.require(workspace, "model")
    ids = torch.tensor([[5, 6, 7, 8]])
    plain, spiky = (stages.preview_quantized(model, qformat="full_prec", outlier_factor=f) for f in (1, 256))
    assert torch.equal(plain(input_ids=ids).logits, spiky(input_ids=ids).logits)
    broken = stages.preview_quantized(model, qformat="int8", outlier_factor=256, calib_samples=4)
    assert not torch.allclose(plain(input_ids=ids).logits, broken(input_ids=ids).logits, atol=0.5)


@pytest.mark.parametrize(("qformat", "kv_cache_dtype"), [("fp8", "fp8"), ("int8", "auto")])
def test_a_preview_computes_what_its_format_computes(
    workspace: Workspace, engine: Artifact, qformat: str, kv_cache_dtype: str
) -> None:
    """Its weights are rounded beforehand, and those of the format at each call."""
    import torch

    model = stages.require(workspace, "model")
    options = QuantizeOptions(qformat=qformat, kv_cache_dtype=kv_cache_dtype, calib_samples=2, calib_max_length=256)
    slow = apply_quantization(load_model(model.path), options, calibration_texts(model.path, options))
    fast = stages.preview_quantized(model, qformat=qformat, kv_cache_dtype=kv_cache_dtype, calib_samples=2)
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.inference_mode():
        assert torch.equal(slow(input_ids=ids).logits, fast(input_ids=ids).logits)
        assert not torch.equal(load_model(model.path)(input_ids=ids).logits, fast(input_ids=ids).logits)
    named = dict(fast.named_modules())
    assert not named["model.layers.0.mlp.down_proj.weight_quantizer"].is_enabled
    assert named["model.layers.0.mlp.down_proj.input_quantizer"].is_enabled


def test_a_moved_workspace_needs_another_repository(workspace: Workspace, engine: Artifact, tmp_path: Path) -> None:
    stages.write_repository(workspace, engine, add_special_tokens=False)
    moved = Workspace(tmp_path / "elsewhere", workspace.profile)
    shutil.copytree(workspace.root, moved.root)
    with pytest.raises(StaleArtifact, match="engine_dir was"):
        stages.write_repository(moved, stages.require(moved, "engine"), add_special_tokens=False)


def test_the_gpu_lane_refuses_the_unified_layout(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no unified Hugging Face checkpoint"):
        stages.quantize(Workspace(tmp_path, load_profile("p5")), layout="hf")


def test_the_tokenizer_is_the_engines_own_or_else_the_models(tmp_path: Path) -> None:
    """trtllm-build writes none beside its engine."""
    workspace = Workspace(tmp_path, load_profile("local"))
    model = stages.prepare(workspace)
    workspace.folder("engine").mkdir()
    assert stages.tokenizer_path(workspace) == model.path
    assert (model.path / "tokenizer.json").is_file()
    (workspace.folder("engine") / "tokenizer").mkdir()
    assert stages.tokenizer_path(workspace) == workspace.folder("engine") / "tokenizer"
