"""The stages: each lets the profile's lane do the job, and returns the artifact.

``prepare -> quantize -> build -> generate -> serve``. Every stage returns at once when its artifact is up to date.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from playbook.artifact import Artifact, Origin, input_digests, make
from playbook.artifact import require as require_artifact
from playbook.lanes.base import ability, lane_of
from playbook.profile import Profile
from serving_base.errors import UsageError
from trtllm_check.deployment import changed

if TYPE_CHECKING:
    from gpu_serving.inference import Scores
    from serving_base.measures import StepRecord
    from serving_base.servers import LoopbackServer

MADE_IN = {
    "model": "chapter 01 (playbook run 01)",
    "checkpoint": "chapter 02 (playbook run 02)",
    "engine": "chapter 03 (playbook run 03)",
    "repository": "chapter 05 (playbook run 05)",
}


def made_by_chapter(kind: str) -> str:
    """The number of the chapter that makes artifacts of ``kind``; "" if none does."""
    found = re.search(r"\d\d", MADE_IN.get(kind, ""))
    return found[0] if found else ""


GREEDY: Mapping[str, float] = {}
WORKSPACE_VARIABLE = "PLAYBOOK_WORKSPACE"


@dataclass(frozen=True)
class Workspace:
    """Where a profile's artifacts are: ``<root>/<profile name>/<artifact name>``."""

    root: Path
    profile: Profile

    def folder(self, name: str) -> Path:
        return self.root / self.profile.name / name

    def origin(
        self, kind: str, made_by: str, *, spec: dict[str, Any], inputs: dict[str, Artifact], world_size: int = 1
    ) -> Origin:
        """What an artifact of this workspace is made as. Models and checkpoints fit every GPU, engines only theirs."""
        return Origin(
            kind=kind,
            made_by=made_by,
            release=self.profile.release,
            gpu_arch=self.profile.gpu_arch if kind in ("engine", "repository") else "any",
            world_size=world_size,
            spec=spec,
            inputs=input_digests(inputs),
        )


def workspace_root(given: str, beside: Path) -> Path:
    """The folder of all profiles: as given, else ``$PLAYBOOK_WORKSPACE``, else ``workspace`` in ``beside``."""
    chosen = given or os.environ.get(WORKSPACE_VARIABLE, "") or beside / "workspace"
    return Path(chosen).expanduser().resolve()


@dataclass(frozen=True)
class Reference:
    """``answers``: token ids without the prompts; ``mean_nll``: nats per token over ``tokens`` predicted ones."""

    answers: list[list[int]]
    mean_nll: float
    tokens: int
    device: str
    artifact: Artifact

    @property
    def perplexity(self) -> float:
        """The number of tokens among which the model hesitates on average: exp of ``mean_nll``."""
        return math.exp(self.mean_nll)


def require(workspace: Workspace, name: str) -> Artifact:
    """Return the finished artifact ``name`` (``"engine"``, ``"engine-bf16"``), or say which chapter makes it."""
    kind = name.split("-")[0]
    if kind not in MADE_IN:
        raise UsageError(f"no stage makes {name!r}", fix=f"use one of: {', '.join(MADE_IN)}")
    return require_artifact(
        workspace.folder(name),
        kind=kind,
        release=workspace.profile.release,
        gpu_arch=workspace.origin(kind, "", spec={}, inputs={}).gpu_arch,
        world_size=None,
        made_in=MADE_IN[kind],
    )


def tokenizer_path(workspace: Workspace) -> Path:
    """The folder of the tokenizer: the engine's own where its build writes one, else the model's.

    ``trtllm-build`` writes none, so its engines are used with the tokenizer of the model that they were made from.
    """
    own = workspace.folder("engine") / "tokenizer"
    return own if own.is_dir() else require(workspace, "model").path


def prepare(workspace: Workspace) -> Artifact:
    """Get the model: the tiny one from the package, or Llama-3 from Hugging Face with the token in ``$HF_TOKEN``."""
    profile, lane = workspace.profile, lane_of(workspace.profile.lane)
    origin = workspace.origin("model", _lane_name(profile, "prepare"), spec={"model": profile.model}, inputs={})
    return make(workspace.folder("model"), origin, lambda out: lane.prepare(profile, out, root=workspace.root))


