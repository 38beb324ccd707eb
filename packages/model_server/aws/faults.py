"""Errors as AWS answers them, in the form of each protocol."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Literal
from uuid import uuid4
from xml.sax.saxutils import escape

Protocol = Literal["json", "rest-json", "query", "s3"]
Refusal = Literal["missing", "unknown key", "wrong signature", "expired"]
"""Why a signature is refused."""

PROTOCOLS: Mapping[str, Protocol] = {"s3": "s3", "iam": "query", "sts": "query", "scheduler": "rest-json"}
"""By signing name; the others speak JSON."""
REST_JSON_PATHS = ("/endpoints/", "/schedules")
"""Of the runtime and of EventBridge Scheduler: a request that is not signed names no service."""

SIGNATURE_CODES: Mapping[Refusal, Mapping[str, str]] = {
    "missing": {
        "s3": "AccessDenied",
        "query": "MissingAuthenticationToken",
        "": "MissingAuthenticationTokenException",  # in the header of amazon-sagemaker-examples#290
    },
    "unknown key": {"s3": "InvalidAccessKeyId", "query": "InvalidClientTokenId", "": "UnrecognizedClientException"},
    "wrong signature": {
        "s3": "SignatureDoesNotMatch",
        "query": "SignatureDoesNotMatch",
        "": "InvalidSignatureException",
    },
    "expired": {"s3": "RequestTimeTooSkewed", "": "RequestExpired"},
}
"""By protocol; "": every other one."""


@dataclass(frozen=True)
class Response:
    """A whole answer."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class AwsFault(Exception):
    """An error that the caller shall see, with more members than a message where the service gives them."""

    def __init__(self, status: int, code: str, message: str, **members: Any) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.members = status, code, message, members


def validation(message: str) -> AwsFault:
    """SageMaker's answer to a request that makes no sense."""
    return AwsFault(HTTPStatus.BAD_REQUEST, "ValidationException", message)


def not_here(what: str) -> AwsFault:
    """AWS has it, this machine has not."""
    return AwsFault(
        HTTPStatus.NOT_IMPLEMENTED,
        "NotInLocalCloud",
        f"the local cloud does not have {what}; real AWS has, and this course does not need it",
    )


def refused_signature(reason: Refusal, message: str, protocol: Protocol) -> AwsFault:
    """403 under the name that this protocol's clients know."""
    codes = SIGNATURE_CODES[reason]
    return AwsFault(HTTPStatus.FORBIDDEN, codes.get(protocol, codes[""]), message)


def protocol_of(service: str, target: str, headers: Mapping[str, str]) -> Protocol:
    """How the caller of this request reads errors."""
    if target.startswith(REST_JSON_PATHS):
        return "rest-json"
    if "x-amz-target" in headers:
        return "json"
    if service in PROTOCOLS:
        return PROTOCOLS[service]
    return "query" if headers.get("content-type", "").startswith("application/x-www-form-urlencoded") else "s3"


def render(fault: AwsFault, protocol: Protocol) -> Response:
    """``fault`` as this protocol writes it."""
    request_id = str(uuid4())
    headers = {"x-amzn-RequestId": request_id}
    if protocol in ("json", "rest-json"):
        headers |= {"Content-Type": "application/json", "x-amzn-ErrorType": fault.code}
        body = json.dumps({"__type": fault.code, "message": fault.message, "Message": fault.message, **fault.members})
    elif protocol == "query":
        headers["Content-Type"] = "text/xml"
        error = f"<Type>Sender</Type><Code>{fault.code}</Code><Message>{escape(fault.message)}</Message>"
        body = f"<ErrorResponse><Error>{error}</Error><RequestId>{request_id}</RequestId></ErrorResponse>"
    else:
        headers["Content-Type"] = "application/xml"
        error = f"<Code>{fault.code}</Code><Message>{escape(fault.message)}</Message>"
        body = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error>{error}<RequestId>{request_id}</RequestId></Error>'
    return Response(fault.status, body.encode(), headers)
