"""Clients of an OpenAI-compatible server on the page: the path, the port, the model's name and the body."""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from trtllm_check.lint.carriers.python_calls import Call
from trtllm_check.lint.document import Document
from trtllm_check.lint.endpoints import ServerAddress, published_ports
from trtllm_check.lint.finding import Draft, Edit, Platform, Put, drafts
from trtllm_check.lint.programs import SERVER_IMAGE, VLLM_IMAGE
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.rules.openai_page import PORT, Page, Server, is_of_another, page_of
from trtllm_check.lint.rules.openai_paths import ALWAYS_WRONG, CHAT, HEALTH, NEAR_PATHS, NOT_OF_LMI, TEXT, TWICE
from trtllm_check.lint.rules.served import VLLM, Around, ServedModel
from trtllm_check.lint.shell.words import ShellCommand, Word
from trtllm_check.lint.written_requests import WrittenRequest

LOOPBACK_BY_DEFAULT = "trtllm-serve"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
# Models that only continue a text: their tokenizer_config.json has no chat_template.
BASE_MODEL = re.compile(
    r"meta-llama/(?:Llama-2-\d+b(?:-hf)?|(?:Meta-)?Llama-3(?:\.[12])?-\d+B)|mistralai/(?:Mistral|Mixtral)-\d[\dx]*B-v0\.[13]"
    r"|facebook/opt-[\w.]+|(?:openai-community/)?gpt2(?:-\w+)?|EleutherAI/[\w.-]+|bigscience/bloom[\w-]*|tiiuae/falcon-\d+b"
    r"|google/gemma(?:-2)?-\d+b|google/gemma-3-\d+b-pt|microsoft/phi-(?:1|1_5|2)|codellama/CodeLlama-\d+b(?:-Python)?-hf"
    r"|bigcode/(?:starcoder|starcoder2-\d+b|santacoder)|mosaicml/mpt-\d+b|mistralai/Mistral-[\w-]+-Base-\d{4}"
    r"|huggyllama/llama-\d+b|NousResearch/(?:Llama-2-\d+b-hf|Meta-Llama-3(?:\.1)?-\d+B)|Salesforce/codegen[\w.-]+",
    re.IGNORECASE,
)
OF_OPENAI = re.compile(r"(?:completions?|embeddings?|chat_completions)$")
BASE_IN_A_VARIABLE = re.compile(r"[\"']?\$\{?\w+\}?/")  # which may end with /v1
SPEAKS_OPENAI = re.compile(r"\bvllm\b|trtllm-serve", re.IGNORECASE)
CLIENTS = ("OpenAI", "AsyncOpenAI", "ChatOpenAI", "VLLMOpenAI")
OTHER_SERVERS = re.compile(
    r"\b(?:transformers serve|ollama (?:serve|run)|llama-server)\b"
)  # they take names of their own
ADDRESS_OPTIONS = re.compile(  # of programs that ask a server: evalscope, guidellm, aiperf, lm_eval, bench serve ...
    r"--(?:api-url|api-base|base-url|base_url|openai-api-base|openai-base-url|server-url|target|url)(?:=(?P<value>.*))?"
)
FRONTENDS = re.compile(
    r"openai[_-]frontend|openai_trtllm|openai_triton|trtllm-serve|vllm serve|api_server|litellm|proxy|router|genai-perf"
    r"|nim\b|ollama|sglang",
    re.IGNORECASE,
)
KEY_ELSEWHERE = re.compile(r"OPENAI_API_KEY|load_dotenv|\*\*|environ")
OLLAMA = 11434
TRITON = ("tritonserver", "launch_triton_server.py")
BASES = ("base_url", "openai_api_base", "api_base")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    around = Around.of(document)
    page = page_of(document)
    servers = page.servers
    for one in servers:
        yield from _container(around, one, release)
    for request in () if page.is_of_another else document.requests:
        yield from _request(page, request, release)
    for command in document.commands:
        yield from _asked(page, command, release)
    of_triton = not servers and is_triton_alone(document)
    for request in document.requests if of_triton else ():
        target = ServerAddress.of(request.url)
        if target.path.rstrip("/") in HEALTH and target.is_local and target.port == PORT and not request.fields:
            place, path = request.address or request.place, target.path
            yield from drafts(release, "openai-path", place, form="Triton health", file=request.file, path=path)
    for call in document.calls:
        if call.name in CLIENTS[:2] and not page.is_of_another:
            yield from _client_without_key(call, dict(document.texts).get(call.file, ""), release)
        if call.name in CLIENTS and not page.is_of_another:
            for name, word in call.values:
                if name in BASES:
                    port = ServerAddress.of(word.text).port
                    if port is None or not is_of_another(page, port):  # LiteLLM's has each path with and without /v1
                        yield from _base(word, call.file, release)
                    if of_triton and port == PORT:
                        yield from drafts(release, "openai-path", word, form="Triton", file=call.file)


