"""Signatures are computed again; AWS's published one is the oracle, and every wrong one is refused."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from model_server.aws.faults import protocol_of, refused_signature
from model_server.aws.iam import SignatureRefused, SignedRequest, verify

# The worked example of AWS's "Create a signed AWS API request", with its published signature.
EXAMPLE_SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
EXAMPLE_TIME = datetime(2015, 8, 30, 12, 36, tzinfo=UTC)
EXAMPLE = SignedRequest(
    "GET",
    "/?Action=ListUsers&Version=2010-05-08",
    {
        "host": "iam.amazonaws.com",
        "content-type": "application/x-www-form-urlencoded; charset=utf-8",
        "x-amz-date": "20150830T123600Z",
        "authorization": (
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request,"
            " SignedHeaders=content-type;host;x-amz-date,"
            " Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"
        ),
    },
    b"",
)


def signed(
    *,
    secret: str = "testing",
    key: str = "testing",
    service: str = "sagemaker",
    method: str = "POST",
    path: str = "/endpoints/e/invocations",
    body: bytes = b"{}",
) -> SignedRequest:
    """A request as botocore signs it."""
    request = AWSRequest(method, f"http://127.0.0.1:1{path}", headers={"Host": "127.0.0.1:1"}, data=body)
    signer = S3SigV4Auth if service == "s3" else SigV4Auth
    signer(Credentials(key, secret), service, "us-east-1").add_auth(request)
    headers = {name.lower(): str(value) for name, value in request.headers.items()}
    return SignedRequest(method, path, headers, body)


def test_the_published_example_is_accepted() -> None:
    identity = verify(EXAMPLE, {"AKIDEXAMPLE": EXAMPLE_SECRET}, EXAMPLE_TIME)
    assert (identity.service, identity.region) == ("iam", "us-east-1")


@pytest.mark.parametrize("path", ["/", "/a%20b/c%C3%BC", "/x?b=2&a=1&c", "/x?key=a%2Fb&empty="])
@pytest.mark.parametrize("service", ["sagemaker", "s3"])
def test_what_botocore_signs_is_accepted(service: str, path: str) -> None:
    assert verify(signed(service=service, path=path)).service == service


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda r: {**r.headers, "authorization": ""}, "missing"),
        (lambda r: {**r.headers, "authorization": "Bearer x"}, "missing"),
        (lambda r: {**r.headers, "x-amz-date": ""}, "missing"),
        (lambda r: {**r.headers, "host": "elsewhere"}, "wrong signature"),
        (lambda r: {**r.headers, "authorization": r.headers["authorization"].replace("host;", "")}, "wrong signature"),
    ],
)
def test_a_changed_header_is_refused(change: Callable[[SignedRequest], dict[str, str]], reason: str) -> None:
    request = signed()
    with pytest.raises(SignatureRefused) as refused:
        verify(SignedRequest(request.method, request.target, change(request), request.body))
    assert refused.value.reason == reason


def test_a_changed_request_is_refused() -> None:
    request = signed()
    for method, target, body in [
        ("GET", request.target, request.body),
        ("POST", "/endpoints/other/invocations", request.body),
        ("POST", request.target + "?x=1", request.body),
        ("POST", request.target, b"{ }"),
    ]:
        with pytest.raises(SignatureRefused, match="does not match"):
            verify(SignedRequest(method, target, request.headers, body))


def test_a_changed_body_is_refused_by_its_hash_in_s3() -> None:
    request = signed(service="s3", method="PUT", path="/bucket/key", body=b"one")
    with pytest.raises(SignatureRefused, match="x-amz-content-sha256"):
        verify(SignedRequest("PUT", "/bucket/key", request.headers, b"two"))


def test_other_keys_are_refused() -> None:
    with pytest.raises(SignatureRefused) as unknown:
        verify(signed(key="AKIAIOSFODNN7EXAMPLE"))
    with pytest.raises(SignatureRefused) as wrong:
        verify(signed(secret="guessed"))
    assert (unknown.value.reason, wrong.value.reason) == ("unknown key", "wrong signature")


def test_a_clock_may_be_300_seconds_off() -> None:
    now = datetime.now(UTC)
    verify(signed(), now=now + timedelta(seconds=290))
    for skew in (timedelta(seconds=310), timedelta(seconds=-310)):
        with pytest.raises(SignatureRefused) as expired:
            verify(signed(), now=now + skew)
        assert expired.value.reason == "expired"


def test_each_protocol_has_its_own_names() -> None:
    assert protocol_of("s3", "/bucket", {}) == "s3"
    assert protocol_of("iam", "/", {"content-type": "application/x-www-form-urlencoded"}) == "query"
    assert protocol_of("sagemaker", "/", {"x-amz-target": "SageMaker.ListModels"}) == "json"
    assert protocol_of("sagemaker", "/endpoints/e/invocations", {}) == "rest-json"
    codes = [refused_signature("unknown key", "", protocol).code for protocol in ("s3", "query", "json")]
    assert codes == ["InvalidAccessKeyId", "InvalidClientTokenId", "UnrecognizedClientException"]
    assert refused_signature("expired", "", "json").code == "RequestExpired"
