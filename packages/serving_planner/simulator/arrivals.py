"""Who asks for what and when: lengths of prompts and answers, closed and open loops."""

import random
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from serving_base.errors import UsageError


class Lengths(NamedTuple):
    """Tokens of one request: the prompt's, and those to be generated."""

    prompt: int
    output: int


@dataclass(frozen=True)
class Workload:
    """Requests in the order in which they are sent.

    Closed loop: ``concurrency`` requests at the start, then one for each that finishes. Open loop: ``send_s`` holds
    the second in which each is sent, whatever happens to the others. Exactly one of the two is given. ``nominal_rate``:
    requests/s that the times of an open loop were drawn for.
    """

    lengths: tuple[Lengths, ...]
    concurrency: int | None = None
    send_s: tuple[float, ...] | None = None
    nominal_rate: float | None = None

    @property
    def rate(self) -> float | None:
        """Requests per second of an open loop, the nominal ones if they are known; None for a closed loop."""
        if self.send_s is None or self.nominal_rate is not None:
            return self.nominal_rate
        return len(self.send_s) / self.send_s[-1] if self.send_s[-1] > 0 else None

    @property
    def mean(self) -> tuple[float, float]:
        """Mean tokens of prompt and output."""
        count = len(self.lengths)
        return sum(item.prompt for item in self.lengths) / count, sum(item.output for item in self.lengths) / count


def request_count(concurrency: int) -> int:
    """How many requests a closed loop simulates: 10 for each in flight, at least 50, fewer for each above 256.

    Ten is what public harnesses send (InferenceMAX: ``--num-prompts $((CONC * 10))``). From 256 on the count stays at
    2,560 until three waves are needed for a steady part between the start and the end.
    """
    return max(50, min(10 * concurrency, max(2560, 3 * concurrency)))


def open_loop_count(rate: float, latency_s: float) -> int:
    """How many requests an open loop simulates when an unloaded one takes ``latency_s``.

    Ten for each that is in flight on average (Little's law), at least 300 so that a p99 has three requests beyond it,
    at most 3,000.
    """
    return max(300, min(3000, int(10 * rate * latency_s)))


def draw_lengths(count: int, isl: int, osl: int, *, ratio: float = 1.0, seed: int = 0) -> tuple[Lengths, ...]:
    """``count`` lengths, each drawn uniformly from [ratio x nominal, nominal], prompt and output independently.

    This is what ``benchmark_serving --dataset-name random --random-range-ratio`` does in the harness of InferenceMAX.
    """
    if count < 1 or isl < 1 or osl < 1 or not 0 < ratio <= 1:
        raise UsageError(
            f"no requests can be drawn from count={count}, isl={isl}, osl={osl}, ratio={ratio}",
            why="counts and lengths start at 1, and a ratio lies above 0 and at most at 1",
            fix="correct the value that is out of range",
        )
    draw = random.Random(seed)
    low_isl, low_osl = max(1, int(isl * ratio)), max(1, int(osl * ratio))
    return tuple(Lengths(draw.randint(low_isl, isl), draw.randint(low_osl, osl)) for _ in range(count))


def closed_loop(
    concurrency: int, isl: int, osl: int, *, ratio: float = 1.0, seed: int = 0, requests: int | None = None
) -> Workload:
    """``concurrency`` in flight at all times, as ``--max-concurrency`` with an infinite request rate does."""
    if concurrency < 1:
        raise UsageError(
            f"a concurrency of {concurrency} sends nothing", why="it counts requests in flight", fix="use 1 or more"
        )
    count = requests or request_count(concurrency)
    return Workload(draw_lengths(count, isl, osl, ratio=ratio, seed=seed), concurrency=concurrency)


def open_loop(rate: float, isl: int, osl: int, *, requests: int, ratio: float = 1.0, seed: int = 0) -> Workload:
    """``requests`` Poisson arrivals at ``rate`` per second: exponential gaps, independent of what the server does.

    The gaps are scaled so that the last request comes at requests / rate, as ``vllm bench serve`` does: what a small
    sample deviates from its rate would otherwise be read as the server's.
    """
    if rate <= 0:
        raise UsageError(f"a rate of {rate} requests/s sends nothing", why="", fix="use a rate above 0")
    draw = random.Random(f"gaps {seed}")
    times = list(accumulate(draw.expovariate(1.0) for _ in range(requests)))
    scale = requests / rate / times[-1]
    return Workload(
        draw_lengths(requests, isl, osl, ratio=ratio, seed=seed),
        send_s=tuple(time * scale for time in times),
        nominal_rate=rate,
    )
