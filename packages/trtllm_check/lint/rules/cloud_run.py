"""gcloud run deploy of vLLM: the port that Cloud Run waits for against the one that the server listens on."""

import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.programs import VLLM_IMAGE
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.shell.words import Word

DEFAULT, VLLM_PORT = "8080", "8000"
LISTENS = re.compile(r"--port[=, ]+(?P<port>\d+)")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    for command in document.commands:
        words = list(command.words)
        texts = [word.text for word in words]
        if texts[:3] not in (["gcloud", "run", "deploy"], ["gcloud", "beta", "run"]):
            continue
        image, args, port = (_value(words, name) for name in ("--image", "--args", "--port"))
        if image is None or not VLLM_IMAGE.search(image.text) or _value(words, "--command") is not None:
            continue
        if "--container" in texts or any(one is not None and is_open(one.text) for one in (args, port)):
            continue
        given = LISTENS.search(args.text) if args is not None else None
        listens = given["port"] if given else VLLM_PORT
        waits = port.text if port is not None else DEFAULT
        if waits != listens and waits.isdecimal() and "$" not in (args.text if args is not None else ""):
            known: dict[str, Any] = {"port": waits, "listens": listens}
            yield from drafts(platform.release.name, "cloud-run", port or image, file=command.file, **known)


def _value(words: list[Word], name: str) -> Word | None:
    for number, word in enumerate(words):
        if word.text.startswith(f"{name}="):
            return word.part(len(name) + 1)
        if word.text == name and number + 1 < len(words):
            return words[number + 1]
    return None
