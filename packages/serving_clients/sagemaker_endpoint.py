"""A SageMaker endpoint of the LMI container, through a boto3 ``sagemaker-runtime`` client that is handed in."""

import json
import re
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

from serving_base.errors import UsageError
from serving_clients.requests import (
    DEFAULT_TIMEOUTS,
    AttemptLimits,
    BrokenStream,
    ClientError,
    Overloaded,
    Piece,
    Pieces,
    Refused,
    TextRequest,
    TimedOut,
    Timeouts,
    Unreachable,
    breaking,
)
from serving_clients.retry import parse_retry_after
from serving_clients.security import HIDDEN, without_values

THROTTLED = frozenset({"ThrottlingException", "Throttling", "TooManyRequestsException", "ServiceUnavailable"})
NOT_READY = "ModelNotReadyException"
SERVICE_FAILED = frozenset({"InternalFailure", "InternalDependencyException", "InternalStreamFailure"})
AWS_VARIABLES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
SIGNED = re.compile(r"(x-amz-security-token\W+|credential=|signature=)[^\s,'\"]+", re.IGNORECASE)
"""A role's keys are not in the environment; what a proxy repeats of them is known by the names of the headers."""
OVERLOAD_STATUS = frozenset({429, 503})
Line = dict[str, Any]
"""An answer, or a line of a streamed one, in LMI's schema."""


def one_attempt(timeouts: Timeouts = DEFAULT_TIMEOUTS) -> Any:
    """The botocore Config for the client: no retries of its own, so that there is one layer of them, and timeouts."""
    from botocore.config import Config

    retries = {"mode": "standard", "total_max_attempts": 1}
    return Config(retries=retries, connect_timeout=timeouts.connect_s, read_timeout=timeouts.read_s)


class SageMakerEndpoint:
    """``runtime``: ``boto3.client("sagemaker-runtime", config=one_attempt())``.

    boto3 fixes the read timeout when its client is made: keep it below the requests' deadlines. Credentials are
    boto3's business; this class never sees them.
    """

    def __init__(self, runtime: Any, endpoint_name: str, *, stream: bool = False, component: str = "") -> None:
        retries = runtime.meta.config.retries or {}
        if retries.get("total_max_attempts") != 1:
            raise UsageError(
                "this boto3 client retries by itself",
                why="two layers of retries multiply the load on a server that is down already",
                fix='make it with boto3.client("sagemaker-runtime", config=one_attempt())',
            )
        self.name = "sagemaker-stream" if stream else "sagemaker"
        self._runtime, self._stream = runtime, stream
        self._target = {"EndpointName": endpoint_name, "ContentType": "application/json"}
        if component:
            self._target["InferenceComponentName"] = component

    def send(self, request: TextRequest, wire_id: str, _limits: AttemptLimits, /) -> Pieces:
        body = json.dumps(lmi_body(request, stream=self._stream))
        call = {**self._target, "Body": body, "InferenceId": wire_id[-64:]}
        if not self._stream:
            line = whole(self._runtime, call)
            yield _piece(line["generated_text"], line)
            return
        with closing(streamed(self._runtime, call | {"Accept": "application/jsonlines"})) as arriving:
            for line in arriving:
                yield _piece(line["token"]["text"], line)

    def redacted(self, text: str) -> str:
        """``text`` without what a signed request carries: access key, session token, signature."""
        return SIGNED.sub(rf"\1{HIDDEN}", without_values(text, AWS_VARIABLES))

    def close(self) -> None:
        """The boto3 client belongs to the caller."""


def whole(runtime: Any, call: Mapping[str, Any]) -> Line:
    """One whole answer in LMI's schema. Raises the errors of :mod:`serving_clients.requests`."""
    with _failures():
        raw = runtime.invoke_endpoint(**call)["Body"].read()
    line = _json(raw)
    if "generated_text" not in line:
        raise Refused("the container did not answer in LMI's schema", why=str(raw)[:500], fix="see its log")
    return line