def quantize(
    workspace: Workspace,
    *,
    qformat: str = "",
    kv_cache_dtype: str = "",
    tp: int = 0,
    layout: Literal["tensorrt_llm", "hf"] = "tensorrt_llm",
    name: str = "checkpoint",
) -> Artifact:
    """Write a quantized checkpoint; empty settings are the profile's. ``qformat="full_prec"`` keeps BF16.

    ``layout`` "hf": a unified Hugging Face checkpoint, where the lane can (``lab.can("unified")``).
    """
    profile = changed(workspace.profile, qformat=qformat, kv_cache_dtype=kv_cache_dtype, tp=tp)
    lane = lane_of(profile.lane)
    if layout == "hf" and "unified" not in lane.CAN:
        raise UsageError(
            f"the {profile.lane} lane writes no unified Hugging Face checkpoint",
            why="its tool writes TensorRT-LLM's own layout",
            fix="use layout='tensorrt_llm', or NVIDIA Model-Optimizer's hf_ptq.py by hand",
        )
    model = require(workspace, "model")
    spec = {
        key: getattr(profile, key)
        for key in ("qformat", "kv_cache_dtype", "dtype", "tp", "pp", "calib_samples", "calib_max_length")
    }
    origin = workspace.origin(
        "checkpoint",
        _lane_name(profile, "quantize"),
        spec={**spec, "layout": layout},
        inputs={"model": model},
        world_size=profile.world_size,
    )
    return make(
        workspace.folder(name),
        origin,
        lambda out: lane.quantize(profile, model.path, out, layout=layout, root=workspace.root),
    )


def preview_quantized(
    model: Artifact,
    *,
    qformat: str,
    kv_cache_dtype: str = "auto",
    calib_samples: int = 32,
    outlier_factor: int = 1,
) -> Any:
    """The model as torch computes it after quantization, to measure what a format costs before anything is exported.

    ``outlier_factor``, a power of two, first gives four channels of every RMSNorm outliers of that size and divides
    the weights behind them: the unquantized function stays the same. Where ``lab.can("preview")``.
    """
    made_on = model.manifest.origin.made_by.rpartition(".")[0]
    return ability(made_on, "preview")(
        model.path,
        qformat=qformat,
        kv_cache_dtype=kv_cache_dtype,
        calib_samples=calib_samples,
        outlier_factor=outlier_factor,
    )


def build(workspace: Workspace, checkpoint: Artifact, *, name: str = "engine", **limits: int) -> Artifact:
    """Compile ``checkpoint`` into an engine; ``limits`` override the profile's (``max_batch_size=4`` and so on).

    With ``build_from: model`` in the profile the model is compiled instead, and that is said.
    """
    profile = changed(workspace.profile, **limits)
    kv_cache_dtype = checkpoint.spec["kv_cache_dtype"]
    if profile.build_from == "model":
        checkpoint, kv_cache_dtype = require(workspace, "model"), "auto"
        print(f"{profile.name} builds from the 16-bit model: this engine has no kernels for the checkpoint")
    lane = lane_of(profile.lane)
    keys = ("max_batch_size", "max_num_tokens", "max_input_len", "max_seq_len")
    spec = {key: getattr(profile, key) for key in keys} | {"kv_cache_dtype": kv_cache_dtype}
    origin = workspace.origin(
        "engine",
        _lane_name(profile, "build"),
        spec=spec,
        inputs={"checkpoint": checkpoint},
        world_size=lane.engine_ranks(checkpoint.manifest.origin.world_size),
    )
    return make(
        workspace.folder(name), origin, lambda out: lane.build(profile, checkpoint.path, out, root=workspace.root)
    )


def generate(
    workspace: Workspace,
    engine: Artifact,
    prompts: Sequence[str],
    *,
    max_new_tokens: int,
    sampling: Mapping[str, float] = GREEDY,
) -> list[str]:
    """Answer ``prompts`` (text in chat format, special tokens included), up to the end token.

    ``sampling`` may hold ``temperature``, ``top_k``, ``top_p`` and ``seed``; without it decoding is greedy. A prompt
    that is longer than the engine takes is refused with an :class:`EngineError`.
    """
    profile = workspace.profile
    return lane_of(profile.lane).generate(
        profile, engine.path, prompts, max_new_tokens, root=workspace.root, sampling=sampling
    )


