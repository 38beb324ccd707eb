"""SkyPilot's tasks: the port that they open against the one that their server listens on."""

import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.reservations import OF_SKYPILOT
from trtllm_check.lint.rules.served import Around, ServedModel, served
from trtllm_check.lint.shell.words import word_at

PORTS = re.compile(
    r"^[ ]+ports:(?:[ \t]*|[ \t]*\n[ ]+-[ ]*|[ \t]*\[[ ]*)[\"']?(?P<port>\d{2,5})[\"']?[ \t]*\]?[ \t]*(?:#[^\n]*)?$",
    re.M,
)
ANY_PORTS = re.compile(r"^[ ]+ports:", re.MULTILINE)
SERVERS = ("vllm serve", "trtllm-serve")
DEFAULT = 8000
BETWEEN = re.compile(
    r"nginx|proxy|router|gateway|litellm|gradio|openai_chatbot|docker|streamlit|uvicorn", re.IGNORECASE
)


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    around = Around.of(document)
    starts = [one for one in served(document) if one.tool in SERVERS and not one.is_part]
    for file, text in document.texts:
        here = [one for one in starts if one.file == file]
        opened = list(PORTS.finditer(text)) if len(here) == 1 and OF_SKYPILOT.search(text) else []
        if len(opened) != 1 or len(ANY_PORTS.findall(text)) != 1 or BETWEEN.search(text):
            continue
        port = _port(here[0]) if around.docker(here[0]) is None else None
        if port is not None and port != int(opened[0]["port"]):
            place = word_at(text, opened[0].start("port"), opened[0]["port"])
            known: dict[str, Any] = {"port": port, "published": opened[0]["port"]}
            yield from drafts(
                platform.release.name, "server-port-not-published", place, form="SkyPilot", file=file, **known
            )


def _port(one: ServedModel) -> int | None:
    """Where it listens; None where a variable or a file says it."""
    if "config" in one.options:
        return None
    return one.number("port") if "port" in one.options else DEFAULT
