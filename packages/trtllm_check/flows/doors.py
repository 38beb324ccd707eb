"""Three doors to one unified FP8 checkpoint: trtllm-serve, LMI's vLLM image, vLLM. Pure functions over data."""

import shlex
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

from serving_base.errors import NotInRelease, UsageError
from serving_base.yaml_files import read_yaml
from trtllm_check.deployment import Deployment
from trtllm_check.flows.options import LlmOptions, check_options, llm_options
from trtllm_check.recipes import lmi
from trtllm_check.recipes.pytorch import PORT

Door = Literal["trtllm-serve", "lmi", "vllm"]
DOORS: tuple[Door, ...] = get_args(Door)
FILE = Path(__file__).parent / "doors.yml"
OPTIONS_FILE = "llm-api.yml"


@dataclass(frozen=True)
class Serving:
    """What one door needs: a file (empty: none) and a command (empty: the container starts by itself)."""

    door: Door
    file_name: str
    text: str
    argv: tuple[str, ...]
    source: str

    @property
    def shell(self) -> str:
        """To paste into a shell: the file is written first."""
        written = f"cat > {self.file_name} <<'EOF'\n{self.text}EOF\n" if self.text else ""
        return written + (" \\\n  ".join(_grouped(self.argv)) if self.argv else "")


def _grouped(argv: tuple[str, ...]) -> list[str]:
    """The program with what stands before its first flag, then each flag with its value."""
    lines: list[str] = []
    for word in argv:
        if word.startswith("--") or not lines:
            lines.append(shlex.quote(word))
        else:
            lines[-1] += f" {shlex.quote(word)}"
    return lines


def llm_api_file(profile: Deployment, release: str) -> str:
    """The YAML file of ``trtllm-serve`` for this deployment, of options that are known in the release.

    An engine's limits, its share of memory and its FP8 cache become options; ``LlmOptions.certain`` says which of them
    were read in this very release. :class:`NotInRelease` for a KV cache that is neither FP8 nor the checkpoint's own.
    """
    if profile.kv_cache_dtype == "int8":
        raise NotInRelease(
            "the LLM API has no INT8 KV cache",
            why="it takes the checkpoint's own or FP8",
            fix="set kv_cache_dtype to fp8",
        )
    known = llm_options(release)
    lines = [f"{name}: {_yaml(value)}" for name, value in _values(profile).items() if name in known.options]
    below = {name: value for name, value in _cache(profile).items() if name in known.nested["kv_cache_config"].options}
    lines += ["kv_cache_config:", *(f"  {name}: {_yaml(value)}" for name, value in below.items())]
    text = "\n".join(lines) + "\n"
    assert not check_options(text, release)
    return text


def _values(profile: Deployment) -> dict[str, int | bool]:
    return {
        "tensor_parallel_size": profile.tp,
        "pipeline_parallel_size": profile.pp,
        "max_batch_size": profile.max_batch_size,
        "max_num_tokens": profile.max_num_tokens,
        "max_seq_len": profile.max_seq_len,
        "enable_chunked_prefill": True,
    }


def _cache(profile: Deployment) -> dict[str, float | bool | str]:
    return {
        "free_gpu_memory_fraction": profile.kv_cache_free_gpu_mem_fraction,
        "enable_block_reuse": True,
        "dtype": profile.kv_cache_dtype,
    }


def _yaml(value: float | bool | str) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def serve_recipe(profile: Deployment, release: str, checkpoint: str) -> Serving:
    """``trtllm-serve`` of ``release`` for a unified checkpoint. The limits stand in the file only, see options.yml."""
    known: LlmOptions = llm_options(release)
    words = known.command
    server = ("--host", "localhost", "--port", str(PORT))
    argv = ("trtllm-serve", checkpoint, *words.backend, *server, words.file_flag, OPTIONS_FILE)
    return Serving("trtllm-serve", OPTIONS_FILE, llm_api_file(profile, release), argv, words.source)


def _lmi(profile: Deployment, checkpoint: str) -> Serving:
    image = lmi.vllm_image()
    fit = lmi.fitted(profile, image, quantized=True).profile
    text = lmi.serving_properties(fit, image.tag, model_id=checkpoint, compiled=False, quantized=True)
    return Serving("lmi", "serving.properties", text, (), f"{image.tag}: {image.source}")


def _vllm(profile: Deployment, checkpoint: str) -> Serving:
    names = {field: doors["vllm"] for field, doors in _facts()["fields"].items()}
    argv = ["vllm", "serve", checkpoint, "--host", "localhost", "--port", str(PORT)]
    for field, flag in names.items():
        argv += [flag, str(getattr(profile, field))]
    if profile.pp > 1:
        argv += ["--pipeline-parallel-size", str(profile.pp)]
    return Serving("vllm", "", "", tuple(argv), _facts()["sources"]["vllm"])


def open_door(door: str, profile: Deployment, checkpoint: str, release: str) -> Serving:
    """What ``door`` needs to serve the unified FP8 ``checkpoint`` under ``profile``.

    ``release`` matters to trtllm-serve only. :class:`UsageError` for a door that is not one of :data:`DOORS`.
    """
    if door == "trtllm-serve":
        return serve_recipe(profile, release, checkpoint)
    if door == "lmi":
        return _lmi(profile, checkpoint)
    if door == "vllm":
        return _vllm(profile, checkpoint)
    raise UsageError(f"there is no door {door!r}", fix=f"use one of {', '.join(DOORS)}")


def field_names() -> list[dict[str, Any]]:
    """A row for each field of a deployment: what the three doors call it."""
    return [{"field": field, **doors} for field, doors in _facts()["fields"].items()]


def differences() -> list[dict[str, str]]:
    """A row for each way in which the three doors differ."""
    return [dict(row) for row in _facts()["differences"]]


def metric_names() -> list[dict[str, str]]:
    """A row for each figure: its name at Triton with engines, at trtllm-serve and at vLLM; "-" for none."""
    return [dict(row) for row in _facts()["metrics"]]


@cache
def _facts() -> dict[str, Any]:
    content: dict[str, Any] = read_yaml(FILE)
    return content
