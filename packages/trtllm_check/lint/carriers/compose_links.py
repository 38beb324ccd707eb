"""Services of one file of docker compose that ask each other: by which name, over which network, with which key."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

from trtllm_check.lint.carriers.faults import FormFault
from trtllm_check.lint.carriers.settings import Setting
from trtllm_check.lint.programs import VLLM_IMAGE

ADDRESS = re.compile(r"(?P<scheme>https?)://(?P<host>[A-Za-z][\w.-]*):(?P<port>\d{2,5})(?P<path>/[^\s\"']*)?")
HOSTS = ("localhost", "host.docker.internal", "gateway.docker.internal", "host-gateway")
KEY = re.compile(r"(?:OPENAI|LLM|VLLM)_(?:API_)?KEYS?")
OWN_KEY = re.compile(r"--api-key[= ]+(?P<key>[^\s\"']+)")
TLS = re.compile(r"--ssl-(?:certfile|keyfile)")
HEALTH = (
    "/health",
    "/ping",
    "/v1/models",
    "/metrics",
    "/version",
    "/load",
    "/docs",
    "/openapi.json",
    "/server_info",
    "/",
)
LOCAL = re.compile(r"https?://(?:localhost|127\.0\.0\.1|0\.0\.0\.0):\d{2,5}(?P<path>/[\w./-]*)")
NO_KEYS = (
    "",
    "none",
    "empty",
    "dummy",
    "null",
    "na",
    "n/a",
    "x",
    "sk-no-key-required",
    "not-needed",
    "unused",
    "fake",
    "vllm",
)
SPACED = re.compile(r"(?P<name>[A-Z][A-Z0-9_]*)(?P<before>[ ]+)=(?P<after>[ ]*)(?P<value>\S.*)?")
NEAR = 0.8


def link_faults(named: Mapping[str, Setting], *, is_whole: bool) -> Iterator[FormFault]:
    """The faults between the services of one file."""
    aliases = {alias: name for name, one in named.items() for alias in _names(name, one)}
    yield from _of_shared(_link_faults(named, aliases, is_whole=is_whole), named)


def _of_shared(found: Iterator[FormFault], named: Mapping[str, Setting]) -> Iterator[FormFault]:
    """Without an address that several services take from one place, where one of them gets to it."""
    users = Counter(
        (value.place.line, value.place.column) for service in named.values() for value in values_of(service)
    )
    faults = list(found)
    said = Counter((one.place.line, one.place.column) for one in faults if one.form == "apart")
    for one in faults:
        place = (one.place.line, one.place.column)
        if one.form != "apart" or said[place] >= users[place]:
            yield one


def _link_faults(named: Mapping[str, Setting], aliases: Mapping[str, str], *, is_whole: bool) -> Iterator[FormFault]:
    for name, service in named.items():
        yield from _spaced(service)
        yield from _health(service)
        if service.at("network_mode") is not None or service.at("<<") is not None or not is_whole:
            continue
        for value in values_of(service):
            for match in ADDRESS.finditer(value.text):
                yield from _asked(name, service, value, match, aliases, named)


def _fault(form: str, at: Setting, **known: Any) -> FormFault:
    return FormFault("compose-together", at.place, form, tuple((name, str(value)) for name, value in known.items()))


def _text(setting: Setting | None) -> str:
    return setting.text if setting is not None and setting.kind in ("text", "number") else ""


def values_of(service: Setting) -> Iterator[Setting]:
    """The variables and the words that a service starts with."""
    for part in ("environment", "command", "entrypoint"):
        found = service.at(part)
        if found is not None:
            yield from (found.parts or tuple(value for _, value in found.items) or (found,))


def _words(service: Setting) -> str:
    parts = (service.at("entrypoint"), service.at("command"))
    return " ".join(one.text for part in parts if part is not None for one in (part.parts or (part,)))


def _names(name: str, service: Setting) -> Iterator[str]:
    """What others call a service."""
    yield name
    for field in ("container_name", "hostname"):
        yield _text(service.at(field))
    networks = service.at("networks")
    for _, network in networks.items if networks is not None else ():
        aliases = network.at("aliases")
        yield from (one.text for one in (aliases.parts if aliases is not None else ()))


def _networks(service: Setting) -> frozenset[str] | None:
    """The networks of a service; None where they are not told."""
    networks = service.at("networks")
    if networks is None:
        return frozenset({"default"})
    if networks.kind == "list":
        return frozenset(one.text for one in networks.parts)
    return frozenset(value.written for _, value in networks.items) if networks.kind == "table" else None


def _asked(
    name: str,
    service: Setting,
    value: Setting,
    match: re.Match[str],
    aliases: Mapping[str, str],
    named: Mapping[str, Setting],
) -> Iterator[FormFault]:
    """One address of another service."""
    host = match["host"]
    if host in HOSTS or "." in host or host == name:
        return
    if host not in aliases:
        linked = any(service.at(field) is not None for field in ("links", "external_links", "extra_hosts"))
        close = [one for one in named if one != name and _alike(host, one)]
        if len(close) == 1 and not linked and not value.written.upper().startswith(("NO_PROXY", "ALLOWED")):
            yield _fault("host", value, address=match[0], name=host, right=close[0])
        return
    target = named[aliases[host]]
    if target.at("<<") is not None or target.at("extends") is not None:
        return
    mode = _text(target.at("network_mode"))
    own, other = _networks(service), _networks(target)
    if mode == "host":
        yield _fault("host mode", value, address=match[0], name=host, port=match["port"])
    elif not mode and own is not None and other is not None and not own & other:
        yield _fault("apart", value, address=match[0], name=host, other=", ".join(sorted(other)))
    if VLLM_IMAGE.search(_text(target.at("image"))) is None:
        return
    words = _words(target)
    if match["scheme"] == "https" and not TLS.search(words) and "--config" not in words and "$" not in words:
        yield _fault("scheme", value, address=match[0], name=host, right=match[0].replace("https", "http", 1))
    yield from _key(service, OWN_KEY.search(words), host)


def _alike(one: str, other: str) -> bool:
    return (
        one.startswith((f"{other}-", f"{other}_"))
        or other.startswith((f"{one}-", f"{one}_"))
        or bool(get_close_matches(one, [other], 1, NEAR))
    )


def _key(service: Setting, own: re.Match[str] | None, name: str) -> Iterator[FormFault]:
    """``OPENAI_API_KEY=none`` for a server with a key."""
    environment = service.at("environment")
    if own is None or "$" in own["key"] or environment is None or own["key"].lower() in NO_KEYS:
        return
    for one in environment.parts or tuple(value for _, value in environment.items):
        key, _, text = one.text.partition("=") if environment.kind == "list" else (one.written, "", one.text)
        if KEY.fullmatch(key) and text.strip("\"'").lower() in NO_KEYS:
            yield _fault("key", one, name=name, given=text or "no key")
            return


def _health(service: Setting) -> Iterator[FormFault]:
    """A test that asks vLLM for a path that it has not."""
    test = service.at("healthcheck", "test")
    if test is None or VLLM_IMAGE.search(_text(service.at("image"))) is None or "root-path" in _words(service):
        return
    asked = LOCAL.search(" ".join(one.text for one in (test.parts or (test,))))
    if asked is not None and not any(fnmatchcase(asked["path"], path) for path in HEALTH):
        yield _fault("health path", test, path=asked["path"])


def _spaced(service: Setting) -> Iterator[FormFault]:
    """``- HF_TOKEN = hf_x``: a variable whose name ends with a blank."""
    environment = service.at("environment")
    for one in environment.parts if environment is not None and environment.kind == "list" else ():
        match = SPACED.fullmatch(one.text)
        if match is not None:
            right = f"{match['name']}={match['value'] or ''}"
            yield _fault("blanks", one, name=match["name"], right=right)
