"""What becomes of an endpoint: its states as they come, the schedule that ends it, and its end."""

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from playbook.clients.aws import AwsSession
from serving_base.errors import PlaybookError

BUSY = frozenset({"Creating", "Updating", "SystemUpdating", "RollingBack", "Deleting"})
"""States in which an endpoint changes by itself; in some of them SageMaker refuses to delete it."""
GONE = "gone"
WAIT_S, DELETE_S, POLL_S = 3600.0, 1800.0, 0.2
SLOW_POLL_S = 15.0
"""Between two looks at a real account: its API is throttled, and an endpoint takes minutes."""

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
        time.sleep(poll_s(session))


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


def poll_s(session: AwsSession) -> float:
    return POLL_S if session.is_loopback else SLOW_POLL_S
