"""The one machine that a text is for: one that a cloud rents by name, or GPUs that its comments or prose tell."""

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from serving_base.facts.gpus import GIB, gpu_names, instances, known_gpu
from serving_base.yaml_files import read_yaml
from trtllm_check.lint.card_names import KIND, capability_of, cards, kind_of
from trtllm_check.lint.document import Document
from trtllm_check.lint.gpu_words import CLUSTER, MOST_MATCHES, Texts, kinds, told_in_words
from trtllm_check.lint.machine_lists import listed_gpus

DIFFERENT = 8  # GiB between two memories of one kind; less is what the driver keeps to itself
INSTANCE = re.compile(
    r"(?<![\w.-])(?:ml\.)?(?P<name>(?:p[2-6]\w*|g[3-7]\w*|gr6|inf\d|trn\d\w*)\.(?:\d*xlarge|metal))(?![\w-])"
)
OF_FAMILIES = {"p3": 70, "p3dn": 70, "g4dn": 75, "g5": 86}  # of AWS, the compute capability


class MachineTold(NamedTuple):
    """The GPUs of one machine. ``instance``: its name at a cloud, "" where the text tells its GPUs alone, on ``line``.

    ``gpu`` is "" for one without facts, of which nothing is known but its ``name`` and its memory; ``gpus`` is None
    where only their kind is told ("# GPU: L4").
    """

    instance: str
    gpu: str
    gpus: int | None
    line: int = 0
    name: str = ""
    memory_gib: int = 0


def capability(machine: MachineTold) -> int:
    """Of its GPUs, without its point; 0 where it is not known."""
    if machine.gpu:
        return int(known_gpu(gpu_names()[machine.gpu]).architecture.removeprefix("sm"))
    family = machine.instance.partition(".")[0]
    return OF_FAMILIES.get(family) or capability_of(kind_of(machine.name))


def machine_told(document: Document) -> MachineTold | None:
    """None for a text that tells no machine with GPUs, or several."""
    return _told(document.texts)


@cache
def _families() -> dict[str, Any]:
    """The families of AWS's instances with GPUs, those without an entry in facts/instances.yml, too."""
    content: dict[str, dict[str, Any]] = read_yaml(Path(__file__).with_name("rules") / "sagemaker.yml")
    return content["gpus"]


@lru_cache(maxsize=8)
def _told(texts: Texts) -> MachineTold | None:
    named = {match["name"] for _, text in texts for match in islice(INSTANCE.finditer(text), MOST_MATCHES)}
    named |= {
        match[0].lower() for _, text in texts for match in islice(_of_other_clouds().finditer(text), MOST_MATCHES)
    }
    if not named:
        return _listed(texts) or machine_in_words(texts)
    machines = {_rented().get(name) or _of_a_family(name) for name in named}
    first = machines.pop()
    if not machines or first is None:
        return first
    others = {one._replace(instance=first.instance, gpus=first.gpus) if one else None for one in machines}
    alike = others == {first} and not any(CLUSTER.search(text) for _, text in texts)
    return first._replace(instance="", gpus=None) if alike else None  # any of these: of one kind


def _of_a_family(name: str) -> MachineTold | None:
    """A machine whose GPU has no facts but its memory."""
    family, _, size = name.partition(".")
    entry = _families().get(family)
    if entry is None or size not in entry["sizes"]:
        return None
    return MachineTold(name, "", entry["sizes"][size], name=f"a GPU of {name}", memory_gib=entry["memory"])


@cache
def _rented() -> Mapping[str, MachineTold]:
    """The machines of clouds by name, in small letters."""
    found = {name: MachineTold(name, one.gpu, one.gpus) for name, one in instances().items()}
    groups: list[dict[str, Any]] = read_yaml(Path(__file__).with_suffix(".yml"))
    for group in groups:
        for name, number in group["machines"].items():
            told = MachineTold(name, group.get("gpu", ""), number, 0, group.get("kind", ""), group.get("gib", 0))
            found[name.lower()] = told
    return found


@cache
def _of_other_clouds() -> re.Pattern[str]:
    names = sorted((name for name in _rented() if not INSTANCE.fullmatch(name)), key=len, reverse=True)
    return re.compile(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, names))})(?![\w-])", re.IGNORECASE)


def _listed(texts: Texts) -> MachineTold | None:
    """The GPUs that the driver lists, where the text names no other kind."""
    found = [(one, text) for _, text in texts if (one := listed_gpus(text)) is not None]
    if len(found) != 1 or any(CLUSTER.search(text) for _, text in texts):
        return None
    listed, within = found[0]
    others = [listed.rest if text is within else text for _, text in texts]
    matches = [KIND.search(name) for name in listed.names]
    listed_kinds = {kind_of(match["kind"]) for match in matches if match is not None}
    first = matches[0]
    if first is None or None in matches or len(listed_kinds) != 1:
        return None
    if any(kind_of(match["kind"]) not in listed_kinds for text in others for match in kinds(text)):
        return None
    memory = str(round(listed.mib / 1024)) if listed.mib else first["memory"] or ""
    return machine_of(listed_kinds.pop(), memory, len(listed.names), listed.line)


def machine_in_words(texts: Texts) -> MachineTold | None:
    """The machine of ``# on 4x A100 40GB``."""
    told = told_in_words(texts)
    if told is None:
        return None
    if not told.kind and not told.memory:
        return MachineTold("", "", told.number, told.line)
    if not told.kind:
        return MachineTold("", "", told.number, told.line, f"a GPU of {told.memory} GB", int(told.memory))
    return machine_of(told.kind, told.memory, told.number, told.line)


def machine_of(kind: str, memory: str, count: int | None, line: int) -> MachineTold | None:
    """By facts/gpus.yml, or by the memory alone."""
    for name in (f"{kind}-{memory}gb", kind) if memory else (kind,):
        gpu = known_gpu(gpu_names()[name]) if name in gpu_names() else None
        if gpu is not None and (not memory or abs(gpu.memory_bytes / GIB - int(memory)) < DIFFERENT):
            return MachineTold("", name, count, line)
    known = cards()[kind].gib if kind in cards() else 0
    told = int(memory or known)
    return MachineTold("", "", count, line, kind.upper(), told) if known and told <= known else None
