"""A fake AWS on the loopback: moto, and in front of it what moto lacks.

``python -m model_server.aws.fake --root DIR`` serves until SIGINT and writes its address to DIR/address.
Every request must be signed with the dummy credentials. SageMaker's hosting operations and its runtime are our own;
S3, IAM, STS, Application Auto Scaling and CloudWatch are moto's. EventBridge Scheduler's lists are moto's, too; what
they ask for is done by our own clockwork. Anything else is refused by name.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from model_server.aws import iam
from model_server.aws.deployment import ContainerLauncher, ObjectStore
from model_server.aws.endpoints import Endpoints
from model_server.aws.faults import AwsFault, Response, not_here, protocol_of, refused_signature, render
from model_server.aws.hosting import Hosting
from model_server.aws.iam import Identity, SignatureRefused, SignedRequest, verify
from model_server.aws.registry import Registry
from model_server.aws.runtime import Runtime
from model_server.aws.scheduler import Scheduler
from model_server.aws.server import (
    ACCOUNT_ID,
    ADDRESS_FILE,
    HOST,
    REGION,
    ROLE_NAME,
    SCHEDULER_ROLE_NAME,
    SECRET,
    confine_process,
    require_loopback,
)

if TYPE_CHECKING:
    from werkzeug.serving import BaseWSGIServer

MOTO_SERVICES = {
    "s3": "s3",
    "iam": "iam",
    "sts": "sts",
    "application-autoscaling": "applicationautoscaling",
    "monitoring": "cloudwatch",
    "scheduler": "scheduler",
}
"""Signing name -> moto's name."""
SAGEMAKER_TARGET = "SageMaker."
WRITES_SCHEDULE = ("POST", "PUT")
INVOCATION = re.compile(r"/endpoints/(?P<endpoint>[^/]+)/(?P<operation>invocations(?:-response-stream)?)")
JSON = {"Content-Type": "application/x-amz-json-1.1"}

Environ = dict[str, Any]
StartResponse = Callable[[str, list[tuple[str, str]]], Any]
Wsgi = Callable[[Environ, StartResponse], Iterable[bytes]]


class Front:
    """The WSGI application: verifies the signature, then answers or passes on to moto."""

    def __init__(self, hosting: Hosting, runtime: Runtime, scheduler: Scheduler, moto: Wsgi) -> None:
        self._hosting = hosting
        self._runtime = runtime
        self._scheduler = scheduler
        self._moto = moto

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        request = read_request(environ)
        protocol = protocol_of("", request.target, request.headers)
        try:
            identity = verify(request)
            protocol = protocol_of(identity.service, request.target, request.headers)
            return self._route(identity, request, environ, start_response)
        except SignatureRefused as refused:
            protocol = protocol_of(refused.service, request.target, request.headers)
            fault = refused_signature(refused.reason, str(refused), protocol)
        except AwsFault as raised:
            fault = raised
        except NotImplementedError as missing:
            fault = not_here(f"an operation of {identity.service}: {missing}")
        body = send(render(fault, protocol), start_response)
        return [] if request.method == "HEAD" else body

    def _route(
        self, identity: Identity, request: SignedRequest, environ: Environ, start_response: StartResponse
    ) -> Iterable[bytes]:
        if identity.service == "sagemaker":
            return self._sagemaker(request, start_response)
        if identity.service not in MOTO_SERVICES:
            raise not_here(f"the service {identity.service!r}")
        if identity.service == "iam" and iam.is_simulation(request.body):
            return send(iam.simulate_principal_policy(request.body, ACCOUNT_ID), start_response)
        if identity.service == "scheduler" and request.method in WRITES_SCHEDULE:
            self._scheduler.check(read_parameters(request.body))
        return self._moto(environ, start_response)

    def _sagemaker(self, request: SignedRequest, start_response: StartResponse) -> Iterable[bytes]:
        target = request.headers.get("x-amz-target", "")
        if target.startswith(SAGEMAKER_TARGET):
            answer = self._hosting.call(target.removeprefix(SAGEMAKER_TARGET), read_parameters(request.body))
            return send(Response(200, json.dumps(answer).encode(), JSON), start_response)
        match = INVOCATION.fullmatch(unquote(request.target.partition("?")[0]))
        if match is None:
            raise not_here(f"{request.method} {request.target} of SageMaker")
        if match["operation"] == "invocations":
            return send(self._runtime.invoke(match["endpoint"], request.headers, request.body), start_response)
        headers, parts = self._runtime.stream(match["endpoint"], request.headers, request.body)
        start_response("200 OK", list(headers.items()))
        return parts


def read_request(environ: Environ) -> SignedRequest:
    """The request as it was signed; its body can be read again."""
    import io

    length = environ.get("CONTENT_LENGTH")
    if length or environ.get("wsgi.input_terminated"):
        body = environ["wsgi.input"].read(int(length)) if length else environ["wsgi.input"].read()
    else:
        body = b""
    environ["wsgi.input"] = io.BytesIO(body)
    headers = {key[5:].replace("_", "-").lower(): value for key, value in environ.items() if key.startswith("HTTP_")}
    for key in ("CONTENT_TYPE", "CONTENT_LENGTH"):
        if environ.get(key):
            headers[key.replace("_", "-").lower()] = environ[key]
    return SignedRequest(environ["REQUEST_METHOD"], environ["RAW_URI"], headers, body)


