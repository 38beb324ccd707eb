"""What a plan may run on: the GPUs that are known (:mod:`serving_base.facts.gpus`) and the machines measured here."""

import math

from serving_base.errors import UsageError, nearest
from serving_base.facts.gpus import Gpu, find_gpu, gpu_names, plain_name
from serving_base.facts.gpus import gpus as known_gpus

_measured: dict[str, Gpu] = {}


def gpus() -> dict[str, Gpu]:
    """Every GPU that a plan may name: those that are known, then the measured machines of this process."""
    return {**known_gpus(), **_measured}


def gpu_name(text: str) -> str:
    """The planner's name of a GPU from the ways it is written elsewhere (``H100``, ``h100-sxm-80gb``).

    :class:`UsageError` names the nearest for an unknown one.
    """
    return gpu(text).name


def gpu(text: str) -> Gpu:
    """The GPU or measured machine called ``text``; :class:`UsageError` names the nearest if unknown."""
    found = _measured.get(text) or find_gpu(text)
    if found:
        return found
    raise UsageError(
        f"unknown gpu {text!r}",
        why=f"the planner knows {', '.join(gpus())}",
        fix=f"use {nearest(plain_name(text), gpus())}, the nearest",
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
    if name in gpu_names():
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