def is_triton_alone(document: Document) -> bool:
    """True for a page that starts Triton and names nothing that speaks OpenAI's protocol in front of it."""
    starts = document.of(*TRITON)
    return bool(starts) and not any(FRONTENDS.search(text) for _, text in document.texts)


def _container(around: Around, server: Server, release: str) -> Iterator[Draft]:
    """A server in a container that nobody outside reaches."""
    one, docker, workload = server.start, server.docker, around.workload(server.start)
    host = one.options.get("host")
    is_alone = (docker is not None and docker.value("--net", "--network") != "host") or (
        workload is not None and SERVER_IMAGE.search(workload.image) is not None and not workload.host_network
    )
    if host is not None and host.text in LOOPBACK and is_alone:
        edits: tuple[Edit, ...] = (Put(one.flag("host"), "0.0.0.0"),)
        known: dict[str, Any] = {"host": host.text, "tool": one.tool}
        yield from drafts(
            release, "server-on-loopback", host, edits=edits, invocation=one.invocation, file=one.file, **known
        )
    if (
        host is None
        and one.tool == LOOPBACK_BY_DEFAULT
        and docker is not None
        and is_alone
        and docker.has("-p", "--publish")
    ):
        edits = (Put("--host", "0.0.0.0"),)
        yield from drafts(
            release, "server-on-loopback", one.at, form="by default", edits=edits, invocation=one.invocation
        )
    is_open_port = docker is not None and any(is_open(word.text) for word in docker.values("-p", "--publish"))
    if is_open_port or (one.options.get("port") is not None and one.number("port") is None):
        return
    inside = [port for _, port in published_ports(docker)] if docker is not None and is_alone else []
    inside += [port for _, port in workload.ports] if workload is not None else []
    if inside and server.port not in inside and not ("port" not in one.options and _by_own_entry(one)):
        place = one.options.get("port") or one.at
        yield from drafts(
            release,
            "server-port-not-published",
            place,
            form="another port",
            invocation=one.invocation,
            file=one.file,
            port=server.port,
            published=", ".join(map(str, dict.fromkeys(inside))),
        )
    for probe in workload.probes if workload is not None else ():
        if probe.port and probe.port != server.port:
            about: dict[str, Any] = {"probe": probe.name, "asked": probe.port, "port": server.port}
            form = "ready" if probe.name == "readinessProbe" else ""
            yield from drafts(release, "probe-of-another-port", probe.place, form=form, file=one.file, **about)


def _by_own_entry(one: ServedModel) -> bool:
    """True where an image of somebody's own starts the server, on a port that it chooses."""
    start = one.invocation
    return start is not None and start.path.text == start.image and VLLM_IMAGE.search(start.image) is None


