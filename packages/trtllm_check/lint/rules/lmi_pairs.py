"""Settings of an LMI container that do not go together, and values whose form changed."""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from trtllm_check.lint.document import Document, PropertiesFile
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.rules.lmi_images import image_of
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.shell.words import Word
from trtllm_check.releases.models import named_model, needs_own_code, parts
from trtllm_check.releases.python_names import python_package
from trtllm_check.releases.vllm import choices, options_of, vllm_facts

SETTING = re.compile(r"^[ \t]*(?P<key>[\w.]+)[ \t]*[=:][ \t]*(?P<value>[^\n]*?)[ \t\r]*$", re.MULTILINE)
PAIRS = re.compile(r"\w+=\d+(?:,\w+=\d+)*")
OLD = re.compile(r"(?:djl-(?:inference|serving):)?0\.(?:2\d|3[0-3])\.")
LIMIT = "limit_mm_per_prompt"
# djl-serving@d21927c4 engines/python/setup/djl_python/lmi_vllm/vllm_async_service.py and lmi_trtllm:
# handle is a coroutine.
ASYNC_HANDLER = re.compile(r"djl_python\.lmi_(?:vllm\.vllm|trtllm\.trtllm)_async_service")
BATCHES = ("vllm", "trtllm", "lmi-dist", "scheduler")
PARSERS = ("tool_call_parser", "reasoning_parser")
# Options of vLLM that LMI hands on as they are: lmi/user_guides/vllm_user_guide.md, Pass Through.
PASSED_ON = (*PARSERS, "max_lora_rank", "lora_dtype", "tokenizer_mode")
NEAR = 0.7
OF_TENSORRT = re.compile(r"djl-tensorrtllm|djl-inference:\S*-tensorrtllm")
QUANTIZED = re.compile(r"[-_.](?P<kind>awq|gptq|gguf|bnb-4bit|exl2)(?:[-_.]|$)", re.IGNORECASE)
# djl-serving@049a929b (0.27.0) serving/docker/deepspeed.Dockerfile, transformers_version; 0.28.0 has no DeepSpeed.
LIBRARY, LAST_WITH_DEEPSPEED = "transformers", "4.39.0"


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    is_old = any(map(OLD.match, (image_of(document, platform).said, *_tags(document))))
    for file in document.properties:
        found = _settings(file)
        engine, batch = found.get("engine"), found.get("option.rolling_batch")
        if engine and batch and engine.text == "MPI" and batch.text == "vllm":
            yield from drafts(release, "lmi-engine-of-batch", engine, file=file.path)
        yield from _handler(found, file.path, release)
        yield from _quantized_twice(found, document, file.path, release)
        yield from _deepspeed(found, file.path, release)
        for name in PASSED_ON:
            if (value := found.get(f"option.{name}")) is not None:
                yield from _passed_on(name, value, file.path, release)
        if not is_old and (limit := found.get(f"option.{LIMIT}")):
            yield from _limit(limit, file.path, release)
    names = ("model_id", "rolling_batch", "quantize")
    given = {f"option.{name}": document.lmi_environment.get(f"OPTION_{name.upper()}") for name in names}
    given["option.model_id"] = given["option.model_id"] or document.lmi_environment.get("HF_MODEL_ID")
    variables = {name: word for name, word in given.items() if word is not None}
    yield from _quantized_twice(variables, document, "", release)
    for name in PASSED_ON:
        if (value := document.lmi_environment.get(f"OPTION_{name.upper()}")) is not None:
            yield from _passed_on(name, value, "", release)
    if not is_old and (value := document.lmi_environment.get(f"OPTION_{LIMIT.upper()}")):
        yield from _limit(value, "", release)


def _tags(document: Document) -> Iterator[str]:
    return (word.text.rpartition("/")[2] for word in document.images)


def _settings(file: PropertiesFile) -> dict[str, Word]:
    found: dict[str, Word] = {}
    for match in SETTING.finditer(file.text):
        line = file.line_at(match.start("value"))
        found[match["key"]] = Word(match["value"], line, 1)
    return found


