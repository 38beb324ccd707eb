"""What the client needs of a way to the model."""

from collections.abc import Generator
from typing import Protocol

from playbook.clients.requests import Limits, Piece, TextRequest

Pieces = Generator[Piece, None, None]
"""An answer that is arriving. Closing it cancels the request at the server, where the transport can."""


class Transport(Protocol):
    """Sends one request once. It retries nothing and maps every failure to an error of `playbook.clients.errors`."""

    name: str

    def send(self, request: TextRequest, wire_id: str, limits: Limits, /) -> Pieces:
        """The answer's pieces as they arrive, one or many. ``wire_id``: unique for each attempt."""
        ...

    def redacted(self, text: str) -> str:
        """``text`` without any secret that this transport sends."""
        ...

    def close(self) -> None: ...
