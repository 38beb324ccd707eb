"""Processes that share one Llama: started, asked, and ended together. What they compute is in the modules beside.

They meet over a file, so no port is taken, and talk over the loopback device. If one fails or is killed, all are ended.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from cpu_serving.parallel.cuts import Mistake, RankLayout
from cpu_serving.parallel.pipeline import RankReport, Turn
from cpu_serving.parallel.wire import Traffic
from serving_base.errors import EngineError, UsageError

START_S, ANSWER_S, CLOSE_S = 240.0, 240.0, 10.0
LOG_TAIL = 600


@dataclass(frozen=True)
class ParallelRun:
    """What all ranks of one layout did together. ``logits`` and ``tokens`` by microbatch."""

    layout: RankLayout
    reports: tuple[RankReport, ...]

    @property
    def _last(self) -> RankReport:
        return self.reports[self.layout.rank(self.layout.pp - 1, 0)]

    @property
    def logits(self) -> tuple[np.ndarray, ...]:
        """By microbatch: (tokens, vocabulary), of the last round."""
        return self._last.logits

    @property
    def tokens(self) -> tuple[tuple[int, ...], ...]:
        """By microbatch: the text with what was made."""
        return self._last.tokens

    @property
    def watched(self) -> dict[str, np.ndarray]:
        """Hidden state of the first microbatch after each half of a layer, all stages in order."""
        return {name: array for report in self.reports for name, array in (report.watched or {}).items()}

    def traffic(self, rank: int = 0) -> dict[str, Traffic]:
        """What ``rank`` sent, by kind: embedding, layers, logits, stage, token."""
        return self.reports[rank].traffic

    def turns(self) -> tuple[tuple[Turn, ...], ...]:
        """The turns of each stage."""
        return tuple(self.reports[self.layout.rank(stage, 0)].turns for stage in range(self.layout.pp))

    @property
    def steps(self) -> int:
        """From the first turn to the last, over all stages."""
        return 1 + max(turn.step for turns in self.turns() for turn in turns)

    @property
    def idle(self) -> tuple[int, ...]:
        """Steps in which each stage did nothing."""
        return tuple(self.steps - len(turns) for turns in self.turns())

    @property
    def bubble(self) -> float:
        """Share of all stages' steps that were idle, 0 to 1."""
        return sum(self.idle) / (self.steps * self.layout.pp)


def largest_difference(one: ParallelRun, other: ParallelRun) -> float:
    """Between the logits of two runs, over the largest logit of the first."""
    pairs = list(zip(one.logits, other.logits, strict=True))
    return max(float(np.abs(a - b).max()) for a, b in pairs) / max(float(np.abs(a).max()) for a, _ in pairs)


def first_to_differ(one: ParallelRun, other: ParallelRun, tolerance: float) -> str:
    """The first half of a layer whose hidden states differ by more than ``tolerance`` of the largest; "" if none."""
    for name, array in one.watched.items():
        if float(np.abs(array - other.watched[name]).max()) > tolerance * float(np.abs(array).max()):
            return name
    return ""


