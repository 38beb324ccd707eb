"""What was measured of requests: a benchmark's results file, JSON lines, and when the pieces of one answer came."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, NonNegativeInt, ValidationError, model_validator

from serving_base.errors import UsageError
from serving_base.record import Record

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


class RequestRecord(BaseModel):
    """One request. Times are seconds of a monotonic clock since its run began, which was at ``began_unix_s``.

    ``scheduled_s``: when it was meant to be sent (closed loop: when it was). ``first_token_s``, ``last_token_s``:
    arrival of the first and last piece that holds text; None if none came. ``gaps_ms``: between successive pieces.
    ``osl_tokens``: tokens generated, 0 if it failed; ``error`` is empty for a request that succeeded.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

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
