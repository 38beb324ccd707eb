"""The one kind of GPU that a configuration asks a platform for: SkyPilot's accelerators, Modal's gpu=, labels of nodes,
Slurm's --gres, and what RunPod and Google's clouds are asked for.

What a platform may give in its place counts: Modal takes an A100 of 80 GB for ``A100``, and an H200 for ``H100``.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice

from trtllm_check.lint.document import Document
from trtllm_check.lint.machines import MOST_MATCHES, MachineTold, machine_in_words, machine_of, machine_told
from trtllm_check.lint.reservations import IN_PYTHON, OF_PYTHON, OF_SKYPILOT, SKYPILOT, modal_gpus
from trtllm_check.lint.shell.words import lines_of

LABEL = re.compile(
    r"[\"']?(?:nvidia\.com/gpu\.product|cloud\.google\.com/gke-accelerator|skypilot\.co/accelerator"
    r"|karpenter\.k8s\.aws/instance-gpu-name|accelerator_type)[\"']?[ \t]*[:=][ \t]*[\"']?(?P<name>[A-Za-z][\w.-]*)"
)
ANY_LABEL = re.compile(
    r"gpu\.product|gke-accelerator|skypilot\.co/accelerator|instance-gpu-name|accelerator_type[\"']?[ \t]*[:=]"
)
# The same among a node affinity's expressions, with one value.
EXPRESSION = re.compile(
    r"\bkey:[ \t]*[\"']?(?P<key>nvidia\.com/gpu\.product|cloud\.google\.com/gke-accelerator"
    r"|karpenter\.k8s\.aws/instance-gpu-name)[\"']?[ \t]*\n[ \t]*operator:[ \t]*[\"']?In[\"']?[ \t]*\n[ \t]*values:"
    r"(?:[ \t]*\[[ \t]*[\"']?(?P<listed>[\w.-]+)[\"']?[ \t]*\]"
    r"|[ \t]*\n[ \t]*-[ \t]*[\"']?(?P<item>[\w.-]+)[\"']?[ \t]*"
    r"(?:\n(?![ \t]*-[ \t]*[\"']?[\w.-]+[\"']?[ \t]*(?:\n|\Z))|\Z))"
)
OF_SLURM = re.compile(r"#SBATCH|\bsrun\b|\bsalloc\b")
SLURM = re.compile(
    r"--(?:gres[= ]gpu:|gpus(?:-per-(?:node|task))?[= ])(?!all\b|device)(?P<name>[A-Za-z][\w.-]*)(?=[:\s]|$)",
    re.MULTILINE,
)
OF_RUNPOD = re.compile(r"\brunpod", re.IGNORECASE)
RUNPOD = re.compile(r"\bgpu_?type(?:_?ids?)?[\"']?[ ]*[=: ][ ]*\[?[\"'](?P<name>[A-Za-z][\w. -]*)[\"']", re.IGNORECASE)
GOOGLE = re.compile(
    r"--gpu-type[= ][\"']?(?P<run>nvidia-[\w-]+)"
    r"|\bgpu_type[\"']?[ ]*[:=][ ]*[\"'](?P<bento>nvidia-[\w-]+)"
    r"|run\.googleapis\.com/accelerator[\"']?:[ ]*[\"']?(?P<yaml>nvidia-[\w-]+)"
    r"|--accelerator[= ][\"']?(?:count=\d+,)?type=(?P<vm>nvidia-[\w-]+)"
    r"|^[ \t]*type[ \t]*=[ \t]*\"(?P<terraform>nvidia-[\w-]+)\"|\bresourceProfile:[ ]*nvidia-gpu-(?P<kubeai>[\w-]+)",
    re.MULTILINE,
)
ONE_KIND = re.compile(r"[\"']?\{?[ ]*(?P<name>[A-Za-z][\w-]*)[ ]*(?::[ ]*\d+)?[ ]*\}?[\"']?")
# As nodes and platforms write them: the maker, the form and the memory around the kind.
WRITTEN = re.compile(
    r"(?:nvidia-)?(?:tesla-|geforce-)?(?P<kind>a100|h100|h200|a10g|a10|l40s|l40|l4|t4|v100|a40|rtx-?a6000|a6000"
    r"|rtx-?(?:3090|4090|5090))(?:-(?:sxm\d?|pcie|hbm\d\w?|nvl|mega|vws))?(?:-(?P<memory>\d+)gb)?(?:-(?:hbm\d\w?|pcie))?"
)
# The memory that a kind without one has there, or the kind that may come in its place.
MORE = {
    "modal": {"a100": "80", "h100": "h200"},
    "skypilot": {"a100": "40"},
    "gke": {"a100": "40"},
    "ray": {"a100": "80"},
    "slurm": {"a100": "80"},
}
PARTS = re.compile(r"[ \t>]*(?:`{3,}|~{3,})|---[ \t]*$")
HEADING = re.compile(r"#{1,6}[ ]+\S|\*\*[^*\n]+\*\*:?[ \t]*$")
RTX = re.compile(r"rtx-?(?=\w)")
ONE_PIECE = 2  # fences
V100 = "v100"  # of 16 or 32 GB


@lru_cache(maxsize=8)
def _labelled(texts: tuple[tuple[str, str], ...]) -> MachineTold | None:
    if any(text.count("```") > ONE_PIECE for _, text in texts):
        return None  # a page, whose pieces may be for different machines
    found = {_machine(*one) for one in {one for _, text in texts for one in _names(text)}}
    return found.pop() if len(found) == 1 else None


def gpu_told(document: Document) -> MachineTold | None:
    """The one machine of a text, or the one kind of GPU that it asks for."""
    return machine_told(document) or gpu_labelled(document)


def gpu_labelled(document: Document) -> MachineTold | None:
    """The GPU, without a number; None for several kinds and for one that is not known."""
    return _labelled(document.texts)


def gpu_here(document: Document, file: str, line: int) -> MachineTold | None:
    """The GPU that the piece of a text around ``line`` asks for, or the heading above it tells; None for the text's."""
    text = dict(document.texts).get(file, "")
    marks = _marks(text)
    if not marks or not line:
        return None
    number = bisect_right(marks, line)
    first, last = (marks[number - 1] if number else 0), (marks[number] if number < len(marks) else None)
    lines = lines_of(text)
    piece = "\n".join(lines[first : last - 1 if last else None])
    found = {_machine(*one) for one in set(_names(piece))}
    if found:
        return found.pop() if len(found) == 1 else None
    heading = next((one for one in reversed(lines[:first]) if HEADING.match(one)), "")
    return machine_in_words((("", heading),)) if heading else None


