"""The servers of OpenAI's protocol that a page starts, and what rules on their clients look up of the page."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from trtllm_check.lint.carriers.script import hides_arguments
from trtllm_check.lint.carriers.workloads import ServedContainer
from trtllm_check.lint.document import Document
from trtllm_check.lint.endpoints import published_ports
from trtllm_check.lint.finding import rule_data
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.lookups import once
from trtllm_check.lint.programs import PLAIN_SERVER
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.rules.served import VLLM, Around, ServedModel, served
from trtllm_check.lint.shell.pasted import fences
from trtllm_check.lint.shell.words import ShellCommand, file_name, lines_of
from trtllm_check.lint.vllm_release import vllm_told
from trtllm_check.lint.written_requests import WrittenRequest
from trtllm_check.releases.vllm import vllm_facts

OF_ADDRESSES = "told_addresses"
RUN_AND_IMAGE = 2  # words of a docker run that takes the image's own command
OF_MANIFESTS = re.compile(r"^[ \t-]*(?:targetPort|containerPort|port|name|prometheus\.io/port):.*$", re.MULTILINE)
LOOSE = re.compile(r"[\"']?\$")  # a word that is a variable, which may hold any option
PORT = 8000  # of vllm serve and of trtllm-serve where nothing is said
SERVERS = ("vllm serve", "trtllm-serve")
NO_DEFAULT_TEMPLATE = "0.5.5"  # requires transformers 4.44
PROXIES = re.compile(
    r"\bpython3?[ ](?:-m[ ])?\S*(?:proxy|router|gateway|balanc)\w*(?:\.py)?(?=\s)"
    r"|\b(?:rag|api|llm|openai|reverse|chat)[ _-](?:proxy|gateway)\b",
    re.IGNORECASE,
)
ELSEWHERE = frozenset(
    {"kubectl", "oc", "docker", "podman", "nerdctl", "ssh", "srun", "docker-compose", "gcloud", "lxc"}
)
FORWARDED = re.compile(r"(?P<here>\d{2,5})?:(?P<there>\d{2,5})|(?P<only>\d{2,5})(?!.)")
OTHER_SERVERS = re.compile(
    r"\b(?:sglang|ollama|llama-server|llama\.cpp|lm studio|lmstudio|text-generation-(?:inference|launcher)|lmdeploy"
    r"|tritonserver|launch_triton_server|openai_frontend|transformers serve|localai|mlx_lm"
    r"|djl-(?:serving|inference)|(?:bash|sh)[ ]+\S*serve\w*\.sh)\b",
    re.IGNORECASE,
)
COMPOSED = re.compile(r"\bdocker[- ]compose\b[^\n#]* up\b")
LITELLM = re.compile(r"\blitellm\b", re.IGNORECASE)
# Adapters that a running server loads, under names that no command tells.
LOADS_ADAPTERS = re.compile(r"RUNTIME_LORA_UPDATING|LORA_RESOLVER|lora_\w*resolver|load_lora_adapter")


class Server(NamedTuple):
    """One server. ``ports``: where clients on the host reach it; empty where that is not known.

    ``docker``: the docker run that it starts in; ``first`` and ``last``: the lines that start it;
    ``is_in_cluster``: clients reach it by what kubectl forwards.
    """

    start: ServedModel
    port: int
    ports: tuple[int, ...]
    first: int = 0
    last: int = 0
    is_in_cluster: bool = False
    docker: Invocation | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """What requests may call its model; empty where the reader fills it in."""
        one = self.start.invocation
        given = [word.text for word in one.values("--served-model-name", "--served_model_name")] if one else []
        given = given or [self.start.model]
        adapters = (
            [word.text.partition("=")[0] for word in one.values("--lora-modules", "--lora_modules")] if one else []
        )
        every = tuple(name for name in (*given, *adapters) if name)
        return () if not given[0] or any(is_open(name) or name.startswith("{") for name in every) else every


class Page:
    """What is looked up for every request: the servers, who sends it, and where else a port stands."""

    def __init__(self, document: Document, servers: list[Server]) -> None:
        forwarded = forwarded_ports(document)
        servers = [one._replace(ports=forwarded) if one.is_in_cluster else one for one in servers]
        self.servers = servers
        self.document = document
        loads = any(LOADS_ADAPTERS.search(text) for _, text in document.texts)
        self.names = [() if loads else one.names for one in servers if one.start.engine == VLLM]
        self.ports = {port for one in servers for port in one.ports}
        self.senders = {id(word): one for one in document.of("curl") for word in one.arguments}
        self.texts = document.texts
        self.has_plain_server = any(one.path.text == PLAIN_SERVER for one in document.of("vllm"))
        self.mentions: dict[tuple[int, tuple[str, int, int]], bool] = {}

    def starts(self, model: str) -> bool:
        """True for a model behind the word serve anywhere: also of a command that a reader does not take apart."""
        return any(re.search(rf"\bserve[ ]+[\"']?{re.escape(model)}(?![\w/.-])", text) for _, text in self.texts)

    @cached_property
    def has_default_template(self) -> bool:
        """True for a vLLM of the time when transformers had a template for every tokenizer."""
        told, first = vllm_told(self.document), vllm_facts().release(NO_DEFAULT_TEMPLATE)
        return told is not None and first is not None and told.release.place < first.place

    @cached_property
    def has_proxy(self) -> bool:
        return any(PROXIES.search(text) for _, text in self.texts)

    @cached_property
    def has_open_port(self) -> bool:
        """True where a server listens nobody knows on which port; a compose file that is not shown may start one."""
        is_shown = bool(self.document.workloads) or any("services:" in text for _, text in self.texts)
        composed = not is_shown and any(COMPOSED.search(text) for _, text in self.texts)
        return composed or any(not one.ports for one in self.servers)

    @cached_property
    def is_of_lmi(self) -> bool:
        """True for a page that starts an LMI container, whose paths are others."""
        return any("djl-inference" in word.text or "djl-serving" in word.text for word in self.document.images)

    @cached_property
    def is_of_another(self) -> bool:
        """True for a page on LiteLLM's proxy, which has each path with and without /v1, and on no server."""
        return not self.servers and any(len(LITELLM.findall(text)) > 1 for _, text in self.texts)

    def is_inside(self, request: WrittenRequest) -> bool:
        """True for a curl that runs in a container."""
        curl = self.senders.get(id(request.place)) or self.document.lookups.sender(request.place)
        return curl is not None and is_elsewhere(curl)

    def is_beside(self, command: ShellCommand) -> bool:
        """True for a command in the same block of a page, or the same script, as a server."""
        text = dict(self.texts).get(command.file, "")
        spans = [(text.count("\n", 0, one.start) + 1, text.count("\n", 0, one.end) + 1) for one in fences(text)]
        span = next((one for one in spans if one[0] <= command.line <= one[1]), None)
        if span is None:
            return not spans
        return any(span[0] <= one.start.at.line <= span[1] for one in self.servers if one.start.file == command.file)

    def mentions_port(self, port: int, asked: tuple[str, int, int] = ("", 0, 0)) -> bool:
        """True if the port stands on the page outside of addresses: a proxy's, a tunnel's, another server's.

        The port that a server has inside of its container, and which is published as another one, is no mention, and
        what stands in ``asked`` (a file, its first and its last line) is none.
        """
        if (port, asked) not in self.mentions:
            pattern = re.compile(rf"(?<![\d:]){port}(?!\d)|:{port}(?=:)")
            hidden = [
                (one.start.file, one.first, one.last)
                for one in self.servers
                if one.port == port and one.ports and port not in self.ports
            ]
            inside = any(one.is_in_cluster and one.port == port for one in self.servers) and port not in self.ports
            texts = (_without(text, file, [*hidden, asked]) for file, text in self.texts)
            texts = (OF_MANIFESTS.sub("", text) if inside else text for text in texts)
            self.mentions[port, asked] = any(map(pattern.search, texts))
        return self.mentions[port, asked]

    @cached_property
    def has_other_servers(self) -> bool:
        """True where the page names a server of another kind, whose port it may mean."""
        return any(OTHER_SERVERS.search(text) for _, text in self.texts)


