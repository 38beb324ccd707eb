"""Words around the settings of an LMI container: names of engines in branches and choices, keys of others."""

import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document, PropertiesFile
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.rules.lmi_keys import NAMED, KeyLine, lines
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.rules.near_names import is_slip
from trtllm_check.lint.shell.words import Word, word_at
from trtllm_check.lint.supposing import supposed
from trtllm_check.releases.lmi import lmi_facts

FAMILY, RULE, OURS = "lmi_words", "lmi-word", "tensorrt_llm"
BATCH, VARIABLE, DEEPSPEED = "option.rolling_batch", "OPTION_ROLLING_BATCH", "DeepSpeed"
# A variable of the program that becomes the batch, what it is compared with, and what makes another word of it.
HANDED = re.compile(
    r"(?:[\"']OPTION_ROLLING_BATCH[\"'][ \t]*(?:\][ \t]*=|:)|\bOPTION_ROLLING_BATCH[ \t]*=)[ \t]*"
    r"(?P<name>[a-z_]\w*)[ \t]*(?=[,})\n#]|$)"
)
COMPARED = (
    r"(?<![\w.]){name}[ \t]*==[ \t]*(?P<quote>[\"'])(?P<word>[\w.-]+)(?P=quote)"
    r"|(?P<other>[\"'])(?P<first>[\w.-]+)(?P=other)[ \t]*==[ \t]*{name}(?![\w.(])"
    r"|(?<![\w.]){name}(?:[ \t]*:[ \t]*str)?[ \t]*=[ \t]*(?P<third>[\"'])(?P<given>[\w.-]+)(?P=third)"
)
LISTED = r"(?<![\w.]){name}[ \t]+in[ \t]*[\[(](?P<list>[^\])\n]*)[\])]"
QUOTED = re.compile(r"[\"'](?P<word>[\w.-]+)[\"']")
CHOICES = re.compile(
    r"(?P<key>option\.rolling_batch[ \t]*[=:]|OPTION_ROLLING_BATCH[\"']?[ \t]*[=:])[ \t]*[\"']?"
    r"[<{(\[](?P<list>[\w.-]+(?:[ \t]*\|[ \t]*[\w.-]+)+)[>})\]]"
)
SHORT = 4
IS = r"[`\"'*=: ]{0,4}(?:(?:to|be|is|as|set|with)[ ]+){0,3}[`\"'*]{0,3}"
TOGETHER = re.compile(
    rf"(?<![\w.])(?P<first>engine{IS}MPI\b(?:[^.\n]|\.(?=\w)){{0,60}}?\brolling[_ -]?batch{IS}vllm\b"
    rf"|(?:option\.)?rolling[_ -]?batch{IS}vllm\b(?:[^.\n]|\.(?=\w)){{0,60}}?(?<![\w.])engine{IS}MPI\b)",
    re.IGNORECASE,
)
DENIED = re.compile(
    r"\b(?:not|never|cannot|can't|don't|instead|unsupported|fails?|error|wrong|from|no longer)\b", re.IGNORECASE
)
MODELS = ("OPTION_MODEL_ID", "HF_MODEL_ID")
# The TensorRT-LLM of an image, and the one that the path of an artifact names.
BUILT_FOR = re.compile(r"(?<![\d.])0\.\d+\.\d+-tensorrtllm(?P<version>\d+\.\d+\.\d+)")
MADE_WITH = re.compile(
    r"(?:trt-?llm|tensorrt[-_]?llm)(?:[-_]?engines?)?[-_/]?v?(?P<version>\d\.\d{1,2}(?:\.\d+)?)(?=[/_-]|$)",
    re.IGNORECASE,
)
RETRIEVED = re.compile(r"[\"']djl-[a-z]+\\?[\"'][^)]{0,200}\bversion\s*=\s*\\?[\"']0\.\d+\.\d+", re.DOTALL)
LONG_GONE = "deepspeed"  # the batch that no image has had since 0.28.0


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    value = document.lmi_environment.get(VARIABLE)
    is_told = value is not None and value.text != "" and not is_open(value.text)
    for file, text in document.texts:
        yield from _together(text, file, release)
        if VARIABLE in text and not is_told:
            yield from _branches(text, file, release)
        for match in CHOICES.finditer(text) if BATCH in text or VARIABLE in text else ():
            yield from _choices(text, file, match, release)
    for one in document.properties:
        yield from _keys(one, release)
    yield from _engines(document, release)
    names_none = not document.images and not any(
        NAMED.search(text) or RETRIEVED.search(text) for _, text in document.texts
    )
    if names_none and (platform.guessed or supposed(OURS)):  # else the facts on the image speak
        yield from _gone(document, release)


def _together(text: str, file: str, release: str) -> Iterator[Draft]:
    """A sentence that tells its reader to take the engine MPI and vLLM's batch."""
    for match in TOGETHER.finditer(text) if "MPI" in text else ():
        line = text[text.rfind("\n", 0, match.start()) + 1 : (text + "\n").index("\n", match.end())]
        if not DENIED.search(line):
            place = word_at(text, match.start(), match[0])
            yield from drafts(release, RULE, place, form="together", file=file)


