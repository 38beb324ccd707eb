"""The PyTorch flow: hf_ptq.py writes a Hugging Face checkpoint; trtllm-serve serves it, or an engine."""

import json

from serving_base.errors import NotInRelease
from trtllm_check.deployment import Deployment, calibration_fits, too_small
from trtllm_check.recipes.command import HOST, Command, FlagValue, Paths, optional, place, required, tool_path
from trtllm_check.recipes.install import beside
from trtllm_check.recipes.run import MAX_OUTPUT_LEN, QUESTION, settings_reason
from trtllm_check.releases import Release, Tool

HF_PTQ = "hf_ptq.py"
SERVE = "trtllm-serve"
ENGINE_BACKENDS = ("tensorrt", "trt")  # the second is the older name
PORT = 8000  # the default of trtllm-serve, and of vllm serve
ADDRESS = f"http://localhost:{PORT}"
# Names in Model-Optimizer@43fd41a5 examples/hf_ptq/hf_ptq.py. PyTorch's flow has no INT8 kernels for Llama:
# TensorRT-LLM 1.3.0rc3 docs/source/features/quantization.md lists FP4, FP8, AWQ and GPTQ.
FORMATS = {"fp8": ("fp8",), "int4_awq": ("int4_awq",), "w4a8_awq": ("w4a8_awq_beta", "w4a8_awq")}
CACHES = {"fp8": "fp8", "auto": "none"}
# The default dataset is cnn_dailymail and a gated one (Model-Optimizer CHANGELOG 0.45).
CALIBRATION_DATASET = "cnn_dailymail"
WHY_MODELOPT = (
    "The script needs the modelopt of its own version; the container brings an older one "
    "(Model-Optimizer@43fd41a5 examples/hf_ptq/README.md)."
)


def quantize(profile: Deployment, release: Release, paths: Paths) -> list[Command]:
    """Calibrate and write a Hugging Face checkpoint, which is not split into ranks."""
    tool = release.tool(HF_PTQ)
    arguments = required(
        release,
        HF_PTQ,
        {
            "--pyt_ckpt_path": paths.model,
            "--export_path": paths.checkpoint,
            "--qformat": _format(profile, release),
            "--kv_cache_qformat": _cache(profile, release),
            "--calib_size": profile.calib_samples,
        },
    )
    awq = "awq" in profile.qformat
    arguments += optional(
        tool,
        {
            "--calib_seq": profile.calib_max_length,
            "--dataset": CALIBRATION_DATASET,
            "--awq_block_size": 128 if awq else None,
            "--low_memory_mode": profile.qformat == "fp8" and not calibration_fits(profile),
        },
    )
    where = place(profile, release)
    argv = (*tool.launcher, tool_path(profile, release, HF_PTQ, paths), *arguments)
    own_modelopt = f"{paths.root}/.cache/modelopt"
    why = (
        "The checkpoint keeps Hugging Face's names and is not split: tp and pp are chosen when it is served. "
        "--dataset leaves out the gated half of the default texts; --kv_cache_qformat fp8 measures the cache's scales, "
        "the default sets them to a constant (Model-Optimizer CHANGELOG 0.43, 0.45)."
    )
    left_out = () if calibration_fits(profile) else (too_small(profile),)
    env = {} if where == HOST else {"HF_HOME": paths.hub_cache, "PYTHONPATH": own_modelopt}
    command = Command("quantize", HF_PTQ, argv, where, env=env, why=why, left_out=left_out)
    if where == HOST:
        return [command]
    package = f"nvidia-modelopt=={release.pins['nvidia-modelopt']}"
    return [beside("quantize", where, own_modelopt, (package,), why=WHY_MODELOPT), command]


def serve(profile: Deployment, release: Release, paths: Paths) -> list[Command]:
    """Start trtllm-serve, which stays in the foreground, then ask for a chat's answer and for a text's end.

    :class:`NotInRelease` for a format that the PyTorch flow does not run.
    """
    refuse_formats(profile, release)
    return [_server(profile, release, paths), *_requests(profile, release, paths)]


def refuse_formats(profile: Deployment, release: Release) -> None:
    """:class:`NotInRelease` for a format that the PyTorch flow does not run, where that is the release's only flow."""
    if not release.builds_engines:
        _cache(profile, release)
        if profile.qformat != "full_prec":
            _format(profile, release)