def is_elsewhere(one: Invocation) -> bool:
    """True for a command that runs in a container, a pod or on another machine."""
    first = next((word for word in one.command.words if word.text != "sudo"), one.path)
    return bool(one.image) or (first is not one.path and file_name(first.text) in ELSEWHERE)


def is_of_another(page: Page, port: int) -> bool:
    """True for a port that another program has where nothing is said, and that the page may mean."""
    named: Mapping[int, str] = rule_data(OF_ADDRESSES)["others"]
    if port not in named:
        return False
    return not named[port] or any(re.search(named[port], text, re.IGNORECASE) for _, text in page.texts)


def _without(text: str, file: str, spans: Sequence[tuple[str, int, int]]) -> str:
    """``text`` without the lines of ``spans``: a file, a first and a last line."""
    own = [(first, last) for name, first, last in spans if name == file and last]
    if not own:
        return text
    lines = lines_of(text)
    return "\n".join(line for number, line in enumerate(lines, 1) if not any(a <= number <= b for a, b in own))


@once
def page_servers(document: Document) -> Iterator[Server]:
    """The servers of OpenAI's protocol that a text starts."""
    around = Around.of(document)
    for one in (each for each in served(document) if not each.is_part):
        if one.tool in SERVERS and one.invocation:
            found = server_of(around, one)
            docker = around.docker(one) or (_built(document, one) if not found.ports else None)
            ports = _of_docker(docker, found.port) if docker is not None and not found.ports else found.ports
            yield found._replace(docker=docker, ports=ports)


