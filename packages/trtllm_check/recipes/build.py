"""Stage build: trtllm-build with the flags that this release has, for this profile."""

from collections.abc import Mapping
from dataclasses import dataclass

from trtllm_check.deployment import Deployment
from trtllm_check.recipes.command import Command, FlagValue, Paths, optional, place, required, switch, tool_path
from trtllm_check.releases import Release, Tool
from trtllm_check.rules.table import CommandFacts, objections

BUILD = "trtllm-build"
PAGED, FP8 = "--use_paged_context_fmha", "--use_fp8_context_fmha"
CAN_FUSE_MLP = ("fp8", "full_prec")


@dataclass(frozen=True)
class Attention:
    """How prompts attend. ``paged``: they may be read from KV blocks; ``fp8``: their attention computes in FP8."""

    paged: bool
    fp8: bool = False
    left_out: str = ""


def build(profile: Deployment, release: Release, paths: Paths) -> list[Command]:
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
    arguments += optional(
        tool, {**_plugins(profile, release), **_attention(profile, release), **_parallel(profile, release)}
    )
    argv = (*tool.launcher, tool_path(profile, release, BUILD, paths), *arguments)
    left_out = tuple(filter(None, [attention(profile, release).left_out]))
    why = " ".join(_reasons(arguments))
    return [Command("build", BUILD, argv, place(profile, release), why=why, left_out=left_out)]


def paged_context_fmha(profile: Deployment, release: Release) -> bool:
    """True if prompts may be read from KV blocks: what prefix reuse and chunked prompts need."""
    return attention(profile, release).paged


def attention(profile: Deployment, release: Release) -> Attention:
    """Paged and FP8 context FMHA as far as the rulebook has nothing against them for this GPU and these formats.

    FP8 context FMHA is for FP8 weights over an FP8 KV cache.
    """
    wants_fp8 = profile.qformat == profile.kv_cache_dtype == "fp8" and release.tool(BUILD).has(FP8)
    reasons: list[str] = []
    for fp8 in (True, False) if wants_fp8 else (False,):
        flags = {PAGED: "enable", FP8: "enable" if fp8 else "disable"}
        against = objections("attention", _command(profile, release, flags), release.name)
        if not against:
            return Attention(paged=True, fp8=fp8)
        reasons += against
    return Attention(
        paged=False,
        left_out="Paged context FMHA is off, so there is neither reuse of prefixes nor chunking of prompts. With it "
        + "; and ".join(dict.fromkeys(reasons))
        + ".",
    )


def _is_advised(profile: Deployment, release: Release, flag: str, value: str) -> bool:
    """True if the rulebook has nothing to say of ``flag`` for this GPU, these formats and so many ranks."""
    return not objections("gemm", _command(profile, release, {flag: value}), release.name, advice=True)


def _command(profile: Deployment, release: Release, flags: Mapping[str, str]) -> CommandFacts:
    """The build with ``flags``, as the rulebook sees it."""
    facts = {
        "weights": profile.qformat,
        "kv_cache": profile.kv_cache_dtype,
        "tp": profile.tp,
        "arch": profile.gpu_arch,
        "gpu": profile.gpu,
        "max_batch_size": profile.max_batch_size,
    }
    return CommandFacts(BUILD, release.tool(BUILD), flags.get, facts)


def _length(profile: Deployment, tool: Tool) -> dict[str, FlagValue]:
    if tool.has("--max_seq_len"):
        return {"--max_seq_len": profile.max_seq_len}
    return {"--max_output_len": profile.max_seq_len - profile.max_input_len}


def _plugins(profile: Deployment, release: Release) -> dict[str, FlagValue]:
    """The GEMM plugin unless products run slower with it; the attention plugin where it does not follow the model."""
    tool = release.tool(BUILD)
    plugin = tool.argument("--gpt_attention_plugin")
    follows_model = plugin is None or plugin.default == "auto"
    return {
        "--gpt_attention_plugin": None if follows_model else profile.dtype,
        "--gemm_plugin": profile.dtype if _is_advised(profile, release, "--gemm_plugin", profile.dtype) else "disable",
        "--strongly_typed": profile.qformat == "fp8",
        "--use_fused_mlp": switch(tool, "--use_fused_mlp") if profile.qformat in CAN_FUSE_MLP else None,
    }


def _attention(profile: Deployment, release: Release) -> dict[str, FlagValue]:
    chosen = attention(profile, release)
    return {
        PAGED: "enable" if chosen.paged else "disable",
        FP8: "enable" if chosen.fp8 else "disable",
        "--multiple_profiles": "enable",
    }


def _parallel(profile: Deployment, release: Release) -> dict[str, FlagValue]:
    if profile.world_size == 1:
        return {}
    fuses = _is_advised(profile, release, "--reduce_fusion", "enable")
    reduces = profile.tp > 1 and _is_advised(profile, release, "--use_custom_all_reduce", "enable")
    return {
        "--reduce_fusion": "enable" if fuses else None,
        "--use_custom_all_reduce": switch(release.tool(BUILD), "--use_custom_all_reduce") if reduces else None,
        "--workers": profile.world_size,
    }


def _reasons(arguments: list[str]) -> list[str]:
    fp8_attention = (FP8, "enable")
    paged = (PAGED, "enable")
    reasons = {
        ("--max_seq_len",): "max_seq_len counts prompt and answer (TensorRT-LLM@42a7b092 builder.py:867-945).",
        ("--max_output_len",): "A request is at most max_input_len + max_output_len tokens long; without "
        "--max_batch_size this release builds for one request (its default is 1).",
        ("--gemm_plugin", "disable"): "The GEMM plugin is for 16 bit; FP8 is faster without it above batch 4 "
        "(v0.16 docs/source/performance/perf-best-practices.md).",
        ("--strongly_typed",): "FP8 keeps the types of the checkpoint (--strongly_typed), as NVIDIA's own FP8 builds "
        "did (tensorrtllm_backend@76464e9b scripts/benchmarking/build_model.sh).",
        fp8_attention: "Paged and FP8 context FMHA go together with the FP8 KV cache; one without the other fails or "
        "answers garbage (TensorRT-LLM#2125, #2447), and prefix reuse needs both.",
        paged: ""
        if _given(arguments, fp8_attention)
        else "Paged context FMHA is what prefix reuse needs (docs/source/advanced/kv-cache-reuse.md).",
        ("--reduce_fusion",): "reduce_fusion joins the all-reduce with the norm after it; it works for Llama with TP "
        "only (TensorRT-LLM@42a7b092 builder.py:1042-1050).",
        ("--use_custom_all_reduce",): "Custom all-reduce needs NVLink or peer access between the GPUs "
        "(TensorRT-LLM@05316d33 docs/source/performance/perf-best-practices.md:161-180).",
        ("--workers",): "Each worker builds one rank's engine.",
    }
    return [reason for words, reason in reasons.items() if reason and _given(arguments, words)]


def _given(arguments: list[str], words: tuple[str, ...]) -> bool:
    """True if ``arguments`` has the flag, followed by the value if there is one."""
    return words[0] in arguments and (len(words) == 1 or arguments[arguments.index(words[0]) + 1] == words[1])
