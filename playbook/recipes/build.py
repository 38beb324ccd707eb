"""Stage build: trtllm-build with the flags that this release has, for this profile."""

from playbook.profile import Profile
from playbook.recipes.command import Command, Paths, place, tool_path
from playbook.recipes.flags import FlagValue, optional, required, switch
from playbook.releases import Release, Tool

BUILD = "trtllm-build"


def build(profile: Profile, release: Release, paths: Paths) -> list[Command]:
    """Compile the checkpoint into one engine per rank."""
    tool = release.tool(BUILD)
    flags = {
        "--checkpoint_dir": paths.checkpoint,
        "--output_dir": paths.engine,
        "--max_batch_size": profile.max_batch_size,
        "--max_num_tokens": profile.max_num_tokens,
        "--max_input_len": profile.max_input_len,
        **_length(profile, tool),
    }
    arguments = required(release, BUILD, flags)
    arguments += optional(tool, {**_plugins(profile, tool), **_attention(profile, release), **_parallel(profile, tool)})
    argv = (*tool.launcher, tool_path(release, BUILD, paths), *arguments)
    return [Command("build", BUILD, argv, place(profile, release), why=" ".join(_reasons(profile, arguments)))]


def paged_context_fmha(profile: Profile, release: Release) -> bool:
    """True if prompts may be read from KV blocks: what prefix reuse and chunked prompts need.

    TensorRT-LLM@42a7b092 tensorrt_llm/builder.py:1101-1115: with an FP8 cache only with FP8 weights, never with INT8.
    """
    if profile.kv_cache_dtype == "fp8":
        return profile.qformat == "fp8" and release.behaviour.paged_context_fmha_with_fp8_kv.value
    return profile.kv_cache_dtype != "int8"


def _length(profile: Profile, tool: Tool) -> dict[str, FlagValue]:
    if tool.has("--max_seq_len"):
        return {"--max_seq_len": profile.max_seq_len}
    return {"--max_output_len": profile.max_seq_len - profile.max_input_len}


def _plugins(profile: Profile, tool: Tool) -> dict[str, FlagValue]:
    """GEMM plugin on for 16 bit and off for FP8; the attention plugin only where it does not follow the model."""
    attention = tool.argument("--gpt_attention_plugin")
    follows_model = attention is None or attention.default == "auto"
    return {
        "--gpt_attention_plugin": None if follows_model else profile.dtype,
        "--gemm_plugin": profile.dtype if profile.qformat == "full_prec" else "disable",
        "--use_fused_mlp": switch(tool, "--use_fused_mlp"),
    }


def _attention(profile: Profile, release: Release) -> dict[str, FlagValue]:
    """FP8 context FMHA only together with FP8 weights, FP8 KV cache and paged context FMHA."""
    paged = paged_context_fmha(profile, release)
    fp8 = paged and profile.qformat == "fp8" and profile.kv_cache_dtype == "fp8"
    return {
        "--use_paged_context_fmha": "enable" if paged else "disable",
        "--use_fp8_context_fmha": "enable" if fp8 else "disable",
        "--multiple_profiles": "enable",
    }


def _parallel(profile: Profile, tool: Tool) -> dict[str, FlagValue]:
    if profile.world_size == 1:
        return {}
    several_gpus_per_layer = profile.tp > 1
    return {
        "--reduce_fusion": "enable" if several_gpus_per_layer else None,
        "--use_custom_all_reduce": switch(tool, "--use_custom_all_reduce") if several_gpus_per_layer else None,
        "--workers": profile.world_size,
    }


def _reasons(profile: Profile, arguments: list[str]) -> list[str]:
    reasons = {
        "--max_seq_len": "max_seq_len counts prompt and answer (TensorRT-LLM@42a7b092 builder.py:867-945).",
        "--gemm_plugin": "The GEMM plugin is for 16 bit; FP8 is faster without it above batch 4 "
        "(v0.16 docs/source/performance/perf-best-practices.md).",
        "--use_fp8_context_fmha": "Paged and FP8 context FMHA go together with the FP8 KV cache; one without the other "
        "fails or answers garbage (TensorRT-LLM#2125, #2447), and prefix reuse needs both."
        if profile.kv_cache_dtype == "fp8"
        else "Paged context FMHA is what prefix reuse needs (docs/source/advanced/kv-cache-reuse.md).",
        "--reduce_fusion": "reduce_fusion joins the all-reduce with the norm after it; it works for Llama with TP only "
        "(TensorRT-LLM@42a7b092 builder.py:1042-1050).",
        "--workers": "Each worker builds one rank's engine.",
    }
    return [reason for flag, reason in reasons.items() if flag in arguments]
