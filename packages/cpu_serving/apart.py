"""The embedded engine in a process of its own, for a server.

OpenVINO GenAI's ``step`` holds Python's global lock. In the process of a server it keeps requests from being read, and
answers from being sent, for as long as a step takes.
"""

import logging
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from cpu_serving.config import EngineConfig
from cpu_serving.polling import PolledConnection
from cpu_serving.worker import STACK_SIGNAL
from model_server.protocol import EngineHung, EngineStats, Output, Sampling
from serving_base.errors import EngineError

TICK_S = 0.002
"""What a step waits for tokens before its caller can look for new requests."""
START_S = 120.0
SILENCE_S = 120.0
"""How long the process may have work and bring nothing: a step takes milliseconds, so it hangs."""
STACK_S = 1.0
"""What a process that hangs gets to write its stack before it is killed."""
CLOSE_S = 10.0

_log = logging.getLogger(__name__)


class EngineApart:
    """:class:`cpu_serving.engine.Engine`, with its ``options``, in another process, which ends with this one.

    For one thread. When the process has ended, :meth:`step` raises :class:`EngineError`. A process that has work and
    brings no token for ``silence_s`` seconds is ended, with its stack on stderr, and another one takes its place.
    """

    def __init__(self, folder: Path, *, silence_s: float = SILENCE_S, **options: Any) -> None:
        self._silence_s = silence_s
        self._heard = time.monotonic()  # the last message, or when the process got work after having none
        self.config = EngineConfig.read(folder)
        self._running: dict[int, int] = {}  # request id -> sequences that are not over
        self._opening = "open", str(folder), options
        self._start()

    def _start(self) -> None:
        """A process, ready for requests. :class:`EngineError` when there is none."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "cpu_serving.worker", str(theirs.fileno())], pass_fds=(theirs.fileno(),)
            )
        self._connection = PolledConnection(ours.detach())
        self._closed = False
        try:
            self._send(*self._opening)
            self._stats = self._wait_ready()
        except BaseException:
            self._end()
            raise

    def _wait_ready(self) -> EngineStats:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            for kind, *words in self._received(TICK_S):
                assert kind == "ready"
                stats: EngineStats = words[0]
                return stats
        raise EngineError(f"the engine's process was not ready after {START_S:g} s", fix="load the engine again")

    def _send(self, *message: Any) -> None:
        with suppress(OSError):  # the next step notices, in the thread that can tell everybody
            self._connection.send(message)

    def _received(self, wait_s: float) -> list[tuple[Any, ...]]:
        """Messages that have come. :class:`EngineError` for the last one, and when the process has ended."""
        found: list[tuple[Any, ...]] = []
        try:
            while self._connection.poll(0 if found else wait_s):
                found.append(self._connection.recv())
        except (EOFError, OSError) as error:
            if not found:  # else the next call comes here again
                self._end()
                why = f"exit status {self._process.returncode}"
                raise EngineError("the engine's process ended", why=why, fix="load the engine again") from error
        for kind, *words in found:
            if kind == "failed":
                self._end()
                what, why, fix = words
                raise EngineError(what, why=why, fix=fix)
        return found

    def submit(self, request_id: int, prompt_ids: Sequence[int], sampling: Sampling) -> None:
        """Queue a request. :class:`EngineError` when it can never run, with the reason."""
        if self._closed:
            raise EngineError("the engine is closed", fix="load it again")
        self.config.check_request(prompt_ids, sampling, self._stats.kv_blocks_max)
        if request_id in self._running:
            raise EngineError(f"request {request_id} is already running", fix="use an id for one request at a time")
        if not self._running:
            self._heard = time.monotonic()
        self._running[request_id] = sampling.num_return_sequences
        self._send("submit", request_id, tuple(map(int, prompt_ids)), sampling)

    def cancel(self, request_id: int) -> bool:
        """End a request; its unfinished sequences finish as "cancelled" in a later step. False: no such request."""
        if request_id not in self._running:
            return False
        self._send("cancel", request_id)
        return True

    def step(self) -> list[Output]:
        """New tokens of every sequence since the last call; waits two milliseconds for them.

        :class:`EngineHung` when there were none for too long: every request is dropped, and a new process takes others.
        """
        if not self.has_work:
            return []
        outputs = self._stepped(TICK_S)
        if outputs:
            self._heard = time.monotonic()
        elif time.monotonic() - self._heard > self._silence_s:
            self._replace()
        for output in outputs:
            self._running[output.request_id] -= bool(output.finish_reason)
            if not self._running[output.request_id]:
                del self._running[output.request_id]
        return outputs

    def _replace(self) -> NoReturn:
        dropped, pid = len(self._running), self.pid
        _log.error("the engine's process %d has %d requests and brings nothing: its stack follows", pid, dropped)
        self._process.send_signal(STACK_SIGNAL)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STACK_S)
        self._process.kill()
        self._end()
        self._start()
        raise EngineHung(
            f"the engine's process hung: no token for {self._silence_s:g} s",
            why=f"{dropped} requests ran and were dropped; the stack of process {pid} is in the log",
            fix="send the request again: a new process of the engine is ready",
        )

    def _stepped(self, wait_s: float) -> list[Output]:
        outputs: list[Output] = []
        for _, new, stats in self._received(wait_s):
            outputs += new
            self._stats = stats
        return outputs

    @property
    def has_work(self) -> bool:
        return bool(self._running) and not self._closed

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def closed(self) -> bool:
        return self._closed

    def stats(self) -> EngineStats:
        """As of the last step. :class:`EngineError` when the process has ended."""
        if not self._closed and not self.has_work:
            self._stepped(0.0)  # steps after the last answer free what cancelled requests held
        return self._stats

    def close(self) -> None:
        """Drop every request and end the process; a closed engine refuses what comes later. Safe to call twice."""
        if not self._closed:
            self._end()

    def _end(self) -> None:
        self._closed = True
        self._running.clear()
        self._connection.close()
        try:
            self._process.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
