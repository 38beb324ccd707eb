"""Containers of servers, however they are started: docker run, compose, Kubernetes. What rules on them look up."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import NamedTuple

from trtllm_check.lint.carriers.workloads import ServedContainer
from trtllm_check.lint.document import Document
from trtllm_check.lint.endpoints import published_ports
from trtllm_check.lint.finding import rule_data
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.lookups import once
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.shell.words import Word

FAMILY = "boxes"
DRIVE = re.compile(r"^[A-Za-z]:(?=[\\/])")
PORT = re.compile(r"(?:^|\s)--(?:http[-_])?port(?:[ =]|\s+)[\"']?(?P<port>[^\s\"']+)")
SPREAD = re.compile(r"\bray (?:start|up)\b|multi-node-serving|torchrun|mpirun|haproxy|nginx|proxy", re.IGNORECASE)


OWN_PORTS = {
    "tgi": ("PORT",),
    "nim": ("NIM_HTTP_API_PORT", "NIM_SERVER_PORT"),
    "lmi": ("SERVING_INFERENCE_ADDRESS", "SERVING_HTTP_PORT"),
}
"""Variables that tell a server its port."""


class EngineOfImage(NamedTuple):
    """What is known of one engine's image. ``starts``: a command that starts the server, where one does not."""

    name: str
    image: re.Pattern[str]
    starts: re.Pattern[str]
    has_entry: bool
    port: int
    others: tuple[int, ...]
    paths: tuple[str, ...]
    program: str
    source: str


class Box(NamedTuple):
    """One container. ``words``: behind the image, or its whole command where the entry point is ``replaced``."""

    image: str
    words: tuple[Word, ...]
    replaced: bool
    settings: Mapping[str, Word]
    is_open: bool
    mounts: tuple[str, ...]
    ports: tuple[tuple[int, int], ...]
    open_ports: bool
    host_network: bool
    place: Word
    file: str
    docker: Invocation | None = None
    workload: ServedContainer | None = None

    @property
    def text(self) -> str:
        return " ".join(word.text for word in self.words)

    @property
    def engine(self) -> EngineOfImage | None:
        found = next((one for one in engines() if one.image.search(self.image)), None)
        if found is None and self.replaced:  # an image of somebody's own, and a command that tells
            found = next((one for one in engines() if one.starts.search(self.text)), None)
        return found

    @property
    def serves(self) -> EngineOfImage | None:
        """The engine whose server it starts; None where that is not plain to see."""
        engine = self.engine
        if engine is None or SPREAD.search(self.text):
            return None
        started = engine.starts.search(self.text) is not None
        return engine if started or (engine.has_entry and not self.replaced) else None

    def listens(self) -> tuple[int, ...]:
        """The ports that its server listens on; empty where that is not known."""
        engine = self.serves
        if engine is None or len(engine.starts.findall(self.text)) > 1:
            return ()
        given = PORT.findall(self.text)
        names = OWN_PORTS.get(engine.name, ())
        variable = next((self.settings[name] for name in names if name in self.settings), None)
        told = given or ([variable.text] if variable is not None else [])
        if engine.name == "lmi" and any("conf" in mount or mount.endswith("properties") for mount in self.mounts):
            return ()  # config.properties may tell another address
        if not told:
            return () if self.is_open and engine.name in OWN_PORTS else (engine.port, *engine.others)
        if len(told) > 1 or not told[0].isascii() or not told[0].isdecimal() or len(told[0]) > 5:
            return ()
        return (int(told[0]), *engine.others)


@cache
def engines() -> tuple[EngineOfImage, ...]:
    return tuple(
        EngineOfImage(
            name,
            re.compile(entry["image"]),
            re.compile(entry["starts"]),
            entry["has_entry"],
            entry["port"],
            tuple(entry.get("others", ())),
            tuple(entry.get("paths", ())),
            entry["program"],
            entry["source"],
        )
        for name, entry in rule_data(FAMILY)["engines"].items()
    )


@once
def boxes(document: Document) -> Iterator[Box]:
    """All containers of a text."""
    for docker in document.of("docker"):
        operands = docker.positional
        if len(operands) < 2 or operands[0].text not in ("run", "create"):
            continue
        words = docker.values("-p", "--publish")
        yield Box(
            operands[1].text,
            operands[2:],
            docker.has("--entrypoint"),
            dict(_named(word) for word in docker.values("-e", "--env")),
            docker.has("--env-file"),
            tuple(_inside(docker)),
            tuple(published_ports(docker)),
            any(is_open(word.text) for word in words),
            docker.value("--net", "--network") == "host",
            operands[1],
            docker.command.file,
            docker,
        )
    for one in document.workloads:
        yield Box(
            one.image,
            one.words,
            one.replaced,
            dict(one.settings),
            one.is_open,
            one.mounts,
            one.ports,
            False,
            one.host_network,
            one.place,
            one.file,
            None,
            one,
        )


def _named(word: Word) -> tuple[str, Word]:
    name, _, _ = word.text.partition("=")
    return name, word.part(len(name) + 1) if len(word.text) > len(name) + 1 else Word("", word.line, word.column)


def _inside(docker: Invocation) -> Iterator[str]:
    for word in docker.values("-v", "--volume"):
        parts = DRIVE.sub("", word.text).split(":")
        yield (parts[1] if len(parts) > 1 else parts[0]).rstrip("/")
    for word in docker.values("--mount"):
        fields = dict(part.partition("=")[::2] for part in word.text.split(","))
        yield (fields.get("target") or fields.get("destination") or fields.get("dst") or "").rstrip("/")
