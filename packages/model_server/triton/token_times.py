"""When the engine gave each token, written down for a measurement of how late the pieces of a stream come."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

from model_server.protocol import Output

TOKEN_TIMES = "PLAYBOOK_TOKEN_TIMES"
"""Names the file; unset, nothing is written."""
SENDERS = "PLAYBOOK_SENDERS"
"""How many threads send responses, for a measurement; unset, what the machine gives."""


class TokenTimes:
    """One line of JSON for each output of the engine: request id, seconds of the monotonic clock, token ids."""

    def __init__(self, path: str) -> None:
        self._file = Path(path).open("w", encoding="utf-8") if path else None  # noqa: SIM115 # closed at the end

    def note(self, request_id: str, output: Output) -> None:
        if self._file:
            self._file.write(json.dumps([request_id, time.monotonic(), list(output.token_ids)]) + "\n")
            if output.finish_reason:
                self._file.flush()  # so that who waits for the answer can read it

    def close(self) -> None:
        if self._file:
            self._file.close()


def read_token_times(path: Path) -> dict[str, list[tuple[float, int]]]:
    """Seconds and id of each token, in order, by request id. The clock is that of every process of this machine."""
    found: dict[str, list[tuple[float, int]]] = {}
    for request_id, at_s, token_ids in _lines(path):
        found.setdefault(request_id, []).extend((at_s, token) for token in token_ids)
    return found


def _lines(path: Path) -> Iterator[tuple[str, float, list[int]]]:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            request_id, at_s, token_ids = json.loads(line)
            yield request_id, at_s, token_ids
