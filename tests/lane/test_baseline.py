"""The reference of the 16-bit model: the same script here and in the container, kept, and asked again when the job is
another one."""

import json
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from playbook import artifact, stages
from playbook.profile import load_profile
from playbook.stages import reference
from ptq.quantize import load_model
from serving_base.errors import CommandFailed, StaleArtifact
from serving_base.quality import perplexity, torch_logits
from sparse_models import write_model
from stand_ins import Machine
from tiny_llama import MODEL_DIR
from tiny_llama.data import evaluation_texts, prompt_ids

QUESTION = "How do I count to nine in French?"


@pytest.fixture
def asked(tokenizer: Any) -> dict[str, Any]:
    return {"prompts": [prompt_ids(tokenizer, QUESTION)], "texts": evaluation_texts(tokenizer, count=2, size=64)}


@pytest.fixture
def local(tmp_path: Path) -> stages.Workspace:
    return stages.Workspace(tmp_path / "workspace", load_profile("local"))


def test_here_it_is_transformers_own_answer_and_perplexity(
    local: stages.Workspace, asked: dict[str, Any], tokenizer: Any
) -> None:
    found = reference(local, stages.prepare(local), **asked)
    answer = tokenizer.decode(found.answers[0], skip_special_tokens=True)
    assert answer == "To count to nine in French, say: un, deux, trois, quatre, cinq, six, sept, huit, neuf."
    expected = perplexity(torch_logits(load_model(MODEL_DIR)), asked["texts"])
    assert found.perplexity == pytest.approx(expected, rel=0.02)
    assert (found.tokens, found.device) == (2 * 64, "cpu")


def test_a_second_run_loads_no_model_and_another_job_is_refused(
    local: stages.Workspace, asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = stages.prepare(local)
    first = reference(local, model, **asked)
    monkeypatch.setattr("serving_base.reference_run.run", None)
    again = reference(local, model, **asked)
    assert again.artifact.up_to_date
    assert again.mean_nll == first.mean_nll
    with pytest.raises(StaleArtifact, match="asked was"):
        reference(local, model, prompts=asked["prompts"], texts=asked["texts"][:1])


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    installed = Machine(tmp_path / "machine", "0.12.0").install()
    monkeypatch.setenv("PATH", f"{installed.programs}{os.pathsep}{os.environ['PATH']}")
    return installed


def on_p5(tmp_path: Path) -> tuple[stages.Workspace, artifact.Artifact]:
    profile = load_profile("p5-8b", "0.12.0")
    workspace = stages.Workspace(tmp_path / "workspace", profile)
    origin = workspace.origin("model", "tensorrt_llm.prepare", spec={"model": profile.model}, inputs={})
    write = lambda out: write_model(out, profile.shape, MODEL_DIR, {})  # noqa: E731
    return workspace, artifact.make(workspace.folder("model"), origin, write)


def test_on_a_gpu_machine_it_runs_in_the_container_over_all_gpus(
    machine: Machine, tmp_path: Path, asked: dict[str, Any]
) -> None:
    workspace, model = on_p5(tmp_path)
    found = reference(workspace, model, **asked)
    (call,) = machine.calls("reference_run.py")
    assert call["place"] == "nvcr.io/nvidia/tritonserver:24.08-trtllm-python-py3"
    (docker,) = (each["argv"] for each in machine.calls("docker") if each["argv"][0] == "run")
    assert ("--gpus", "all") in pairwise(docker)
    job = json.loads((found.artifact.path / "job.json").read_text(encoding="utf-8"))
    assert (job["device_map"], job["model"]) == ("auto", str(model.path))
    assert found.tokens == 2 * 64


def test_a_reference_that_fails_leaves_nothing(machine: Machine, tmp_path: Path, asked: dict[str, Any]) -> None:
    workspace, model = on_p5(tmp_path)
    machine.fail("reference_run.py", "torch.OutOfMemoryError: CUDA out of memory.")
    with pytest.raises(CommandFailed, match="gpu-memory"):
        reference(workspace, model, **asked)
    assert not workspace.folder("reference").exists()
