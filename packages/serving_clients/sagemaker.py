"""The life of one SageMaker endpoint with boto3: upload, wait until it is in service, ask it, delete it.

Also what becomes of it: its states as they come, the schedule that ends it, and its end.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from serving_base.errors import PlaybookError, UsageError
from serving_clients.aws import AwsSession
from serving_clients.sagemaker_endpoint import Line, streamed, whole

BUSY = frozenset({"Creating", "Updating", "SystemUpdating", "RollingBack", "Deleting"})
"""States in which an endpoint changes by itself; in some of them SageMaker refuses to delete it."""
GONE = "gone"
WAIT_S, DELETE_S, POLL_S = 3600.0, 1800.0, 0.2
SLOW_POLL_S = 15.0
"""At most, between two looks at a real account: its API is throttled, and an endpoint takes minutes."""

Show = Callable[[str], object]


class Life:
    """Notes each state with the time at which it was seen, and prints it: ``wait_in_service(..., show=life)``."""

    def __init__(self) -> None:
        self.states: list[tuple[datetime, str]] = []

    def __call__(self, state: str) -> None:
        if not self.states or self.states[-1][1] != state:
            self.states.append((datetime.now(UTC), state))
            print(state)

    def seen(self, state: str) -> datetime:
        """When ``state`` was seen for the first time; :class:`KeyError` if it never was."""
        return {name: at for at, name in reversed(self.states)}[state]


def wait_in_service(session: AwsSession, name: str, *, timeout_s: float = WAIT_S, show: Show = print) -> None:
    """Describe the endpoint until it is in service, and show each state that it goes through.

    Raises :class:`PlaybookError` with SageMaker's FailureReason if it fails, and when ``timeout_s`` is over.
    """
    why = "the image, the model's size or a build at start-up may need longer"
    fix = "look at its log in CloudWatch (/aws/sagemaker/Endpoints); wait longer or delete it: it bills"
    for endpoint in watch(session, name, timeout_s, why=lambda: why, fix=fix, show=show):
        status = endpoint["EndpointStatus"]
        if status == "InService":
            return
        if status not in BUSY:
            raise PlaybookError(
                f"endpoint {name} is {status}",
                why=endpoint.get("FailureReason") or "SageMaker gives no reason",
                fix="mend what the reason names and delete the endpoint: it is still listed, and may still bill",
            )
    raise PlaybookError(f"there is no endpoint {name}", fix="create it")


def wait_until_gone(session: AwsSession, name: str, *, timeout_s: float = DELETE_S, show: Show = print) -> None:
    """Describe the endpoint until SageMaker does not know it any more, and show each state, the last one "gone".

    Deletes nothing. Raises :class:`PlaybookError` when ``timeout_s`` is over.
    """
    for _ in watch(session, name, timeout_s, why=lambda: "its schedule has not ended it", show=show):
        pass
    show(GONE)


def watch(
    session: AwsSession,
    name: str,
    timeout_s: float,
    *,
    why: Callable[[], str],
    fix: str = "",
    show: Show = lambda state: None,
) -> Iterator[dict[str, Any]]:
    """What SageMaker says of the endpoint, again and again until it is gone; each new state is shown.

    Raises :class:`PlaybookError` with ``why`` and ``fix`` when ``timeout_s`` is over.
    """
    client = session.client("sagemaker")
    deadline = time.monotonic() + timeout_s
    pauses = pauses_s(session)
    shown = ""
    while (endpoint := described(client, name)) is not None:
        if (state := endpoint["EndpointStatus"]) != shown:
            show(state)
            shown = state
        yield endpoint
        if time.monotonic() > deadline:
            raise PlaybookError(
                f"endpoint {name} is still {state} after {timeout_s:g} s",
                why=why(),
                fix=fix or f"it bills: aws sagemaker delete-endpoint --endpoint-name {name}, then `playbook cost`",
            )
        time.sleep(next(pauses))


def described(client: Any, name: str) -> dict[str, Any] | None:
    """The endpoint as SageMaker describes it; None if there is no such endpoint."""
    from botocore.exceptions import ClientError

    try:
        found: dict[str, Any] = client.describe_endpoint(EndpointName=name)
    except ClientError as error:
        if error.response["Error"].get("Message", "").startswith("Could not find"):
            return None
        raise
    return found


def plan_end(session: AwsSession, request: Mapping[str, Any]) -> None:
    """Send a ``create_schedule`` request; a schedule of that name, from a run that was killed, is moved instead."""
    scheduler = session.client("scheduler")
    try:
        scheduler.create_schedule(**request)
    except scheduler.exceptions.ConflictException:
        scheduler.update_schedule(**request)


def planned_end(session: AwsSession, name: str) -> datetime | None:
    """When the schedule of endpoint ``name`` deletes it, in UTC; None if nothing does."""
    scheduler = session.client("scheduler")
    try:
        found = scheduler.get_schedule(Name=schedule_of(name))
    except scheduler.exceptions.ResourceNotFoundException:
        return None
    return datetime.strptime(found["ScheduleExpression"], "at(%Y-%m-%dT%H:%M:%S)").replace(tzinfo=UTC)


def drop_end(session: AwsSession, name: str) -> list[str]:
    """Delete the schedule of endpoint ``name``. Returns what was there."""
    scheduler = session.client("scheduler")
    try:
        scheduler.delete_schedule(Name=schedule_of(name))
    except scheduler.exceptions.ResourceNotFoundException:
        return []
    return [f"schedule {schedule_of(name)}"]


def schedule_of(name: str) -> str:
    """As ``recipes.sagemaker.create_schedule`` names it."""
    return f"{name}-end"


def pauses_s(session: AwsSession) -> Iterator[float]:
    """Between two looks: twice as long each time at a real account, where some steps take seconds and some minutes."""
    pause = POLL_S
    while True:
        yield pause
        pause = POLL_S if session.is_loopback else min(2 * pause, SLOW_POLL_S)


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
    """One whole answer in LMI's schema. Raises the errors of :mod:`serving_clients.requests`."""
    return whole(session.client("sagemaker-runtime"), request)


def stream(session: AwsSession, request: Mapping[str, Any]) -> Iterator[Line]:
    """The JSON lines of a streamed answer; :class:`serving_clients.BrokenStream`, with what came, if it breaks off."""
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
