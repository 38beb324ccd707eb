"""Commands behind a server in the foreground, which never run, and variables of the host that no container sees."""

import posixpath
import re
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.programs import VLLM_IMAGE
from trtllm_check.lint.shell.words import ShellCommand, lines_of

SERVERS = ("vllm", "trtllm-serve", "tritonserver")
CLIENTS = (
    "curl",
    "python",
    "python3",
    "guidellm",
    "lm_eval",
    "genai-perf",
    "aiperf",
    "until",
    "while",
    "pytest",
    "sleep",
    "wget",
    "http",
)
BACKGROUND = re.compile(r"(?<![&>])&(?![&>])")
BRANCH = re.compile(r"^\s*(?:else|elif|fi|done|esac|;;|\}|EOF|trap)\b|^\s*(?:;;|\}|\)|\{)|\bexit\b", re.MULTILINE)
DETACHED = re.compile(r"-[itT]*d[itT]*m?|--detach(?:=true)?|--background")  # of docker, tmux, screen and setsid
PORT = re.compile(r"--(?:http-)?port[= ](?P<port>\d+)")
READ_INSIDE = re.compile(
    r"(?:VLLM|NCCL|SGLANG|TRTLLM)_[A-Z0-9_]+|HF_TOKEN|HUGGING_FACE_HUB_TOKEN|HF_ENDPOINT|(?:CUDA|NVIDIA)_VISIBLE_DEVICES"
)
OF_A_UNIT = re.compile(r"[ \t]*Environment[ \t]*=")
OTHER_USE = re.compile(r"--env-file|\benvsubst\b|docker[ -]compose|\bsudo -E\b|--env-host")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release, texts = platform.release.name, dict(document.texts)
    servers = {id(one.command): one for one in document.of(*SERVERS) if serves(one)}
    for command, behind in zip_longest(document.commands, document.commands[1:]):
        server = servers.get(id(command))
        if server is not None and behind is not None and behind.file == command.file:
            yield from _behind(server, behind, texts.get(command.file, ""), release)
    yield from _of_the_host(document, texts, release)


def serves(one: Invocation) -> bool:
    """True for a server that is started in the foreground."""
    is_first = bool(one.command.words) and one.command.words[0] is (one.launcher[0] if one.launcher else one.path)
    words = [word.text for word in one.positional[:1]]
    is_server = one.tool != "vllm" or words == ["serve"] or one.path.text.startswith("vllm.entrypoints")
    before = one.command.words[: next((at for at, word in enumerate(one.command.words) if word is one.path), 0)]
    is_detached = any(DETACHED.fullmatch(word.text) for word in before)
    return is_first and is_server and not is_detached and not one.has("--help", "-h")


def _behind(server: Invocation, behind: ShellCommand, text: str, release: str) -> Iterator[Draft]:
    """``vllm serve model`` in a script, and on its next line what asks it."""
    first = server.command.words[0]
    if not text.startswith("#!") or not behind.words:
        return
    place = behind.words[0]
    name = posixpath.basename(place.text)
    between = "\n".join(lines_of(text)[first.line - 1 : place.line - 1])
    is_next = place.line > first.line and place.column == first.column == 1
    both = [_port(one) for one in (server.command, behind)]
    is_both = name in SERVERS and "" not in both and both[0] != both[1]  # else it may be another way to start one
    is_one = name in CLIENTS or is_both
    if is_one and is_next and not BACKGROUND.search(between) and not BRANCH.search(between):
        known: dict[str, Any] = {"then": " ".join(word.text for word in behind.words[:2]), "tool": server.tool}
        yield from drafts(release, "behind-a-server", place, file=server.command.file, **known)


def _port(command: ShellCommand) -> str:
    """The port that a command names; "" for none."""
    match = PORT.search(" ".join(word.text for word in command.words))
    return match["port"] if match else ""


def _of_the_host(document: Document, texts: dict[str, str], release: str) -> Iterator[Draft]:
    """``export VLLM_USE_V1=0`` and a docker run that does not hand it in."""
    inside = [one for one in document.of("docker") if _is_started(one)]
    if not inside or any(not one.image for one in document.of("vllm", "python", "hf", "huggingface-cli")):
        return
    for command in document.commands:
        if not command.words or command.words[0].text != "export" or command.image:
            continue
        text = texts.get(command.file, "")
        for word in command.words[1:]:
            name, sign, _ = word.text.partition("=")
            used = len(re.findall(rf"\b{name}\b", text)) if READ_INSIDE.fullmatch(name) and sign else 2
            form = "of a unit" if OF_A_UNIT.match(["", *lines_of(text)][word.line]) else ""
            here = [one for one in inside if one.command.file == command.file and (form or _is_server(one, command))]
            if used == 1 and here and not OTHER_USE.search(text):
                known: dict[str, Any] = {"name": name}
                yield from drafts(release, "not-handed-in", word, form=form, file=command.file, **known)


def _is_started(docker: Invocation) -> bool:
    words = docker.positional
    return len(words) > 1 and words[0].text == "run"


def _is_server(docker: Invocation, export: ShellCommand) -> bool:
    """True for a server of vLLM's image that is started below."""
    is_below = docker.command.line > export.line
    return is_below and VLLM_IMAGE.search(docker.positional[1].text) is not None
