"""A server in the background of what ends at once: a batch job whose script ends, a container whose command returns."""

import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.shell.words import Word, lines_of

SERVERS = ("vllm", "trtllm-serve", "tritonserver", "launch_triton_server.py")
BATCH = re.compile(r"^#(?:SBATCH|PBS|BSUB|OAR|\$)[ \t]+-", re.MULTILINE)
BACKGROUND = re.compile(r"(?<![&>|])&[ \t]*(?:#[^\n]*)?$")
# What a script may still do, and be done with at once.
AT_ONCE = re.compile(
    r"[ \t]*(?:#.*|(?:echo|printf|disown|date|squeue|nvidia-smi|hostname|true|set|export)\b[^&;|]*"
    r"|(?:local |export )?\w+=[^\s;&|(]*|sleep[ \t]+\d{1,3}|exit(?:[ \t]+0)?)?[ \t\r]*"
)
# The end of a script in quotes, and of all that the command is: bash -c "vllm serve m &"
END_OF_SCRIPT = re.compile(r"[^\n\"']*?(?<![&>|])(?P<sign>&)[ \t]*\\?[\"'][ \t]*(?:\]|$)")
OF_CONTAINERS = ("docker", "podman", "nerdctl")
LATER = ("exec", "-d", "--detach", "-dit", "-itd", "-it", "-ti")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    servers = [one for one in document.of(*SERVERS) if not one.has("--help", "-h")]
    for file, text in document.texts if servers else ():
        here = [one for one in servers if one.command.file == file]
        found = _of_a_job(here, text) if BATCH.search(text) else None
        if found is not None:
            known: dict[str, Any] = {"tool": found[0].tool}
            yield from drafts(platform.release.name, "server-left-behind", found[1], form="job", file=file, **known)
            continue
        for one in here:
            place = _of_a_container(one, text)
            if place is not None:
                known = {"tool": one.tool}
                yield from drafts(
                    platform.release.name, "server-left-behind", place, form="container", file=file, **known
                )


def _of_a_job(servers: list[Invocation], text: str) -> tuple[Invocation, Word] | None:
    """The last server of a batch script, and its &, where nothing waits for it."""
    lines = lines_of(text)
    for one in sorted(servers, key=lambda each: each.command.end_line, reverse=True)[:1]:
        end = one.command.end_line
        while end < len(lines) and lines[end - 1].rstrip().endswith("\\"):
            end += 1
        sign = BACKGROUND.search(lines[end - 1].rstrip("\r")) if 0 < end <= len(lines) else None
        if sign is not None and all(AT_ONCE.fullmatch(line) for line in lines[end:]):
            return one, Word("&", end, sign.start() + 1)
    return None


def _of_a_container(one: Invocation, text: str) -> Word | None:
    """The & that ends the script in quotes which a container runs."""
    launcher = [word.text for word in one.launcher]
    is_docker = bool(launcher) and launcher[0] in OF_CONTAINERS and not set(launcher) & set(LATER)
    if not (is_docker or (one.image and not launcher)) or not one.arguments:
        return None
    lines = lines_of(text)
    last = max((word.line, word.column + len(word.text)) for word in one.arguments)
    if not 0 < last[0] <= len(lines):
        return None
    found = END_OF_SCRIPT.match(lines[last[0] - 1], last[1] - 1)
    return Word("&", last[0], found.start("sign") + 1) if found is not None else None
