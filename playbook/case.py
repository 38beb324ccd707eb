"""The case of the course: the service that chapter 00 opens and chapter 10 answers. Its figures stand here once."""

import math
from functools import cache
from pathlib import Path

from pydantic import Field, PositiveFloat, PositiveInt

from serving_base.facts.models import ModelShape, model_shape
from serving_base.record import Record
from serving_base.yaml_files import read_yaml

CASE_FILE = Path(__file__).parent / "data" / "case.yml"
SECONDS_PER_MINUTE = 60


class ServiceCase(Record):
    """A service with one model: its load, its promise and its budget."""

    model: str = Field(description="name of the model's shape, as profiles have it")
    isl_tokens: PositiveInt = Field(description="a prompt's length, about")
    osl_tokens: PositiveInt = Field(description="an answer's length, about")
    requests_per_minute: PositiveFloat = Field(description="at the start")
    grown_requests_per_minute: PositiveFloat = Field(description="what the load grows to")
    ttft_ms: PositiveFloat = Field(description="time to the first token, at most, at the percentile")
    tpot_ms: PositiveFloat = Field(description="time of each further token, at most, at the percentile")
    percentile: int = Field(gt=0, lt=100, description="of the requests that the promise covers")
    usd_per_month: PositiveFloat = Field(description="the budget")

    @property
    def shape(self) -> ModelShape:
        return model_shape(self.model)

    @property
    def requests_per_s(self) -> float:
        return self.requests_per_minute / SECONDS_PER_MINUTE

    @property
    def grown_requests_per_s(self) -> float:
        return self.grown_requests_per_minute / SECONDS_PER_MINUTE

    @property
    def tokens(self) -> int:
        """What one request holds in the KV cache at its end: prompt and answer."""
        return self.isl_tokens + self.osl_tokens

    @property
    def longest_s(self) -> float:
        """How long a request may take that just keeps the promise, in seconds."""
        return (self.ttft_ms + (self.osl_tokens - 1) * self.tpot_ms) / 1e3

    def at_once(self, requests_per_s: float) -> int:
        """Requests in flight, by Little's law and rounded up, when each takes as long as the promise allows."""
        return math.ceil(requests_per_s * self.longest_s)


@cache
def service_case() -> ServiceCase:
    """The case of the course, from ``data/case.yml``."""
    return ServiceCase(**read_yaml(CASE_FILE))
