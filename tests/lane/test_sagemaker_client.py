"""One endpoint's life with boto3 against the local cloud: upload, wait, ask, delete; and readers of broken streams."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from model_server.generate import generate_text
from playbook.articles import quote
from playbook.cloud import Cloud, open_cloud
from playbook.profile import load_profile
from playbook.stages import Workspace
from serving_base.errors import PlaybookError, UsageError
from serving_clients import sagemaker
from serving_clients.aws import AwsSession
from serving_clients.requests import BrokenStream, Refused
from trtllm_check.recipes import chat_prompt, lmi
from trtllm_check.recipes import sagemaker as requests

ROLLING, ASYNC = "0.32.0-tensorrtllm0.12.0-cu125", "0.33.0-tensorrtllm0.21.0-cu128"
PROMPT = chat_prompt("How do I count to nine in French?")


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    opened = open_cloud(Workspace(tmp_path_factory.mktemp("workspace"), load_profile("local")))
    yield opened
    opened.stop()


def spec_for(cloud: Cloud, name: str, text: str, folder: Path, *, image: str = ROLLING) -> requests.EndpointSpec:
    """Pack and upload ``text``, and describe the endpoint that it belongs to."""
    uri = f"s3://{cloud.bucket}/{name}/model.tar.gz"
    sagemaker.upload(cloud.session, lmi.pack(text, folder / "model.tar.gz"), uri)
    soon = datetime.now(UTC) + timedelta(minutes=5)
    return requests.EndpointSpec(name, lmi.image_uri(image, cloud.region), uri, cloud.role_arn, soon)


def create(cloud: Cloud, spec: requests.EndpointSpec) -> None:
    client = cloud.client("sagemaker")
    client.create_model(**requests.create_model(spec))
    client.create_endpoint_config(**requests.create_endpoint_config(spec))
    client.create_endpoint(**requests.create_endpoint(spec))


@pytest.mark.parametrize("image", [ROLLING, ASYNC])
def test_an_endpoint_answers_as_the_engine_does_whole_and_streamed(
    cloud: Cloud, fp8_engine: Path, tmp_path: Path, image: str
) -> None:
    place = f"s3://{cloud.bucket}/engine-{image}/"
    assert len(sagemaker.upload(cloud.session, fp8_engine, place)) == sum(p.is_file() for p in fp8_engine.rglob("*"))
    text = lmi.serving_properties(load_profile("local"), image, model_id=place)
    name = f"answers-{image[2:4]}"
    spec = spec_for(cloud, name, text, tmp_path, image=image)
    create(cloud, spec)
    states: list[str] = []
    sagemaker.wait_in_service(cloud.session, name, timeout_s=60, show=states.append)
    assert states[-1] == "InService" and set(states) <= {"Creating", "InService"}

    parameters = {"max_new_tokens": 8, "do_sample": False, "details": True}
    body: dict[str, Any] = {"inputs": PROMPT, "parameters": parameters}
    whole = sagemaker.invoke(cloud.session, requests.invoke_endpoint(spec, json.dumps(body)))
    (direct,) = generate_text(fp8_engine, [PROMPT], 8)
    assert whole["generated_text"].strip() == direct.strip()
    request = requests.invoke_endpoint(spec, json.dumps(body | {"stream": True}))
    lines = list(sagemaker.stream(cloud.session, request))
    assert "".join(line["token"]["text"] for line in lines) == whole["generated_text"]
    assert lines[-1]["generated_text"] == whole["generated_text"]

    with pytest.raises(Refused, match="ModelError"):
        sagemaker.invoke(cloud.session, requests.invoke_endpoint(spec, "[]"))
    assert sagemaker.delete(cloud.session, name) == [
        f"endpoint {name}",
        f"configuration {name}-v1",
        f"model {name}-v1",
    ]
    assert sagemaker.delete(cloud.session, name) == []
    with pytest.raises(Refused, match="ValidationError"):
        sagemaker.invoke(cloud.session, requests.invoke_endpoint(spec, json.dumps(body)))


def test_a_failed_endpoint_says_sagemaker_s_reason(cloud: Cloud, tmp_path: Path) -> None:
    text = quote("aws-serving-properties").text
    create(cloud, spec_for(cloud, "article", text, tmp_path, image=ASYNC))
    with pytest.raises(PlaybookError, match="endpoint article is Failed") as failed:
        sagemaker.wait_in_service(cloud.session, "article", timeout_s=60, show=lambda state: None)
    assert "option.rolling_batch" in failed.value.why and "comment in its value" in failed.value.why
    assert "may still bill" in failed.value.fix
    assert "endpoint article" in sagemaker.delete(cloud.session, "article")


def test_deletion_takes_every_version_with_its_scaling_and_nobody_else_s(cloud: Cloud, tmp_path: Path) -> None:
    mine = spec_for(cloud, "mine", "engine=Python\n", tmp_path)
    other = spec_for(cloud, "mine-too", "engine=Python\n", tmp_path)
    for spec in (mine, other):
        create(cloud, spec)
    newer = replace(mine, version=12)
    cloud.client("sagemaker").create_model(**requests.create_model(newer))
    cloud.client("sagemaker").create_endpoint_config(**requests.create_endpoint_config(newer))
    scaling = cloud.client("application-autoscaling")
    scaling.register_scalable_target(**requests.register_scalable_target(mine, min_instances=1, max_instances=2))
    scaling.put_scaling_policy(**requests.put_scaling_policy(mine, target=4))
    cloud.client("cloudwatch").put_metric_alarm(**requests.put_metric_alarm(mine))
    for spec in (mine, other):
        sagemaker.plan_end(cloud.session, requests.create_schedule(spec, cloud.places.scheduler_role_arn))
    gone = sagemaker.delete(cloud.session, "mine")
    assert gone == [
        "scaling of endpoint/mine/variant/AllTraffic",
        "alarm mine-Invocation5XXErrors",
        "endpoint mine",
        "schedule mine-end",
        "configuration mine-v12",
        "configuration mine-v1",
        "model mine-v12",
        "model mine-v1",
    ]
    assert sagemaker.delete(cloud.session, "mine-too") == [
        "endpoint mine-too",
        "schedule mine-too-end",
        *_files("mine-too"),
    ]


def _files(name: str) -> list[str]:
    return [f"configuration {name}-v1", f"model {name}-v1"]


def test_what_was_uploaded_can_be_deleted(cloud: Cloud, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for name in ("a", "deep/b"):
        (tmp_path / name).write_text("x")
    keys = sagemaker.upload(cloud.session, tmp_path, f"s3://{cloud.bucket}/uploads/")
    assert keys == ["uploads/a", "uploads/deep/b"]
    assert sagemaker.delete_uploads(cloud.session, f"s3://{cloud.bucket}/uploads/") == 2
    assert sagemaker.delete_uploads(cloud.session, f"s3://{cloud.bucket}/uploads/") == 0


def test_an_empty_folder_and_a_wrong_address_are_refused(cloud: Cloud, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no file"):
        sagemaker.upload(cloud.session, tmp_path, f"s3://{cloud.bucket}/x/")
    for uri in ("bucket/key", "https://bucket/key", "s3:///key"):
        with pytest.raises(UsageError, match="no address in S3"):
            sagemaker.split_s3_uri(uri)


LAST = {"token": {"id": 2, "text": "é!"}, "generated_text": "one é!", "details": {"finish_reason": "length"}}
LINES = [{"token": {"id": 1, "text": "one "}}, LAST]
FIRST = b'{"token": {"id": 1, "text": "one "}}\n'
RAW = b"\n" + b"\n\n".join(json.dumps(line, ensure_ascii=False).encode() for line in LINES) + b"\n"


def session_that_streams(parts: list[Any]) -> AwsSession:
    """A session whose runtime client answers with these parts of an event stream."""

    def events() -> Iterator[dict[str, Any]]:
        for part in parts:
            if isinstance(part, Exception):
                raise part
            yield {"PayloadPart": {"Bytes": part}}

    client = SimpleNamespace(invoke_endpoint_with_response_stream=lambda **_: {"Body": events()})
    boto = SimpleNamespace(client=lambda *_, **__: client)
    return AwsSession(boto, "us-east-1")


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_parts_may_end_anywhere_even_inside_a_character(size: int) -> None:
    parts = [RAW[start : start + size] for start in range(0, len(RAW), size)]
    assert list(sagemaker.stream(session_that_streams(parts), {})) == LINES


@pytest.mark.parametrize(
    ("parts", "texts"),
    [
        ([FIRST], ("one ",)),
        ([], ()),
        ([FIRST, b"Internal Server Error\n"], ("one ",)),
        ([FIRST, b'{"error": "out of memory", "code": 424}\n'], ("one ",)),
        ([FIRST, b'{"token": {"text": ""}, "details": {"finish_reason": "error"}}\n'], ("one ",)),
    ],
    ids=["broken off", "empty", "no JSON", "error line", "finish_reason error"],
)
def test_an_answer_that_is_not_whole_is_an_error_with_what_had_come(parts: list[bytes], texts: tuple[str, ...]) -> None:
    with pytest.raises(BrokenStream) as broken:
        list(sagemaker.stream(session_that_streams(parts), {}))
    assert broken.value.pieces == texts


def test_an_exception_of_the_event_stream_is_an_error_with_what_had_come() -> None:
    from botocore.exceptions import EventStreamError

    response = {"Error": {"Code": "ModelStreamError", "Message": "the container died"}}
    parts = [FIRST, EventStreamError(response, "InvokeEndpointWithResponseStream")]
    with pytest.raises(BrokenStream, match="ModelStreamError") as broken:
        list(sagemaker.stream(session_that_streams(parts), {}))
    assert broken.value.pieces == ("one ",)


def session_of(*endpoints: Any) -> AwsSession:
    """A session whose sagemaker client describes an endpoint in these states, one after the other."""
    states = iter(endpoints)
    last: list[Any] = []

    def describe(**_: Any) -> dict[str, Any]:
        last[:] = [next(states, last[0] if last else None)]
        return {"EndpointStatus": last[0]}

    client = SimpleNamespace(describe_endpoint=describe)
    return AwsSession(SimpleNamespace(client=lambda *_, **__: client), "us-east-1", "http://127.0.0.1:1")


def test_waiting_shows_each_state_once_and_ends_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sagemaker, "POLL_S", 0.001)
    states: list[str] = []
    sagemaker.wait_in_service(session_of("Creating", "Creating", "InService"), "e", show=states.append)
    assert states == ["Creating", "InService"]
    with pytest.raises(PlaybookError, match=r"still Creating after 0\.01 s") as late:
        sagemaker.wait_in_service(session_of("Creating"), "e", timeout_s=0.01, show=states.append)
    assert "it bills" in late.value.fix
    with pytest.raises(PlaybookError, match="is OutOfService"):
        sagemaker.wait_in_service(session_of("Creating", "OutOfService"), "e", show=states.append)


def test_a_real_account_is_asked_more_and_more_seldom() -> None:
    here, account = (AwsSession(SimpleNamespace(), "us-east-1", url) for url in ("http://127.0.0.1:1", ""))
    assert list(islice(sagemaker.pauses_s(here), 9)) == [0.2] * 9
    assert list(islice(sagemaker.pauses_s(account), 9)) == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 15, 15]


def test_an_endpoint_that_nothing_ends_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sagemaker, "POLL_S", 0.001)
    states: list[str] = []
    with pytest.raises(PlaybookError, match="still InService") as stays:
        sagemaker.wait_until_gone(session_of("InService"), "e", timeout_s=0.01, show=states.append)
    assert states == ["InService"] and "its schedule has not ended it" in stays.value.why


def test_an_endpoint_that_may_not_be_deleted_yet_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from botocore.exceptions import ClientError

    monkeypatch.setattr(sagemaker, "POLL_S", 0.001)
    refusals = [ClientError({"Error": {"Code": "ValidationException", "Message": "busy"}}, "DeleteEndpoint")] * 2
    states = iter(["Updating", "RollingBack", "InService", "Deleting"])

    class Client:
        def describe_endpoint(self, **_: Any) -> dict[str, Any]:
            state = next(states, None)
            if state is None:
                error = {"Code": "ValidationException", "Message": 'Could not find endpoint "e".'}
                raise ClientError({"Error": error}, "DescribeEndpoint")
            return {"EndpointStatus": state}

        def delete_endpoint(self, **_: Any) -> None:
            if refusals:
                raise refusals.pop()

    session = AwsSession(SimpleNamespace(client=lambda *_, **__: Client()), "us-east-1", "http://127.0.0.1:1")
    assert sagemaker._delete_endpoint(session, "e", 5.0) == ["endpoint e"]
    assert refusals == []


def test_an_endpoint_that_stays_is_reported_with_what_it_means(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sagemaker, "POLL_S", 0.001)
    client = SimpleNamespace(describe_endpoint=lambda **_: {"EndpointStatus": "Deleting"})
    session = AwsSession(SimpleNamespace(client=lambda *_, **__: client), "us-east-1", "http://127.0.0.1:1")
    with pytest.raises(PlaybookError, match="still Deleting") as stays:
        sagemaker._delete_endpoint(session, "e", 0.01)
    assert "delete-endpoint --endpoint-name e" in stays.value.fix
