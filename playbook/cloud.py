"""Opens the cloud of a profile: on the embedded lane one on this machine, otherwise a real account, after its price."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from playbook.billing import LOCAL_REGION, Account, look_at
from playbook.lanes.base import LoopbackCloud, lane_of
from serving_base.errors import Skipped, UsageError
from serving_base.facts.prices import price
from serving_clients.aws import AwsSession, loopback_session, real_session

if TYPE_CHECKING:
    from playbook.stages import Workspace

CLOUD_FOLDER = "cloud"
BUCKET = "playbook-models"
EXAMPLE_BUCKET = "your-bucket"
EXAMPLE_ACCOUNT = "123456789012"


@dataclass(frozen=True)
class Places:
    """Where an endpoint is made, known before anything is opened; ``missing``: what stands for a name of yours."""

    region: str
    bucket: str
    role_arn: str
    scheduler_role_arn: str
    missing: tuple[str, ...] = ()

    @property
    def account_id(self) -> str:
        return self.role_arn.split(":")[4]

    def endpoint_arn(self, name: str) -> str:
        return f"arn:aws:sagemaker:{self.region}:{self.account_id}:endpoint/{name}"


def places(
    workspace: "Workspace", *, region: str = "", role_arn: str = "", bucket: str = "", scheduler_role_arn: str = ""
) -> Places:
    """The places of the profile's cloud; opens nothing. On a real account an example stands for what is not given.

    ``region``: empty means the configured one, without one us-east-1.
    """
    if local := _local_cloud(workspace):
        return Places(local.region, BUCKET, local.role_arn, local.scheduler_role_arn)
    given = {"role_arn": role_arn, "bucket": bucket, "scheduler_role_arn": scheduler_role_arn}
    example = f"arn:aws:iam::{EXAMPLE_ACCOUNT}:role"
    return Places(
        region or configured_region(),
        bucket or EXAMPLE_BUCKET,
        role_arn or f"{example}/sagemaker-execution",
        scheduler_role_arn or f"{example}/scheduler-execution",
        tuple(name for name, value in given.items() if not value),
    )


def _local_cloud(workspace: "Workspace") -> LoopbackCloud | None:
    return lane_of(workspace.profile.lane).local_cloud(workspace.folder(CLOUD_FOLDER))


def configured_region() -> str:
    """boto3's own region, from the environment or ``~/.aws``; asks no service."""
    from botocore.session import Session

    return Session().get_config_variable("region") or LOCAL_REGION


@dataclass(frozen=True)
class Cloud:
    """Where endpoints are made. ``price``: what was confirmed, in words; ``session.boto`` serves other SDKs, too."""

    session: AwsSession
    places: Places
    price: str
    stop: Callable[[], object]

    @property
    def region(self) -> str:
        return self.session.region

    @property
    def bucket(self) -> str:
        return self.places.bucket

    @property
    def role_arn(self) -> str:
        return self.places.role_arn

    def client(self, service: str, config: Any = None) -> Any:
        """A boto3 client of this cloud."""
        return self.session.client(service, config)

    def bill(self, *, now: datetime | None = None) -> Account:
        """What bills now in this account and region: what ``playbook cost`` shows."""
        return look_at(self.session, now=now)


def open_cloud(
    workspace: "Workspace",
    where: Places | None = None,
    *,
    instance_type: str = "ml.p5.48xlarge",
    instance_count: int = 1,
    max_usd_per_hour: float = 0.0,
    usd_per_hour: float = 0.0,
) -> Cloud:
    """The profile's cloud; nothing in it costs anything yet.

    On a real account ``max_usd_per_hour`` must cover the instances, or :class:`Skipped` says what they cost;
    ``usd_per_hour`` is your own price of one instance, instead of the dated one that ships. The roles and the bucket
    of ``where`` must exist there.
    """
    where = where or places(workspace)
    if local := _local_cloud(workspace):
        return _opened(local, where)
    each, note = _instance_price(instance_type, usd_per_hour)
    total = each * instance_count
    bill = f"{instance_count} x {instance_type} = {total:.2f} USD per hour ({note})"
    if total > max_usd_per_hour:
        raise Skipped(
            f"an endpoint would cost {bill}",
            why=f"max_usd_per_hour is {max_usd_per_hour:g}: nothing has been created",
            fix=f"set max_usd_per_hour to {total:.2f} or more if you want that, or run profile local for nothing",
        )
    if where.missing:
        raise UsageError(
            f"a real account needs {' and '.join(where.missing)}",
            why="SageMaker reads the model from your bucket under your role, and a scheduler's role ends the endpoint",
            fix="create them first (the chapter shows the roles' policies) and pass their names",
        )
    return Cloud(real_session(where.region), where, bill, stop=lambda: None)


def _instance_price(instance_type: str, usd_per_hour: float) -> tuple[float, str]:
    if usd_per_hour > 0:
        return usd_per_hour, "your own price"
    known = price(instance_type)
    return known.usd_per_hour, f"{known.region}, {known.date}, {known.note}"


def _opened(local: LoopbackCloud, where: Places) -> Cloud:
    local.start()
    try:
        session = loopback_session(local.endpoint_url, local.region)
        session.client("s3").create_bucket(Bucket=where.bucket)
    except BaseException:
        local.stop()
        raise
    return Cloud(session, where, "nothing, this cloud is on this machine", stop=local.stop)