def _request(page: Page, request: WrittenRequest, release: str) -> Iterator[Draft]:
    target = ServerAddress.of(request.url)
    here = (target.is_local or target.is_open) and BASE_IN_A_VARIABLE.match(request.url) is None
    path = target.path.rstrip("/")
    place = request.address or request.place
    if here and page.is_of_lmi and not page.servers and path in NOT_OF_LMI and request.fields is not None:
        yield from drafts(release, "openai-path", place, form="LMI", file=request.file, path=path)
    if path in (CHAT, TEXT) and request.fields:
        yield from _body(request, path, release)
    if TWICE.search(path):
        instead = TWICE.sub("/v1", path)
        yield from drafts(release, "openai-path", place, form="twice", file=request.file, path=path, instead=instead)
    if here and not page.servers and not page.is_of_lmi:
        yield from _path_alone(page, request, path, release)
    if not page.servers or not here:
        return
    yield from _key(page, request, target, release)
    instead = NEAR_PATHS.get(path, "")
    ports = page.ports or {one.port for one in page.servers}
    is_plain = page.has_plain_server and path.startswith("/generate")
    is_other = target.port is not None and target.port not in ports and path.startswith(("/generate", "/api/"))
    is_other = is_other or (target.port == OLLAMA and path.startswith("/api/"))  # its own port, on whatever page
    if instead and request.fields is not None and not is_plain and not is_other:
        yield from drafts(release, "openai-path", place, file=request.file, path=path, instead=instead, form="")
    if target.port is None or target.port in ports:  # else a router's, with names of its own
        yield from wrong_model(page, request, path, release)
        yield from no_template(page, request, path, release)
    yield from wrong_port(page, request, target, release)


def _key(page: Page, request: WrittenRequest, target: ServerAddress, release: str) -> Iterator[Draft]:
    """A curl without a key, to servers that all want one."""
    curl = page.senders.get(id(request.place))
    keyed = [one for one in page.servers if one.start.engine == VLLM and "api_key" in one.start.options]
    if curl is None or len(keyed) < len(page.servers) or not target.path.startswith("/v1/"):
        return
    if target.port is not None and target.port not in page.ports:
        return
    words = [word.text for word in curl.arguments]
    if any("authorization" in word.lower() or word.startswith(("$", "--oauth2")) for word in words):
        return
    yield from drafts(release, "request-body", curl.path, form="key", invocation=curl)


def _path_alone(page: Page, request: WrittenRequest, path: str, release: str) -> Iterator[Draft]:
    """A path that no server has, or that vLLM has not, on a page that starts no server itself."""
    instead = NEAR_PATHS.get(path, "") if OF_OPENAI.search(path) else ""
    if not instead or not request.fields or any(OTHER_SERVERS.search(text) for _, text in page.texts):
        return
    certain = ALWAYS_WRONG.match(path) is not None
    if certain or any(SPEAKS_OPENAI.search(text) for _, text in page.texts):
        place = request.address or request.place
        form = "" if certain else "perhaps"
        yield from drafts(release, "openai-path", place, form=form, file=request.file, path=path, instead=instead)


def _body(request: WrittenRequest, path: str, release: str) -> Iterator[Draft]:
    """messages are for the one, a prompt is for the other."""
    fields: Any = request.fields
    wanted, other, right = ("messages", "prompt", TEXT) if path == CHAT else ("prompt", "messages", CHAT)
    if other in fields and wanted not in fields:
        yield from drafts(
            release,
            "openai-path",
            request.at(other),
            form="body",
            file=request.file,
            path=path,
            wanted=wanted,
            given=other,
            instead=right,
        )


def wrong_model(page: Page, request: WrittenRequest, path: str, release: str) -> Iterator[Draft]:
    """The name of a model that no server of the page has."""
    asked = (request.fields or {}).get("model")
    if not path.startswith("/v1/") or not isinstance(asked, str) or not asked or is_open(asked):
        return
    if len(page.names) < len(page.servers) or not all(page.names):
        return
    if any(OTHER_SERVERS.search(text) for _, text in page.texts):
        return
    names = [name for each in page.names for name in each]
    if asked not in names:
        known: dict[str, Any] = {"asked": asked, "names": ", ".join(dict.fromkeys(names))}
        yield from drafts(release, "openai-model", request.at("model"), file=request.file, **known)


