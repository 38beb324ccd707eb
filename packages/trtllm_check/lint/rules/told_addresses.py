"""Addresses of local servers wherever a text tells them: in any language, in settings, variables and options.

A request of curl or of Python, and a client of OpenAI's in Python, are read as such by others; here is the rest: the
address as a text, the name that it is given to, and the model and the key that stand beside it.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any, NamedTuple

from trtllm_check.lint.document import Document
from trtllm_check.lint.endpoints import ServerAddress, http_port, published_ports
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.kinds import kind_of_name, kind_of_text
from trtllm_check.lint.lookups import once
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.rules.openai_clients import TRITON, is_triton_alone
from trtllm_check.lint.rules.openai_page import Page, is_of_another, page_of, page_servers
from trtllm_check.lint.rules.openai_paths import CHAT, NEAR_PATHS, TEXT, TWICE
from trtllm_check.lint.rules.served import VLLM
from trtllm_check.lint.shell.pasted import fences
from trtllm_check.lint.shell.words import Word, lines_of, word_at

FAMILY = "told_addresses"
ADDRESS = re.compile(
    r"(?P<url>(?P<scheme>https?)://(?:localhost|127\.0\.0\.1|0\.0\.0\.0):(?P<port>\d{2,5})(?P<path>/[\w./-]*)?)(?![\w${])"
)
OF_V1 = re.compile(r"(?P<url>https?://[\w.-]+:(?P<port>\d{2,5})/v1)(?![\w.-])")
BASE_NAME = re.compile(r"(?:url|base|endpoint|host|uri)\w*[\"']?\]?[ \t]*[=:,][ \t]*[\"']?$", re.IGNORECASE)
IN_FRONT = 80  # characters
# NAME: "http://...", --name http://..., NAME=http://..., .name("http://...")
GIVEN = re.compile(
    r"(?P<name>[A-Za-z][\w.-]*?)(?:\\?[\"'])?"
    r"(?:[ \t]*+(?:\][ \t]*+)?(?::=|=>|[=:(])[ \t]*+|(?:[ \t]*+\])?[ \t]++)(?:\w+[ \t]*+\(?)?\\?[\"'`f]{0,2}$"
)
SETTING = re.compile(
    r"(?<![\w.$])(?<!\$\{)(?P<name>[A-Za-z][\w-]*)(?:\\?[\"'])?\]?[ \t]*(?::=|=>|[=:(]|:[ \t]*\w+[ \t]*=)"
    r"[ \t]*(?P<quote>\\?[\"'`])?"
    r"(?P<value>[\w./:@ +-]+?)(?=\\?[\"'`]|[,)}\]\s;]|$)",
    re.MULTILINE,
)
OF_EVALUATION = re.compile(r"lm[_-]eval|local-(?:chat-)?completions")  # which takes the whole address
SPRING = re.compile(r"^[ \t]*spring[.:]|\bspring\.ai\b", re.MULTILINE)
OWN_PATH = re.compile(r"completions-?path", re.IGNORECASE)
PREFIXED = re.compile(
    r"(?P<value>(?:hosted_vllm|openai_like|litellm_proxy|text-completion-openai|openai(?!/(?:gpt-oss|whisper|clip)))/[\w./:-]+"
    r"|openai:(?:chat|completion):[\w./-]+)"
)
OPTION = re.compile(r"(?<!\S)(?:--model|--model-name|-m)(?:[ ]+|=)(?P<value>[\w./:-]+)")
BEARER = re.compile(r"Bearer[ ]+(?P<key>[^\s\"'`\\,;)}]+)")
KEYED = re.compile(r"authorization|\bheaders\b(?!\s*[=:]\s*\{)|api_?key|token\b|auth\b", re.IGNORECASE)
CURL = re.compile(r"\bcurl\b")  # whose key openai_clients.py looks for
LINE_END = re.compile(r"\n")
OF_BUILDS = re.compile(r"[ \t]*(?:ENV|ARG|HEALTHCHECK|RUN)[ ]")
RUNS_ELSEWHERE = re.compile(r"\b(?:kubectl|oc|docker|podman)\b[^\n|;&]*\bexec\b|(?:^|[\s;&|])(?:ssh|srun|gcloud)[ ]")
COMMENT = re.compile(r"^[ \t]*(?:#|//|--[ ]|\*|<!--|rem )", re.IGNORECASE)
ELSEWHERE = re.compile(r"https://(?!localhost|127\.0\.0\.1)[\w.-]+/v1|api\.openai\.com|generativelanguage|anthropic")
HUB = re.compile(r"[\w.-]+/[\w.-]+")
HEALTH = re.compile(r"/(?:health|metrics|ping|version)/?$")
MASKED = re.compile(r"x{4,}|your|<|>|\*{3,}|\.\.\.|change|replace|secret|^sk-[.x]", re.IGNORECASE)
POSTS = re.compile(r"/v1/(?:chat/completions|completions|embeddings)$")
LOG = re.compile(r"Uvicorn running|\bINFO\b|\bWARNING\b|Traceback \(most|engine with config|HTTP/1\.1\"")
OTHER_KINDS = re.compile(r"embed|bge|(?<![a-z])e5-|rerank|whisper|tts|clip|MiniLM|gte-|sentence", re.IGNORECASE)
OF_ENGINES = re.compile(r"openai|llm|apibase")
OF_CLIENTS = re.compile(r"openai|litellm|hosted_vllm|\bLLM\b", re.IGNORECASE)
RELATIVE = re.compile(r"[\"'`}]/?v1(?:/|[\"'`])")
NEAR_LINES = 10  # of one object or of a client and what it asks
TLS = ("ssl_certfile", "ssl_keyfile")
TLS_IN_FRONT = re.compile(r"ssl_certificate|tls|caddy|traefik|letsencrypt|certbot|ssl[-_]", re.IGNORECASE)
OLLAMA = 11434
PLAIN = "vllm.entrypoints.api_server"
LONGEST = 400_000


class ToldAddress(NamedTuple):
    """``name``: what it is given to, as small letters; ``block``: the piece of the text that it stands in.

    ``start``: where it stands in the block; ``is_option``: of a command, each of which has its own way to end it;
    ``is_code``: the block is no prose.
    """

    word: Word
    name: str
    block: str
    start: int
    file: str
    is_option: bool = False
    is_code: bool = True

    @property
    def target(self) -> ServerAddress:
        return ServerAddress.of(self.word.text)

    @property
    def path(self) -> str:
        return self.target.path.rstrip("/")

    @property
    def is_base(self) -> bool:
        """True for what OpenAI's clients add a path to."""
        return self.name in _names("openai_bases") and not self.is_option and OF_EVALUATION.search(self.block) is None

    @property
    def speaks_openai(self) -> bool:
        """True for a name that is OpenAI's or an engine's, and for any base beside a client of them."""
        is_base = self.name in _names("bases") and (self.is_base or self.is_option)
        return OF_ENGINES.search(self.name) is not None or (is_base and OF_CLIENTS.search(self.block) is not None)

    @property
    def is_of_spring(self) -> bool:
        """True for Spring AI, which adds /v1/chat/completions."""
        return self.is_base and SPRING.search(self.block) is not None


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    servers = page_servers(document)
    if not servers:
        yield from _of_triton(document, platform.release.name)
        return
    page, release = page_of(document), platform.release.name
    if page.is_of_another:
        return
    if not told_addresses(document):
        return
    read, urls = _read_otherwise(document), {(one.file, one.url) for one in document.requests}
    seen: set[tuple[str, int]] = set()
    for one in told_addresses(document):
        if (one.file, one.word.line) in seen:
            continue
        seen.add((one.file, one.word.line))
        yield from _scheme(page, one, release)
        yield from _key(page, one, release)
        is_begin = any(file == one.file and url.startswith(one.word.text) for file, url in urls)
        if (one.file, one.word.line) in read or is_begin:
            continue
        yield from _path(page, one, release)
        yield from _port(page, one, release)
        yield from _model(page, one, release)


