"""`playbook cost` lists every endpoint that exists, whoever made it and wherever the run that made it was killed."""

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError
from typer.testing import CliRunner

from playbook import billing
from playbook.billing import Account, RunningEndpoint, running_endpoints
from playbook.cli.app import app
from playbook.cloud import Cloud, open_cloud
from playbook.profile import load_profile
from playbook.stages import Workspace
from serving_base.errors import UsageError
from serving_base.facts.prices import price
from serving_clients import sagemaker
from serving_clients.aws import AwsSession
from trtllm_check.recipes import sagemaker as requests

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
P5 = price("ml.p5.48xlarge").usd_per_hour
API_CALLS = 8
"""Of the deployment below."""

DEPLOYMENT = textwrap.dedent(
    """
    import os, signal, sys
    from datetime import UTC, datetime, timedelta
    from serving_clients.aws import loopback_session
    from trtllm_check.recipes import sagemaker as requests

    url, role = sys.argv[1:]
    client = loopback_session(url, "us-east-1").client("sagemaker")

    def calls():
        for name in ("first", "second"):
            yield "create_model", requests.create_model(spec(name, 1))
            yield "create_endpoint_config", requests.create_endpoint_config(spec(name, 1))
            yield "create_endpoint", requests.create_endpoint(spec(name, 1))
        yield "create_model", requests.create_model(spec("first", 2))
        yield "delete_endpoint", {"EndpointName": "first"}

    def spec(name, version):
        image = "763104351884.dkr.ecr.us-east-1.amazonaws.com/djl-inference:0.32.0-tensorrtllm0.12.0-cu125"
        soon = datetime.now(UTC) + timedelta(minutes=5)
        return requests.EndpointSpec(name, image, "s3://playbook-models/model.tar.gz", role, soon, version=version)

    def deploy(die_at):
        for number, (operation, request) in enumerate(calls()):
            if number == die_at:
                os.kill(os.getpid(), signal.SIGKILL)
            getattr(client, operation)(**request)
        os._exit(0)

    for line in sys.stdin:
        if not (child := os.fork()):
            try:
                deploy(int(line))
            finally:
                os._exit(1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    """
)
"""For each line of its input a process of its own deploys and dies before that call: Python is started only once."""


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    opened = open_cloud(Workspace(tmp_path_factory.mktemp("workspace"), load_profile("local")))
    yield opened
    opened.stop()


@pytest.fixture(scope="module")
def deploy(cloud: Cloud) -> Iterator[Callable[[int], int]]:
    """Deploys in a process that dies before the call of that number; gives its exit status."""
    argv = [sys.executable, "-c", DEPLOYMENT, cloud.session.endpoint_url, cloud.role_arn]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout
        to, answers = process.stdin, process.stdout

        def run(die_at: int) -> int:
            print(die_at, file=to, flush=True)
            return int(answers.readline())

        yield run
        to.close()
    assert process.returncode == 0


def cost(*arguments: str) -> Any:
    result = CliRunner().invoke(app, ["cost", "--json", *arguments])
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


@pytest.mark.parametrize("die_at", range(API_CALLS + 1))
def test_a_run_killed_between_two_calls_leaves_no_endpoint_that_is_not_listed(
    cloud: Cloud, deploy: Callable[[int], int], die_at: int
) -> None:
    url = cloud.session.endpoint_url
    assert deploy(die_at) == (-9 if die_at < API_CALLS else 0)
    exist = {item["EndpointName"] for item in cloud.client("sagemaker").list_endpoints()["Endpoints"]}
    created = {"first"} if die_at >= 3 else set()
    created |= {"second"} if die_at >= 6 else set()
    assert created - exist <= ({"first"} if die_at == API_CALLS else set())
    (account,) = cost("--endpoint-url", url)
    assert {item["name"] for item in account["endpoints"]} == exist
    assert all(item["ours"] and item["instances"] == "1 x ml.p5.48xlarge" for item in account["endpoints"])
    for name in ("first", "second"):
        sagemaker.delete(cloud.session, name)
    assert cost("--endpoint-url", url)[0]["endpoints"] == []