@lru_cache(maxsize=8)
def _marks(text: str) -> tuple[int, ...]:
    """The lines that part a text: fences, and what begins the next document of YAML."""
    return tuple(number for number, line in enumerate(lines_of(text), 1) if PARTS.match(line))


def _names(text: str) -> Iterator[tuple[str, str]]:
    """Each name, and whose it is; an empty one for what is not plain."""
    matches = list(islice(LABEL.finditer(text), MOST_MATCHES))
    expressions = list(islice(EXPRESSION.finditer(text), MOST_MATCHES))
    if len(ANY_LABEL.findall(text)) > len(matches) + len(expressions):
        yield "", ""
    for match in expressions:
        yield (match["listed"] or match["item"]).lower(), "gke" if "gke" in match["key"] else "label"
    for match in matches:
        of_google = "gke-accelerator" in match[0] or match["name"].startswith("NVIDIA_")
        whose = "gke" if of_google else "ray" if "accelerator_type" in match[0] else "label"
        yield match["name"].lower(), whose
    for match in islice(SLURM.finditer(text), MOST_MATCHES) if OF_SLURM.search(text) else ():
        yield match["name"].lower(), "slurm"
    for match in islice(RUNPOD.finditer(text), MOST_MATCHES) if OF_RUNPOD.search(text) else ():
        yield match["name"].lower(), "label"
    for match in islice(GOOGLE.finditer(text), MOST_MATCHES):
        yield next(name for name in match.groups() if name).lower(), "gke"
    for asks, about in ((SKYPILOT, OF_SKYPILOT), (IN_PYTHON, OF_PYTHON)):
        for match in islice(asks.finditer(text), MOST_MATCHES) if about.search(text) else ():
            one = ONE_KIND.fullmatch(match["value"].strip())
            yield (one["name"].lower() if one else ""), "skypilot"
    for asked in islice(modal_gpus(text), MOST_MATCHES):
        yield asked.kind, "exact" if asked.exact else "modal"


def _machine(name: str, whose: str) -> MachineTold | None:
    written = WRITTEN.fullmatch(name.replace(" ", "-").replace("_", "-"))
    if written is None:
        return None
    kind, memory = RTX.sub("rtx ", written["kind"]), written["memory"] or ""
    if kind == V100 and not memory:
        memory = "32"
    if not memory:
        instead = MORE.get(whose, {}).get(kind, "")
        kind, memory = (instead, "") if instead.startswith("h") else (kind, instead)
    return machine_of(kind, memory, None, 0)
