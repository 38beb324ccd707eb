"""What goes over the wire: sums and gathers in a ring, written in sends and receives, every send counted.

A ring of p ranks adds a tensor up in p - 1 steps and hands the result round in p - 1 more. In each a rank sends one of
p chunks, so 2 (p - 1) / p of the tensor in all, which is the least possible (Patarasu and Yuan 2009).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

CLOCK = "clock"
"""Steps that travel with a message so that idle ones can be counted; no engine sends them, and no table counts them."""


@dataclass(frozen=True)
class Traffic:
    """One operation of one rank: how often, the bytes that it was about, the messages and bytes that the rank sent."""

    calls: int
    payload_bytes: int
    messages: int
    sent_bytes: int


def all_reduce_bytes(payload_bytes: float, ranks: int) -> float:
    """Bytes that each rank of a ring sends to add up ``payload_bytes``: 2 (p - 1) / p of them."""
    return 2 * (ranks - 1) / ranks * payload_bytes


def layer_sums_bytes(layers: int, tokens: int, hidden: int, element_bytes: int, ranks: int) -> float:
    """Bytes that each rank sends for the decoder layers of one step: two sums a layer, of tokens x hidden values."""
    return 2 * layers * all_reduce_bytes(tokens * hidden * element_bytes, ranks)


@dataclass
class _Counter:
    calls: int = 0
    payload_bytes: int = 0
    messages: int = 0
    sent_bytes: int = 0


@dataclass
class Wire:
    """One rank's connection to the others; ``ring``: the global ranks that share a layer, this one's among them."""

    rank: int
    ring: Sequence[int]
    _counters: dict[str, _Counter] = field(default_factory=lambda: defaultdict(_Counter))
    _sending: list[tuple[Any, Tensor]] = field(default_factory=list)

    def traffic(self) -> dict[str, Traffic]:
        return {name: Traffic(**vars(count)) for name, count in self._counters.items() if name != CLOCK}

    def send(self, tensor: Tensor, to: int, name: str) -> None:
        """Start to send; the tensor is kept until :meth:`flush`."""
        import torch.distributed as dist

        kept = tensor.contiguous()
        self._sending.append((dist.isend(kept, to), kept))
        counter = self._counters[name]
        counter.messages += 1
        counter.sent_bytes += kept.numel() * kept.element_size()

    def receive(self, into: Tensor, sender: int) -> Tensor:
        import torch.distributed as dist

        dist.recv(into, sender)
        return into

    def flush(self, kept: int = 0) -> None:
        """Wait until all is sent but the ``kept`` oldest messages. A send of gloo ends when the other side receives."""
        while len(self._sending) > kept:
            self._sending.pop()[0].wait()

    def all_reduce(self, tensor: Tensor, name: str) -> Tensor:
        """The sum of ``tensor`` over the ring, on every rank of it."""
        import torch

        self._count(name, tensor)
        if len(self.ring) == 1:
            return tensor
        place, ranks, right, left = self._neighbours()
        before = len(self._sending)
        total = tensor.contiguous().clone()
        chunks = total.view(-1).tensor_split(ranks)
        for step in range(ranks - 1):
            self.send(chunks[(place - step) % ranks].clone(), right, name)
            mine = chunks[(place - step - 1) % ranks]
            mine += self.receive(torch.empty_like(mine), left)
        for step in range(ranks - 1):
            self.send(chunks[(place - step + 1) % ranks].clone(), right, name)
            self.receive(chunks[(place - step) % ranks], left)
        self.flush(before)
        return total

    def all_gather(self, tensor: Tensor, name: str) -> Tensor:
        """The tensors of all ranks of the ring, of equal shape, side by side in their last dimension."""
        import torch

        self._count(name, tensor)
        place, ranks, right, left = self._neighbours()
        before = len(self._sending)
        parts = [torch.empty_like(tensor) for _ in range(ranks)]
        parts[place] = tensor.contiguous()
        for step in range(ranks - 1):
            self.send(parts[(place - step) % ranks], right, name)
            self.receive(parts[(place - step - 1) % ranks], left)
        self.flush(before)
        return torch.cat(parts, dim=-1)

    def _neighbours(self) -> tuple[int, int, int, int]:
        place, ranks = list(self.ring).index(self.rank), len(self.ring)
        return place, ranks, self.ring[(place + 1) % ranks], self.ring[(place - 1) % ranks]

    def _count(self, name: str, tensor: Tensor) -> None:
        self._counters[name].calls += 1
        self._counters[name].payload_bytes += tensor.numel() * tensor.element_size()
