"""docker compose's files against the fields that it has, and the names in them against each other."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from trtllm_check.lint.carriers.compose_links import link_faults
from trtllm_check.lint.carriers.faults import FormFault
from trtllm_check.lint.carriers.overrides import COMMENT
from trtllm_check.lint.carriers.schema import Schema, read_table, read_types
from trtllm_check.lint.carriers.settings import Place, Setting, from_yaml
from trtllm_check.lint.programs import VLLM_IMAGE

FILE = "compose.yml"
DEEPEST = 16
TOP = "services"
OTHERS = ("apiVersion", "jobs", "stages", "kind", "script", "on", "steps")
EXTENSION = re.compile(r"x-")
NAMED = re.compile(r"[A-Za-z0-9][\w.-]+")
TESTS = ("CMD", "CMD-SHELL", "NONE")
PROGRAM = re.compile(r"(?:curl|wget)(?=\s)")
LOCAL = re.compile(r"https?://(?:localhost|127\.0\.0\.1):(?P<port>\d{2,5})(?=[/\s\"']|$)")
OF_SERVICE = re.compile(r"https?://(?P<host>[A-Za-z][\w.-]*):(?P<port>\d{2,5})(?=[/\s\"']|$)")
OWN_PORT = re.compile(r"--port[= ]+(?P<port>\d+)")
IN_A_SHELL = re.compile(r"(?:^|\s)-\w*c\s|\$\(|<<|&&|\bsh\b")
LINE_END = re.compile(r"\\\s+-")
RESTART = re.compile(r"no|always|unless-stopped|on-failure(?::\d+)?|.*[${].*")
OPENAI_BASE = re.compile(r"(?:OPENAI|LLM|VLLM)_(?:API_)?BASE(?:_URLS?)?")
CLIENTS = re.compile(  # which add a path to the address as it is
    r"open-?webui|litellm|librechat|anything-?llm|lobe-?chat|flowise|dify|langflow|n8n|chat-ui|nextchat", re.IGNORECASE
)
BARE_ADDRESS = re.compile(r"https?://(?P<host>[A-Za-z][\w.-]*)(?::\d{2,5})?/?")
DEFAULT_NETWORK = "default"
# Variables with addresses for a browser, which is on the host.
FOR_BROWSERS = re.compile(
    r"ORIGIN|CORS|REDIRECT|PUBLIC|REACT_APP|FRONT|CALLBACK|EXTERNAL|VITE|WEBUI_URL|SITE|HOSTNAME|ALLOWED", re.IGNORECASE
)


def faults(node: Any, place: Place) -> Iterator[FormFault]:
    """The faults of one document; of what is no file of docker compose none."""
    top = from_yaml(node, place, DEEPEST)
    services = top.at(TOP)
    if services is None or services.kind != "table" or any(top.at(name) is not None for name in OTHERS):
        return
    named = {one.written: one for _, one in services.items if one.kind == "table"}
    if not named or not all(_is_service(one) for one in named.values()):
        return
    for problem in _schema().problems(top, "Project"):
        rule = "compose-value" if problem.form in ("kind", "choice") else "compose-field"
        yield FormFault(rule, problem.setting.place, problem.form, problem.known)
    extends = any(one.at("extends") is not None for one in named.values())
    is_part = _is_overlay(top, named) or _is_a_part(top, named)
    is_whole = top.at("include") is None and not extends and not is_part
    seen: set[str] = set()
    for name, service in named.items():
        yield from _health(service)
        yield from _health_port(service)
        yield from _absent(service)
        yield from _command(service)
        yield from _restart(service)
        yield from _without_v1(service, named)
        if is_whole:
            yield from _depends(service, name, named)
            yield from _volumes(service, top.at("volumes"))
            yield from _networks(service, top.at("networks"), seen)
        yield from _addresses(service, name, named)
    yield from _ports(named)
    yield from link_faults(named, is_whole=is_whole)


def _is_overlay(top: Setting, named: dict[str, Setting]) -> bool:
    """True for a file that goes over another one: what a service depends on, and its network, are both not here."""
    if top.at("networks") is not None:
        return False
    absent, inside = False, False
    for service in named.values():
        depends, networks = service.at("depends_on"), service.at("networks")
        others = (
            [one.written or one.text for one in (depends.parts or tuple(v for _, v in depends.items))]
            if depends
            else []
        )
        absent = absent or any(other not in named for other in others)
        inside = inside or (networks is not None and any(one.text != DEFAULT_NETWORK for one in networks.parts))
    return absent and inside


def _is_a_part(top: Setting, named: dict[str, Setting]) -> bool:
    """True for services alone, on networks or with secrets of a file that includes them or is read with them."""
    if any(key != TOP for key, _ in top.items):
        return False
    shared = (one for service in named.values() for field in ("networks", "secrets") if (one := service.at(field)))
    return any((part.text or part.written) != DEFAULT_NETWORK for one in shared for part in one.parts or (one,))


@cache
def _schema() -> Schema:
    return Schema(read_types(FILE), EXTENSION)


def _is_service(one: Setting) -> bool:
    return any(one.at(name) is not None for name in ("image", "build", "extends", "<<"))


def _fault(form: str, at: Setting, **known: Any) -> FormFault:
    return FormFault("compose-together", at.place, form, tuple((name, str(value)) for name, value in known.items()))


def _text(setting: Setting | None) -> str:
    return setting.text if setting is not None and setting.kind in ("text", "number") else ""


def _is_open(service: Setting) -> bool:
    return service.at("<<") is not None or service.at("extends") is not None


def _health(service: Setting) -> Iterator[FormFault]:
    """``test: ["curl", ...]``."""
    test = service.at("healthcheck", "test")
    if test is not None and test.kind == "list" and test.parts and test.parts[0].kind == "text":
        first = test.parts[0].text
        if first not in TESTS:
            yield _fault("test", test, first=first)
        elif first == "CMD" and len(test.parts) == 2 and re.fullmatch(r"\S+ +\S.*", test.parts[1].text):
            yield _fault("test in one", test.parts[1], first=test.parts[1].text)


def _absent(service: Setting) -> Iterator[FormFault]:
    """A check by curl or wget in an image that does not have it."""
    test, image = service.at("healthcheck", "test"), _text(service.at("image"))
    words = [one.text for one in (test.parts or (test,))] if test is not None else []
    if test is None or _is_open(service) or service.at("build") is not None:
        return
    first = PROGRAM.match(" ".join(words[1:] if words[:1] and words[0] in TESTS else words))
    for entry in read_table(FILE)["without"] if first is not None else ():
        if first is not None and first[0] in entry["programs"] and re.search(entry["image"], image):
            yield _fault("no curl", test, program=first[0], image=image, instead=entry["instead"])


def _vllm_port(service: Setting) -> str:
    """The port that vLLM listens on in this service; "" where that is not told."""
    command = service.at("command")
    if command is None or not VLLM_IMAGE.search(_text(service.at("image"))) or _is_open(service):
        return ""
    words = " ".join(one.text for one in (command.parts or (command,)))
    if service.at("entrypoint") is not None or "--config" in words or "$" in words:
        return ""
    given = OWN_PORT.search(words)
    return given["port"] if given else "8000"


def _health_port(service: Setting) -> Iterator[FormFault]:
    """A test that asks its own container at a port where vLLM does not listen."""
    test, port = service.at("healthcheck", "test"), _vllm_port(service)
    if test is None or not port:
        return
    asked = LOCAL.search(" ".join(one.text for one in (test.parts or (test,))))
    if asked is not None and asked["port"] != port:
        yield _fault("health port", test, asked=asked["port"], port=port)


def _command(service: Setting) -> Iterator[FormFault]:
    """Signs of a shell in a command that no shell reads: a backslash at a line's end, a comment."""
    command = service.at("command")
    entry = service.at("entrypoint")
    started = [one.text for one in (entry.parts or (entry,))] if entry is not None else []
    if command is None or command.kind != "text" or IN_A_SHELL.search(" ".join([*started, command.text, ""])):
        return
    if LINE_END.search(command.text):
        yield _fault("backslash", command)
    elif (comment := COMMENT.search(command.text)) is not None:
        known = (("comment", comment[0].strip()),)
        yield FormFault("compose-together", command.place.part(*comment.span()), "comment", known)


