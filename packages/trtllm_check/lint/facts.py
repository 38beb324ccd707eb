"""What the commands of a text say about the model, its checkpoint and its engine."""

import json
import posixpath
import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from trtllm_check.lint.invocations import Invocation

QUANTIZES = ("quantize.py", "convert_checkpoint.py", "hf_ptq.py")
STARTS = ("run.py", "summarize.py", "launch_triton_server.py")
# Where a tool writes to (and its default, the same in every release), and what it reads.
OUTPUT = {
    "quantize.py": ("--output_dir", "exported_model"),
    "convert_checkpoint.py": ("--output_dir", "tllm_checkpoint"),
    "hf_ptq.py": ("--export_path", "exported_model"),
    "trtllm-build": ("--output_dir", "engine_output"),
}
# The same, and the ranks, by the names that other models' scripts have: Gemma's and RecurrentGemma's.
OTHER_OUTPUTS = {"convert_checkpoint.py": ("--output-model-dir",)}
RANKS = ("--tp_size", "--inference_tensor_parallel", "--world-size", "--world_size")
INPUT = {
    "trtllm-build": ("--checkpoint_dir",),
    "run.py": ("--engine_dir",),
    "summarize.py": ("--engine_dir",),
    "mmlu.py": ("--engine_dir",),
    "gptManagerBenchmark": ("--engine_dir",),
    "gptSessionBenchmark": ("--engine_dir",),
    "fill_template.py": ("engine_dir",),
}
SUBSTITUTION = re.compile(r"(?:^|,)(engine_dir|gpt_model_path):([^,]+)")
MODEL = re.compile(r"llama[-_ ]?v?(?P<version>[23](?:[._-][123](?=[-_ ]\d+b))?)[-_ ]?(?P<size>\d+)b", re.IGNORECASE)
# quant_algo of a checkpoint's config.json -> qformat
ALGORITHMS = {
    "FP8": "fp8",
    "W8A8_SQ_PER_CHANNEL": "int8_sq",
    "W8A8_SQ_PER_CHANNEL_PER_TOKEN_PLUGIN": "int8_sq",
    "W4A16_AWQ": "int4_awq",
    "W4A8_AWQ": "w4a8_awq",
    "W8A16": "int8_wo",
    "W4A16": "int4_wo",
    "W4A16_GPTQ": "int4_gptq",
    "NVFP4": "nvfp4",
    "FP8_PER_CHANNEL_PER_TOKEN": "fp8_pc_pt",
}


class DocumentFacts(NamedTuple):
    """What the commands and files say; "" or None where they do not, or contradict each other.

    ``weights``: a qformat (fp8, int8_sq, ..., full_prec); ``kv_cache``: fp8, int8 or auto; ``model``: llama-3-70b,
    llama-3.1-8b ...; ``world``: the ranks that something is started on.
    """

    weights: str = ""
    kv_cache: str = ""
    tp: int | None = None
    pp: int | None = None
    world: int | None = None
    model: str = ""


NOTHING_KNOWN = DocumentFacts()


@lru_cache(maxsize=10_000)
def model_name(text: str) -> str:
    """``llama-3.1-70b`` for any spelling of it inside ``text``, "" for none."""
    match = MODEL.search(text)
    return f"llama-{re.sub('[_-]', '.', match['version'])}-{match['size']}b" if match else ""


class Origins:
    """Who writes what, of all invocations of a text: looked up once, for texts of thousands of commands.

    ``all_stated``: what each of ``all_invocations`` says by itself; ``others``: what files say.
    """

    def __init__(
        self,
        all_invocations: Sequence[Invocation],
        all_stated: Sequence[DocumentFacts],
        others: Iterable[DocumentFacts],
    ) -> None:
        self.invocations = all_invocations
        self.others = tuple(others)
        self.positions = {id(one): number for number, one in enumerate(all_invocations)}
        self.paths = {id(one.path): number for number, one in enumerate(self.invocations)}
        self.writers: dict[str, list[int]] = {}
        self.all_stated = all_stated
        self.said: dict[str, dict[DocumentFacts, None]] = {}  # tool -> the different things that its uses say
        for number, (one, said) in enumerate(zip(all_invocations, all_stated, strict=True)):
            self.said.setdefault(one.tool, {})[said] = None
            folder = output(one)
            if folder and folder not in map(_folder, _inputs(one)):
                self.writers.setdefault(folder, []).append(number)

    def facts_of(self, invocation: Invocation) -> DocumentFacts:
        """What holds for the checkpoint or engine of ``invocation``: what it says itself, and what made its input.

        Where no command writes the folder that it reads, whatever all commands agree on.
        """
        chain = [invocation]
        while (maker := self.maker(chain[-1])) and not any(maker is one for one in chain):
            chain.append(maker)
        says = [self._stated(one) for one in chain]
        first = chain[-1]
        if first.tool not in QUANTIZES:
            later = QUANTIZES if first.tool == "trtllm-build" else (*QUANTIZES, "trtllm-build")
            says += [said for tool in later for said in self.said.get(tool, ())]
            says += self.others
        return agreed(says)

    def _stated(self, invocation: Invocation) -> DocumentFacts:
        number = self.positions.get(id(invocation))
        return stated(invocation) if number is None else self.all_stated[number]

    def maker(self, reader: Invocation) -> Invocation | None:
        """The last command before ``reader`` that writes the folder it reads; after it if none is before."""
        own = self.paths.get(id(reader.path), len(self.invocations))  # also of one with other arguments
        before = after = -1
        for folder in {_folder(text) for text in _inputs(reader)}:
            numbers = self.writers.get(folder, [])
            split = bisect_left(numbers, own)
            before = max(before, numbers[split - 1] if split else -1)
            later = [number for number in numbers[-1:] if number > own]
            after = max(after, later[0] if later else -1)
        found = before if before >= 0 else after
        return self.invocations[found] if found >= 0 else None


