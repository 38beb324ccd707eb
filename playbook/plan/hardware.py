"""GPUs, the instances that hold them, and measured machines: facts with a source each (``data/gpus.yml``)."""

import math
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from playbook.errors import UsageError
from playbook.plan.names import nearest
from playbook.yaml_files import read_yaml

DATA = Path(__file__).parent / "data"


class Gpu(BaseModel):
    """What computes: one GPU, or a machine without one that was measured. All per GPU, dense, as specified."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

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
    def fp8(self) -> bool:
        """Whether it computes in FP8."""
        return "fp8" in self.dense_flops


class Instance(BaseModel):
    """A machine of AWS: which GPUs, how many, and what is around them. Its price is in :mod:`playbook.prices`."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    name: str
    gpu: str
    gpus: int = Field(ge=1)
    vcpus: int = Field(ge=1)
    memory_gib: int = Field(ge=1, description="of the host")
    network_gbps: float = Field(gt=0, description="Gbit/s, for some sizes only in bursts")


_FIELD_OF = {"memory_mib": "memory_bytes", "visible_gib": "visible_bytes"}
_measured: dict[str, Gpu] = {}


@cache
def _file() -> tuple[dict[str, Gpu], dict[str, str]]:
    """The GPUs of the data file and their aliases."""
    shipped, aliases = {}, {}
    for name, entry in read_yaml(DATA / "gpus.yml").items():
        fields: dict[str, Any] = dict(entry)
        aliases.update(dict.fromkeys(fields.pop("aliases"), name))
        memory, visible = int(fields.pop("memory_mib") * 2**20), int(fields.pop("visible_gib") * 2**30)
        marks = tuple(_FIELD_OF.get(key, key) for key in fields.pop("from_memory", ()))
        shipped[name] = Gpu(name=name, memory_bytes=memory, visible_bytes=visible, from_memory=marks, **fields)
    return shipped, aliases


def gpus() -> dict[str, Gpu]:
    """Every GPU that a plan may name: those that ship, then the measured machines of this process."""
    return {**_file()[0], **_measured}


def gpu_name(text: str) -> str:
    """The planner's name of a GPU from the ways it is written elsewhere (``H100``, ``h100-sxm-80gb``).

    :class:`UsageError` names the nearest for an unknown one.
    """
    shipped, aliases = _file()
    if text in _measured:
        return text
    plain = "-".join(text.strip().lower().replace("_", " ").replace("-", " ").split()).removeprefix("nvidia-")
    if plain in shipped:
        return plain
    if plain in aliases:
        return aliases[plain]
    raise UsageError(
        f"unknown gpu {text!r}",
        why=f"the planner knows {', '.join(gpus())}",
        fix=f"use {nearest(plain, gpus())}, the nearest",
    )


def gpu(name: str) -> Gpu:
    """The GPU or measured machine called ``name``; :class:`UsageError` names the nearest if unknown."""
    return _file()[0].get(name) or gpus()[gpu_name(name)]


@cache
def instances() -> dict[str, Instance]:
    """The instances that a plan may name (``data/instances.yml``)."""
    return {name: Instance(name=name, **entry) for name, entry in read_yaml(DATA / "instances.yml").items()}


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


def local_machine(
    bandwidth_bytes_per_s: float,
    flops: float,
    memory_bytes: int,
    name: str = "this machine",
    *,
    step_overhead_us: float = 0.0,
    token_overhead_us: float = 0.0,
) -> Gpu:
    """A machine as it was measured, to plan on as if it were one GPU; from then on a case may name it.

    ``bandwidth_bytes_per_s``: reading memory, all cores. ``flops``: FLOP/s of a large matrix product, all cores; the
    same for both precisions, as a CPU emulates FP8. ``memory_bytes``: what a process may use. ``step_overhead_us``
    and ``token_overhead_us``: what engine and server do for each step and each of its tokens on the cores that compute.
    Measuring again under the same name replaces the numbers. :class:`UsageError` for a number that is none, or the name
    of a known GPU.
    """
    measured = {"bandwidth_bytes_per_s": bandwidth_bytes_per_s, "flops": flops, "memory_bytes": memory_bytes}
    wrong = [key for key, value in measured.items() if not (math.isfinite(value) and value > 0)]
    if wrong:
        raise UsageError(f"{wrong[0]}={measured[wrong[0]]} is no measurement", fix="measure again: it is above 0")
    if name in _file()[0] or name in _file()[1]:
        raise UsageError(f"{name!r} is a GPU of the planner", fix="give the machine a name of its own")
    machine = Gpu(
        name=name,
        architecture="cpu",
        memory_bytes=int(memory_bytes),
        visible_bytes=int(memory_bytes),
        bandwidth_bytes_per_s=bandwidth_bytes_per_s,
        dense_flops={"bf16": flops, "fp8": flops},
        link="none",
        link_bytes_per_s=bandwidth_bytes_per_s,
        link_gpus=1,
        power_w=0,
        source="measured here",
        measured=True,
        step_overhead_us=step_overhead_us,
        token_overhead_us=token_overhead_us,
    )
    _measured[name] = machine
    return machine
