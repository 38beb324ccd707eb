"""The requests that step together, with bookkeeping that costs the same however many there are.

All decoding sequences advance by one token in the same step, so a sequence that joins at tick j with n tokens to come
ends at tick j + n: that is known when it joins. Contexts, pages and the longest gap between tokens follow from the
same tick, and nothing is done for each sequence in each step.
"""

import heapq
import math
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator

from serving_planner.cost_model.step import StepLoad


def blocks(tokens: int, block_tokens: int) -> int:
    """Pages that hold ``tokens`` tokens."""
    return -(-tokens // block_tokens)


class Pool:
    """The pages of one replica's KV cache."""

    __slots__ = ("block_tokens", "capacity", "peak", "used")

    def __init__(self, capacity_tokens: int, block_tokens: int) -> None:
        self.capacity = capacity_tokens // block_tokens
        self.block_tokens = block_tokens
        self.used = 0
        self.peak = 0

    @property
    def free(self) -> int:
        return self.capacity - self.used

    def take(self, count: int) -> None:
        self.used += count
        if self.used > self.peak:
            self.peak = self.used


class Sequence:
    """One request on its way through the engine. Times in seconds, lengths in tokens."""

    __slots__ = (
        "base", "cached", "first_s", "gap_after", "gap_s", "goal", "held", "index", "joined", "last_s", "output",
        "produced", "prompt", "queued_s", "sent_s", "ticket", "waited_s",
    )  # fmt: skip

    def __init__(self, index: int, prompt: int, output: int, sent_s: float) -> None:
        self.index, self.prompt, self.output, self.sent_s = index, prompt, output, sent_s
        self.goal = prompt  # tokens to compute before the next one appears; more than the prompt after a preemption
        self.produced = 0  # tokens given out when it joined the decoding sequences
        self.cached = 0  # of the goal
        self.held = 0  # pages
        self.base = self.joined = 0  # context and tick with which it joined
        self.gap_after = 0  # gaps noted after this tick are its own
        self.ticket = -1  # of its place in the heap; -1 while it does not decode
        self.queued_s = self.waited_s = 0.0
        self.first_s = self.last_s = -1.0
        self.gap_s = 0.0


class MicroBatch:
    """The sequences of one micro-batch; without a pipeline there is one.

    ``tick`` counts launches in which the decoding sequences advance. ``context`` is the number of keys that the next
    such launch attends to.
    """

    def __init__(self, pool: Pool, tickets: Iterator[int], *, on_demand: bool) -> None:
        self.pool, self.on_demand = pool, on_demand
        self._tickets = tickets  # of all micro-batches, since a sequence may leave one and join another
        self.tick = 0
        self.count = 0
        self.context = 0
        self.partial: deque[Sequence] = deque()  # prompts of which a part is computed, first admitted first
        self.ended: list[Sequence] = []  # prompts that end in the launch under way
        self.fresh: list[Sequence] = []  # joined, no second token yet (only where prompts have steps of their own)
        self.decoded = False  # whether the launch under way advances the decoding sequences
        self.last_end_s = 0.0  # end of the last launch
        self.stalled_s = 0.0  # since the decoding sequences last advanced, in launches of prompts only
        self._ends: list[tuple[int, int, Sequence]] = []
        self._order: list[tuple[int, Sequence]] = []  # by admission, for preemption; entries of the gone remain
        self._phases = [0] * pool.block_tokens  # decoding sequences by the tick (mod page) at which they take a page
        self._gap_ticks: list[int] = []
        self._gaps_s: list[float] = []

    @property
    def size(self) -> int:
        return self.count + len(self.partial)

    def join(self, sequence: Sequence) -> None:
        """Prompt computed in the launch at ``tick``: decode from the next on."""
        sequence.base, sequence.joined, sequence.gap_after = sequence.goal, self.tick, self.tick
        sequence.produced += 1
        sequence.ticket = next(self._tickets)
        end = self.tick + sequence.output - sequence.produced
        heapq.heappush(self._ends, (end, sequence.ticket, sequence))
        self.count += 1
        self.context += sequence.base + 1
        self.ended.append(sequence)
        if self.on_demand:
            self._phases[(sequence.joined + 1 - sequence.base) % self.pool.block_tokens] += 1
            self._order.append((sequence.ticket, sequence))

    def advance(self, ticks: int) -> None:
        """The decoding sequences get ``ticks`` tokens each."""
        self.tick += ticks
        self.context += ticks * self.count

    def next_end(self) -> int:
        """Tick of the next end among the decoding sequences, of which there must be one."""
        while self._ends[0][1] != self._ends[0][2].ticket:
            heapq.heappop(self._ends)
        return self._ends[0][0]

    def pop_ended(self) -> list[Sequence]:
        """Take out the sequences that have got their last token. Their pages stay taken until somebody frees them."""
        found = []
        while self._ends and self._ends[0][0] <= self.tick:
            _, ticket, sequence = heapq.heappop(self._ends)
            if ticket == sequence.ticket:
                self._leave(sequence)
                found.append(sequence)
        return found

    # Page phases. A sequence that joined at tick j with b keys writes key b + t - j at tick t, and that key opens a
    # page when b + t - j = 1 (mod page), that is at every tick t = j + 1 - b (mod page). Neither b nor j changes while
    # it decodes, so it belongs to one residue from join() to _leave(), and _phases[t mod page] sequences take a page at
    # tick t. Any `page` ticks in a row meet every residue once, so they take `count` pages: growth() is whole turns x
    # count and the sum over what is left of the circle, and nothing is done for each sequence in each step.

    def growth(self, first: int, ticks: int) -> int:
        """Pages that the decoding sequences take in ``ticks`` launches, the first of them at tick ``first``."""
        size, phases = self.pool.block_tokens, self._phases
        start = first % size
        if ticks == 1:
            return phases[start]
        whole, rest = divmod(ticks, size)
        beyond = max(0, start + rest - size)
        return whole * self.count + sum(phases[start : start + rest]) + sum(phases[:beyond])

    def ticks_within(self, pages: int) -> int:
        """The most launches, from the next on, that take ``pages`` pages or fewer; at most a page's tokens."""
        size, phases = self.pool.block_tokens, self._phases
        for ticks in range(size):
            pages -= phases[(self.tick + 1 + ticks) % size]
            if pages < 0:
                return ticks
        return size

    def preempt_last(self) -> tuple[Sequence, int]:
        """Take out the sequence admitted last; it starts over with what it has produced. Also the tokens lost."""
        if self.partial:
            sequence = self.partial.pop()
            lost = sequence.cached
        else:
            while True:
                ticket, sequence = self._order.pop()
                if ticket == sequence.ticket:
                    break
            lost = sequence.base + self.tick - sequence.joined
            sequence.produced += self.tick - sequence.joined
            sequence.last_s = self.last_end_s - self.stalled_s
            self._leave(sequence)
        self.pool.used -= sequence.held
        sequence.goal, sequence.cached, sequence.held = sequence.prompt + sequence.produced, 0, 0
        return sequence, lost

    def _leave(self, sequence: Sequence) -> None:
        steps = self.tick - sequence.joined
        self.count -= 1
        self.context -= sequence.base + steps + 1
        sequence.ticket = -1
        sequence.gap_s = max(sequence.gap_s, self._longest_gap_s(sequence.gap_after))
        if self.on_demand:
            size = self.pool.block_tokens
            self._phases[(sequence.joined + 1 - sequence.base) % size] -= 1
            sequence.held = blocks(sequence.base + steps, size)

    def complete(self, end_s: float) -> None:
        """The launch under way ends: its new tokens appear, and what is known of the gaps between tokens grows."""
        own_s = end_s - self.last_end_s
        if self.decoded:
            for sequence in self.fresh:
                sequence.gap_s = max(sequence.gap_s, end_s - sequence.last_s)
                sequence.gap_after = self.tick
            self.fresh = []
            self.note_gap(own_s + self.stalled_s)
            self.stalled_s = 0.0
        elif self.count > len(self.ended):
            self.stalled_s += own_s
            self.fresh += self.ended
        for sequence in self.ended:
            if sequence.first_s < 0:
                sequence.first_s = end_s
            else:
                sequence.gap_s = max(sequence.gap_s, end_s - sequence.last_s)
            sequence.last_s = end_s
        self.ended = []
        self.last_end_s = end_s

    def note_gap(self, seconds: float) -> None:
        """Every decoding sequence waited up to ``seconds`` for each token since the tick noted before."""
        ticks, gaps = self._gap_ticks, self._gaps_s
        while gaps and gaps[-1] <= seconds:
            gaps.pop()
            ticks.pop()
        ticks.append(self.tick)
        gaps.append(seconds)

    def _longest_gap_s(self, after: int) -> float:
        """The longest gap noted after that tick: what is kept falls with the tick, so it is the first one there."""
        place = bisect_right(self._gap_ticks, after)
        return self._gaps_s[place] if place < len(self._gaps_s) else 0.0

    def decode_load(self) -> StepLoad:
        """The work of the next launch of the decoding sequences alone."""
        return StepLoad(self.count, self.context)


class PipelineSlot:
    """A micro-batch while a pipeline only decodes: its step times, and how far it has come."""

    __slots__ = ("batch", "before_s", "busy_s", "done", "end_s", "first_s", "load", "longest_s", "slope_s", "ticks")

    def __init__(
        self, batch: MicroBatch, load: StepLoad, end_s: float, first_s: float, slope_s: float, ticks: int
    ) -> None:
        self.batch, self.load, self.end_s, self.ticks = batch, load, end_s, ticks
        self.first_s, self.slope_s = first_s, slope_s
        self.before_s = batch.last_end_s
        self.done = 0
        self.busy_s = self.longest_s = 0.0


def steps_until(seconds: float, first_s: float, slope_s: float) -> int:
    """The fewest steps that take ``seconds`` or more, when step k takes first + (k - 1) * slope."""
    if seconds <= 0:
        return 0
    middle_s = first_s - slope_s / 2
    root_s = math.sqrt(max(0.0, middle_s * middle_s + 2 * slope_s * seconds))
    return math.ceil(2 * seconds / (middle_s + root_s))
