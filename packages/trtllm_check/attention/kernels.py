"""Which attention kernel TensorRT-LLM runs for a GPU, a head size, a data type and the build's flags: of
``support.yml``.

A prompt attends in the *context phase* and every further token in the *generation phase*; each phase has kernels of its
own. What the file has not read is answered with :data:`NOT_READ`, never with a guess.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from serving_base.errors import UsageError
from serving_base.facts.gpus import find_gpu
from serving_base.record import Record
from serving_base.yaml_files import read_yaml

NOT_READ = "not read"
VOLTA = 70
PAGED_READS_FP8_SINCE = "0.10.0"
LAST_RELEASE = "0.18.2"
"""Later builders switch flags off that this one refuses: the rulebook (``trtllm_check.rules``) says which."""
Kernel = Literal["FMHA", "unfused MHA", "MMHA", "XQA", "refused", "not read"]


class AttentionCase(Record):
    """A GPU (``h100``, or an architecture such as ``sm90``), a model's heads, its formats and the build's flags.

    ``queries_per_kv``: query heads that share one head of keys and values; 1 is MHA. ``kv_cache`` "auto": as ``dtype``.
    ``fp8_weights``: the checkpoint is quantized to FP8, so it brings scales.
    """

    gpu: str
    head_size: int = Field(default=128, gt=0)
    dtype: Literal["fp16", "bf16", "fp32"] = "bf16"
    kv_cache: Literal["auto", "fp8", "int8"] = "auto"
    fp8_weights: bool = False
    queries_per_kv: int = Field(default=1, gt=0)
    release: str = "0.12.0"
    context_fmha: bool = True
    context_fmha_fp32_acc: bool = False
    use_fp8_context_fmha: bool = False
    use_paged_context_fmha: bool = False
    enable_xqa: bool = True
    tokens_per_block: int = 64

    @field_validator("release")
    @classmethod
    def _is_a_release(cls, value: str) -> str:
        if _numbers(value) > _numbers(LAST_RELEASE):
            raise ValueError(f"these facts were read for releases up to {LAST_RELEASE}; ask the rulebook about {value}")
        return value

    @property
    def architecture(self) -> str:
        """Such as ``sm90``; :class:`UsageError` for a GPU that is not known."""
        if self.gpu.startswith("sm") and self.gpu[2:].isdigit():
            return self.gpu
        found = find_gpu(self.gpu)
        if found is None:
            raise UsageError(f"no GPU is known as {self.gpu!r}", fix="use a name such as h100, or sm90")
        return found.architecture


class KernelChoice(Record):
    """The answer: the kernel, the shape of its name where that was read, the reason, and where the reason was read."""

    kernel: Kernel
    name: str = NOT_READ
    reason: str
    source: str

    def row(self) -> dict[str, str]:
        """For a table."""
        return {"kernel": self.kernel, "name": self.name, "reason": self.reason}


class FmhaSupport(Record):
    """A row of the talk's table. ``accumulators``: type of the inputs -> types in which products may be summed.

    ``tail``: what the kernel's name says after the mask, before the architecture.
    """

    architectures: tuple[str, ...]
    head_sizes: tuple[int, ...]
    accumulators: Mapping[str, tuple[str, ...]]
    masks: tuple[str, ...]
    features: tuple[str, ...]
    tail: str
    source: str


@cache
def support() -> dict[str, Any]:
    """The content of ``support.yml``."""
    content: dict[str, Any] = read_yaml(Path(__file__).with_name("support.yml"))
    return content


@cache
def fmha_rows() -> tuple[FmhaSupport, ...]:
    return tuple(FmhaSupport(**row) for row in support()["fmha"])


def head_size_table() -> list[dict[str, str]]:
    """The talk's table of FMHA, a row for each architecture and a column for each head size."""
    sizes = sorted({size for row in fmha_rows() for size in row.head_sizes})
    return [
        {"architecture": name} | {str(size): "yes" if size in row.head_sizes else "-" for size in sizes}
        for row in fmha_rows()
        for name in row.architectures
    ]


def context_kernel(case: AttentionCase) -> KernelChoice:
    """The kernel that reads prompts: FMHA in 16 bits or FP8, or what it falls back to."""
    unfused = support()["unfused"]
    if not case.context_fmha:
        return KernelChoice(
            kernel="unfused MHA", reason=f"context_fmha is off: {unfused['reason']}", source=unfused["source"]
        )
    row = next((row for row in fmha_rows() if case.architecture in row.architectures), None)
    if row is None:
        return KernelChoice(
            kernel="not read", reason=f"the table has no {case.architecture}", source=fmha_rows()[0].source
        )
    for missing, what in (
        (case.dtype not in row.accumulators, f"FMHA has no {case.dtype}"),
        (case.head_size not in row.head_sizes, f"FMHA on {case.architecture} has no head size {case.head_size}"),
    ):
        if missing:
            return KernelChoice(kernel="unfused MHA", reason=f"{what}: {unfused['reason']}", source=row.source)
    return _refused(case) or _fused(case, row)


