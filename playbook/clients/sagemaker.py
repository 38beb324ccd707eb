"""The life of one SageMaker endpoint with boto3: upload, wait until it is in service, ask it, delete it."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playbook.clients.aws import AwsSession
from playbook.clients.endpoint_life import BUSY, DELETE_S, drop_end, watch
from playbook.clients.endpoint_life import Life as Life
from playbook.clients.endpoint_life import plan_end as plan_end
from playbook.clients.endpoint_life import planned_end as planned_end
from playbook.clients.endpoint_life import wait_in_service as wait_in_service
from playbook.clients.endpoint_life import wait_until_gone as wait_until_gone
from playbook.clients.sagemaker_endpoint import Line, streamed, whole
from serving_base.errors import UsageError


def split_s3_uri(uri: str) -> tuple[str, str]:
    """Bucket and key of ``s3://bucket/key``; :class:`UsageError` for anything else."""
    parts = urlsplit(uri)
    if parts.scheme != "s3" or not parts.netloc:
        raise UsageError(f"{uri!r} is no address in S3", fix="write s3://bucket/key")
    return parts.netloc, parts.path.removeprefix("/")


def upload(session: AwsSession, source: Path, uri: str) -> list[str]:
    """Upload a file to ``uri``, or everything below a folder under it. Returns the keys."""
    bucket, key = split_s3_uri(uri)
    s3 = session.client("s3")
    if source.is_file():
        s3.upload_file(str(source), bucket, key)
        return [key]
    prefix = f"{key.rstrip('/')}/" if key else ""
    files = sorted(path for path in source.rglob("*") if path.is_file())
    if not files:
        raise UsageError(f"{source} holds no file to upload", fix="make it first")
    keys = [prefix + path.relative_to(source).as_posix() for path in files]
    for path, name in zip(files, keys, strict=True):
        s3.upload_file(str(path), bucket, name)
    return keys


def invoke(session: AwsSession, request: Mapping[str, Any]) -> Line:
    """One whole answer in LMI's schema. Raises the errors of :mod:`playbook.clients.errors`."""
    return whole(session.client("sagemaker-runtime"), request)


def stream(session: AwsSession, request: Mapping[str, Any]) -> Iterator[Line]:
    """The JSON lines of a streamed answer; :class:`playbook.clients.BrokenStream`, with what came, if it breaks off."""
    return streamed(session.client("sagemaker-runtime"), request)


def delete(session: AwsSession, name: str, *, timeout_s: float = DELETE_S) -> list[str]:
    """Delete endpoint ``name`` and what belongs to it, in the reverse order of its creation. Returns what was there.

    Safe to repeat: what is gone already is passed over. Raises :class:`PlaybookError` if the endpoint stays.
    """
    gone = _delete_scaling(session, name)
    gone += _delete_endpoint(session, name, timeout_s)
    gone += drop_end(session, name)  # after the endpoint: until then it is the last resort
    client = session.client("sagemaker")
    for config in _named(client, "list_endpoint_configs", "EndpointConfigs", "EndpointConfigName", name):
        client.delete_endpoint_config(EndpointConfigName=config)
        gone.append(f"configuration {config}")
    for model in _named(client, "list_models", "Models", "ModelName", name):
        client.delete_model(ModelName=model)
        gone.append(f"model {model}")
    return gone


def delete_uploads(session: AwsSession, uri: str) -> int:
    """Delete every object under ``uri``; returns how many there were."""
    bucket, prefix = split_s3_uri(uri)
    s3 = session.client("s3")
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    keys = [item["Key"] for page in pages for item in page.get("Contents", [])]
    for key in keys:
        s3.delete_object(Bucket=bucket, Key=key)
    return len(keys)


def _delete_scaling(session: AwsSession, name: str) -> list[str]:
    """Scaling goes first: it would refuse to let go of an endpoint that is away."""
    scaling, cloudwatch = session.client("application-autoscaling"), session.client("cloudwatch")
    gone = []
    for target in scaling.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"]:
        if target["ResourceId"].startswith(f"endpoint/{name}/"):
            keys = ("ServiceNamespace", "ResourceId", "ScalableDimension")
            scaling.deregister_scalable_target(**{key: target[key] for key in keys})
            gone.append(f"scaling of {target['ResourceId']}")
    alarms = [alarm["AlarmName"] for alarm in cloudwatch.describe_alarms(AlarmNamePrefix=f"{name}-")["MetricAlarms"]]
    if alarms:
        cloudwatch.delete_alarms(AlarmNames=alarms)
    return gone + [f"alarm {alarm}" for alarm in alarms]


def _delete_endpoint(session: AwsSession, name: str, timeout_s: float) -> list[str]:
    from botocore.exceptions import ClientError

    gone: list[str] = []
    refusals = ["SageMaker has not finished deleting it"]
    for endpoint in watch(session, name, timeout_s, why=lambda: refusals[-1]):
        gone = [f"endpoint {name}"]
        if (status := endpoint["EndpointStatus"]) != "Deleting":
            try:
                session.client("sagemaker").delete_endpoint(EndpointName=name)
            except ClientError as error:  # in some states it may not be deleted yet
                if status not in BUSY:
                    raise
                refusals.append(error.response["Error"].get("Message", refusals[-1]))
    return gone


def _named(client: Any, operation: str, key: str, field: str, name: str) -> list[str]:
    """Names of the endpoint's versions (``<name>-v1``, ...), the newest first."""
    pages = client.get_paginator(operation).paginate(NameContains=f"{name}-v")
    found = [item[field] for page in pages for item in page[key]]
    versions = [item for item in found if item.startswith(f"{name}-v") and item.removeprefix(f"{name}-v").isdecimal()]
    return sorted(versions, key=lambda item: int(item.rpartition("-v")[2]), reverse=True)