def stream(workspace: Workspace, engine: Artifact, prompt: str, *, max_new_tokens: int) -> list[str]:
    """Answer one prompt greedily, and return the pieces of text in the order in which they came."""
    profile = workspace.profile
    return lane_of(profile.lane).stream(profile, engine.path, prompt, max_new_tokens, root=workspace.root)


def compare_batching(
    workspace: Workspace, engine: Artifact, prompt: str, lengths: Sequence[int], *, slots: int
) -> dict[str, list[StepRecord]]:
    """The engine's steps under "static" and "inflight" batching, with ``slots`` requests at a time.

    One request of ``prompt`` per entry of ``lengths``, each answered with exactly that many tokens.
    """

    def narrow() -> Path:
        checkpoint = require(workspace, "checkpoint")
        return build(workspace, checkpoint, name=f"engine-batch{slots}", max_batch_size=slots).path

    profile = workspace.profile
    return lane_of(profile.lane).step_records(
        profile, engine.path, prompt, lengths, slots, root=workspace.root, narrow=narrow
    )


def summarize(workspace: Workspace, engine: Artifact) -> Scores:
    """Score the engine's summaries of news articles with ROUGE, by the release's own summarize.py."""
    fix = "its logits can be compared instead: playbook.quality on playbook.engines.EngineLogits"
    profile = workspace.profile
    scores: Scores = ability(profile.lane, "summarize", fix=fix)(profile, engine.path, root=workspace.root)
    return scores


def reference(
    workspace: Workspace,
    model: Artifact,
    *,
    prompts: Sequence[Sequence[int]],
    texts: Sequence[Sequence[int]],
    max_new_tokens: int = 64,
) -> Reference:
    """Answer ``prompts`` greedily and score ``texts`` (lists of token ids) with the unquantized model.

    By transformers in this environment's CPU PyTorch, or on the GPU lane in the release's container over all GPUs. The
    artifact ``reference`` keeps the result, so that a second run loads no model.
    """
    profile = workspace.profile
    asked = {"prompts": [list(ids) for ids in prompts], "texts": [list(ids) for ids in texts]}
    job: dict[str, Any] = {"model": str(model.path), **asked, "max_new_tokens": max_new_tokens}
    origin = workspace.origin(
        "reference",
        _lane_name(profile, "reference"),
        spec={"asked": hashlib.sha256(json.dumps(asked).encode()).hexdigest(), "max_new_tokens": max_new_tokens},
        inputs={"model": model},
    )
    lane = lane_of(profile.lane)
    made = make(
        workspace.folder("reference"),
        origin,
        lambda out: lane.run_in_torch(profile, "reference_run", job, out, root=workspace.root),
    )
    found = json.loads((made.path / "result.json").read_text(encoding="utf-8"))
    return Reference(found["answers"], found["mean_nll"], found["tokens"], found["device"], made)


def write_repository(workspace: Workspace, engine: Artifact, *, name: str = "repository", **options: Any) -> Artifact:
    """Fill the release's Triton templates for ``engine`` and check them; ``options`` as in ``ServingOptions``."""
    profile, lane = workspace.profile, lane_of(workspace.profile.lane)
    # the filled files name the engine's folder: a workspace that was moved needs another repository
    written = {
        "engine_dir": str(engine.path),
        "max_batch_size": profile.max_batch_size,
        "decoupled": profile.decoupled,
    }
    origin = workspace.origin(
        "repository",
        _lane_name(profile, "write_repository"),
        spec={**written, **options},
        inputs={"engine": engine},
    )
    return make(
        workspace.folder(name),
        origin,
        lambda out: lane.write_repository(profile, engine.path, out, root=workspace.root, variables=options),
    )


def serve(workspace: Workspace, repository: Artifact) -> LoopbackServer:
    """Start the Triton Inference Server on a filled model repository and wait until it is ready."""
    profile = workspace.profile
    return lane_of(profile.lane).serve(profile, repository.path, root=workspace.root)


def _lane_name(profile: Profile, stage: str) -> str:
    return f"{profile.lane}.{stage}"
