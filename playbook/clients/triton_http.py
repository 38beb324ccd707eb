"""Triton's generate and generate_stream over HTTP."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from playbook.clients.errors import BrokenStream, ClientError, Refused, TimedOut, Unreachable
from playbook.clients.requests import Limits, Piece, TextRequest
from playbook.clients.retry import parse_retry_after
from playbook.clients.security import VERIFIED, Credential, Tls, refuse_exposure
from playbook.clients.transport import Pieces
from playbook.clients.triton_wire import TEXT_MODEL, http_failure, needs_metadata, triton_fields

if TYPE_CHECKING:
    import httpx


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
        import httpx

        refuse_exposure(url, credential, tls)
        self.name = "triton-http-stream" if stream else "triton-http"
        self._url = f"{url.rstrip('/')}/v2/models/{model}"
        self._stream = stream
        self._credential = credential
        self._inputs: frozenset[str] | None = None
        # trust_env: a proxy of the environment must not see the loopback's traffic; redirects are never followed.
        verify = tls.context() if url.startswith("https") else True
        unlimited = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        self._http = httpx.Client(verify=verify, trust_env=False, limits=unlimited, auth=self._authorize)

    def send(self, request: TextRequest, wire_id: str, limits: Limits, /) -> Pieces:
        import httpx

        texts: list[str] = []
        try:
            body = triton_fields(request, self._known_inputs(limits) if needs_metadata(request) else ())
            body |= {"id": wire_id, "stream": self._stream}
            path = "generate_stream" if self._stream else "generate"
            timeout = _timeout(limits)
            with (
                self._http.stream("POST", f"{self._url}/{path}", json=body, timeout=timeout) as response,
                _cut_at_deadline(response, limits),
            ):
                _raise_for_status(response)
                for answer in _answers(response):
                    texts.append(_text(answer, wire_id, texts))
                    yield Piece(texts[-1])
        except httpx.TransportError as error:
            raise _failure(error, limits, texts) from error

    def redacted(self, text: str) -> str:
        return self._credential.redacted(text) if self._credential else text

    def close(self) -> None:
        self._http.close()

    def _authorize(self, request: "httpx.Request") -> "httpx.Request":
        if self._credential is not None:
            request.headers[self._credential.header] = self._credential.header_value()
        return request

    def _known_inputs(self, limits: Limits) -> frozenset[str]:
        if self._inputs is None:
            response = self._http.get(self._url, timeout=_timeout(limits))
            _raise_for_status(response)
            self._inputs = frozenset(tensor["name"] for tensor in _json(response.text)["inputs"])
        return self._inputs


def _timeout(limits: Limits) -> "httpx.Timeout":
    import httpx

    return httpx.Timeout(limits.read_s, connect=limits.connect_s)


@contextmanager
def _cut_at_deadline(response: "httpx.Response", limits: Limits) -> Iterator[None]:
    """Ends a read that waits when the deadline comes: the read timeout alone starts anew with every byte."""
    connection: socket.socket = response.extensions["network_stream"].get_extra_info("socket")

    def cut() -> None:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(limits.remaining_s, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _raise_for_status(response: "httpx.Response") -> None:
    if response.is_success:
        return
    said = response.read().decode(errors="replace").removeprefix("data:").strip()
    with suppress(ValueError):
        decoded = json.loads(said)
        said = str(decoded.get("error", decoded)) if isinstance(decoded, dict) else said
    raise http_failure(response.status_code, said[:500], parse_retry_after(response.headers.get("retry-after")))


def _answers(response: "httpx.Response") -> Iterator[Any]:
    """The JSON objects of a whole answer (one) or of server-sent events."""
    if response.headers.get("content-type", "").startswith("text/event-stream"):
        for line in response.iter_lines():
            if line.startswith("data:"):
                yield _json(line.removeprefix("data:"))
    else:
        yield _json(response.read().decode(errors="replace"))


def _text(answer: Any, wire_id: str, texts: list[str]) -> str:
    if "error" in answer:
        # The status was sent before the failure, or it is generate's complaint about a second response.
        said = str(answer["error"])
        raise (
            BrokenStream("the server gave up in mid-answer", why=said, pieces=texts)
            if texts
            else http_failure(200, said, None)
        )
    if answer.get("id", wire_id) != wire_id:
        raise BrokenStream("the answer to another request arrived", why=f"its id is {answer['id']!r}", pieces=texts)
    text = answer["text_output"]
    return str(text[0] if isinstance(text, list) else text)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise Refused(f"this is no Triton: it answered {text[:200]!r}", fix="check the URL") from error


def _failure(error: "httpx.TransportError", limits: Limits, texts: list[str]) -> ClientError:
    import httpx

    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.UnsupportedProtocol):
        return Unreachable("the server does not answer", why=_words(error), fix="see whether it runs, and where")
    if texts:
        return BrokenStream(f"the answer broke off after {len(texts)} pieces", why=_words(error), pieces=texts)
    if isinstance(error, httpx.ReadTimeout):
        return TimedOut(
            f"no byte for {limits.timeouts.read_s:g} s", why=_words(error), fix="see what the server is busy with"
        )
    return Unreachable(
        "the connection was lost before the answer", why=_words(error), fix="see whether the server lives", sent=True
    )


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
