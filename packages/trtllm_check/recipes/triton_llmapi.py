"""Triton's LLM-API model: the server loads a Hugging Face checkpoint through the PyTorch backend, without an engine."""

from collections.abc import Mapping

from trtllm_check.deployment import Deployment
from trtllm_check.recipes.command import Command, Paths, llmapi_path, server_place
from trtllm_check.recipes.flags import FlagValue
from trtllm_check.recipes.server import ask, start
from trtllm_check.releases import Release
from trtllm_check.releases.templates import llmapi_model

MODEL = "tensorrt_llm"
WRITE = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text(sys.argv[2])"
SOURCE = "TensorRT-LLM 1.3.0rc3 triton_backend/all_models/llmapi/tensorrt_llm/1/model.py"

WHY_YAML = (
    "Every key but triton_config goes to the LLM API as it stands; the model batches by itself, so Triton's "
    f"max_batch_size is 0 ({SOURCE})."
)
WHY_DECOUPLED = (
    "The launch script passes --disable-auto-complete-config, so model.yaml's `decoupled` would not reach the server; "
    "the same value in both places is allowed (python_backend triton_python_backend_utils.py)."
)
WHY_LAUNCH = (
    "Several GPUs are started as the project's own test does, with trtllm-llmapi-launch on each rank "
    "(TensorRT-LLM 1.3.0rc3 tests/integration/defs/triton_server/test_triton_llm.py:3660-3668). "
    "The script returns at once; the server is ready when /v2/health/ready answers 200."
)


def fill(profile: Deployment, release: Release, paths: Paths) -> list[Command]:
    """Copy the model, write its ``model.yaml``, and tell Triton of decoupled mode."""
    where = server_place(profile, release)
    repository, model = paths.repository, f"{paths.repository}/{MODEL}"
    copy = ("cp", "-r", f"{llmapi_path(profile, release, paths)}/{MODEL}", repository)
    write = ("python3", "-c", WRITE, f"{model}/1/model.yaml", model_yaml(profile, release, paths))
    commands = [
        Command("fill", "mkdir", ("mkdir", "-p", repository), where),
        Command("fill", "cp", copy, where, why="The model stays as it is; the copy gets its settings."),
        Command("fill", "python3", write, where, why=WHY_YAML),
    ]
    if profile.decoupled:
        edit = r"s/^backend: .*/& model_transaction_policy { decoupled: true }/"
        decouple = ("sed", "-i", "-e", edit, f"{model}/config.pbtxt")
        commands.append(Command("fill", "sed", decouple, where, why=WHY_DECOUPLED))
    return commands


def model_yaml(profile: Deployment, release: Release, paths: Paths) -> str:
    """Settings of the LLM API and of Triton, as ``model.yaml`` holds them.

    The LLM API loads the quantized checkpoint in Hugging Face's format, or else, where checkpoints are for engines, the
    model itself.
    """
    import yaml

    quantized = profile.qformat != "full_prec" and not release.builds_engines
    fp8_cache = profile.kv_cache_dtype == "fp8" and not quantized  # a quantized checkpoint names its own
    settings = {
        "model": paths.checkpoint if quantized else paths.model,
        "backend": "pytorch",
        "tensor_parallel_size": profile.tp,
        "pipeline_parallel_size": profile.pp,
        "max_batch_size": profile.max_batch_size,
        "max_num_tokens": profile.max_num_tokens,
        "max_seq_len": profile.max_seq_len,
        "kv_cache_config": {
            "free_gpu_memory_fraction": profile.kv_cache_free_gpu_mem_fraction,
            "dtype": "fp8" if fp8_cache else "auto",
        },
        "triton_config": {"max_batch_size": 0, "decoupled": profile.decoupled},
    }
    return yaml.safe_dump(settings, sort_keys=False)


def launch(profile: Deployment, release: Release, paths: Paths, flags: Mapping[str, FlagValue]) -> list[Command]:
    """Start the server; ``flags`` of the launch script are added."""
    several = profile.world_size > 1
    own: dict[str, FlagValue] = {"--trtllm_llmapi_launch": several, "--oversubscribe": several}
    facts = llmapi_model(release.name)
    return [
        start(profile, release, paths, {**own, **flags}, why=WHY_LAUNCH, left_out=(facts.note,) if facts.note else ())
    ]


def request(profile: Deployment, release: Release, prompt: str, max_tokens: int, port: int) -> list[Command]:
    """Ask the model for a whole answer and, in decoupled mode, for a stream."""
    body = {"text_input": prompt, "sampling_param_max_tokens": max_tokens}
    why = "The checkpoint's generation_config.json names the end ids, so a request needs none."
    stream = {"streaming": True} if profile.decoupled else None
    return ask(MODEL, llmapi_model(release.name).inputs, body, port, why=why, stream=stream)
