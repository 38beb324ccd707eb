"""An engine that is larger than one machine: which nodes it takes, and what of it SageMaker can hold."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from serving_base.errors import UsageError
from serving_base.facts.fit import Fit, fits
from serving_base.facts.gpus import Gpu, Instance, find_gpu, instance, instances
from serving_base.facts.models import ModelShape, known_shape
from trtllm_check.deployment import Deployment

WHY_ONE_INSTANCE = (
    "a variant of an endpoint is InitialInstanceCount copies of a container, each of which loads the whole model, and "
    "RoutingConfig sends a request to one of them: ProductionVariant has no field that joins instances into one engine"
)
WHY_SOURCE = "botocore's service model of SageMaker, ProductionVariant"


@dataclass(frozen=True)
class NodeGroup:
    """``replicas`` of one engine, each over :attr:`nodes` machines of type ``machine``."""

    name: str
    shape: ModelShape
    qformat: str
    kv_cache_dtype: str
    machine: Instance
    tp: int
    pp: int
    max_seq_len: int
    max_batch_size: int
    triton: str
    replicas: int = 1

    @property
    def world_size(self) -> int:
        return self.tp * self.pp

    @property
    def nodes(self) -> int:
        """Machines of one engine."""
        return self.world_size // self.machine.gpus

    @property
    def fit(self) -> Fit:
        """The weights of the fullest rank against one GPU."""
        return fits(self.shape, _gpu(self.machine), self.qformat, tp=self.tp, pp=self.pp)


def node_group(profile: Deployment, *, pp: int, replicas: int = 1, **settings: Any) -> NodeGroup:
    """``profile`` over ``pp`` stages on as many whole machines as it takes.

    ``settings``: ``model``, any of ``models.yml``; ``qformat``, ``kv_cache_dtype``, ``tp``, ``instance``.
    :class:`UsageError` for ranks that fill no whole machines, and for weights that do not fit.
    """
    chosen: Mapping[str, Any] = {"tp": profile.tp, "qformat": profile.qformat, "model": profile.model} | settings
    machine = instance(chosen.get("instance", profile.instance))
    shape, world = known_shape(chosen["model"]), chosen["tp"] * pp
    if world % machine.gpus:
        raise UsageError(
            f"tp {chosen['tp']} x pp {pp} does not fill whole {machine.name}",
            why=f"each has {machine.gpus} GPUs, and a pod takes all of one",
            fix=f"use a multiple of {machine.gpus} ranks",
        )
    for flag, ranks, count, what in (
        ("tp", chosen["tp"], shape.num_attention_heads, "attention heads"),
        ("pp", pp, shape.num_hidden_layers, "layers"),
    ):
        if count % ranks:
            raise UsageError(f"{flag} {ranks} does not divide the {count} {what} of {shape.name}", fix="use another")
    group = NodeGroup(
        name=re.sub(r"[^a-z0-9]+", "-", shape.name),
        shape=shape,
        qformat=chosen["qformat"],
        kv_cache_dtype=chosen.get("kv_cache_dtype", profile.kv_cache_dtype),
        machine=machine,
        tp=chosen["tp"],
        pp=pp,
        max_seq_len=profile.max_seq_len,
        max_batch_size=profile.max_batch_size,
        triton=profile.release,
        replicas=replicas,
    )
    if not group.fit:
        raise UsageError(
            f"{shape.name} in {group.qformat} does not fit {group.nodes} x {machine.name}",
            why=f"a rank holds {group.fit.needed_gb:.0f} GB, its GPU {group.fit.there_gb:.0f}",
            fix="use more stages, FP8, or a larger instance",
        )
    return group


@dataclass(frozen=True)
class SageMakerInstance:
    """Whether one instance of a SageMaker endpoint holds the model, all of its GPUs in one stage."""

    name: str
    gpus: int
    weights_gb_per_gpu: float
    there_gb_per_gpu: float

    @property
    def holds(self) -> bool:
        return self.weights_gb_per_gpu <= self.there_gb_per_gpu


def sagemaker_instances(group: NodeGroup) -> list[SageMakerInstance]:
    """The instances of eight GPUs that could run the group's format, the smallest first: see ``WHY_ONE_INSTANCE``."""
    found = []
    for machine in instances().values():
        gpu = _gpu(machine)
        if machine.gpus < 8 or (group.qformat == "fp8" and not gpu.fp8):
            continue
        fit = fits(group.shape, gpu, group.qformat, tp=machine.gpus)
        found.append(SageMakerInstance(f"ml.{machine.name}", machine.gpus, fit.needed_gb, fit.there_gb))
    return sorted(found, key=lambda one: (one.there_gb_per_gpu, one.name))


def _gpu(machine: Instance) -> Gpu:
    gpu = find_gpu(machine.gpu)
    assert gpu is not None  # every instance names a GPU of gpus.yml; a test reads them all
    return gpu
