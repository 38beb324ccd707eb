"""The metrics of Triton on this machine, where the one container of the text does not publish their port."""

import re
from collections.abc import Iterator

from serving_base.facts import TRITON_PORTS
from trtllm_check.lint.document import Document
from trtllm_check.lint.endpoints import SERVERS, published_ports
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.shell.words import word_at

RULE = "wrong-port"
ADDRESS = re.compile(r"(?P<url>(?:https?://)?(?:localhost|127\.0\.0\.1):(?P<port>\d{2,5}))(?!\d)")
OF_PORTS = ("--metrics-port", "--metrics_port", "--grpc-port", "--grpc_port", "--http-port", "--http_port")
# What makes a port reachable in another way, or the address one within the container.
OTHERWISE = re.compile(
    r"\bdocker(?:-| )compose\b|^services:|\bexec\b|port-forward|\bssh\b|ssh -L|<<|\bdocker network\b"
    r"|--net(?:work)?[= ]|\bnginx\b|\bkubectl\b|\bapiVersion:|HEALTHCHECK",
    re.MULTILINE,
)
RUN_WORDS = 2
METRICS = TRITON_PORTS[2]


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    runs = [one for one in document.of("docker") if [word.text for word in one.positional[:1]] in (["run"], ["create"])]
    if len(runs) != 1 or len(document.texts) != 1 or len(runs[0].positional) < RUN_WORDS:
        return
    file, text = document.texts[0]
    (run,) = runs
    servers = document.of(*SERVERS)
    published = list(published_ports(run))
    if not servers or not published or OTHERWISE.search(text) or any(one.has(*OF_PORTS) for one in servers):
        return
    hosts = {host for host, _ in published}
    inside = {port for _, port in published}
    for match in ADDRESS.finditer(text):
        port = int(match["port"])
        if port == METRICS and port not in hosts and port not in inside:
            place = word_at(text, match.start("url"), match["url"])
            told = ", ".join(map(str, sorted(hosts)))
            yield from drafts(
                platform.release.name, RULE, place, form="unpublished", file=file, port=str(port), published=told
            )
            return
