"""How the name of a card is written: ``NVIDIA GeForce RTX 4090``, ``rtx_4090``, ``GTX4060ti``, ``nvidia-tesla-t4``.

:func:`kind_of` has one name for all of them, that of facts/gpus.yml or of card_names.yml.
"""

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from serving_base.facts.gpus import GIB, gpu_names, known_gpu
from serving_base.yaml_files import read_yaml

# Every kind of GPU and of other accelerators that a text may name beside the one that it is for.
KIND = re.compile(
    r"(?:(?<![A-Za-z0-9_-])|(?<=\d[xX]))(?P<kind>"
    r"[AH]100|H200|H20|H800|A800|L40S|L40|L20|L4|T4|V100S|V100|P100|P40|A10G|A10|A16|A30|A40|A2"
    r"|(?:RTX[- ]?)?A(?:[26]000|4[05]00|5[05]00)|G?B[123]00|GH200|GB10"
    r"|(?:GeForce[- ]?)?(?:RTX|GTX|TITAN|Quadro)[- ]?\w*?(?:[- ]?RTX)?(?:[- ]?\d{4})?"
    r"(?:[- ]?(?:ADA|Ti|Super|PRO|D)(?![a-z]))*(?:[- ]\d{4})?"
    r"|(?:20[678]0|30[5-9]0|40[5-9]0|50[5-9]0)[- ]?(?:Ti|Super)(?:[- ]?Super)?|[3-5]090(?:D| D\b)?"
    r"|MI\d{2,3}\w*|Gaudi ?\d?|TPU|Trainium\d?|Inferentia\d?|Jetson|Orin|Thor|DGX Spark|Hopper|Ampere"
    r"|Ada|Blackwell)"
    r"(?P<form>[- ](?:SXM\d?|PCIe|NVL|HBM\d\w?))?(?:[- ,:（(]{0,2}(?P<memory>\d+) ?G(?:i?B)?(?![A-Za-z0-9])[)）]?)?s?"
    r"(?![A-Za-z0-9_])",
    re.IGNORECASE,
)
# As nodes and platforms write it in one word: the maker, the form and the memory around the kind.
ONE_WORD = re.compile(
    r"(?P<kind>[ahplt]\d{1,3}[gs]?|v100s?|(?:titan|quadro )?(?:rtx|gtx)? ?[\da-z ]*?)"
    r"(?: (?:sxm\d?|hbm\d\w?|mega|vws|laptop(?: gpu)?|generation|blackwell(?: \w+)*))*(?P<form> pcie| nvl)?"
    r"(?: ?(?P<memory>\d{1,3})gb?)?(?: (?:hbm\d\w?|pcie|sxm\d?))?"
)
CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
MAKER = re.compile(r"^(?:(?:nvidia|tesla|geforce) |nvidia(?=[ahlt]\d)|(?:ampere|ada|turing|hopper) (?=[ahlt]\d))*")
APART = re.compile(r"[-_ ]+")
GEFORCE = re.compile(r"(?:(?:geforce|rtx|gtx) ?)*(?P<number>1080|1660|[2-5]0[5-9]0)(?P<rest>(?: ?(?:ti|super|d)\b)*)")
OF_WORKSTATIONS = re.compile(r"(?:nvidia |rtx )*(?P<name>a(?:[26]000|4[05]00|5[05]00))")
SUFFIX = re.compile(r"ti|super|d")


class Card(NamedTuple):
    """``capability``: the compute capability without its point."""

    gib: int
    capability: int


@cache
def cards() -> dict[str, Card]:
    """The cards of card_names.yml."""
    content: dict[str, dict[str, int]] = read_yaml(Path(__file__).with_suffix(".yml"))
    return {name: Card(**entry) for name, entry in content.items()}


@cache
def kind_of(name: str) -> str:
    """One name for all ways of writing a kind; that of a card which nobody knows in small letters."""
    plain = APART.sub(" ", CAMEL.sub(" ", name) if " " not in name and "_" not in name else name).lower().strip()
    if plain in cards() or plain in gpu_names():
        return plain
    plain = MAKER.sub("", plain)
    if plain.removeprefix("quadro ") in cards():
        return plain.removeprefix("quadro ")
    if (found := GEFORCE.fullmatch(plain)) is not None:
        return " ".join(["rtx", found["number"], *SUFFIX.findall(found["rest"])])
    if (found := OF_WORKSTATIONS.fullmatch(plain)) is not None:
        return f"rtx {found['name']}"
    spaced = re.sub(r"(?<=rtx|pro)(?=[a-z]?\d)|(?<=\d)(?=ada|ti)", " ", plain)
    return spaced if spaced in cards() else plain


def capability_of(kind: str) -> int:
    """0 where it is not known."""
    if kind in cards():
        return cards()[kind].capability
    return int(known_gpu(gpu_names()[kind]).architecture.removeprefix("sm")) if kind in gpu_names() else 0


class Written(NamedTuple):
    """A card as one word names it; ``memory``: as told, "" where it is not."""

    kind: str
    memory: str


@cache
def card_written(word: str) -> Written | None:
    """The card that a label, a type of a cloud or a variable names; None for a word that is no card's name."""
    plain = APART.sub(" ", CAMEL.sub(" ", word) if word.count(" ") == 0 else word).lower().strip()
    found = ONE_WORD.fullmatch(MAKER.sub("", plain))
    if found is None:
        return None
    for kind in (kind_of(found["kind"] + (found["form"] or "")), kind_of(found["kind"])):
        if kind in cards() or kind in gpu_names():
            return Written(kind, found["memory"] or "")
    return None


def gib_of(kind: str) -> float:
    """The memory of a card, the larger where it comes with two; 0 for one that nobody knows."""
    if kind in cards():
        return cards()[kind].gib
    return known_gpu(gpu_names()[kind]).memory_bytes / GIB if kind in gpu_names() else 0
