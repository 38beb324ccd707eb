"""Values of vLLM's options that it refuses, alone or together, wherever they are written: command, Python or LMI."""

import json
import re
from collections.abc import Iterator
from typing import Any

from packaging.version import Version

from serving_base.facts.published import published_model
from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Edit, Platform, Put, drafts, rule_data
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.rules.served import LMI, VLLM, ServedModel, served
from trtllm_check.lint.rules.vllm_table import release_for
from trtllm_check.lint.shell.words import Word
from trtllm_check.releases.vllm import VllmRelease, vllm_facts

FAMILY = "vllm_values"
RULE = "vllm-value"
NUMBER = re.compile(r"\d+(?:\.\d+)?%?|\.\d+%?")
LIMITED = ("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "hf-overrides", "hf_overrides", "rope-scaling", "rope_scaling", "yarn")
CHUNKS_BY_DEFAULT = "0.8.0"  # from this version on prompts are cut into chunks where nothing is said
NO_EQUALS = re.compile(r"[\w.-]+:[\w./~-]+")  # a name, and a path behind a colon
FP4_MODEL = re.compile(r"fp4", re.IGNORECASE)
OF_THE_CHECKPOINT = ("fp4", "nvfp4")  # ModelOptNvFp4Config.override_quantization_method
# What brings adapters to a server, at its start or later; and what makes answers that are no texts.
ADAPTERS = re.compile(
    r"lora[-_]modules|RUNTIME_LORA_UPDATING|load_lora_adapter|LORA_RESOLVER|lora[-_]?(?:adapters?|repos?|path|dir)\b|adapter_config"
    r"|VLLM_PLUGINS|default[-_]mm[-_]loras|LoRARequest|kind:[ ]*(?:Lora|Model)Adapter",
    re.IGNORECASE,
)
REMOTE_ADAPTER = re.compile(r"(?:=|\"path\":[ ]*\")(?P<path>(?:s3|gs|gcs|az|abfss?|https?|oci|pvc|minio)://[^\"\s,}]+)")
NO_TEXTS = frozenset({"tokens_only", "task", "runner", "convert", "tokenizer", "model_impl"})
NO_TEXT = re.compile(r"prithvi|terratorch|embed|rerank|reward|classif", re.IGNORECASE)
FP8_MODEL = re.compile(r"[-_]fp8(?:[-_]|$)", re.IGNORECASE)


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    whole = "\n".join(text for _, text in document.texts)
    for one in served(document):
        if one.engine != VLLM or (one.invocation is not None and one.invocation.has("--omni")):
            continue  # vllm-omni has options and values of its own
        yield from _names(one, release_for(document, one.invocation), release)
        yield from _share(one, release)
        yield from _context(one, whole, release)
        yield from _tokens(one, release_for(document, one.invocation), release)
        yield from _together(one, release)
        yield from _without(one, whole, release_for(document, one.invocation), release)
        yield from _speculative(one, release)
        yield from _graphs(one, release)
        yield from _cache_of_fp8(one, release)


def _cache_of_fp8(one: ServedModel, release: str) -> Iterator[Draft]:
    """A cache in E5M2 over a checkpoint in FP8, which its name or its quantization tells."""
    word = one.options.get("kv_cache_dtype")
    method = one.options["quantization"].text if "quantization" in one.options else ""
    is_fp8 = bool(FP8_MODEL.search(one.weights)) or method in ("fp8", "modelopt")
    if word is not None and word.text == "fp8_e5m2" and is_fp8:
        yield from _say(one, "kv_cache_dtype", "E5M2", release, edits=(Put(one.flag("kv_cache_dtype"), "fp8"),))


def _say(
    one: ServedModel,
    option: str,
    form: str,
    release: str,
    *,
    place: Word | None = None,
    edits: tuple[Edit, ...] = (),
    **known: Any,
) -> Iterator[Draft]:
    word = place or one.place(option)
    known = {"tool": one.tool, "flag": one.flag(option), "value": word.text, **known}
    if not one.flag(option).startswith("-") or one.invocation is None:
        edits = ()
    invocation = one.invocation
    yield from drafts(release, RULE, word, form=form, edits=edits, invocation=invocation, file=one.file, **known)


def _names(one: ServedModel, told: VllmRelease | None, release: str) -> Iterator[Draft]:
    """A value that is none of the option's names; the LMI container has names of its own for some."""
    if one.tool == LMI:
        return
    for option, wrong in rule_data(FAMILY)["wrong"].items():
        word = one.options.get(option)
        instead = {str(name): meant for name, meant in wrong.items()}.get(word.text.lower()) if word else None
        if instead and not (option == "quantization" and word is not None and _is_overruled(word.text, one.weights)):
            edits: tuple[Edit, ...] = () if " " in instead else (Put(one.flag(option), instead),)
            yield from _say(one, option, "name", release, edits=edits, instead=instead)
    word = one.options.get("dtype")
    method = one.options["quantization"].text if "quantization" in one.options else ""
    if word is not None and word.text == "bfloat16" and _takes_half_only(method, told):
        yield from _say(one, "dtype", "half only", release, edits=(Put(one.flag("dtype"), "half"),), method=method)


def _takes_half_only(method: str, told: VllmRelease | None) -> bool:
    """True for a method whose kernels compute in half precision alone in the release that the text tells."""
    until = rule_data(FAMILY)["half_only"].get(method)
    return bool(until and told is not None and Version(told.written) < Version(until))


def _is_overruled(method: str, model: str) -> bool:
    """True where the checkpoint may say the method: one in NVFP4 does, whatever the option says of FP4."""
    is_published = model.count("/") == 1 and not model.startswith(("/", "."))
    return method.lower() in OF_THE_CHECKPOINT and (not is_published or FP4_MODEL.search(model) is not None)


def _share(one: ServedModel, release: str) -> Iterator[Draft]:
    """gpu_memory_utilization is a share."""
    word = one.options.get("gpu_memory_utilization")
    of_an_image = one.tool == LMI and "rolling_batch" not in one.options  # whose facts judge the value
    if word is None or of_an_image or not NUMBER.fullmatch(word.text):
        return
    share = float(word.text.rstrip("%"))
    if not word.text.endswith("%") and 0 < share <= 1:
        return
    meant = f"{share / 100:.2f}".rstrip("0") if 2 <= share < 100 else "0.9"
    form = "no number" if word.text.endswith("%") else "share" if share > 1 else "nothing"
    edits = (Put(one.flag("gpu_memory_utilization"), meant),)
    yield from _say(one, "gpu_memory_utilization", form, release, edits=edits, instead=meant)


def _context(one: ServedModel, whole: str, release: str) -> Iterator[Draft]:
    """A max_model_len beyond what the model's configuration holds."""
    model = published_model(one.weights) if one.weights else None
    wanted = one.number("max_model_len")
    if model is None or not model.context or wanted is None or wanted <= model.context:
        return
    if any(word in whole for word in LIMITED):
        return
    flag = one.flag("max_model_len")
    yield from _say(
        one,
        "max_model_len",
        "context" if model.official and model.context_read else "context, perhaps",
        release,
        edits=(Put(flag, str(model.context)),),
        model=one.weights,
        most=model.context,
        where=model.source,
    )


def _tokens(one: ServedModel, told: VllmRelease | None, release: str) -> Iterator[Draft]:
    """max_num_batched_tokens below what one sequence, or one token of each, takes."""
    batch = one.number("max_num_batched_tokens")
    if batch is None:
        return
    sequences, longest = one.number("max_num_seqs"), one.number("max_model_len")
    if sequences is not None and sequences > batch:
        yield from _say(one, "max_num_batched_tokens", "sequences", release, sequences=sequences)
    chunked = one.is_on("enable_chunked_prefill")
    off = one.is_on("no_enable_chunked_prefill") or ("enable_chunked_prefill" in one.options and not chunked)
    by_default = vllm_facts().release(CHUNKS_BY_DEFAULT)
    earlier = told is not None and by_default is not None and told.place < by_default.place and not chunked
    if longest is not None and longest > batch and (off or earlier):
        yield from _say(one, "max_num_batched_tokens", "chunks", release, longest=longest)


def _together(one: ServedModel, release: str) -> Iterator[Draft]:
    """Options that want another one."""
    parser, auto = one.options.get("tool_call_parser"), one.is_on("enable_auto_tool_choice")
    spread = one.invocation is not None and any(is_open(word.text) for word in one.invocation.arguments)
    if auto and parser is None and not spread and not (one.tool == LMI and one.is_open):
        yield from _say(one, "enable_auto_tool_choice", "parser", release)
    if parser is not None and "enable_auto_tool_choice" not in one.options and one.invocation and not spread:
        edits = (Put("--enable-auto-tool-choice"),)
        yield from _say(one, "tool_call_parser", "auto", release, edits=edits)
    yield from _remote_adapters(one, release)
    modules = one.options.get("lora_modules")
    if modules is not None and one.invocation and NO_EQUALS.fullmatch(modules.text):
        instead = modules.text.replace(":", "=", 1)
        yield from _say(one, "lora_modules", "module", release, instead=instead)
    if "lora_modules" in one.options and "enable_lora" not in one.options and one.invocation and not spread:
        yield from _say(one, "lora_modules", "lora", release, edits=(Put("--enable-lora"),))


def _remote_adapters(one: ServedModel, release: str) -> Iterator[Draft]:
    """``--lora-modules chat=s3://bucket/adapter``: vLLM looks for a folder, then for a repository of the hub."""
    given = one.invocation.values("--lora-modules", "--lora_modules") if one.invocation else []
    for word in given or [word for name, word in one.options.items() if name == "lora_modules"]:
        if (match := REMOTE_ADAPTER.search(word.text)) is not None:
            yield from _say(one, "lora_modules", "remote adapter", release, place=word, path=match["path"])


def _without(one: ServedModel, whole: str, told: VllmRelease | None, release: str) -> Iterator[Draft]:
    """A server without what its answers need: adapters, a tokenizer."""
    if one.invocation is None:
        return
    spread = one.is_open or any(is_open(word.text) for word in one.invocation.arguments)
    if told is not None and not spread and one.is_on("enable_lora") and ADAPTERS.search(whole) is None:
        yield from _say(one, "enable_lora", "adapters", release, model=one.weights)
    if one.is_on("skip_tokenizer_init") and NO_TEXTS.isdisjoint(one.options) and NO_TEXT.search(one.weights) is None:
        yield from _say(one, "skip_tokenizer_init", "tokenizer", release)


def _speculative(one: ServedModel, release: str) -> Iterator[Draft]:
    """Settings of speculative decoding by name."""
    settings = _object(one, "speculative_config")
    data = rule_data(FAMILY)["speculative"]
    if settings is None:
        return
    for name in settings:
        meant = data["means"].get(name)
        if meant and meant not in settings:
            yield from _say(one, "speculative_config", "setting", release, name=name, instead=meant)
    method = str(settings.get("method", ""))
    if method in data["methods"]:
        yield from _say(one, "speculative_config", "method", release, name=method, instead=data["methods"][method])
    named = {data["means"].get(name, name) for name in settings}
    if "num_speculative_tokens" not in named and (method in data["counted"] or (not method and "model" in named)):
        form = "count" if method else "count, perhaps"
        yield from _say(one, "speculative_config", form, release, name=method or "a draft model")


def _graphs(one: ServedModel, release: str) -> Iterator[Draft]:
    settings = _object(one, "compilation_config")
    mode = settings.get("cudagraph_mode") if settings else None
    modes = rule_data(FAMILY)["graph_modes"]
    if isinstance(mode, str) and mode.upper() not in modes:
        yield from _say(one, "compilation_config", "graphs", release, name=mode, instead=", ".join(modes))


def _object(one: ServedModel, option: str) -> dict[str, Any] | None:
    word = one.options.get(option)
    try:
        found = json.loads(word.text) if word is not None else None
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
