"""Stages quantize (post-training quantization) and convert (16 bit): both write a checkpoint of tp x pp ranks."""

import re

from serving_base.errors import NotInRelease
from trtllm_check.deployment import Deployment, calibration_fits, reference_fit, too_small
from trtllm_check.recipes import pytorch
from trtllm_check.recipes.command import HOST, Command, FlagValue, Paths, first_of, optional, place, required, tool_path
from trtllm_check.releases import Release, Tool

QUANTIZE = "quantize.py"
CONVERT = "convert_checkpoint.py"
# The bare default `cnn_dailymail` fails with recent `datasets`; the name must contain it (TensorRT-LLM#5247).
CALIBRATION_DATASET = "abisee/cnn_dailymail"
AWQ = ("int4_awq", "w4a8_awq")
AWQ_MAX_CALIB_SIZE = 32
BLOCK_SIZE = 128
WEIGHT_ONLY = {"int8_wo": "int8", "int4_gptq": "int4_gptq"}
GPTQ_FLAGS = ("--quant_ckpt_path", "--modelopt_quant_ckpt_path", "--ammo_quant_ckpt_path")
COPIES_WHILE_CONVERTING = 2


def quantize(profile: Deployment, release: Release, paths: Paths) -> list[Command]:
    """Write a quantized checkpoint: by calibration, or by conversion for the weight-only formats."""
    if profile.qformat == "full_prec":
        raise NotInRelease(
            f"profile {profile.name} keeps the weights in {profile.dtype}",
            why="qformat full_prec is no quantization",
            fix="use stage convert, which writes its checkpoint",
        )
    if not release.builds_engines:
        return pytorch.quantize(profile, release, paths)
    if profile.qformat in WEIGHT_ONLY:
        return [_weight_only(profile, release, paths)]
    return [_calibrate(profile, release, paths)]


def convert(profile: Deployment, release: Release, paths: Paths) -> list[Command]:
    """Write the checkpoint in 16 bits: the baseline beside a quantized one, or the profile's own for full_prec."""
    own = profile.qformat == "full_prec"
    flags = _int8_cache(profile, release) if own else {}
    left_out = [_not_listed(profile, release)] if own else []
    if own and profile.kv_cache_dtype == "fp8":
        left_out.append(f"The KV cache of a {profile.dtype} checkpoint stays in 16 bits: kv_cache_dtype fp8 is unused.")
    why = (
        f"Llama-3 was trained in BF16; this script's own default is {_default(release.tool(CONVERT), '--dtype')}. "
        "Each worker converts one rank."
    )
    folder = paths.checkpoint if own else paths.checkpoint_bf16
    return [_convert("convert", profile, release, paths, folder, flags, why, left_out)]


def _calibrate(profile: Deployment, release: Release, paths: Paths) -> Command:
    tool = release.tool(QUANTIZE)
    awq = profile.qformat in AWQ
    kv_cache_dtype = None if profile.kv_cache_dtype == "auto" else profile.kv_cache_dtype
    arguments = required(
        release,
        QUANTIZE,
        {
            "--model_dir": paths.model,
            "--output_dir": paths.checkpoint,
            "--dtype": profile.dtype,
            "--qformat": profile.qformat,
            "--kv_cache_dtype": kv_cache_dtype,
            "--calib_size": min(profile.calib_samples, AWQ_MAX_CALIB_SIZE) if awq else profile.calib_samples,
            "--tp_size": profile.tp,
            "--pp_size": profile.pp,
            "--awq_block_size": BLOCK_SIZE if awq else None,
        },
    )
    on_cpu = not calibration_fits(profile) and _calibrates_on_cpu(tool)
    arguments += optional(
        tool,
        {
            "--calib_dataset": CALIBRATION_DATASET,
            "--calib_max_seq_length": profile.calib_max_length,
            "--device": "cpu" if on_cpu else None,
        },
    )
    where = place(profile, release)
    argv = (*tool.launcher, tool_path(profile, release, QUANTIZE, paths), *arguments)
    return Command(
        "quantize",
        QUANTIZE,
        argv,
        where,
        env={} if where == HOST else {"HF_HOME": paths.hub_cache},
        why=" ".join(_calibration_reasons(profile, release)),
        left_out=_filled(
            _not_listed(profile, release),
            _small_machine(profile, on_cpu=on_cpu),
            *_fixed_calibration(tool, release),
        ),
    )


def _calibration_reasons(profile: Deployment, release: Release) -> list[str]:
    reasons = [
        "Without --qformat the weights stay unquantized, and without --kv_cache_dtype the KV cache stays at 16 bits "
        "(TensorRT-LLM@42a7b092 quantize_by_modelopt.py); tp_size and pp_size fix the ranks for good."
    ]
    if profile.qformat in AWQ:
        reasons.append(
            f"AWQ takes at most {AWQ_MAX_CALIB_SIZE} texts (same file); a scale serves {BLOCK_SIZE} weights."
        )
    if profile.kv_cache_dtype == "fp8" and not release.behaviour.fp8_kv_scales_used.value:
        reasons.append(
            f"This release loads every FP8 KV scale as 1.0 ({release.behaviour.fp8_kv_scales_used.source}), "
            "so calibrating the cache changes nothing here."
        )
    return reasons


def _calibrates_on_cpu(tool: Tool) -> bool:
    """True where the argument's own choices name the CPU; a bare string may or may not work."""
    device = tool.argument("--device")
    return device is not None and "cpu" in device.choices


