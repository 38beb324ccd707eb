"""A service target, and the ways to meet it on an instance."""

from typing import Literal

from pydantic import Field

from serving_base.record import Record
from serving_planner.case import Engine
from serving_planner.planned import Figure, PriceUsed

Percentile = Literal[50, 90, 99]


class Target(Record):
    """What a service promises: times that so many percent of the requests keep, and the load it must carry.

    ``tpot_ms`` is each request's mean time between two tokens (what AIPerf calls ITL). No ``rate``: the best is looked
    for. Lengths as in a case: nominal, drawn uniformly from [``length_ratio`` x nominal, nominal].
    """

    model: str
    isl: int = Field(ge=1, description="prompt tokens, nominal")
    osl: int = Field(ge=1, description="answer tokens, nominal")
    ttft_ms: float | None = Field(None, gt=0, description="time to first token, at most")
    tpot_ms: float | None = Field(None, gt=0, description="time per output token, at most")
    percentile: Percentile = Field(90, description="of the requests that keep both")
    rate: float | None = Field(None, gt=0, description="requests per second, Poisson")
    length_ratio: float = Field(0.8, gt=0, le=1)
    engine: Engine = "tensorrt-llm"


class Choice(Record):
    """One way to meet a target. Rates and costs at ``requests_per_s`` of each of ``instances`` machines.

    ``most_requests_per_s``: what one instance carries within the target. ``ttft_ms`` and ``tpot_ms`` are at the
    target's percentile where ``simulated``, else means of the closed form, which are lower. ``max_num_tokens``,
    ``max_batch_size`` and ``kv_fraction`` are proposals for the engine; ``kv_used``: peak share of the KV cache.
    """

    instance: str
    gpu: str
    gpus: int
    tp: int
    pp: int
    replicas: int
    weights: str
    kv: str
    instances: int
    requests_per_s: Figure
    most_requests_per_s: Figure
    ttft_ms: Figure
    tpot_ms: Figure
    output_tokens_per_s: Figure
    cost_usd_per_million_output_tokens: Figure | None
    cost_usd_per_million_total_tokens: Figure | None
    price: PriceUsed | None
    max_num_tokens: int
    max_batch_size: int
    kv_fraction: float
    kv_used: Figure | None
    simulated: bool


class Rejected(Record):
    """A way that does not meet the target, or does not fit."""

    instance: str
    tp: int
    pp: int
    weights: str
    kv: str
    why: str


class Choices(Record):
    """``ranked``: the cheapest first; those that were simulated stand before those that were only estimated."""

    target: Target
    ranked: tuple[Choice, ...]
    rejected: tuple[Rejected, ...]
    warnings: tuple[str, ...] = ()