def _refused(case: AttentionCase) -> KernelChoice | None:
    """What the build or the run of releases up to 0.18 refuses, or answers wrongly."""
    if case.use_paged_context_fmha and case.kv_cache == "int8":
        return _no("paged context FMHA does not read an INT8 cache", "TensorRT-LLM@42a7b092 builder.py:1113-1115")
    if case.use_paged_context_fmha and case.kv_cache == "fp8":
        if _numbers(case.release) < _numbers(PAGED_READS_FP8_SINCE):
            why = f"before {PAGED_READS_FP8_SINCE} paged context FMHA reads a 16-bit cache only"
            return _no(why, "TensorRT-LLM@250d9c29 builder.py:659-663")
        if not case.fp8_weights:
            why = "paged context FMHA over an FP8 cache needs FP8 weights"
            return _no(why, "TensorRT-LLM@42a7b092 builder.py:1101-1106")
    if not _computes_in_fp8(case):
        return None
    able = support()["fp8_fmha"].get(case.architecture)
    if able is None:
        return _no(f"{case.architecture} has no FP8 context FMHA", support()["fp8_fmha"]["sm89"]["source"])
    if _numbers(case.release) < _numbers(able["since"]):
        return _no(f"FP8 context FMHA came to {case.architecture} with {able['since']}", able["source"])
    if not case.fp8_weights or case.kv_cache != "fp8":
        why = "FP8 context FMHA goes with FP8 weights and an FP8 cache"
        return _no(why, "TensorRT-LLM#2125, #2447; TensorRT-LLM@42a7b092 gptAttentionCommon.cpp:516-519")
    return None


def _no(reason: str, source: str) -> KernelChoice:
    return KernelChoice(kernel="refused", name="-", reason=reason, source=source)


def _computes_in_fp8(case: AttentionCase) -> bool:
    """Asked for, or switched on by the builder: a paged FP8 cache is read by the FP8 kernel only (from 0.10)."""
    return case.use_fp8_context_fmha or (case.use_paged_context_fmha and case.kv_cache == "fp8")


def _fused(case: AttentionCase, row: FmhaSupport) -> KernelChoice:
    if _computes_in_fp8(case):
        inputs, why, source = "e4m3", "FP8 context FMHA", support()["fp8_fmha"][case.architecture]["source"]
        if not case.use_fp8_context_fmha:
            why += ", switched on by the builder because the paged cache is FP8"
        wrong = support()["fp8_fmha"]["wrong_answers"]
        if _numbers(case.release) <= _numbers(wrong["until"]):
            why += f"; its answers are wrong up to release {wrong['until']} ({wrong['source']})"
    elif case.dtype == "fp16" and case.context_fmha_fp32_acc:
        inputs, why, source = "fp16_fp32", "FP16 inputs, summed in FP32", row.source
    else:
        sums = row.accumulators[case.dtype][0].upper()
        inputs, why, source = case.dtype, f"{case.dtype.upper()} inputs, summed in {sums}", row.source
        if case.context_fmha_fp32_acc:
            why += ": BF16 has no other sum, the flag changes nothing"
        elif case.fp8_weights:
            why += ": FP8 weights alone do not change it"
    layout = support()["layouts"]["paged" if case.use_paged_context_fmha else "packed"]
    name = f"fmha_v2_flash_attention_{inputs}_<q>_<kv>_S{layout}_{case.head_size}_causal{row.tail}"
    return KernelChoice(kernel="FMHA", name=f"{name}_{case.architecture}_kernel", reason=why, source=source)


def generation_kernel(case: AttentionCase) -> KernelChoice:
    """The kernel that makes each further token: XQA where heads are shared, MMHA elsewhere."""
    mmha, xqa = support()["mmha"], support()["xqa"]
    if int(case.architecture.removeprefix("sm")) < VOLTA:
        return _no("MMHA needs Volta (sm70) or later", mmha["source"])
    reasons = [
        (case.queries_per_kv == 1, "XQA is for shared heads (MQA and GQA)"),
        (not case.enable_xqa, "enable_xqa is off"),
        (case.dtype not in xqa["dtypes"], f"XQA computes in FP16 and BF16, not in {case.dtype.upper()}"),
        (case.tokens_per_block not in xqa["tokens_per_block"], "XQA reads blocks of 64 or 128 tokens"),
    ]
    against = [why for applies, why in reasons if applies]
    if against:
        if case.head_size not in mmha["head_sizes"]:
            return _no(f"MMHA has no head size {case.head_size}", mmha["head_sizes_source"])
        return KernelChoice(kernel="MMHA", name=_mmha_name(case), reason="; ".join(against), source=mmha["source"])
    return KernelChoice(
        kernel="XQA",
        name="kernel_mha",
        reason=f"{case.queries_per_kv} query heads share keys and values; {xqa['heuristic']}",
        source=xqa["source"],
    )


CPP = {"fp16": "__half", "bf16": "__nv_bfloat16", "fp32": "float", "fp8": "__nv_fp8_e4m3", "int8": "int8_t"}


def _mmha_name(case: AttentionCase) -> str:
    """Template arguments: the type of the inputs, then that of the cache (the AWS article's table)."""
    cache_type = CPP[case.dtype if case.kv_cache == "auto" else case.kv_cache]
    return f"mmha::masked_multihead_attention_kernel<{CPP[case.dtype]}, {cache_type}, ...>"


def _numbers(release: str) -> tuple[int, ...]:
    """``0.12.0`` as numbers that compare; ``ValueError`` for anything else."""
    return tuple(int(part) for part in release.split("."))