def _small_machine(profile: Deployment, *, on_cpu: bool) -> str:
    if calibration_fits(profile):
        return ""
    elsewhere = "Or run this stage on a larger GPU and copy the checkpoint: only the engine is bound to a GPU."
    if on_cpu:
        return f"{too_small(profile)} So --device cpu calibrates in host memory, which is slow. {elsewhere}"
    return f"{too_small(profile)} {elsewhere}"


def _fixed_calibration(tool: Tool, release: Release) -> list[str]:
    """What of the calibration this release does not let choose."""
    fixed = {
        "--calib_dataset": f"{release.name} always calibrates on the dataset id `cnn_dailymail`, which recent "
        "`datasets` do not find (TensorRT-LLM#5247): keep the container's version.",
        "--calib_max_seq_length": f"{release.name} sets the length of calibration texts itself: calib_max_length is "
        "unused.",
    }
    return [sentence for flag, sentence in fixed.items() if not tool.has(flag)]


def _weight_only(profile: Deployment, release: Release, paths: Paths) -> Command:
    """INT8 per channel from the model itself, or INT4 from weights that GPTQ made before."""
    caches = ("auto", "int8") if profile.qformat == "int8_wo" else ("auto",)
    if profile.kv_cache_dtype not in caches:
        raise NotInRelease(
            f"{CONVERT} makes no {profile.kv_cache_dtype.upper()} KV cache beside {profile.qformat} weights",
            why="it calibrates a cache in INT8 only, and reads the model's own weights then, not those of GPTQ "
            "(examples/llama/README.md, INT8 KV cache)",
            fix=f"set kv_cache_dtype to {' or '.join(caches)}",
        )
    flags: dict[str, FlagValue] = {
        "--use_weight_only": True,
        "--weight_only_precision": WEIGHT_ONLY[profile.qformat],
        **_int8_cache(profile, release),
    }
    why = "INT8 weights with a scale per output channel; activations stay in 16 bits."
    left_out = [_not_listed(profile, release)]
    if profile.qformat == "int4_gptq":
        weights = f"{paths.model}-gptq/model.safetensors"
        flags |= {
            _gptq_flag(release): weights,
            "--per_group": True,
            "--group_size": BLOCK_SIZE,
        }
        why = (
            "GPTQ is made by AutoGPTQ, not here: 4 bits, groups of 128, without act-order, which TensorRT-LLM does not "
            "read (examples/llama/README.md, GPTQ)."
        )
        left_out.append(f"Put the weights that AutoGPTQ saved at {weights} first.")
    return _convert("quantize", profile, release, paths, paths.checkpoint, flags, why, left_out)


def _int8_cache(profile: Deployment, release: Release) -> dict[str, FlagValue]:
    """Calibration of an INT8 KV cache, with the script's own texts."""
    if profile.kv_cache_dtype != "int8":
        return {}
    tool = release.tool(CONVERT)
    sizes = {"--calib_size": profile.calib_samples, "--calib_max_seq_length": profile.calib_max_length}
    return {"--int8_kv_cache": True, **{flag: value for flag, value in sizes.items() if tool.certain(flag)}}


def _gptq_flag(release: Release) -> str:
    flag = first_of(release.tool(CONVERT), *GPTQ_FLAGS)
    if not flag or not release.tool(CONVERT).accepts("--weight_only_precision", "int4_gptq"):
        raise NotInRelease(
            f"{CONVERT} of TensorRT-LLM {release.name} reads no GPTQ weights",
            why=f"it has none of {', '.join(GPTQ_FLAGS)}",
            fix="use qformat int4_awq",
        )
    return flag


def _convert(
    stage: str,
    profile: Deployment,
    release: Release,
    paths: Paths,
    folder: str,
    flags: dict[str, FlagValue],
    why: str,
    left_out: list[str],
) -> Command:
    tool = release.tool(CONVERT)
    in_host_memory = reference_fit(profile).times * COPIES_WHILE_CONVERTING > profile.gpu_count
    arguments = required(
        release,
        CONVERT,
        {
            "--model_dir": paths.model,
            "--output_dir": folder,
            "--dtype": profile.dtype,
            "--tp_size": profile.tp,
            "--pp_size": profile.pp,
            **flags,
        },
    )
    arguments += optional(
        tool,
        {
            "--workers": profile.world_size if profile.world_size > 1 else None,
            "--load_model_on_cpu": in_host_memory,
        },
    )
    where = place(profile, release)
    argv = (*tool.launcher, tool_path(profile, release, CONVERT, paths), *arguments)
    env = {"HF_HOME": paths.hub_cache} if "--int8_kv_cache" in arguments and where != HOST else {}
    return Command(stage, CONVERT, argv, where, env=env, why=why, left_out=_filled(*left_out))


def _not_listed(profile: Deployment, release: Release) -> str:
    """A sentence if the release does not list the model's family as supported."""
    family = re.match(r"llama-\d(\.\d)?", profile.model)
    support = release.models.get(family.group()) if family else None
    if support is None or support.supported:
        return ""
    note = f" ({support.note})" if support.note else ""
    return f"{profile.model} is not among the models that {release.name} lists{note}; source: {support.source}."


def _default(tool: Tool, flag: str) -> object:
    argument = tool.argument(flag)
    return argument.default if argument else None


def _filled(*sentences: str) -> tuple[str, ...]:
    return tuple(sentence for sentence in sentences if sentence)
