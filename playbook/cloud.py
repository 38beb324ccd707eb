"""Opens the cloud of a profile: on the embedded lane one on this machine, otherwise a real account, after its price."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from playbook.billing import Account, look_at
from playbook.clients.aws import AwsSession, loopback_session, real_session
from playbook.errors import UsageError
from playbook.prices import price

if TYPE_CHECKING:
    from playbook.stages import Workspace

CLOUD_FOLDER = "cloud"
BUCKET = "playbook-models"


@dataclass(frozen=True)
class Cloud:
    """Where endpoints are made. ``price``: what was confirmed, in words; ``session.boto`` serves other SDKs, too."""

    session: AwsSession
    role_arn: str
    bucket: str
    price: str
    stop: Callable[[], object]

    @property
    def region(self) -> str:
        return self.session.region

    def client(self, service: str, config: Any = None) -> Any:
        """A boto3 client of this cloud."""
        return self.session.client(service, config)

    def bill(self, *, now: datetime | None = None) -> Account:
        """What bills now in this account and region: what ``playbook cost`` shows."""
        return look_at(self.session, now=now)


def open_cloud(
    workspace: "Workspace",
    *,
    instance_type: str = "ml.p5.48xlarge",
    instance_count: int = 1,
    region: str = "",
    role_arn: str = "",
    bucket: str = "",
    max_usd_per_hour: float = 0.0,
    usd_per_hour: float = 0.0,
) -> Cloud:
    """The profile's cloud; nothing in it costs anything yet.

    On a real account ``max_usd_per_hour`` must cover the instances, or :class:`UsageError` says what they cost;
    ``usd_per_hour`` is your own price of one instance, instead of the dated one that ships. ``role_arn`` and
    ``bucket`` must exist there.
    """
    if workspace.profile.lane == "embedded":
        return _local_cloud(workspace)
    each, note = _instance_price(instance_type, usd_per_hour)
    total = each * instance_count
    bill = f"{instance_count} x {instance_type} = {total:.2f} USD per hour ({note})"
    if total > max_usd_per_hour:
        raise UsageError(
            f"this would cost {bill}",
            why=f"max_usd_per_hour is {max_usd_per_hour:g}: nothing has been created",
            fix=f"set max_usd_per_hour to {total:.2f} or more if you want that, or run profile local for nothing",
        )
    missing = [name for name, value in (("role_arn", role_arn), ("bucket", bucket)) if not value]
    if missing:
        raise UsageError(
            f"a real account needs {' and '.join(missing)}",
            why="SageMaker reads the model from your bucket, under your role",
            fix="create them first (the chapter shows the role's policy) and pass their names",
        )
    return Cloud(real_session(region), role_arn, bucket, bill, stop=lambda: None)


def _instance_price(instance_type: str, usd_per_hour: float) -> tuple[float, str]:
    if usd_per_hour > 0:
        return usd_per_hour, "your own price"
    known = price(instance_type)
    return known.usd_per_hour, f"{known.region}, {known.date}, {known.note}"


def _local_cloud(workspace: "Workspace") -> Cloud:
    from playbook.lanes.embedded.aws.server import LocalCloud

    local = LocalCloud(workspace.folder(CLOUD_FOLDER))
    local.start()
    try:
        session = loopback_session(local.endpoint_url, local.region)
        session.client("s3").create_bucket(Bucket=BUCKET)
    except BaseException:
        local.stop()
        raise
    return Cloud(session, local.role_arn, BUCKET, "nothing, this cloud is on this machine", stop=local.stop)
