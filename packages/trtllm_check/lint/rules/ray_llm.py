"""Ray Serve's LLM deployments: engine_kwargs, in Python and in YAML, against what vLLM's engine takes."""

import ast
import re
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache, lru_cache
from typing import Any, NamedTuple

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.rules.vllm_table import absence, instead_of
from trtllm_check.lint.shell.words import Word, word_at
from trtllm_check.lint.vllm_release import vllm_told
from trtllm_check.releases.vllm import Changes, in_words, together, vllm_facts

ABOUT = re.compile(r"ray\.(?:serve|data)\.llm|\bLLMConfig\b|llm_configs|build_openai_app|vLLMEngineProcessorConfig")
BLOCK = re.compile(r"^(?P<indent>[ ]*)(?:-[ ]+)?(?P<of>\w+):[ ]*(?:#.*)?$", re.MULTILINE)
INLINE = re.compile(r"engine_kwargs:[ ]*\{(?P<inside>[^{}\n]*)\}")
PAIR = re.compile(r"[\"']?(?P<name>[A-Za-z_]\w*)[\"']?:[ ]*(?P<value>[^,]*)")
NEAR = 0.8
ENTRY = re.compile(r"(?P<indent>[ ]*)(?P<name>[A-Za-z_][\w-]*):[ ]*(?P<value>[^#\n]*)")
EXECUTOR = "distributed_executor_backend"
KEYWORD = "engine_kwargs"
ACCELERATOR = re.compile(r"\baccelerator_type[\"']?[ ]*[:=][ ]*[\"']?(?P<name>[A-Za-z][\w-]+)(?=[\"',\s}#)])")
# NVIDIA's of ray python/ray/util/accelerators/accelerators.py and the LLM module's GPUType.
ACCELERATORS = (
    *("V100", "P100", "T4", "P4", "K80", "A10G", "L4", "L40S", "A100", "A100-40G", "A100-80G"),
    *("H100", "H200", "H20", "B200", "B300", "GB200", "GH200", "RTX-PRO-6000", "RTX-PRO-4500"),
)
# Fields of ray.serve.config.AutoscalingConfig, of any release, which drops what it does not know; LLMConfig's and
# ModelLoadingConfig's of ray python/ray/llm/_internal/serve/core/configs/llm_config.py, which refuse it.
FIELDS = {
    "autoscaling_config": (
        *("min_replicas", "initial_replicas", "max_replicas", "target_ongoing_requests", "metrics_interval_s"),
        *("target_num_ongoing_requests_per_replica", "look_back_period_s", "smoothing_factor", "upscaling_factor"),
        *("upscale_smoothing_factor", "downscale_smoothing_factor", "downscaling_factor", "downscale_delay_s"),
        *("downscale_to_zero_delay_s", "upscale_delay_s", "aggregation_function", "policy"),
    ),
    "model_loading_config": ("model_id", "model_source", "tokenizer_source", "anytensor_config"),
    "LLMConfig": (
        *("runtime_env", "model_loading_config", "llm_engine", "engine_kwargs", "resources_per_bundle"),
        *("accelerator_type", "placement_group_config", "lora_config", "deployment_config", "experimental_configs"),
        *("log_engine_metrics", "callback_config", "server_cls", "generation_config", "input_modality"),
    ),
}
DROPPED = "autoscaling_config"
RULE = "ray-engine"


class EngineArgument(NamedTuple):
    """One of engine_kwargs: its value as written."""

    name: str
    value: str
    place: Word


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    for file, text in document.texts:
        if not any(name in text for name in ("accelerator_type", KEYWORD, *FIELDS)) or not ABOUT.search(text):
            continue
        yield from _accelerators(text, file, platform.release.name)
        yield from _fields(text, file, platform.release.name)
        for one in (*_of_yaml(text, KEYWORD), *_inline(text), *_of_python(text, KEYWORD)):
            yield from _one(one, document, file, platform.release.name)


def _accelerators(text: str, file: str, release: str) -> Iterator[Draft]:
    """``accelerator_type: A100-80GB``, which is nearly one of Ray's names."""
    for match in ACCELERATOR.finditer(text):
        name = match["name"]
        close = [one for one in ACCELERATORS if one.lower() == name.lower()] or get_close_matches(
            name.upper().removeprefix("NVIDIA-").removeprefix("TESLA-"), ACCELERATORS, 1, NEAR
        )
        if name not in ACCELERATORS and close:
            known: dict[str, Any] = {"name": name, "near": close[0]}
            place = word_at(text, match.start("name"), name)
            yield from drafts(release, RULE, place, form="accelerator", file=file, **known)


