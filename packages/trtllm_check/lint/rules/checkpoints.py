"""hf_quant_config.json and the quantization in config.json of a checkpoint: the names that a release knows."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from trtllm_check.lint.document import ConfigFile, Document
from trtllm_check.lint.engine_json import is_quantization
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.rules.names import is_open
from trtllm_check.releases.load import in_range

RULE = "checkpoint-quantization"
FAMILY = "checkpoints"
NO_CACHE = ("none", "null", "auto")
MODELOPT = "producer"  # only ModelOpt's own file has to name an algorithm


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    for config in document.json_configs:
        fields = config.fields
        inner = fields.get("pretrained_config")
        whole = inner if isinstance(inner, dict) else fields
        if is_quantization(whole):
            yield from _quantization(config, whole, platform.release.name)


def _quantization(config: ConfigFile, whole: Mapping[str, Any], release: str) -> Iterator[Draft]:
    quantization = whole["quantization"]
    algorithm, cache = quantization.get("quant_algo"), quantization.get("kv_cache_quant_algo")
    if algorithm is None and MODELOPT in whole:
        where = "quant_algo" if "quant_algo" in quantization else "quantization"
        yield from drafts(release, RULE, config.key(where), form="none", file=config.path)
    if isinstance(algorithm, str) and not is_open(algorithm):
        yield from _algorithm(config, algorithm, release)
    if isinstance(cache, str) and cache.lower() not in NO_CACHE and not is_open(cache):
        yield from _cache(config, cache, release)


def _cache(config: ConfigFile, cache: str, release: str) -> Iterator[Draft]:
    known: list[str] = rule_data(FAMILY)["cache"]
    if cache not in known:
        near = get_close_matches(cache.upper(), known, 1, 0.5) or known[:1]
        said: dict[str, Any] = {"value": cache, "takes": ", ".join(known), "instead": near[0]}
        yield from drafts(release, RULE, config.key("kv_cache_quant_algo"), form="cache", file=config.path, **said)


def _algorithm(config: ConfigFile, algorithm: str, release: str) -> Iterator[Draft]:
    data = rule_data(FAMILY)
    known: Mapping[str, str] = data["algorithms"]
    place = config.key("quant_algo")
    if algorithm in data["spelled"]:
        return
    if algorithm not in known:
        near = get_close_matches(algorithm.upper(), known, 1, 0.6)
        instead = f"write {near[0]}" if near else "quantize with a format that the release knows"
        yield from drafts(release, RULE, place, form="unknown", file=config.path, algorithm=algorithm, instead=instead)
    elif known[algorithm] and not in_range(release, known[algorithm]):
        yield from drafts(
            release, RULE, place, form="later", file=config.path, algorithm=algorithm, since=known[algorithm]
        )
