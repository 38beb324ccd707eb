"""Does AIPerf measure what a plain client measures? Both ask the same server in the same seconds."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from playbook.measure import aiperf
from playbook.measure.latency import Summary, summarize
from playbook.measure.machine import on_cores
from playbook.measure.plain_client import closed_loop
from playbook.measure.results import Load, RequestRecord, at_the_same_time
from playbook.measure.workload import WorkItem

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

    Both run on ``cores`` and share whatever disturbs the server; what disturbs only one of them, a busy machine,
    may need another try. ``items`` are dealt out between the two; take so many that a prompt asked again has left
    the KV cache.
    """
    found: list[Agreement] = []
    while len(found) < tries and not (found and found[-1].holds):
        number = len(found) + 1
        stop = threading.Event()
        with on_cores(cores), ThreadPoolExecutor(1) as pool:
            plain = pool.submit(closed_loop, url, items[::2], concurrency=1, stop=stop, run=f"plain_{number}")
            try:
                phase = aiperf.Phase(f"aiperf_{number}", Load(mode="closed", concurrency=1), requests)
                runs = aiperf.profile(
                    url, items[1::2], [phase], tokenizer=tokenizer, out=out / f"try{number}", seed=number, cores=cores
                )
            finally:
                stop.set()
        theirs = runs[phase.name]
        ours = at_the_same_time(plain.result(), theirs)
        found.append(Agreement(summarize(theirs), summarize(ours), (*theirs, *ours)))
    return found
