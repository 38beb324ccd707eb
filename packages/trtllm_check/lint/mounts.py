"""Folders of the host inside a container."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.shell.words import Word

WINDOWS_DRIVE = re.compile(r"[A-Za-z]:(?=[\\/])")


class Mount(NamedTuple):
    """One folder of the host inside a container: ``docker run -v host:inside image``."""

    host: str
    inside: str
    image: str
    word: Word


def mounts_of(docker: Invocation, image: str) -> Iterator[Mount]:
    """What ``docker run`` mounts into a container of ``image``: ``-v``, ``--volume`` and ``--mount``."""
    for word in docker.values("-v", "--volume"):
        drive = WINDOWS_DRIVE.match(word.text)
        start = drive.end() if drive else 0
        host, sign, inside = word.text[start:].partition(":")
        host = word.text[:start] + host
        yield Mount(host, inside.partition(":")[0] if sign else host, image, word)
    for word in docker.values("--mount"):
        parts = dict(part.partition("=")[::2] for part in word.text.split(","))
        host = parts.get("source") or parts.get("src") or ""
        inside = parts.get("target") or parts.get("destination") or parts.get("dst") or ""
        if inside:
            yield Mount(host, inside, image, word)
