"""What was measured of requests: a benchmark's results file, JSON lines, and when the pieces of one answer came.

And what the records of a run say: percentiles, throughput, goodput, requests in flight, and the laws they must obey.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, ValidationError, model_validator

from serving_base.errors import UsageError
from serving_base.measures import quantile
from serving_base.record import FiniteRecord, Record

NAN = float("nan")


class Load(Record):
    """How requests were sent: by ``concurrency`` streams that never rest (closed loop), or at ``rate_per_s`` (open)."""

    mode: Literal["closed", "open"]
    concurrency: NonNegativeInt = 0  # open loop: most requests in flight, 0 = unlimited
    rate_per_s: NonNegativeFloat = 0.0

    @model_validator(mode="after")
    def _has_its_number(self) -> Self:
        if (self.mode == "closed") == bool(self.rate_per_s) or not (self.concurrency or self.rate_per_s):
            raise ValueError("a closed loop has a concurrency and no rate, an open loop a rate")
        return self


class RequestRecord(FiniteRecord):
    """One request. Times are seconds of a monotonic clock since its run began, which was at ``began_unix_s``.

    ``scheduled_s``: when it was meant to be sent (closed loop: when it was). ``first_token_s``, ``last_token_s``:
    arrival of the first and last piece that holds text; None if none came. ``gaps_ms``: between successive pieces.
    ``osl_tokens``: tokens generated, 0 if it failed; ``error`` is empty for a request that succeeded.
    """

    run: Annotated[str, Field(min_length=1)]
    tool: Annotated[str, Field(min_length=1)]
    load: Load
    began_unix_s: NonNegativeFloat
    prompt: str
    scheduled_s: NonNegativeFloat
    sent_s: NonNegativeFloat
    first_token_s: NonNegativeFloat | None
    last_token_s: NonNegativeFloat | None
    isl_tokens: NonNegativeInt
    osl_tokens: NonNegativeInt
    gaps_ms: tuple[NonNegativeFloat, ...] = ()
    error: str = ""

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        times = [self.scheduled_s, self.sent_s, self.first_token_s, self.last_token_s]
        known = [at for at in times if at is not None]
        if known != sorted(known):
            raise ValueError(f"times run backwards: scheduled, sent, first, last = {times}")
        if not self.error and (len(known) < len(times) or not self.osl_tokens):
            raise ValueError("a request that succeeded has a first and a last token")
        return self

    @property
    def ok(self) -> bool:
        return not self.error

    @property
    def ttft_ms(self) -> float:
        """Time to first token, from when the request was meant to be sent; NaN if it failed."""
        return NAN if self.first_token_s is None else 1000 * (self.first_token_s - self.scheduled_s)

    @property
    def ttft_from_sending_ms(self) -> float:
        """The same from when it was sent: leaves out what it waited in the client."""
        return NAN if self.first_token_s is None else 1000 * (self.first_token_s - self.sent_s)

    @property
    def e2e_ms(self) -> float:
        """From when it was meant to be sent to its last token."""
        return NAN if self.last_token_s is None else 1000 * (self.last_token_s - self.scheduled_s)

    @property
    def tpot_ms(self) -> float:
        """Time per output token after the first: (e2e - TTFT) / (OSL - 1); NaN for a single token."""
        return (self.e2e_ms - self.ttft_ms) / (self.osl_tokens - 1) if self.osl_tokens > 1 else NAN


def by_run(records: Iterable[RequestRecord]) -> dict[str, list[RequestRecord]]:
    """Records of each run, in the order in which they were meant to be sent."""
    runs: dict[str, list[RequestRecord]] = {}
    for record in sorted(records, key=lambda record: record.scheduled_s):
        runs.setdefault(record.run, []).append(record)
    return runs


def at_the_same_time(records: Iterable[RequestRecord], others: Sequence[RequestRecord]) -> list[RequestRecord]:
    """Those of ``records`` that were sent between the first and the last sending of ``others``."""
    moments = [other.began_unix_s + other.sent_s for other in others]
    return [record for record in records if min(moments) <= record.began_unix_s + record.sent_s <= max(moments)]


def new_run(folder: Path) -> Path:
    """An empty folder under ``folder``, named for the time (UTC): earlier results stay."""
    out = folder / datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    out.mkdir(parents=True)
    return out


def write_results(runs: Mapping[str, Iterable[RequestRecord]], path: Path) -> None:
    """Write every record of ``runs`` as one JSON line."""
    lines = [record.model_dump_json() + "\n" for records in runs.values() for record in records]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines), encoding="utf-8")


def read_results(path: Path) -> list[RequestRecord]:
    """Read a results file. UsageError names the first line that is not a record."""
    records = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            records.append(RequestRecord.model_validate_json(line))
        except ValidationError as error:
            raise UsageError(f"{path}:{number} is not a request record", why=str(error)) from error
    return records


@dataclass(frozen=True)
class StreamTimeline:
    """One streamed answer. Times are seconds of one monotonic clock, shared by all timelines of a process."""

    sent_s: float
    arrived_s: tuple[float, ...]
    pieces: tuple[str, ...]

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def ttft_ms(self) -> float:
        """Time to first token: from sending to the first piece."""
        return 1000 * (self.arrived_s[0] - self.sent_s)

    @property
    def e2e_ms(self) -> float:
        """From sending to the last piece."""
        return 1000 * (self.arrived_s[-1] - self.sent_s)


def timed_stream(pieces: Iterable[str]) -> StreamTimeline:
    """Read a stream to its end; the clock starts now, so hand over the stream that is about to be sent."""
    sent_s = time.perf_counter()
    arrived: list[tuple[float, str]] = [(time.perf_counter(), piece) for piece in pieces]
    return StreamTimeline(sent_s, tuple(at for at, _ in arrived), tuple(piece for _, piece in arrived))


@dataclass(frozen=True)
class Percentiles:
    """p50, p90 and p99, with linear interpolation between neighbours (numpy's default)."""

    p50: float
    p90: float
    p99: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "Percentiles":
        ordered = sorted(value for value in values if not math.isnan(value))
        return cls(*(quantile(ordered, share) for share in (0.5, 0.9, 0.99)))


@dataclass(frozen=True)
class LatencyTarget:
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


def goodput_per_s(records: Sequence[RequestRecord], target: LatencyTarget) -> float:
    """Requests per second that met ``target``, as AIPerf and vLLM's bench report it.

    DistServe (Zhong et al., 2024), where the word comes from, means another thing: see :func:`highest_good_rate`.
    """
    return sum(map(target.met_by, records)) / summarize(records).seconds


def good_share(records: Sequence[RequestRecord], target: LatencyTarget) -> float:
    """The share of the requests that met ``target``, failed ones included in the whole: 0 to 1."""
    return sum(map(target.met_by, records)) / len(records)


def highest_good_rate(
    runs: Iterable[Sequence[RequestRecord]], target: LatencyTarget, *, share: float = 0.9
) -> float | None:
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


def _end_s(records: Iterable[RequestRecord]) -> float:
    return max(record.last_token_s for record in records if record.last_token_s is not None)
