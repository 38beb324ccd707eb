"""SageMaker's runtime: forwards invocations to the container of a variant and turns its answers into AWS's.

Streams are frames of application/vnd.amazon.eventstream. Source:
https://docs.aws.amazon.com/transcribe/latest/dg/streaming-setting-up.html#streaming-event-stream
"""

import http.client
import json
import struct
from binascii import crc32
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from urllib.parse import urlsplit

from model_server.aws.endpoints import Endpoints
from model_server.aws.faults import AwsFault, Response, not_here
from model_server.aws.server import require_loopback_url

STRING = 7
CONTENT_TYPE = "application/vnd.amazon.eventstream"


def frame(headers: dict[str, str], payload: bytes) -> bytes:
    """One message: lengths and their checksum, headers, payload, checksum of it all."""
    packed = b"".join(_header(name, value) for name, value in headers.items())
    prelude = struct.pack(">II", 16 + len(packed) + len(payload), len(packed))
    message = prelude + struct.pack(">I", crc32(prelude)) + packed + payload
    return message + struct.pack(">I", crc32(message))


def payload_part(data: bytes) -> bytes:
    """A PayloadPart event with ``data`` as it is."""
    return frame(
        {":message-type": "event", ":event-type": "PayloadPart", ":content-type": "application/octet-stream"}, data
    )


def stream_exception(name: str, **members: str) -> bytes:
    """An error in the middle of a stream: botocore raises it from the iteration."""
    headers = {":message-type": "exception", ":exception-type": name, ":content-type": "application/json"}
    return frame(headers, json.dumps(members).encode())


def _header(name: str, value: str) -> bytes:
    text = value.encode()
    return struct.pack("B", len(name)) + name.encode() + struct.pack(">BH", STRING, len(text)) + text


INVOCATION_TIMEOUT_S = 60
STREAM_TIMEOUT_S = 480
"""SageMaker's limits for a whole answer and for a stream; here for each wait on the container."""
CHUNK = 1 << 20
MESSAGE_LIMIT = 2048
TARGET_VARIANT = "x-amzn-sagemaker-target-variant"
CUSTOM_ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"
INVOKED_VARIANT = "x-Amzn-Invoked-Production-Variant"
FORWARDED = (CUSTOM_ATTRIBUTES, "X-Amzn-SageMaker-Inference-Id")
NOT_HERE = {
    "x-amzn-sagemaker-target-model": "multi-model endpoints",
    "x-amzn-sagemaker-target-container-hostname": "endpoints of several containers",
    "x-amzn-sagemaker-inference-component": "inference components",
    "x-amzn-sagemaker-session-id": "stateful sessions",
}

Headers = Mapping[str, str]
"""Header names in lower case."""


