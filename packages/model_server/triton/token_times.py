"""When the engine gave each token, written down for a measurement of how late the pieces of a stream come."""

import json
import threading
import time
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

from model_server.protocol import Output

TOKEN_TIMES = "PLAYBOOK_TOKEN_TIMES"
"""Names the file; unset, nothing is written."""
SENDERS = "PLAYBOOK_SENDERS"
"""How many threads send responses, for a measurement; unset, what the machine gives."""
EACH_TOKEN = "PLAYBOOK_EACH_TOKEN"
"""Set, for a measurement: one response a token, however many wait."""


class TokenTimes:
    """One line of JSON for each output of the engine and for each response: what, request id, seconds, how many tokens.

    Seconds are of the monotonic clock, which is that of every process of this machine.
    """

    def __init__(self, path: str) -> None:
        self._lock = threading.Lock()
        self._file = Path(path).open("w", encoding="utf-8") if path else None  # noqa: SIM115 # closed at the end

    def came(self, request_id: str, output: Output) -> None:
        self._write("came", request_id, len(output.token_ids))

    def sent(self, request_id: str, tokens: int, *, final: bool) -> None:
        self._write("sent", request_id, tokens)
        if self._file and final:
            with self._lock:
                self._file.flush()  # so that who waits for the answer can read it

    def _write(self, what: str, request_id: str, tokens: int) -> None:
        if self._file:
            line = json.dumps([what, request_id, time.monotonic(), tokens])
            with self._lock:  # of the engine's thread and those that send
                self._file.write(f"{line}\n")

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
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            what, request_id, at_s, tokens = json.loads(line)
            one = found.setdefault(request_id, TokenTime())
            if what == "came":
                one.came_s += [at_s] * tokens
            else:
                one.sent.append(tokens)
    return found