def _of_triton(document: Document, release: str) -> Iterator[Draft]:
    """``LLM_URL=http://host:8000/v1`` beside a tritonserver, whose own port speaks another protocol."""
    if not is_triton_alone(document):
        return
    ports = {port for one in document.of(*TRITON) if (port := http_port(one)) is not None}
    told = [pair for docker in document.of("docker") for pair in published_ports(docker)]
    told += [pair for workload in document.workloads for pair in workload.ports]
    ports |= {outside for outside, inside in told if inside in ports}
    read = _read_otherwise(document)
    for file, text in document.texts:
        for match in OF_V1.finditer(text):
            begin = text.rfind("\n", 0, match.start()) + 1
            before = text[max(begin, match.start() - IN_FRONT) : match.start()]
            number = text.count("\n", 0, begin) + 1
            is_told = BASE_NAME.search(before) is not None and not COMMENT.match(text[begin : match.start()])
            if is_told and int(match["port"]) in ports and (file, number) not in read:
                place = word_at(text, match.start(), match["url"])
                yield from drafts(release, "openai-path", place, form="Triton", file=file)


@cache
def _names(part: str) -> frozenset[str]:
    return frozenset(rule_data(FAMILY)[part].split())


@once
def told_addresses(document: Document) -> Iterator[ToldAddress]:
    """All of them, but those in comments, in prose without a path, and in containers of their own."""
    for file, text in document.texts:
        if "://" not in text or len(text) > LONGEST:
            continue
        blocks = [(one.start, one.end) for one in fences(text)]
        whole = not blocks and (kind_of_name(file) is not None or not file)
        is_code = whole and kind_of_text(text) not in ("shell", "request") and "\n" in text
        pieces: dict[tuple[int, int], str] = {}
        lines, starts = lines_of(text), [0, *(match.end() for match in LINE_END.finditer(text))]
        inside = _inside(document, file)
        for match in ADDRESS.finditer(text):
            number = bisect_right(starts, match.start())
            line = lines[number - 1]
            if COMMENT.match(line) or number in inside or OF_BUILDS.match(line) or RUNS_ELSEWHERE.search(line):
                continue
            block = next((one for one in blocks if one[0] <= match.start() < one[1]), None)
            if block is None and blocks and not (match["path"] or "").startswith("/v1/"):
                continue  # of prose
            start, end = block or ((0, len(text)) if whole else (match.start(), match.end()))
            begin = starts[number - 1]
            name, is_option = _name(text[begin : match.start()])
            place = Word(match["url"].rstrip("."), number, match.start() - begin + 1)
            piece = pieces.setdefault((start, end), text[start:end])
            if LOG.search(piece if block else lines[number - 1]):
                continue  # what a server said
            yield ToldAddress(place, name, piece, match.start() - start, file, is_option, block is not None or is_code)


