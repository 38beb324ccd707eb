"""Who asks, and what they may: signatures checked, and what moto's IAM lacks.

Signature Version 4 is computed again, as botocore signs, by
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html. SimulatePrincipalPolicy and
who may take a role are decided by the policies, read from moto.
"""

import hashlib
import hmac
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

from model_server.aws.faults import AwsFault, Refusal, Response

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


OPERATION = "SimulatePrincipalPolicy"
NAMESPACE = "https://iam.amazonaws.com/doc/2010-05-08/"


def is_simulation(body: bytes) -> bool:
    return parse_qs(body.decode("utf-8", "replace")).get("Action") == [OPERATION]


def simulate_principal_policy(body: bytes, account: str) -> Response:
    """Decide each action on each resource; conditions are not looked at."""
    asked = {key: values[0] for key, values in parse_qs(body.decode()).items()}
    policies = list(policies_of(asked.get("PolicySourceArn", ""), account))
    resources = _members(asked, "ResourceArns") or ["*"]
    results = "".join(
        f"<member><EvalActionName>{escape(action)}</EvalActionName><EvalResourceName>{escape(resource)}"
        f"</EvalResourceName><EvalDecision>{decide(policies, action, resource)}</EvalDecision>"
        "<MatchedStatements/><MissingContextValues/></member>"
        for action in _members(asked, "ActionNames")
        for resource in resources
    )
    answer = (
        f'<{OPERATION}Response xmlns="{NAMESPACE}"><{OPERATION}Result><IsTruncated>false</IsTruncated>'
        f"<EvaluationResults>{results}</EvaluationResults></{OPERATION}Result>"
        f"<ResponseMetadata><RequestId>local</RequestId></ResponseMetadata></{OPERATION}Response>"
    )
    return Response(HTTPStatus.OK, answer.encode(), {"Content-Type": "text/xml"})


def decide(policies: Iterable[str], action: str, resource: str) -> str:
    """IAM's verdict: a Deny beats every Allow, and nothing said means no."""
    from moto.iam.access_control import IAMPolicy, PermissionResult

    verdicts = {IAMPolicy(document).is_action_permitted(action, resource) for document in policies}
    if PermissionResult.DENIED in verdicts:
        return "explicitDeny"
    return "allowed" if PermissionResult.PERMITTED in verdicts else "implicitDeny"


def policies_of(arn: str, account: str) -> list[str]:
    """The policies of a role or user, as JSON. Raises :class:`AwsFault` if there is no such principal."""
    holder = _holder(arn, account)
    inline = holder.policies
    own = inline.values() if isinstance(inline, dict) else [policy["policy_document"] for policy in inline]
    return [*own, *(policy.document for policy in holder.managed_policies.values())]


def may_assume(service: str, role_arn: str, account: str) -> bool:
    """Whether the role's trust policy lets ``service`` take it, for a resource of ``account``."""
    try:
        document = _holder(role_arn, account).assume_role_policy_document
    except AwsFault:
        return False
    return any(_trusts(statement, service, account) for statement in json.loads(document)["Statement"])


def _trusts(statement: dict[str, Any], service: str, account: str) -> bool:
    services = statement.get("Principal", {}).get("Service", [])
    accounts = statement.get("Condition", {}).get("StringEquals", {}).get("aws:SourceAccount", account)
    return (
        statement["Effect"] == "Allow"
        and service in ([services] if isinstance(services, str) else services)
        and account in ([accounts] if isinstance(accounts, str) else accounts)
    )


def _holder(arn: str, account: str) -> Any:
    from moto.iam.models import iam_backends

    backend: Any = iam_backends[account]["aws"]
    name = arn.rpartition("/")[2]
    holders = [*backend.roles.values(), *backend.users.values()]
    holder = next((holder for holder in holders if holder.arn == arn), None)
    if holder is None:
        raise AwsFault(HTTPStatus.NOT_FOUND, "NoSuchEntity", f"The principal {name or arn} cannot be found.")
    return holder


def _members(asked: dict[str, str], name: str) -> list[str]:
    numbers = sorted(int(key.rpartition(".")[2]) for key in asked if key.startswith(f"{name}.member."))
    return [asked[f"{name}.member.{number}"] for number in numbers]
