"""What a run's records say: percentiles, throughput, goodput, requests in flight, and the laws they must obey."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from playbook.measure.results import Load, RequestRecord
from serving_base.errors import UsageError


@dataclass(frozen=True)
class Percentiles:
    """p50, p90 and p99, with linear interpolation between neighbours (numpy's default)."""

    p50: float
    p90: float
    p99: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "Percentiles":
        ordered = sorted(value for value in values if not math.isnan(value))
        return cls(*(_quantile(ordered, share) for share in (0.5, 0.9, 0.99)))


@dataclass(frozen=True)
class Target:
    """A request is good when it meets both limits."""

    ttft_ms: float
    tpot_ms: float

    def met_by(self, record: RequestRecord) -> bool:
        tpot_ms = 0.0 if math.isnan(record.tpot_ms) else record.tpot_ms
        return record.ok and record.ttft_ms <= self.ttft_ms and tpot_ms <= self.tpot_ms


@dataclass(frozen=True)
class Summary:
    """One run in figures. Rates are over the time from the first schedule to the last token."""

    run: str
    tool: str
    load: Load
    requests: int
    failed: int
    seconds: float
    isl_tokens: int
    osl_tokens: int
    ttft_ms: Percentiles
    tpot_ms: Percentiles
    itl_ms: Percentiles
    e2e_ms: Percentiles

    @property
    def requests_per_s(self) -> float:
        return (self.requests - self.failed) / self.seconds

    @property
    def output_tokens_per_s(self) -> float:
        return self.osl_tokens / self.seconds


def summarize(records: Sequence[RequestRecord]) -> Summary:
    """Figures of one run. Failed requests count as requests and in no percentile. UsageError without a success."""
    good = [record for record in records if record.ok]
    if not good:
        raise UsageError("no request of this run succeeded", why=records[0].error if records else "there is none")
    return Summary(
        run=good[0].run,
        tool=good[0].tool,
        load=good[0].load,
        requests=len(records),
        failed=len(records) - len(good),
        seconds=_end_s(good) - min(record.scheduled_s for record in records),
        isl_tokens=sum(record.isl_tokens for record in good),
        osl_tokens=sum(record.osl_tokens for record in good),
        ttft_ms=Percentiles.of(record.ttft_ms for record in good),
        tpot_ms=Percentiles.of(record.tpot_ms for record in good),
        itl_ms=Percentiles.of(gap for record in good for gap in record.gaps_ms),
        e2e_ms=Percentiles.of(record.e2e_ms for record in good),
    )


def goodput_per_s(records: Sequence[RequestRecord], target: Target) -> float:
    """Requests per second that met ``target``, as AIPerf and vLLM's bench report it.

    DistServe (Zhong et al., 2024), where the word comes from, means another thing: see :func:`highest_good_rate`.
    """
    return sum(map(target.met_by, records)) / summarize(records).seconds


def good_share(records: Sequence[RequestRecord], target: Target) -> float:
    """The share of the requests that met ``target``, failed ones included in the whole: 0 to 1."""
    return sum(map(target.met_by, records)) / len(records)


def highest_good_rate(runs: Iterable[Sequence[RequestRecord]], target: Target, *, share: float = 0.9) -> float | None:
    """The highest arrival rate (requests/s, open loop) at which ``share`` of the requests met ``target``.

    It is what DistServe calls goodput, there per GPU. None if no rate does.
    """
    return max((run[0].load.rate_per_s for run in runs if good_share(run, target) >= share), default=None)


def knee(summaries: Sequence[Summary], share: float = 0.9) -> Summary:
    """The lowest load that reaches ``share`` of the best output throughput: more load buys mostly waiting."""
    best = max(summary.output_tokens_per_s for summary in summaries)
    reaching = [summary for summary in summaries if summary.output_tokens_per_s >= share * best]
    return min(reaching, key=lambda summary: (summary.load.concurrency, summary.load.rate_per_s))


def in_flight(records: Iterable[RequestRecord]) -> tuple[list[float], list[int]]:
    """(seconds, requests in flight from that moment on), from sending to the last token."""
    changes = [(record.sent_s, 1) for record in records if record.last_token_s is not None]
    changes += [(record.last_token_s, -1) for record in records if record.last_token_s is not None]
    at_s: list[float] = []
    counts: list[int] = []
    count = 0
    for moment, change in sorted(changes):
        count += change
        at_s.append(moment)
        counts.append(count)
    return at_s, counts


@dataclass(frozen=True)
class LittlesLaw:
    """N = X R over a window (Little, 1961): mean number in flight, completions per second, mean time in the system."""

    in_flight: float
    completions_per_s: float
    mean_e2e_s: float

    @property
    def implied_in_flight(self) -> float:
        """X R: to hold against a number that the records do not hold, such as the streams of a closed loop."""
        return self.completions_per_s * self.mean_e2e_s

    @property
    def error(self) -> float:
        """(X R - N) / N, of the records alone."""
        return self.implied_in_flight / self.in_flight - 1


def littles_law(records: Sequence[RequestRecord]) -> LittlesLaw:
    """Measured over the steady part of a closed loop: from its c-th completion to its last send.

    N is the integral of the requests in flight, X and R come from the requests that end in the window. All three are
    of the same records, so they differ only by what is cut at the window's edges, about 1 part in the completions per
    stream. Requests that the tool lost, or streams that rested, show when X R is held against the number of streams.
    """
    done = [(record.sent_s, record.last_token_s) for record in records if record.last_token_s is not None]
    ends = sorted(end for _, end in done)
    start, stop = ends[records[0].load.concurrency - 1], max(sent for sent, _ in done)
    inside = [end - sent for sent, end in done if start < end <= stop]
    if stop <= start or not inside:
        raise UsageError("too few requests for a steady part", fix="send at least four per stream")
    seconds = stop - start
    overlap = sum(max(0.0, min(end, stop) - max(sent, start)) for sent, end in done)
    return LittlesLaw(overlap / seconds, len(inside) / seconds, sum(inside) / len(inside))


def unexplained_ms(record: RequestRecord) -> float:
    """e2e - (TTFT + sum of the gaps): 0 when the gaps tell the same story as the two end points."""
    return record.e2e_ms - record.ttft_ms - sum(record.gaps_ms)


def largest_gap(records: Iterable[RequestRecord], of: Callable[[RequestRecord], float]) -> float:
    """The largest absolute value of ``of`` over the requests that succeeded."""
    return max(abs(of(record)) for record in records if record.ok)


def _quantile(ordered: Sequence[float], share: float) -> float:
    if not ordered:
        return math.nan
    position = share * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (position - low) * (ordered[high] - ordered[low])


def _end_s(records: Iterable[RequestRecord]) -> float:
    return max(record.last_token_s for record in records if record.last_token_s is not None)
