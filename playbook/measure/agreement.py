"""Does AIPerf measure what a plain client measures? Both ask the same server in the same seconds."""

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from playbook.measure import aiperf
from playbook.measure.latency import Summary, summarize
from playbook.measure.machine import on_cores
from playbook.measure.plain_client import closed_loop
from playbook.measure.results import Load, RequestRecord, at_the_same_time
from playbook.measure.workload import WorkItem
from serving_base.errors import UsageError

SHARE, ABSOLUTE_MS = 0.10, 1.0


@dataclass(frozen=True)
class Agreement:
    """The same stretch of time as two tools saw it; they agree within 10 % or 1 ms of TTFT's p50. Failures disagree."""

    aiperf: Summary
    plain: Summary
    records: tuple[RequestRecord, ...]

    @property
    def difference_ms(self) -> float:
        return self.aiperf.ttft_ms.p50 - self.plain.ttft_ms.p50

    @property
    def limit_ms(self) -> float:
        return max(ABSOLUTE_MS, SHARE * self.plain.ttft_ms.p50)

    @property
    def errors(self) -> frozenset[str]:
        """What the failed requests of both tools got."""
        return frozenset(record.error for record in self.records if not record.ok)

    @property
    def holds(self) -> bool:
        return not self.errors and abs(self.difference_ms) <= self.limit_ms


class Beside:
    """A plain client of one stream that asks for as long as one phase of AIPerf lasts: an ``on_phase`` of its profile.

    Both are held on ``cores`` and share whatever disturbs the server. Take so many ``items`` that a prompt asked again
    has left the KV cache. ``records``: all its requests; the server has counted them.
    """

    def __init__(self, url: str, items: Sequence[WorkItem], *, phase: str, cores: frozenset[int]) -> None:
        self.phase = phase
        self._cores = cores
        self._stop = stop = threading.Event()
        self._ask = lambda: closed_loop(url, items, concurrency=1, stop=stop, run=f"plain, {phase}")
        self._pool = ThreadPoolExecutor(1)
        self._asking: Future[list[RequestRecord]] | None = None

    def __call__(self, phase: str, event: str) -> None:
        if phase == self.phase and event == "started":
            with on_cores(self._cores):
                self._asking = self._pool.submit(self._ask)
        elif phase == self.phase:
            self.end()

    def end(self) -> None:
        """No further request; safe to call twice, and before it has begun."""
        self._stop.set()
        self._pool.shutdown(wait=False)

    @property
    def records(self) -> list[RequestRecord]:
        """Waits for the last answer. :class:`UsageError` if the phase has not begun."""
        if self._asking is None:
            raise UsageError(f"AIPerf has not begun its phase {self.phase}", fix="give it to load.profile as on_phase")
        return self._asking.result()

    def agreement(self, theirs: Sequence[RequestRecord]) -> Agreement:
        """With AIPerf's records of the phase."""
        ours = at_the_same_time(self.records, theirs)
        return Agreement(summarize(theirs), summarize(ours), (*theirs, *ours))


def compare(
    url: str,
    items: Sequence[WorkItem],
    *,
    requests: int,
    tokenizer: Path,
    out: Path,
    cores: frozenset[int],
    tries: int = 3,
) -> list[Agreement]:
    """One stream of AIPerf and one of the plain client at once, prompts of equal length; every try, the last one holds.

    What disturbs only one of them, a busy machine, may need another try. ``items`` are dealt out between the two.
    """
    found: list[Agreement] = []
    while len(found) < tries and not (found and found[-1].holds):
        number = len(found) + 1
        phase = aiperf.Phase(f"aiperf_{number}", Load(mode="closed", concurrency=1), requests)
        beside = Beside(url, items[::2], phase=phase.name, cores=cores)
        try:
            runs = aiperf.profile(
                url, items[1::2], [phase], tokenizer=tokenizer, out=out / f"try{number}", seed=number, cores=cores,
                on_phase=beside,
            )  # fmt: skip
        finally:
            beside.end()
        found.append(beside.agreement(runs[phase.name]))
    return found
