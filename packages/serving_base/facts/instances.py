"""The instances of AWS that hold the GPUs (``instances.yml``)."""

from functools import cache
from pathlib import Path

from pydantic import Field

from serving_base.errors import UsageError
from serving_base.facts.names import nearest
from serving_base.record import Record
from serving_base.yaml_files import read_yaml


class Instance(Record):
    """A machine of AWS: its GPUs and what is around them. Its price is in :mod:`serving_base.facts.prices`."""

    name: str
    gpu: str
    gpus: int = Field(ge=1)
    vcpus: int = Field(ge=1)
    memory_gib: int = Field(ge=1, description="of the host")
    network_gbps: float = Field(gt=0, description="Gbit/s, for some sizes only in bursts")


@cache
def instances() -> dict[str, Instance]:
    """The instances that a plan may name (``instances.yml``)."""
    entries = read_yaml(Path(__file__).with_name("instances.yml"))
    return {name: Instance(name=name, **entry) for name, entry in entries.items()}


def instance(name: str) -> Instance:
    """The instance type ``name`` (also as SageMaker writes it, ``ml.p5.48xlarge``); :class:`UsageError` if unknown."""
    plain = name.strip().lower().removeprefix("ml.")
    if plain in instances():
        return instances()[plain]
    raise UsageError(
        f"unknown instance {name!r}",
        why=f"the planner knows {', '.join(instances())}",
        fix=f"use {nearest(plain, instances())}, the nearest; or give gpu and gpus instead",
    )
