"""Every request that the recipes write is well formed by botocore's model, and a broken one is found."""

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from serving_base.errors import UsageError
from trtllm_check.recipes import sagemaker
from trtllm_check.recipes.sagemaker import EndpointSpec, validate

PLAIN = EndpointSpec(
    name="llama3-fp8",
    image_uri="763104351884.dkr.ecr.us-east-1.amazonaws.com/djl-inference:0.32.0-tensorrtllm0.12.0-cu125",
    model_data="s3://models/code/model.tar.gz",
    role_arn="arn:aws:iam::123456789012:role/sagemaker-execution",
    expires_at=datetime(2026, 11, 20, 12, tzinfo=UTC),
)
CLOSED = replace(
    PLAIN,
    version=2,
    model_data="s3://models/isolated/",
    network_isolation=True,
    subnet_ids=("subnet-0a1b2c3d",),
    security_group_ids=("sg-0a1b2c3d",),
    kms_key_id="arn:aws:kms:us-east-1:123456789012:key/2a8f0d4e-0000-4000-8000-000000000000",
    environment={"OPTION_MAX_NUM_TOKENS": "8192"},
    instance_count=4,
)
POLICY = json.dumps(sagemaker.invoke_policy("arn:aws:sagemaker:us-east-1:123456789012:endpoint/llama3-fp8"))
TRUST = json.dumps(sagemaker.trust_policy())
ENDING_TRUST = json.dumps(sagemaker.ending_trust_policy("123456789012"))
ENDING_ROLE = "arn:aws:iam::123456789012:role/scheduler-execution"
Maker = Callable[[EndpointSpec], dict[str, Any]]
REQUESTS: dict[str, tuple[str, str, Maker]] = {
    "model": ("sagemaker", "create_model", sagemaker.create_model),
    "config": ("sagemaker", "create_endpoint_config", sagemaker.create_endpoint_config),
    "endpoint": ("sagemaker", "create_endpoint", sagemaker.create_endpoint),
    "canary": ("sagemaker", "update_endpoint", lambda s: sagemaker.update_endpoint(s, "canary", alarms=["a", "b"])),
    "rolling": ("sagemaker", "update_endpoint", lambda s: sagemaker.update_endpoint(s, "rolling")),
    "alarm": ("cloudwatch", "put_metric_alarm", sagemaker.put_metric_alarm),
    "target": (
        "application-autoscaling",
        "register_scalable_target",
        lambda s: sagemaker.register_scalable_target(s, min_instances=1, max_instances=4),
    ),
    "concurrency": (
        "application-autoscaling",
        "put_scaling_policy",
        lambda s: sagemaker.put_scaling_policy(s, target=48),
    ),
    "invocations": (
        "application-autoscaling",
        "put_scaling_policy",
        lambda s: sagemaker.put_scaling_policy(s, target=60, metric="SageMakerVariantInvocationsPerInstance"),
    ),
    "invoke": ("sagemaker-runtime", "invoke_endpoint", lambda s: sagemaker.invoke_endpoint(s, "{}")),
    "stream": (
        "sagemaker-runtime",
        "invoke_endpoint_with_response_stream",
        lambda s: sagemaker.invoke_endpoint(s, "{}"),
    ),
    "caller": ("iam", "create_policy", lambda _: {"PolicyName": "invoke", "PolicyDocument": POLICY}),
    "end": ("scheduler", "create_schedule", lambda s: sagemaker.create_schedule(s, ENDING_ROLE)),
    "moved end": ("scheduler", "update_schedule", lambda s: sagemaker.create_schedule(s, ENDING_ROLE)),
    "ending role": ("iam", "create_role", lambda _: {"RoleName": "ending", "AssumeRolePolicyDocument": ENDING_TRUST}),
    "role": ("iam", "create_role", lambda _: {"RoleName": "execution", "AssumeRolePolicyDocument": TRUST}),
}
each_request = pytest.mark.parametrize("name", list(REQUESTS))


@each_request
@pytest.mark.parametrize("spec", [PLAIN, CLOSED], ids=["plain", "closed"])
def test_our_requests_are_well_formed(name: str, spec: EndpointSpec) -> None:
    service, operation, make = REQUESTS[name]
    assert validate(service, operation, make(spec)) == []


@each_request
def test_a_request_with_an_unknown_or_a_missing_member_is_found(name: str) -> None:
    service, operation, make = REQUESTS[name]
    assert validate(service, operation, make(PLAIN) | {"Colour": "blue"})
    from botocore.session import get_session

    model = get_session().get_service_model(service)
    full_name = "".join(word.capitalize() for word in operation.split("_"))
    for member in model.operation_model(full_name).input_shape.required_members:
        without = {key: value for key, value in make(PLAIN).items() if key != member}
        assert any(member in problem for problem in validate(service, operation, without)), member


