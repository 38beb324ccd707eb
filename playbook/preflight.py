"""Is this machine ready for a profile? Each check says what it found, what is needed, and what to do."""

import platform
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

from playbook.lanes.base import lane_of
from playbook.profile import Profile
from serving_base.checks import Check, verdict
from serving_base.facts import TRITON_PORTS

__all__ = ["Check", "check_machine"]

PORT_NAMES = ("HTTP", "gRPC", "metrics")


def check_machine(profile: Profile, workspace: Path) -> list[Check]:
    """Check this machine for ``profile``: reads only and downloads nothing.

    On a GPU machine whose container is there, the container itself is asked, by one command that ends at once.
    """
    return [*_host(), *_python(), *lane_of(profile.lane).preflight(profile, workspace), *_ports()]


def _host() -> Iterator[Check]:
    system, machine = platform.system(), platform.machine()
    yield Check(
        "system",
        f"{system} {machine}",
        "Linux x86_64",
        verdict((system, machine) == ("Linux", "x86_64")),
        "use a Linux machine with an x86-64 processor; the wheels and the server exist for nothing else",
    )


def _python() -> Iterator[Check]:
    version = sys.version_info
    yield Check(
        "python",
        platform.python_version(),
        ">= 3.11, < 3.13",
        verdict((3, 11) <= version[:2] < (3, 13)),
        "run python3 playbook/bootstrap.py with Python 3.11",
    )


def _ports() -> Iterator[Check]:
    for name, port in zip(PORT_NAMES, TRITON_PORTS, strict=True):
        free = port_is_free(port)
        yield Check(
            f"port {port} ({name})",
            "free" if free else "taken",
            "free",
            "ok" if free else "note",
            "" if free else "another one is taken when the server starts",
        )


def port_is_free(port: int) -> bool:
    """True when a server on the loopback could listen on ``port`` now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return probe.connect_ex(("127.0.0.1", port)) != 0
