"""Where requests go: the ports that the servers of a text listen on, and the model and tensors that a request names."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from serving_base.facts import TRITON_PORTS
from trtllm_check.lint.document import Document
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.shell.words import Word, lines_of
from trtllm_check.lint.written_requests import WrittenRequest
from trtllm_check.releases import Release
from trtllm_check.releases.templates import (
    OF_LLMAPI,
    TensorSpec,
    llmapi_model,
    llmapi_releases,
    release_templates,
    template_releases,
)

TRITON_PORT = TRITON_PORTS[0]
SERVERS = ("launch_triton_server.py", "tritonserver")
HOST_HEADER = re.compile(r"\s*host\s*:", re.IGNORECASE)
PORT_FLAGS = ("--http_port", "--http-port")
URL = re.compile(r"^(?:(?P<scheme>\w+)://)?(?P<host>\[[^\]]*\]|[^/:?]*)(?::(?P<port>[^/?]*))?(?P<path>/[^?]*)?")
MODEL_PATH = re.compile(r"^/v2/models/(?P<model>[^/]+)(?:/versions/[^/]+)?/(?P<verb>generate|generate_stream|infer)/?$")
PLACEHOLDER = re.compile(r"^(?:<.*>|\{.*\}|\$\{?\w+\}?)$")
OF_TRITON = re.compile(
    r"^/v2/(?:models|health|repository|systemsharedmemory|cudasharedmemory|logging|trace)(?:/|$)|^/v2/?$"
)
FULL_NAME = re.compile(r"^[\w-]+(?:\.[\w-]+)*\.[a-z]{2,}$", re.IGNORECASE)  # of a host in the world's name service
LOCAL = re.compile(r"^(?:localhost|127\.\d+\.\d+\.\d+|0\.0\.0\.0|\[::1?\])$")
ITEM, PUBLISHES = (
    re.compile(r"[ \t]*-[ \t]"),
    re.compile(r"^[ \t]*ports[ \t]*:|--network[= ]host|network_mode", re.MULTILINE),
)
ENSEMBLE, BLS, LLMAPI = "ensemble", "tensorrt_llm_bls", "tensorrt_llm"


def serves(document: Document) -> bool:
    """True if the text starts a Triton server."""
    return bool(document.of(*SERVERS))


def has_pieces(document: Document) -> bool:
    """True where every server is started by the items of a list in YAML, and no such file publishes a port."""
    texts = dict(document.texts)
    for server in document.of(*SERVERS):
        text = texts.get(server.command.file, "")
        lines = lines_of(text)
        at = server.path.line
        if PUBLISHES.search(text) or not (0 < at <= len(lines) and ITEM.match(lines[at - 1])):
            return False
    return True


def http_port(server: Invocation) -> int | None:
    """The port that ``server`` listens on; None where a variable says it."""
    value = server.value(*PORT_FLAGS)
    return TRITON_PORT if value is None else _number(value)


def server_ports(document: Document) -> list[int]:
    """8000, every port that a server is told, and the host's side of every published one."""
    told = [port for server in document.of(*SERVERS) if (port := http_port(server)) is not None]
    published = [host for docker in document.of("docker") for host, _ in published_ports(docker)]
    return list(dict.fromkeys([*told, *published, TRITON_PORT]))


def published_ports(docker: Invocation) -> Iterator[tuple[int, int]]:
    """Host port and container port of each ``-p``; ranges one by one."""
    for word in docker.values("-p", "--publish"):
        host, sign, inside = word.text.partition("/")[0].rpartition(":")
        if not sign:
            continue
        yield from zip(_range(host.rpartition(":")[2]), _range(inside), strict=False)


def _range(text: str) -> range:
    first, sign, last = text.partition("-")
    start, end = _number(first), _number(last if sign else first)
    return range(0) if start is None or end is None or end - start > 1_000 else range(start, end + 1)


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else None


