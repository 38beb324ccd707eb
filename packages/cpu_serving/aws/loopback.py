"""Keeps a process on this machine: no address but the loopback can be bound, connected to or looked up."""

import ipaddress
import socket
import sys
from typing import Any
from urllib.parse import urlsplit

from serving_base.errors import EnvironmentProblem

HOST = "127.0.0.1"
NAMES = frozenset({"localhost", ""})


class NotLoopback(EnvironmentProblem):
    """Something would have left this machine."""


def confine_process() -> None:
    """From now on Python's sockets in this process refuse every other address; it cannot be undone.

    An audit hook (PEP 578): libraries get around it only with sockets of their own, outside Python's module.
    """
    sys.addaudithook(_watch)


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if event in ("socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg"):
        opened, address = arguments
        if opened.family in (socket.AF_INET, socket.AF_INET6) and address is not None:
            require_loopback(str(address[0]), wanted=event.partition(".")[2])
    elif event == "socket.getaddrinfo" and arguments[0] is not None:
        host = arguments[0].decode() if isinstance(arguments[0], bytes) else str(arguments[0])
        require_loopback(host, wanted="look up")


def require_loopback(host: str, *, wanted: str = "connect to") -> None:
    """Raise :class:`NotLoopback` unless ``host`` is this machine's loopback."""
    if host in NAMES and wanted != "bind":
        return
    try:
        if ipaddress.ip_address(host).is_loopback:
            return
    except ValueError:
        pass  # a name: those that mean the loopback are above
    raise NotLoopback(
        f"refused to {wanted} {host or 'every address'}",
        why="the local cloud never leaves this machine",
        fix=f"use {HOST}",
    )


def require_loopback_url(url: str) -> None:
    """Raise :class:`NotLoopback` unless ``url`` is plain HTTP to the loopback."""
    parts = urlsplit(url)
    if parts.scheme != "http":
        raise NotLoopback(f"refused {url}", why="the local cloud speaks HTTP on the loopback only", fix=f"use {HOST}")
    require_loopback(parts.hostname or "0.0.0.0")
