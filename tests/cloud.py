"""A local cloud for tests: an engine uploaded to it, and endpoints on that engine."""

import io
import json
import tarfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from model_server.aws.server import LocalCloud

REGISTRY = "763104351884.dkr.ecr.us-east-1.amazonaws.com/djl-inference"
ROLLING_IMAGE = f"{REGISTRY}:0.32.0-tensorrtllm0.12.0-cu125"
ASYNC_IMAGE = f"{REGISTRY}:0.33.0-tensorrtllm0.21.0-cu128"
BUCKET = "lmi-models"
MODEL_ID = f"s3://{BUCKET}/engine/"
PROPERTIES = f"engine=MPI\noption.model_id={MODEL_ID}\noption.rolling_batch=trtllm\n"
ASYNC_ENVIRONMENT = {
    "HF_MODEL_ID": MODEL_ID,
    "OPTION_ASYNC_MODE": "true",
    "OPTION_ROLLING_BATCH": "disable",
    "OPTION_ENTRYPOINT": "djl_python.lmi_trtllm.trtllm_async_service",
}
ONCE = Config(retries={"total_max_attempts": 1, "mode": "standard"})


def client(cloud: LocalCloud, service: str, **changes: Any) -> Any:
    return boto3.client(service, **{"config": ONCE, **cloud.client_options, **changes})


def archive(files: Mapping[str, str]) -> bytes:
    """A model.tar.gz."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as written:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            written.addfile(member, io.BytesIO(text.encode()))
    return buffer.getvalue()


def upload(cloud: LocalCloud, engine: Path) -> None:
    s3 = client(cloud, "s3")
    s3.create_bucket(Bucket=BUCKET)
    for path in engine.rglob("*"):
        if path.is_file():
            s3.upload_file(str(path), BUCKET, f"engine/{path.relative_to(engine)}")
    s3.put_object(Bucket=BUCKET, Key="model.tar.gz", Body=archive({"serving.properties": PROPERTIES}))


def create_model(
    cloud: LocalCloud,
    name: str,
    *,
    image: str = ROLLING_IMAGE,
    data: str = "model.tar.gz",
    environment: Mapping[str, str] | None = None,
) -> None:
    container: dict[str, Any] = {"Image": image, "Environment": dict(environment or {})}
    if data:
        container["ModelDataUrl"] = f"s3://{BUCKET}/{data}"
    client(cloud, "sagemaker").create_model(ModelName=name, ExecutionRoleArn=cloud.role_arn, PrimaryContainer=container)


def variant(model: str, name: str = "AllTraffic", weight: float = 1.0) -> dict[str, Any]:
    return {
        "VariantName": name,
        "ModelName": model,
        "InitialInstanceCount": 1,
        "InstanceType": "ml.p5.48xlarge",
        "InitialVariantWeight": weight,
        "ContainerStartupHealthCheckTimeoutInSeconds": 60,
    }


def create_config(cloud: LocalCloud, name: str, variants: Iterable[Mapping[str, Any]]) -> None:
    client(cloud, "sagemaker").create_endpoint_config(EndpointConfigName=name, ProductionVariants=list(variants))


def wait(cloud: LocalCloud, endpoint: str, leaving: str = "Creating") -> dict[str, Any]:
    """Wait while the endpoint is ``leaving`` a status, and describe it."""
    sagemaker = client(cloud, "sagemaker")
    deadline = time.monotonic() + 60
    while (described := sagemaker.describe_endpoint(EndpointName=endpoint))["EndpointStatus"] == leaving:
        assert time.monotonic() < deadline, f"{endpoint} is still {leaving}"
        time.sleep(0.1)
    return dict(described)


def deploy(cloud: LocalCloud, name: str, **model: Any) -> dict[str, Any]:
    """Model, configuration and endpoint of one name; returns the endpoint in service, or as it failed."""
    create_model(cloud, name, **model)
    create_config(cloud, name, [variant(name)])
    client(cloud, "sagemaker").create_endpoint(EndpointName=name, EndpointConfigName=name)
    return wait(cloud, name)


def invoke(cloud: LocalCloud, endpoint: str, body: Any, **arguments: Any) -> Any:
    written = body if isinstance(body, bytes) else json.dumps(body)
    return client(cloud, "sagemaker-runtime").invoke_endpoint(
        EndpointName=endpoint, ContentType="application/json", Body=written, **arguments
    )


def stream(cloud: LocalCloud, endpoint: str, body: Any, **arguments: Any) -> Any:
    written = body if isinstance(body, bytes) else json.dumps(body)
    return client(cloud, "sagemaker-runtime").invoke_endpoint_with_response_stream(
        EndpointName=endpoint, ContentType="application/json", Body=written, **arguments
    )


def streams_at_once(read: Callable[[], Sequence[float]], number: int) -> int:
    """The most of ``number`` readers, begun together, that read at a time; ``read``: when each piece of one came."""
    together = threading.Barrier(number)

    def span(_: int) -> tuple[float, float]:
        together.wait()
        times = read()
        return times[0], times[-1]

    with ThreadPoolExecutor(number) as pool:
        return most_at_once(pool.map(span, range(number)))


def most_at_once(spans: Iterable[tuple[float, float]]) -> int:
    """The most spans (first, last) that share a moment; 1 when they follow each other."""
    kept = list(spans)
    return max(sum(first <= at <= last for first, last in kept) for at, _ in kept)
