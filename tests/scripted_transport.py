"""A transport without a network: each attempt does what the script says."""

import time
from collections.abc import Callable, Iterable

from serving_clients.requests import AttemptLimits, Piece, Pieces, TextRequest

Part = str | Piece | Exception | Callable[[], object]


class Script:
    """``steps``: one per attempt, a list of pieces (texts), exceptions to raise, and callables to run in between."""

    name = "script"

    def __init__(self, *steps: Iterable[Part], secret: str = "") -> None:
        self.steps = list(steps)
        self.sent: list[tuple[str, AttemptLimits, float]] = []
        self.closed_early = 0
        self.closed = False
        self.secret = secret

    def send(self, request: TextRequest, wire_id: str, limits: AttemptLimits) -> Pieces:
        self.sent.append((wire_id, limits, time.monotonic()))
        step: Iterable[Part] = self.steps.pop(0) if self.steps else ["ok"]
        try:
            for part in step:
                if isinstance(part, Exception):
                    raise part
                if callable(part):
                    part()
                else:
                    yield part if isinstance(part, Piece) else Piece(part)
        except GeneratorExit:
            self.closed_early += 1
            raise

    def redacted(self, text: str) -> str:
        return text.replace(self.secret, "[secret]") if self.secret else text

    def close(self) -> None:
        self.closed = True
