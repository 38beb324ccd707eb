"""Which attention kernel TensorRT-LLM runs for a GPU, a head size, a data type, a release and the build's flags.

A prompt attends in the *context phase* and every further token in the *generation phase*; each phase has kernels of its
own. What ``support.yml`` has not read is answered with :data:`NOT_READ`, never with a guess.
"""

from collections.abc import Callable
from typing import Literal

from pydantic import Field, field_validator

from serving_base.errors import UsageError
from serving_base.facts.gpus import find_gpu
from serving_base.record import Record
from trtllm_check.attention.facts import (
    FmhaRow,
    XqaRow,
    fmha_rows,
    of_release,
    read_at,
    source_of,
    support,
    value_of,
    xqa_rows,
)
from trtllm_check.releases.load import in_range

NOT_READ = "not read"
AMPERE = 80
PAGED_READS_FP8_SINCE = "0.10.0"
FIRST_RELEASE = "0.5.0"
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
        if not in_range(value, FIRST_RELEASE, LAST_RELEASE):
            raise ValueError(
                f"these choices were read for releases from {FIRST_RELEASE} to {LAST_RELEASE}; "
                f"ask the rulebook about {value}"
            )
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

    @property
    def inputs(self) -> str:
        """What the prompt's attention multiplies. FP8: asked for, or switched on by the builder.

        From 0.10 on a paged FP8 cache is read by the FP8 kernel only.
        """
        paged = self.use_paged_context_fmha and self.kv_cache == "fp8"
        return "fp8" if self.use_fp8_context_fmha or paged else self.dtype

    @property
    def layout(self) -> str:
        return "paged" if self.use_paged_context_fmha else "packed"


class KernelChoice(Record):
    """The answer: the kernel, the shape of its name where that was read, the reason, and where the reason was read."""

    kernel: Kernel
    name: str = NOT_READ
    reason: str
    source: str

    def row(self) -> dict[str, str]:
        """For a table."""
        return {"kernel": self.kernel, "name": self.name, "reason": self.reason}


def context_kernel(case: AttentionCase) -> KernelChoice:
    """The kernel that reads prompts: FMHA in 16 bits or FP8, or what it falls back to."""
    return _settled(_context_kernel, case)


def generation_kernel(case: AttentionCase) -> KernelChoice:
    """The kernel that makes each further token: XQA where it serves the model, MMHA elsewhere."""
    return _settled(_generation_kernel, case)


def _settled(choose: Callable[[AttentionCase], KernelChoice], case: AttentionCase) -> KernelChoice:
    """What ``choose`` says of the release; in a gap of the readings, what it says of both ends, if that is the same."""
    found = [choose(case.model_copy(update={"release": release})) for release in read_at(case.release)]
    if len(found) == 1:
        return found[0]
    ends = " and ".join(read_at(case.release))
    if len({(one.kernel, one.name) for one in found}) > 1:
        why = f"{ends} differ, and {case.release} itself was not read"
        return KernelChoice(kernel="not read", reason=why, source=found[0].source)
    why = f"{found[0].reason}; read at {ends}, which agree, and not at {case.release} itself"
    return found[0].model_copy(update={"reason": why})


def _context_kernel(case: AttentionCase) -> KernelChoice:
    if not case.context_fmha:
        return _unfused("context_fmha is off", support()["unfused"]["source"])
    source, architecture = source_of(case.release, "fmha"), case.architecture
    here = [row for row in of_release(fmha_rows(), case.release) if architecture in row.architectures]
    if not here:
        why = f"the tables of {case.release} have no {architecture}"
        return KernelChoice(kernel="not read", reason=why, source=source)
    refusal = _old_bf16(case) or _refused(case)
    if refusal:
        return refusal
    rows = [row for row in here if case.inputs in row.sums]
    if not rows:
        return _unfused(f"FMHA on {architecture} has no {case.inputs.upper()}", source)
    row = rows[0]
    if row.unsettled.get(case.head_size) == case.release:
        why = f"the builds around {case.release} differ on head size {case.head_size}"
        return KernelChoice(kernel="not read", reason=why, source=source)
    if case.head_size not in row.head_sizes:
        return _unfused(f"FMHA on {architecture} has no head size {case.head_size} in {case.release}", source)
    if case.layout not in row.layouts:
        return _no(f"FMHA on {architecture} reads no paged cache in {case.release}", source)
    return _fused(case, row, row.source or source)


