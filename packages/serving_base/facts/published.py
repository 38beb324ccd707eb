"""Published models by the names that people write: heads, KV heads and the longest context."""

import re
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from serving_base.yaml_files import read_yaml

END = r"(?:[-_.](?!.*\d+b\b).*)?"  # what may follow a name: no second size, as in a merge of two models
SIZE = re.compile(r"(?<![\dx.])(\d+(?:\.\d+)?)b(?![a-z\d])")  # no 8x7b, whose experts share some layers

NOWHERE = "nowhere"  # a context that no source confirms


class PublishedModel(NamedTuple):
    """One model. ``context``: tokens of its longest sequence, 0 where it is not known; ``official``: its own name.

    ``heads_read`` and ``context_read`` are True for what was read somewhere, not only remembered. ``billions``: of
    parameters, as the name says, 0 where it does not; ``bits``: of a weight as it is published.
    ``token_values``: numbers in the KV cache for one token, of one KV head in all layers, 0 where not known.
    """

    heads: int
    kv_heads: int
    context: int
    source: str
    official: bool
    heads_read: bool
    context_read: bool
    billions: float = 0.0
    token_values: int = 0
    bits: int = 16

    def divides(self, ranks: int) -> bool:
        """True if ``ranks`` ranks can share the attention heads and the KV heads, which are copied where too few."""
        kv = self.kv_heads
        return self.heads % ranks == 0 and (kv % ranks == 0 if kv >= ranks else ranks % kv == 0)

    def cache_bytes(self, ranks: int, stages: int, value: float) -> float:
        """What one token takes in the KV cache of one of ``ranks`` x ``stages`` GPUs, in values of ``value`` bytes."""
        return self.token_values * max(self.kv_heads / ranks, 1) * value / stages

    @property
    def ranks(self) -> list[int]:
        """The numbers of ranks up to 16 that share the heads."""
        return [number for number in range(1, 17) if self.divides(number)]


@lru_cache(maxsize=1024)
def published_model(name: str) -> PublishedModel | None:
    """The model of ``name``, a repository of Hugging Face or a folder called as one; None for one that is not known."""
    organization, _, last = name.strip().rstrip("/").lower().rpartition("/")
    file = _file()
    for pattern, one in _patterns():
        if not pattern.fullmatch(last):
            continue
        known = 0 if re.search(file["longer"], last) and not one.get("in_name") else int(one.get("context", 0))
        source = file["source"].format(organization=one["organization"])
        official = organization == str(one["organization"]).lower()
        heads_read = "read" in one
        context_read = one.get("context_read", one.get("read", NOWHERE)) != NOWHERE
        billions = _billions(last, one)
        values = 2 * int(one.get("layers", 0)) * int(one.get("head", 0))
        heads, kv_heads, bits = (int(one.get(key, 16)) for key in ("heads", "kv_heads", "bits"))
        return PublishedModel(
            heads, kv_heads, known, source, official, heads_read, context_read, billions, values, bits
        )
    return None


def _billions(name: str, one: dict[str, Any]) -> float:
    """Of parameters; of several experts only where the file knows the sum."""
    told = SIZE.search(name)
    return float(one.get("billions") or (told[1] if told else 0))


@cache
def _file() -> dict[str, Any]:
    content: dict[str, Any] = read_yaml(Path(__file__).with_name("published.yml"))
    return content


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], dict[str, Any]], ...]:
    return tuple((re.compile(one["name"] + END), one) for one in _file()["models"])
