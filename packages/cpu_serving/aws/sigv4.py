"""Checks AWS Signature Version 4 by computing it again, as botocore signs.

Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
"""

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

ALGORITHM = "AWS4-HMAC-SHA256"
MAX_SKEW_S = 300
DUMMY_KEYS: Mapping[str, str] = {"testing": "testing"}
"""The only credentials of the local cloud: access key id -> secret."""

UNSIGNED_PAYLOADS = frozenset(
    {"UNSIGNED-PAYLOAD", "STREAMING-UNSIGNED-PAYLOAD-TRAILER", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"}
)
AUTHORIZATION = re.compile(
    rf"{ALGORITHM} Credential=(?P<key>[^/,]+)/(?P<date>\d{{8}})/(?P<region>[^/,]+)/(?P<service>[^/,]+)/aws4_request,"
    r"\s*SignedHeaders=(?P<headers>[^,]+),\s*Signature=(?P<signature>[0-9a-f]{64})"
)

Refusal = Literal["missing", "unknown key", "wrong signature", "expired"]


class SignatureRefused(Exception):
    """A request that is not signed as it must be."""

    def __init__(self, reason: Refusal, message: str, service: str = "") -> None:
        super().__init__(message)
        self.reason, self.service = reason, service


@dataclass(frozen=True)
class SignedRequest:
    """A request as it came: ``target`` is path and query as on the wire, header names are in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Identity:
    """Who signed, for which service and region."""

    access_key: str
    region: str
    service: str


def verify(request: SignedRequest, keys: Mapping[str, str] = DUMMY_KEYS, now: datetime | None = None) -> Identity:
    """Return who signed ``request``. Raises :class:`SignatureRefused`."""
    written = request.headers.get("authorization", "")
    match = AUTHORIZATION.fullmatch(written)
    if match is None:
        raise SignatureRefused("missing", "Missing Authentication Token" if not written else f"not {ALGORITHM}")
    key, date, region, service = match["key"], match["date"], match["region"], match["service"]
    if key not in keys:
        raise SignatureRefused("unknown key", "The security token included in the request is invalid.", service)
    signed = match["headers"].split(";")
    time = request.headers.get("x-amz-date", "")
    _check_time(time, date, now or datetime.now(UTC), service)
    unsigned = sorted({"host", "x-amz-date"} - set(signed))
    if unsigned:
        raise SignatureRefused("wrong signature", f"headers that must be signed: {', '.join(unsigned)}", service)
    _check_payload(request, service)
    expected = _signature(request, signed, keys[key], time, region, service)
    if not hmac.compare_digest(expected, match["signature"]):
        raise SignatureRefused(
            "wrong signature",
            "The request signature we calculated does not match the signature you provided."
            " Check your AWS Secret Access Key and signing method.",
            service,
        )
    return Identity(key, region, service)


def _signature(request: SignedRequest, signed: list[str], secret: str, time: str, region: str, service: str) -> str:
    """What botocore writes under a request with these headers, signed at ``time``."""
    from botocore.auth import S3SigV4Auth, SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    headers = {name: request.headers.get(name, "") for name in signed}
    again = AWSRequest(request.method, f"http://host{request.target}", headers, request.body)
    again.context["timestamp"] = time
    # S3 signs the path as it is on the wire; every other service encodes it once more.
    signer = (S3SigV4Auth if service == "s3" else SigV4Auth)(Credentials("", secret), service, region)
    return str(signer.signature(signer.string_to_sign(again, signer.canonical_request(again)), again))


def _check_time(time: str, date: str, now: datetime, service: str) -> None:
    try:
        signed_at = datetime.strptime(time, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError as error:
        raise SignatureRefused("missing", "no X-Amz-Date in the form 20250101T000000Z", service) from error
    skew = abs((now - signed_at).total_seconds())
    if skew > MAX_SKEW_S or not time.startswith(date):
        raise SignatureRefused("expired", f"Signature expired: signed {time}, {skew:.0f} s from our clock", service)


def _check_payload(request: SignedRequest, service: str) -> None:
    told = request.headers.get("x-amz-content-sha256", "")
    if told and told not in UNSIGNED_PAYLOADS and told != hashlib.sha256(request.body).hexdigest():
        raise SignatureRefused("wrong signature", "x-amz-content-sha256 does not match the body", service)