def _unfused(why: str, source: str) -> KernelChoice:
    return KernelChoice(kernel="unfused MHA", reason=f"{why}: {support()['unfused']['reason']}", source=source)


def _old_bf16(case: AttentionCase) -> KernelChoice | None:
    if case.dtype == "bf16" and int(case.architecture.removeprefix("sm")) < AMPERE:
        return _no("GPUs before Ampere (sm80) have no BF16", source_of(case.release, "falls_back"))
    return None


def _refused(case: AttentionCase) -> KernelChoice | None:
    """What the build or the run of releases up to 0.18 refuses, or answers wrongly."""
    if case.use_paged_context_fmha and case.kv_cache == "int8":
        return _no("paged context FMHA does not read an INT8 cache", "TensorRT-LLM@42a7b092 builder.py:1113-1115")
    if case.use_paged_context_fmha and case.kv_cache == "fp8":
        if not in_range(case.release, since=PAGED_READS_FP8_SINCE):
            why = f"before {PAGED_READS_FP8_SINCE} paged context FMHA reads a 16-bit cache only"
            return _no(why, "TensorRT-LLM@250d9c29 builder.py:659-663")
        if not case.fp8_weights:
            why = "paged context FMHA over an FP8 cache needs FP8 weights"
            return _no(why, "TensorRT-LLM@42a7b092 builder.py:1101-1106")
    if case.inputs != "fp8":
        return None
    able = support()["fp8_fmha"].get(case.architecture)
    if able is None:
        return _no(f"{case.architecture} has no FP8 context FMHA", support()["fp8_fmha"]["sm89"]["source"])
    if not in_range(case.release, since=able["since"]):
        return _no(f"FP8 context FMHA came to {case.architecture} with {able['since']}", able["source"])
    if not case.fp8_weights or case.kv_cache != "fp8":
        why = "FP8 context FMHA goes with FP8 weights and an FP8 cache"
        return _no(why, "TensorRT-LLM#2125, #2447; TensorRT-LLM@42a7b092 gptAttentionCommon.cpp:516-519")
    return None


def _no(reason: str, source: str) -> KernelChoice:
    return KernelChoice(kernel="refused", name="-", reason=reason, source=source)


def _fused(case: AttentionCase, row: FmhaRow, source: str) -> KernelChoice:
    inputs = case.inputs
    if inputs == "fp8":
        why, source = "FP8 context FMHA", support()["fp8_fmha"][case.architecture]["source"]
        if not case.use_fp8_context_fmha:
            why += ", switched on by the builder because the paged cache is FP8"
        wrong = support()["fp8_fmha"]["wrong_answers"]
        if in_range(case.release, until=wrong["until"]):
            why += f"; its answers are wrong up to release {wrong['until']} ({wrong['source']})"
    elif inputs == "fp16" and case.context_fmha_fp32_acc and "fp32" in row.sums["fp16"]:
        inputs, why = "fp16 summed in fp32", "FP16 inputs, summed in FP32"
    else:
        sums = row.sums[inputs][0].upper()
        why = f"{inputs.upper()} inputs, summed in {sums}"
        if case.context_fmha_fp32_acc:
            why += f": {inputs.upper()} has no other sum here, the flag changes nothing"
        elif case.fp8_weights:
            why += ": FP8 weights alone do not change it"
    return KernelChoice(kernel="FMHA", name=_fmha_name(case, inputs), reason=why, source=source)


