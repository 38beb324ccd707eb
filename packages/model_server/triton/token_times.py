"""When the engine gave each token, written down for a measurement of how late the pieces of a stream come."""

import pickle
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO

from model_server.protocol import Output

TOKEN_TIMES = "PLAYBOOK_TOKEN_TIMES"
"""Names the file; unset, nothing is written."""
SENDERS = "PLAYBOOK_SENDERS"
"""How many threads send responses, for a measurement; unset, what the machine gives."""
EACH_TOKEN = "PLAYBOOK_EACH_TOKEN"
"""Set, for a measurement: one response a token, however many wait."""

Note = tuple[str, str, float, int]


class TokenTimes:
    """A note of each output of the engine and of each response: what, request id, seconds, how many tokens.

    Seconds are of the monotonic clock, which is that of every process of this machine. A note costs the engine's thread
    next to nothing; they are written, as pickled lists, when an answer ends.
    """

    def __init__(self, path: str) -> None:
        self._lock = threading.Lock()
        self._notes: deque[Note] = deque()  # any thread puts one there
        self._file = Path(path).open("wb") if path else None  # noqa: SIM115 # closed at the end

    def came(self, request_id: str, output: Output) -> None:
        if self._file:
            self._notes.append(("came", request_id, time.monotonic(), len(output.token_ids)))

    def sent(self, request_id: str, tokens: int, *, final: bool) -> None:
        if self._file:
            self._notes.append(("sent", request_id, time.monotonic(), tokens))
            if final:
                self._write(self._file)  # so that who waits for the answer can read it

    def _write(self, file: BinaryIO) -> None:
        with self._lock:  # of those that send
            pickle.dump([self._notes.popleft() for _ in range(len(self._notes))], file)
            file.flush()

    def close(self) -> None:
        if self._file:
            self._file.close()


@dataclass
class TokenTime:
    """Of one request: when the engine gave each token, in seconds, and how many tokens each response held."""

    came_s: list[float] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)

    def first_s(self) -> list[float]:
        """When the engine gave the first token of each response; of one without tokens, when it gave the last."""
        begins = [0, *accumulate(self.sent)][:-1]
        return [self.came_s[min(begin, len(self.came_s) - 1)] for begin in begins]


def read_token_times(path: Path) -> dict[str, TokenTime]:
    """By request id, of requests whose answers are whole."""
    found: dict[str, TokenTime] = {}
    for what, request_id, at_s, tokens in _read_notes(path):
        one = found.setdefault(request_id, TokenTime())
        if what == "came":
            one.came_s += [at_s] * tokens
        else:
            one.sent.append(tokens)
    return found


def _read_notes(path: Path) -> Iterator[Note]:
    with path.open("rb") as written, suppress(EOFError):
        while True:
            yield from pickle.load(written)
