"""Load tests of a served model: what chapters use, from the modules that do it.

Two proofs stand here: what a Triton server has counted by itself, the other side of a load generator's claims; and
whether AIPerf measures what a plain client measures, when both ask the same server in the same seconds.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from load_testing import aiperf
from load_testing.aiperf import Phase, command_line, configuration, profile
from load_testing.plain_client import StreamClient, closed_loop, open_loop
from load_testing.results import (
    LatencyTarget,
    LittlesLaw,
    Load,
    Percentiles,
    RequestRecord,
    StreamTimeline,
    Summary,
    at_the_same_time,
    by_run,
    good_share,
    goodput_per_s,
    highest_good_rate,
    in_flight,
    knee,
    largest_gap,
    littles_law,
    new_run,
    read_results,
    summarize,
    timed_stream,
    unexplained_ms,
    write_results,
)
from load_testing.workload import WorkItem, distinct_texts, make_workload, write_dataset
from serving_base.errors import UsageError
from serving_base.machine import Cores, MachineRates, measure_machine, on_cores, split_cores
from serving_base.servers import TEXT_MODEL
from trtllm_check.releases.templates import release_templates

PAUSE_S = 0.1
REQUESTS = f'nv_inference_request_success{{model="{TEXT_MODEL}"'
TOKENS = {"isl_tokens": "nv_llm_input_token_len_sum", "osl_tokens": "nv_llm_output_token_len_sum"}
"""Lengths as the backend's histograms add them up; TensorRT-LLM's backend has them from 0.16.0 on."""


def server_counts(metrics: Mapping[str, float]) -> dict[str, int]:
    """Requests that the ensemble has answered and, where the backend counts them, tokens of prompts and answers.

    ``metrics``: the samples of ``/metrics`` by name and labels. A release without the histograms has no token keys.
    """
    counts = {"requests": sum(int(value) for name, value in metrics.items() if name.startswith(REQUESTS))}
    for kind, histogram in TOKENS.items():
        sums = [int(value) for name, value in metrics.items() if name.startswith(histogram)]
        if sums:
            counts[kind] = sum(sums)
    return counts


def counted_kinds(release: str) -> set[str]:
    """The keys that :func:`server_counts` has with the tensorrtllm backend of ``release``."""
    return {"requests", *(TOKENS if release_templates(release).token_histograms else ())}


def counted_when(read: Callable[[], dict[str, int]], requests: int, *, limit_s: float = 60.0) -> dict[str, int]:
    """What ``read`` gives once the server has counted ``requests`` and counts no more; after ``limit_s`` in any case.

    A server counts a request when it lets go of it, a moment after its client has the last piece. Its tokens are
    counted by the backend, which may be a moment later still.
    """
    ends_at, before = time.monotonic() + limit_s, dict[str, int]()
    while ((counts := read())["requests"] < requests or counts != before) and time.monotonic() < ends_at:
        before = counts
        time.sleep(PAUSE_S)
    return counts


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


__all__ = [
    "Agreement", "Beside", "Cores", "LatencyTarget", "LittlesLaw", "Load", "MachineRates", "Percentiles", "Phase",
    "RequestRecord", "StreamClient", "StreamTimeline", "Summary", "WorkItem", "at_the_same_time", "by_run",
    "closed_loop", "command_line", "compare", "configuration", "counted_kinds", "counted_when",
    "distinct_texts", "good_share", "goodput_per_s", "highest_good_rate", "in_flight", "knee", "largest_gap",
    "littles_law", "make_workload", "measure_machine", "new_run", "on_cores", "open_loop", "profile",
    "read_results", "server_counts", "split_cores", "summarize", "timed_stream", "unexplained_ms",
    "write_dataset", "write_results",
]  # fmt: skip
