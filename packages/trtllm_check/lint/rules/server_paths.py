"""Paths, methods and bodies that the server of a text does not take, whatever server it is and whoever asks it."""

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from trtllm_check.lint.document import Document
from trtllm_check.lint.endpoints import SERVERS as TRITONS
from trtllm_check.lint.endpoints import TRITON_PORT, ServerAddress, http_port, published_ports
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.programs import PLAIN_SERVER
from trtllm_check.lint.rules.box import boxes
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.rules.openai_page import LOOSE, Page, is_elsewhere, is_of_another, page_of, page_servers
from trtllm_check.lint.rules.openai_paths import HEALTH, NOT_OF_LMI
from trtllm_check.lint.rules.told_addresses import told_addresses
from trtllm_check.lint.shell.words import Word, file_name
from trtllm_check.lint.written_requests import WrittenRequest

FAMILY = "server_paths"
OF_TOOLS = {"vllm serve": "vllm", "trtllm-serve": "trtllm"}
OF_BOXES = ("tgi", "lmi", "sglang", "nim", "triton")
DATA = ("-d", "--data", "--data-raw", "--data-binary", "--data-ascii", "--data-urlencode", "--json", "-F", "--form",
        "-T", "--upload-file", "-I", "--head", "-K", "--config", "--next")  # fmt: skip
FRONTENDS = {
    "frontend": (re.compile(r"openai_frontend/main\.py"), "--openai-port", 9000),
    "sglang": (re.compile(r"sglang\.launch_server|sglang serve"), "--port", 30000),
    "fastchat": (re.compile(r"fastchat\.serve\.openai_api_server"), "--port", 8000),
}
STARTERS = ("python", "python3", "nohup", "sglang", "exec", "uv")
STATE = ("/health", "/metrics", "/ping", "/version")
OTHER_PROGRAMS = re.compile(
    r"\b(?:uvicorn|fastapi|flask|gunicorn|streamlit|gradio|prometheus|grafana|express|next\.js|npm|triton|dcgm|exporter)\b",
    re.IGNORECASE,
)
GET_CALL = re.compile(r"(?:\bget|\.get)\s*\(\s*(?:url\s*=\s*)?f?[\"'`]$")
BODY_BEHIND = re.compile(r"[\"'`]\s*,\s*(?:json|data)\s*=")
GATEWAYS = re.compile(r"\b(?:nginx|envoy|haproxy|traefik|caddy|openai_trtllm|litellm|proxy_pass|kong)\b", re.I)


class _Asked(NamedTuple):
    """One request. ``curl``: that sends it; ``get``: True for one that is plainly a GET."""

    target: ServerAddress
    place: Word
    file: str
    curl: Invocation | None = None
    request: WrittenRequest | None = None
    get: bool = False

    @property
    def path(self) -> str:
        return self.target.path.rstrip("/")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    kinds = server_kinds(document)
    if not kinds or any(GATEWAYS.search(text) for _, text in document.texts):
        return
    release = platform.release.name
    said: set[tuple[str, int]] = set()
    for one in _asked(document):
        kind = kinds.get(one.target.port or 0, "")
        if (one.file, one.place.line) in said or not one.target.is_local:
            continue
        found = [*_paths(document, one, kind, release), *_method(one, kind, release), *_of_tgi(one, kind, release)]
        found += list(_port(document, one, kinds, release)) if not found else []
        if found:
            said.add((one.file, one.place.line))
            yield from found


def server_kinds(document: Document) -> Mapping[int, str]:
    """Port of the host -> the kind of the server behind it, "" where two take turns; {} where one is not told."""
    found: dict[int, str] = {}
    for server in page_servers(document):
        start = server.start.invocation
        kind = "plain" if start is not None and start.path.text == PLAIN_SERVER else OF_TOOLS[server.start.tool]
        if not server.ports:
            return {}
        for port in server.ports:
            found[port] = kind if found.get(port, kind) == kind else ""
    for box in boxes(document):
        engine = box.serves
        if engine is None or engine.name not in OF_BOXES:
            continue
        listens = box.listens()
        if not listens or box.open_ports or (box.workload is not None and box.workload.kind != "compose"):
            return {}
        ports = (listens[0],) if box.host_network else tuple(host for host, inside in box.ports if inside == listens[0])
        found |= dict.fromkeys(filter(None, ports), engine.name)
    pairs = [(port, name) for port, name in _frontends(document)]
    dockers = {id(docker.path): docker for docker in document.of("docker")}
    for triton in document.of(*TRITONS):
        own = http_port(triton)
        if own is None or triton.has("--allow-sagemaker", "--allow-vertex-ai", "--allow-http"):
            return {}
        docker = next((dockers[id(word)] for word in triton.launcher if id(word) in dockers), None)
        if docker is None:
            pairs += [] if triton.image else [(own, "triton")]
        else:
            pairs += [(host, "triton") for host in _published(docker, own)]
    for port, name in pairs:
        found[port] = name if found.get(port, name) == name else ""
    return found


def _published(docker: Invocation, port: int) -> tuple[int, ...]:
    if docker.value("--net", "--network") == "host":
        return (port,)
    return tuple(host for host, inside in published_ports(docker) if inside == port)


def _frontends(document: Document) -> Iterator[tuple[int, str]]:
    """Triton's server of OpenAI's protocol, and FastChat's."""
    for command in document.commands:
        whole = " ".join(word.text for word in command.words)
        for name, (begin, option, port) in FRONTENDS.items():
            first = file_name(command.words[0].text) if command.words else ""
            if begin.search(whole) and not command.image and first in STARTERS and "--help" not in whole:
                given = re.search(rf"{option}[= ](\S+)", whole)
                if given is None or given[1].isdecimal():
                    yield int(given[1]) if given else port, name


