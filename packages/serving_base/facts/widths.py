"""Widths of published quantized models that tensor parallelism cuts, and whether ranks get whole blocks of them."""

import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from serving_base.yaml_files import read_yaml

END = r"(?:[-_.](?!.*\d+b\b).*)?"  # what may follow a name: no second size, as in a merge of two models
GROUPS = re.compile(r"(?:^|[-_.])(?P<method>awq|gptq|w[48]a16)(?:[-_.]|$)")
FP8 = re.compile(r"(?:^|[-_.])fp8(?:[-_.]|$)")
PARTS = {"mlp": "intermediate_size", "experts": "moe_intermediate_size", "shared": "shared experts' intermediate_size"}


class CutWidths(NamedTuple):
    """The widths of one checkpoint that are cut, by part; each share is to be a multiple of ``unit``.

    ``what``: what the unit is of ("FP8", "AWQ", "GPTQ", "W8A16"); ``certain``: read, and the owner's own checkpoint.
    """

    widths: dict[str, int]
    unit: int
    what: str
    source: str
    certain: bool

    def uneven(self, ranks: int, *, replicas: int = 1, spread: bool = False) -> tuple[str, int] | None:
        """The first part whose share is no multiple of the unit, with its width; ``spread``: experts stay whole."""
        for part, width in self.widths.items():
            cuts = ranks * replicas if part == "experts" else ranks
            if cuts > 1 and not (part == "experts" and spread) and width % (cuts * self.unit):
                return part, width
        return None

    def ranks(self, *, replicas: int = 1, spread: bool = False) -> list[int]:
        """The numbers of ranks up to 16, doubled each time, that get whole blocks."""
        return [number for number in (1, 2, 4, 8, 16) if not self.uneven(number, replicas=replicas, spread=spread)]


def cut_widths(name: str) -> CutWidths | None:
    """What is known of ``name``, a repository of Hugging Face; None for a model, or for weights, without facts."""
    organization, _, last = name.strip().rstrip("/").lower().rpartition("/")
    file = _file()
    for pattern, one in _patterns():
        if not pattern.fullmatch(last):
            continue
        owned = organization == str(one["organization"]).lower()
        names = one["read"] if isinstance(one.get("read"), list) else [one["read"]] if "read" in one else []
        source = "; ".join(file["sources"][name] for name in names) or f"config.json of {one['organization']}"
        groups = GROUPS.search(last)
        if groups and not re.search(file["other_groups"], last):
            part = "mlp" if "mlp" in one else "experts"
            width = int(one.get("padded", one[part]) if owned else one[part])
            certain = part == "mlp" and bool(names) and (owned or "padded" not in one)
            return CutWidths({part: width}, int(file["group"]), groups["method"].upper(), source, certain)
        blocks = one.get("blocks")
        is_fp8 = FP8.search(last) is not None
        if owned and (is_fp8 or blocks == "own") and blocks and not re.search(file["other_weights"], last):
            widths = {part: int(one[part]) for part in PARTS if part in one}
            return CutWidths(widths, int(file["block"]), "FP8", source, bool(names))
        return None
    return None


@cache
def _file() -> dict[str, Any]:
    content: dict[str, Any] = read_yaml(Path(__file__).with_name("widths.yml"))
    return content


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], dict[str, Any]], ...]:
    return tuple((re.compile(one["name"] + END), one) for one in _file()["models"])
