"""Triton's launcher as all that a container runs: it does not wait for the servers, and the container ends."""

import re
from collections.abc import Iterator

from trtllm_check.lint.carriers.workloads import ServedContainer
from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.shell.words import Word, word_at

LAUNCH = "launch_triton_server.py"
RULE = "launcher-returns"
GOES_ON = re.compile(r"[;|\n]|&&|&\s*\S|\bwait\b|\bsleep\b|\btail\b")
"""What stands behind the launcher where something keeps the container."""
LAST = re.compile(
    rf"^(?:CMD|ENTRYPOINT)[ \t](?P<line>[^\n]*?(?P<name>{re.escape(LAUNCH)})(?P<rest>[^\n]*))$", re.MULTILINE
)


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    if not any(LAUNCH in text for _, text in document.texts):
        return
    release = platform.release.name
    for workload in document.workloads:
        place = _alone(workload)
        if place is not None:
            yield from drafts(release, RULE, place, file=workload.file)
    for docker in document.of("docker"):
        words = docker.positional
        if words[:1] and words[0].text == "run" and _is_last(docker, words[2:]):
            yield from drafts(release, RULE, words[-1], file=docker.command.file)
    for file, text in document.texts:
        found = [*LAST.finditer(text)] if re.search(r"^FROM[ \t]|\A(?:CMD|ENTRYPOINT)[ \t]", text, re.MULTILINE) else []
        if found and not GOES_ON.search(found[-1]["rest"]) and not found[-1]["rest"].rstrip().endswith("\\"):
            yield from drafts(release, RULE, word_at(text, found[-1].start("name"), LAUNCH), file=file)


def _alone(workload: ServedContainer) -> Word | None:
    """The word with the launcher, where nothing comes behind it."""
    for number, word in enumerate(workload.words if not _is_handed_over(workload.words) else ()):
        if LAUNCH in word.text:
            rest = " ".join([word.text.partition(LAUNCH)[2], *(one.text for one in workload.words[number + 1 :])])
            return None if GOES_ON.search(rest) else word
    return None


def _is_last(docker: Invocation, words: tuple[Word, ...]) -> bool:
    """True for a command of ``docker run`` that is the launcher, or a script that ends with it."""
    detached = any(one.flag in ("-d", "--detach") for one in docker.given)
    whole = " ".join(word.text for word in words)
    is_last = LAUNCH in whole and not GOES_ON.search(whole.partition(LAUNCH)[2])
    return detached and is_last and not _is_handed_over(words)


def _is_handed_over(words: tuple[Word, ...]) -> bool:
    """True for ``bash -c '"$@"; wait' bash python3 ...``: a script around it, which may stay."""
    return any("$@" in word.text or "${@}" in word.text for word in words)