@each_request
def test_every_text_of_the_wrong_kind_is_found_where_the_model_limits_it(name: str) -> None:
    """Each string of the request is replaced by one that no enum or pattern takes; at least one is found."""
    service, operation, make = REQUESTS[name]
    found = []
    for path in list(_strings(make(CLOSED))):
        broken = deepcopy(make(CLOSED))
        _set(broken, path, "\x00" * 3000)
        if validate(service, operation, broken):
            found.append(path)
    assert found


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"instance_type": "p5.48xlarge"}, "ProductionVariants.1.InstanceType: 'p5.48xlarge' must be one of"),
        ({"startup_timeout_s": 7200}, "ContainerStartupHealthCheckTimeoutInSeconds: 7200 must be at most 3600"),
        ({"name": "llama 3"}, "must match"),
        ({"name": "x" * 80}, "must match|characters"),
    ],
)
def test_limits_that_botocore_s_own_validator_lets_pass(change: dict[str, Any], problem: str) -> None:
    from re import search

    found = validate("sagemaker", "create_endpoint_config", sagemaker.create_endpoint_config(replace(PLAIN, **change)))
    assert any(search(problem, line) for line in found), found


def test_an_operation_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError, match="no operation 'launch_endpoint'"):
        validate("sagemaker", "launch_endpoint", {})


def test_an_isolated_container_needs_its_model_as_a_folder() -> None:
    with pytest.raises(UsageError, match="isolated container"):
        replace(PLAIN, network_isolation=True)
    container = sagemaker.create_model(CLOSED)["PrimaryContainer"]
    assert container["ModelDataSource"]["S3DataSource"]["S3Uri"] == CLOSED.model_data
    assert "ModelDataUrl" not in container


def test_the_time_to_live_survives_the_way_through_the_tags() -> None:
    tags = sagemaker.tags(PLAIN)
    assert sagemaker.expires_at(tags) == PLAIN.expires_at and sagemaker.is_ours(tags)
    assert sagemaker.expires_at([{"Key": "team", "Value": "x"}]) is None
    assert not sagemaker.is_ours([{"Key": "playbook", "Value": "somebody else"}])
    for make in (sagemaker.create_model, sagemaker.create_endpoint_config, sagemaker.create_endpoint):
        assert make(PLAIN)["Tags"] == tags
    with pytest.raises(UsageError, match="no time zone"):
        replace(PLAIN, expires_at=datetime(2026, 1, 1))


def test_a_caller_may_invoke_one_endpoint_and_nothing_else() -> None:
    arn = "arn:aws:sagemaker:us-east-1:123456789012:endpoint/llama3-fp8"
    (statement,) = sagemaker.invoke_policy(arn)["Statement"]
    assert (statement["Action"], statement["Resource"]) == (["sagemaker:InvokeEndpoint"], arn)
    policy = sagemaker.execution_policy(
        bucket="models", region="us-east-1", account_id="123456789012", image_account_id="763104351884"
    )
    everything = [part for part in policy["Statement"] if part["Resource"] == "*"]
    assert [part["Action"] for part in everything] == [["ecr:GetAuthorizationToken"]]  # IAM knows no narrower resource


def test_the_schedule_deletes_this_endpoint_at_the_end_of_its_time_and_then_itself() -> None:
    request = sagemaker.create_schedule(PLAIN, ENDING_ROLE)
    assert request["ScheduleExpression"] == "at(2026-11-20T12:00:00)" and request["ScheduleExpressionTimezone"] == "UTC"
    assert request["ActionAfterCompletion"] == "DELETE" and request["FlexibleTimeWindow"] == {"Mode": "OFF"}
    target = request["Target"]
    assert target["Arn"] == "arn:aws:scheduler:::aws-sdk:sagemaker:deleteEndpoint"
    assert target["RoleArn"] == ENDING_ROLE
    assert validate("sagemaker", "delete_endpoint", json.loads(target["Input"])) == []
    berlin = replace(PLAIN, expires_at=datetime(2026, 11, 20, 13, tzinfo=ZoneInfo("Europe/Berlin")))
    assert sagemaker.create_schedule(berlin, ENDING_ROLE) == request


def test_the_scheduler_s_role_may_delete_the_endpoint_and_nothing_else() -> None:
    arn = "arn:aws:sagemaker:us-east-1:123456789012:endpoint/llama3-fp8"
    (statement,) = sagemaker.ending_policy(arn)["Statement"]
    assert (statement["Action"], statement["Resource"]) == (["sagemaker:DeleteEndpoint"], arn)
    (trust,) = sagemaker.ending_trust_policy("123456789012")["Statement"]
    assert trust["Principal"] == {"Service": "scheduler.amazonaws.com"}
    assert trust["Condition"] == {"StringEquals": {"aws:SourceAccount": "123456789012"}}
    schedule = "arn:aws:scheduler:us-east-1:123456789012:schedule/default/llama3-fp8-end"
    _, passing = sagemaker.scheduling_policy(schedule, ENDING_ROLE)["Statement"]
    assert (passing["Action"], passing["Resource"]) == (["iam:PassRole"], ENDING_ROLE)


def _strings(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, str):
        yield path
    elif isinstance(value, dict | list):
        for key, member in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _strings(member, (*path, key))


def _set(value: Any, path: tuple[Any, ...], text: str) -> None:
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = text