def _server(profile: Deployment, release: Release, paths: Paths) -> Command:
    tool = release.tool(SERVE)
    engine = release.builds_engines
    flags: dict[str, FlagValue] = {
        "--tokenizer": paths.model,
        "--backend": backend(tool, engine=engine),
        "--host": "localhost",
        "--port": PORT,
        "--tp_size": profile.tp,
        "--pp_size": profile.pp,
        "--kv_cache_free_gpu_memory_fraction": profile.kv_cache_free_gpu_mem_fraction,
    }
    if not engine:
        flags |= {
            "--max_batch_size": profile.max_batch_size,
            "--max_num_tokens": profile.max_num_tokens,
            "--max_seq_len": profile.max_seq_len,
        }
    arguments = required(release, SERVE, flags)
    if not engine:
        arguments += optional(tool, {"--kv_cache_dtype": _served_cache(profile), "--no-telemetry": True})
    argv = (*tool.launcher, tool_path(profile, release, SERVE, paths), served(profile, release, paths), *arguments)
    why = (
        "An engine brings its own limits; it needs the model's tokenizer, which trtllm-build does not copy."
        if engine
        else "PyTorch's flow takes the checkpoint as it is; the limits that an engine would fix are given here."
    )
    if "--no-telemetry" in arguments:
        why += " It reports its usage to NVIDIA unless told not to."
    return Command(
        "serve",
        SERVE,
        argv,
        place(profile, release),
        env=release.environment_of(profile),
        why=why + settings_reason(profile, release),
        ready_url=f"{ADDRESS}/health",
    )


def _requests(profile: Deployment, release: Release, paths: Paths) -> list[Command]:
    model = served(profile, release, paths).rsplit("/", 1)[-1]
    chat = {"model": model, "messages": [{"role": "user", "content": QUESTION}], "max_tokens": MAX_OUTPUT_LEN}
    text = {"model": model, "prompt": "One, two, three,", "max_tokens": MAX_OUTPUT_LEN}
    why = "The server applies the model's chat format itself; the model's name is that of its folder."
    return [_post("/v1/chat/completions", chat, why), _post("/v1/completions", text, "A text goes on as it is.")]


def _post(route: str, body: dict[str, object], why: str) -> Command:
    header = ("--header", "Content-Type: application/json")
    argv = ("curl", f"{ADDRESS}{route}", "--silent", "--show-error", "--fail", *header, "--data", json.dumps(body))
    return Command("serve", "curl", argv, why=why)


def served(profile: Deployment, release: Release, paths: Paths) -> str:
    """What the server loads: the engine, the quantized checkpoint, or the model itself."""
    if release.builds_engines:
        return paths.engine
    return paths.model if profile.qformat == "full_prec" else paths.checkpoint


def backend(tool: Tool, *, engine: bool) -> str | None:
    """The backend's name, one that is sure; None where leaving the flag out means engines."""
    names = ENGINE_BACKENDS if engine else ("pytorch",)
    return next((name for name in names if tool.certain("--backend", name)), None)


def _served_cache(profile: Deployment) -> str | None:
    """The cache of a model that was not quantized; a quantized checkpoint names its own."""
    return "fp8" if profile.qformat == "full_prec" and profile.kv_cache_dtype == "fp8" else None


def _format(profile: Deployment, release: Release) -> str:
    tool = release.tool(HF_PTQ)
    for name in FORMATS.get(profile.qformat, ()):
        if tool.accepts("--qformat", name):
            return name
    raise NotInRelease(
        f"the PyTorch flow of TensorRT-LLM {release.name} has no road for {profile.qformat}",
        why="it runs FP8, INT4-AWQ and W4A8-AWQ of those that profiles name (docs/source/features/quantization.md)",
        fix=f"use one of {', '.join(FORMATS)}, or a release with trtllm-build",
    )


def _cache(profile: Deployment, release: Release) -> str:
    if profile.kv_cache_dtype not in CACHES:
        raise NotInRelease(
            f"the PyTorch flow of TensorRT-LLM {release.name} has no {profile.kv_cache_dtype} KV cache",
            why="hf_ptq.py writes FP8 or 16-bit caches for it",
            fix="set kv_cache_dtype to fp8 or auto",
        )
    return CACHES[profile.kv_cache_dtype]