def _limit(value: Word, file: str, release: str) -> Iterator[Draft]:
    if PAIRS.fullmatch(value.text) and not is_open(value.text):
        pairs = (part.partition("=") for part in value.text.split(","))
        right = "{" + ", ".join(f'"{name}": {number}' for name, _, number in pairs) + "}"
        yield from drafts(release, "lmi-value-of-earlier-vllm", value, file=file, value=value.text, right=right)


def _quantized_twice(found: dict[str, Word], document: Document, file: str, release: str) -> Iterator[Draft]:
    """``option.quantize=awq`` of TensorRT-LLM for a checkpoint whose name says that it is quantized already."""
    model, batch, quantize = (found.get(f"option.{name}") for name in ("model_id", "rolling_batch", "quantize"))
    by_default = any(OF_TENSORRT.search(text) for _, text in document.texts)
    is_built = batch.text == "trtllm" if batch is not None else by_default
    if model is None or quantize is None or not is_built or is_open(model.text):
        return
    if (match := QUANTIZED.search(model.text)) is not None and quantize.text not in ("none", ""):
        known: dict[str, Any] = {"value": quantize.text, "model": model.text, "kind": match["kind"].upper()}
        yield from drafts(release, "lmi-quantized-twice", quantize, file=file, **known)


def _handler(found: dict[str, Word], file: str, release: str) -> Iterator[Draft]:
    """An asynchronous handler that the front end calls as a synchronous one."""
    handler, mode, batch = (found.get(f"option.{name}") for name in ("entryPoint", "async_mode", "rolling_batch"))
    if handler is None or not ASYNC_HANDLER.fullmatch(handler.text):
        return
    if batch is not None and batch.text in BATCHES:
        known: dict[str, Any] = {"handler": handler.text, "batch": batch.text}
        yield from drafts(release, "lmi-async-handler", batch, form="batch", file=file, **known)
    elif (mode is None and batch is not None and batch.text == "disable") or (mode and mode.text.lower() == "false"):
        yield from drafts(release, "lmi-async-handler", handler, file=file, handler=handler.text)


def _deepspeed(found: dict[str, Word], file: str, release: str) -> Iterator[Draft]:
    """A model that is newer than the last image with DeepSpeed, whose transformers does not know it."""
    engine, handler, model = (found.get(name) for name in ("engine", "option.entryPoint", "option.model_id"))
    is_asked = (engine and engine.text == "DeepSpeed") or (handler and handler.text == "djl_python.deepspeed")
    known, library = named_model(model.text) if model else None, python_package(LIBRARY)
    if not is_asked or model is None or known is None or library is None or needs_own_code(model.text):
        return
    since = known.since.get(LIBRARY, "")
    lack = library.judge(f"{LIBRARY}.{known.architecture}", LAST_WITH_DEEPSPEED)
    if (lack is not None and lack.kind == "later") or (since and parts(since) > parts(LAST_WITH_DEEPSPEED)):
        about: dict[str, Any] = {"model": model.text, "has": LAST_WITH_DEEPSPEED}
        since = since or (lack.since if lack is not None else "")
        yield from drafts(release, "lmi-deepspeed-model", model, file=file, since=since, **about)


def _passed_on(name: str, value: Word, file: str, release: str) -> Iterator[Draft]:
    """A value of an option that the image hands on to vLLM, and that no release of vLLM takes."""
    table = vllm_facts().table("names", name) if name in PARSERS else {}
    changes = options_of("serve").get(name.replace("_", "-"))
    steps = changes.steps if changes is not None else ()
    listed = [*table] or [one for _, kind in steps for one in choices(kind)]
    if not listed or not value.text or value.text in listed or is_open(value.text):
        return
    close = get_close_matches(value.text, listed, 1, NEAR)
    if name in PARSERS and not close:
        return  # a plugin may bring it
    right = close[0] if close else f"one of {', '.join(sorted(set(listed)))}"
    known: dict[str, Any] = {"name": name, "value": value.text, "right": right}
    if name == "max_lora_rank" and value.text.isdecimal():
        ranks = sorted({int(one) for one in listed})
        known["right"] = next((str(one) for one in ranks if one >= int(value.text)), str(ranks[-1]))
    yield from drafts(release, "lmi-vllm-value", value, file=file, **known)
