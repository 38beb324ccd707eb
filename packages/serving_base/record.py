"""The base of every checked record: what YAML, JSON and callers give, frozen, with no key that is not known."""

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """Its schema is built when the first one is made, so that importing its module costs little."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class FiniteRecord(Record):
    """A record of measurements or of a request for them: no NaN and no infinity."""

    model_config = ConfigDict(allow_inf_nan=False)