def _fields(text: str, file: str, release: str) -> Iterator[Draft]:
    """``min_replica`` beside ``max_replicas``: nearly a field of Ray's own."""
    for of, known in FIELDS.items():
        for one in (*_of_yaml(text, of), *_of_python(text, of)):
            close = get_close_matches(one.name, known, 1, NEAR) if one.name not in known else []
            if close:
                about: dict[str, Any] = {"name": one.name, "near": close[0], "of": of}
                form = "dropped" if of == DROPPED else "field"
                yield from drafts(release, RULE, one.place, form=form, file=file, **about)


def _of_yaml(text: str, of: str) -> Iterator[EngineArgument]:
    for block in BLOCK.finditer(text):
        if block["of"] != of:
            continue
        number = text.count("\n", 0, block.start()) + 1
        inside = -1
        for at, line in enumerate(text.split("\n")[number:], number + 1):
            match = ENTRY.match(line)
            indent = len(line) - len(line.lstrip())
            if line.strip() and indent <= len(block["indent"]):
                break
            if match is None:
                continue
            inside = indent if inside < 0 else inside
            if indent == inside:
                place = Word(match["name"], at, indent + 1)
                yield EngineArgument(match["name"], match["value"].strip().strip("\"'"), place)


def _inline(text: str) -> Iterator[EngineArgument]:
    """``engine_kwargs: {tensor_parallel_size: 2}``."""
    for block in INLINE.finditer(text):
        for pair in PAIR.finditer(text, block.start("inside"), block.end("inside")):
            place = word_at(text, pair.start("name"), pair["name"])
            yield EngineArgument(pair["name"], pair["value"].strip().strip("\"'"), place)


@lru_cache(maxsize=2)
def _tree(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return None


def _of_python(text: str, of: str) -> Iterator[EngineArgument]:
    tree = _tree(text)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == of:
            for one in node.keywords:
                if one.arg:
                    yield EngineArgument(one.arg, _text(one.value), Word(one.arg, one.lineno, one.col_offset + 1))
        if not isinstance(node, ast.keyword) or node.arg != of:
            continue
        value = node.value
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "dict":
            for one in value.keywords:
                if one.arg:
                    yield EngineArgument(one.arg, _text(one.value), Word(one.arg, one.lineno, one.col_offset + 1))
        elif isinstance(value, ast.Dict):
            for key, inside in zip(value.keys, value.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield EngineArgument(key.value, _text(inside), Word(key.value, key.lineno, key.col_offset + 1))


def _text(node: ast.expr) -> str:
    return str(node.value) if isinstance(node, ast.Constant) else ""


@cache
def _engine_fields() -> tuple[str, ...]:
    """The engine's arguments of any release, as Python writes them."""
    options = vllm_facts().table("options", "engine")
    return tuple(sorted({name.lstrip("-").replace("-", "_") for name in options}))


def _changes(name: str) -> Changes | None:
    facts = vllm_facts()
    dashed = name.replace("_", "-")
    tables = [facts.table("options", section).get(dashed) for section in ("engine", "async", "frontend")]
    return together(*tables, facts.table("options", "fields").get(name))


def _one(one: EngineArgument, document: Document, file: str, release: str) -> Iterator[Draft]:
    if one.name == EXECUTOR and one.value and one.value != "ray":
        yield from drafts(release, RULE, one.place, form="executor", file=file, value=one.value)
        return
    changes = _changes(one.name)
    if changes is None:
        near = get_close_matches(one.name, _engine_fields(), 1, NEAR)
        if near:
            slip: dict[str, Any] = {"name": one.name, "near": near[0]}
            yield from drafts(release, RULE, one.place, form="slip", file=file, **slip)
        return
    told = vllm_told(document)
    found = told.release if told is not None else None
    lacking = absence(changes, found)
    if lacking is None or not lacking.gone:
        return
    form = "" if found is not None else "newest"
    known: dict[str, Any] = {
        "name": one.name,
        "version": found.written if found is not None else "",
        "has": in_words(changes),
        "instead": instead_of("options", one.name.replace("_", "-")),
    }
    yield from drafts(release, RULE, one.place, form=form, file=file, **known)
