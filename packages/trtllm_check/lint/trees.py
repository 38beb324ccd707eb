"""Folders as ``tree`` prints them, and as pages draw them: each entry with its path and its place."""

import posixpath
import re
from collections.abc import Iterator
from typing import NamedTuple

from trtllm_check.lint.shell.words import Word

BRANCH = re.compile(r"^(?P<margin>[ \t│|┃>*#]*)(?:[├└┣┗╰][─━-]+|\|[-_─]{1,3}|[`+\\]-{1,3})[ \t]*(?P<name>[^\s│|─]\S*)")
ROOT = re.compile(
    r"^[ \t>*#$]*(?:tree[ \t]+(?:-\w+[ \t]+(?:\d+[ \t]+)?)*)?(?P<name>(?:\.{1,2}|~|/)?[\w./$-]*[\w./-])"
    r"(?:[ \t]*(?:#|\(|<-|←).*)?[ \t:]*$"
)
LEFT_OUT = re.compile(r"^(?:\.{2,}|…|<.*>|\[.*\]|\*.*|\{.*)")
SIGNS = ("├", "└", "|--", "`--", "┣", "┗", "+--")
FENCE = re.compile(r"^\s*(?:`{3,}|~{3,})")


class TreeEntry(NamedTuple):
    """``path``: below the root's own name; ``is_open``: more is there than is drawn."""

    path: str
    place: Word
    is_folder: bool
    is_open: bool = False


class DrawnTree(NamedTuple):
    """``root``: its name as it is written, "" where none is."""

    root: str
    entries: tuple[TreeEntry, ...]


def draws(text: str, name: str) -> bool:
    """True for a text with a drawing that has a file of that name."""
    return name in text and any(one.place.text == name for tree in trees(text) for one in tree.entries)


def trees(text: str) -> Iterator[DrawnTree]:
    """All drawings of ``text`` that name a file or folder."""
    if not any(sign in text for sign in SIGNS):
        return
    lines = text.split("\n")
    number = 0
    while number < len(lines):
        end = number
        while end < len(lines) and (BRANCH.match(lines[end]) or _is_between(lines, end, number)):
            end += 1
        if end == number:
            number += 1
            continue
        before = lines[number - 1] if number else ""
        root = None if FENCE.match(before) else ROOT.match(before)
        if entries := tuple(_entries(lines, number, end)):
            yield DrawnTree(root["name"].rstrip("/:") or "/" if root else "", entries)
        number = end


def _is_between(lines: list[str], number: int, start: int) -> bool:
    """A line with nothing but margins, within a drawing."""
    return number > start and bool(lines[number].strip()) and not lines[number].strip(" \t│|┃>*#")


def _entries(lines: list[str], start: int, end: int) -> Iterator[TreeEntry]:
    above: list[tuple[int, str]] = []  # the column of the branch, and the path
    found: list[tuple[str, Word, bool, bool]] = []
    for number in range(start, end):
        match = BRANCH.match(lines[number])
        if match is None:
            continue
        column = len(match["margin"].expandtabs())
        while above and above[-1][0] >= column:
            above.pop()
        folder = above[-1][1] if above else ""
        name = match["name"]
        is_open = LEFT_OUT.match(name) is not None
        path = posixpath.join(folder, name.rstrip("/,:*"))
        place = Word(name, number + 1, match.start("name") + 1)
        found.append((path, place, name.endswith("/"), is_open))
        if not is_open:
            above.append((column, path))
    folders = {posixpath.dirname(path) for path, *_ in found}
    opened = {posixpath.dirname(path) for path, _, _, is_open in found if is_open}
    for path, place, is_folder, is_open in found:
        if not is_open:
            yield TreeEntry(path, place, is_folder or path in folders, path in opened or "" in opened)
