"""Kubernetes' secrets that a page makes with kubectl, and the keys that its manifests read from them."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.shell.words import ShellCommand, Word

CREATE = ["create", "secret", "generic"]
NAME, VALUE = r"[\w.-]+", r"[\"']?(?P<{}>[\w.-]+)[\"']?"
REFERENCE = re.compile(
    r"secretKeyRef[\"']?:\s*\{?\s*(?:"
    + rf"[\"']?name[\"']?:\s*{VALUE.format('name')},?\s+[\"']?key[\"']?:\s*{VALUE.format('key')}"
    + rf"|[\"']?key[\"']?:\s*{VALUE.format('first')},?\s+[\"']?name[\"']?:\s*{VALUE.format('second')})"
)
SOURCES = ("--from-literal", "--from-file", "--from-env-file")


class MadeSecret(NamedTuple):
    """``keys``: each with its place."""

    name: str
    keys: dict[str, Word]
    file: str


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family: one for each key that is read, and that the only secret of the name has not."""
    made = [secret for command in document.commands if (secret := _made(command))]
    read = [pair for _, text in document.texts for pair in _read(text)]
    for secret in made:
        if sum(other.name == secret.name for other in made) > 1:
            continue
        for key in dict.fromkeys(key for name, key in read if name == secret.name and key not in secret.keys):
            known: dict[str, Any] = {"secret": secret.name, "key": key, "keys": ", ".join(secret.keys)}
            place = next(iter(secret.keys.values()))
            yield from drafts(platform.release.name, "secret-without-key", place, file=secret.file, **known)


def _made(command: ShellCommand) -> MadeSecret | None:
    """The secret of ``kubectl create secret generic NAME``, where all of its keys are written."""
    words = list(command.words)
    texts = [word.text for word in words]
    if not texts or texts[0] != "kubectl" or not any(texts[at : at + 3] == CREATE for at in range(len(texts))):
        return None
    behind = words[next(at for at in range(len(texts)) if texts[at : at + 3] == CREATE) + 3 :]
    if not behind or not re.fullmatch(NAME, behind[0].text):
        return None
    keys: dict[str, Word] = {}
    for at, word in enumerate(behind):
        option, has_value, value = word.text.partition("=")
        if option not in SOURCES:
            continue
        given = value if has_value else behind[at + 1].text if at + 1 < len(behind) else ""
        key, is_named, _ = given.partition("=")
        if not is_named or option == "--from-env-file" or is_open(key):
            return None
        keys[key] = word
    return MadeSecret(behind[0].text, keys, command.file) if keys else None


def _read(text: str) -> Iterator[tuple[str, str]]:
    for found in REFERENCE.finditer(text):
        yield (found["name"], found["key"]) if found["name"] else (found["second"], found["first"])
