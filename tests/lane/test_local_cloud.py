"""The local cloud through boto3 and sagemaker-core: what a chapter does with SageMaker, and what goes wrong."""

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import boto3
import psutil
import pytest
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError

from cloud import (
    ASYNC_ENVIRONMENT,
    ASYNC_IMAGE,
    BUCKET,
    MODEL_ID,
    PROPERTIES,
    archive,
    client,
    create_config,
    create_model,
    deploy,
    invoke,
    stream,
    streams_at_once,
    upload,
    variant,
    wait,
)
from model_server.aws.server import LocalCloud
from serving import build_tiny_engine

ASK = {"inputs": "The value of", "parameters": {"max_new_tokens": 6, "details": True}}
CANARY = {
    "BlueGreenUpdatePolicy": {
        "TrafficRoutingConfiguration": {
            "Type": "CANARY",
            "CanarySize": {"Type": "CAPACITY_PERCENT", "Value": 10},
            "WaitIntervalInSeconds": 300,
        },
        "TerminationWaitInSeconds": 300,
    }
}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_engine(tmp_path_factory.mktemp("cloud") / "engine")


@pytest.fixture(scope="module")
def cloud(engine: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCloud]:
    """A cloud with the engine uploaded and the endpoint ``llama`` in service."""
    with LocalCloud(tmp_path_factory.mktemp("cloud") / "aws") as started:
        upload(started, engine)
        described = deploy(started, "llama")
        assert described["EndpointStatus"] == "InService", described
        yield started


def refusal(act: Callable[[], object]) -> tuple[int, str, str]:
    """Status, code and message of the error that ``act`` must raise."""
    with pytest.raises(ClientError) as raised:
        act()
    response = raised.value.response
    return response["ResponseMetadata"]["HTTPStatusCode"], response["Error"]["Code"], response["Error"]["Message"]


def containers(root: int) -> list[int]:
    """Process ids of containers below ``root``."""
    found = []
    for process in psutil.Process(root).children(recursive=True):
        with suppress(psutil.Error):  # it has just ended
            if "model_server.aws.container" in process.cmdline()[2:3]:
                found.append(process.pid)
    return found


def test_there_is_no_service_of_ecs_to_scale(cloud: LocalCloud) -> None:
    """moto's own word, of a moto without ECS."""
    scaling = client(cloud, "application-autoscaling")
    with pytest.raises(ClientError, match="ECS service doesn't exist: service/default/mine"):
        scaling.register_scalable_target(
            ServiceNamespace="ecs",
            ResourceId="service/default/mine",
            ScalableDimension="ecs:service:DesiredCount",
            MinCapacity=1,
            MaxCapacity=2,
        )


def test_the_services_of_a_chapter(cloud: LocalCloud) -> None:
    assert client(cloud, "sts").get_caller_identity()["Account"] == cloud.account_id
    assert client(cloud, "iam").get_role(RoleName=cloud.role_arn.rpartition("/")[2])["Role"]["Arn"] == cloud.role_arn
    s3 = client(cloud, "s3")
    s3.put_object(Bucket=BUCKET, Key="a b/ü+%.txt", Body=b"text", ServerSideEncryption="aws:kms")
    assert s3.get_object(Bucket=BUCKET, Key="a b/ü+%.txt")["Body"].read() == b"text"
    metrics = client(cloud, "cloudwatch")
    metrics.put_metric_data(Namespace="Course", MetricData=[{"MetricName": "TTFT", "Value": 1.0}])
    assert metrics.list_metrics(Namespace="Course")["Metrics"][0]["MetricName"] == "TTFT"
    scaling = client(cloud, "application-autoscaling")
    target = {
        "ServiceNamespace": "sagemaker",
        "ResourceId": "endpoint/llama/variant/AllTraffic",
        "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
    }
    scaling.register_scalable_target(**target, MinCapacity=1, MaxCapacity=4)
    metric = {"PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"}
    scaling.put_scaling_policy(
        **target,
        PolicyName="track",
        PolicyType="TargetTrackingScaling",
        TargetTrackingScalingPolicyConfiguration={"TargetValue": 60.0, "PredefinedMetricSpecification": metric},
    )
    (policy,) = scaling.describe_scaling_policies(ServiceNamespace="sagemaker")["ScalingPolicies"]
    assert policy["TargetTrackingScalingPolicyConfiguration"]["TargetValue"] == 60.0


