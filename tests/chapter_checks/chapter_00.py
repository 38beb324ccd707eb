"""Values with which chapter 00's checks pass, and others with which they fire."""

from typing import Any

from chapter_cells import Case
from playbook.preflight import Check
from trtllm_check.recipes import quotas

READY = Check("disk", "900 GB free", ">= 5 GB", "ok")
FULL = Check("disk", "1 GB free", ">= 5 GB", "missing", "free space")


def asking(instance: str = "p5.48xlarge", **changed: object) -> dict[str, Any]:
    """What the cell before leaves for ``instance``; ``changed``: members of its last request."""
    wanted = quotas.quotas_of(instance)
    operation = "request_service_quota_increase"
    requests = [(operation, quotas.request_service_quota_increase(one) | changed) for one in wanted]
    return {"quotas": quotas, "wanted": wanted, "requests": requests}


CASES = [
    Case("00-07", "this machine is ready for the profile", {"checks": [READY]}, {"checks": [READY, FULL]}),
    Case("00-quota-e", "botocore's model accepts", asking(), asking(QuotaCode="417A185B!")),
    Case("00-quota-e", "EC2 counts the vCPUs", asking(), asking("g6.xlarge")),
]
