"""Repositories of Hugging Face's hub that a text loads from owners whose families are known, and that are not there."""

import math
import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from functools import cache
from typing import Any, NamedTuple

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.shell.words import word_at

FAMILY, RULE = "hub_ids", "hub-id"
ID = (
    r"(?P<owner>{owners})/(?P<name>[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?)(?![\w-])(?!\.\w)(?!:\w)"
    r"(?!/(?!blob|resolve|tree|raw|\W))"
)
# What stands before a name that is loaded from the hub; other places may hold names of a server's own.
LOADS = re.compile(
    r"(?:(?P<download>huggingface\.co/|hf\.co/|\bhf://|(?:huggingface-cli|\bhf) download[ ]+(?:--[\w-]+[ ]+)*"
    r"|snapshot_download\(\s*(?:repo_id\s*=\s*)?)"
    r"|from_pretrained\(\s*(?:pretrained_model_name_or_path\s*=\s*)?"
    r"|\bvllm serve[ ]+|\btrtllm-serve[ ]+(?:serve[ ]+)?|\bLLM\(\s*(?:model\s*=\s*)?|EngineArgs\(\s*model\s*=\s*"
    r"|--(?:model(?:[-_]id|[-_]path|_name_or_path)?|tokenizer(?:_dir)?|hf_model|speculative[-_]model)(?:[ =]|\",?\s*)"
    r"|\bname:[ ]*[\"']?(?:HF_MODEL_ID|HF_MODEL|MODEL_ID|MODEL_NAME|MODEL)[\"']?[ ]*\r?\n[ ]*value:[ ]*"
    r"|\b(?:HF_MODEL_ID|HF_MODEL|MODEL_ID|option\.model_id|OPTION_MODEL_ID|modelURL|model_source|repo_id)"
    r"\W{1,4}|\brepo:[ ]*"
    r"|\b(?:hf_model|base_model|pretrained_model|model_path|MODEL_PATH|model_name_or_path)\w*[ ]*[=:][ ]*)"
    r"[\"'`]?\Z"
)
# A folder of that name, which takes the hub's place, or a name that a server answers to.
LOCAL = re.compile(
    r"(?:--local[-_]dir|local_dir\s*=|save_pretrained\(|mkdir(?: -p)?|--output[-_]?dir|--served[-_]model[-_]name|-v)"
    r"[ =]*[\"']?(?:\./)?\Z"
)
# Services whose own names look alike.
SERVICES = re.compile(r"openrouter|together(?:\.ai|\.xyz|computer)|deepinfra|fireworks\.ai|api\.nvidia\.com", re.I)
SIZE = re.compile(r"(?:^|[-_])(?P<billions>\d+(?:\.\d+)?)b(?![a-z])", re.IGNORECASE)
BEFORE = 90


class ModelOwner(NamedTuple):
    """``about``: the names that are judged; ``known``: those that there are; both of letters in lower case."""

    about: re.Pattern[str]
    known: re.Pattern[str]
    ids: tuple[str, ...]
    original: frozenset[str]


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """Each of them once."""
    for file, text in document.texts:
        if not SERVICES.search(text):
            yield from _loaded(text, file, platform.release.name)


def _loaded(text: str, file: str, release: str) -> Iterator[Draft]:
    matches = list(_pattern().finditer(text))
    said = {match[0].lower() for match in matches if _before(LOCAL, text, match) is not None}
    for match in matches:
        loads = _before(LOADS, text, match) if match[0].lower() not in said else None
        if loads is None:
            continue
        said.add(match[0].lower())
        owner, name = _owners()[match["owner"].lower()], match["name"]
        known: dict[str, Any] = {"id": match[0], "owner": match["owner"]}
        place = word_at(text, match.start(), match[0])
        if name.lower() in owner.original:
            if loads["download"] is None:
                known["right"] = f"{match[0]}-hf"
                yield from drafts(release, RULE, place, form="original", file=file, **known)
        elif owner.about.fullmatch(name.lower()) and not owner.known.fullmatch(name.lower()):
            known["right"] = f"{match['owner']}/{_nearest(name, owner.ids)}"
            yield from drafts(release, RULE, place, file=file, **known)


def _before(pattern: re.Pattern[str], text: str, match: re.Match[str]) -> re.Match[str] | None:
    return pattern.search(text, max(match.start() - BEFORE, 0), match.start())


def _nearest(name: str, ids: tuple[str, ...]) -> str:
    """One of the same family and about the size, with most of the name's parts, and spelt most alike."""
    wanted = _parts(name)

    def likeness(one: str) -> tuple[bool, float, int, float]:
        of_family = one.lower().split("-")[0] == name.lower().split("-")[0]
        spelling = SequenceMatcher(None, name.lower(), one.lower()).ratio()
        return of_family, -_apart(name, one), len(wanted & _parts(one)), spelling

    return max(ids, key=likeness)


def _apart(one: str, other: str) -> float:
    """By how many octaves the sizes of two names differ, in parameters; 0 where one of them tells none."""
    sizes = [float(match["billions"]) for match in map(SIZE.search, (one, other)) if match]
    return abs(math.log2(sizes[0] / sizes[1])) if len(sizes) == 2 and all(sizes) else 0


def _parts(name: str) -> set[str]:
    return set(re.split("[-_]", name.lower())) - {"meta", "hf"}


@cache
def _owners() -> dict[str, ModelOwner]:
    found = {}
    for name, entry in rule_data(FAMILY)["owners"].items():
        ids, original = entry["ids"].split(), entry.get("original", "").lower().split()
        known = [*map(re.escape, map(str.lower, ids)), *map(re.escape, original), *entry.get("also", "").split()]
        about, there = re.compile(entry["about"]), re.compile("|".join(f"(?:{one})" for one in known))
        found[name.lower()] = ModelOwner(about, there, tuple(ids), frozenset(original))
    return found


@cache
def _pattern() -> re.Pattern[str]:
    owners = "|".join(map(re.escape, _owners()))
    return re.compile(r"(?<![\w.-])" + ID.format(owners=owners), re.IGNORECASE)
