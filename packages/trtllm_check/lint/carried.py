"""What the commands of a text bring to where: copies, links, moves, downloads, archives.

A rule on a folder asks whether anything may bring something there. What goes to a place that the text does not tell
may go anywhere, if it is of the folder that was written, or of an unknown one.
"""

import posixpath
import re
from collections.abc import Iterable
from typing import NamedTuple

from trtllm_check.lint.document import Document
from trtllm_check.lint.lookups import once
from trtllm_check.lint.shell.words import file_name

COPIES = ("cp", "ln", "mv", "rsync", "tar", "scp", "install")
MOVES = (*COPIES, "hf", "huggingface-cli", "aws", "gsutil", "gcloud", "azcopy", "unzip", "s5cmd", "mc", "rclone")
OPEN = re.compile(r"[$~{<]")
DOTS = re.compile(r"^(?:\.{1,2}/)+")
REMOTE = re.compile(r"^(?:\w+://|[\w.-]+@?[\w.-]*:)")
GLOB = re.compile(r"/?[^/]*[*?\[].*$")


class Carriage(NamedTuple):
    """One command: what it takes, and where that goes; one that names one place alone has it in both."""

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    is_copy: bool


@once
def carriages(document: Document) -> list[Carriage]:
    """The commands of ``document`` that bring something to another place."""
    found = []
    for command in document.commands:
        names = [file_name(word.text) for word in command.words[:2]]
        name = next((one for one in names if one in MOVES), "")
        if not name:
            continue
        words = [word.text for word in command.words[names.index(name) + 1 :]]
        plain = [part for word in words for part in (word.partition("=")[2] if word.startswith("-") else word,) if part]
        if name in ("cp", "mv", "ln", "rsync", "scp", "install") and len(plain) > 1:
            found.append(Carriage(tuple(plain[:-1]), tuple(plain[-1:]), is_copy=True))
        else:
            found.append(Carriage(tuple(plain), tuple(plain), name in COPIES))
    return found


def may_bring(
    all_carriages: Iterable[Carriage], path: str, written: Iterable[str] = (), *, copies: bool = False
) -> bool:
    """True if something may come to ``path``, from one of the folders ``written`` or from elsewhere.

    ``copies``: downloads do not count.
    """
    written = tuple(written)
    for one in all_carriages:
        if copies and not one.is_copy:
            continue
        if any(overlap(target, path) for target in one.targets if not OPEN.search(target)):
            return True
        to_anywhere = any(OPEN.search(target) for target in one.targets)
        from_there = (OPEN.search(source) or any(overlap(source, each) for each in written) for source in one.sources)
        if to_anywhere and any(from_there):
            return True
    return False


def overlap(first: str, second: str) -> bool:
    """True for two paths of which one may hold the other; one may be told from another folder."""
    one, two = (DOTS.sub("", GLOB.sub("", text)).strip("/") for text in (first, second))
    if REMOTE.match(first) or REMOTE.match(second) or not one or not two:
        return not one and first.startswith(".")  # the folder where the text stands
    if f"{one}/".startswith(f"{two}/") or f"{two}/".startswith(f"{one}/"):
        return True
    parts, others = one.split("/"), two.split("/")
    return posixpath.basename(one) in others or posixpath.basename(two) in parts
