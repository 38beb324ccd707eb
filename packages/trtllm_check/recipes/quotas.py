"""Requests to Service Quotas: what an account may start, and to be allowed more. Data; nothing is sent.

``problems`` holds them against botocore's model.
"""

import shlex
from collections.abc import Mapping
from typing import Any

from serving_base.facts.quotas import Quota, quotas_of
from trtllm_check.recipes.service_model import request_problems

__all__ = ["Quota", "as_command", "get_service_quota", "problems", "quotas_of", "request_service_quota_increase"]

SERVICE = "service-quotas"


def get_service_quota(quota: Quota) -> dict[str, Any]:
    """Reads the account's value, in the region of the client."""
    return {"ServiceCode": quota.service, "QuotaCode": quota.code}


def request_service_quota_increase(quota: Quota) -> dict[str, Any]:
    """Asks for what is needed. AWS may open a support case, refuse, or grant less."""
    return {**get_service_quota(quota), "DesiredValue": float(quota.needed)}


def problems(operation: str, request: Mapping[str, Any]) -> list[str]:
    """What botocore's model of Service Quotas forbids in the request, one sentence each."""
    return request_problems(SERVICE, operation, request)


def as_command(operation: str, request: Mapping[str, Any]) -> str:
    """The same as a line of the AWS command line; ``operation`` as botocore writes it, ``get_service_quota``."""
    from botocore import xform_name

    words = ["aws", SERVICE, operation.replace("_", "-")]
    for name, value in request.items():
        words += [f"--{xform_name(name, '-')}", _written(value)]
    return shlex.join(words)


def _written(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
