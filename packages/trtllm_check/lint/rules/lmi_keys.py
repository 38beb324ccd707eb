"""Keys, handlers and batches of LMI by the version that the text tells, also for images without facts of their own."""

import re
from collections.abc import Iterator
from difflib import SequenceMatcher, get_close_matches
from functools import lru_cache
from typing import Any, NamedTuple

from trtllm_check.lint.document import Document, PropertiesFile
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.rules.lmi_images import image_of
from trtllm_check.lint.rules.lmi_pairs import SETTING
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.shell.words import Word
from trtllm_check.releases.lmi import lmi_facts, lmi_image
from trtllm_check.releases.lmi_keys import ImageSpan, lmi_keys

FAMILY = "lmi_keys"
PREFIX, VARIABLE = "option.", "OPTION_"
HANDLER = "djl_python."
BATCH = "option.rolling_batch"
NAMED = re.compile(r"(?<![\d.])(?P<version>0\.\d+\.\d+)-(?P<kind>deepspeed|lmi|tensorrtllm|neuronx|fastertransformer)")
OLD_ENGINES = ("DeepSpeed", "FasterTransformer", "PyTorch", "OnnxRuntime", "TensorFlow", "Rust", "TensorRT", "XGBoost")
TRANSLATING = OLD_ENGINES[2:]
APART = re.compile(r"\w+(?: - \w+)+(?:/\w[\w.-]*)?")
NEAR = 0.87
LEAST = 8
CASE = ("entryPoint", "modelName", "modeName", "pythonExecutable")
WRONG_PREFIX = re.compile(r"(?P<prefix>[A-Za-z]{2,9}?)(?P<sign>[._])(?P<name>[A-Za-z]\w*)")
OPTION, ALIKE, LESS_ALIKE, ALSO = "option", 0.83, 0.75, ("opt", "opts")


class KeyLine(NamedTuple):
    """One setting; ``name``: without ``option.``, empty for another kind of key."""

    key: str
    name: str
    value: Word
    file: str


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    if not document.properties and not document.lmi_environment:
        return
    version = _version(document)
    told = image_of(document, platform)
    image = told.tag if (told.said or not platform.guessed) and not told.others else ""
    for file in document.properties:
        settings = list(lines(file))
        engine = next((one.value.text for one in settings if one.key == "engine"), "")
        entry = next((one.value.text for one in settings if one.name.lower() == "entrypoint"), HANDLER)
        is_translated = engine in TRANSLATING  # a translator takes the keys without the prefix
        is_own = not entry.startswith(HANDLER)  # a handler of one's own reads keys of its own
        for line in settings:
            yield from _apart(line, release)
            if right := right_prefix(line.key):
                about: dict[str, Any] = {"key": line.key, "prefix": prefix_of(line.key), "near": right}
                yield from drafts(release, "lmi-key-gone", line.value, form="prefix", file=line.file, **about)
                continue
            if not (is_own or is_translated) and not line.name and _lacks_prefix(line):
                known: dict[str, Any] = {"key": line.key, "near": f"{PREFIX}{line.key}"}
                yield from drafts(release, "lmi-key-gone", line.value, form="no prefix", file=line.file, **known)
            if line.name and engine not in OLD_ENGINES:
                found = _key(line, version, release, image)
                yield from found if not is_own else (draft._replace(severity="info") for draft in found)
        yield from _handler(settings, version, release)
        yield from _mpi(settings, engine, version, release, image)
    for name, value in document.lmi_environment.items():
        if name.startswith(VARIABLE):
            inside = name.removeprefix(VARIABLE).lower()
            if inside != "engine":
                yield from _key(KeyLine(name, inside, value, ""), version, release, image)


def _version(document: Document) -> str:
    """The version of LMI that the text names, in an image or in a comment; empty for none and for several."""
    found = {match["version"] for _, text in document.texts for match in NAMED.finditer(text)}
    return found.pop() if len(found) == 1 else ""