def _fmha_name(case: AttentionCase, inputs: str) -> str:
    """As the kernels' table has it; ``<q>_<kv>`` where the library picks the tile."""
    names, architecture, release = support()["names"], case.architecture, case.release
    hopper = architecture == "sm90"
    written = value_of(names["inputs"], release) | (
        {} if hopper else value_of(names["inputs_of_others"], release) or {}
    )
    tiles = names["tiles_of_128_on_sm90"] if hopper and case.head_size == 128 else []
    known = {kind: tile for span in tiles if in_range(release, span["since"], span.get("until", ""))
             for kind, tile in span["is"].items()}  # fmt: skip
    tile = known.get(inputs.split()[0], "<q>_<kv>")
    layout = value_of(names["layouts"], release)[case.layout].format(head_size=case.head_size)
    end = names["ends"].get(architecture, names["ends"]["others"]).format(architecture=architecture)
    return f"fmha_v2_flash_attention_{written[inputs]}_{tile}_{layout}_causal{end}"


def _generation_kernel(case: AttentionCase) -> KernelChoice:
    mmha, number = support()["mmha"], int(case.architecture.removeprefix("sm"))
    if number < int(mmha["since_architecture"].removeprefix("sm")):
        return _no("MMHA needs Volta (sm70) or later", mmha["source"])
    has_size = case.head_size in value_of(mmha["head_sizes"], case.release)
    if not has_size and in_range(case.release, since=mmha["refused_at_start_since"]):
        return _no(f"MMHA has no head size {case.head_size}", mmha["source"])
    rows = of_release(xqa_rows(), case.release)
    against = _against_xqa(case, rows[0]) if rows else ["XQA came with 0.7.0"]
    if not against:
        heuristic = support()["xqa_heuristic"]
        why = f"{case.queries_per_kv} query heads share keys and values; {heuristic['says']}"
        return KernelChoice(kernel="XQA", name="kernel_mha", reason=why, source=source_of(case.release, "xqa"))
    if not has_size:
        return _no(f"MMHA has no head size {case.head_size}", mmha["source"])
    source = source_of(case.release, "xqa")
    return _old_bf16(case) or KernelChoice(
        kernel="MMHA", name=_mmha_name(case), reason="; ".join(against), source=source
    )


def _against_xqa(case: AttentionCase, row: XqaRow) -> list[str]:
    """Why XQA does not run; empty if nothing of the facts speaks against it."""
    cache = case.dtype if case.kv_cache == "auto" else case.kv_cache
    reads = row.kv_caches.get(cache, ())
    groups = " to ".join(dict.fromkeys((str(row.queries_per_kv[0]), str(row.queries_per_kv[-1]))))
    blocks = f"blocks of {', '.join(map(str, row.tokens_per_block))} tokens" if row.tokens_per_block else row.only
    share = "XQA is for shared heads (MQA and GQA)" if case.queries_per_kv == 1 else ""
    reasons = [
        (not case.enable_xqa, "enable_xqa is off"),
        (case.architecture not in row.architectures, f"XQA has no {case.architecture}"),
        (case.dtype not in row.dtypes, f"XQA computes in FP16 and BF16, not in {case.dtype.upper()}"),
        (reads != "all" and case.architecture not in reads, f"XQA on {case.architecture} reads no {cache} cache"),
        (case.head_size not in row.head_sizes, f"XQA has no head size {case.head_size} in {case.release}"),
        (
            case.queries_per_kv not in row.queries_per_kv,
            share or f"XQA of {case.release} is for groups of {groups} queries, not of {case.queries_per_kv}",
        ),
        (case.tokens_per_block not in row.tokens_per_block, f"XQA of {case.release} reads {blocks}"),
    ]
    return [why for applies, why in reasons if applies]


CPP = {"fp16": "__half", "bf16": "__nv_bfloat16", "fp32": "float", "fp8": "__nv_fp8_e4m3", "int8": "int8_t"}


def _mmha_name(case: AttentionCase) -> str:
    """Template arguments: the type of the inputs, then that of the cache (the AWS article's table)."""
    cache_type = CPP[case.dtype if case.kv_cache == "auto" else case.kv_cache]
    return f"mmha::masked_multihead_attention_kernel<{CPP[case.dtype]}, {cache_type}, ...>"
