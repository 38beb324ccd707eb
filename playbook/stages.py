"""The stages: each picks the profile's lane, does its job there, and returns an artifact.

``prepare -> quantize -> build -> generate -> serve``. Every stage returns at once when its artifact is up to date.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from playbook.artifact import Artifact, Origin, input_digests, make
from playbook.artifact import require as require_artifact
from playbook.errors import UsageError
from playbook.profile import Profile, changed

if TYPE_CHECKING:
    from playbook.lanes.embedded.engine import Engine
    from playbook.lanes.embedded.triton.server import TritonServer
    from playbook.lanes.tensorrt_llm import TritonRanks
    from playbook.lanes.tensorrt_llm.scores import Scores
    from playbook.measure.steps import StepRecord

MADE_IN = {
    "model": "chapter 01 (playbook run 01)",
    "checkpoint": "chapter 02 (playbook run 02)",
    "engine": "chapter 03 (playbook run 03)",
    "repository": "chapter 05 (playbook run 05)",
}

GREEDY: Mapping[str, float] = {}
OUTLIER_CHANNELS = (3, 64, 128, 200)


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
    profile = workspace.profile
    origin = workspace.origin("model", _lane_name(profile, "prepare"), spec={"model": profile.model}, inputs={})
    if profile.lane == "embedded":
        from playbook.lanes.embedded.model import copy_tiny_model

        return make(workspace.folder("model"), origin, copy_tiny_model)
    from playbook.lanes import tensorrt_llm

    return make(workspace.folder("model"), origin, lambda out: tensorrt_llm.prepare(profile, out, root=workspace.root))


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

    ``layout`` "hf": a unified Hugging Face checkpoint, on the embedded lane only.
    """
    profile = changed(workspace.profile, qformat=qformat, kv_cache_dtype=kv_cache_dtype, tp=tp)
    if layout == "hf" and profile.lane != "embedded":
        raise UsageError(
            f"the {profile.lane} lane writes no unified Hugging Face checkpoint",
            why="quantize.py of TensorRT-LLM writes its own layout",
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

    def write(out: Path) -> None:
        if profile.lane == "embedded":
            from playbook.lanes.embedded.quantize import QuantizeOptions, quantize_checkpoint

            quantize_checkpoint(model.path, out, QuantizeOptions.from_profile(profile), layout=layout)
        else:
            from playbook.lanes import tensorrt_llm

            tensorrt_llm.quantize(profile, model.path, out, root=workspace.root)

    return make(workspace.folder(name), origin, write)


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
    the weights behind them: the unquantized function stays the same. Embedded lane only.
    """
    from playbook.lanes.embedded.numerics import add_outliers
    from playbook.lanes.embedded.quantize import QuantizeOptions, apply_quantization, calibration_texts, load_model

    options = QuantizeOptions(qformat=qformat, kv_cache_dtype=kv_cache_dtype, calib_samples=calib_samples)
    torch_model = load_model(model.path)
    add_outliers(torch_model, outlier_factor, OUTLIER_CHANNELS)
    return apply_quantization(torch_model, options, calibration_texts(model.path, options))


def build(workspace: Workspace, checkpoint: Artifact, *, name: str = "engine", **limits: int) -> Artifact:
    """Compile ``checkpoint`` into an engine; ``limits`` override the profile's (``max_batch_size=4`` and so on)."""
    profile = changed(workspace.profile, **limits)
    keys = ("max_batch_size", "max_num_tokens", "max_input_len", "max_seq_len")
    spec = {key: getattr(profile, key) for key in keys} | {"kv_cache_dtype": checkpoint.spec["kv_cache_dtype"]}
    origin = workspace.origin(
        "engine",
        _lane_name(profile, "build"),
        spec=spec,
        inputs={"checkpoint": checkpoint},
        world_size=checkpoint.manifest.origin.world_size if profile.lane == "tensorrt_llm" else 1,
    )

    def write(out: Path) -> None:
        if profile.lane == "embedded":
            from playbook.lanes.embedded.build import BuildOptions, build_engine

            build_engine(checkpoint.path, out, BuildOptions.from_profile(profile))
        else:
            from playbook.lanes import tensorrt_llm

            tensorrt_llm.build(profile, checkpoint.path, out, root=workspace.root)

    return make(workspace.folder(name), origin, write)


def open_engine(engine: Artifact, *, batching: Literal["inflight", "static"] = "inflight") -> Engine:
    """Load an engine of the embedded lane into this process and record its steps; close it when done."""
    from playbook.lanes.embedded.engine import Engine

    return Engine(engine.path, batching=batching, record_steps=True)


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
    if workspace.profile.lane == "embedded":
        from playbook.lanes.embedded.generate import generate_text

        return generate_text(engine.path, prompts, max_new_tokens, sampling)
    from playbook.lanes import tensorrt_llm

    return tensorrt_llm.generate(
        workspace.profile, engine.path, prompts, max_new_tokens, root=workspace.root, sampling=sampling
    )


def stream(workspace: Workspace, engine: Artifact, prompt: str, *, max_new_tokens: int) -> list[str]:
    """Answer one prompt greedily, and return the pieces of text in the order in which they came."""
    if workspace.profile.lane == "embedded":
        from playbook.lanes.embedded.generate import stream_text

        return stream_text(engine.path, prompt, max_new_tokens)
    from playbook.lanes import tensorrt_llm

    return tensorrt_llm.stream(workspace.profile, engine.path, prompt, max_new_tokens, root=workspace.root)


def compare_batching(
    workspace: Workspace, engine: Artifact, prompt: str, lengths: Sequence[int], *, slots: int
) -> dict[str, list[StepRecord]]:
    """The engine's steps under "static" and "inflight" batching, with ``slots`` requests at a time.

    One request of ``prompt`` per entry of ``lengths``, each answered with exactly that many tokens.
    """
    if workspace.profile.lane == "embedded":
        from playbook.lanes.embedded.generate import step_records

        narrow = build(workspace, require(workspace, "checkpoint"), name=f"engine-batch{slots}", max_batch_size=slots)
        return {policy: step_records(narrow.path, prompt, lengths, policy) for policy in ("static", "inflight")}
    from playbook.lanes import tensorrt_llm

    return tensorrt_llm.step_records(workspace.profile, engine.path, prompt, lengths, slots, root=workspace.root)


def summarize(workspace: Workspace, engine: Artifact) -> Scores:
    """Score the engine's summaries of news articles with ROUGE, by the release's own summarize.py."""
    if workspace.profile.lane == "embedded":
        raise UsageError(
            "the embedded lane has no summarize.py",
            why="its model is too small to summarize; its logits can be compared instead",
            fix="use playbook.quality on playbook.engines.EngineLogits",
        )
    from playbook.lanes import tensorrt_llm

    return tensorrt_llm.summarize(workspace.profile, engine.path, root=workspace.root)


def write_repository(workspace: Workspace, engine: Artifact, *, name: str = "repository", **options: Any) -> Artifact:
    """Fill the release's Triton templates for ``engine`` and check them; ``options`` as in ``ServingOptions``."""
    profile = workspace.profile
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

    def write(out: Path) -> None:
        if profile.lane == "embedded":
            from playbook.lanes.embedded.triton.repository import ServingOptions
            from playbook.lanes.embedded.triton.repository import write_repository as write_models

            serving = ServingOptions(
                engine_dir=engine.path,
                tokenizer_dir=engine.path / "tokenizer",
                max_batch_size=profile.max_batch_size,
                decoupled=profile.decoupled,
                **options,
            )
            write_models(out, profile.release, serving.values())
        else:
            from playbook.lanes import tensorrt_llm

            tensorrt_llm.fill(profile, engine.path, out, root=workspace.root, variables=options)

    return make(workspace.folder(name), origin, write)


def serve(workspace: Workspace, repository: Artifact) -> TritonServer | TritonRanks:
    """Start the Triton Inference Server on a filled model repository and wait until it is ready."""
    if workspace.profile.lane == "embedded":
        from playbook.lanes.embedded.triton.server import TritonServer

        server = TritonServer(repository.path)
        server.start()
        return server
    from playbook.lanes import tensorrt_llm

    return tensorrt_llm.serve(workspace.profile, repository.path, root=workspace.root)


def _lane_name(profile: Profile, stage: str) -> str:
    return f"{profile.lane}.{stage}"
