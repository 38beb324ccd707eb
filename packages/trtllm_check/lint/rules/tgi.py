"""Text Generation Inference: the options of its launcher by version, and limits that exclude each other."""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.rules.box import Box, boxes
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.shell.words import Word

FAMILY = "tgi"
OPTION = re.compile(r"--(?P<name>[a-z][a-z0-9_-]*)(?:=(?P<value>.*))?", re.DOTALL)
VERSION = re.compile(r":(?:sha-)?v?(?P<version>\d+\.\d+(?:\.\d+)?)(?![\da-f])")
NEAR = 0.8
Version = tuple[int, ...]


class TgiOption(NamedTuple):
    """One option with its value, "" where it has none."""

    name: str
    value: str
    word: Word


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    for box in boxes(document):
        engine = box.serves
        if engine is None or engine.name != "tgi" or any(" " in word.text for word in box.words):
            continue
        given = list(_given(box))
        version = _version(box.image)
        for one in given:
            yield from _option(box, one, version, release)
        yield from _limits(box, given, version, release)
        yield from _shards(box, given, release)


def _given(box: Box) -> Iterator[TgiOption]:
    words = box.words
    for number, word in enumerate(words):
        match = OPTION.fullmatch(word.text)
        if match:
            following = words[number + 1].text if number + 1 < len(words) else ""
            value = match["value"] or ("" if following.startswith("-") else following)
            yield TgiOption(match["name"], value, word)


def _version(image: str) -> Version | None:
    match = VERSION.search(image)
    if match is None:
        return None
    parts = [int(part) for part in match["version"].split(".")]
    return tuple(parts) if len(parts) == 3 else (*parts, 99)


def _number(text: str) -> Version:
    return tuple(int(part) for part in text.split("."))


def _has(name: str, version: Version) -> bool:
    spans: list[Mapping[str, str]] = rule_data(FAMILY)["options"][name]
    return not spans or any(
        _number(span.get("since", "0")) <= version and version[:2] <= _number(span.get("until", "99.0.0"))[:2]
        for span in spans
    )


def _option(box: Box, one: TgiOption, version: Version | None, release: str) -> Iterator[Draft]:
    data = rule_data(FAMILY)
    known = data["options"]
    if one.name in known:
        if version is None or version < _number(data["earliest"]) or _has(one.name, version):
            return
        instead = _instead(one.name, version)
        form = "version"
    elif version is not None and version[:2] > _number(data["latest"])[:2]:
        return
    else:
        close = get_close_matches(one.name.replace("_", "-"), sorted(known), 1, NEAR)
        meant = data["meant"].get(one.name)
        instead = f"write --{meant or close[0]}" if meant or close else "leave it out"
        form = ""
    yield from drafts(
        release,
        "tgi-option",
        one.word,
        form=form,
        file=box.file,
        name=f"--{one.name}",
        image=box.image,
        instead=instead,
    )


def _instead(name: str, version: Version) -> str:
    meant = rule_data(FAMILY)["meant"].get(name)
    return f"write --{meant}" if meant and _has(meant, version) else "leave it out, or take another version"


def _limits(box: Box, given: list[TgiOption], version: Version | None, release: str) -> Iterator[Draft]:
    numbers = {one.name: (int(one.value), one.word) for one in given if one.value.isascii() and one.value.isdecimal()}
    for limit in rule_data(FAMILY)["limits"]:
        if "until" in limit and (version is None or version[:2] > _number(limit["until"])[:2]):
            continue
        more = numbers.get(limit["more"])
        for name in limit["less"]:
            less = numbers.get(name)
            if less and more and (less[0] > more[0] or (limit.get("strictly") and less[0] == more[0])):
                known: dict[str, Any] = {"less": f"--{name}", "small": less[0], "more": f"--{limit['more']}"}
                sign = "<" if limit.get("strictly") else "<="
                yield from drafts(release, "tgi-limits", more[1], file=box.file, large=more[0], sign=sign, **known)


def _shards(box: Box, given: list[TgiOption], release: str) -> Iterator[Draft]:
    """More shards than the container's GPUs."""
    shards = next((one for one in given if one.name == "num-shard" and one.value.isdecimal()), None)
    if shards is None or box.workload is None or not box.workload.gpus or is_open(shards.value):
        return
    if int(shards.value) > box.workload.gpus:
        known: dict[str, Any] = {"ranks": int(shards.value), "seen": box.workload.gpus, "how": "the container gets"}
        place = box.workload.gpus_place
        yield from drafts(
            release, "gpus-fewer-than-ranks", shards.word, file=box.file, tool="TGI", line=place.line, **known
        )