class Ranks:
    """``count`` processes that each hold a part of the model in ``folder``. For one thread; close it."""

    def __init__(self, folder: Path, count: int = 2) -> None:
        self.count = count
        self._place = Path(tempfile.mkdtemp(prefix="playbook-ranks-"))
        self._children: list[tuple[subprocess.Popen[bytes], Connection]] = []
        self._closed = False
        try:
            for rank in range(count):
                self._children.append(self._start(rank))
            opening = (count, str(self._place / "store"), str(folder), ANSWER_S)
            for rank in range(count):
                self._send(rank, "open", rank, *opening)
            self._answers(START_S)
        except BaseException:
            self._end(kill=True)
            raise

    def _start(self, rank: int) -> tuple[subprocess.Popen[bytes], Connection]:
        loopback = next((name for _, name in socket.if_nameindex() if name.startswith("lo")), "lo")
        env = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": loopback}
        argv = [sys.executable, "-m", "cpu_serving.parallel.rank"]
        ours, theirs = socket.socketpair()
        with theirs, (self._place / f"rank{rank}.log").open("wb") as log:
            process = subprocess.Popen(
                [*argv, str(theirs.fileno())], pass_fds=(theirs.fileno(),), env=env, stdout=log, stderr=log
            )
        return process, Connection(ours.detach())

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(process.pid for process, _ in self._children)

    @property
    def closed(self) -> bool:
        return self._closed

    def run(
        self,
        layout: RankLayout,
        microbatches: Sequence[Sequence[int]],
        *,
        rounds: int = 1,
        mistake: Mistake = "",
        watch: bool = False,
    ) -> ParallelRun:
        """Run texts of token ids through the model, cut by ``layout``; each round appends the likeliest token to each.

        :class:`UsageError` for a layout of more ranks than there are, :class:`EngineError` when a rank failed: all are
        ended then.
        """
        if layout.world_size > self.count:
            raise UsageError(
                f"tp {layout.tp} x pp {layout.pp} needs {layout.world_size} ranks, and {self.count} were started",
                fix="start more, or use a smaller layout",
            )
        if not microbatches or not all(microbatches) or rounds < 1:
            raise UsageError("nothing to run", fix="give texts of one token or more, and one round or more")
        options = {"rounds": rounds, "mistake": mistake, "watch": watch}
        reports = self._ask("run", layout, [list(tokens) for tokens in microbatches], options)
        return ParallelRun(layout, tuple(report for report in reports if report is not None))

    def both_sums(self, values: int) -> list[tuple[bool, float, dict[str, Traffic]]]:
        """By rank: our ring's sum of ``values`` random numbers against gloo's: equal bits, difference, our traffic."""
        return self._ask("sum", values)

    def _ask(self, *message: Any) -> list[Any]:
        if self._closed:
            raise EngineError("the ranks have ended", fix="start new ones")
        try:
            for rank in range(self.count):
                self._send(rank, *message)
            return self._answers(ANSWER_S)
        except BaseException:
            self._end(kill=True)
            raise

    def _send(self, rank: int, *message: Any) -> None:
        with suppress(OSError):  # a rank that has ended is noticed where its answer is read
            self._children[rank][1].send(message)

    def _answers(self, limit_s: float) -> list[Any]:
        deadline = time.monotonic() + limit_s
        found: dict[int, Any] = {}
        while len(found) < self.count:
            for rank in [rank for rank in range(self.count) if rank not in found]:
                process, connection = self._children[rank]
                if time.monotonic() > deadline:
                    raise EngineError(f"rank {rank} did not answer in {limit_s:g} s", fix="start new ranks")
                try:
                    if not connection.poll(0.02):
                        continue
                    kind, *words = connection.recv()
                except (EOFError, OSError) as error:
                    process.wait()
                    raise EngineError(
                        f"rank {rank} ended with status {process.returncode}",
                        why=self._log(rank),
                        fix="start new ranks",
                    ) from error
                if kind == "failed":
                    what, why, fix = words
                    raise EngineError(f"rank {rank}: {what}", why=why, fix=fix or "start new ranks")
                found[rank] = words[0]
        return [found[rank] for rank in range(self.count)]

    def _log(self, rank: int) -> str:
        return (self._place / f"rank{rank}.log").read_text(encoding="utf-8", errors="replace")[-LOG_TAIL:].strip()

    def close(self) -> None:
        """End all of them; safe to call twice."""
        self._end(kill=False)

    def _end(self, *, kill: bool) -> None:
        if self._closed:
            return
        self._closed = True
        for process, connection in self._children:
            if kill:
                process.kill()
            connection.close()
        deadline = time.monotonic() + CLOSE_S
        for process, _ in self._children:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self._place, ignore_errors=True)

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_ranks(count: int = 2) -> Ranks:
    """``count`` processes for the small model that ships with the course."""
    from tiny_llama import MODEL_DIR

    return Ranks(MODEL_DIR, count)


def held_out_texts(count: int, length: int) -> list[list[int]]:
    """``count`` texts of ``length`` tokens each that the small model was not trained on."""
    from tokenizers import Tokenizer

    from tiny_llama import MODEL_DIR, TEXT_DIR

    tokenizer = Tokenizer.from_file(str(MODEL_DIR / "tokenizer.json"))
    words = tokenizer.encode((TEXT_DIR / "docs_held.txt").read_text(encoding="utf-8")).ids
    return [words[index * length : (index + 1) * length] for index in range(count)]