def _name(before: str) -> tuple[str, bool]:
    """What an address is given to, by the line in front of it, and whether that is an option of a command."""
    match = GIVEN.search(before)
    if match is None:
        return "", False
    is_option = before[: match.start()].endswith("--")
    return re.sub(r"[^a-z]", "", match["name"].rpartition(".")[2].lower()), is_option


def _inside(document: Document, file: str) -> set[int]:
    """The lines of containers that have a network of their own."""
    found: set[int] = set()
    for one in document.workloads:
        if one.file == file and one.network != "host":
            found |= set(range(one.first, one.last + 1))
    for docker in document.of("docker"):
        if docker.command.file == file and docker.value("--net", "--network") != "host":
            found |= set(range(docker.command.line, docker.command.end_line + 1))
    return found


def _read_otherwise(document: Document) -> set[tuple[str, int]]:
    """The lines of addresses that are read as requests and clients."""
    found = {(one.file, (one.address or one.place).line) for one in document.requests if one.url}
    found |= {(one.file, one.address.line) for one in document.requests if one.address is not None}
    found |= {(one.command.file, word.line) for one in document.of("curl") for word in one.positional}
    tools = document.of("lm_eval", "lm-eval", "guidellm", "genai-perf", "aiperf", "benchmark_serving.py")
    found |= {(one.command.file, word.line) for one in tools for word in one.arguments if "://" in word.text}
    found |= {(call.file, word.line) for call in document.calls if call.api == "openai" for _, word in call.values}
    return found


