"""What bills now: the SageMaker endpoints of an account, asked of the service itself and not of any ledger."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from model_server.aws.server import ADDRESS_FILE
from serving_base.errors import EnvironmentProblem, UsageError
from serving_base.facts.prices import price
from serving_clients.aws import AwsSession, loopback_session, real_session
from serving_clients.sagemaker import described, planned_end
from serving_clients.security import is_loopback
from trtllm_check.recipes import sagemaker

LOCAL_REGION = "us-east-1"


@dataclass(frozen=True)
class RunningEndpoint:
    """One endpoint. ``usd_per_hour``: of all its instances; None where no price is known.

    ``ours``: it carries the playbook's tag; ``overdue``: its time to live is over. ``ends_at``: when a schedule
    deletes it, None without one; ``ends_known`` is False where the schedule may not be read.
    """

    name: str
    status: str
    instances: str
    usd_per_hour: float | None
    age_hours: float
    ours: bool
    expires_at: datetime | None
    overdue: bool
    ends_at: datetime | None = None
    ends_known: bool = True

    def to_json(self) -> dict[str, Any]:
        times = {"expires_at": self.expires_at, "ends_at": self.ends_at}
        return {**asdict(self), **{key: at.isoformat() if at else None for key, at in times.items()}}

    @property
    def endless(self) -> bool:
        """True for one of ours that no schedule deletes."""
        return self.ours and self.ends_known and self.ends_at is None

    def row(self) -> dict[str, str]:
        """For a table."""
        until = _minute(self.expires_at) or "no limit"
        return {
            "endpoint": self.name,
            "status": self.status,
            "instances": self.instances,
            "USD/h": "unknown" if self.usd_per_hour is None else f"{self.usd_per_hour:.2f}",
            "age": f"{self.age_hours:.1f} h",
            "made by": "playbook" if self.ours else "others",
            "lives until": f"{until}, OVERDUE" if self.overdue else until,
            "deleted by schedule": _minute(self.ends_at) or ("never" if self.ends_known else "not readable"),
        }


def _minute(at: datetime | None) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC" if at else ""


@dataclass(frozen=True)
class Account:
    """What was found in one account, or why nobody could look (``problem``)."""

    where: str
    local: bool
    endpoints: tuple[RunningEndpoint, ...] = ()
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        endpoints = [item.to_json() for item in self.endpoints]
        return {"where": self.where, "local": self.local, "problem": self.problem, "endpoints": endpoints}

    @property
    def summary(self) -> str:
        """One line: how many endpoints, and what they cost together."""
        if self.problem:
            return f"not looked at, {self.problem}"
        if not self.endpoints:
            return "no endpoint is running"
        count = f"{len(self.endpoints)} endpoint{'s'[: len(self.endpoints) > 1]}"
        endless = sum(item.endless for item in self.endpoints)
        left = [f"{endless} of the playbook's without a schedule: nothing will delete it"] if endless else []
        if self.local:
            return ", ".join([f"{count} on this machine, nothing bills", *left])
        known = sum(item.usd_per_hour or 0.0 for item in self.endpoints)
        unknown = sum(item.usd_per_hour is None for item in self.endpoints)
        overdue = sum(item.overdue for item in self.endpoints)
        parts = [f"{count} bill {known:.2f} USD per hour"]
        parts += [f"{unknown} of them at a price that is not known"] if unknown else []
        parts += [f"{overdue} overdue: delete them"] if overdue else []
        return ", ".join([*parts, *left])


def look(endpoint_url: str = "", region: str = "") -> Account:
    """Ask a local cloud by its address, or without one the real account of boto3's default chain.

    Without credentials there is no real account, which is an answer; a service that refuses to answer is an error.
    """
    try:
        session = session_for(endpoint_url, region)
    except EnvironmentProblem as problem:
        return Account("real account", local=False, problem=problem.what)
    return look_at(session)


def look_at(session: AwsSession, *, now: datetime | None = None) -> Account:
    """Every endpoint that exists in the account of ``session`` at this moment."""
    where = session.endpoint_url or f"real account, {session.region}"
    return Account(where, session.is_loopback, tuple(running_endpoints(session, now=now)))


def running_endpoints(session: AwsSession, *, now: datetime | None = None) -> list[RunningEndpoint]:
    """Every endpoint of the account in the session's region, whoever made it, the dearest first."""
    client = session.client("sagemaker")
    now = now or datetime.now(UTC)
    pages = client.get_paginator("list_endpoints").paginate()
    found = [_endpoint(session, client, item, now) for page in pages for item in page["Endpoints"]]
    return sorted((item for item in found if item), key=lambda item: (-(item.usd_per_hour or 0.0), item.name))