def _is_a_client(service: Setting) -> bool:
    return service.at("build") is None and CLIENTS.search(_text(service.at("image"))) is not None


def _restart(service: Setting) -> Iterator[FormFault]:
    value = service.at("restart")
    if value is not None and value.kind == "text" and not RESTART.fullmatch(value.text):
        yield _fault("restart", value, value=value.text)


def _without_v1(service: Setting, named: dict[str, Setting]) -> Iterator[FormFault]:
    """``OPENAI_API_BASE_URL=http://server:8000`` for a server whose paths begin with /v1."""
    environment = service.at("environment")
    if environment is None:
        return
    for value in environment.parts or tuple(one for _, one in environment.items):
        name, _, text = value.text.partition("=") if environment.kind == "list" else (value.written, "", value.text)
        match = BARE_ADDRESS.fullmatch(text.strip("\"'"))
        is_own = not (name.startswith("OPENAI") or _is_a_client(service))  # a program that may add it
        is_base = OPENAI_BASE.fullmatch(name) is not None and not is_own
        target = named.get(match["host"]) if match is not None and is_base else None
        if match is not None and target is not None and VLLM_IMAGE.search(_text(target.at("image"))):
            yield _fault("no v1", value, name=name, right=f"{match[0].rstrip('/')}/v1")


def _depends(service: Setting, name: str, named: dict[str, Setting]) -> Iterator[FormFault]:
    """A service that is not there, and one whose health nobody asks for."""
    depends = service.at("depends_on")
    if depends is None:
        return
    entries = depends.parts if depends.kind == "list" else tuple(value for _, value in depends.items)
    for one in entries:
        other = one.text if depends.kind == "list" else one.written
        if other not in named and NAMED.fullmatch(other):
            yield _fault("undefined", one, what=f"service {name!r} depends on undefined service", name=other)
        elif _text(one.at("condition")) == "service_healthy":
            target = named.get(other)
            tested = target is None or target.at("healthcheck") is not None or _is_open(target)
            if not tested and target is not None and target.at("build") is None:
                yield _fault("no health", one, name=other)