class Runtime:
    """InvokeEndpoint and InvokeEndpointWithResponseStream."""

    def __init__(self, endpoints: Endpoints, region: str, account: str) -> None:
        self._endpoints = endpoints
        self._log_group = f"arn:aws:logs:{region}:{account}:log-group:/aws/sagemaker/Endpoints"

    def invoke(self, endpoint: str, headers: Headers, body: bytes) -> Response:
        """The container's whole answer."""
        variant, answer, connection = self._send(
            endpoint, headers, body, headers.get("accept", ""), INVOCATION_TIMEOUT_S
        )
        try:
            data = answer.read()
        except TimeoutError as error:
            raise self._timed_out(endpoint, variant) from error
        except (OSError, http.client.HTTPException) as error:
            raise unavailable(variant, error) from error
        finally:
            connection.close()
        content_type = answer.headers.get("Content-Type", "application/octet-stream")
        return Response(HTTPStatus.OK, data, {"Content-Type": content_type, **_answer_headers(variant, answer)})

    def stream(self, endpoint: str, headers: Headers, body: bytes) -> tuple[dict[str, str], Iterator[bytes]]:
        """Headers and frames, one PayloadPart for each chunk that the container writes."""
        accept = headers.get("x-amzn-sagemaker-accept", "")
        variant, answer, connection = self._send(endpoint, headers, body, accept, STREAM_TIMEOUT_S)
        content_type = answer.headers.get("Content-Type", "application/octet-stream")
        told = {
            "Content-Type": CONTENT_TYPE,
            "X-Amzn-SageMaker-Content-Type": content_type,
            **_answer_headers(variant, answer),
        }
        return told, frames(answer, connection)

    def _send(
        self, endpoint: str, headers: Headers, body: bytes, accept: str, timeout_s: float
    ) -> tuple[str, http.client.HTTPResponse, http.client.HTTPConnection]:
        for name, feature in NOT_HERE.items():
            if name in headers:
                raise not_here(feature)
        variant, url = self._endpoints.route(endpoint, headers.get(TARGET_VARIANT, ""))
        wanted = {"Content-Type": headers.get("content-type") or "application/octet-stream"}
        wanted |= {name: headers[name.lower()] for name in FORWARDED if name.lower() in headers}
        if accept:
            wanted["Accept"] = accept
        connection = connect(url, timeout_s)
        try:
            connection.request("POST", "/invocations", body=body, headers=wanted)
            answer = connection.getresponse()
            if answer.status >= HTTPStatus.BAD_REQUEST:
                raise self._model_error(endpoint, variant, answer.status, answer.read().decode("utf-8", "replace"))
        except TimeoutError as error:
            connection.close()
            raise self._timed_out(endpoint, variant) from error
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise unavailable(variant, error) from error
        except AwsFault:
            connection.close()
            raise
        return variant, answer, connection

    def _timed_out(self, endpoint: str, variant: str) -> AwsFault:
        text = f"Your invocation timed out while waiting for a response from container {variant}."
        return self._model_error(endpoint, variant, 0, text)

    def _model_error(self, endpoint: str, variant: str, status: int, text: str) -> AwsFault:
        text = text[:MESSAGE_LIMIT]
        side = "client" if HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR else "server"
        return AwsFault(
            HTTPStatus.FAILED_DEPENDENCY,
            "ModelError",
            f'Received {side} error ({status}) from {variant} with message "{text}".',
            OriginalStatusCode=status,
            OriginalMessage=text,
            LogStreamArn=f"{self._log_group}/{endpoint}",
        )


def connect(url: str, timeout_s: float) -> http.client.HTTPConnection:
    """A connection to a container, which is on this machine or nowhere."""
    require_loopback_url(url)
    parts = urlsplit(url)
    return http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=timeout_s)


def frames(answer: http.client.HTTPResponse, connection: http.client.HTTPConnection) -> Iterator[bytes]:
    """The container's chunks as PayloadParts; a container that goes away in the middle ends it with an exception."""
    try:
        for data in chunks(answer):
            yield payload_part(data)
    except TimeoutError:
        yield stream_exception(
            "ModelStreamError", Message="the container stopped sending", ErrorCode="ModelInvocationTimeExceeded"
        )
    except (OSError, http.client.HTTPException) as error:
        yield stream_exception(
            "ModelStreamError", Message=f"the container's stream broke off: {error!r}", ErrorCode="StreamBroken"
        )
    finally:
        connection.close()


def chunks(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    """The chunks of a chunked answer, none joined and none cut, as http.client's own reader would; else what comes."""
    if not answer.chunked:
        while data := answer.read1(CHUNK):
            yield data
        return
    while True:
        line = answer.fp.readline()
        if not line.endswith(b"\n"):
            raise http.client.IncompleteRead(line)
        size = int(line.partition(b";")[0], 16)
        data = answer.fp.read(size)
        if len(data) < size:
            raise http.client.IncompleteRead(data, size - len(data))
        if not size:
            return
        answer.fp.readline()
        yield data


def unavailable(variant: str, error: Exception) -> AwsFault:
    """The container is not there, or left without an answer."""
    return AwsFault(
        HTTPStatus.SERVICE_UNAVAILABLE, "ServiceUnavailable", f"the container of {variant} does not answer: {error!r}"
    )


def _answer_headers(variant: str, answer: http.client.HTTPResponse) -> dict[str, str]:
    told = {INVOKED_VARIANT: variant}
    if CUSTOM_ATTRIBUTES in answer.headers:
        told[CUSTOM_ATTRIBUTES] = answer.headers[CUSTOM_ATTRIBUTES]
    return told
