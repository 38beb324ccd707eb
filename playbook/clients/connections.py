"""Connections to Triton that stay open between requests, and what served models said of their inputs.

What is timed from the first byte sent is then the request, not the way to the server.
"""

import atexit
import threading
from collections.abc import Callable
from functools import cache
from typing import Any


class Connections:
    """One HTTP client, idle gRPC clients by address, input types by address and model; for any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._http: Any = None
        self._idle: dict[str, list[Any]] = {}
        self._types: dict[tuple[str, str], dict[str, str]] = {}

    def http(self) -> Any:
        """An ``httpx.Client`` that keeps as many connections as were needed at once; no proxy of the environment."""
        import httpx

        with self._lock:
            if self._http is None:
                unlimited = httpx.Limits(max_connections=None, max_keepalive_connections=None)
                self._http = httpx.Client(trust_env=False, limits=unlimited)
            return self._http

    def take_grpc(self, address: str) -> Any:
        """A tritonclient for the caller alone, its channel connected. InferenceServerException if nobody is there."""
        import tritonclient.grpc as api

        while client := self._pop(address):
            try:
                client.is_server_live()
                return client
            except api.InferenceServerException:
                client.close()
        client = api.InferenceServerClient(address)
        client.is_server_live()
        return client

    def give_back(self, address: str, client: Any) -> None:
        """For the next request; its stream must have ended."""
        with self._lock:
            self._idle.setdefault(address, []).append(client)

    def types(self, url: str, model: str, names: set[str], ask: Callable[[], dict[str, str]]) -> dict[str, str]:
        """Input name -> data type as ``ask`` said once; asked again if one of ``names`` is not among them."""
        known = self._types.get((url, model), {})
        if not known or names - known.keys():
            known = self._types[url, model] = ask()
        return known

    def close(self) -> None:
        """Close what is idle."""
        with self._lock:
            clients = [client for idle in self._idle.values() for client in idle]
            self._idle.clear()
            self._types.clear()
            http, self._http = self._http, None
        for client in clients:
            client.close()
        if http is not None:
            http.close()

    def _pop(self, address: str) -> Any:
        with self._lock:
            idle = self._idle.get(address)
            return idle.pop() if idle else None


@cache
def connections() -> Connections:
    """Those of this process, closed at its end."""
    found = Connections()
    atexit.register(found.close)
    return found
