"""Triton over HTTP: its connections, and the text model's generate and generate_stream as a transport."""

import json
import math
import socket
import threading
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from serving_base.servers import TEXT_MODEL
from serving_clients.requests import (
    AttemptLimits,
    BrokenStream,
    ClientError,
    Piece,
    Pieces,
    Refused,
    TextRequest,
    TimedOut,
    Unreachable,
    breaking,
)
from serving_clients.retry import parse_retry_after
from serving_clients.security import VERIFIED, Credential, Tls, refuse_exposure
from serving_clients.triton_wire import (
    ENGINE_MODEL,
    STOP,
    STOP_LIMITS,
    http_failure,
    needs_metadata,
    triton_fields,
    when_left,
)

if TYPE_CHECKING:
    import httpx


class HttpConnections:
    """Connections to Triton that stay open between requests, as many as were needed at once; for any threads.

    What goes wrong raises one of :mod:`serving_clients.requests`.
    """

    def __init__(self, credential: Credential | None = None, tls: Tls = VERIFIED) -> None:
        import httpx

        self._credential, self._tls = credential, tls
        self._inputs: dict[str, dict[str, str]] = {}
        self._streams: set[socket.socket] = set()
        # trust_env: a proxy of the environment must not see the loopback's traffic; redirects are never followed.
        unlimited = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        self._client = httpx.Client(verify=tls.context(), trust_env=False, limits=unlimited, auth=self._authorize)

    def get(self, url: str, limits: AttemptLimits) -> "httpx.Response":
        """The answer, whatever its status."""
        with _failures(limits):
            return self._client.get(url, timeout=_timeout(limits))

    def inputs(self, model_url: str, limits: AttemptLimits, *, again: bool = False) -> dict[str, str]:
        """Input name -> data type, as the served model said when it was first asked, or ``again`` now."""
        if again or model_url not in self._inputs:
            response = self.get(model_url, limits)
            _raise_for_status(response)
            self._inputs[model_url] = {one["name"]: one["datatype"] for one in _json(response.text)["inputs"]}
        return self._inputs[model_url]

    def answers(self, url: str, body: Mapping[str, object], limits: AttemptLimits) -> Generator[Any, None, None]:
        """The JSON objects of a whole answer (one) or of server-sent events; it is asked when the first is taken."""
        with (
            _failures(limits),
            self._client.stream("POST", url, json=body, timeout=_timeout(limits)) as response,
            self._cut(response, limits),
        ):
            _raise_for_status(response)
            if response.headers.get("content-type", "").startswith("text/event-stream"):
                for line in response.iter_lines():
                    if line.startswith("data:"):
                        yield _json(line.removeprefix("data:"))
            else:
                yield _json(response.read().decode(errors="replace"))

    def asked(
        self, url: str, model: str, path: str, body: Mapping[str, object], limits: AttemptLimits
    ) -> Generator[Any, None, None]:
        """:meth:`answers` of a model of the server at ``url``; ``body`` has the request's ``id``.

        A caller who leaves the ensemble in mid-answer has the engine's work ended.
        """
        answers = self.answers(f"{url}/v2/models/{model}/{path}", body, limits)
        if model != TEXT_MODEL:
            return answers  # it notices by itself
        return when_left(answers, lambda: self._stop(url, str(body["id"])))

    def _stop(self, url: str, request_id: str) -> None:
        """End the engine's work for a request of the ensemble, over a connection of its own: these may close."""
        with closing(HttpConnections(self._credential, self._tls)) as own:
            stop = {"id": request_id, **STOP}
            for _ in own.answers(f"{url}/v2/models/{ENGINE_MODEL}/generate_stream", stop, STOP_LIMITS):
                pass

    def close(self) -> None:
        """Ends what is being read by other threads, too: closing a socket alone does not wake who waits for it."""
        for waiting in tuple(self._streams):
            _shut(waiting)
        self._client.close()

    @contextmanager
    def _cut(self, response: "httpx.Response", limits: AttemptLimits) -> Iterator[None]:
        """Ends a read that waits when the client closes or the deadline comes.

        httpx's own read timeout starts anew with every byte.
        """
        connection: socket.socket = response.extensions["network_stream"].get_extra_info("socket")
        timer = threading.Timer(limits.remaining_s, _shut, [connection])
        timer.daemon = True
        if math.isfinite(limits.remaining_s):
            timer.start()
        self._streams.add(connection)
        try:
            yield
        finally:
            self._streams.discard(connection)
            timer.cancel()

    def _authorize(self, request: "httpx.Request") -> "httpx.Request":
        if self._credential is not None:
            request.headers[self._credential.header] = self._credential.header_value()
        return request


