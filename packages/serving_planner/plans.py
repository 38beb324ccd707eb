"""What a plan says: every figure is planned, none is measured; its price, and what to know before believing it.

``data/formulas.yml`` has the formula of each key.
"""

import datetime
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator

from serving_base.errors import UsageError
from serving_base.facts.prices import price
from serving_base.measures import usd_per_million
from serving_base.record import Record
from serving_base.yaml_files import read_yaml
from serving_planner.case import Case
from serving_planner.cost_model.laws import stand_in
from serving_planner.replicas import ResolvedCase
from serving_planner.simulator.result import Served

FORMULAS_FILE = Path(__file__).parent / "data" / "formulas.yml"
Binding = Literal["compute", "bandwidth", "link", "overhead", "kv_cache", "batch_size", "arrival_rate"]
DIGITS = 6
Figure = Annotated[float, AfterValidator(lambda value: float(f"{value:.{DIGITS}g}"))]
"""A number with six digits: more would pretend to be exact."""


class PlannedPercentiles(Record):
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

    ttft_ms: PlannedPercentiles
    tpot_ms: PlannedPercentiles | None
    request_latency_ms: PlannedPercentiles


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
    ttft_ms: PlannedPercentiles
    tpot_ms: PlannedPercentiles | None
    request_latency_ms: PlannedPercentiles
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


def price_of(case: Case) -> PriceUsed | None:
    """The hourly price of the machine: the case's own, else the dated one of its instance; None if nobody knows it."""
    if case.usd_per_hour is not None:
        return PriceUsed(usd_per_hour=case.usd_per_hour, source="given")
    if case.instance is None:
        return None
    try:
        known = price(case.instance.strip().lower())
    except UsageError:
        return None
    note = f"{known.option}, {known.region}; {known.note}"
    return PriceUsed(usd_per_hour=known.usd_per_hour, source=known.source, date=known.date, note=note)


def cost_per_million(usd_per_hour: float | None, tokens_per_s: float) -> float | None:
    """Dollars for a million tokens at that rate. None without a price or a rate."""
    return None if usd_per_hour is None or tokens_per_s <= 0 else usd_per_million(usd_per_hour, tokens_per_s)


def joules_per_token_at_most(case: Case, tokens_per_s: float) -> float | None:
    """Board power limit x GPUs / rate: an upper bound of the GPUs' share, as no board draws more than its limit.

    None where the power is not known. The host, the fans and the cooling are not in it.
    """
    power_w = case.hardware.power_w * case.gpu_count
    return power_w / tokens_per_s if power_w and tokens_per_s > 0 else None


UNCERTAIN, NOTABLE = 0.02, 0.1
"""What runtime and activations may be wrong by, of the GPU's memory; the loss of KV cache that is worth a word."""


def warnings_of(asked: ResolvedCase, served: Sequence[Served]) -> tuple[str, ...]:
    """Everything that can be planned and may still surprise, the gravest first, each once."""
    each = "in each replica: " if asked.case.replicas > 1 else ""
    found = [
        *(f"{each}{warning}" for one in served for warning in one.warnings),
        *asked.case.warnings,
        *asked.memory.warnings,
        *_little_room(asked),
        *_other_tables(asked),
        *_over_pcie(asked),
        *_prompts_in_pieces(asked),
        *_price(asked),
    ]
    return tuple(dict.fromkeys(found))


def _little_room(asked: ResolvedCase) -> list[str]:
    """Where the cache is what a small error in the memory would double or halve."""
    gpu, memory = asked.case.hardware, asked.memory
    lost = UNCERTAIN * memory.gpu_bytes / max(1, memory.kv_cache_bytes)
    if lost < NOTABLE:
        return []
    return [
        f"the KV cache is what is left of {gpu.name}'s memory: an engine that needs {UNCERTAIN:.0%} more of it holds "
        f"{lost:.0%} fewer tokens"
    ]


def _other_tables(asked: ResolvedCase) -> list[str]:
    case = asked.case
    if case.hardware.measured:
        return [f"of {case.gpu} only bandwidth and FLOP/s were measured: what its kernels lose is assumed"]
    engine, gpu = stand_in(case.engine, case.hardware)
    if (engine, gpu) == (case.engine, case.gpu):
        return []
    return [
        f"no times of operations are known for {case.engine} on {case.gpu}: those of {engine} on {gpu} stand for them"
    ]


def _over_pcie(asked: ResolvedCase) -> list[str]:
    case = asked.case
    if case.tp <= 2 or "PCIe" not in case.hardware.link:
        return []
    return [
        f"TP {case.tp} over {case.hardware.link}: the all-reduces of the tables are slower than published throughput "
        "allows (docs/planner.md); expect better, and measure"
    ]


def _prompts_in_pieces(asked: ResolvedCase) -> list[str]:
    case = asked.case
    if case.isl <= case.max_num_tokens:
        return []
    return [
        f"max_num_tokens {case.max_num_tokens} is smaller than a prompt of {case.isl} tokens: chunked prefill "
        f"computes it in {-(-case.isl // case.max_num_tokens)} steps or more"
    ]


def _price(asked: ResolvedCase) -> list[str]:
    case = asked.case
    if case.instance is None or price_of(case) is not None:
        return []
    return [f"no price is known for {case.instance}: give usd_per_hour to see costs"]
