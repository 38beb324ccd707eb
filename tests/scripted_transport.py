"""A transport without a network: each attempt does what the script says."""

import time

from playbook.clients.requests import Piece


class Script:
    """``steps``: one per attempt, a list of pieces (texts), exceptions to raise, and callables to run in between."""

    name = "script"

    def __init__(self, *steps, secret="") -> None:
        self.steps = list(steps)
        self.sent = []
        self.closed_early = 0
        self.closed = False
        self.secret = secret

    def send(self, request, wire_id, limits):
        self.sent.append((wire_id, limits, time.monotonic()))
        step = self.steps.pop(0) if self.steps else ["ok"]
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

    def redacted(self, text: str):
        return text.replace(self.secret, "[secret]") if self.secret else text

    def close(self) -> None:
        self.closed = True
