"""The one kind of GPU that a configuration asks a platform for: SkyPilot's accelerators, Modal's gpu=, labels of nodes,
Slurm's --gres, and what RunPod and Google's clouds are asked for.

What a platform may give in its place counts: Modal takes an A100 of 80 GB for ``A100``, and an H200 for ``H100``.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from serving_base.yaml_files import read_yaml
from trtllm_check.lint.card_names import card_written
from trtllm_check.lint.document import Document
from trtllm_check.lint.gpu_words import MOST_MATCHES
from trtllm_check.lint.machines import MachineTold, machine_in_words, machine_of, machine_told
from trtllm_check.lint.reservations import IN_PYTHON, MODAL, OF_PYTHON, OF_SKYPILOT, SKYPILOT, modal_gpus
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
ONE_KIND = re.compile(r"[\"']?\{?[ ]*(?P<name>[A-Za-z][\w-]*)[ ]*(?::[ ]*\d+)?[ ]*\}?[\"']?")
# The memory that a kind without one has there, or the kind that may come in its place.
MORE = {
    "modal": {"a100": "80", "h100": "h200"},
    "skypilot": {"a100": "40"},
    "gke": {"a100": "40"},
    "ray": {"a100": "80"},
    **{whose: {"a100": "80"} for whose in ("slurm", "any", "label", "dstack")},
}
# The kind that a family of AWS's instances has.
FAMILIES = {
    "g4dn": "t4",
    "g5": "a10g",
    "g6": "l4",
    "g6e": "l40s",
    "p3": "v100-16gb",
    "p4d": "a100-40gb",
    "p4de": "a100-80gb",
    **dict.fromkeys(("p5",), "h100"),
    **dict.fromkeys(("p5e", "p5en"), "h200"),
}
EITHER = re.compile(r"[|,]")
PARTS = re.compile(r"[&|,*()\[\]\"'\s]+")
OF_NAMES = re.compile(r"[_-]")
WITH_MEMORY = re.compile(r"(?P<kind>[\w-]+):(?P<gb>\d+)GB")
MEMORY = re.compile(r"(?P<gb>\d+)GB")
OFF = re.compile(r"[ \t]*#[ \t]")  # a comment
BEGINS_A_PIECE = re.compile(r"[ \t>]*(?:`{3,}|~{3,})|---[ \t]*$")
HEADING = re.compile(r"#{1,6}[ ]+\S|\*\*[^*\n]+\*\*:?[ \t]*$")
ONE_PIECE = 2  # fences


@lru_cache(maxsize=8)
def _labelled(texts: tuple[tuple[str, str], ...]) -> MachineTold | None:
    if any(text.count("```") > ONE_PIECE for _, text in texts):
        return None  # a page, whose pieces may be for different machines
    found = {_machine(*one) for one in {one for _, text in texts for one in _names(text)}}
    return found.pop() if len(found) == 1 else None


def gpu_told(document: Document) -> MachineTold | None:
    """The one machine of a text, or the one kind of GPU that it asks for."""
    machine = machine_told(document)
    if machine is not None and not (machine.gpu or machine.name):  # its number alone
        asked = gpu_labelled(document)
        return asked._replace(gpus=machine.gpus, line=machine.line) if asked is not None else machine
    return machine or gpu_labelled(document)


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
    return tuple(number for number, line in enumerate(lines_of(text), 1) if BEGINS_A_PIECE.match(line))


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
    of_modal = MODAL.search(text) is not None  # which gives more than is asked for
    lowered = text.lower()
    for way in _ways():
        if (of_modal and way.whose == "any") or not any(one in lowered for one in way.about):
            continue
        for match in islice(way.asks.finditer(text), MOST_MATCHES):
            if way.whose != "any" or not OFF.match(text, text.rfind("\n", 0, match.start()) + 1):
                yield from way.names(match)
    for asks, about in ((SKYPILOT, OF_SKYPILOT), (IN_PYTHON, OF_PYTHON)):
        for match in islice(asks.finditer(text), MOST_MATCHES) if about.search(text) else ():
            one = ONE_KIND.fullmatch(match["value"].strip())
            yield (one["name"].lower() if one else ""), "skypilot"
    for asked in islice(modal_gpus(text), MOST_MATCHES):
        yield asked.kind, "exact" if asked.exact else "modal"


class _Way(NamedTuple):
    """One of gpu_labels.yml."""

    whose: str
    about: tuple[str, ...]
    asks: re.Pattern[str]
    parts: bool = False
    loose: bool = False

    def names(self, match: re.Match[str]) -> Iterator[tuple[str, str]]:
        """What it asks for, and whose words these are."""
        given = {group: text for group, text in match.groupdict().items() if text}
        if "family" in given:
            yield FAMILIES[given["family"].lower()], self.whose
        elif "mib" in given:
            yield f"{round(int(given['mib']) / 1024)}GB", "memory"
        for group, text in given.items():
            if group in ("family", "mib"):
                continue
            if not self.parts:
                whose = "gke" if self.whose == "any" and text.startswith("nvidia-") else self.whose
                yield from [(text, whose)] if not self.loose or card_written(text) else []
            else:
                yield from self._named_parts(text)

    def _named_parts(self, text: str) -> Iterator[tuple[str, str]]:
        """The cards in a constraint or in the name of a partition; nothing plain where other nodes do, too."""
        words = [word for word in PARTS.split(text) if word]
        named = [next(filter(card_written, (word, *OF_NAMES.split(word))), "") for word in words]
        found = [word for word in named if word]
        if found and len(found) < len(words) and EITHER.search(text):
            yield "", ""
        yield from ((word, self.whose) for word in found)


@cache
def _ways() -> tuple[_Way, ...]:
    entries: list[dict[str, Any]] = read_yaml(Path(__file__).with_suffix(".yml"))
    return tuple(
        _Way(
            one["whose"],
            tuple(one["about"]),
            re.compile(one["asks"], re.MULTILINE),
            one.get("parts", False),
            one.get("loose", False),
        )
        for one in entries
    )


def _machine(name: str, whose: str) -> MachineTold | None:
    told = WITH_MEMORY.fullmatch(name)
    alone = MEMORY.fullmatch(name)
    if alone is not None:
        return MachineTold("", "", None, 0, f"a GPU of {alone['gb']} GB", int(alone["gb"]))
    written = card_written(told["kind"] if told else name)
    if written is None:
        return None
    kind, memory = written.kind, told["gb"] if told else written.memory
    if not memory:
        instead = MORE.get(whose, {}).get(kind, "")
        kind, memory = (instead, "") if instead.startswith("h") else (kind, instead)
    return machine_of(kind, memory, None, 0)
