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
SCRAPE = re.compile(r"\bscrape_configs:|\bstatic_configs:")
NGINX, PROMETHEUS = re.compile(r"(?:^|/)(?:nginx|openresty)(?::|$)"), re.compile(r"(?:^|/)prometheus(?::|$)")
LOOPBACK = ("localhost", "127.0.0.1")
NEAR = 0.8


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    services = [box for box in boxes(document) if box.workload is not None and box.workload.kind == "compose"]
    if len(services) < 2:
        return
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


def _inside(box: Box) -> set[int]:
    return {inside for _, inside in box.ports} | set(box.listens())


def _ports(box: Box) -> set[int]:
    return _inside(box) | {host for host, _ in box.ports}
