"""The processes of FastChat, which find each other by addresses: a controller, its workers, and what asks it."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.shell.words import Word

RULE = "fastchat-address"
MODULE = re.compile(
    r"fastchat\.serve\.(?P<part>controller|\w*worker|openai_api_server|gradio_web_server\w*|test_message)"
)
# fastchat/serve/controller.py and model_worker.py, vllm_worker.py: defaults of --port.
CONTROLLER, CONTROLLER_PORT, WORKER_PORT = "controller", 21001, 21002
ADDRESS = re.compile(r"https?://(?P<host>[\w.-]+):(?P<port>\d{2,5})/?")


class _Process(NamedTuple):
    part: str
    at: Word
    file: str
    options: dict[str, Word]

    def port(self, default: int) -> int:
        """0 for one that the text does not tell."""
        word = self.options.get("--port")
        return default if word is None else int(word.text) if word.text.isdecimal() else 0


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    processes = list(_processes(document))
    ports = {one.port(CONTROLLER_PORT) for one in processes if one.part == CONTROLLER}
    release = platform.release.name
    for one in processes:
        if one.part == CONTROLLER:
            continue
        for flag in ("--controller-address", "--controller"):
            word = one.options.get(flag)
            address = ADDRESS.fullmatch(word.text) if word is not None else None
            if word is not None and address is not None and len(ports) == 1 and int(address["port"]) not in ports | {0}:
                known: dict[str, Any] = {"part": one.part, "flag": flag, "port": address["port"], "listens": min(ports)}
                if 0 not in ports:
                    yield from drafts(release, RULE, word, file=one.file, **known)
        word = one.options.get("--worker-address")
        address = ADDRESS.fullmatch(word.text) if word is not None else None
        listens = one.port(WORKER_PORT)
        if word is not None and address is not None and listens and int(address["port"]) != listens:
            known = {"part": one.part, "port": address["port"], "listens": listens}
            yield from drafts(release, RULE, word, form="worker", file=one.file, **known)


def _processes(document: Document) -> Iterator[_Process]:
    for command in document.commands:
        words = command.words
        for number, word in enumerate(words):
            match = MODULE.fullmatch(word.text)
            if match is None:
                continue
            options: dict[str, Word] = {}
            for at, option in enumerate(words[number + 1 :], number + 1):
                name, sign, value = option.text.partition("=")
                if name.startswith("--"):
                    following = words[at + 1] if at + 1 < len(words) else None
                    given = option.part(len(name) + 1) if sign and value else following
                    if given is not None:
                        options[name] = given
            yield _Process(match["part"], word, command.file, options)
            break
