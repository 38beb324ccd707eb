"""The one machine that a text is for: an instance of AWS that it names, or GPUs that its comments or prose tell.

``# on 4x A100 40GB`` counts where the text names no other kind of GPU and no other number, and says it plainly: a line
that compares, forbids or supposes ("faster than", "not on", "at least", "if you have") tells nothing, and all of the
text's GPUs are unknown then.
"""

import re
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from serving_base.facts.gpus import gpu_names, instances
from trtllm_check.lint.document import Document

Texts = tuple[tuple[str, str], ...]
MOST_MATCHES = 200
INSTANCE = re.compile(
    r"(?<![\w.-])(?:ml\.)?(?P<name>(?:p[2-6]\w*|g[3-7]\w*|gr6|inf\d|trn\d\w*)\.(?:\d*xlarge|metal))(?![\w-])"
)
# Every kind of GPU and of other accelerators that a text may name beside the one that it is for.
KIND = re.compile(
    r"(?<![\w-])(?P<kind>[AH]100|H200|H20|H800|A800|L40S|L40|L20|L4|T4|V100|P100|A10G|A10|A16|A30|A40|A2"
    r"|[AB]?6000(?! ada)|G?B[123]00|GH200|GB10|(?:RTX|GTX|TITAN|Quadro)[- ]?\w*(?: ?(?:ADA|Ti|PRO))?(?: \d{4})?"
    r"|[3-5]090|MI\d{2,3}\w*|Gaudi ?\d?|TPU|Trainium\d?|Inferentia\d?|Jetson|Orin|Thor|DGX Spark|Hopper|Ampere"
    r"|Ada|Blackwell)"
    r"(?P<form>[- ](?:SXM\d?|PCIe|NVL|HBM\d\w?))?(?:[- ,]{0,2}\(?(?P<memory>\d+) ?Gi?B\b\)?)?(?![\w])",
    re.IGNORECASE,
)
NUMBER_WORDS = {"a": 1, "an": 1, "one": 1, "single": 1, "two": 2, "four": 4, "eight": 8}
COUNT_BEFORE = re.compile(
    r"(?<![\w.-])(?P<count>\d{1,2}|a single|an?|one|single|two|four|eight)(?:[- ]?[x×*])?"
    r" ?(?:NVIDIA )?(?:Tesla )?$",
    re.IGNORECASE,
)
COUNT_BEHIND = re.compile(r"^s? ?[x×*] ?(?P<count>\d{1,2})(?![\w.])", re.IGNORECASE)
NOT_PLAIN = re.compile(
    r"\b(?:not|no|never|unless|if|when|than|or|vs|versus|compared?|requires?|need(?:s|ed)?|least|minimum|recommend\w*"
    r"|instead|like|such as|e\.g|etc|supports?|supported|for example|without|only|up to|per|nodes?|example"
    r"|any|between|most|typical\w*|price|cost\w*|\$|hour|buy|rent|benchmark\w*|results?|achiev\w*|throughput|tokens?"
    r"|faster|slower|optimi[sz]ed)\b|n't\b|[<>≥≤~?/|]",
    re.IGNORECASE,
)


class MachineTold(NamedTuple):
    """The GPUs of one machine. ``instance``: of AWS, "" where the text tells its GPUs alone, on ``line``."""

    instance: str
    gpu: str
    gpus: int
    line: int = 0


def machine_told(document: Document) -> MachineTold | None:
    """None for a text that tells no machine with GPUs, or several."""
    return _told(document.texts)


@lru_cache(maxsize=8)
def _told(texts: Texts) -> MachineTold | None:
    named = {match["name"] for _, text in texts for match in islice(INSTANCE.finditer(text), MOST_MATCHES)}
    known = instances()
    if not named:
        return _in_words(texts)
    if len(named) != 1 or (name := named.pop()) not in known:
        return None
    return MachineTold(name, known[name].gpu, known[name].gpus)


def _in_words(texts: Texts) -> MachineTold | None:
    """``# on 4x A100 40GB``."""
    kinds: set[str] = set()
    memories: set[str] = set()
    counts: dict[int, int] = {}  # how many -> the line
    for _, text in texts:
        for match in islice(KIND.finditer(text), MOST_MATCHES):
            start = text.rfind("\n", 0, match.start()) + 1
            end = text.find("\n", match.end())
            line = text[start : end if end >= 0 else len(text)]
            kinds.add(match["kind"].lower())
            if match["form"] and match["form"][1:].lower() in ("nvl", "pcie"):
                return None  # of other memory or another link than those with facts
            if len(kinds) > 1 or NOT_PLAIN.search(line):
                return None
            if match["memory"]:
                memories.add(match["memory"])
            before, behind = COUNT_BEFORE.search(text[start : match.start()]), COUNT_BEHIND.match(text[match.end() :])
            if found := before or behind:
                word = found["count"].lower().removeprefix("a ")
                counts.setdefault(NUMBER_WORDS.get(word) or int(word), text.count("\n", 0, start) + 1)
    if len(kinds) != 1 or len(memories) > 1 or len(counts) != 1 or 0 in counts:
        return None
    kind = kinds.pop()
    name = f"{kind}-{memories.pop()}gb" if memories else kind
    count, told_on = counts.popitem()
    return MachineTold("", name, count, told_on) if name in gpu_names() else None