def _scheme(page: Page, one: ToldAddress, release: str) -> Iterator[Draft]:
    """``https://localhost:8000`` of a server that has no certificate."""
    servers = [each for each in page.servers if one.target.port in each.ports]
    if not one.word.text.startswith("https") or len(servers) != 1 or not servers[0].start.at.text:
        return
    (server,) = servers
    has_tls = any(name in server.start.options for name in TLS) or server.start.is_open
    if not has_tls and not any(TLS_IN_FRONT.search(text) for _, text in page.texts):
        right = one.word.text.replace("https", "http", 1)
        yield from drafts(release, "openai-path", one.word, form="scheme", file=one.file, tool=server.start.tool,
                          path=one.word.text, instead=right)  # fmt: skip


def _path(page: Page, one: ToldAddress, release: str) -> Iterator[Draft]:
    text, path = one.word.text, one.path
    if one.is_of_spring:
        if path == "/v1" and not OWN_PATH.search(one.block):
            known: dict[str, Any] = {"path": f"{text.rstrip('/')}/v1", "instead": text.rstrip("/").removesuffix("/v1")}
            yield from drafts(release, "openai-path", one.word, form="twice", file=one.file, **known)
        return
    if TWICE.search(path):
        instead = TWICE.sub("/v1", text)
        yield from drafts(release, "openai-path", one.word, form="twice", file=one.file, path=text, instead=instead)
    elif one.is_base and path in ("", CHAT, TEXT) and one.target.port in page.ports and _is_whole(one):
        base = text.rstrip("/")
        instead = f"{base}/v1" if not path else f"{base[: -len(path)]}/v1"
        form = "base" if not path else "base too long"
        for draft in drafts(release, "openai-path", one.word, form=form, file=one.file, path=text, instead=instead):
            yield draft._replace(severity="warning")  # a client of somebody's own may add /v1 itself
    elif path in NEAR_PATHS and (path.startswith("/v1/") or _is_asked_for(page, one)):
        instead = NEAR_PATHS[path]
        yield from drafts(release, "openai-path", one.word, form="", file=one.file, path=path, instead=instead)


def _is_asked_for(page: Page, one: ToldAddress) -> bool:
    """True for a path of a server of the page; /generate is that of vLLM's plain server, which may run as well."""
    if one.target.port not in page.ports or (one.target.port == OLLAMA and one.path.startswith("/api/")):
        return False
    is_plain = page.has_plain_server or page.has_other_servers or any(PLAIN in text for _, text in page.texts)
    return one.path != "/generate" or not (is_plain or page.has_proxy)


def _is_whole(one: ToldAddress) -> bool:
    """True for the base of a client of OpenAI's to which nothing in its block adds /v1."""
    return one.speaks_openai and RELATIVE.search(one.block) is None


def _port(page: Page, one: ToldAddress, release: str) -> Iterator[Draft]:
    port = one.target.port
    speaks = one.path.startswith("/v1") or (not one.path and one.speaks_openai)
    if port is None or port in page.ports or not page.ports or page.has_open_port or not speaks:
        return
    if is_of_another(page, port) or page.mentions_port(port):
        return
    known: dict[str, Any] = {"port": port, "right": ", ".join(map(str, sorted(page.ports)))}
    yield from drafts(release, "wrong-port", one.word, form="OpenAI", file=one.file, **known)


def asked_model(name: str) -> str:
    """The name that is sent: without what tells a library the service."""
    return next((name.removeprefix(one) for one in rule_data(FAMILY)["prefixes"] if name.startswith(one)), name)