def lines(file: PropertiesFile) -> Iterator[KeyLine]:
    """The settings of a file, without what a comment behind the value says."""
    for match in SETTING.finditer(file.text):
        value = match["value"].partition(" #")[0].rstrip()
        place = Word(value, file.line_at(match.start("key")), 1)
        name = match["key"].removeprefix(PREFIX) if match["key"].startswith(PREFIX) else ""
        yield KeyLine(match["key"], name, place, file.path)


def _apart(line: KeyLine, release: str) -> Iterator[Draft]:
    """``lmi - dist``: a formatter took the hyphen for a minus."""
    text = line.value.text.removeprefix(HANDLER)
    if APART.fullmatch(text):
        known: dict[str, Any] = {
            "key": line.key,
            "value": line.value.text,
            "right": line.value.text.replace(" - ", "-"),
        }
        yield from drafts(release, "lmi-value-apart", line.value, file=line.file, **known)


def _key(line: KeyLine, version: str, release: str, image: str) -> Iterator[Draft]:
    facts, table = lmi_keys(), rule_data(FAMILY)["instead"]
    span = facts.key(line.name)
    about: dict[str, Any] = {"key": line.key, "version": version}
    if line.name in table and (span is None or not version or facts.is_over(span, version) or line.name == "engine"):
        entry = table[line.name]
        if not version or facts.place(version) >= facts.place(entry["since"]) or facts.place(version) < 0:
            known = {**about, "right": entry["right"], "since": entry["since"]}
            if not _is_said(image, line.name):
                yield from drafts(release, "lmi-key-gone", line.value, file=line.file, **known)
        return
    if span is not None:
        if version and facts.is_over(span, version) and not _reads(image, line.name):
            known = {**about, "last": span.last}
            yield from drafts(release, "lmi-key-gone", line.value, form="last", file=line.file, **known)
        return
    if image or line.name in lmi_facts().engine_args.fields or "." in line.name or is_open(line.name):
        return
    if near := _near(line.name, environment=line.key.startswith(VARIABLE)):
        known = {**about, "near": f"{PREFIX}{near}" if line.key.startswith(PREFIX) else f"{VARIABLE}{near.upper()}"}
        yield from drafts(release, "lmi-key-gone", line.value, form="near", file=line.file, **known)


def prefix_of(key: str) -> str:
    """``opiton.`` of ``opiton.model_id``."""
    match = WRONG_PREFIX.match(key)
    return f"{match['prefix']}{match['sign']}" if match else ""


@lru_cache(maxsize=512)
def right_prefix(key: str) -> str:
    """The key that ``opiton.model_id``, ``options.model_id`` or ``option_model_id`` stands for; "" for any other."""
    match = WRONG_PREFIX.fullmatch(key)
    if match is None or key.startswith(PREFIX):
        return ""
    word, name = match["prefix"].lower(), match["name"]
    is_key = _is_key(name) or _is_key(name.lower())
    least = LESS_ALIKE if is_key else ALIKE
    if word != OPTION and word not in ALSO and SequenceMatcher(None, word, OPTION).ratio() < least:
        return ""
    is_sure = match["sign"] == "." and word not in ALSO
    return f"{PREFIX}{name if _is_key(name) else name.lower()}" if is_key or is_sure else ""


def _is_key(name: str) -> bool:
    """True for a key of some version, for one that was renamed, and for what the engine takes."""
    known = lmi_keys().key(name) is not None or name in rule_data(FAMILY)["instead"]
    return known or name in lmi_facts().engine_args.fields


def _lacks_prefix(line: KeyLine) -> bool:
    """True for ``trust_remote_code=true``."""
    if line.key in lmi_facts().server_keys.names or is_open(line.key):
        return False
    return lmi_keys().key(line.key) is not None or line.key in lmi_facts().engine_args.fields


