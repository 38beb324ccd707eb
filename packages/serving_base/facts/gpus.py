"""The GPUs (``gpus.yml``) by every name that they are given, and AWS's instances that hold them (``instances.yml``)."""

from functools import cache
from pathlib import Path
from typing import Any

from pydantic import Field

from serving_base.errors import UsageError, nearest
from serving_base.record import Record
from serving_base.yaml_files import read_yaml

GIB = 2**30
_FIELD_OF = {"memory_mib": "memory_bytes", "visible_gib": "visible_bytes"}


class Gpu(Record):
    """What computes: one GPU, or a machine without one that was measured. All per GPU, dense, as specified."""

    name: str
    architecture: str
    memory_bytes: int = Field(gt=0, description="what nvidia-smi reports as total")
    visible_bytes: int = Field(gt=0, description="what the driver leaves to programs (total of cudaMemGetInfo)")
    bandwidth_bytes_per_s: float = Field(gt=0, description="of its own memory")
    dense_flops: dict[str, float] = Field(description="FLOP/s without sparsity, by precision: bf16, fp8")
    link: str
    link_bytes_per_s: float = Field(gt=0, description="to another GPU of the machine, one direction")
    link_gpus: int = Field(ge=1, description="GPUs that one machine links so")
    power_w: float = Field(ge=0, description="board power limit; 0: unknown")
    source: str = Field(min_length=1)
    from_memory: tuple[str, ...] = ()  # fields that no file and no machine was read for
    measured: bool = False  # a machine that was measured, not a GPU from a data sheet
    step_overhead_us: float = Field(0.0, ge=0, description="of a measured machine, beside the rooflines: per step")
    token_overhead_us: float = Field(0.0, ge=0, description="the same, for each sequence of a step")

    @property
    def visible_gib(self) -> float:
        """``visible_bytes`` in GiB."""
        return self.visible_bytes / GIB

    @property
    def fp8(self) -> bool:
        """Whether it computes in FP8."""
        return "fp8" in self.dense_flops


@cache
def _entries() -> dict[str, dict[str, Any]]:
    entries: dict[str, dict[str, Any]] = read_yaml(Path(__file__).with_name("gpus.yml"))
    return entries


@cache
def gpu_names() -> dict[str, str]:
    """Every name of every GPU -> its name here: itself, then the aliases."""
    names = {name: name for name in _entries()}
    return names | {alias: name for name, entry in _entries().items() for alias in entry["aliases"]}


@cache
def known_gpu(name: str) -> Gpu:
    """The GPU called ``name`` in ``gpus.yml``."""
    fields = {key: value for key, value in _entries()[name].items() if key != "aliases"}
    memory, visible = int(fields.pop("memory_mib") * 2**20), int(fields.pop("visible_gib") * GIB)
    marks = tuple(_FIELD_OF.get(key, key) for key in fields.pop("from_memory", ()))
    return Gpu(name=name, memory_bytes=memory, visible_bytes=visible, from_memory=marks, **fields)


def gpus() -> dict[str, Gpu]:
    """Every GPU of ``gpus.yml``."""
    return {name: known_gpu(name) for name in _entries()}


def plain_name(text: str) -> str:
    """``NVIDIA H100_SXM`` as the data file writes names: ``h100-sxm``."""
    return "-".join(text.strip().lower().replace("_", " ").replace("-", " ").split()).removeprefix("nvidia-")


@cache
def find_gpu(text: str) -> Gpu | None:
    """The GPU that ``text`` names in one of the ways it is written elsewhere; None for one that is not known."""
    name = gpu_names().get(plain_name(text))
    return known_gpu(name) if name else None


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
