"""Chapter 07: values that its checks accept, and values that they refuse."""

import io
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from types import ModuleType
from types import SimpleNamespace as Thing
from typing import Any

from botocore.exceptions import ClientError

import playbook
from chapter_cells import Case, Fresh
from playbook.cloud import Places
from serving_base.errors import UsageError
from trtllm_check.recipes import lmi
from trtllm_check.recipes import sagemaker as hosting

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
IMAGE = "0.32.0-tensorrtllm0.12.0-cu125"
ROLE = "arn:aws:iam::123456789012:role/execution"
WHERE = Places("us-east-1", "models", ROLE, ROLE)
SPEC = hosting.EndpointSpec("llama3-fp8-local", "image", "s3://models/model.tar.gz", ROLE, NOON)
UNNAMEABLE = replace(SPEC, name="no name has spaces")
TEXT = "To count: un, deux, trois."


def changed(module: ModuleType, **names: object) -> Thing:
    """The module with some of its names changed."""
    return Thing(**{name: getattr(module, name) for name in dir(module) if not name.startswith("__")} | names)


def with_typo(*given: Any, **options: Any) -> str:
    return lmi.serving_properties(*given, **options) + "option.tensor_paralel_degree=8\n"


def refuse(**request: Any) -> None:
    raise ClientError({"Error": {"Code": "ModelError"}, "ResponseMetadata": {"HTTPStatusCode": 424}}, "InvokeEndpoint")


def unnamed_policy(*given: Any, **options: Any) -> dict[str, Any]:
    return hosting.put_scaling_policy(*given, **options) | {"PolicyName": 1}


def fail(*given: Any, **options: Any) -> None:
    raise UsageError("endpoint article-0-33 is Failed", why="option.rolling_batch: no")


def silent(*given: Any, **options: Any) -> None:
    raise UsageError("endpoint article-0-33 is Failed", why="out of capacity")


def agrees(text: str) -> bool:
    return text == TEXT


TYPO = {"lmi": changed(lmi, serving_properties=with_typo)}
BASE = {"lmi": lmi, "hosting": hosting, "json": json, "replace": replace, "image": IMAGE, "where": WHERE, "spec": SPEC}
PACKING = BASE | {
    "role_arn": "",
    "bucket": "",
    "scheduler_role_arn": "",
    "model": Thing(source=Thing(name="engine"), compiled=True, quantized=False, profile=playbook.load_profile("local")),
}
OPERATIONS = {"operations": ("create_model", "create_endpoint_config", "create_endpoint")}
ENDPOINT = Thing(name=SPEC.name, instances="1 x ml.p5.48xlarge", ends_at=NOON, expires_at=NOON)
BILL = Thing(endpoints=[ENDPOINT], summary="")
ANSWER = {"generated_text": TEXT, "details": {"generated_tokens": 3}}
LINES: list[dict[str, Any]] = [
    {"token": {"text": "To count: "}},
    {"token": {"text": "un, deux, trois."}, "generated_text": TEXT},
]
SCHEDULED = {"datetime": datetime, "UTC": UTC, "timedelta": timedelta}


def asked(answer: str, **more: object) -> dict[str, Any]:
    """A `sagemaker` module and a cloud that answer with this text."""
    lines = [*LINES[:-1], LINES[-1] | {"generated_text": answer}]
    told = {"generated_text": answer}
    clients = Thing(invoke=lambda *_: told, stream=lambda *_: iter(lines), **more)
    return {"sagemaker": clients, "cloud": Thing(session=None)}


def client_of_chapter_6(text: str) -> dict[str, Any]:
    class Caller:
        def __enter__(self) -> Thing:
            return Thing(generate=lambda request: Thing(text=text, pieces=[text]))

        def __exit__(self, *error: object) -> None: ...

    clients = Thing(
        Client=lambda transport: Caller(),
        SageMakerEndpoint=lambda *given, **options: None,
        TextRequest=lambda *given, **options: None,
        one_attempt=lambda: None,
    )
    return {"playbook": Thing(clients=clients), "cloud": Thing(client=lambda *given: None)}