@once
def _pages(document: Document) -> Iterator[Page]:
    yield Page(document, list(page_servers(document)))


def page_of(document: Document) -> Page:
    """What is looked up for every request, worked out once for all rules."""
    return _pages(document)[0]


def built_images(document: Document, file: str) -> Iterator[str]:
    """The names of the images that ``docker build -t`` of one file makes."""
    for command in document.commands:
        texts = [word.text for word in command.words]
        names = [file_name(text) for text in texts[:2] if text != "sudo"]
        if command.file != file or not texts or names[:1] not in (["docker"], ["podman"]) or "build" not in texts[:4]:
            continue
        for at, text in enumerate(texts):
            flag, sign, value = text.partition("=")
            if flag in ("-t", "--tag"):
                yield value if sign else texts[at + 1] if at + 1 < len(texts) else ""


def _built(document: Document, one: ServedModel) -> Invocation | None:
    """The one docker run of the image that the text builds from the Dockerfile which starts this server."""
    if one.invocation is None or not one.invocation.command.image or document.workloads:
        return None
    built = {name.removesuffix(":latest") for name in built_images(document, one.file)}
    runs = [
        docker
        for docker in document.of("docker")
        if len(docker.positional) > 1
        and docker.positional[0].text == "run"
        and docker.positional[1].text.removesuffix(":latest") in built
    ]
    is_plain = len(built) == 1 and len(runs) == 1 and len(runs[0].positional) == RUN_AND_IMAGE
    return runs[0] if is_plain and not runs[0].has("--entrypoint") else None


def _of_docker(docker: Invocation, port: int) -> tuple[int, ...]:
    if docker.value("--net", "--network") == "host":
        return (port,)
    return tuple(host for host, inside in published_ports(docker) if inside == port)


def forwarded_ports(document: Document) -> tuple[int, ...]:
    """The ports of the host that ``kubectl port-forward`` opens."""
    found: list[int] = []
    for command in document.commands:
        texts = [word.text for word in command.words]
        if "port-forward" in texts[:8] and any(text in ("kubectl", "oc") for text in texts[:2]):
            pairs = filter(None, map(FORWARDED.fullmatch, texts))
            found += [int(match["here"] or match["there"] or match["only"]) for match in pairs]
    return tuple(dict.fromkeys(found))


def server_of(around: Around, one: ServedModel) -> Server:
    port = one.number("port") or PORT
    start = one.invocation
    lines = (start.command.line, start.command.end_line) if start is not None else (one.at.line, one.at.line)
    is_hidden = start is not None and "port" not in one.options and hides_arguments(start.arguments)
    if is_hidden or ("port" in one.options and one.number("port") is None):
        return Server(one, port, (), *lines)
    docker = around.docker(one)
    if docker is not None and docker.value("--net", "--network") != "host":
        return Server(one, port, _of_docker(docker, port), *lines)
    workload = around.workload(one)
    if workload is not None and workload.kind == "compose":
        lines = (workload.first, workload.last)
        return Server(one, port, (port,) if workload.network == "host" else _of_compose(workload, port), *lines)
    if workload is not None:
        return Server(one, port, (), workload.first, workload.last, workload.kind == "kubernetes")
    return Server(one, port, () if start is not None and start.image else (port,), *lines)


def _of_compose(workload: ServedContainer, port: int) -> tuple[int, ...]:
    """The host's ports of one service; none where one of them is not told, or the network is another's."""
    if workload.network or workload.is_open or any(not host for host, _ in workload.ports):
        return ()
    return tuple(host for host, inside in workload.ports if inside == port)
