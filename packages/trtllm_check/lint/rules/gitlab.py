"""GitLab's jobs in images whose entry point is a server: the runner's shell becomes an argument of it."""

import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.programs import SERVER_ENTRIES
from trtllm_check.lint.shell.words import word_at

PIPELINE = re.compile(
    r"^(?:stages|default|include|workflow):|^[\w.-]+:[ \t]*\n(?:[ ][^\n]*\n)*?[ ]+stage:", re.MULTILINE
)
OTHERS = re.compile(r"^(?:services|apiVersion|jobs|steps|on|kind):", re.MULTILINE)
JOB = re.compile(r"^(?P<name>[\w.:-]+):[ \t]*\n(?P<inside>(?:(?:[ ][^\n]*)?\n)+)", re.MULTILINE)
IMAGE = re.compile(r"^(?P<indent>[ ]*)image:[ \t]*[\"']?(?P<image>[a-z][\w./:@-]*)[\"']?[ \t]*$", re.MULTILINE)
NAMED = re.compile(r"^[ ]*image:[ \t]*\n[ ]+name:[ \t]*[\"']?(?P<image>[a-z][\w./:@-]*)[\"']?[ \t]*$", re.MULTILINE)


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    for file, text in document.texts:
        if "script:" not in text or not PIPELINE.search(text) or OTHERS.search(text):
            continue
        for job in JOB.finditer(f"{text}\n"):
            inside = job["inside"]
            image = IMAGE.search(inside) or NAMED.search(inside)
            if image is None or "script:" not in inside or "entrypoint" in inside:
                continue
            program = next((program for known, program in SERVER_ENTRIES if known.search(image["image"])), "")
            if program:
                at = job.start("inside") + image.start("image")
                known: dict[str, Any] = {"image": image["image"], "program": program}
                place = word_at(text, at, image["image"])
                yield from drafts(platform.release.name, "job-behind-a-server", place, file=file, **known)
