"""What the servers of both lanes have in common: their ports and addresses, and the account of their end."""

from dataclasses import dataclass

from playbook.errors import ServerError
from playbook.processes import free_port

HOST = "127.0.0.1"
Ports = tuple[int, int, int]
"""HTTP, gRPC, metrics."""


@dataclass(frozen=True)
class StopReport:
    """How a server ended. ``stubs`` and ``regions`` outlived it and were removed; the normal case is none."""

    seconds: float
    returncode: int
    stubs: tuple[int, ...] = ()
    regions: tuple[str, ...] = ()


def choose_ports(wanted: Ports) -> Ports:
    """``wanted`` where they are free, else others."""
    http = free_port(wanted[0])
    grpc = free_port(wanted[1], taken=(http,))
    return http, grpc, free_port(wanted[2], taken=(http, grpc))


class LoopbackServer:
    """The addresses of a server on this machine; :class:`ServerError` before it has ports."""

    _ports: Ports | None = None

    @property
    def ports(self) -> Ports:
        if self._ports is None:
            raise ServerError("the server has no port yet", fix="start() it")
        return self._ports

    @property
    def http_url(self) -> str:
        return f"http://{HOST}:{self.ports[0]}"

    @property
    def grpc_url(self) -> str:
        """Host and port, as tritonclient wants it."""
        return f"{HOST}:{self.ports[1]}"

    @property
    def metrics_url(self) -> str:
        return f"http://{HOST}:{self.ports[2]}/metrics"
