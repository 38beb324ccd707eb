"""The time to live really deletes: EventBridge Scheduler's schedule ends an endpoint, whatever became of its maker."""

import json
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from model_server.aws.faults import AwsFault
from model_server.aws.scheduler import Scheduler, when
from model_server.aws.server import ACCOUNT_ID, REGION
from playbook.cloud import Cloud, open_cloud
from playbook.profile import load_profile
from playbook.stages import Workspace
from serving import build_tiny_engine
from serving_clients import sagemaker
from trtllm_check.recipes import lmi
from trtllm_check.recipes import sagemaker as requests

pytestmark = pytest.mark.server
IMAGE = "0.32.0-tensorrtllm0.12.0-cu125"
PATIENCE_S = 120.0
NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
BEFORE, AFTER = NOON - timedelta(seconds=1), NOON + timedelta(seconds=1)


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """A cloud with an engine in it."""
    opened = open_cloud(Workspace(tmp_path_factory.mktemp("workspace"), load_profile("local")))
    engine = build_tiny_engine(tmp_path_factory.mktemp("engine") / "engine")
    sagemaker.upload(opened.session, engine, f"s3://{opened.bucket}/engine/")
    yield opened
    opened.stop()


def spec_for(cloud: Cloud, name: str, end: datetime, folder: Path) -> requests.EndpointSpec:
    text = lmi.serving_properties(load_profile("local"), IMAGE, model_id=f"s3://{cloud.bucket}/engine/")
    uri = f"s3://{cloud.bucket}/{name}/model.tar.gz"
    sagemaker.upload(cloud.session, lmi.pack(text, folder / "model.tar.gz"), uri)
    return requests.EndpointSpec(name, lmi.image_uri(IMAGE, cloud.region), uri, cloud.role_arn, end)


MAKER = textwrap.dedent(
    """
    import os, signal, sys
    from datetime import datetime
    from serving_clients import sagemaker
    from serving_clients.aws import loopback_session
    from trtllm_check.recipes import sagemaker as requests

    url, role, image, data, end = sys.argv[1:]
    session = loopback_session(url, "us-east-1")
    spec = requests.EndpointSpec("orphan", image, data, role, datetime.fromisoformat(end))
    client = session.client("sagemaker")
    sagemaker.plan_end(session, requests.create_schedule(spec, role.replace("sagemaker", "scheduler")))
    client.create_model(**requests.create_model(spec))
    client.create_endpoint_config(**requests.create_endpoint_config(spec))
    client.create_endpoint(**requests.create_endpoint(spec))
    sagemaker.wait_in_service(session, "orphan")
    print("up", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
    """
)


def test_the_endpoint_of_a_killed_maker_is_deleted_when_its_time_is_over(cloud: Cloud, tmp_path: Path) -> None:
    far = datetime.now(UTC) + timedelta(hours=1)
    spec = spec_for(cloud, "orphan", far, tmp_path)
    argv = [sys.executable, "-c", MAKER, cloud.session.endpoint_url, cloud.role_arn]
    argv += [spec.image_uri, spec.model_data, far.isoformat()]
    made = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert made.returncode == -signal.SIGKILL and "up" in made.stdout, made.stderr
    (ours,) = [item for item in cloud.bill().endpoints if item.name == "orphan"]
    assert ours.status == "InService" and ours.ends_at == far.replace(microsecond=0)

    soon = replace(spec, expires_at=datetime.now(UTC) + timedelta(seconds=2))
    sagemaker.plan_end(cloud.session, requests.create_schedule(soon, cloud.places.scheduler_role_arn))
    life = sagemaker.Life()
    sagemaker.wait_until_gone(cloud.session, "orphan", timeout_s=PATIENCE_S, show=life)
    assert life.states[0][1] == "InService" and life.states[-1][1] == "gone"
    assert life.seen("gone") >= soon.expires_at.replace(microsecond=0)
    assert not [item for item in cloud.bill().endpoints if item.name == "orphan"]
    until(lambda: sagemaker.planned_end(cloud.session, "orphan") is None)  # it deletes itself after its call


def test_without_a_schedule_the_endpoint_stays(cloud: Cloud, tmp_path: Path) -> None:
    """What a tag alone does: nothing."""
    spec = spec_for(cloud, "tagged", datetime.now(UTC) - timedelta(seconds=1), tmp_path)
    client = cloud.client("sagemaker")
    for name in ("create_model", "create_endpoint_config", "create_endpoint"):
        getattr(client, name)(**getattr(requests, name)(spec))
    sagemaker.wait_in_service(cloud.session, "tagged", show=lambda state: None)
    (one,) = [item for item in cloud.bill().endpoints if item.name == "tagged"]
    assert one.overdue and one.endless and one.status == "InService"
    sagemaker.delete(cloud.session, "tagged")


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def refused(act: Callable[[], object]) -> str:
    with pytest.raises(ClientError) as error:
        act()
    return f"{error.value.response['Error']['Code']}: {error.value.response['Error']['Message']}"


