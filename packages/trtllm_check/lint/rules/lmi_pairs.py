"""Settings of an LMI container that do not go together, and values whose form changed."""

import re
from collections.abc import Iterator

from trtllm_check.lint.document import Document, PropertiesFile
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.shell.words import Word

SETTING = re.compile(r"^[ \t]*(?P<key>[\w.]+)[ \t]*[=:][ \t]*(?P<value>[^\n]*?)[ \t\r]*$", re.MULTILINE)
PAIRS = re.compile(r"\w+=\d+(?:,\w+=\d+)*")
OLD = re.compile(r"djl-inference:0\.(?:2\d|3[0-3])\.|djl-serving:0\.(?:2\d|3[0-3])\.")
LIMIT = "limit_mm_per_prompt"


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    is_old = any(OLD.search(word.text) for word in document.images)
    for file in document.properties:
        found = _settings(file)
        engine, batch = found.get("engine"), found.get("option.rolling_batch")
        if engine and batch and engine.text == "MPI" and batch.text == "vllm":
            yield from drafts(release, "lmi-engine-of-batch", engine, file=file.path)
        if not is_old and (limit := found.get(f"option.{LIMIT}")):
            yield from _limit(limit, file.path, release)
    if not is_old and (value := document.lmi_environment.get(f"OPTION_{LIMIT.upper()}")):
        yield from _limit(value, "", release)


def _settings(file: PropertiesFile) -> dict[str, Word]:
    found: dict[str, Word] = {}
    for match in SETTING.finditer(file.text):
        line = file.line + file.text.count("\n", 0, match.start("value"))
        found[match["key"]] = Word(match["value"], line, 1)
    return found


def _limit(value: Word, file: str, release: str) -> Iterator[Draft]:
    if PAIRS.fullmatch(value.text) and not is_open(value.text):
        pairs = (part.partition("=") for part in value.text.split(","))
        right = "{" + ", ".join(f'"{name}": {number}' for name, _, number in pairs) + "}"
        yield from drafts(release, "lmi-value-of-earlier-vllm", value, file=file, value=value.text, right=right)
