"""Weights that no GPU holds, or few, where the text tells the model and its ranks, and perhaps no GPU."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from serving_base.facts.fit import weights_per_gpu
from serving_base.facts.gpus import GIB, gpu_names, known_gpu
from serving_base.facts.models import shape_of_size
from serving_base.facts.published import PublishedModel, published_model
from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Edit, Platform, Put, drafts, gpu_of
from trtllm_check.lint.gpu_labels import gpu_here, gpu_told
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.rules.arguments import is_checked
from trtllm_check.lint.rules.pairs import engine_world
from trtllm_check.lint.rules.served import LMI, OURS, RAY, SIZED, TENSORRT_LLM, VLLM, ServedModel, served
from trtllm_check.lint.rules.weight_bits import bits_of
from trtllm_check.lint.shell.words import Word

RULE = "weights-do-not-fit"
TP, PP = "tensor_parallel_size", "pipeline_parallel_size"
SIXTEEN_BITS = ("full_prec", "bf16", "bfloat16", "float16")
STARTS = ("vllm serve", *OURS, "LLM", "EngineArgs", "AsyncEngineArgs", RAY, LMI)
BENCH, RUNS = "trtllm-bench", ("throughput", "latency", "build")
# Bytes that GPUs have: the largest of all (GB300), what an H200 gives vLLM (0.9 of what is visible), and 80 GB.
LARGEST, H200, LARGE = 298e9, 0.9 * 150.1e9, 84.9e9
ROOMY = 65e9  # weights on a GPU of 80 GB that leave a cache
DEFAULT_SHARE = 0.9
SHARE = 0.8  # of a known GPU, for the same
# Names of weights in bits that a name does not tell, of adapters, and of what a tool has made of the weights.
OTHER_WEIGHTS = re.compile(
    r"gguf|exl\d|eetq|hqq|aqlm|mlx|[123]-?bits?|int[23]|w[23]a|lora|adapter|draft"
    r"|eagle|medusa|pruned|sparse|engine|ckpt|checkpoint|tiny|dummy|mini(?!max)",
    re.IGNORECASE,
)
METHODS = re.compile(r"(?:awq|gptq)(?:_marlin)?|fp8|bitsandbytes|mxfp4")  # whose bits are told
# Options that load something else, or less of it onto the GPU; and those that a file gives.
OTHERWISE = frozenset(
    {
        *("load_format", "cpu_offload_gb", "hf_overrides", "device", "data_parallel_size", "config"),
        *("extra_llm_api_options", "quant_config", "engine_dir", "nnodes", "headless", "node_rank"),
    }
)
# The same, set on an object of Python later, to what the text does not tell.
SET_LATER = re.compile(
    r"\.(?:tensor_parallel_size|pipeline_parallel_size|quantization|load_format|cpu_offload_gb)\s*=|\bsetattr\("
)
# Hardware with more memory, or with none of its own.
GLUED = re.compile(r"--[\w-]+ ")
OTHER_HARDWARE = re.compile(
    r"\b(?:G?B[23]00|GH200|MI\d{3}\w*|Gaudi\d?|HPU|TPU|v\d[ep]-\d+|neuron\w*|inf2|trn\d|ascend|NPU|ROCm|XPU|Xeon"
    r"|CPU[- ]only|on (?:a )?CPU|Blackwell|MIG(?! M\.))\b|vllm[-/]cpu|TARGET_DEVICE|\b(?:1[89]\d|2\d\d) ?GB\b",
    re.IGNORECASE,
)


class _Start(NamedTuple):
    """Weights of one start. ``need``: bytes on the fullest GPU; ``sure``: the model is the published one itself.

    ``bits``: of one weight; ``share``: of the GPU, which the engine takes.
    """

    tool: str
    model: str
    total: float
    ranks: int
    need: float
    ranks_of: tuple[int, ...]  # that share the heads
    flag: str
    sure: bool
    bits: int = 16
    share: float = 1


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    starts = [*_servers(document), *(() if platform.gpu else _builds(document, platform))]
    have = gpu_memory(document, platform) if starts else ("", 0)
    found = [
        draft for start in starts for draft in _said(start, platform, memory_here(document, start[3], start[1]) or have)
    ]
    if found and not any(OTHER_HARDWARE.search(text) for _, text in document.texts):
        yield from found


def gpu_memory(document: Document, platform: Platform) -> tuple[str, float]:
    """Name and bytes of the GPU that is asked for or told; "" and 0 for none."""
    gpu = gpu_of(platform)
    if gpu is not None:
        return platform.gpu, gpu.visible_bytes
    machine = gpu_told(document)
    if machine is not None and machine.gpu:
        return machine.gpu, known_gpu(gpu_names()[machine.gpu]).visible_bytes
    return (machine.name, machine.memory_gib * GIB) if machine is not None else ("", 0)


def memory_here(document: Document, file: str, place: Word) -> tuple[str, float] | None:
    """The same for the GPU of one piece of a page; None where it tells none."""
    machine = gpu_here(document, file, place.line)
    if machine is None:
        return None
    if machine.gpu:
        return machine.gpu, known_gpu(gpu_names()[machine.gpu]).visible_bytes
    return machine.name, machine.memory_gib * GIB


_Found = tuple[_Start, Word, Invocation | None, str]


def _servers(document: Document) -> Iterator[_Found]:
    """What vLLM, trtllm-serve, ``LLM(...)`` and LMI load, of the hub or a folder called as a model of it."""
    later = {file for file, text in document.texts if SET_LATER.search(text)}
    for one in served(document):
        if one.invocation is None and one.file in later:
            continue
        model = published_model(one.weights) if one.weights else None
        if one.invocation is not None and any(GLUED.match(word.text) for word in one.invocation.arguments):
            continue  # its ranks may stand in a word that no option is
        if model is None or not model.billions or OTHER_WEIGHTS.search(one.weights) or _is_told_elsewhere(one):
            continue
        if not _is_that_model(one.weights, sized=bool(SIZED.search(one.weights)), official=model.official):
            continue
        dtype = one.options.get("dtype")
        bits = bits_of(one, model)
        if bits == 16 and dtype is not None and dtype.text in ("float32", "float"):
            bits = 32
        total = model.billions * 1e9 * bits / 8
        flag = one.flags.get(TP) or ("--tp_size" if one.tool in OURS else "--tensor-parallel-size")
        flag = flag if one.invocation or TP in one.flags else TP
        tool = "vLLM" if one.engine == VLLM and one.tool.endswith("EngineArgs") else one.tool
        known = _Start(
            tool,
            one.weights,
            total,
            one.ranks,
            total / one.ranks,
            _shared(model),
            flag,
            model.official,
            bits,
            _share(one),
        )
        yield known, one.place(TP), one.invocation, one.file


def _is_that_model(name: str, *, sized: bool, official: bool) -> bool:
    """False for a folder called like a model whose name tells no size: it may hold any of the family."""
    return sized or official or (name.count("/") == 1 and not name.startswith((".", "/", "~")))


def _share(one: ServedModel) -> float:
    """What vLLM takes of a GPU, for the weights and the cache: 0.9 where nothing is said."""
    if one.engine != VLLM or one.tool == LMI:
        return 1
    word = one.options.get("gpu_memory_utilization")
    try:
        share = float(word.text) if word is not None else DEFAULT_SHARE
    except ValueError:
        return 1
    return share if 0 < share <= 1 else 1


def _is_told_elsewhere(one: ServedModel) -> bool:
    """True where the text does not tell the ranks or the format, or this start loads nothing."""
    if one.engine not in (VLLM, TENSORRT_LLM) or one.tool not in STARTS:
        return True
    if one.tool == BENCH and not (one.invocation and any(word.text in RUNS for word in one.invocation.arguments)):
        return True
    if one.tool == LMI and one.number(TP) is None:
        return True  # all GPUs of the machine
    unread = any(name in one.options and one.number(name) is None for name in (TP, PP))
    method = one.options.get("quantization")
    unread = unread or (method is not None and not METHODS.fullmatch(method.text.lower()))
    in_one_word = any(" " in name for name in one.options)  # --tensor-parallel-size 2 as one item of a list
    return one.is_open or unread or in_one_word or not OTHERWISE.isdisjoint(one.options)


def _shared(model: PublishedModel) -> tuple[int, ...]:
    """The powers of two among the numbers of ranks that share the heads."""
    return tuple(ranks for ranks in model.ranks if ranks & (ranks - 1) == 0)


def _builds(document: Document, platform: Platform) -> Iterator[_Found]:
    """Engines of a Llama-3 that convert_checkpoint.py leaves in 16 bits."""
    for build in document.of("trtllm-build"):
        facts = document.facts_of(build)
        shape, world = shape_of_size(facts.model), engine_world(facts, platform.release)
        if shape is None or facts.weights not in SIXTEEN_BITS or not world or build.has("--weight_streaming"):
            continue
        if is_checked(build, platform.release):
            need = weights_per_gpu(shape, facts.weights, facts.tp or 1, facts.pp or 1)
            total = shape.weight_bytes(facts.weights)
            known = _Start(build.tool, facts.model, total, world, need, (2, 4, 8, 16), "--tp_size", True)
            yield known, build.path, build, ""


def _form(need: float, have: float) -> str:
    """The form of the rule for weights on a GPU that has ``have`` bytes, 0 for one that nobody tells; "" for none."""
    if have:
        return "served" if need > have else ""
    return next(
        (form for form, least in (("no GPU", LARGEST), ("few GPUs", H200), ("large GPU", LARGE)) if need > least), ""
    )


def _said(found: _Found, platform: Platform, gpu: tuple[str, float]) -> Iterator[Draft]:
    start, place, invocation, file = found
    name, have = gpu
    form = _form(start.need, have) or ("share" if have and start.need > have * start.share else "")
    if not form:
        return
    roomy = SHARE * have if name else ROOMY
    least = next((ranks for ranks in start.ranks_of if start.total / ranks <= roomy and ranks > start.ranks), 16)
    edits: tuple[Edit, ...] = ()
    if (
        invocation is not None
        and invocation.tool != "trtllm-build"
        and start.flag.startswith("-")
        and least <= (platform.gpus or least)
    ):
        edits = (Put(start.flag, str(least)),)
    known = {
        "tool": start.tool,
        "model": start.model,
        "total": start.total / 1e9,
        "need": start.need / 1e9,
        "have": have / 1e9,
        "gpu": name,
        "ranks": start.ranks,
        "bits": start.bits,
        "share": start.share,
        "taken": have * start.share / 1e9,
        "flag": start.flag,
        "least": least,
    }
    for draft in drafts(
        platform.release.name, RULE, place, form=form, edits=edits, invocation=invocation, file=file, **known
    ):
        certain = start.sure or draft.severity != "error"
        yield draft if certain else draft._replace(severity="warning")