def no_template(page: Page, request: WrittenRequest, path: str, release: str) -> Iterator[Draft]:
    """A chat with a model whose tokenizer has no template for one."""
    start = page.servers[0].start
    if path != CHAT or len(page.servers) > 1 or not BASE_MODEL.fullmatch(start.model):
        return
    is_vllm = start.engine == VLLM
    given = start.is_open or "chat_template" in start.options or (is_vllm and page.has_default_template)
    if (is_vllm or start.tool == LOOPBACK_BY_DEFAULT) and not given:
        place, form = request.address or request.place, "" if is_vllm else "TensorRT-LLM"
        yield from drafts(release, "chat-without-template", place, form=form, file=request.file, model=start.model)


def wrong_port(page: Page, request: WrittenRequest, target: ServerAddress, release: str) -> Iterator[Draft]:
    """A port that no server of the page listens on, and that stands nowhere else on it."""
    if not target.path.startswith("/v1") or target.port is None or target.port in page.ports or not target.is_local:
        return
    if page.has_proxy or is_of_another(page, target.port):
        return  # a program of the page's own, on a port that it brings
    if page.has_open_port or page.is_inside(request) or page.mentions_port(target.port):
        return
    known: dict[str, Any] = {"port": target.port, "right": ", ".join(map(str, sorted(page.ports)))}
    place = request.address or request.place
    yield from drafts(release, "wrong-port", place, form="OpenAI", file=request.file, **known)


def _asked(page: Page, command: ShellCommand, release: str) -> Iterator[Draft]:
    """``evalscope eval --api-url http://localhost:8001/v1`` beside a server that listens on another port."""
    if not page.servers or page.has_open_port:
        return
    for option, value in pairwise((*command.words, Word("", 0, 0))):
        match = ADDRESS_OPTIONS.fullmatch(option.text)
        if match is None:
            continue
        inside = match["value"] is not None
        target = ServerAddress.of(match["value"] if inside else value.text)
        port = target.port
        if port is None or port in page.ports or not target.is_local or page.mentions_port(port):
            continue
        if page.is_beside(command):
            known: dict[str, Any] = {"port": port, "right": ", ".join(map(str, sorted(page.ports)))}
            place = option if inside else value
            yield from drafts(release, "wrong-port", place, form="OpenAI", file=command.file, **known)


def _client_without_key(call: Call, text: str, release: str) -> Iterator[Draft]:
    """``OpenAI(base_url="http://localhost:8000/v1")``."""
    given = dict(call.values)
    base = given.get("base_url")
    has_key = call.is_open or "api_key" in {word.text for word in call.arguments} or KEY_ELSEWHERE.search(text)
    if base is not None and ServerAddress.of(base.text).is_local and not has_key:
        yield from drafts(release, "request-body", base, form="client without key", file=call.file, name=call.name)


def _base(word: Word, file: str, release: str) -> Iterator[Draft]:
    """The address of a client, which adds /chat/completions to it."""
    target = ServerAddress.of(word.text)
    if not (target.is_local or re.search(r":\d+/?", word.text.partition("//")[2])):
        return
    path = target.path.rstrip("/")
    base = word.text.rstrip("/")
    if TWICE.search(path):
        instead = TWICE.sub("/v1", base)
        yield from drafts(release, "openai-path", word, form="twice", file=file, path=word.text, instead=instead)
    if path in ("", CHAT, TEXT):
        instead = f"{base}/v1" if not path else f"{base[: -len(path)]}/v1"
        form = "base" if not path else "base too long"
        yield from drafts(release, "openai-path", word, form=form, file=file, path=word.text, instead=instead)