def _branches(text: str, file: str, release: str) -> Iterator[Draft]:
    """``if engine == "trt-llm"`` where ``engine`` becomes the batch, and ``elif engine == "llm-dist"``."""
    for handed in {match["name"]: match for match in HANDED.finditer(text)}.values():
        found = [
            (match[group], match.start(group))
            for match in re.finditer(COMPARED.format(name=handed["name"]), text)
            for group in ("word", "first", "given")
            if match[group]
        ]
        for several in re.finditer(LISTED.format(name=handed["name"]), text):
            start = several.start("list")
            found += [(one["word"], start + one.start("word")) for one in QUOTED.finditer(several["list"])]
        is_mapped = re.search(rf"(?<![\w.]){handed['name']}[ \t]*=[ \t]*[^=\s\"']", text) is not None
        words = {word for word, _ in found}
        said: set[str] = set()
        for word, start in found if not is_mapped else ():
            meant = _meant(word)
            if not meant or word in said:
                continue
            said.add(word)
            known: dict[str, Any] = {"value": word, "right": meant, "name": handed["name"]}
            if not _is_called(word) or meant in words:
                yield from drafts(release, RULE, word_at(text, start, word), form="branch", file=file, **known)
            elif not _is_set(text, handed["name"], meant):
                place = word_at(text, handed.start("name"), handed["name"])
                yield from drafts(release, RULE, place, form="handed", file=file, **known)


def _is_set(text: str, name: str, value: str) -> bool:
    """True where the program writes the right word into the variable, too."""
    return re.search(rf"(?<![\w.]){name}[ \t]*=[ \t]*[\"']{re.escape(value)}[\"']", text) is not None


def _plain(word: str) -> str:
    return re.sub(r"[-_.]", "", word.lower())


def _is_called(word: str) -> bool:
    """True for a name that people give the engine, and that a caller may pass."""
    return _plain(word) in rule_data(FAMILY)["called"]


def _meant(word: str) -> str:
    """The batch that a word stands for, "" for a batch and for what is none."""
    data = rule_data(FAMILY)
    batches = data["batches"].split()
    if word in batches:
        return ""
    slip = [one for one in batches if len(one) > SHORT and is_slip(word, one)]
    return str(data["called"].get(_plain(word)) or data["slips"].get(_plain(word)) or (slip[0] if slip else ""))


def _choices(text: str, file: str, match: re.Match[str], release: str) -> Iterator[Draft]:
    """``option.rolling_batch=<auto|vllm|tensorrtllm>``."""
    for one in re.finditer(r"[\w.-]+", match["list"]):
        if meant := _meant(one[0]):
            place = word_at(text, match.start("list") + one.start(), one[0])
            known: dict[str, Any] = {"value": one[0], "right": meant}
            yield from drafts(release, RULE, place, form="choice", file=file, **known)


def _keys(file: PropertiesFile, release: str) -> Iterator[Draft]:
    """Settings of the endpoint, and those of TensorRT-LLM in a file for DeepSpeed."""
    found = list(lines(file))
    engine = next((one.value.text for one in found if one.key == "engine"), "")
    batch = next((one.value.text for one in found if one.key == BATCH), "")
    for one in found:
        if right := of_endpoint(one):
            known: dict[str, Any] = {"name": one.key, "right": right}
            yield from drafts(release, RULE, one.value, form="endpoint", file=file.path, **known)
        elif engine == DEEPSPEED and batch in ("", "auto", LONG_GONE, "disable") and _is_of_tensorrt(one):
            known = {"name": one.key, "value": one.value.text}
            yield from drafts(release, RULE, one.value, form="DeepSpeed", file=file.path, **known)


def of_endpoint(one: KeyLine) -> str:
    """What the endpoint's configuration calls a key that belongs there; "" for any other."""
    names: dict[str, str] = rule_data(FAMILY)["of_endpoint"]
    return names.get((one.name or one.key).lower(), "") if one.value.text else ""


def _is_of_tensorrt(one: KeyLine) -> bool:
    families = lmi_facts().families
    key = f"option.{one.name}"
    return bool(one.name) and key in families["toolkit"].keys and key not in families["deepspeed"].keys


def _engines(document: Document, release: str) -> Iterator[Draft]:
    """An artifact whose path names another version of TensorRT-LLM than the one image of the text has."""
    tags = {match["version"]: match[0] for _, text in document.texts for match in BUILT_FOR.finditer(text)}
    if len(tags) != 1:
        return
    ((version, tag),) = tags.items()
    found = [(file.path, one.value) for file in document.properties for one in lines(file) if one.name == "model_id"]
    found += [("", word) for name in MODELS if (word := document.lmi_environment.get(name)) is not None]
    for path, word in found:
        match = MADE_WITH.search(word.text)
        if match is not None and not f"{version}.".startswith(f"{match['version']}."):
            known: dict[str, Any] = {"path": word.text, "made": match["version"], "version": version, "image": tag}
            yield from drafts(release, RULE, word, form="engine", file=path, **known)


def _gone(document: Document, release: str) -> Iterator[Draft]:
    """The batch ``deepspeed``, in a text that names no image."""
    found: list[tuple[str, Word]] = [
        (file.path, one.value) for file in document.properties for one in lines(file) if one.key == BATCH
    ]
    if (value := document.lmi_environment.get(VARIABLE)) is not None:
        found.append(("", value))
    for path, word in found:
        if word.text == LONG_GONE:
            yield from drafts(release, RULE, word, form="gone", file=path, value=word.text)