def _asked(document: Document) -> Iterator[_Asked]:
    """All requests of the host, of curl and of programs, and addresses in any other language."""
    for request in document.requests:
        sender = document.lookups.sender(request.place)
        if request.url and (sender is None or not is_elsewhere(sender)):
            yield _Asked(ServerAddress.of(request.url), request.address or request.place, request.file, sender, request)
    for curl in document.of("curl"):
        urls = [*curl.values("--url"), *curl.positional]
        is_get = (curl.value("-X", "--request") or "GET").upper() == "GET" and not curl.has(*DATA)
        if urls and not is_elsewhere(curl) and is_get and not any(LOOSE.match(word.text) for word in curl.arguments):
            yield _Asked(ServerAddress.of(urls[0].text), urls[0], curl.command.file, curl, None, True)
    for told in told_addresses(document):
        before = told.block[max(told.start - 40, 0) : told.start]
        is_get = GET_CALL.search(before) is not None
        yield _Asked(told.target, told.word, told.file, None, None, is_get)


def _paths(document: Document, one: _Asked, kind: str, release: str) -> Iterator[Draft]:
    """A path that another kind of server has."""
    entry = rule_data(FAMILY)["kinds"].get(kind)
    if entry is None or not one.path or is_open(one.path) or _is_said_elsewhere(one, kind):
        return
    if any(re.search(entry["unless"], text, re.IGNORECASE) for _, text in document.texts):
        return
    if any(fnmatchcase(one.path, path) for path in entry["lacks"]):
        parts = {"metrics": "metrics", "health": "health", "ready": "health", "live": "health"}
        about = next((name for part, name in parts.items() if part in one.path and name in entry), "ask")
        known: dict[str, Any] = {"path": one.path, "tool": entry["tool"], "right": entry[about]}
        for draft in drafts(release, "server-path", one.place, file=one.file, **known):
            yield draft._replace(source=entry["source"])


def _is_said_elsewhere(one: _Asked, kind: str) -> bool:
    """What openai_clients.py says of a page that starts Triton or an LMI container alone."""
    is_base = one.request is None and one.curl is None and one.path == "/v1"
    of_triton = kind == "triton" and one.target.port == TRITON_PORT and (is_base or one.path in HEALTH)
    return of_triton or (
        kind == "lmi" and one.request is not None and bool(one.request.fields) and one.path in NOT_OF_LMI
    )


def _method(one: _Asked, kind: str, release: str) -> Iterator[Draft]:
    """``curl localhost:8000/v1/chat/completions`` without a body."""
    if one.get and kind in rule_data(FAMILY)["kinds"] and _is_post(one.path):
        yield from drafts(release, "server-path", one.place, form="method", file=one.file, path=one.path)


def _is_post(path: str) -> bool:
    return any(fnmatchcase(path, one) for one in rule_data(FAMILY)["posts"])


def _of_tgi(one: _Asked, kind: str, release: str) -> Iterator[Draft]:
    """``{"prompt": ...}`` for TGI's /generate, and parameters beside ``inputs``."""
    fields = one.request.fields if one.request is not None else None
    if kind != "tgi" or not fields or one.request is None or one.path not in ("", "/generate", "/generate_stream"):
        return
    if "inputs" not in fields:
        given = next((name for name in ("prompt", "text_input", "messages", "input", "text") if name in fields), "")
        if given:
            known: dict[str, Any] = {"given": given}
            yield from drafts(release, "server-path", one.request.at(given), form="inputs", file=one.file, **known)
        return
    for name in fields:
        if name in rule_data(FAMILY)["of_tgi"].split():
            yield from drafts(release, "server-path", one.request.at(name), form="parameters", file=one.file, name=name)
            return


def _port(document: Document, one: _Asked, kinds: Mapping[int, str], release: str) -> Iterator[Draft]:
    """A port that none of the text's servers has, where none of them is vLLM or trtllm-serve."""
    port = one.target.port
    if page_servers(document) and one.path in STATE and port not in kinds:
        yield from _state(document, one, kinds, release)
    if page_servers(document) or port is None or port in kinds or not one.path.startswith(_begins(kinds)):
        return
    page = Page(document, [])
    if is_of_another(page, port) or page.mentions_port(port) or page.has_proxy or document.of(*TRITONS):
        return
    known: dict[str, Any] = {"port": port, "right": ", ".join(map(str, sorted(kinds)))}
    yield from drafts(release, "wrong-port", one.place, form="OpenAI", file=one.file, **known)


def _state(document: Document, one: _Asked, kinds: Mapping[int, str], release: str) -> Iterator[Draft]:
    """``curl localhost:8002/metrics`` beside a vLLM of another port."""
    page, port = page_of(document), one.target.port
    if port is None or page.has_open_port or page.has_proxy or page.has_other_servers or is_of_another(page, port):
        return
    if page.mentions_port(port) or any(OTHER_PROGRAMS.search(text) for _, text in document.texts):
        return
    known: dict[str, Any] = {"port": port, "right": ", ".join(map(str, sorted(kinds)))}
    yield from drafts(release, "wrong-port", one.place, form="OpenAI", file=one.file, **known)


def _begins(kinds: Mapping[int, str]) -> tuple[str, ...]:
    """How the paths of these servers begin."""
    of_lmi = ("/invocations", "/predictions") if "lmi" in kinds.values() else ()
    return ("/v1/", "/generate", *of_lmi)
