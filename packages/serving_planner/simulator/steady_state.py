"""The steady state of in-flight batching in closed form: one replica, means only, no simulation.

Symbols: I mean prompt, O mean answer, d sequences that get a token in a step (of one micro-batch), f = d / (O - 1)
prompts that join per step, t(d, p) seconds of a step of one stage with p prompt tokens in it, pp pipeline stages.

- A prompt prolongs its step by D = (t(d, k I) - t(d, 0)) / k, where k = max(1, f) prompts share a step; one longer
  than ``max_num_tokens`` takes several steps and D is their sum. Where prompts have steps of their own (SGLang)
  D = t(0, k I) / k.
- TPOT = t(d, 0) + f D (d - 1) / d on one stage: a request's tokens wait for the prompts of the others.
  A step has room for ``max_num_tokens`` - d prompt tokens, so f I is at most that, which bounds d where prompts are
  long and answers short.
- A pipeline turns at the pace of the longest of its pp micro-batches: TPOT is pp times that of a stage, with f D
  replaced by a (t(d, k I) - t(d, 0)), where a = 1 - (1 - m)^pp is the chance that one of them has a prompt, m being
  the share of steps that have one.
- TTFT = the rest of the step under way + one more step where the next is decided one step ahead + its own steps.
- Closed loop of C: n = min(C, what the KV cache holds, max_batch_size) are in the engine, of which
  d = n (O - 1) TPOT / (TTFT + (O - 1) TPOT) decode. Who finds no room waits (C - n) / rate (Little's law).
- Open loop: when r (O - 1) TPOT decode on average, a request sees as many beside itself (Poisson arrivals), which
  gives the rate r of each level; the level of a rate is found by halving.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from serving_planner.cost_model.step import StepLoad
from serving_planner.simulator.batching import ClientOverhead, Policy, ReplicaLimits, kv_concurrency

ITERATIONS = 80
CLOSE = 3e-4
HALVINGS = 24


@dataclass(frozen=True)
class StepKinds:
    """The two kinds of steps at d decoding sequences, of one micro-batch on one stage; see the symbols above.

    ``prompts``: k; ``cost_s``: D; ``own_s``: the steps in which one prompt is computed; ``mixed_share``: of all steps.
    ``full``: as many prompts join as a step has room for.
    """

    decoding: float
    joining: float
    prompts: float
    decode: StepLoad
    mixed: StepLoad
    decode_s: float
    mixed_s: float
    cost_s: float
    own_s: float
    mixed_share: float
    pp: int
    full: bool

    @property
    def loads(self) -> tuple[tuple[StepLoad, float], ...]:
        """The load of each kind of step that there is, and its share of all steps."""
        kinds = ((self.decode, 1 - self.mixed_share), (self.mixed, self.mixed_share))
        return tuple((load, share) for load, share in kinds if share and load != StepLoad())

    @property
    def mean_s(self) -> float:
        """Between two steps of a micro-batch, divided by pp: with bubbles, where there is a pipeline."""
        return self.decode_s + self._prompts_s(self.joining)

    @property
    def token_s(self) -> float:
        """Between two tokens of one request, divided by pp: it does not wait for its own prompt."""
        return self.decode_s + self._prompts_s(self.joining * (1 - 1 / max(1.0, self.decoding)))

    def _prompts_s(self, joining: float) -> float:
        share = self.mixed_share * joining / self.joining if self.joining else 0.0
        if self.pp == 1 or not share:
            return joining * self.cost_s
        return (1 - (1 - share) ** self.pp) * joining * self.cost_s / share

    @property
    def rest_s(self) -> float:
        """Of the step under way, seen at a random moment: E[t^2] / (2 E[t]); long steps are met more often."""
        share = self.mixed_share
        square = (1 - share) * self.decode_s**2 + share * self.mixed_s**2
        mean = (1 - share) * self.decode_s + share * self.mixed_s
        return square / (2 * mean)


@dataclass(frozen=True)
class Point:
    """One replica in its steady state: seconds, requests per second, tokens.

    ``in_flight``: requests that hold a place in the engine. ``capacity``: how many it holds at most, ``by_memory``
    whether the KV cache sets that. ``utilisation``: rate over the rate of a full engine; None for a closed loop.
    """

    in_flight: float
    decoding: float
    ttft_s: float
    tpot_s: float
    osl: float
    requests_per_s: float
    kinds: StepKinds
    capacity: int
    by_memory: bool
    utilisation: float | None = None

    @property
    def latency_s(self) -> float:
        return self.ttft_s + (self.osl - 1) * self.tpot_s

    @property
    def output_tokens_per_s(self) -> float:
        return self.requests_per_s * self.osl


@dataclass(frozen=True)
class Replica:
    """One engine: the step time of one pipeline stage and the rules around it. ``isl``, ``osl``: mean tokens."""

    seconds: Callable[[StepLoad], float]
    isl: float
    osl: float
    limits: ReplicaLimits
    policy: Policy
    client: ClientOverhead

    def closed(self, concurrency: int) -> Point:
        """With ``concurrency`` requests in flight at all times."""
        capacity, by_memory = self.capacity
        held = min(concurrency, capacity)
        outside_s = self._outside_s()
        away_s = outside_s if concurrency <= capacity else 0.0  # a waiting request takes the place at once
        batches = min(self.limits.pp, held)
        busy = 1.0 if held > 1 else 0.0

        def decoding(kinds: StepKinds) -> float:
            decode_s = self._decode_s(kinds)
            return held / batches * decode_s / (decode_s + self._first_s(kinds, busy) + away_s)

        kinds = self._solve(held / batches, decoding) if self.osl > 1 else self._prompts_only(held / batches)
        first_s, decode_s = self._first_s(kinds, busy), self._decode_s(kinds)
        rate = held / (first_s + away_s + decode_s)
        if kinds.full:  # such steps bound the rate, and prompts wait for one
            step_s = kinds.mean_s if self.osl > 1 else kinds.mixed_s
            rate = min(rate, batches * kinds.joining / (self.limits.pp * step_s))
        waiting_s = max(0.0, concurrency / rate - outside_s - first_s - decode_s)
        return Point(
            in_flight=held,
            decoding=kinds.decoding * batches,
            ttft_s=outside_s + first_s + waiting_s,
            tpot_s=self._tpot_s(kinds),
            osl=self.osl,
            requests_per_s=rate,
            kinds=kinds,
            capacity=capacity,
            by_memory=by_memory,
        )

    def open(self, rate: float) -> Point:
        """With Poisson arrivals at ``rate`` requests per second; above what it can serve: as if it were full."""
        utilisation = rate / self.most_requests_per_s
        point, least, most = self.full, 0.0, self.full.in_flight
        if utilisation < 1:
            for _ in range(HALVINGS):
                middle = (least + most) / 2
                point = self.loaded(middle)
                least, most = (middle, most) if point.requests_per_s < rate else (least, middle)
            if point.in_flight <= point.capacity:
                return replace(point, requests_per_s=rate, utilisation=utilisation)
        return replace(self.full, requests_per_s=self.most_requests_per_s, utilisation=max(1.0, utilisation))

    def loaded(self, level: float) -> Point:
        """With Poisson arrivals such that ``level`` requests decode on average (of answers of one token: are there)."""
        pp = self.limits.pp
        kinds = self._kinds(level / pp + 1) if self.osl > 1 else self._prompts_only(level / pp + 1)
        decode_s = self._decode_s(kinds)
        rate = level / (decode_s or self._first_s(kinds, 1.0))
        held = rate * (decode_s + self._first_s(kinds, 1.0))
        capacity, by_memory = self.capacity
        return Point(
            in_flight=held,
            decoding=rate * decode_s,
            ttft_s=self._outside_s() + self._first_s(kinds, 1 - math.exp(-held)),
            tpot_s=self._tpot_s(kinds),
            osl=self.osl,
            requests_per_s=rate,
            kinds=kinds,
            capacity=capacity,
            by_memory=by_memory,
            utilisation=rate / self.most_requests_per_s,
        )

    @cached_property
    def full(self) -> Point:
        """With as many requests in flight as the engine holds."""
        return self.closed(self.capacity[0])

    @property
    def most_requests_per_s(self) -> float:
        """Where the next request waits already when one ends."""
        return self.capacity[0] / (self.full.latency_s - self._outside_s())

    @cached_property
    def capacity(self) -> tuple[int, bool]:
        """Requests that the engine holds at once, and whether the KV cache sets that or ``max_batch_size``."""
        holds = max(1, kv_concurrency(self.isl, self.osl, self.limits, self.policy))
        return min(holds, self.limits.max_batch_size), holds < self.limits.max_batch_size

    # One step

    def _tpot_s(self, kinds: StepKinds) -> float:
        return self.limits.pp * kinds.token_s if self.osl > 1 else 0.0

    def _decode_s(self, kinds: StepKinds) -> float:
        """From the first token to the last."""
        return (self.osl - 1) * self._tpot_s(kinds)

    def _first_s(self, kinds: StepKinds, busy: float) -> float:
        """From the engine's queue to the first token; ``busy``: chance that a step of others is under way.

        Answers of one token end with their step, so that the next requests find none.
        """
        if self.osl == 1:
            return self.limits.pp * kinds.own_s
        ahead_s = kinds.mean_s if self.policy.overlap and self.limits.pp == 1 else 0.0
        return busy * (kinds.rest_s + ahead_s) + self.limits.pp * kinds.own_s

    def _outside_s(self) -> float:
        return self.client.send_s + self.isl * self.client.send_s_per_prompt_token + self.client.receive_s

    def _solve(self, start: float, decoding: Callable[[StepKinds], float]) -> StepKinds:
        """The d at which ``decoding`` finds d again; each step goes half the way, which also settles steep laws."""
        # A fixed point of g = decoding: d sequences give the step times, these give the share of its stay in which a
        # request decodes, and that share of all who are held is d again (Little's law). Going all the way to g(d)
        # converges only where |g'| < 1: where prompts fill the steps, g falls steeply and d would swing between two
        # values. (d + g(d)) / 2 has the same fixed points and the slope (1 + g') / 2, so it settles for -3 < g' < 1.
        # CLOSE is the relative change that ends it; ITERATIONS bounds it where a law jumps and no d is found again.
        now = start
        for _ in range(ITERATIONS):
            kinds = self._kinds(now)
            wanted = decoding(kinds)
            if abs(wanted - now) <= CLOSE * max(1.0, wanted):
                break
            now = (now + wanted) / 2
        return kinds

    def _kinds(self, decoding: float) -> StepKinds:
        most, own = self.limits.max_num_tokens, self.osl - 1
        room = most / (1 + self.isl / own)
        full = self.policy.mixed and decoding > room
        decoding = room if full else decoding
        decoding = max(decoding, 1.0)
        joining = decoding / own
        low = math.floor(decoding)
        decode = self._decode(low)
        decode_s = self.seconds(decode)
        if decoding > low:
            decode_s += (decoding - low) * (self.seconds(self._decode(low + 1)) - decode_s)
        beside = decode if self.policy.mixed else StepLoad()
        kinds = self._with_prompts(decoding, joining, decode, decode_s, beside)
        return replace(kinds, full=full)

    def _prompts_only(self, held: float) -> StepKinds:
        """Answers of one token: nobody decodes, ``held`` prompts share steps."""
        kinds = self._with_prompts(0.0, held, StepLoad(), 0.0, StepLoad())
        return replace(kinds, joining=kinds.prompts, mixed_share=1.0, full=kinds.prompts < held)

    def _with_prompts(
        self, decoding: float, joining: float, decode: StepLoad, decode_s: float, beside: StepLoad
    ) -> StepKinds:
        room = max(1, self.limits.max_num_tokens - beside.decode_sequences)
        isl = self.isl
        pieces = math.ceil(isl / room)
        prompts = min(max(1.0, joining), max(1.0, room / isl))
        base_s = self.seconds(beside) if beside.decode_sequences else 0.0
        if pieces == 1:
            mixed = _joined(beside, prompts * isl, prompts * isl * (isl + 1) / 2, prompts)
            mixed_s = self.seconds(mixed)
            own_s = mixed_s
            cost_s = (mixed_s - base_s) / prompts
        else:
            piece = isl / pieces
            pairs = [piece * piece * place + piece * (piece + 1) / 2 for place in range(pieces)]
            loads = [_joined(beside, piece, pair, place == pieces - 1) for place, pair in enumerate(pairs)]
            times_s = [self.seconds(load) for load in loads]
            mixed, mixed_s, own_s = loads[pieces // 2], sum(times_s) / pieces, sum(times_s)
            cost_s = own_s - pieces * base_s
        return StepKinds(
            decoding=decoding,
            joining=joining,
            prompts=prompts,
            decode=decode,
            mixed=mixed,
            decode_s=decode_s,
            mixed_s=mixed_s,
            cost_s=cost_s,
            own_s=own_s,
            mixed_share=min(1.0, joining * pieces / prompts),
            pp=self.limits.pp,
            full=False,
        )

    def _decode(self, sequences: int) -> StepLoad:
        return StepLoad(sequences, round(sequences * (self.isl + (self.osl + 1) / 2)))


def _joined(beside: StepLoad, tokens: float, pairs: float, ended: float) -> StepLoad:
    return StepLoad(
        decode_sequences=beside.decode_sequences,
        decode_context_tokens=beside.decode_context_tokens,
        prefill_tokens=max(1, round(tokens)),
        prefill_pairs=pairs,
        prefill_sequences=round(ended),
    )