def test_a_role_is_simulated_by_its_own_policies(cloud: LocalCloud) -> None:
    iam = client(cloud, "iam")
    simulated = iam.simulate_principal_policy(
        PolicySourceArn=cloud.role_arn, ActionNames=["s3:GetObject", "s3:PutObject"]
    )["EvaluationResults"]
    decisions = {result["EvalActionName"]: result["EvalDecision"] for result in simulated}
    assert decisions == {"s3:GetObject": "allowed", "s3:PutObject": "implicitDeny"}
    nobody = "arn:aws:iam::123456789012:role/nobody"
    assert refusal(lambda: iam.simulate_principal_policy(PolicySourceArn=nobody, ActionNames=["s3:*"]))[:2] == (
        404,
        "NoSuchEntity",
    )


OPERATIONS = {
    "s3": "list_buckets",
    "iam": "list_roles",
    "sts": "get_caller_identity",
    "cloudwatch": "list_metrics",
    "sagemaker": "list_models",
    "scheduler": "list_schedules",
}
SIGNATURES = {
    "unsigned": {"config": Config(signature_version=UNSIGNED)},
    "unknown": {"aws_access_key_id": "AKIAIOSFODNN7EXAMPLE"},
    "wrong": {"aws_secret_access_key": "guessed"},
}
JSON_CODES = {
    "unsigned": "MissingAuthenticationTokenException",
    "unknown": "UnrecognizedClientException",
    "wrong": "InvalidSignatureException",
}
QUERY_CODES = {
    "unsigned": "MissingAuthenticationToken",
    "unknown": "InvalidClientTokenId",
    "wrong": "SignatureDoesNotMatch",
}
CODES = {
    "s3": {"unsigned": "AccessDenied", "unknown": "InvalidAccessKeyId", "wrong": "SignatureDoesNotMatch"},
    "iam": QUERY_CODES,
    "sts": QUERY_CODES,
    "cloudwatch": JSON_CODES,
    "sagemaker": JSON_CODES,
    "scheduler": JSON_CODES,
}


@pytest.mark.parametrize("service", OPERATIONS)
@pytest.mark.parametrize("kind", SIGNATURES)
def test_every_service_refuses_other_signatures(cloud: LocalCloud, service: str, kind: str) -> None:
    caller = client(cloud, service, **SIGNATURES[kind])
    assert refusal(getattr(caller, OPERATIONS[service]))[:2] == (403, CODES[service][kind])


def test_a_refused_head_request_leaves_the_connection_usable(cloud: LocalCloud) -> None:
    s3 = client(cloud, "s3", aws_secret_access_key="guessed")
    for _ in range(3):
        assert refusal(lambda: s3.head_bucket(Bucket=BUCKET))[:2] == (403, "403")
        assert refusal(s3.list_buckets)[1] == "SignatureDoesNotMatch"


@pytest.mark.parametrize("kind", SIGNATURES)
def test_the_runtime_refuses_other_signatures(cloud: LocalCloud, kind: str) -> None:
    runtime = client(cloud, "sagemaker-runtime", **SIGNATURES[kind])
    for call in (runtime.invoke_endpoint, runtime.invoke_endpoint_with_response_stream):
        assert refusal(partial(call, EndpointName="llama", Body=b"{}"))[:2] == (403, JSON_CODES[kind])


def test_what_the_local_cloud_lacks_is_named(cloud: LocalCloud) -> None:
    sagemaker, runtime = client(cloud, "sagemaker"), client(cloud, "sagemaker-runtime")
    serverless: dict[str, Any] = {"VariantName": "a", "ModelName": "llama", "ServerlessConfig": {"MaxConcurrency": 1}}
    serverless["ServerlessConfig"]["MemorySizeInMB"] = 2048
    named = {
        "SageMaker ListTrainingJobs": sagemaker.list_training_jobs,
        "the service 'sqs'": client(cloud, "sqs").list_queues,
        "describe_scaling_activities": lambda: client(cloud, "application-autoscaling").describe_scaling_activities(
            ServiceNamespace="sagemaker"
        ),
        "serverless variants": lambda: create_config(cloud, "serverless", [serverless]),
        "inference components": lambda: runtime.invoke_endpoint(
            EndpointName="llama", InferenceComponentName="part", Body=b"{}"
        ),
        "async-invocations": lambda: runtime.invoke_endpoint_async(EndpointName="llama", InputLocation="s3://a/b"),
    }
    for name, act in named.items():
        status, code, message = refusal(act)
        assert (status, code) == (501, "NotInLocalCloud") and name in message


