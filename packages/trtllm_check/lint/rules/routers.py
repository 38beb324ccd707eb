"""Routers in front of servers of the same text: ports of workers that no server has, and a router on a worker's port.

Read are vLLM's and SGLang's routers, and the file of trtllm-serve's disaggregated server.
"""

import re
from collections.abc import Iterator

from trtllm_check.lint.document import Document
from trtllm_check.lint.endpoints import published_ports
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.shell.words import ShellCommand, Word, file_name, word_at

RULE = "router-port"
ROUTERS = ("vllm-router", "vllm_router.app", "sglang_router.launch_router", "sglang-router", "launch_router")
WORKERS = ("--worker-urls", "--static-backends", "--prefill", "--decode", "--prefill-urls", "--decode-urls")
LOCAL = re.compile(r"(?:https?://)?(?:localhost|127\.0\.0\.1|0\.0\.0\.0):(?P<port>\d{2,5})(?![\d.])")
DISAGGREGATED = re.compile(r"^[ \t]*(?:context_servers|generation_servers)[ \t]*:", re.MULTILINE)
LISTENS = re.compile(r"(?:^|[\s,{\"'])--(?:server[_-])?(?:http[_-])?port(?:[=\s\"',]+)(?P<port>[^\s\"',]+)")
SERVERS = re.compile(r"vllm serve|vllm\.entrypoints|trtllm-serve|launch_server|mocker|llm-d-sim|echo_server")
BY_DEFAULT = 8000  # of vLLM and trtllm-serve
FIRST_WORDS = 6  # python3 -m sglang_router.launch_router, behind a launcher
# What starts servers that the text does not show, or shows as a pattern.
ELSEWHERE = re.compile(
    r"\bssh\b|\bsrun\b|kubectl|docker[ -]compose|^services:|port-forward|for .*;? ?do|\bseq\b|\.sh\b|nginx",
    re.MULTILINE,
)


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    for file, text in document.texts:
        workers = [*_of_routers(document, file), *_of_the_file(text)]
        if not workers or ELSEWHERE.search(text):
            continue
        ports = _listening(document, file)
        if not ports or 0 in ports:
            continue
        for word, port in workers:
            if port not in ports:
                known = ", ".join(map(str, sorted(ports)))
                yield from drafts(platform.release.name, RULE, word, file=file, port=port, known=known)
    for command in document.commands:
        yield from _own(command, platform.release.name)


def _of_routers(document: Document, file: str) -> Iterator[tuple[Word, int]]:
    """The local workers of the routers' commands."""
    for command in document.commands:
        if command.file == file and _is_router(command):
            yield from ((word, port) for word, port in _workers(command) if not is_open(word.text))


def _workers(command: ShellCommand) -> Iterator[tuple[Word, int]]:
    """Every local address behind one of the options for workers."""
    inside = False
    for word in command.words:
        flag, _, value = word.text.partition("=")
        inside = flag in WORKERS if word.text.startswith("-") else inside
        if inside:
            for match in LOCAL.finditer(value or word.text):
                yield word, int(match["port"])


def _is_router(command: ShellCommand) -> bool:
    return any(file_name(word.text) in ROUTERS for word in command.words[:FIRST_WORDS])


def _of_the_file(text: str) -> Iterator[tuple[Word, int]]:
    """The addresses below ``context_servers`` and ``generation_servers``, in a text that starts the servers too."""
    match = DISAGGREGATED.search(text)
    if match is None or not SERVERS.search(text):
        return
    for found in re.finditer(r"[\"'](?P<address>(?:localhost|127\.0\.0\.1|0\.0\.0\.0):(?P<port>\d{2,5}))[\"']", text):
        if found.start() > match.start():
            yield word_at(text, found.start("address"), found["address"]), int(found["port"])


def _listening(document: Document, file: str) -> set[int]:
    """The ports of the text's servers; 0 among them where one is not told."""
    ports: set[int] = set()
    for command in document.commands:
        whole = " ".join(word.text for word in command.words)
        if command.file != file or _is_router(command) or not (SERVERS.search(whole) or LISTENS.search(whole)):
            continue
        given = [match["port"] for match in LISTENS.finditer(whole)]
        if "disaggregated" in whole:
            continue
        ports |= {_number(text) for text in given}
        if not given:
            ports.add(BY_DEFAULT if any(name in whole for name in ("vllm", "trtllm-serve")) else 0)
    for docker in document.of("docker"):
        if docker.command.file == file:
            ports |= {host for host, _ in published_ports(docker)}
            if any(is_open(word.text) for word in docker.values("-p", "--publish")):
                ports.add(0)
    return ports


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else 0


def _own(command: ShellCommand, release: str) -> Iterator[Draft]:
    """A router that listens on the port of one of its local workers."""
    if not _is_router(command):
        return
    whole = " ".join(word.text for word in command.words)
    own = [_number(match["port"]) for match in LISTENS.finditer(whole)]
    for word, port in _workers(command):
        if own and port == own[-1] and port:
            yield from drafts(release, RULE, word, form="own", file=command.file, port=port)
            return
