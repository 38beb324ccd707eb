"""What the servers of both lanes have in common: addresses, the means to break them, and the account of their end."""

import signal
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from serving_base.errors import ServerError
from serving_base.processes import free_port

if TYPE_CHECKING:
    import psutil

HOST = "127.0.0.1"
TEXT_MODEL = "ensemble"
"""What every model repository of TensorRT-LLM's backend calls the model that takes and gives text."""
Ports = tuple[int, int, int]
"""HTTP, gRPC, metrics."""
SERVER_PROCESS = "tritonserver"
KILL_LIMIT_S = 10.0


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
    """A server on this machine: its addresses, and what can happen to it. :class:`ServerError` before it has started.

    ``kill``, ``pause`` and ``resume`` act on its processes; a server in a container acts on that instead.
    """

    _ports: Ports | None = None

    @property
    def pid(self) -> int:
        """Process id of the guard above the server."""
        raise NotImplementedError

    def kill(self) -> None:
        """End the server and its model processes with SIGKILL, and wait for their end."""
        import psutil

        servers = server_processes(self.pid)
        family = [*servers, *(child for one in servers for child in one.children(recursive=True))]
        for member in family:
            with suppress(psutil.NoSuchProcess):
                member.kill()
        psutil.wait_procs(family, timeout=KILL_LIMIT_S)

    def pause(self) -> None:
        """Stop the server's processes, while the kernel still accepts connections for them."""
        for process in server_processes(self.pid):
            process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let paused processes go on."""
        for process in server_processes(self.pid):
            process.send_signal(signal.SIGCONT)

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


def server_processes(pid: int) -> list["psutil.Process"]:
    """The servers below ``pid``, one for each rank; :class:`ServerError` if there is none."""
    import psutil

    found: list[psutil.Process] = []
    with suppress(psutil.NoSuchProcess):
        found = [child for child in psutil.Process(pid).children(recursive=True) if child.name() == SERVER_PROCESS]
    if not found:
        raise ServerError("this server has no process on this machine", fix="start() it")
    return found
