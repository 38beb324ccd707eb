"""The limits of an AWS account that a GPU instance counts against (``quotas.yml``): permission, not capacity."""

from functools import cache
from pathlib import Path
from typing import Any, Literal

from serving_base.facts.gpus import instance
from serving_base.record import Record
from serving_base.yaml_files import read_yaml

SOURCE = "gruntwork-io/terraform-aws-utilities@55f0c2de modules/request-quota-increase/variables.tf"


class Quota(Record):
    """``service``, ``code``: as Service Quotas calls them. ``needed``: for the instances asked for, in ``unit``."""

    service: Literal["ec2", "sagemaker"]
    code: str
    name: str
    unit: Literal["vCPUs", "instances"]
    needed: int


def quotas_of(instance_type: str, count: int = 1) -> tuple[Quota, ...]:
    """What ``count`` instances need: EC2's quota, and SageMaker's for endpoints where its code is known.

    :class:`serving_base.errors.UsageError` for an instance that is not in ``instances.yml``.
    """
    machine = instance(instance_type)
    family = machine.name.partition(".")[0]
    found = [
        Quota(service="ec2", code=row["code"], name=row["name"], unit="vCPUs", needed=count * machine.vcpus)
        for row in _content()["on_demand"]
        if family in row["families"]
    ]
    if code := _content()["endpoint"].get(machine.name):
        name = f"ml.{machine.name} for endpoint usage"
        found.append(Quota(service="sagemaker", code=code, name=name, unit="instances", needed=count))
    return tuple(found)


@cache
def _content() -> dict[str, Any]:
    content: dict[str, Any] = read_yaml(Path(__file__).with_name("quotas.yml"))
    return content
