"""Stages quantize (post-training quantization by modelopt) and convert (16 bit): both write a checkpoint."""

from playbook.profile import Profile
from playbook.recipes.command import HOST, Command, Paths, place, tool_path
from playbook.recipes.flags import optional, required
from playbook.releases import Release

QUANTIZE = "quantize.py"
CONVERT = "convert_checkpoint.py"
# The bare default `cnn_dailymail` fails with recent `datasets`; the name must contain it (TensorRT-LLM#5247).
CALIBRATION_DATASET = "abisee/cnn_dailymail"


def quantize(profile: Profile, release: Release, paths: Paths) -> list[Command]:
    """Calibrate and write a quantized checkpoint, split into tp x pp ranks."""
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
            "--calib_size": profile.calib_samples,
            "--tp_size": profile.tp,
            "--pp_size": profile.pp,
        },
    )
    arguments += optional(
        release.tool(QUANTIZE),
        {"--calib_dataset": CALIBRATION_DATASET, "--calib_max_seq_length": profile.calib_max_length},
    )
    why = [
        "Without --qformat the weights stay unquantized, and without --kv_cache_dtype the KV cache stays at 16 bits "
        "(TensorRT-LLM@42a7b092 quantize_by_modelopt.py); tp_size and pp_size fix the ranks for good."
    ]
    if kv_cache_dtype == "fp8" and not release.behaviour.fp8_kv_scales_used.value:
        why.append(
            f"This release loads every FP8 KV scale as 1.0 ({release.behaviour.fp8_kv_scales_used.source}), "
            "so calibrating the cache changes nothing here."
        )
    where = place(profile, release)
    argv = (*release.tool(QUANTIZE).launcher, tool_path(release, QUANTIZE, paths), *arguments)
    env = {} if where == HOST else {"HF_HOME": paths.hub_cache}
    return [Command("quantize", QUANTIZE, argv, where, env=env, why=" ".join(why))]


def convert(profile: Profile, release: Release, paths: Paths) -> list[Command]:
    """Write the same checkpoint without quantization: the 16-bit baseline."""
    tool = release.tool(CONVERT)
    arguments = required(
        release,
        CONVERT,
        {
            "--model_dir": paths.model,
            "--output_dir": paths.checkpoint,
            "--dtype": profile.dtype,
            "--tp_size": profile.tp,
            "--pp_size": profile.pp,
        },
    )
    arguments += optional(tool, {"--workers": profile.world_size if profile.world_size > 1 else None})
    why = (
        f"Llama-3 was trained in BF16; this script's own default is {tool.arguments['--dtype'].default}. "
        "Each worker converts one rank."
    )
    argv = (*tool.launcher, tool_path(release, CONVERT, paths), *arguments)
    return [Command("convert", CONVERT, argv, place(profile, release), why=why)]