def read_parameters(body: bytes) -> dict[str, Any]:
    """The JSON object of a control-plane request."""
    try:
        parameters = json.loads(body or b"{}")
    except ValueError as error:
        raise AwsFault(400, "SerializationException", f"the request is not JSON: {error}") from error
    if not isinstance(parameters, dict):
        raise AwsFault(400, "SerializationException", "the request is not a JSON object")
    return parameters


def send(response: Response, start_response: StartResponse) -> Iterable[bytes]:
    from http import HTTPStatus

    headers = {**response.headers, "Content-Length": str(len(response.body))}
    start_response(f"{response.status} {HTTPStatus(response.status).phrase}", list(headers.items()))
    return [response.body]


def read_models_once() -> None:
    """What botocore knows of the services: moto makes a session for each table of its own, and each would parse it."""
    import botocore.session

    botocore.session.create_loader = cache(botocore.session.create_loader)


def ecs_without_services() -> ModuleType:
    """In place of moto's ECS, which brings all of its EC2: 0.8 s of a start's 2. Application Auto Scaling asks it
    whether the service exists that is to be scaled, and this cloud has none.
    """
    here = SimpleNamespace(describe_services=lambda *_: ([], []))
    ecs = ModuleType("moto.ecs")
    vars(ecs)["ecs_backends"] = defaultdict(lambda: defaultdict(lambda: here))
    return ecs


def moto_application() -> Wsgi:
    """moto's dispatcher with the services that this cloud has, loaded."""
    from importlib import import_module

    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

    sys.modules.setdefault("moto.ecs", ecs_without_services())
    for name in MOTO_SERVICES.values():
        import_module(f"moto.{name}.urls")
    application: Wsgi = DomainDispatcherApplication(create_backend_app)
    return application


def listen(application: Wsgi, port: int, host: str = HOST) -> BaseWSGIServer:
    """A threaded server on the loopback that sends every chunk at once."""
    from moto.moto_server.werkzeug_app import MotoRequestHandler
    from werkzeug.serving import make_server

    class Handler(MotoRequestHandler):
        disable_nagle_algorithm = True

        def log_request(self, code: int | str = "-", _: int | str = "-") -> None:
            self.log("info", "%s %s %s", self.command, self.path, code)

    require_loopback(host, wanted="bind")
    return make_server(host, port, application, threaded=True, request_handler=Handler)


def create_roles(client: Any) -> None:
    """The execution role that examples use, allowed to read S3, and the scheduler's, allowed to end endpoints."""
    from trtllm_check.recipes import sagemaker

    allow = {"Effect": "Allow", "Action": ["s3:GetObject", "s3:ListBucket"], "Resource": "*"}
    reading = {"Version": "2012-10-17", "Statement": [allow]}
    ending = sagemaker.ending_policy(f"arn:aws:sagemaker:{REGION}:{ACCOUNT_ID}:endpoint/*")
    create_role(client, ROLE_NAME, sagemaker.trust_policy(), reading)
    create_role(client, SCHEDULER_ROLE_NAME, sagemaker.ending_trust_policy(ACCOUNT_ID), ending)


def create_role(client: Any, name: str, trust: Mapping[str, Any], policy: Mapping[str, Any]) -> None:
    client.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(trust))
    client.put_role_policy(RoleName=name, PolicyName=name, PolicyDocument=json.dumps(policy))


def own_client(service: str, url: str) -> Any:
    """A boto3 client of this very cloud."""
    import boto3

    return boto3.client(
        service,
        endpoint_url=url,
        region_name=REGION,
        aws_access_key_id=SECRET,
        aws_secret_access_key=SECRET,
    )


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True, help="folder for the address, models and logs")
    parser.add_argument("--port", type=int, default=0, help="0: one that is free")
    options = parser.parse_args(argv)
    confine_process()
    read_models_once()
    root: Path = options.root.resolve()
    registry = Registry(ACCOUNT_ID, REGION)
    url = ""
    store = ObjectStore(lambda: own_client("s3", url))
    endpoints = Endpoints(registry, ContainerLauncher(root / "endpoints", store))
    scheduler = Scheduler(ACCOUNT_ID, REGION, endpoints.delete)
    runtime = Runtime(endpoints, REGION, ACCOUNT_ID)
    front = Front(Hosting(registry, endpoints), runtime, scheduler, moto_application())
    server = listen(front, options.port)
    url = f"http://{HOST}:{server.port}"
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: stopped.set())
    threading.Thread(target=server.serve_forever, args=(0.1,), name="server", daemon=True).start()
    threading.Thread(target=scheduler.watch, args=(stopped,), name="scheduler", daemon=True).start()
    try:
        create_roles(own_client("iam", url))
        (root / "address.new").write_text(url, encoding="utf-8")
        (root / "address.new").rename(root / ADDRESS_FILE)
        stopped.wait()
    finally:
        server.shutdown()
        endpoints.close()


if __name__ == "__main__":
    main()