def sdk(text: str) -> dict[str, Any]:
    config = Thing(production_variants=[Thing(instance_type="ml.p5.48xlarge", initial_instance_count=1)])
    body = Fresh(lambda: io.BytesIO(json.dumps({"generated_text": text}).encode()))
    endpoint = Fresh(
        lambda: Thing(
            endpoint_name="", endpoint_status="", endpoint_config_name="", invoke=lambda **_: Thing(body=body.make())
        )
    )
    return {
        "ContainerDefinition": Thing,
        "Model": Thing(create=lambda **options: None),
        "EndpointConfig": Thing(get=lambda *given, **options: config),
        "where_boto": {},
        "body": "",
        "endpoint": endpoint,
    }


def gone_at(at: datetime) -> dict[str, Any]:
    """What cell 07-61 looks on: an endpoint that is seen gone at ``at``."""
    looks_on = Thing(plan_end=lambda *_: None, wait_until_gone=lambda *_, **__: None)
    return {"sagemaker": looks_on, "life": Thing(seen=lambda state: at)}


def described(arn: str) -> dict[str, Any]:
    return {"client": Thing(describe_endpoint=lambda **_: {"EndpointArn": arn, "EndpointConfigName": "v2"})}


def billed(*endpoints: Thing) -> dict[str, Any]:
    account = Thing(endpoints=list(endpoints), summary="")
    deleting = Thing(delete=lambda *_: [], delete_uploads=lambda *_: 0)
    return {"cloud": Thing(bill=lambda: account, session=None, bucket="models"), "sagemaker": deleting}


DOOMED = BASE | {"doomed": SPEC, "cloud": Thing(session=None)}
ATTEMPT = {"playbook": playbook, "ClientError": ClientError}
SCALING = BASE | {"cloud": Thing(client=lambda name: Thing(register_scalable_target=Thing, put_scaling_policy=Thing))}
WRONG_TARGET = {"hosting": changed(hosting, register_scalable_target=lambda *_, **__: {"MinCapacity": "one"})}
WRONG_POLICY = {"hosting": changed(hosting, put_scaling_policy=unnamed_policy)}
ARN = WHERE.endpoint_arn(SPEC.name)


def scaled(one: tuple[float, float], tracking: tuple[float, float], three: tuple[float, float]) -> dict[str, Any]:
    """The bill and the longest wait of each policy."""
    names = ("one", "target tracking", "always three")
    runs = {
        name: Thing(usd=usd, longest_wait_s=wait, moments=[])
        for name, (usd, wait) in zip(names, (one, tracking, three), strict=True)
    }
    plots = Thing(plots=Thing(lines=lambda *drawn, **named: None))
    return {"scaled": runs, "carried": 1.0, "playbook": plots}


FOLLOWED = scaled((1, 90), (2, 15), (3, 0))


def waiting(
    fault: tuple[float, ...] = (0.05, 0.1),
    refusal: tuple[float, ...] = (16.0, 20.0, 20.0),
    address: str = "https://aws",
) -> dict[str, Any]:
    """Pauses of the library before its retries, in seconds, and the address that it asks."""
    return {"pauses": {"a fault": fault, "too many calls": refusal}, "address": address, "pairwise": pairwise}