def agreed(facts: Iterable[DocumentFacts]) -> DocumentFacts:
    """What nobody contradicts."""
    merged: dict[str, Any] = {}
    facts = list(facts)
    for name, column in zip(DocumentFacts._fields, zip(*facts, strict=True), strict=False):
        values = [value for value in column if value not in ("", None)]
        if len(set(values)) == 1:
            merged[name] = values[0]
    return DocumentFacts(**merged)


def stated(invocation: Invocation) -> DocumentFacts:
    """What one command says by itself, its defaults included where every release has the same."""
    says: dict[str, Any] = {"model": _model(invocation)}
    tool = invocation.tool
    if tool in QUANTIZES:
        says |= _precision(invocation)
        says["tp"] = _number(invocation, 1, *RANKS)
        says["pp"] = _number(invocation, 1, "--pp_size", "--inference_pipeline_parallel")
    elif tool == "trtllm-build":
        says["tp"] = _number(invocation, None, "--tp_size")
        says["pp"] = _number(invocation, None, "--pp_size")
    if tool == "launch_triton_server.py":
        says["world"] = _number(invocation, 1, "--world_size")
    elif tool in STARTS:
        says["world"] = invocation.ranks or 1
    return DocumentFacts(**says)


def config_facts(text: str) -> DocumentFacts:
    """What a config.json says: of a checkpoint, of an engine, or of a model of the hub."""
    try:
        config = json.loads(text)
    except (ValueError, RecursionError):
        return DocumentFacts()
    config = _mapping(config)
    checkpoint = _mapping(config.get("pretrained_config")) or config
    mapping = _mapping(checkpoint.get("mapping"))
    quantization = _mapping(checkpoint.get("quantization"))
    says: dict[str, Any] = {}
    if "quantization" in checkpoint:
        algorithm, cache = quantization.get("quant_algo"), quantization.get("kv_cache_quant_algo")
        says["weights"] = ALGORITHMS.get(str(algorithm), "") if algorithm else "full_prec"
        says["kv_cache"] = str(cache).lower() if cache else "auto"
    says["tp"], says["pp"] = (_count(mapping.get(key)) for key in ("tp_size", "pp_size"))
    says["model"] = model_name(str(config.get("_name_or_path", "")))
    return DocumentFacts(**says)


def _precision(invocation: Invocation) -> dict[str, str]:
    """What is given; of a command with a variable among its words, what is left out is not known."""
    says = _given_precision(invocation)
    is_open = any("$" in word.text for one in invocation.given for word in one.values[1 if one.flag else 0 :])
    return {name: value for name, value in says.items() if not (is_open and value in ("full_prec", "auto"))}


def _given_precision(invocation: Invocation) -> dict[str, str]:
    if invocation.tool == "quantize.py":
        qformat = invocation.value("--qformat")
        return {
            "weights": "full_prec" if qformat is None else qformat,
            "kv_cache": invocation.value("--kv_cache_dtype") or "auto",
        }
    if invocation.tool == "hf_ptq.py":
        cache = invocation.value("--kv_cache_qformat")
        return {
            "weights": invocation.value("--qformat", "--quant") or "fp8",
            "kv_cache": "auto" if cache == "none" else "fp8" if cache is None or cache.startswith("fp8") else cache,
        }
    cache = "int8" if invocation.has("--int8_kv_cache") else "fp8" if invocation.has("--fp8_kv_cache") else "auto"
    return {"weights": _converted(invocation), "kv_cache": cache}


def _converted(invocation: Invocation) -> str:
    """The format that convert_checkpoint.py writes."""
    if invocation.has("--use_fp8", "--enable_fp8"):
        return "fp8"
    if invocation.has("--use_fp8_rowwise", "--use_meta_fp8_rowwise_recipe"):
        return "fp8_rowwise"
    if invocation.has("--use_nvfp4"):
        return "nvfp4"
    if invocation.has("--smoothquant", "-sq"):
        return "int8_sq"
    if invocation.has("--use_weight_only"):
        precision = invocation.value("--weight_only_precision") or "int8"
        return precision if "_" in precision else f"{precision}_wo"
    return "full_prec"


def _inputs(invocation: Invocation) -> list[str]:
    if invocation.tool == "fill_template.py":
        return [match[2] for word in invocation.arguments for match in SUBSTITUTION.finditer(word.text)]
    flags = INPUT.get(invocation.tool, ())
    return [value for value in [invocation.value(*flags)] if value] if flags else []


def output(invocation: Invocation) -> str:
    """The folder that a command writes, as :func:`posixpath.normpath` has it; "" for one that writes none."""
    if invocation.tool not in OUTPUT:
        return ""
    return _folder(written_folder(invocation) or OUTPUT[invocation.tool][1])


def written_folder(invocation: Invocation) -> str | None:
    """The folder that a command of :data:`OUTPUT` says it writes to."""
    return invocation.value(OUTPUT[invocation.tool][0], *OTHER_OUTPUTS.get(invocation.tool, ()))


def _folder(path: str) -> str:
    return posixpath.normpath(path) if path else ""


def _model(invocation: Invocation) -> str:
    if invocation.tool in ("docker", "mpirun", "curl"):
        return ""
    names = {name for word in invocation.arguments if (name := model_name(word.text))}
    return names.pop() if len(names) == 1 else ""


def _number(invocation: Invocation, default: int | None, *flags: str) -> int | None:
    value = invocation.value(*flags)
    return (
        default if value is None else int(value) if value.isascii() and value.isdecimal() and len(value) < 9 else None
    )


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
