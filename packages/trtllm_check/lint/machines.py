"""The one machine that a text is for: one that a cloud rents by name, or GPUs that its comments or prose tell.

``# on 4x A100 40GB`` counts where the text names no other kind of GPU and no other number, and says it plainly: a line
that compares, forbids or supposes ("faster than", "not on", "at least", "if you have") tells nothing, and all of the
text's GPUs are unknown then.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from serving_base.facts.gpus import GIB, gpu_names, instances, known_gpu
from serving_base.yaml_files import read_yaml
from trtllm_check.lint.document import Document
from trtllm_check.lint.machine_lists import listed_gpus

Texts = tuple[tuple[str, str], ...]
MOST_MATCHES = 200
DIFFERENT = 8  # GiB between two memories of one kind; less is what the driver keeps to itself
ONE_BLOCK = 2  # fences
SHORT = 12  # letters behind a name that may tell how many
INSTANCE = re.compile(
    r"(?<![\w.-])(?:ml\.)?(?P<name>(?:p[2-6]\w*|g[3-7]\w*|gr6|inf\d|trn\d\w*)\.(?:\d*xlarge|metal))(?![\w-])"
)
# Every kind of GPU and of other accelerators that a text may name beside the one that it is for.
KIND = re.compile(
    r"(?<![\w-])(?P<kind>[AH]100|H200|H20|H800|A800|L40S|L40|L20|L4|T4|V100|P100|A10G|A10|A16|A30|A40|A2"
    r"|[AB]?6000(?! ada)|G?B[123]00|GH200|GB10|(?:RTX|GTX|TITAN|Quadro)[- ]?\w*(?: ?(?:ADA|Ti|PRO))?(?: \d{4})?"
    r"|[3-5]090|MI\d{2,3}\w*|Gaudi ?\d?|TPU|Trainium\d?|Inferentia\d?|Jetson|Orin|Thor|DGX Spark|Hopper|Ampere"
    r"|Ada|Blackwell)"
    r"(?P<form>[- ](?:SXM\d?|PCIe|NVL|HBM\d\w?))?(?:[- ,:]{0,2}\(?(?P<memory>\d+) ?Gi?B\b\)?)?s?(?![A-Za-z0-9_])",
    re.IGNORECASE,
)
NUMBER_WORDS = {"a": 1, "an": 1, "one": 1, "single": 1, "two": 2, "dual": 2, "four": 4, "quad": 4, "eight": 8}
COUNT_BEFORE = re.compile(
    r"(?<![\w.-])(?P<count>\d{1,2}|a single|an?|one|single|two|dual|four|quad|eight)(?:[- ]?[x×*]| ?[张块卡])?"
    r" ?(?:NVIDIA )?(?:Tesla )?$",
    re.IGNORECASE,
)
COUNT_BEHIND = re.compile(r"^s? ?[x×*] ?(?P<count>\d{1,2})(?![\w.])", re.IGNORECASE)
NOT_PLAIN = re.compile(
    r"\b(?:not|no|never|unless|if|when|than|or|vs|versus|compared?|requires?|requirements?|prerequisites?|optional\w*"
    r"|need(?:s|ed)?|least|minimum|recommend\w*"
    r"|instead|like|such as|e\.g|etc|supports?|supported|for example|without|only|up to|per|nodes|\d[- ]node|example"
    r"|any|between|most|typical\w*|price|cost\w*|\$|hour|buy|rent|benchmark\w*|results?|achiev\w*|throughput|tokens?"
    r"|faster|slower|optimi[sz]ed)\b|n't\b|需要|至少|不|建议|推荐|如果|或|比|[<>≥≤~?/|]",
    re.IGNORECASE,
)


# GPUs without an entry in facts/gpus.yml -> GiB of memory, the larger where there are two (NVIDIA's data sheets).
MEMORIES = {
    **dict.fromkeys(("t4", "a16", "a2", "p100"), 16),
    **dict.fromkeys(("a10", "a10g", "a30", "rtx 3090", "rtx 4090", "3090", "4090"), 24),
    **dict.fromkeys(("v100", "rtx 5090", "5090"), 32),
    **dict.fromkeys(("a40", "l40", "l20", "a6000", "rtx a6000", "rtx 6000 ada"), 48),
    **dict.fromkeys(("a800", "h800"), 80),
}


# Compute capability, without its point, of the kinds that have no entry there (developer.nvidia.com/cuda-gpus).
CAPABILITIES = {
    "p100": 60,
    "v100": 70,
    "t4": 75,
    **dict.fromkeys(("a30", "a800"), 80),
    **dict.fromkeys(("a10", "a10g", "a16", "a2", "a40", "a6000", "rtx a6000", "rtx 3090", "3090"), 86),
    **dict.fromkeys(("l40", "l20", "rtx 4090", "4090", "rtx 6000 ada"), 89),
    **dict.fromkeys(("h800", "h100 nvl"), 90),
    **dict.fromkeys(("rtx 5090", "5090"), 120),
}
OF_FAMILIES = {"p3": 70, "p3dn": 70, "g4dn": 75, "g5": 86}  # of AWS

# Several machines, whose GPUs no one line tells.
CLUSTER = re.compile(
    r"\bray start\b|\bRAY_|multi-?node|\bnodes\b|--nnodes|\bcluster\b|hostfile|LeaderWorkerSet", re.IGNORECASE
)
ITS_KIND = re.compile(
    r"\b(?:gpus?|hardware|machine|server|card|box|host|node|vm|accelerator|runs? on|running on|deployed on)"
    r"(?:[ _]?(?:name|type|model))?\**[ \t]*[:=]\**[ \t]*(?:an? )?(?:NVIDIA )?(?:Tesla |GeForce )?$"
    r"|\b(?:runs|running|deployed|served|hosted) on (?:NVIDIA )?(?:Tesla )?$",
    re.IGNORECASE,
)
# A row of a table of two columns, which tells the one machine: | GPU | 1x L4 |
TWO_CELLS = re.compile(
    r"[ \t]*\|[ \t]*\**(?:gpus?|hardware|machine|accelerators?|instance|gpu type)\**[ \t]*(?P<cell>\|[^|]*)\|[ \t]*\r?",
    re.IGNORECASE,
)
OF_THE_HUB = re.compile(r"(?<![\w./-])[A-Za-z][\w.-]*/[\w.-]*\d[\w.-]*")  # a model, whose slash offers no choice
CELL = re.compile(r"\|[ \t]*\**(?:NVIDIA )?(?:Tesla )?$")
AS_NVIDIA_SMI = re.compile(r"(?:^|[\s#|:*-])NVIDIA $")  # before a name with its form, as the driver prints it


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
    return OF_FAMILIES.get(family) or CAPABILITIES.get(machine.name.lower(), 0)


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
    if len(named) != 1:
        return None
    name = named.pop()
    return _rented().get(name) or _of_a_family(name)


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
    kinds = {match["kind"].lower() for match in matches if match is not None}
    first = matches[0]
    if first is None or None in matches or len(kinds) != 1:
        return None
    if any(match["kind"].lower() not in kinds for text in others for match in _kinds(text)):
        return None
    memory = str(round(listed.mib / 1024)) if listed.mib else first["memory"] or ""
    return machine_of(kinds.pop(), memory, len(listed.names), listed.line)


def _kinds(text: str) -> Iterator[re.Match[str]]:
    return islice(KIND.finditer(text), MOST_MATCHES)


def machine_in_words(texts: Texts) -> MachineTold | None:
    """The machine of ``# on 4x A100 40GB``."""
    kinds: set[str] = set()
    memories: set[str] = set()
    counts: dict[int, int] = {}  # how many -> the line
    is_told = False
    for _, text in texts:
        is_page = text.count("```") > ONE_BLOCK  # which may be about several
        for match in _kinds(text):
            start = text.rfind("\n", 0, match.start()) + 1
            end = text.find("\n", match.end())
            line, ahead = text[start : end if end >= 0 else len(text)], text[start : match.start()]
            cells = TWO_CELLS.fullmatch(line)
            if cells is not None and match.start() >= start + cells.start("cell"):
                line, ahead = cells["cell"][1:], ahead[cells.start("cell") :]
            kinds.add(match["kind"].lower())
            of_another_kind = match["form"] and match["form"][1:].lower() in ("nvl", "pcie")
            if of_another_kind or len(kinds) > 1:
                return None
            memories |= {match["memory"]} if match["memory"] else set()
            if NOT_PLAIN.search(OF_THE_HUB.sub("", line)):
                if is_page:
                    return None
                continue  # it tells of no machine, and of no other kind
            found = COUNT_BEFORE.search(ahead) or COUNT_BEHIND.match(text[match.end() : match.end() + SHORT])
            is_printed = bool(match["form"] and match["memory"]) and AS_NVIDIA_SMI.search(ahead) is not None
            is_its_kind = ITS_KIND.search(ahead) is not None or (cells is not None and CELL.search(ahead) is not None)
            is_told = is_told or found is not None or is_printed or is_its_kind
            if found:
                word = found["count"].lower().removeprefix("a ")
                counts.setdefault(NUMBER_WORDS.get(word) or int(word), text.count("\n", 0, start) + 1)
    if not is_told or len(kinds) != 1 or len(memories) > 1 or len(counts) > 1 or 0 in counts:
        return None
    if any(CLUSTER.search(text) for _, text in texts):
        return None
    return machine_of(kinds.pop(), memories.pop() if memories else "", *(counts.popitem() if counts else (None, 0)))


def machine_of(kind: str, memory: str, count: int | None, line: int) -> MachineTold | None:
    """By facts/gpus.yml, or by the memory alone."""
    for name in (f"{kind}-{memory}gb", kind) if memory else (kind,):
        gpu = known_gpu(gpu_names()[name]) if name in gpu_names() else None
        if gpu is not None and (not memory or abs(gpu.memory_bytes / GIB - int(memory)) < DIFFERENT):
            return MachineTold("", name, count, line)
    known = MEMORIES.get(kind, 0)
    told = int(memory or known)
    return MachineTold("", "", count, line, kind.upper(), told) if known and told <= known else None
