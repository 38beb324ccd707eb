"""One rank's turn in a pipeline: microbatches through its stage, in steps that are counted, not timed.

A step is one microbatch on one stage. Every message carries the step in which it was made, so a stage knows the first
step in which it can use it (Lamport's clock). Steps in which a stage does nothing are the bubble.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cpu_serving.parallel.cuts import RankLayout
from cpu_serving.parallel.shard import Shard
from cpu_serving.parallel.wire import CLOCK, Traffic, Wire

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Turn:
    """A stage worked on ``microbatch`` in ``step``; ``round``: 0 reads the prompt, each later one makes a token."""

    step: int
    microbatch: int
    round: int


@dataclass(frozen=True)
class RankReport:
    """What one rank did. ``logits`` by microbatch (tokens, vocabulary), of the last round, on the last stage only."""

    stage: int
    part: int
    turns: tuple[Turn, ...]
    traffic: dict[str, Traffic]
    linear_values: int
    logits: tuple[np.ndarray, ...] = ()
    tokens: tuple[tuple[int, ...], ...] = ()
    watched: dict[str, np.ndarray] | None = None


class PipelineRank:
    """Runs ``microbatches`` through this rank's stage, ``rounds`` times; each round appends the likeliest token."""

    def __init__(self, shard: Shard, wire: Wire, layout: RankLayout, rank: int) -> None:
        self.stage, self.part = layout.place(rank)
        self._shard, self._wire, self._layout = shard, wire, layout
        self._each = shard.shape.num_layers // layout.pp
        self._clock = 0
        self.turns: list[Turn] = []
        self.watched: dict[str, np.ndarray] = {}

    @property
    def _last(self) -> bool:
        return self.stage == self._layout.pp - 1

    def run(self, microbatches: Sequence[Sequence[int]], rounds: int, *, watch: bool) -> list[np.ndarray]:
        """The logits of the last round, on the last stage. ``microbatches`` get their new tokens everywhere."""
        texts = [list(tokens) for tokens in microbatches]
        logits: list[np.ndarray] = []
        for turn in range(rounds):
            for index, text in enumerate(texts):
                if turn and not self._last:
                    text.append(self._next_token())
                made = self._turn(text, index, turn, watch=watch)
                if made is None:
                    continue
                if turn == rounds - 1:
                    logits.append(made.numpy())
                self._tell(text, int(made[-1].argmax()), again=turn < rounds - 1)
        self._wire.flush()
        self.texts = tuple(tuple(text) for text in texts)
        return logits

    def _turn(self, text: Sequence[int], index: int, turn: int, *, watch: bool) -> Tensor | None:
        import torch

        if self.stage == 0:
            hidden = self._shard.embed(torch.tensor(text))
        else:
            empty = torch.empty(len(text), self._shard.shape.hidden_size)
            hidden = self._receive(empty, self._layout.rank(self.stage - 1, self.part))
        hidden = self._shard.layers(hidden, self.stage * self._each, self._watch if watch else _ignore)
        self.turns.append(Turn(self._clock, index, turn))
        self._clock += 1
        if self._last:
            return self._shard.logits(hidden)
        self._send(hidden, self._layout.rank(self.stage + 1, self.part), "stage")
        return None

    def _watch(self, name: str, hidden: Tensor) -> None:
        self.watched.setdefault(name, hidden.numpy().copy())

    def _tell(self, text: list[int], token: int, *, again: bool) -> None:
        """The last stage appends the token and tells the earlier ones, if there is another round."""
        import torch

        text.append(token)
        for stage in range(self.stage if again else 0):
            self._send(torch.tensor([token]), self._layout.rank(stage, self.part), "token")

    def _next_token(self) -> int:
        import torch

        empty = torch.empty(1, dtype=torch.int64)
        sender = self._layout.rank(self._layout.pp - 1, self.part)
        # only the first stage needs it before it can start; the others learn in time what they append
        return int(self._receive(empty, sender, waits=self.stage == 0)[0])

    def _send(self, tensor: Tensor, to: int, name: str) -> None:
        import torch

        self._wire.send(tensor, to, name)
        self._wire.send(torch.tensor([self._clock]), to, CLOCK)

    def _receive(self, into: Tensor, sender: int, *, waits: bool = True) -> Tensor:
        import torch

        self._wire.receive(into, sender)
        made = int(self._wire.receive(torch.empty(1, dtype=torch.int64), sender)[0])
        self._clock = max(self._clock, made) if waits else self._clock
        return into


def _ignore(name: str, hidden: Tensor) -> None:
    pass
