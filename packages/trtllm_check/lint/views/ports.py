"""The HTTP ports on which the servers of a text listen, as a client outside the container sees them."""

from collections.abc import Iterator

from trtllm_check.lint.commands.invocations import Invocation
from trtllm_check.lint.documents.document import Document

TRITON_PORT = 8000
SERVERS = ("launch_triton_server.py", "tritonserver")
PORT_FLAGS = ("--http_port", "--http-port")


def serves(document: Document) -> bool:
    """True if the text starts a Triton server."""
    return bool(document.of(*SERVERS))


def http_port(server: Invocation) -> int | None:
    """The port that ``server`` listens on; None where a variable says it."""
    value = server.value(*PORT_FLAGS)
    return TRITON_PORT if value is None else _number(value)


def server_ports(document: Document) -> list[int]:
    """8000, every port that a server is told, and the host's side of every published one."""
    told = [port for server in document.of(*SERVERS) if (port := http_port(server)) is not None]
    published = [host for docker in document.of("docker") for host, _ in published_ports(docker)]
    return list(dict.fromkeys([*told, *published, TRITON_PORT]))


def published_ports(docker: Invocation) -> Iterator[tuple[int, int]]:
    """Host port and container port of each ``-p``; ranges one by one."""
    for word in docker.values("-p", "--publish"):
        host, sign, inside = word.text.partition("/")[0].rpartition(":")
        if not sign:
            continue
        yield from zip(_range(host.rpartition(":")[2]), _range(inside), strict=False)


def _range(text: str) -> range:
    first, sign, last = text.partition("-")
    start, end = _number(first), _number(last if sign else first)
    return range(0) if start is None or end is None or end - start > 1_000 else range(start, end + 1)


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else None
