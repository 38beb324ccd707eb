"""Containers that commands of one text start: who reaches whom, by ports, by names and by networks."""

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from trtllm_check.lint.carriers.compose import FOR_BROWSERS
from trtllm_check.lint.document import Document
from trtllm_check.lint.endpoints import ServerAddress
from trtllm_check.lint.finding import Draft, Edit, Platform, Put, drafts
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.rules.box import Box, boxes
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.rules.openai_page import Page, built_images, is_of_another, page_of, page_servers
from trtllm_check.lint.rules.told_addresses import told_addresses
from trtllm_check.lint.shell.words import ShellCommand, Word, file_name, lines_of

LINK, ITSELF = "container-link", "address-of-the-container-itself"
ADDRESS = re.compile(
    r"(?P<scheme>https?)://(?P<host>[A-Za-z][\w.-]*|127\.0\.0\.1|0\.0\.0\.0|172\.17\.0\.1):(?P<port>\d{2,5})(?!\d)"
)
LOCAL = ("localhost", "127.0.0.1", "0.0.0.0")
HOST = ("host.docker.internal", "172.17.0.1", "gateway.docker.internal")
NO_NAMES = ("", "bridge", "default", "host", "none")  # networks in which no container is known by its name
OF_CONTAINERS = ("exec", "logs", "inspect", "attach", "port", "top")
VARIABLE = re.compile(r"\$\{?[A-Za-z_]\w*\}?")
FENCE = re.compile(r"[ \t>]*(?:```|~~~)")
NEAR, ALIKE = 0.8, 0.75


class _Container(NamedTuple):
    """One docker run. ``names``: what others on its networks call it; ``networks``: those that know names."""

    box: Box
    docker: Invocation
    names: tuple[str, ...]
    networks: frozenset[str]

    @property
    def is_open(self) -> bool:
        """True where its network is not told, or another's."""
        network = self.docker.value("--network", "--net") or ""
        return is_open(network) or network.startswith("container:") or self.docker.has("--link")


class _Around(NamedTuple):
    """What is looked up for each container of one file: all of them, who has which port of the host, what is asked."""

    page: Page
    found: Sequence[_Container]
    ports: Mapping[int, int]
    asked: frozenset[int]


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    page = page_of(document)
    for file, text in document.texts:
        found = list(_containers(document, file))
        if not found:
            continue
        yield from _unknown_network(document, file, release)
        yield from _commands(document, found, file, release)
        yield from _images(document, found, file, release)
        around = _Around(page, found, _host_ports(document, found), frozenset(_asked(document, file)))
        for one in found:
            yield from _not_published(document, one, around, release)
            yield from _variables(one, text, release)
            yield from _addresses(one, around, release)


def _containers(document: Document, file: str) -> Iterator[_Container]:
    connected: dict[str, set[str]] = {}
    for one in document.of("docker"):
        words = [word.text for word in one.positional] or [word.text for word in one.arguments]
        whole = [word.text for word in one.command.words]
        if words[:1] == ["network"] and "connect" in whole:
            behind = [text for text in whole[whole.index("connect") + 1 :] if not text.startswith("-")]
            if len(behind) > 1:
                connected.setdefault(behind[1], set()).add(behind[0])
    for box in boxes(document):
        if box.docker is None or box.file != file:
            continue
        docker = box.docker
        name = docker.value("--name") or ""
        networks = {word.text for word in docker.values("--network", "--net")} | connected.get(name, set())
        given = docker.values("--network-alias", "--net-alias", "--hostname", "-h")
        names = tuple(filter(None, (name, *(word.text for word in given))))
        yield _Container(box, docker, names, frozenset(networks - set(NO_NAMES)))


def _host_ports(document: Document, found: Sequence[_Container]) -> Mapping[int, int]:
    """The ports of the host that servers of the text have -> the place of the container, -1 for none."""
    ports = {port: -1 for one in page_servers(document) for port in one.ports}
    for number, one in enumerate(found):
        listens = one.box.listens()
        ports |= {host: number for host, inside in one.box.ports if inside in listens}
    return ports


def _asked(document: Document, file: str) -> Iterator[int]:
    """The ports of the host that requests and addresses of one file ask for paths of servers of models."""
    for request in document.requests:
        target = ServerAddress.of(request.url)
        if target.is_local and target.port is not None and target.path.startswith(("/v1", "/generate", "/health")):
            yield target.port
    yield from (one.target.port for one in told_addresses(document) if one.file == file and one.target.port)