def _reads(image: str, name: str) -> bool:
    """True if the image itself, or its engine, takes the key, whatever the documents say of it."""
    from trtllm_check.recipes.properties import reads

    return bool(image) and reads(lmi_image(image), f"{PREFIX}{name}")


def _is_said(image: str, name: str) -> bool:
    """True for a key that the facts of the image's family name, which the rules on one image judge."""
    return bool(image) and f"{PREFIX}{name}" in lmi_facts().family(lmi_image(image)).keys


def _near(name: str, *, environment: bool) -> str:
    """A key of some version that is spelt alike, or that the name goes on from."""
    known = [*lmi_keys().keys, *lmi_facts().engine_args.fields]
    if environment and name in (one.lower() for one in CASE):
        return ""
    close = get_close_matches(name, known, 1, NEAR)
    longer = [one for one in known if len(one) >= LEAST and name.startswith(f"{one}_")]
    return close[0] if close else max(longer, key=len, default="")


def _handler(lines: list[KeyLine], version: str, release: str) -> Iterator[Draft]:
    facts = lmi_keys()
    batch = next((one.value.text for one in lines if one.name == "rolling_batch"), "")
    for line in lines:
        text = line.value.text
        if line.name not in ("entryPoint", "entrypoint") or not text.startswith(HANDLER) or APART.search(text):
            continue
        name = text.removeprefix(HANDLER)
        span = facts.handler(name)
        known: dict[str, Any] = {"value": text, "version": version or facts.versions.split()[-1]}
        if span is None and not is_open(text):
            close = get_close_matches(name, facts.handlers, 1, NEAR)
            known["right"] = f"{HANDLER}{close[0]}" if close else "djl_python.huggingface"
            yield from drafts(release, "lmi-handler", line.value, file=line.file, **known)
        elif span is not None and version and (facts.is_over(span, version) or facts.is_ahead(span, version)):
            known["has"] = f"{span.first} to {span.last}" if span.last else f"{span.first} on"
            yield from drafts(release, "lmi-handler", line.value, form="version", file=line.file, **known)
        elif name == "deepspeed" and batch in ("lmi-dist", "vllm", "scheduler"):
            known["batch"] = batch
            yield from drafts(release, "lmi-handler", line.value, form="batch", file=line.file, **known)


def _mpi(lines: list[KeyLine], engine: str, version: str, release: str, image: str) -> Iterator[Draft]:
    """A batch of a version that wants MPI, and one that the version does not have."""
    batch = next((one for one in lines if one.name == "rolling_batch"), None)
    mode = next((one.value.text for one in lines if one.name == "mpi_mode"), "")
    if batch is None or not version or lmi_keys().place(version) < 0:
        return
    data = rule_data(FAMILY)
    wants = data["wants_mpi"].get(batch.value.text)
    if wants and _holds(wants, version) and engine == "Python" and mode.lower() != "true":
        place = next(one for one in lines if one.key == "engine")
        known: dict[str, Any] = {"batch": batch.value.text, "version": version}
        yield from drafts(release, "lmi-batch", place.value, form="mpi", file=place.file, **known)
    span = data["batches"].get(batch.value.text)
    if span and not _holds(span, version) and not _starts(image, batch.value.text):
        known = {"batch": batch.value.text, "version": version, "span": span.replace("..", " to ").removesuffix(" to ")}
        yield from drafts(release, "lmi-batch", batch.value, file=batch.file, **known)


def _starts(image: str, batch: str) -> bool:
    """True for an image that starts with the batch, be it with another in its place."""
    from trtllm_check.recipes.properties import check_properties

    return bool(image) and all(one.kind != "refused" for one in check_properties(f"{BATCH}={batch}", image))


def _holds(span: str, version: str) -> bool:
    first, _, last = span.partition("..")
    one = ImageSpan(first, last)
    facts = lmi_keys()
    return not facts.is_over(one, version) and not facts.is_ahead(one, version)
