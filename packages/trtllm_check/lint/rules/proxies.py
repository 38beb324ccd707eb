"""nginx and Prometheus beside services of compose: where they look for the servers."""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.rules.box import Box, boxes
from trtllm_check.lint.shell.words import word_at

PASSED = re.compile(
    r"(?P<what>\bproxy_pass[ \t]+https?://|^[ \t]*server[ \t]+(?=[\w.-]+:\d))"
    r"(?P<address>(?P<host>[A-Za-z][\w-]*|127\.0\.0\.1)"
    r":(?P<port>\d{2,5}))(?=[/;\s])",
    re.MULTILINE,
)
SCRAPED = re.compile(
    r"(?:\btargets:[ \t]*\[[^\]\n]*?|^[ \t]*-[ \t]+)[\"']"
    r"(?P<address>(?P<host>[A-Za-z][\w-]*|127\.0\.0\.1):(?P<port>\d{2,5}))[\"']",
    re.MULTILINE,
)
SERVED = re.compile(r"(?<![\w./-])(?:\w+://)?(?P<host>[A-Za-z][\w-]*):(?P<port>\d{4,5})(?![\d:])")
SCRAPE = re.compile(r"\bscrape_configs:|\bstatic_configs:")
NGINX, PROMETHEUS = re.compile(r"(?:^|/)(?:nginx|openresty)(?::|$)"), re.compile(r"(?:^|/)prometheus(?::|$)")
LOOPBACK = ("localhost", "127.0.0.1")
NEAR = 0.8


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    services = [box for box in boxes(document) if box.workload is not None and box.workload.kind == "compose"]
    if len(services) < 2:
        return
    yield from _services(services, platform.release.name)
    for pattern, image, is_scrape in ((PASSED, NGINX, False), (SCRAPED, PROMETHEUS, True)):
        own = next((box for box in services if image.search(box.image)), None)
        if own is None or own.host_network:
            continue
        for file, text in document.texts:
            if is_scrape and not SCRAPE.search(text):
                continue
            upstreams = set(re.findall(r"\bupstream[ \t]+([\w.-]+)", text))
            for match in pattern.finditer(text):
                if match["host"] not in upstreams:
                    yield from _address(match, own, services, (file, text), platform.release.name)


def _address(
    match: re.Match[str], own: Box, services: list[Box], source: tuple[str, str], release: str
) -> Iterator[Draft]:
    """One address in a container of nginx's or Prometheus's."""
    file, text = source
    port, host = int(match["port"]), match["host"]
    place = word_at(text, match.start("address"), match["address"])
    names = {box.workload.owner: box for box in services if box.workload is not None}
    others = [name for name, box in names.items() if box is not own and port in _ports(box)]
    known: dict[str, Any] = {"address": match["address"], "name": host}
    if host in LOOPBACK:
        if len(others) == 1 and port not in _inside(own):
            inside = names[others[0]].listens()
            known |= {"name": others[0], "right": f"{others[0]}:{(inside or (port,))[0]}"}
            yield from drafts(release, "compose-together", place, form="loopback", file=file, **known)
    elif host in names:
        listens = names[host].listens()
        if listens and port not in listens:
            known["port"] = listens[0]
            yield from drafts(release, "compose-together", place, form="server port", file=file, **known)
    else:
        serving = [name for name, box in names.items() if box.serves is not None]
        close = [name for name in serving if name.startswith(host) or host.startswith(name)]
        close = close or get_close_matches(host, serving, 1, NEAR)
        if len(close) == 1 and len(names) == len(services):
            known["right"] = close[0]
            yield from drafts(release, "compose-together", place, form="host", file=file, **known)


def _services(services: list[Box], release: str) -> Iterator[Draft]:
    """``TRITON_URL=triton:9000``, where the other service's server has other ports. vLLM's: carriers/compose.py."""
    names = {box.workload.owner: box for box in services if box.workload is not None}
    for box in services:
        for word in (*box.settings.values(), *box.words):
            for match in SERVED.finditer(word.text):
                target = names.get(match["host"])
                engine = target.serves if target is not None else None
                if target is None or target is box or engine is None or engine.name == "vllm" or target.host_network:
                    continue
                listens, port = target.listens(), int(match["port"])
                if listens and port not in listens and str(port) not in target.text:
                    known: dict[str, Any] = {"address": match[0], "name": match["host"], "port": listens[0]}
                    yield from drafts(release, "compose-together", word, form="server port", file=box.file, **known)


def _inside(box: Box) -> set[int]:
    return {inside for _, inside in box.ports} | set(box.listens())


def _ports(box: Box) -> set[int]:
    return _inside(box) | {host for host, _ in box.ports}
