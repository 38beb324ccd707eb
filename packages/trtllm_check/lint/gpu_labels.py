"""The one kind of GPU that a configuration asks a platform for: SkyPilot's accelerators, Modal's gpu=, labels of nodes.

What a platform may give in its place counts: Modal takes an A100 of 80 GB for ``A100``, and an H200 for ``H100``.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice

from trtllm_check.lint.document import Document
from trtllm_check.lint.machines import MOST_MATCHES, MachineTold, machine_of
from trtllm_check.lint.reservations import IN_PYTHON, OF_PYTHON, OF_SKYPILOT, SKYPILOT, modal_gpus

LABEL = re.compile(
    r"[\"']?(?:nvidia\.com/gpu\.product|cloud\.google\.com/gke-accelerator|skypilot\.co/accelerator"
    r"|karpenter\.k8s\.aws/instance-gpu-name|accelerator_type)[\"']?[ \t]*[:=][ \t]*[\"']?(?P<name>[A-Za-z][\w.-]*)"
)
ANY_LABEL = re.compile(
    r"gpu\.product|gke-accelerator|skypilot\.co/accelerator|instance-gpu-name|accelerator_type[\"']?[ \t]*[:=]"
)
ONE_KIND = re.compile(r"[\"']?\{?[ ]*(?P<name>[A-Za-z][\w-]*)[ ]*(?::[ ]*\d+)?[ ]*\}?[\"']?")
# As nodes and platforms write them: the maker, the form and the memory around the kind.
WRITTEN = re.compile(
    r"(?:nvidia-)?(?:tesla-)?(?P<kind>a100|h100|h200|a10g|a10|l40s|l40|l4|t4|v100|a40|rtx-?a6000|a6000)"
    r"(?:-(?:sxm\d?|pcie|hbm\d\w?|nvl|mega|vws))?(?:-(?P<memory>\d+)gb)?(?:-(?:hbm\d\w?|pcie))?"
)
# The memory that a kind without one has there, or the kind that may come in its place.
MORE = {
    "modal": {"a100": "80", "h100": "h200"},
    "skypilot": {"a100": "40"},
    "gke": {"a100": "40"},
    "ray": {"a100": "80"},
}
ONE_PIECE = 2  # fences
V100 = "v100"  # of 16 or 32 GB


@lru_cache(maxsize=8)
def _labelled(texts: tuple[tuple[str, str], ...]) -> MachineTold | None:
    if any(text.count("```") > ONE_PIECE for _, text in texts):
        return None  # a page, whose pieces may be for different machines
    found = {one for _, text in texts for one in _names(text)}
    return _machine(*found.pop()) if len(found) == 1 else None


def gpu_labelled(document: Document) -> MachineTold | None:
    """The GPU, without a number; None for several kinds and for one that is not known."""
    return _labelled(document.texts)


def _names(text: str) -> Iterator[tuple[str, str]]:
    """Each name, and whose it is; an empty one for what is not plain."""
    matches = list(islice(LABEL.finditer(text), MOST_MATCHES))
    if len(ANY_LABEL.findall(text)) > len(matches):
        yield "", ""
    for match in matches:
        whose = "gke" if "gke-accelerator" in match[0] else "ray" if "accelerator_type" in match[0] else "label"
        yield match["name"].lower(), whose
    for asks, about in ((SKYPILOT, OF_SKYPILOT), (IN_PYTHON, OF_PYTHON)):
        for match in islice(asks.finditer(text), MOST_MATCHES) if about.search(text) else ():
            one = ONE_KIND.fullmatch(match["value"].strip())
            yield (one["name"].lower() if one else ""), "skypilot"
    for asked in islice(modal_gpus(text), MOST_MATCHES):
        yield asked.kind, "exact" if asked.exact else "modal"


def _machine(name: str, whose: str) -> MachineTold | None:
    written = WRITTEN.fullmatch(name)
    if written is None:
        return None
    kind, memory = written["kind"], written["memory"] or ""
    if kind == V100 and not memory:
        memory = "32"
    if not memory:
        instead = MORE.get(whose, {}).get(kind, "")
        kind, memory = (instead, "") if instead.startswith("h") else (kind, instead)
    return machine_of(kind, memory, None, 0)
