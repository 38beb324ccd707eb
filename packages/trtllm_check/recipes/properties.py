"""What an LMI image would do with each line of a ``serving.properties``."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from trtllm_check.releases.lmi import Key, LmiImage, Reading, lmi_facts, lmi_image
from trtllm_check.serving_properties import parse_line, parse_properties

MEANT = {  # names of other tools, whose nearest spelling means something else here
    "option.max_batch_size": "option.max_rolling_batch_size",
    "option.quantization": "option.quantize",
    "option.qformat": "option.quantize",
    "option.max_seq_len": "option.max_output_len",
    "option.tp_size": "option.tensor_parallel_degree",
    "option.model": "option.model_id",
}
MEANT_VALUES = {"tensorrtllm": "trtllm", "tensorrt": "trtllm", "transformersneuronx": "neuronx", "vllmasync": "vllm"}
"""Values as people write them, without their marks, and the container's word for it."""
Severity = Literal["error", "warning"]
Outcome = Literal["works", "undocumented", "ignored", "stops the start"]
Kind = Literal["syntax", "refused", "ignored", "undocumented"]
JAVA = "java.util.Properties"
BATCH = "option.rolling_batch"
KINDS = {
    "count": "a whole number above 0",
    "fraction": "a number up to 1",
    "boolean": "true or false",
    "pairs": "name=number, several with commas",
}
SEVERITY: dict[Kind, Severity] = {"refused": "error", "ignored": "warning", "undocumented": "warning"}


@dataclass(frozen=True)
class PropertyProblem:
    """What an image would do wrong with one line. "error": the endpoint does not start, or not as asked.

    ``kind`` says what is wrong with it, ``line`` counts from 1.
    """

    severity: Severity
    key: str
    message: str
    why: str
    fix: str
    source: str
    kind: Kind
    line: int

    def __str__(self) -> str:
        return f"{self.severity}: {self.message}: {self.why} -> {self.fix} [{self.source}]"


@dataclass(frozen=True)
class Fate:
    """What becomes of one line in an image, and what to write ``instead``."""

    key: str
    value: str
    outcome: Outcome
    instead: str
    source: str


def check_properties(text: str, image: str) -> list[PropertyProblem]:
    """What ``image`` would refuse, ignore or misread in the file ``text``; nothing if it does what the file says."""
    chosen = lmi_image(image)
    findings = list(syntax_problems(text))
    unclear = {finding.line for finding in findings if finding.severity == "error"}
    last = {match["key"]: (number, match["value"]) for number, _, match in _lines(text) if match}
    _, batch = last.get(BATCH, (0, ""))
    for key, (number, value) in last.items():
        if value and number not in unclear:
            findings += _check(chosen, key, value, number) or _of_another_batch(chosen, key, value, number, batch)
    return findings


def fates(text: str, image: str) -> list[Fate]:
    """What becomes of each line of ``text`` in ``image``, in the file's order."""
    found = {finding.key: finding for finding in check_properties(text, image)}
    return [_fate(lmi_image(image), key, value, found.get(key)) for key, value in parse_properties(text).items()]


def takes(image: LmiImage, key: str, value: str) -> bool:
    """True if ``image`` reads this line and does what it says."""
    return _reading(_rule(image, key), value) == "read"


def reads(image: LmiImage, key: str) -> bool:
    """True if ``image`` reads the key, whatever the values that it takes."""
    return _rule(image, key).reading == "read"


def _fate(image: LmiImage, key: str, value: str, finding: PropertyProblem | None) -> Fate:
    rule = _rule(image, key)
    if finding is None:
        return Fate(key, value, "works", rule.note, rule.source or lmi_facts().family(image).source)
    if finding.severity == "error":
        return Fate(key, value, "stops the start", finding.fix, finding.source)
    outcome: Outcome = "undocumented" if finding.kind == "undocumented" else "ignored"
    return Fate(key, value, outcome, finding.fix, finding.source)


BLANK = re.compile(  # deepjavalibrary/djl-serving#1351; wlm ModelInfo.java trims the model's name only
    r"[ \t]*(?P<key>engine|option\.(?:rolling_batch|tensor_parallel_degree))[ \t]*[=:][ \t]*(?P<value>\w[\w.-]*)[ \t]+"
)
MOST_BLANKS = 2
ALTERNATIVE = re.compile(  # of the lines around it, of which the reader keeps one
    r"^[ \t]*[#!][^\n]*\b(?:or|alternative\w*|either|option [0-9a-c]|choose|one of|instead|variant)\b",
    re.IGNORECASE | re.MULTILINE,
)