def test_the_command_s_table_names_the_endpoint_and_its_end(cloud: Cloud) -> None:
    image = "763104351884.dkr.ecr.us-east-1.amazonaws.com/djl-inference:0.32.0-tensorrtllm0.12.0-cu125"
    soon = datetime.now(UTC) + timedelta(minutes=5)
    spec = requests.EndpointSpec("table", image, "s3://playbook-models/none.tar.gz", cloud.role_arn, soon)
    client = cloud.client("sagemaker")
    client.create_model(**requests.create_model(spec))
    client.create_endpoint_config(**requests.create_endpoint_config(spec))
    client.create_endpoint(**requests.create_endpoint(spec))
    assert "1 of the playbook's without a schedule: nothing will delete it" in cloud.bill().summary
    sagemaker.plan_end(cloud.session, requests.create_schedule(spec, cloud.places.scheduler_role_arn))
    try:
        shown = CliRunner().invoke(app, ["cost", "--endpoint-url", cloud.session.endpoint_url], env={"COLUMNS": "200"})
        assert "1 endpoint on this machine, nothing bills" in shown.output
        for part in ("table", "1 x ml.p5.48xlarge", "playbook", f"{soon:%Y-%m-%d %H:%M} UTC"):
            assert part in shown.output
        (planned,) = cloud.bill().endpoints
        assert planned.ends_at == soon.replace(microsecond=0) and not planned.endless
        (late,) = cloud.bill(now=soon + timedelta(seconds=2)).endpoints
        (early,) = cloud.bill(now=soon - timedelta(seconds=2)).endpoints
        assert late.overdue and "OVERDUE" in late.row()["lives until"] and not early.overdue
    finally:
        sagemaker.delete(cloud.session, "table")