def _not_published(document: Document, one: _Container, around: _Around, release: str) -> Iterator[Draft]:
    """A server in a network of its own, whose port a client of the host asks."""
    listens, docker = one.box.listens(), one.docker
    engine = one.box.serves
    if engine is None or engine.name == "triton" or not listens or one.is_open or one.box.host_network:
        return
    if docker.has("-p", "--publish", "-P", "--publish-all") or listens[0] in around.ports:
        return
    inside = any(each.positional[:1] and each.positional[0].text == "exec" for each in document.of("docker"))
    if listens[0] in around.asked and not inside:
        known: dict[str, Any] = {"port": listens[0], "inside": listens[0]}
        edits: tuple[Edit, ...] = (Put("-p", f"{listens[0]}:{listens[0]}"),)
        yield from drafts(release, "server-port-not-published", docker.path, edits=edits, invocation=docker, **known)


def _addresses(one: _Container, around: _Around, release: str) -> Iterator[Draft]:
    """What the variables and the arguments of one container tell of others."""
    told = [(name, word) for name, word in one.box.settings.items() if not FOR_BROWSERS.search(name)]
    for name, word in (*told, *(("", word) for word in one.box.words)):
        for match in ADDRESS.finditer(word.text):
            host, port = match["host"], int(match["port"])
            if host in LOCAL and not one.box.host_network and not one.is_open:
                yield from _itself(one, around, name, word, match, release)
            elif host in HOST:
                yield from _of_the_host(around.page, word, port, one.box.file, release)
            elif "." not in host:
                yield from _of_another(one, around.found, word, match, release)


def _itself(
    one: _Container, around: _Around, name: str, word: Word, match: re.Match[str], release: str
) -> Iterator[Draft]:
    """``-e OPENAI_API_BASE_URL=http://localhost:8000/v1`` beside a server of the host."""
    port = int(match["port"])
    own = {inside for _, inside in one.box.ports} | set(one.box.listens())
    holder = around.ports.get(port)
    if port not in own and holder is not None and (holder < 0 or around.found[holder] is not one):
        right = re.sub(r"//[^:/]*", "//host.docker.internal", match[0])
        known: dict[str, Any] = {"name": name or "its command", "address": match[0], "right": right}
        yield from drafts(release, ITSELF, word, file=one.box.file, **known)


def _of_the_host(page: Page, word: Word, port: int, file: str, release: str) -> Iterator[Draft]:
    """``http://host.docker.internal:8001`` beside a server that has port 8000 of the host."""
    if not page.servers or page.has_open_port or port in page.ports or page.has_proxy:
        return
    if not is_of_another(page, port) and not page.mentions_port(port):
        known: dict[str, Any] = {"port": port, "right": ", ".join(map(str, sorted(page.ports)))}
        yield from drafts(release, "wrong-port", word, form="OpenAI", file=file, **known)


def _of_another(
    one: _Container, found: Sequence[_Container], word: Word, match: re.Match[str], release: str
) -> Iterator[Draft]:
    """``http://vllm:8000`` in another container."""
    host, port = match["host"], int(match["port"])
    others = [each for each in found if each is not one]
    named = [each for each in others if host in each.names]
    known: dict[str, Any] = {"address": match[0], "name": host}
    if one.is_open or one.docker.has("--add-host") or any(each.is_open for each in others):
        return
    if len(named) == 1:
        (target,) = named
        listens = target.box.listens()
        if not one.networks & target.networks and not (one.box.host_network or target.box.host_network):
            yield from drafts(release, LINK, word, form="network", file=one.box.file, **known)
        elif listens and port not in listens and not target.box.host_network:
            known |= {"port": port, "right": listens[0]}
            yield from drafts(release, LINK, word, form="port", file=one.box.file, **known)
        return
    servers = [each for each in others if each.box.serves is not None and each.names]
    if not named and len(servers) == 1 and one.networks & servers[0].networks and _alike(host, servers[0].names[0]):
        known["right"] = servers[0].names[0]
        yield from drafts(release, LINK, word, form="name", file=one.box.file, **known)


def _alike(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one) or bool(get_close_matches(one, [other], 1, ALIKE))