class TritonHttp:
    """The text model at ``url`` ("https://host:8000"); ``stream``: piece by piece, which needs a decoupled model."""

    def __init__(
        self,
        url: str,
        *,
        model: str = TEXT_MODEL,
        stream: bool = False,
        credential: Credential | None = None,
        tls: Tls = VERIFIED,
    ) -> None:
        refuse_exposure(url, credential, tls)
        self.name = "triton-http-stream" if stream else "triton-http"
        self._url, self._model = url.rstrip("/"), model
        self._stream, self._credential = stream, credential
        self._http = HttpConnections(credential, tls)

    def send(self, request: TextRequest, wire_id: str, limits: AttemptLimits, /) -> Pieces:
        model_url = f"{self._url}/v2/models/{self._model}"
        body = triton_fields(request, self._http.inputs(model_url, limits) if needs_metadata(request) else ())
        body |= {"id": wire_id, "stream": self._stream}
        path = "generate_stream" if self._stream else "generate"
        with closing(texts(self._http.asked(self._url, self._model, path, body, limits), wire_id)) as arriving:
            for text in arriving:
                yield Piece(text)

    def redacted(self, text: str) -> str:
        return self._credential.redacted(text) if self._credential else text

    def close(self) -> None:
        self._http.close()


def texts(answers: Generator[Any, None, None], wire_id: str = "") -> Generator[str, None, None]:
    """The texts of a text model's answers. With ``wire_id``, the answer to another request is refused."""
    got: list[str] = []
    with breaking(got), closing(answers):
        for answer in answers:
            got.append(_text(answer, wire_id, got))
            yield got[-1]


def _text(answer: Any, wire_id: str, got: list[str]) -> str:
    if "error" in answer:
        # The status was sent before the failure, or it is generate's complaint about a second response.
        said = str(answer["error"])
        raise BrokenStream("the server gave up in mid-answer", why=said) if got else http_failure(200, said, None)
    if wire_id and answer.get("id", wire_id) != wire_id:
        raise BrokenStream("the answer to another request arrived", why=f"its id is {answer['id']!r}")
    text = answer["text_output"]
    return str(text[0] if isinstance(text, list) else text)


def _timeout(limits: AttemptLimits) -> "httpx.Timeout":
    import httpx

    return httpx.Timeout(limits.read_s, connect=limits.connect_s)


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _raise_for_status(response: "httpx.Response") -> None:
    if response.is_success:
        return
    said = response.read().decode(errors="replace").removeprefix("data:").strip()
    with suppress(ValueError):
        decoded = json.loads(said)
        said = str(decoded.get("error", decoded)) if isinstance(decoded, dict) else said
    raise http_failure(response.status_code, said[:500], parse_retry_after(response.headers.get("retry-after")))


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise Refused(f"this is no Triton: it answered {text[:200]!r}", fix="check the URL") from error


@contextmanager
def _failures(limits: AttemptLimits) -> Iterator[None]:
    """httpx's failures as the client's."""
    import httpx

    try:
        yield
    except httpx.TransportError as error:
        raise _failure(error, limits) from error


def _failure(error: "httpx.TransportError", limits: AttemptLimits) -> ClientError:
    import httpx

    why = f"{type(error).__name__}: {error}"
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.UnsupportedProtocol):
        return Unreachable("the server does not answer", why=why, fix="see whether it runs, and where")
    if isinstance(error, httpx.ReadTimeout):
        what = f"no byte for {limits.timeouts.read_s:g} s"
        return TimedOut(what, why=why, fix="see what the server is busy with")
    what = "the connection was lost before the answer"
    return Unreachable(what, why=why, fix="see whether the server lives", sent=True)