CASES = [
    Case("07-wait-d", "a real endpoint is asked over TLS", waiting(), waiting(address="http://aws")),
    Case("07-wait-d", "the pause doubles", waiting(), waiting(refusal=(16.0, 32.0))),
    Case("07-wait-d", "too many calls bring", waiting(), waiting(refusal=(0.05, 0.1))),
    Case("checker-3", "our file has no finding for its release", BASE, TYPO),
    Case("07-13", "our file passes each image's own rules", BASE, TYPO),
    Case("07-21", "the image takes the endpoint's file", PACKING, TYPO),
    Case("07-24", "every request validates", BASE | OPERATIONS, {"spec": UNNAMEABLE}),
    Case("end-1", "the schedule's request is valid", BASE, {"where": replace(WHERE, scheduler_role_arn="nobody")}),
    Case(
        "07-19",
        "a real account is not opened below its price",
        BASE,
        {"playbook": changed(playbook, open_cloud=lambda *_, **__: None, load_profile=playbook.load_profile)},
    ),
    Case("07-28", "what bills was listed at once", BASE | {"bill": BILL}, {"bill": Thing(endpoints=[])}),
    Case(
        "07-28",
        "its schedule deletes it when the time in its tag is over",
        BASE | {"bill": BILL},
        {"bill": Thing(endpoints=[Thing(**vars(ENDPOINT) | {"ends_at": None})])},
    ),
    Case(
        "07-31",
        "the endpoint gives the right answer",
        {"answer": ANSWER, "question": "", "engine": None, "playbook": Thing(generate=lambda *_, **__: [TEXT])},
        {"playbook": Thing(generate=lambda *_, **__: ["another build's answer"])},
    ),
    Case(
        "07-31",
        "the endpoint gives the right answer",
        {"answer": ANSWER, "question": "", "engine": None},
        {"answer": ANSWER | {"generated_text": "one, two, three"}},
        profile="p5",
    ),
    Case(
        "07-33",
        "the pieces join to the last line's text",
        BASE | {"question": "", "parameters": {}, "agrees": agrees} | asked(TEXT),
        asked("To count: un"),
    ),
    Case(
        "07-33",
        "streamed it is right, too",
        BASE | {"question": "", "parameters": {}, "agrees": agrees} | asked(TEXT),
        {"agrees": lambda text: False},
    ),
    Case(
        "07-35",
        "chapter 06's client gets the right answer",
        BASE | {"question": "", "agrees": agrees} | client_of_chapter_6(TEXT),
        client_of_chapter_6("cut"),
    ),
    Case(
        "07-38",
        "the reason names the article's lines",
        DOOMED | {"sagemaker": Thing(wait_in_service=fail, delete=lambda *_: None)},
        {"sagemaker": Thing(wait_in_service=silent, delete=lambda *_: None)},
    ),
    Case(
        "07-41",
        "every one is refused",
        ATTEMPT | {"attempts": {"bad payload": (Thing(invoke_endpoint=refuse), {})}},
        {"attempts": {"bad payload": (Thing(invoke_endpoint=lambda **_: None), {})}},
    ),
    Case("07-44", "the SDK gets the right answer", BASE | {"agrees": agrees} | sdk(TEXT), sdk("cut")),
    Case(
        "07-50",
        "the policies name the endpoint that runs",
        BASE | {"arn": ARN, "cloud": Thing(bucket="models", region="us-east-1")} | described(ARN),
        described(ARN + "-other"),
    ),
    Case(
        "07-52",
        "the isolated model's request is valid",
        PACKING | {"kind": {"compiled": True}, "cloud": Thing(bucket="models")},
        {"spec": UNNAMEABLE},
    ),
    Case("07-54", "register_scalable_target is valid", SCALING, WRONG_TARGET),
    Case("07-54", "put_scaling_policy is valid", SCALING, WRONG_POLICY),
    Case("07-56", "the canary update is valid", BASE | {"isolated": SPEC}, {"isolated": UNNAMEABLE}),
    Case(
        "07-59",
        "the isolated version gives the right answer",
        BASE | {"body": "", "agrees": agrees} | asked(TEXT) | described(ARN),
        asked("cut"),
    ),
    Case(
        "07-61",
        "the schedule deleted it, and not before its time",
        BASE | SCHEDULED | {"cloud": Thing(session=None)} | gone_at(datetime.now(UTC) + timedelta(days=1)),
        gone_at(NOON - timedelta(days=30)),
    ),
    Case("07-65", "this chapter's endpoint is gone", BASE | billed(), billed(ENDPOINT)),
    Case("07-scale-f", "tracking costs less than always three", FOLLOWED, scaled((1, 90), (4, 15), (3, 0))),
    Case("07-scale-f", "and waits less than one instance", FOLLOWED, scaled((1, 90), (2, 95), (3, 0))),
]
