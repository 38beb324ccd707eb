"""Messages between the engine and its worker, and what the engine notes of the worker's steps."""

import json
import select
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from model_server.protocol import Output, Phase, StepRecord

CHUNK = 1 << 20
SEND_S = 5.0
"""What a worker may take to read a message that does not fit into the socket's buffer."""


@dataclass
class WorkerConnection:
    """Lines of JSON to and from the worker."""

    socket: socket.socket
    buffer: bytes = b""

    def send(self, message: Mapping[str, Any]) -> None:
        data = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        while data:
            try:
                data = data[self.socket.send(data) :]
            except BlockingIOError:
                if not select.select([], [self.socket], [], SEND_S)[1]:
                    raise TimeoutError("it takes no more messages") from None

    def receive(self, wait_s: float) -> list[dict[str, Any]]:
        """Whole messages that have come. EOFError when the other side closed, ValueError for nonsense."""
        if not select.select([self.socket], [], [], wait_s)[0]:
            return []
        chunks = [self.buffer]
        try:
            while chunk := self.socket.recv(CHUNK):
                chunks.append(chunk)
            ended = True
        except BlockingIOError:
            ended = False
        *lines, self.buffer = b"".join(chunks).split(b"\n")
        if ended and not lines:
            raise EOFError("its connection ended")
        return [_message(line) for line in lines]


def _message(line: bytes) -> dict[str, Any]:
    message = json.loads(line)
    if not isinstance(message, dict):
        raise ValueError(f"a line that is no message: {line[:80]!r}")
    return message


@dataclass
class StepNotes:
    """Makes step records of rows and of vLLM's iterations, which may come in one message or in two."""

    seconds: dict[int, float] = field(default_factory=dict)
    rows: dict[int, dict[int, int]] = field(default_factory=dict)
    phases: dict[int, dict[int, Phase]] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)

    def add(self, step: int, request_id: int, number: int, tokens: int) -> None:
        given = self.rows.setdefault(step, {})
        given[request_id] = given.get(request_id, 0) + tokens
        self.phases.setdefault(step, {})[request_id] = "generation" if number in self.seen else "context"
        self.seen.add(number)

    def records(self) -> list[StepRecord]:
        known = sorted(step for step in self.rows if step in self.seconds)
        return [StepRecord(step, self.seconds[step], self.phases[step], self.rows[step]) for step in known]


def joined(before: Output, new: Output) -> Output:
    """Two outputs of one sequence as one."""
    return Output(
        new.request_id,
        new.sequence_index,
        before.token_ids + new.token_ids,
        before.log_probs + new.log_probs,
        new.finish_reason,
    )