def _lines(text: str) -> Iterator[tuple[int, str, re.Match[str] | None]]:
    """The lines that are no comments, with their key and value."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip() and not line.lstrip().startswith(("#", "!")):
            yield number, line.strip(), parse_line(line)


def syntax_problems(text: str) -> Iterator[PropertyProblem]:
    """What Java reads otherwise than it was written, in whatever image."""
    seen: set[str] = set()
    for number, line, match in _lines(text):
        if match is None or not match["value"]:
            why = "the line holds no value, so the key is set to an empty one"
            yield _wrong("error", line, f"{line!r} sets nothing", why, "write key=value", number)
            continue
        key = match["key"]
        if key in seen and not ALTERNATIVE.search(text):
            why = "the last line wins, the others are lost"
            yield _wrong("warning", key, f"{key} is set twice", why, "keep one of the lines", number)
        if " #" in match["value"]:
            why = "a comment is a line of its own; after a value it belongs to the value"
            yield _wrong("error", key, f"{key} has a comment in its value", why, "put it on its own line", number)
        seen.add(key)
    yield from _blanks(text)


def _blanks(text: str) -> Iterator[PropertyProblem]:
    """A blank behind a value that is looked up as it stands; on many lines they are the page's, not the writer's."""
    found = [(number, match) for number, line in enumerate(text.split("\n"), 1) if (match := BLANK.fullmatch(line))]
    for number, match in found if len(found) <= MOST_BLANKS else ():
        key, value = match["key"], match["value"]
        severity: Severity = "error" if key == "engine" else "warning"
        message = f"{key} has a trailing blank: its value is {value + ' '!r}, and not {value!r}"
        why = "java.util.Properties keeps a space at the end of a value (Deep learning engine not found: MPI )"
        yield _wrong(severity, key, message, why, f"write {key}={value} without whitespace behind it", number)


def _wrong(severity: Severity, key: str, message: str, why: str, fix: str, line: int) -> PropertyProblem:
    return PropertyProblem(severity, key, message, why, fix, JAVA, "syntax", line)


def _check(image: LmiImage, key: str, value: str, line: int) -> list[PropertyProblem]:
    rule = _rule(image, key)
    reading = _reading(rule, value)
    if reading == "read" or (rule.anyway and value.lower() == rule.anyway):
        return []
    source = rule.source or lmi_facts().family(image).source
    if rule.reading != "read":
        near = [] if rule.source else _near(image, key)
        why, fix = rule.why, f"did you mean {near[0]}?" if near else rule.fix
    else:
        accepted = " or ".join([*rule.values, *([KINDS[rule.kind]] if rule.kind else [])])
        why = rule.replaced.get(value) or rule.why or f"it takes {accepted}"
        fix = _spelled(image, key, value) or rule.fix or f"set it to {accepted}"
    refused = f"{image.tag} does not take {key}={value}"
    message = refused if reading == "refused" else f"{key}={value} is {reading} by {image.tag}"
    return [PropertyProblem(SEVERITY[reading], key, message, why, fix, source, reading, line)]


def _spelled(image: LmiImage, key: str, value: str) -> str:
    """What to write for a value that is nearly one of this image's, or of another's; empty for any other."""
    bare = re.sub(r"\W|_", "", value.lower())
    wanted = MEANT_VALUES.get(bare, bare)
    newest_first = sorted(
        lmi_facts().images, key=lambda one: [int(part) for part in re.findall(r"\d+", one.tag)], reverse=True
    )
    for one in (image, *newest_first):
        for known in _rule(one, key).values:
            if re.sub(r"\W|_", "", known.lower()) == wanted and known != value:
                return f"write {key}={known}" + (
                    "" if one is image else f", and take an image of it, such as {one.tag}"
                )
    return ""


def _of_another_batch(image: LmiImage, key: str, value: str, line: int, batch: str) -> list[PropertyProblem]:
    """A key that another rolling batch of the image reads, and the one that is asked for does not."""
    rule = _rule(image, key)
    if not rule.batches or batch in ("", "auto", *rule.batches) or not takes(image, BATCH, batch):
        return []
    readers = " or ".join(rule.batches)
    why = f"{BATCH}={batch} does not read it, only {readers} does"
    source = rule.source or lmi_facts().family(image).source
    message = f"{key}={value} is ignored by {image.tag} with {BATCH}={batch}"
    fix = f"leave it out, or {BATCH}={rule.batches[0]}"
    return [PropertyProblem("warning", key, message, why, fix, source, "ignored", line)]


def _reading(rule: Key, value: str) -> Reading:
    if rule.reading != "read" or _takes(rule, value):
        return rule.reading
    if value in rule.replaced:
        return "ignored"
    return rule.otherwise


def _rule(image: LmiImage, key: str) -> Key:
    """The rule of the image's family, else the server's own keys, else what happens to a key that nobody knows."""
    facts = lmi_facts()
    family = facts.family(image)
    if key in family.keys:
        return family.keys[key]
    if family.passed_on and key.startswith("option.") and key.removeprefix("option.") in family.passed_on.names:
        return Key(source=family.passed_on.source, batches=family.batches)
    if key in facts.server_keys.names:
        return Key(source=facts.server_keys.source)
    return Key(**family.unknown.model_dump())


def _near(image: LmiImage, key: str) -> list[str]:
    known = [name for name, rule in lmi_facts().family(image).keys.items() if rule.reading == "read"]
    if MEANT.get(key) in known:
        return [MEANT[key]]
    return get_close_matches(key, known, n=1, cutoff=0.85)


def _takes(rule: Key, value: str) -> bool:
    if not rule.kind and not rule.values:
        return bool(value)
    return value.lower() in {known.lower() for known in rule.values} or _is(rule.kind, value)


def _is(kind: str, value: str) -> bool:
    if kind == "boolean":
        return value.lower() in ("true", "false")
    if kind == "count":
        return value.isascii() and value.isdecimal() and int(value) > 0
    if kind == "fraction":
        return bool(re.fullmatch(r"0?\.\d+|1(\.0*)?", value)) and float(value) > 0
    if kind == "pairs":
        return bool(re.fullmatch(r"\w+=\d+(,\s*\w+=\d+)*", value))
    return False
