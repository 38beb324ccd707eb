"""What can happen to a request, what its caller sees, and the means to make it happen to a real server."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

CHUNK = 4096


@dataclass(frozen=True)
class Fault:
    """A row of the table. ``sees``: the error's name, "TextResult" for an answer, "nothing" where nothing is raised.

    ``repeated``: whether the client sends the request again by itself.
    """

    name: str
    happens: str
    sees: str
    repeated: str


FAULTS = (
    Fault("down", "nobody listens: the server was killed", "Unreachable", "yes: nothing was sent"),
    Fault("restarted", "the server was killed and comes back meanwhile", "TextResult", "yes"),
    Fault("killed in mid-stream", "the server dies after the first pieces", "BrokenStream", "only with restart=True"),
    Fault("truncated stream", "something on the way cuts the connection", "BrokenStream", "only with restart=True"),
    Fault("hung", "the server accepts and says nothing: it is paused", "TimedOut", "if idempotent"),
    Fault("hung for long", "it still says nothing when the deadline comes", "DeadlineExceeded", "no"),
    Fault("full queue", "more wait at the server than max_queue_size", "Overloaded", "yes: it was not taken"),
    Fault("bad request", "the prompt is longer than the engine allows", "Refused", "no: it would fail again"),
    Fault("wrong token", "the server wants another header", "Refused", "no: it would fail again"),
    Fault("client's queue full", "more wait in this client than max_waiting", "QueueFull", "no: it was not sent"),
    Fault("cancelled", "another thread calls cancel()", "Cancelled", "no"),
    Fault("caller leaves", "the loop over the stream is left early", "nothing", "no: the engine is told to stop"),
)
"""Every row is asserted against the real server by tests/lane/test_client_faults.py."""


class Breakable(Protocol):
    """A server that can be made to fail: its processes, or the container that it runs in."""

    def kill(self) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...


def kill(server: Breakable) -> None:
    """End the server as an operating system out of memory does, with SIGKILL, and wait for its end."""
    server.kill()


@contextmanager
def frozen(server: Breakable) -> Iterator[None]:
    """The server hangs: it does nothing, while the kernel still accepts connections for it."""
    server.pause()
    try:
        yield
    finally:
        server.resume()


class CuttingProxy:
    """A TCP proxy before a port of this machine that cuts each connection after so many bytes of answer."""

    def __init__(self, port: int, *, after_bytes: int) -> None:
        self._target, self._after_bytes = ("127.0.0.1", port), after_bytes
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._accept, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def _accept(self) -> None:
        with suppress(OSError):  # closed by __exit__
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._relay, args=(client,), daemon=True).start()

    def _relay(self, client: socket.socket) -> None:
        left = self._after_bytes
        with client, socket.create_connection(self._target) as server:
            threading.Thread(target=_copy, args=(client, server), daemon=True).start()
            with suppress(OSError):
                while left > 0 and (data := server.recv(min(left, CHUNK))):
                    client.sendall(data)
                    left -= len(data)
            for connection in (client, server):
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
        self._listener.close()
        self._thread.join()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(CHUNK):
            sink.sendall(data)