def test_a_schedule_that_could_not_act_is_refused_when_it_is_made(cloud: Cloud, tmp_path: Path) -> None:
    good = requests.create_schedule(spec_for(cloud, "never", NOON, tmp_path), cloud.places.scheduler_role_arn)
    scheduler = cloud.client("scheduler")
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"Target": good["Target"] | {"RoleArn": cloud.role_arn}}, "must allow AWS EventBridge Scheduler to assume"),
        ({"Target": good["Target"] | {"RoleArn": f"{cloud.role_arn}-not-there"}}, "to assume the role"),
        ({"Target": good["Target"] | {"Arn": "arn:aws:scheduler:::aws-sdk:sqs:createQueue"}}, "sqs:createQueue"),
        ({"Target": good["Target"] | {"Input": "{}"}}, "DeleteEndpoint's parameters"),
        ({"ScheduleExpression": "at(tomorrow)"}, "Invalid Schedule Expression"),
        ({"ScheduleExpression": "rate(5 minutes)"}, "recurring schedules"),
    ]
    for change, message in wrong:
        assert message in refused(partial(scheduler.create_schedule, **good | change))
    assert sagemaker.planned_end(cloud.session, "never") is None


class Deletions:
    """What a scheduler of its own, with moto's lists, asked SageMaker to delete."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.refuse = 0
        self.scheduler = Scheduler(ACCOUNT_ID, REGION, self._delete)

    def _delete(self, asked: Any) -> None:
        self.asked.append(asked["EndpointName"])
        if self.refuse:
            self.refuse -= 1
            raise AwsFault(400, "ValidationException", "cannot be deleted while it is being created")


@pytest.fixture
def deletions(monkeypatch: pytest.MonkeyPatch) -> Iterator[Deletions]:
    """moto in this process, with the scheduler's role and one schedule at noon that ends endpoint "a"."""
    import boto3
    from moto import mock_aws

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        role(boto3.client("iam"), "scheduler-execution", requests.ending_policy("arn:aws:sagemaker:*:*:endpoint/a"))
        plan(NOON)
        yield Deletions()


def role(iam: Any, name: str, policy: dict[str, Any]) -> None:
    iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(requests.ending_trust_policy(ACCOUNT_ID)))
    iam.put_role_policy(RoleName=name, PolicyName="end", PolicyDocument=json.dumps(policy))


def plan(at: datetime, endpoint: str = "a", **change: str) -> None:
    import boto3

    arn = f"arn:aws:iam::{ACCOUNT_ID}:role"
    spec = requests.EndpointSpec(endpoint, "image", "s3://bucket/key", f"{arn}/x", at)
    request = requests.create_schedule(spec, f"{arn}/scheduler-execution") | change
    scheduler = boto3.client("scheduler", REGION)
    try:
        scheduler.create_schedule(**request)
    except scheduler.exceptions.ConflictException:
        scheduler.update_schedule(**request)


def names() -> list[str]:
    import boto3

    return [item["Name"] for item in boto3.client("scheduler", REGION).list_schedules()["Schedules"]]


def test_a_schedule_acts_at_its_time_once_and_goes(deletions: Deletions) -> None:
    assert deletions.scheduler.run_due(BEFORE) == [] and names() == ["a-end"]
    assert deletions.scheduler.run_due(NOON) == ["a-end"] and names() == []
    assert deletions.scheduler.run_due(AFTER) == [] and deletions.asked == ["a"]


def test_a_schedule_that_was_moved_acts_at_its_new_time(deletions: Deletions) -> None:
    plan(NOON + timedelta(hours=1))
    assert deletions.scheduler.run_due(AFTER) == []
    assert deletions.scheduler.run_due(AFTER + timedelta(hours=1)) == ["a-end"]


def test_a_refused_deletion_is_tried_again(deletions: Deletions) -> None:
    deletions.refuse = 2
    assert [deletions.scheduler.run_due(NOON + timedelta(seconds=number)) for number in range(4)] == [
        [],
        [],
        ["a-end"],
        [],
    ]
    assert deletions.asked == ["a"] * 3


def test_a_role_without_the_right_deletes_nothing(deletions: Deletions) -> None:
    plan(NOON, endpoint="b")
    assert deletions.scheduler.run_due(NOON) == ["a-end"] and deletions.asked == ["a"]
    assert names() == ["b-end"]


def test_a_disabled_schedule_rests(deletions: Deletions) -> None:
    plan(NOON, State="DISABLED")
    assert deletions.scheduler.run_due(AFTER) == [] and deletions.asked == []


def test_a_time_is_read_in_its_zone() -> None:
    assert when("at(2026-11-22T13:00:00)", "Europe/Berlin") == NOON
    with pytest.raises(AwsFault, match="Nowhere"):
        when("at(2026-11-22T13:00:00)", "Nowhere/City")


@pytest.mark.parametrize(
    ("change", "allowed"),
    [
        ({}, True),
        ({"Principal": {"Service": "sagemaker.amazonaws.com"}}, False),
        ({"Effect": "Deny"}, False),
        ({"Condition": {"StringEquals": {"aws:SourceAccount": "999999999999"}}}, False),
        ({"Condition": {}}, True),
    ],
)
def test_who_may_take_a_role(deletions: Deletions, change: dict[str, Any], allowed: bool) -> None:
    import boto3

    from model_server.aws.iam import may_assume

    trust = requests.ending_trust_policy(ACCOUNT_ID)
    trust["Statement"][0] |= change
    boto3.client("iam").create_role(RoleName="other", AssumeRolePolicyDocument=json.dumps(trust))
    found = may_assume("scheduler.amazonaws.com", f"arn:aws:iam::{ACCOUNT_ID}:role/other", ACCOUNT_ID)
    assert found == allowed