def test_without_credentials_the_real_account_is_passed_over_and_the_local_one_found(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("boto3.Session.get_credentials", lambda self: None)
    (tmp_path / "local" / "cloud").mkdir(parents=True)
    (tmp_path / "local" / "cloud" / "address").write_text(cloud.session.endpoint_url)
    (tmp_path / "old" / "cloud").mkdir(parents=True)
    (tmp_path / "old" / "cloud" / "address").write_text("http://127.0.0.1:9")
    real, local = cost("--workspace", str(tmp_path))
    assert real["problem"] == "there are no AWS credentials on this machine"
    assert (local["where"], local["local"]) == (cloud.session.endpoint_url, True)


def test_a_foreign_address_is_refused() -> None:
    with pytest.raises(UsageError, match="is not on this machine"):
        billing.look("https://api.sagemaker.us-east-1.amazonaws.com")


class Service:
    """A sagemaker client with these endpoints: name -> (configuration's variants, tags, what describe adds)."""

    def __init__(self, endpoints: dict[str, tuple[list[dict[str, Any]] | None, list[dict[str, str]], dict[str, Any]]]):
        self.endpoints = endpoints

    def get_paginator(self, operation: str) -> Any:
        listed = [
            {"EndpointName": name, "EndpointArn": name, "CreationTime": NOW - timedelta(hours=3)}
            for name in self.endpoints
        ]
        if operation == "list_endpoints":
            return SimpleNamespace(paginate=lambda: [{"Endpoints": [item]} for item in listed])
        return SimpleNamespace(paginate=lambda ResourceArn: [{"Tags": self.endpoints[ResourceArn][1]}])  # noqa: N803

    def describe_endpoint(self, EndpointName: str) -> dict[str, Any]:  # noqa: N803
        if EndpointName == "gone":
            raise missing()
        more = self.endpoints[EndpointName][2]
        return {"EndpointStatus": "InService", "EndpointConfigName": EndpointName, **more}

    def describe_endpoint_config(self, EndpointConfigName: str) -> dict[str, Any]:  # noqa: N803
        variants = self.endpoints.get(EndpointConfigName, (None, [], {}))[0]
        if variants is None:
            raise missing()
        return {"ProductionVariants": variants}


def missing() -> ClientError:
    error = {"Code": "ValidationException", "Message": "Could not find it."}
    return ClientError({"Error": error}, "Describe")


def variant(kind: str = "ml.p5.48xlarge", count: int = 1, name: str = "AllTraffic") -> dict[str, Any]:
    return {"VariantName": name, "InstanceType": kind, "InitialInstanceCount": count}


class NotFound(ClientError):  # type: ignore[misc] # botocore has no types
    """As boto3 makes it for one client."""


class Scheduler:
    """A scheduler client that answers get_schedule with this error."""

    exceptions = SimpleNamespace(ResourceNotFoundException=NotFound)

    def __init__(self, code: str) -> None:
        self._code = code

    def get_schedule(self, Name: str) -> dict[str, Any]:  # noqa: N803
        kind = NotFound if self._code == "ResourceNotFoundException" else ClientError
        raise kind({"Error": {"Code": self._code, "Message": Name}}, "GetSchedule")


def found(
    endpoints: dict[str, Any], *, local: bool = False, code: str = "ResourceNotFoundException"
) -> list[RunningEndpoint]:
    clients = {"sagemaker": Service(endpoints), "scheduler": Scheduler(code)}
    boto = SimpleNamespace(client=lambda name, *_, **__: clients[name])
    return running_endpoints(AwsSession(boto, "us-east-1", "http://127.0.0.1:1" if local else ""), now=NOW)


def test_the_instances_that_run_now_are_priced_not_those_at_the_start() -> None:
    scaled = {"ProductionVariants": [{"VariantName": "AllTraffic", "CurrentInstanceCount": 3}]}
    (one,) = found({"a": ([variant()], [], scaled)})
    assert one.instances == "3 x ml.p5.48xlarge" and one.usd_per_hour == pytest.approx(3 * P5)
    assert one.age_hours == 3.0 and not one.ours and not one.overdue


def test_both_fleets_of_an_update_are_priced() -> None:
    pending = {"PendingDeploymentSummary": {"EndpointConfigName": "b"}, "EndpointStatus": "Updating"}
    endpoints: dict[str, Any] = {"a": ([variant()], [], pending), "b": ([variant(count=2)], [], {})}
    (one,) = [item for item in found(endpoints) if item.name == "a"]
    assert one.usd_per_hour == pytest.approx(3 * P5)


def test_an_endpoint_is_listed_even_if_little_is_known_of_it() -> None:
    listed = found(
        {
            "no-config": (None, [], {}),
            "no-price": ([variant("ml.g5.xlarge")], [], {}),
            "p5": ([variant()], [], {}),
            "gone": (None, [], {}),
        }
    )
    assert {item.name: item.usd_per_hour for item in listed} == {
        "p5": pytest.approx(P5),
        "no-config": None,
        "no-price": None,
    }
    assert listed[0].name == "p5"
    summary = Account("real account", local=False, endpoints=tuple(listed)).summary
    assert summary.startswith(f"3 endpoints bill {P5:.2f} USD per hour") and "2 of them at a price" in summary


def test_an_overdue_endpoint_is_called_so() -> None:
    tags = [
        {"Key": "playbook", "Value": "llama3-fp8"},
        {"Key": "playbook-expires", "Value": "2026-11-20T11:00:00+00:00"},
    ]
    (one,) = found({"a": ([variant()], tags, {})})
    assert one.ours and one.overdue
    assert "1 overdue" in Account("real account", local=False, endpoints=(one,)).summary


@pytest.mark.parametrize(
    ("code", "shown", "said"),
    [("ResourceNotFoundException", "never", True), ("AccessDeniedException", "not readable", False)],
)
def test_an_endpoint_that_nothing_deletes_is_called_so_and_a_missing_right_is_no_answer(
    code: str, shown: str, said: bool
) -> None:
    (one,) = found({"a": ([variant()], [{"Key": "playbook", "Value": "llama3-fp8"}], {})}, code=code)
    assert one.row()["deleted by schedule"] == shown and one.ends_known == said
    assert ("nothing will delete it" in Account("real account", local=False, endpoints=(one,)).summary) == said
