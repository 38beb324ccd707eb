"""Two servers that a text starts together on one port of the host, and two containers of one name.

Together means: in one script, or in one block of a page, with nothing between that stops the first, and no branch and
no remark that the second is another way. A server in a shell's foreground ends before the next command begins.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from trtllm_check.lint.document import Document
from trtllm_check.lint.endpoints import published_ports
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.kinds import kind_of_name, kind_of_text
from trtllm_check.lint.shell.pasted import fences
from trtllm_check.lint.shell.words import Word, lines_of

NAME_RULE, PORT_RULE = "container-name-twice", "port-twice"
DEFAULT_PORTS = {"vllm": 8000, "trtllm-serve": 8000}
BEHIND = re.compile(r"(?<![&>|])&\s*(?:#.*)?$")
# What stops the first, or makes the second another way: branches, functions, other machines, remarks.
APART = re.compile(
    r"\b(?:stop|kill|pkill|killall|rm|down|prune|restart|rename|exit|return|shutdown|wait)\b"
    r"|^[ \t]*+(?:else|elif|fi|esac|done|;;|\}|function\b)|\(\)\s*+\{?[ \t]*$|\|\||;;|^[ \t]*cat[ \t]*<<"
    r"|^[ \t]*+(?:if|case|for|while|until)\b|^[ \t]*+[\w./$()-]+:(?:\s|$)|\bssh\b|\bscp\b|\bsrun\b|^[ \t]*+---",
    re.MULTILINE,
)
REMARK = re.compile(
    r"#.*\b(?:or|options?|alternativ\w*|instead|either|otherwise|examples?|variants?|vs|same|again|update|upgrade|node"
    r"|machine|host|server [AB12]|method|way)\b",
    re.IGNORECASE,
)
USE = re.compile(
    r"#.*\b(?:with(?:out)?|using|if|for|to)\b|#.*[^\x00-\x7f]", re.IGNORECASE
)  # on a page: which is for what
ELSEWHERE = ("ssh", "srun", "pdsh", "kubectl", "mpirun", "ansible", "gcloud", "wsl", "timeout")
RUN_WORDS, ADDRESS_PARTS = 2, 3  # run and an image; address, port and port inside
CONNECTED = re.compile(r"\|\||&&")


class _Start(NamedTuple):
    """One start on the host. ``name``: of its container; ``ports``: of the host, with the address they are bound to."""

    one: Invocation
    place: Word
    name: str
    ports: tuple[tuple[str, int], ...]
    lasts: bool
    is_docker: bool


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family: each start against the one before it that has the same name or port."""
    texts = dict(document.texts)
    before: dict[tuple[str, str, int], _Start] = {}
    pages: dict[str, _Page] = {}
    for one in _starts(document, texts):
        file = one.one.command.file
        keys = [(file, "", port) for _, port in one.ports] + ([(file, one.name, 0)] if one.name else [])
        found = {id(before[key]): before[key] for key in keys if key in before}
        for earlier in found.values():
            said = list(_said(earlier, one, platform.release.name))
            if said:
                page = pages.setdefault(file, _Page.of(texts.get(file, ""), file))
                yield from said if page.together(earlier, one) else ()
        before |= dict.fromkeys(keys, one)


def _said(earlier: _Start, later: _Start, release: str) -> Iterator[Draft]:
    line = earlier.place.line
    keeps = earlier.lasts or not earlier.one.has("--rm")
    if later.name and later.name == earlier.name and keeps:
        word = later.one.values("--name")[-1]
        yield from drafts(release, NAME_RULE, word, invocation=later.one, name=later.name, line=line)
    shared = [
        (address, port)
        for address, port in later.ports
        for other, same in earlier.ports
        if port == same and (address == other or not address or not other)
    ]
    if shared and earlier.lasts:
        form = "container" if later.is_docker else "server"
        yield from drafts(
            release,
            PORT_RULE,
            later.place,
            form=form,
            invocation=later.one,
            port=shared[0][1],
            tool=later.one.tool,
            line=line,
        )