def _volumes(service: Setting, declared: Setting | None) -> Iterator[FormFault]:
    names = {value.written for _, value in declared.items} if declared is not None else set()
    volumes = service.at("volumes")
    if declared is not None and declared.kind == "open":
        return
    for one in volumes.parts if volumes is not None and not _is_open(service) else ():
        source, sign, inside = one.text.partition(":")
        if one.kind == "text" and sign and inside.startswith("/") and NAMED.fullmatch(source) and source not in names:
            yield _fault("volume", one, name=source)


def _networks(service: Setting, declared: Setting | None, seen: set[str]) -> Iterator[FormFault]:
    """Networks that nothing declares, each once. A file without any may be a part that another one includes."""
    names = {value.written for _, value in declared.items} if declared is not None else set()
    networks = service.at("networks")
    if networks is None or _is_open(service):
        return
    for one in networks.parts if networks.kind == "list" else tuple(value for _, value in networks.items):
        name = one.text if networks.kind == "list" else one.written
        if NAMED.fullmatch(name) and name not in names and name not in seen and name != DEFAULT_NETWORK:
            seen.add(name)
            form = "undefined" if declared is not None else "undefined, perhaps"
            yield _fault(form, one, what="service refers to undefined network", name=name)


def _published(service: Setting) -> Iterator[tuple[str, str, Setting]]:
    """Host's address and port, the port inside, and where it stands."""
    ports = service.at("ports")
    for one in ports.parts if ports is not None else ():
        published, target = _text(one.at("published")), _text(one.at("target"))
        if published.isdecimal() and target.isdecimal():
            yield published, target, one
        host, sign, inside = one.text.partition("/")[0].rpartition(":")
        if one.kind == "text" and sign and host.rpartition(":")[2].isdecimal() and inside.isdecimal():
            yield host, inside, one


def _ports(named: dict[str, Setting]) -> Iterator[FormFault]:
    """Two services with one port of the host, which are up together: always, or with a profile that both are in."""
    seen: dict[tuple[str, str], str] = {}
    for name, service in named.items():
        profiles = _profiles(service)
        for host, _, one in _published(service):
            taken = [(profile, seen[host, profile]) for profile in profiles if seen.get((host, profile), name) != name]
            for profile, other in taken[:1]:
                yield _fault("port, profile" if profile else "port", one, port=host, name=other, profile=profile)
            for profile in profiles:
                seen.setdefault((host, profile), name)


def _profiles(service: Setting) -> list[str]:
    """The profiles that bring a service up; one without a name for a service that is always up."""
    profiles = service.at("profiles")
    if profiles is None:
        return [""]
    return [one.text for one in profiles.parts if one.kind == "text" and one.text and "$" not in one.text]


def _addresses(service: Setting, name: str, named: dict[str, Setting]) -> Iterator[FormFault]:
    """Where a service looks for another one: at its own loopback, or at the port of the host."""
    if _is_host(service):
        return
    others = {other: one for other, one in named.items() if other != name}
    own = {inside for _, inside, _ in _published(service)}
    for value in _values(service):
        name_of = value.text.partition("=")[0] if not OF_SERVICE.match(value.text) else value.written
        for match in () if FOR_BROWSERS.search(name_of) else LOCAL.finditer(value.text):
            port = match["port"]
            found = [(other, inside) for other, one in others.items() for host, inside, _ in _published(one)
                     if host.rpartition(":")[2] == port]  # fmt: skip
            if len(found) == 1 and port not in own:
                other, inside = found[0]
                yield _fault("loopback", value, address=match[0], name=other, right=f"http://{other}:{inside}")
        for match in OF_SERVICE.finditer(value.text):
            target = others.get(match["host"])
            pairs = [(host.rpartition(":")[2], inside) for host, inside, _ in _published(target)] if target else []
            right = [inside for host, inside in pairs if host == match["port"] and inside != host]
            if (
                len(right) == 1
                and match["port"] not in {inside for _, inside in pairs}
                and not _mentions(target, match)
            ):
                yield _fault(
                    "host port", value, address=match[0], name=match["host"], right=right[0], port=match["port"]
                )
            elif target is not None and (port := _vllm_port(target)) and port != match["port"]:
                yield _fault("server port", value, address=match[0], name=match["host"], port=port)


def _mentions(target: Setting | None, match: re.Match[str]) -> bool:
    """True where the other service says the port itself: it may well listen there."""
    return target is not None and any(match["port"] in value.text for value in _values(target))


def _is_host(service: Setting) -> bool:
    return service.at("network_mode") is not None


def _values(service: Setting) -> Iterator[Setting]:
    for part in ("environment", "command", "entrypoint"):
        found = service.at(part)
        if found is not None:
            yield from (found.parts or tuple(value for _, value in found.items) or (found,))