def test_requests_are_checked_against_the_service_model(cloud: LocalCloud) -> None:
    assert refusal(lambda: create_config(cloud, "bad", [{**variant("llama"), "InstanceType": "ml.p9.huge"}]))[:2] == (
        400,
        "ValidationException",
    )
    late = {**variant("llama"), "ContainerStartupHealthCheckTimeoutInSeconds": 7200}
    assert "must be at most 3600" in refusal(lambda: create_config(cloud, "bad", [late]))[2]
    assert "must match" in refusal(lambda: create_config(cloud, "not_a_name", [variant("llama")]))[2]
    assert "Could not find model" in refusal(lambda: create_config(cloud, "bad", [variant("nothing")]))[2]
    assert "unique" in refusal(lambda: create_config(cloud, "bad", [variant("llama"), variant("llama")]))[2]
    assert "already existing" in refusal(lambda: create_model(cloud, "llama"))[2]
    unchecked = client(cloud, "sagemaker", config=Config(parameter_validation=False))
    status, code, message = refusal(lambda: unchecked.create_endpoint(EndpointName="x", EndpointConfigName=3))
    assert (status, code) == (400, "ValidationException") and "EndpointConfigName" in message


def test_describes_say_what_was_asked_and_no_more(cloud: LocalCloud) -> None:
    sagemaker = client(cloud, "sagemaker")
    model = sagemaker.describe_model(ModelName="llama")
    assert model["PrimaryContainer"]["ModelDataUrl"] == f"s3://{BUCKET}/model.tar.gz"
    assert model["ExecutionRoleArn"] == cloud.role_arn and "VpcConfig" not in model
    config = sagemaker.describe_endpoint_config(EndpointConfigName="llama")
    assert config["ProductionVariants"] == [variant("llama")]
    endpoint = sagemaker.describe_endpoint(EndpointName="llama")
    (described,) = endpoint["ProductionVariants"]
    assert (described["CurrentInstanceCount"], described["CurrentWeight"]) == (1, 1.0)
    assert endpoint["EndpointConfigName"] == "llama" and "FailureReason" not in endpoint


def test_invocations(cloud: LocalCloud) -> None:
    answer = invoke(cloud, "llama", ASK)
    assert (answer["ContentType"], answer["InvokedProductionVariant"]) == ("application/json", "AllTraffic")
    told = json.loads(answer["Body"].read())
    streamed = stream(cloud, "llama", {**ASK, "stream": True})
    assert (streamed["ContentType"], streamed["InvokedProductionVariant"]) == ("application/jsonlines", "AllTraffic")
    parts = [event["PayloadPart"]["Bytes"] for event in streamed["Body"]]
    assert len(parts) == 6 and all(part.endswith(b"\n") for part in parts)
    assert json.loads(parts[-1])["generated_text"] == told["generated_text"]