class ServerAddress(NamedTuple):
    """Where a URL goes; ``port`` is 80 or 443 where it has none, None where it is a variable."""

    host: str
    port: int | None
    path: str

    @classmethod
    def of(cls, url: str) -> "ServerAddress":
        match = URL.match(url)
        if match is None:
            return cls("", None, "")
        port = match["port"]
        number = int(port) if port and port.isascii() and port.isdecimal() and len(port) < 6 else None
        default = 443 if match["scheme"] == "https" else 80
        return cls(match["host"] or "", default if port is None else number, match["path"] or "")

    @property
    def is_local(self) -> bool:
        return bool(LOCAL.match(self.host))

    @property
    def is_open(self) -> bool:
        """True for a host that the reader fills in."""
        return bool(PLACEHOLDER.match(self.host))

    @property
    def is_triton(self) -> bool:
        """True for a path of Triton's; on a host of somebody's service other paths that begin alike are its own."""
        return self.path.startswith("/v2/") and (
            OF_TRITON.match(self.path) is not None or not FULL_NAME.match(self.host)
        )

    @property
    def model(self) -> str:
        match = MODEL_PATH.match(self.path)
        return match["model"] if match else ""

    @property
    def verb(self) -> str:
        match = MODEL_PATH.match(self.path)
        return match["verb"] if match else ""


class TritonRequest(NamedTuple):
    """One request to Triton. ``curl``: the command that sends it, if the text has one; ``url``: its word there."""

    request: WrittenRequest
    target: ServerAddress
    curl: Invocation | None
    url: Word

    @property
    def fields(self) -> Mapping[str, Any] | None:
        return self.request.fields

    @property
    def tensors(self) -> bool:
        """True for the form of /infer: a list of named tensors."""
        return _is_tensors(self.fields or {})

    @property
    def values(self) -> dict[str, Any]:
        return input_values(self.fields or {})


def input_values(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs of a body by name; those in the object ``parameters`` of /generate count as well."""
    if _is_tensors(fields):
        return {str(one["name"]): one.get("data") for one in fields["inputs"]}
    nested = fields.get("parameters")
    own = {name: value for name, value in fields.items() if name not in ("id", "parameters")}
    return {**nested, **own} if isinstance(nested, dict) else own


def triton_requests(document: Document) -> list[TritonRequest]:
    """The requests of ``document`` that go to a Triton server, or would by what they hold."""
    found = []
    for request in document.requests:
        curl = document.lookups.sender(request.place)
        urls = [*curl.values("--url"), *curl.positional] if curl else []
        place = urls[0] if urls else request.address or request.place
        one = TritonRequest(request, ServerAddress.of(request.url), curl, place)
        if one.target.is_triton or _is_tritons(one):
            found.append(one)
    return found


def inputs_of(model: str, document: Document, release: Release) -> tuple[TensorSpec, ...]:
    """What ``model`` takes: by its config.pbtxt if ``document`` has one, else by the release; empty if unknown."""
    for config in document.configs:
        if config.model == model:
            return _declared(config.text)
    copied = any(OF_LLMAPI in text for _, text in document.texts) and release.name in llmapi_releases()
    if copied and model == LLMAPI:
        return llmapi_model(release.name).inputs
    if release.name in template_releases():
        models = release_templates(release.name).models
        return models[model].inputs if model in (ENSEMBLE, BLS) and model in models else ()
    if release.llmapi is not None and model == LLMAPI:
        return llmapi_model(release.name).inputs
    return ()


def is_through_gateway(curl: Invocation | None) -> bool:
    """True for a request with a host's name of its own: a gateway sends it on, and the port is the gateway's."""
    return curl is not None and any(HOST_HEADER.match(word.text) for word in curl.values("-H", "--header"))


def _declared(text: str) -> tuple[TensorSpec, ...]:
    from trtllm_check.lint.pbtxt import ConfigError, read_config

    try:
        tensors = read_config(text).messages("input")
    except ConfigError:
        return ()
    return tuple(
        TensorSpec(name=one.text("name"), type="", dims=(), optional=one.text("optional").lower() in ("true", "t", "1"))
        for one in tensors
    )


def _is_tensors(fields: Mapping[str, Any]) -> bool:
    inputs = fields.get("inputs")
    return isinstance(inputs, list) and all(isinstance(one, dict) and "name" in one for one in inputs)


def _is_tritons(one: TritonRequest) -> bool:
    """By its body: text_input is nobody else's name; a list of tensors is the predict protocol's."""
    if one.fields is None:
        return False
    return "text_input" in one.fields or (one.tensors and not one.request.url)