def _unknown_network(document: Document, file: str, release: str) -> Iterator[Draft]:
    """``--network llm`` where the text makes another one."""
    made: set[str] = set()
    used: list[tuple[Invocation, Word]] = []
    for one in document.of("docker"):
        if one.command.file != file:
            continue
        texts = [word.text for word in one.command.words]
        if "network" in texts and "create" in texts:
            made |= {text for text in texts[-1:] if not text.startswith("-")}
        used += [(one, word) for word in one.values("--network", "--net")]
    if len(made) != 1 or any(is_open(name) for name in made):
        return
    (only,) = made
    names = {word.text for _, word in used} - set(NO_NAMES)
    if only in names or len(names) != 1:
        return
    for docker, word in used:
        if word.text in names and not is_open(word.text) and ":" not in word.text:
            known: dict[str, Any] = {"name": word.text, "right": only}
            yield from drafts(release, LINK, word, form="no network", invocation=docker, **known)
            return


def _commands(document: Document, found: Sequence[_Container], file: str, release: str) -> Iterator[Draft]:
    """``docker logs server`` of a container that has another name."""
    names = {one.names[0] for one in found if one.docker.has("--name") and one.names}
    if len(names) != 1 or len(found) != 1 or document.workloads or any(map(is_open, names)):
        return
    (name,) = names
    for one in document.of("docker"):
        words = one.positional
        if one.command.file != file or len(words) < 2 or words[0].text not in OF_CONTAINERS:
            continue
        given = words[1].text
        if given.replace("_", "-") == name.replace("_", "-"):
            continue  # known_words.py says it
        if given != name and not is_open(given) and _alike(given, name) and not name.startswith(given):
            known: dict[str, Any] = {"name": given, "right": name}
            yield from drafts(release, LINK, words[1], form="command", invocation=one, **known)


def _images(document: Document, found: Sequence[_Container], file: str, release: str) -> Iterator[Draft]:
    """``docker build -t my-server:1.0 .`` and ``docker run myserver:1.0``."""
    made = [one for one in document.commands if one.file == file and _is_docker(one)]
    words = [[word.text for word in one.words] for one in made]
    if any({"tag", "compose", "load", "import"} & set(texts[:3]) for texts in words):
        return
    built = set(built_images(document, file))
    if len(built) != 1 or any(is_open(name) or not name for name in built):
        return
    (only,) = built
    used = {one.box.image for one in found}
    if only in used or f"{only}:latest" in used or only.removesuffix(":latest") in used:
        return
    for each in found:
        image = each.box.image
        known: dict[str, Any] = {"image": image, "built": only}
        is_same = image.partition(":")[0] == only.partition(":")[0]
        is_near = "/" not in image and bool(get_close_matches(image, [only], 1, NEAR))
        if not is_open(image) and (is_same or is_near):
            yield from drafts(release, LINK, each.box.place, form="image", invocation=each.docker, **known)
            return


def _is_docker(command: ShellCommand) -> bool:
    first = [word.text for word in command.words[:2] if word.text != "sudo"]
    return bool(first) and file_name(first[0]) in ("docker", "podman")


def _variables(one: _Container, text: str, release: str) -> Iterator[Draft]:
    """``-e HF_TOKEN`` of a variable that is not exported, and ``-e 'HF_TOKEN=$HF_TOKEN'``."""
    words = one.docker.values("-e", "--env")
    lines = lines_of(text) if words else ()
    for word in words:
        name, sign, value = word.text.partition("=")
        line = lines[word.line - 1] if 0 < word.line <= len(lines) else ""
        if not sign and re.fullmatch(r"[A-Z][A-Z0-9_]*", name):
            assigned = re.search(rf"^[ \t]*{name}=[^\n]*$", text, re.MULTILINE)
            exported = re.search(rf"\b(?:export|declare|typeset|set -a|set -o allexport)\b[^\n]*(?:{name}\b|$)", text)
            read = re.search(r"^[ \t]*(?:source|\.|set -a|read)[ \t]", text, re.MULTILINE)
            first = text.count("\n", 0, assigned.start()) + 1 if assigned else word.line
            is_apart = any(FENCE.match(each) for each in lines[first : word.line])  # a file that the page shows
            if first < word.line and not exported and not read and not is_apart:
                yield from drafts(release, "not-handed-in", word, form="bare", file=one.box.file, name=name)
        elif (
            sign and VARIABLE.search(value) and f"'{word.text}'" in line and not re.search(r"\b(?:bash|sh) -c\b", line)
        ):
            known: dict[str, Any] = {"name": name, "value": value}
            yield from drafts(release, "not-handed-in", word, form="single quotes", file=one.box.file, **known)
