"""What a plan says. Every figure is planned, none is measured; ``data/formulas.yml`` has the formula of each key."""

import datetime
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator

from serving_base.record import Record
from serving_base.yaml_files import read_yaml
from serving_planner.case import Case

FORMULAS_FILE = Path(__file__).parent / "data" / "formulas.yml"
Binding = Literal["compute", "bandwidth", "link", "overhead", "kv_cache", "batch_size", "arrival_rate"]
DIGITS = 6
Figure = Annotated[float, AfterValidator(lambda value: float(f"{value:.{DIGITS}g}"))]
"""A number with six digits: more would pretend to be exact."""


class Percentiles(Record):
    """Over all requests of the run, its start included, in milliseconds; linear between neighbours."""

    p50: Figure
    p90: Figure
    p99: Figure

    def at(self, percentile: int) -> float:
        """The value at 50, 90 or 99."""
        return {50: self.p50, 90: self.p90, 99: self.p99}[percentile]


class MemoryGib(Record):
    """GiB per GPU of the fullest rank."""

    weights: Figure
    kv_cache: Figure
    activations: Figure
    runtime: Figure
    total: Figure


class Latencies(Record):
    """Of the requests of a run. ``tpot_ms`` is None for answers of one token."""

    ttft_ms: Percentiles
    tpot_ms: Percentiles | None
    request_latency_ms: Percentiles


class Floor(Latencies):
    """The same requests with each operation at the hardware's peak, one after the other, and nothing between them."""

    output_tokens_per_s: Figure
    output_tokens_per_s_per_gpu: Figure


class PriceUsed(Record):
    """What the costs were computed with; ``date`` is None for a price that the case gave."""

    usd_per_hour: float
    source: str
    date: datetime.date | None = None
    note: str = ""


class Steady(Record):
    """The load after its start and before its end, in closed form: means, no percentiles.

    Of all replicas together. ``in_flight``: requests that hold a place in an engine; ``decoding``: those of them that
    get a token in a step; ``utilisation``: of an open loop, arrivals over what the replicas can serve.
    """

    in_flight: Figure
    decoding: Figure
    ttft_ms: Figure
    tpot_ms: Figure
    request_latency_ms: Figure
    requests_per_s: Figure
    output_tokens_per_s: Figure
    output_tokens_per_s_per_gpu: Figure
    utilisation: Figure | None
    binding_limit: Binding
    share_of_floor: Figure
    cost_usd_per_million_output_tokens: Figure | None
    cost_usd_per_million_total_tokens: Figure | None


class Plan(Record):
    """The answer to a :class:`~serving_planner.case.Case`; ``model_dump(mode="json")`` is what ``--json`` prints.

    Units are in the names. ``memory_gib`` is per GPU, ``kv_capacity_tokens`` per replica, ``max_concurrency`` and the
    rates are over all replicas. ``tpot_ms`` is None for answers of one token. ``simulated_concurrency``: requests in
    flight of a closed loop, None for an open one.
    """

    memory_gib: MemoryGib
    kv_capacity_tokens: int
    max_concurrency: int
    ttft_ms: Percentiles
    tpot_ms: Percentiles | None
    request_latency_ms: Percentiles
    output_tokens_per_s: Figure
    output_tokens_per_s_per_gpu: Figure
    requests_per_s: Figure
    floor: Floor
    binding_limit: Binding
    share_of_floor: Figure
    time_split: dict[str, Figure]
    joules_per_output_token_at_most: Figure | None
    cost_usd_per_million_output_tokens: Figure | None
    cost_usd_per_million_total_tokens: Figure | None
    price: PriceUsed | None
    steady: Steady
    simulated_concurrency: int | None
    case: Case
    warnings: tuple[str, ...]


@cache
def formulas() -> dict[str, str]:
    """The formula of each key of a :class:`Plan`, in one line each."""
    content: dict[str, str] = read_yaml(FORMULAS_FILE)
    return content
