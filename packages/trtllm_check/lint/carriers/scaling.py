"""How Application Auto Scaling names what SageMaker scales: each dimension has a form of resource of its own."""

import re

VARIANT, COMPONENT = "endpoint/ENDPOINT/variant/VARIANT", "inference-component/NAME"
# docs.aws.amazon.com/autoscaling/application/APIReference/API_RegisterScalableTarget.html, ResourceId
RESOURCES = {
    "sagemaker:variant:DesiredInstanceCount": (re.compile(r"endpoint/[^/]+/variant/[^/]+"), VARIANT),
    "sagemaker:variant:DesiredProvisionedConcurrency": (re.compile(r"endpoint/[^/]+/variant/[^/]+"), VARIANT),
    "sagemaker:inference-component:DesiredCopyCount": (re.compile(r"inference-component/[^/]+"), COMPONENT),
}


def resource_wanted(dimension: str, resource: str) -> str:
    """The form that the dimension's resource has, where ``resource`` has another; "" where it fits or nobody knows."""
    pattern, right = RESOURCES.get(dimension, (None, ""))
    return right if pattern is not None and resource and pattern.fullmatch(resource) is None else ""