@lru_cache(maxsize=64)
def _settings(block: str, part: str, *, plainly: bool = False) -> tuple[tuple[str, int], ...]:
    """The values of the names of ``part`` in a block, with their places there.

    ``plainly``: only those in quotes and of variables, which are no words of a sentence.
    """
    names = _names(part)
    return tuple(
        (match["value"].strip(), match.start("value"))
        for match in SETTING.finditer(block)
        if re.sub(r"[^a-z]", "", match["name"].lower()) in names
        and (not plainly or match["quote"] or match["name"].isupper())
    )


@lru_cache(maxsize=64)
def _asks_one(block: str) -> bool:
    """True where all addresses of the block are one server's."""
    return len({match["port"] for match in ADDRESS.finditer(block)}) == 1 and not ELSEWHERE.search(block)


def _is_alone(page: Page, one: ToldAddress) -> bool:
    """True where the block asks one server only, which is one of the page's."""
    return one.target.port in page.ports and _asks_one(one.block)


def _model(page: Page, one: ToldAddress, release: str) -> Iterator[Draft]:
    """The one model of the block, which no server has."""
    names = [name for each in page.names for name in each]
    if not all(page.names) or len(page.names) < len(page.servers) or not names or not _is_alone(page, one):
        return
    if page.has_other_servers or not (one.path.startswith("/v1") or one.is_base):
        return
    settings = _settings(one.block, "models", plainly=not one.is_code)
    told = [(value, at) for value, at in settings if _is_a_name(value)]
    told += [(match["value"], match.start("value")) for match in PREFIXED.finditer(one.block)]
    if one.is_option or not told:
        told += [(match["value"], match.start("value")) for match in OPTION.finditer(one.block)]
    if len({value for value, _ in told}) != 1:
        return
    value, at = min(told, key=lambda each: abs(each[1] - one.start))
    is_of_text = OTHER_KINDS.search(value) is None or any(OTHER_KINDS.search(name) for name in names)
    of_a_service = value.partition("/")[2]  # opencode --model SERVICE/MODEL
    if {asked_model(value), value, of_a_service} & set(names) or not is_of_text:
        return
    is_near = one.block.count("\n", min(at, one.start), max(at, one.start)) <= NEAR_LINES
    known: dict[str, Any] = {"asked": asked_model(value), "names": ", ".join(dict.fromkeys(names))}
    for draft in drafts(release, "openai-model", _word(page, one, value, at), file=one.file, **known):
        yield draft if is_near else draft._replace(severity="warning")


def _is_a_name(value: str) -> bool:
    """True for what may be a model's name, and is no variable or expression."""
    if is_open(value) or not value or value.endswith((".", "(", "/")) or value.startswith(("vllm/", "local-")):
        return False
    return HUB.fullmatch(asked_model(value)) is not None or (any(map(str.isdigit, value)) and " " not in value)


def _word(page: Page, one: ToldAddress, value: str, at: int) -> Word:
    """``value`` at its place in the text of ``one``."""
    text = dict(page.texts)[one.file]
    first = text.find(one.block)
    return word_at(text, first + at, value)


def _key(page: Page, one: ToldAddress, release: str) -> Iterator[Draft]:
    """Another key than the one that the server wants, or none."""
    servers = [each for each in page.servers if each.start.engine == VLLM and "api_key" in each.start.options]
    if len(servers) != 1 or len(page.servers) > 1 or not _is_alone(page, one) or not one.path.startswith("/v1"):
        return
    wanted = servers[0].start.options["api_key"].text
    if is_open(wanted) or MASKED.search(wanted) or wanted in one.block or CURL.search(one.block):
        return
    none = rule_data(FAMILY)["no_keys"]
    told = [value for value, _ in _settings(one.block, "keys", plainly=not one.is_code)]
    told += [match["key"] for match in BEARER.finditer(one.block)]
    if told and all(value.lower() in none for value in told):
        yield from drafts(release, "request-body", one.word, form="another key", file=one.file, given=told[0])
    elif not told and POSTS.search(one.path) and not KEYED.search(one.block):
        yield from drafts(release, "request-body", one.word, form="key", file=one.file)
