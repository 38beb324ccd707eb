"""A loopback session reaches nothing but this machine. Each guard is taken away once, and the next one stops it.

No test opens a connection to another host: what is asserted is that the request was stopped, or where it went.
"""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSPreparedRequest
from botocore.utils import get_environ_proxies

from serving_base.errors import EnvironmentProblem, UsageError
from serving_clients.aws import _deaf_session, loopback_session, real_session, refuse_other_hosts

REAL = "https://runtime.sagemaker.us-east-1.amazonaws.com"
BODY = {"EndpointName": "e", "Body": b"{}"}
HOSTILE = {
    "AWS_ACCESS_KEY_ID": "AKIAREAL",
    "AWS_SECRET_ACCESS_KEY": "real-secret",
    "AWS_SESSION_TOKEN": "real-token",
    "AWS_PROFILE": "work",
    "AWS_DEFAULT_REGION": "eu-west-1",
    "AWS_REGION": "eu-west-1",
    "AWS_ENDPOINT_URL": REAL,
    "AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME": REAL,
    "AWS_USE_FIPS_ENDPOINT": "true",
    "AWS_CA_BUNDLE": "/nowhere/ca.pem",
    "AWS_RETRY_MODE": "adaptive",
    "HTTP_PROXY": "http://proxy.example:3128",
    "http_proxy": "http://proxy.example:3128",
    "HTTPS_PROXY": "http://proxy.example:3128",
}


class Endpoint:
    """Answers every POST on the loopback and keeps the headers."""

    def __init__(self) -> None:
        seen: list[dict[str, str]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                seen.append(dict(self.headers))
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_: object) -> None:
                pass

        self.seen = seen
        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def never_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever reaches botocore's HTTP layer fails the test: no guard had stopped it."""

    def send(_session: object, request: AWSPreparedRequest) -> None:
        pytest.fail(f"a request was about to go to {request.url}")

    monkeypatch.setattr("botocore.httpsession.URLLib3Session.send", send)


@pytest.mark.parametrize("url", [REAL, "http://10.0.0.1:5000", "http://127.0.0.1.example.com", "127.0.0.1:5000", ""])
def test_guard_one_an_address_elsewhere_is_refused(url: str, never_sent: None) -> None:
    with pytest.raises(UsageError, match="is not on this machine"):
        loopback_session(url, "us-east-1")


def test_guard_two_stops_the_request_where_guard_one_is_missing(
    never_sent: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serving_clients.aws.is_loopback", lambda host: True)
    session = loopback_session(REAL, "us-east-1")
    monkeypatch.undo()
    monkeypatch.setattr("botocore.httpsession.URLLib3Session.send", lambda *_: pytest.fail("sent"))
    with pytest.raises(UsageError, match=r"a request to runtime\..* was stopped"):
        session.client("sagemaker-runtime").invoke_endpoint(**BODY)


def test_guard_two_stops_what_a_client_is_told_later(endpoint: Endpoint, never_sent: None) -> None:
    client = loopback_session(endpoint.url, "us-east-1").client("sagemaker-runtime")
    client.meta.events.register_last("before-sign", lambda request, **_: setattr(request, "url", f"{REAL}/endpoints/e"))
    with pytest.raises(UsageError, match="was stopped"):
        client.invoke_endpoint(**BODY)


def test_guard_three_without_the_others_a_request_would_carry_dummy_keys_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both address guards are away; the request that would leave is caught and has no real key in it."""
    for name, value in HOSTILE.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("serving_clients.aws.is_loopback", lambda host: True)
    caught: list[Any] = []

    def send(_session: object, request: AWSPreparedRequest) -> None:
        caught.append(request)
        raise EnvironmentProblem("caught")

    monkeypatch.setattr("botocore.httpsession.URLLib3Session.send", send)
    with pytest.raises(EnvironmentProblem, match="caught"):
        loopback_session(REAL, "us-east-1").client("sagemaker-runtime").invoke_endpoint(**BODY)
    headers = {key.lower(): str(value) for key, value in caught[0].headers.items()}
    assert "Credential=testing/" in headers["authorization"]
    assert "x-amz-security-token" not in headers and "AKIAREAL" not in str(headers)


def test_guard_four_neither_environment_nor_files_change_where_a_request_goes(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in HOSTILE.items():
        monkeypatch.setenv(name, value)
    config, credentials = tmp_path / "config", tmp_path / "credentials"
    config.write_text(f"[default]\nregion=eu-west-1\nendpoint_url={REAL}\n[profile work]\nendpoint_url={REAL}\n")
    credentials.write_text("[default]\naws_access_key_id=AKIAFILE\naws_secret_access_key=file\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(credentials))
    client = loopback_session(endpoint.url, "us-east-1").client("sagemaker-runtime")
    client.invoke_endpoint(**BODY)
    (headers,) = endpoint.seen
    assert "Credential=testing/" in headers["Authorization"] and "/us-east-1/sagemaker/" in headers["Authorization"]
    assert client.meta.config.retries["mode"] == "standard"


def test_guard_four_is_what_keeps_the_environment_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an ordinary session in its place, the same environment is heard: the guard is not idle."""
    from botocore.session import Session

    monkeypatch.setenv("AWS_PROFILE", "work")
    assert Session().get_config_variable("profile") == "work"
    assert _deaf_session().get_config_variable("profile") is None


def test_guard_five_no_proxy_is_used(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert get_environ_proxies(endpoint.url)  # botocore would use it
    loopback_session(endpoint.url, "us-east-1").client("sagemaker-runtime").invoke_endpoint(**BODY)
    assert len(endpoint.seen) == 1


def test_another_sdk_that_gets_the_session_reaches_the_same_place(endpoint: Endpoint) -> None:
    boto = loopback_session(endpoint.url, "us-east-1").boto
    boto.client("sagemaker-runtime", endpoint_url=REAL).invoke_endpoint(**BODY)
    assert len(endpoint.seen) == 1


def test_the_handler_lets_the_loopback_pass() -> None:
    for url in ("http://127.0.0.1:80/x", "http://localhost:1/", "http://[::1]:1/"):
        refuse_other_hosts(AWSPreparedRequest("GET", url, {}, b"", False))


def test_without_credentials_a_real_session_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boto3.Session, "get_credentials", lambda self: None)
    with pytest.raises(EnvironmentProblem, match="no AWS credentials") as raised:
        real_session("us-east-1")
    assert "never write keys" in raised.value.fix


def test_a_broken_profile_is_a_problem_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "no-such-profile")
    with pytest.raises(EnvironmentProblem, match="cannot be used"):
        real_session("us-east-1")