def _endpoint(session: AwsSession, client: Any, item: Mapping[str, Any], now: datetime) -> RunningEndpoint | None:
    endpoint = described(client, item["EndpointName"])
    if endpoint is None:
        return None  # deleted since it was listed
    fleet = _fleet(client, endpoint)
    pages = client.get_paginator("list_tags").paginate(ResourceArn=item["EndpointArn"])
    tags = [tag for page in pages for tag in page["Tags"]]
    expires = sagemaker.expires_at(tags)
    ours = sagemaker.is_ours(tags)
    ends_at, ends_known = _end(session, item["EndpointName"]) if ours else (None, True)
    return RunningEndpoint(
        name=item["EndpointName"],
        status=endpoint["EndpointStatus"],
        instances=", ".join(f"{count} x {kind}" for kind, count in fleet) or "unknown",
        usd_per_hour=0.0 if session.is_loopback else _usd_per_hour(fleet),
        age_hours=round((now - item["CreationTime"]).total_seconds() / 3600, 2),
        ours=ours,
        expires_at=expires,
        overdue=expires is not None and expires < now,
        ends_at=ends_at,
        ends_known=ends_known,
    )


def _end(session: AwsSession, name: str) -> tuple[datetime | None, bool]:
    """When a schedule deletes the endpoint, and whether that could be read: looking at the bill needs no such right."""
    from botocore.exceptions import ClientError

    try:
        return planned_end(session, name), True
    except ClientError:
        return None, False


def _fleet(client: Any, endpoint: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Instance type and count of each variant; both fleets while an update runs, because both bill."""
    from botocore.exceptions import ClientError

    pending = endpoint.get("PendingDeploymentSummary") or {}
    fleet = []
    for part in (endpoint, pending):
        name = part.get("EndpointConfigName")
        if not name:
            continue
        try:
            config = client.describe_endpoint_config(EndpointConfigName=name)
        except ClientError:  # it may be deleted under a running endpoint, which bills on
            continue
        counts = {variant["VariantName"]: variant.get("CurrentInstanceCount") for variant in _variants(part)}
        for variant in config["ProductionVariants"]:
            count = counts.get(variant["VariantName"]) or variant.get("InitialInstanceCount") or 0
            fleet.append((variant.get("InstanceType", "serverless"), count))
    return fleet


def _variants(part: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    found: Iterable[Mapping[str, Any]] = part.get("ProductionVariants") or ()
    return found


def _usd_per_hour(fleet: Sequence[tuple[str, int]]) -> float | None:
    if not fleet:
        return None
    try:
        return sum(price(kind).usd_per_hour * count for kind, count in fleet)
    except UsageError:
        return None


def local_clouds(workspace: Path) -> list[str]:
    """Addresses of the local clouds of a workspace that run now."""
    import httpx

    running = []
    for path in sorted(workspace.glob(f"*/cloud/{ADDRESS_FILE}")):
        address = path.read_text(encoding="utf-8").strip()
        try:
            httpx.get(address, timeout=1.0, trust_env=False)
        except httpx.HTTPError:
            continue
        running.append(address)
    return running


def session_for(endpoint_url: str, region: str) -> AwsSession:
    """The account to look at: a local one by its address, else the real one of boto3's default chain."""
    if not endpoint_url:
        return real_session(region)
    if not is_loopback(urlsplit(endpoint_url).hostname or ""):
        raise UsageError(f"{endpoint_url} is not on this machine", fix="leave --endpoint-url out for a real account")
    return loopback_session(endpoint_url, region or LOCAL_REGION)
