"""EventBridge Scheduler: moto keeps the schedules, this module refuses what it could not do and makes them act.

One-time schedules whose target is SageMaker's DeleteEndpoint. The role counts, as on AWS: Scheduler must be allowed to
take it, and its policies must allow the call.
"""

import json
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from model_server.aws import iam
from model_server.aws.faults import AwsFault, not_here, validation

TARGET = "arn:aws:scheduler:::aws-sdk:sagemaker:deleteEndpoint"
ACTION = "sagemaker:DeleteEndpoint"
SERVICE = "scheduler.amazonaws.com"
AT = "at(%Y-%m-%dT%H:%M:%S)"
POLL_S = 0.1
"""AWS looks every minute; this cloud need not make anybody wait."""
RETRY = timedelta(seconds=1)
Delete = Callable[[Mapping[str, Any]], Any]
"""SageMaker's DeleteEndpoint; raises :class:`AwsFault`."""


@dataclass(frozen=True)
class Retry:
    """After ``failures`` attempts the next one is not before ``after``."""

    failures: int
    after: datetime


class Scheduler:
    """The schedules of one account and region, and the clockwork that executes them."""

    def __init__(self, account: str, region: str, delete: Delete) -> None:
        self._account, self._region = account, region
        self._delete = delete
        self._retries: dict[str, Retry] = {}
        self._done: set[str] = set()

    def check(self, asked: Mapping[str, Any]) -> None:
        """Raise the fault for a schedule that AWS would refuse, or that this cloud could not execute."""
        target = asked.get("Target", {})
        if target.get("Arn") != TARGET:
            raise not_here(f"schedules of {target.get('Arn')}; it has those of {TARGET}")
        when(asked.get("ScheduleExpression", ""), asked.get("ScheduleExpressionTimezone") or "UTC")
        if "EndpointName" not in read_input(target.get("Input", "")):
            raise validation("The Input of the target must be DeleteEndpoint's parameters, as JSON.")
        if not iam.may_assume(SERVICE, target.get("RoleArn", ""), self._account):
            raise validation("The execution role you provide must allow AWS EventBridge Scheduler to assume the role.")

    def run_due(self, now: datetime) -> list[str]:
        """Execute what is due at ``now``; returns the names of the schedules whose call succeeded."""
        due = [schedule for schedule in self._schedules() if self._is_due(schedule, now)]
        return [schedule.name for schedule in due if self._run(schedule, now)]

    def watch(self, stopped: threading.Event) -> None:
        """Execute what is due until ``stopped``."""
        while not stopped.wait(POLL_S):
            self.run_due(datetime.now(UTC))

    def _schedules(self) -> list[Any]:
        from moto.scheduler.models import scheduler_backends

        groups = scheduler_backends[self._account][self._region].schedule_groups
        return [schedule for group in list(groups.values()) for schedule in list(group.schedules.values())]

    def _is_due(self, schedule: Any, now: datetime) -> bool:
        retry = self._retries.get(_key(schedule))
        begins = retry.after if retry else when(schedule.schedule_expression, schedule.schedule_expression_timezone)
        enabled = schedule.state != "DISABLED"  # moto forgets the default at an update
        return enabled and _key(schedule) not in self._done and begins <= now

    def _run(self, schedule: Any, now: datetime) -> bool:
        asked = json.loads(schedule.target["Input"])
        try:
            self._allow(schedule.target["RoleArn"], asked["EndpointName"])
            self._delete(asked)
        except AwsFault as fault:
            print(f"schedule {schedule.name}: {fault.code}: {fault.message}", flush=True)
            self._fail(schedule, now)
            return False
        self._finish(schedule)
        return True

    def _allow(self, role: str, endpoint: str) -> None:
        resource = f"arn:aws:sagemaker:{self._region}:{self._account}:endpoint/{endpoint}"
        if iam.decide(iam.policies_of(role, self._account), ACTION, resource) != "allowed":
            raise AwsFault(403, "AccessDeniedException", f"{role} is not authorized to perform {ACTION} on {resource}")

    def _fail(self, schedule: Any, now: datetime) -> None:
        """As AWS does: try again, and after the last attempt the schedule is over."""
        failures = getattr(self._retries.get(_key(schedule)), "failures", 0) + 1
        self._retries[_key(schedule)] = Retry(failures, now + RETRY)
        if failures > schedule.target["RetryPolicy"]["MaximumRetryAttempts"]:
            self._finish(schedule)

    def _finish(self, schedule: Any) -> None:
        from moto.scheduler.exceptions import ScheduleNotFound
        from moto.scheduler.models import scheduler_backends

        self._retries.pop(_key(schedule), None)
        self._done.add(_key(schedule))
        if schedule.action_after_completion == "DELETE":
            with suppress(ScheduleNotFound):  # somebody may have deleted it meanwhile
                scheduler_backends[self._account][self._region].delete_schedule(schedule.group_name, schedule.name)


def _key(schedule: Any) -> str:
    """Another for each schedule that was made or changed: those act anew."""
    return f"{schedule.arn} {schedule.last_modified_date} {schedule.schedule_expression}"


def read_input(text: str) -> dict[str, Any]:
    """The target's parameters; none for what is no JSON object."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def when(expression: str, timezone: str) -> datetime:
    """The moment of a one-time schedule, ``at(yyyy-mm-ddThh:mm:ss)``; raises :class:`AwsFault` for any other."""
    if expression.startswith(("rate(", "cron(")):
        raise not_here(f"recurring schedules such as {expression}")
    try:
        return datetime.strptime(expression, AT).replace(tzinfo=ZoneInfo(timezone))
    except (ValueError, KeyError) as error:
        raise validation(f"Invalid Schedule Expression {expression} in {timezone}.") from error