def streamed(runtime: Any, call: Mapping[str, Any]) -> Generator[Line, None, None]:
    """The JSON lines of a streamed answer as they come, wherever the parts of the event stream end.

    Raises :class:`BrokenStream` if SageMaker or the model breaks off, with what had come.
    """
    texts: list[str] = []
    done = False
    with breaking(texts), _failures():
        with closing(runtime.invoke_endpoint_with_response_stream(**call)["Body"]) as body:
            for raw in lines(event["PayloadPart"]["Bytes"] for event in body if "PayloadPart" in event):
                line = _json(raw)
                if "token" not in line:
                    raise Refused("the container answered an error", why=str(raw)[:500], fix="see the endpoint's log")
                if (line.get("details") or {}).get("finish_reason") == "error":
                    raise BrokenStream("the model failed in mid-answer", why=str(raw)[:500])
                texts.append(line["token"]["text"])
                done = done or line.get("generated_text") is not None
                yield line
        if not done:
            raise BrokenStream(f"the answer broke off after {len(texts)} pieces", why="its last line did not come")


def _json(raw: bytes) -> Line:
    """The object that a container wrote; empty for what is no object."""
    try:
        found = json.loads(raw)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _piece(text: str, line: Line) -> Piece:
    details = line.get("details") or {}
    return Piece(text, details.get("generated_tokens"), details.get("finish_reason"))


def lmi_body(request: TextRequest, *, stream: bool) -> dict[str, Any]:
    """The request in LMI's schema. ``details`` are asked for, because without them it does not say why it ended."""
    sampling = request.sampling
    wanted: dict[str, Any] = {
        "max_new_tokens": request.max_tokens,
        "details": True,
        "do_sample": sampling.temperature not in (None, 0) or sampling.top_p is not None,
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "seed": sampling.seed,
        "stop_sequences": list(sampling.stop) or None,
    }
    parameters = {name: value for name, value in wanted.items() if value is not None}
    return {"inputs": request.prompt, "parameters": parameters, "stream": stream}


def lines(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Lines that are not blank, of parts with arbitrary borders. A last line without its end is not a line."""
    rest = b""
    for part in parts:
        *whole, rest = (rest + part).split(b"\n")
        yield from (line for line in whole if line.strip())


def service_failure(response: dict[str, Any]) -> ClientError:
    """The error for what botocore raises as ClientError; the container's own status is in a ModelError."""
    code = response["Error"].get("Code", "")
    said = response["Error"].get("Message") or "the service gave no reason"
    original = response.get("OriginalStatusCode")
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    what = f"the endpoint answered {code}" + (f" (the container: {original})" if original else "")
    if original in OVERLOAD_STATUS or code in THROTTLED or code == NOT_READY or status in OVERLOAD_STATUS:
        return Overloaded(what, why=said, fix="come back later, or add instances", retry_after_s=_retry_after(response))
    if code in SERVICE_FAILED:
        return Unreachable(what, why=said, fix="ask again; see the endpoint's log", sent=True)
    if code == "ModelStreamError":
        return BrokenStream(what, why=said, fix="see the endpoint's log")
    return Refused(what, why=said, fix="correct the request or its rights: the same one fails again")


def _retry_after(response: dict[str, Any]) -> float | None:
    headers = response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    return parse_retry_after(headers.get("retry-after"))


@contextmanager
def _failures() -> Iterator[None]:
    """botocore's failures as the client's."""
    import urllib3.exceptions
    from botocore import exceptions

    try:
        yield
    except exceptions.ClientError as error:  # EventStreamError, in mid-stream, is one
        raise service_failure(error.response) from error
    # botocore wraps urllib3's only until the headers are there
    except (exceptions.BotoCoreError, urllib3.exceptions.HTTPError) as error:
        raise _connection_failure(error) from error


def _connection_failure(error: Exception) -> ClientError:
    import urllib3.exceptions
    from botocore import exceptions

    if isinstance(error, exceptions.ReadTimeoutError | urllib3.exceptions.ReadTimeoutError):
        return TimedOut("no byte within boto3's read timeout", why=str(error), fix="see the endpoint's log")
    if isinstance(error, exceptions.ConnectTimeoutError | exceptions.EndpointConnectionError):
        return Unreachable("the endpoint does not answer", why=str(error), fix="check the region and the network")
    if isinstance(error, exceptions.HTTPClientError | urllib3.exceptions.HTTPError):
        return Unreachable("the connection was lost", why=str(error), fix="ask again", sent=True)
    return Refused("boto3 did not send the request", why=str(error), fix="check credentials and parameters")