def _starts(document: Document, texts: Mapping[str, str]) -> Iterator[_Start]:
    """Containers and servers of the host, in order."""
    for one in document.of("docker", *DEFAULT_PORTS):
        if any(word.text.rpartition("/")[2] in ELSEWHERE for word in one.launcher) or one.image or one.command.image:
            continue
        lines = lines_of(texts.get(one.command.file, ""))
        end = one.command.end_line
        if 0 < end <= len(lines) and lines[one.command.line - 1].lstrip().startswith("Exec"):
            continue  # of a unit, which something else starts
        lasts = 0 < end <= len(lines) and BEHIND.search(lines[end - 1]) is not None
        if one.tool == "docker":
            operands = [word.text for word in one.positional]
            if len(operands) < RUN_WORDS or operands[0] != "run":
                continue
            detached = one.has("-d", "--detach") or any(
                re.fullmatch(r"-[a-z]*d[a-z]*", given.flag) for given in one.given
            )
            name = one.value("--name") or ""
            words = one.values("-p", "--publish")
            ports = () if any("$" in word.text for word in words) else tuple(_bound(one))
            place = words[0] if words else one.path
            yield _Start(one, place, "" if "$" in name else name, ports, detached or lasts, True)
        elif _listens(one):
            given = one.find("--port")
            port = one.value("--port") if given is not None else str(DEFAULT_PORTS[one.tool])
            number = int(port) if port and port.isascii() and port.isdecimal() and len(port) < 6 else 0
            place = given.word if given is not None else one.path
            yield _Start(one, place, "", (("", number),) if number else (), lasts, False)


def _listens(one: Invocation) -> bool:
    """True for a server that the text gives all its options."""
    first = one.positional[0].text if one.positional else ""
    if any("$" in word.text or "{" in word.text for word in one.arguments) or one.has(
        "--config", "--uds", "--headless"
    ):
        return False
    return one.arguments != () and (
        first == "serve" if one.tool == "vllm" else first not in ("disaggregated", "mm_embedding_serve")
    )


def _bound(docker: Invocation) -> Iterator[tuple[str, int]]:
    """The address and the port of the host of each ``-p``; of TCP alone."""
    if docker.value("--network", "--net") == "host":
        return
    addresses = {}
    for word in docker.values("-p", "--publish"):
        parts = word.text.split(":")
        if len(parts) == ADDRESS_PARTS:
            addresses[parts[1]] = "" if parts[0] == "0.0.0.0" else parts[0]
    for host, _ in published_ports(docker):
        yield addresses.get(str(host), ""), host


class _Page(NamedTuple):
    """A text whose commands may run one after the other: its lines, and the blocks of a page as lines.

    ``is_script``: it is no page; ``is_run``: its first line says what runs it.
    """

    lines: tuple[str, ...]
    blocks: tuple[tuple[int, int], ...]
    is_script: bool
    is_run: bool

    @classmethod
    def of(cls, text: str, file: str) -> "_Page":
        blocks = tuple((text.count("\n", 0, block.start), text.count("\n", 0, block.end) + 1) for block in fences(text))
        is_script = not blocks and kind_of_name(file) in (None, "shell") and kind_of_text(text) == "shell"
        return cls(lines_of(text), blocks, is_script, text.startswith("#!"))

    def together(self, earlier: _Start, later: _Start) -> bool:
        """True where both run, one after the other, on one machine."""
        first, last = earlier.one.command, later.one.command
        if first.end_line >= last.line:
            return False
        lines = self.lines[first.end_line : last.line - 1]
        between = "\n".join(lines)
        joined = "\n".join([*self.lines[first.line - 1 : first.end_line], *self.lines[last.line - 1 : last.end_line]])
        indents = {_indent(self.lines[command.line - 1]) for command in (first, last)}
        if len(indents) > 1 or APART.search(between) or REMARK.search(between) or CONNECTED.search(joined):
            return False
        if not self.is_run and "#" not in between and not all(map(str.strip, lines)):
            return False  # blank lines alone part the ways of somebody's notes
        in_a_block = any(start < first.line <= last.end_line <= end for start, end in self.blocks)
        return self.is_script or (in_a_block and not USE.search(between))


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
