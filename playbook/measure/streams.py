"""When the pieces of a streamed answer arrive."""

import time
from collections.abc import Iterable
from dataclasses import dataclass


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