def line_reader(events: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Reads as the line iterators of AWS's notebooks and of FMBench do: bytes gathered, a line at a newline.

    They never leave the loop over bytes that end without a newline; here that is an error.
    """
    buffer = b""
    for event in events:
        buffer += event["PayloadPart"]["Bytes"]
        while b"\n" in buffer:
            line, _, buffer = buffer.partition(b"\n")
            if b"{" in line:
                yield json.loads(line[line.find(b"{") :])
    assert not buffer, "a line without an end"


def part_reader(events: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Reads as the notebooks do that take one part for one line."""
    for event in events:
        yield json.loads(event["PayloadPart"]["Bytes"].decode())


@pytest.mark.parametrize("reader", [line_reader, part_reader])
def test_the_readers_of_public_notebooks(cloud: LocalCloud, reader: Callable[[Any], Iterator[dict[str, Any]]]) -> None:
    lines = list(reader(stream(cloud, "llama", {**ASK, "stream": True})["Body"]))
    texts, ids = [line["token"]["text"] for line in lines], [line["token"]["id"] for line in lines]
    assert "".join(texts) == lines[-1]["generated_text"] and all(isinstance(number, int) for number in ids)
    assert lines[-1]["details"]["finish_reason"] == "length"
    chat = {"messages": [{"role": "user", "content": "What is a list?"}], "max_tokens": 12, "stream": True}
    chunks = list(reader(stream(cloud, "llama", chat)["Body"]))
    assert all(isinstance(chunk["choices"][0]["delta"]["content"], str) for chunk in chunks)


def test_errors_of_the_runtime(cloud: LocalCloud) -> None:
    for call in (invoke, stream):
        status, code, message = refusal(partial(call, cloud, "nowhere", ASK))
        assert (status, code) == (400, "ValidationError") and "nowhere of account 123456789012 not found" in message
        with pytest.raises(ClientError) as raised:
            call(cloud, "llama", {"nothing": 1})
        error = raised.value.response
        assert (error["Error"]["Code"], error["ResponseMetadata"]["HTTPStatusCode"]) == ("ModelError", 424)
        assert error["OriginalStatusCode"] == 424 and json.loads(error["OriginalMessage"])["code"] == 424
        assert error["LogStreamArn"].startswith("arn:aws:logs:us-east-1:123456789012:log-group:/aws/sagemaker/")
        assert refusal(partial(call, cloud, "llama", ASK, TargetVariant="Other"))[1] == "ValidationError"


def test_eight_streams_at_once(cloud: LocalCloud) -> None:
    """Served one after the other they would hardly overlap; on a busy machine some threads begin to read late."""
    runtime = client(cloud, "sagemaker-runtime", config=Config(max_pool_connections=8))
    body = json.dumps({"inputs": "A list of", "stream": True, "parameters": {"max_new_tokens": 250}})
    # What botocore loads for a first call must not hold seven threads back while the first one is answered.
    list(runtime.invoke_endpoint_with_response_stream(EndpointName="llama", Body=body)["Body"])

    def read() -> list[float]:
        events = runtime.invoke_endpoint_with_response_stream(EndpointName="llama", Body=body)["Body"]
        times = [time.monotonic() for event in events if event]
        assert len(times) == 250
        return times

    assert any(streams_at_once(read, 8) >= 4 for _ in range(5))


@pytest.mark.parametrize(
    ("files", "environment", "reason"),
    [
        ({"serving.properties": PROPERTIES + "option.tensor_parallel_degree=8\n"}, {}, "this machine has one device"),
        ({"serving.properties": PROPERTIES.replace("=trtllm", "=vllm")}, {}, "rolling_batch"),
        ({"serving.properties": "engine=MPI\noption.rolling_batch=trtllm\n"}, {}, "no tokenizer in"),
        (
            {"serving.properties": "engine=MPI\noption.model_id=meta-llama/Meta-Llama-3-70B-Instruct\n"},
            {},
            "reaches no model hub",
        ),
        ({"serving.properties": f"engine=MPI\noption.model_id=s3://{BUCKET}/nothing/\n"}, {}, "nothing at s3://"),
        ({"../../outside.txt": "x"}, {"HF_MODEL_ID": MODEL_ID}, "could not be unpacked"),
    ],
)
def test_a_container_that_does_not_start_says_why(
    cloud: LocalCloud, files: dict[str, str], environment: dict[str, str], reason: str
) -> None:
    name = f"failing-{abs(hash(reason))}"
    client(cloud, "s3").put_object(Bucket=BUCKET, Key=f"{name}.tar.gz", Body=archive(files))
    described = deploy(cloud, name, data=f"{name}.tar.gz", environment=environment)
    assert described["EndpointStatus"] == "Failed" and reason in described["FailureReason"]
    assert refusal(lambda: invoke(cloud, name, ASK))[:2] == (400, "ValidationError")
    client(cloud, "sagemaker").delete_endpoint(EndpointName=name)


def test_the_environment_alone_and_the_schema_of_033(cloud: LocalCloud) -> None:
    described = deploy(cloud, "by-environment", image=ASYNC_IMAGE, data="", environment=ASYNC_ENVIRONMENT)
    assert described["EndpointStatus"] == "InService", described
    lines = list(line_reader(stream(cloud, "by-environment", {**ASK, "stream": True})["Body"]))
    assert [line["token"]["id"] for line in lines] == [None] * 6 and lines[-1]["details"]["generated_tokens"] == 7
    client(cloud, "sagemaker").delete_endpoint(EndpointName="by-environment")


def test_update_routing_and_deletion(cloud: LocalCloud) -> None:
    sagemaker = client(cloud, "sagemaker")
    tags = [{"Key": "ttl", "Value": "2026-01-01T00:00:00Z"}]
    create_config(cloud, "before", [variant("llama")])
    sagemaker.create_endpoint(EndpointName="canary", EndpointConfigName="before", Tags=tags)
    assert sagemaker.describe_endpoint(EndpointName="canary")["EndpointStatus"] == "Creating"
    arn = wait(cloud, "canary")["EndpointArn"]
    assert sagemaker.list_tags(ResourceArn=arn)["Tags"] == tags
    create_config(cloud, "after", [variant("llama", "A", 9.0), variant("llama", "B", 1.0)])
    sagemaker.update_endpoint(EndpointName="canary", EndpointConfigName="after", DeploymentConfig=CANARY)
    during = sagemaker.describe_endpoint(EndpointName="canary")
    assert (during["EndpointStatus"], during["EndpointConfigName"]) == ("Updating", "before")
    assert during["PendingDeploymentSummary"]["EndpointConfigName"] == "after"
    assert invoke(cloud, "canary", ASK)["InvokedProductionVariant"] == "AllTraffic"
    updated = wait(cloud, "canary", "Updating")
    assert (updated["EndpointStatus"], updated["EndpointConfigName"]) == ("InService", "after")
    assert updated["LastDeploymentConfig"] == CANARY
    quick = {"inputs": "x", "parameters": {"max_new_tokens": 1}}
    asked = Counter(invoke(cloud, "canary", quick)["InvokedProductionVariant"] for _ in range(40))
    assert asked["A"] > asked["B"] > 0
    assert invoke(cloud, "canary", quick, TargetVariant="A")["InvokedProductionVariant"] == "A"
    before = len(containers(cloud.pid))
    sagemaker.delete_endpoint(EndpointName="canary")
    sagemaker.get_waiter("endpoint_deleted").wait(EndpointName="canary", WaiterConfig={"Delay": 1, "MaxAttempts": 20})
    assert len(containers(cloud.pid)) == before - 2
    sagemaker.delete_endpoint_config(EndpointConfigName="before")
    assert refusal(lambda: sagemaker.describe_endpoint_config(EndpointConfigName="before"))[1] == "ValidationException"


def test_an_update_that_fails_leaves_the_old_containers(cloud: LocalCloud) -> None:
    client(cloud, "s3").put_object(
        Bucket=BUCKET, Key="hub.tar.gz", Body=archive({"serving.properties": "engine=MPI\noption.model_id=gpt2\n"})
    )
    deploy(cloud, "stays")
    create_model(cloud, "hub", data="hub.tar.gz")
    create_config(cloud, "hub", [variant("hub")])
    client(cloud, "sagemaker").update_endpoint(EndpointName="stays", EndpointConfigName="hub")
    described = wait(cloud, "stays", "Updating")
    assert (described["EndpointStatus"], described["EndpointConfigName"]) == ("InService", "stays")
    assert "reaches no model hub" in described["FailureReason"]
    assert invoke(cloud, "stays", ASK)["Body"].read()
    client(cloud, "sagemaker").delete_endpoint(EndpointName="stays")


def test_a_dead_container_is_unavailable(cloud: LocalCloud) -> None:
    before = set(containers(cloud.pid))
    deploy(cloud, "dying")
    (pid,) = set(containers(cloud.pid)) - before
    container = psutil.Process(pid)
    container.kill()
    container.wait(20)
    for call in (invoke, stream):
        assert refusal(partial(call, cloud, "dying", ASK))[:2] == (503, "ServiceUnavailable")
    client(cloud, "sagemaker").delete_endpoint(EndpointName="dying")


def test_an_endpoint_deleted_while_it_is_created_leaves_nothing(cloud: LocalCloud) -> None:
    sagemaker = client(cloud, "sagemaker")
    before = len(containers(cloud.pid))
    sagemaker.create_endpoint(EndpointName="hasty", EndpointConfigName="llama")
    sagemaker.delete_endpoint(EndpointName="hasty")
    sagemaker.get_waiter("endpoint_deleted").wait(EndpointName="hasty", WaiterConfig={"Delay": 1, "MaxAttempts": 20})
    deadline = time.monotonic() + 10
    while len(containers(cloud.pid)) > before and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(containers(cloud.pid)) == before


def test_lists_are_filtered_sorted_and_paged(cloud: LocalCloud) -> None:
    sagemaker = client(cloud, "sagemaker")
    for number in range(5):
        create_config(cloud, f"listed-{number}", [variant("llama")])
    pages = sagemaker.get_paginator("list_endpoint_configs").paginate(
        NameContains="listed", SortBy="Name", SortOrder="Ascending", PaginationConfig={"PageSize": 2}
    )
    names = [[config["EndpointConfigName"] for config in page["EndpointConfigs"]] for page in pages]
    assert names == [["listed-0", "listed-1"], ["listed-2", "listed-3"], ["listed-4"]]
    in_service = [e["EndpointName"] for e in sagemaker.list_endpoints(StatusEquals="InService")["Endpoints"]]
    assert (
        "llama" in in_service and not sagemaker.list_endpoints(StatusEquals="Failed", NameContains="llama")["Endpoints"]
    )


def test_sagemaker_core(cloud: LocalCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK's third version, whose models refuse empty members."""
    for name, value in cloud.environment.items():
        monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, value)
    from sagemaker.core.resources import Endpoint, EndpointConfig, Model
    from sagemaker.core.shapes import ContainerDefinition, ProductionVariant
    from sagemaker.core.utils.utils import SageMakerClient

    SageMakerClient._instances = {}
    SageMakerClient(session=boto3.Session(region_name=cloud.region), region_name=cloud.region)
    definition = ContainerDefinition(image=ASYNC_IMAGE, environment=ASYNC_ENVIRONMENT)
    model = Model.create(model_name="core", primary_container=definition, execution_role_arn=cloud.role_arn)
    wanted = ProductionVariant(
        variant_name="AllTraffic", model_name="core", initial_instance_count=1, instance_type="ml.p5.48xlarge"
    )
    configs = [
        EndpointConfig.create(endpoint_config_name=name, production_variants=[wanted]) for name in ("core", "core-2")
    ]
    endpoint = Endpoint.create(endpoint_name="core", endpoint_config_name="core")
    endpoint.wait_for_status("InService", poll=1, timeout=60)
    answer = endpoint.invoke(body=json.dumps(ASK), content_type="application/json")
    assert json.loads(answer.body.read())["generated_text"]
    with pytest.raises(AttributeError, match="get"):
        # sagemaker-core 2.27.0 cannot read any event stream.
        endpoint.invoke_with_response_stream(body=json.dumps({**ASK, "stream": True}), content_type="application/json")
    endpoint.endpoint_config_name = "core-2"
    endpoint.update(retain_all_variant_properties=True)
    endpoint.wait_for_status("InService", poll=1, timeout=60)
    assert endpoint.endpoint_config_name == "core-2"
    assert "core" in [found.endpoint_name for found in Endpoint.get_all(name_contains="core")]
    endpoint.delete()
    endpoint.wait_for_delete(poll=1, timeout=60)
    for config in configs:
        config.delete()
    model.delete()


def test_two_clouds_side_by_side(cloud: LocalCloud, tmp_path: Path) -> None:
    with LocalCloud(tmp_path / "aws") as other:
        assert other.endpoint_url != cloud.endpoint_url and other.pid != cloud.pid
        assert client(other, "sagemaker").list_endpoints()["Endpoints"] == []
    assert client(cloud, "sagemaker").describe_endpoint(EndpointName="llama")["EndpointStatus"] == "InService"


KILLED = """\
import sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
from cloud import deploy, upload
from model_server.aws.server import LocalCloud
cloud = LocalCloud(Path({folder!r}))
cloud.start()
upload(cloud, Path({engine!r}))
print(deploy(cloud, "llama")["EndpointStatus"], flush=True)
time.sleep(600)
"""


def test_nothing_outlives_a_killed_parent(engine: Path, tmp_path: Path) -> None:
    code = KILLED.format(tests=str(Path(__file__).parents[1]), folder=str(tmp_path / "aws"), engine=str(engine))
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None and parent.stdout.readline().strip() == "InService"
    family = psutil.Process(parent.pid).children(recursive=True)
    assert containers(parent.pid)
    parent.kill()
    parent.wait()
    _, alive = psutil.wait_procs(family, timeout=20)
    assert alive == []


def test_a_stopped_cloud_leaves_no_container(engine: Path, tmp_path: Path) -> None:
    cloud = LocalCloud(tmp_path / "aws")
    cloud.start()
    upload(cloud, engine)
    deploy(cloud, "llama")
    family = psutil.Process(cloud.pid).children(recursive=True)
    cloud.stop()
    cloud.stop()
    assert [process for process in family if process.is_running()] == []
