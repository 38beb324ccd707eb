"""Clients of Triton's gRPC port on the host, and the containers that do not publish it."""

import re
from collections.abc import Iterator
from typing import Any

from serving_base.facts import TRITON_PORTS
from trtllm_check.lint.document import Document
from trtllm_check.lint.endpoints import SERVERS, published_ports
from trtllm_check.lint.finding import Draft, Edit, Platform, Put, drafts
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.shell.words import Word

_, GRPC_PORT, _ = TRITON_PORTS
ADDRESS = re.compile(rf"(?:grpc://)?(?:localhost|127\.0\.0\.1):{GRPC_PORT}")
OTHER_WAYS = ("-P", "--publish-all")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """The first client of a page that does not reach the server."""
    servers = list(_servers(document))
    if not servers or any(_publishes(docker) for docker in servers):
        return
    client = next(_clients(document), None)
    if client is not None:
        docker = servers[0]
        edits: tuple[Edit, ...] = () if docker.has("-p", "--publish") else (Put("-p", f"{GRPC_PORT}:{GRPC_PORT}"),)
        known: dict[str, Any] = {"port": GRPC_PORT, "inside": GRPC_PORT}
        yield from drafts(
            platform.release.name, "server-port-not-published", docker.path, edits=edits, invocation=docker, **known
        )


def _servers(document: Document) -> Iterator[Invocation]:
    """The docker run of the text that start Triton themselves, on its own ports."""
    for docker in document.of("docker"):
        for one in document.lookups.started_by(docker.path):
            if one.tool in SERVERS and not one.has("--grpc-port", "--grpc_port", "--allow-grpc"):
                yield docker


def _publishes(docker: Invocation) -> bool:
    """True also where it is not known."""
    network = docker.value("--net", "--network")
    published = docker.values("-p", "--publish")
    return (
        network not in (None, "bridge")
        or docker.has(*OTHER_WAYS)
        or any(is_open(word.text) for word in published)
        or any(host == GRPC_PORT for host, _ in published_ports(docker))
    )


def _clients(document: Document) -> Iterator[Word]:
    """Words with the address, of commands that run in no container."""
    inside = {id(one.command) for one in document.invocations if one.image}
    for command in document.commands:
        if id(command) not in inside and not command.image:
            for word in command.words[1:]:
                if ADDRESS.fullmatch(word.text):
                    yield word
