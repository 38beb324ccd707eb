"""Models that a text downloads into one folder and reads from another: below it, or in the hub's own cache."""

import posixpath
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.lookups import once
from trtllm_check.lint.mounts import mounts_of
from trtllm_check.lint.shell.words import ShellCommand, Word

RULE = "download-elsewhere"
HUB_NAME = re.compile(r"(?P<owner>[A-Za-z0-9][\w.-]*)/(?P<name>[A-Za-z0-9][\w.-]*)")
CLONED = re.compile(
    r"https://(?:huggingface\.co|hf\.co|www\.modelscope\.cn)/(?P<owner>[\w.-]+)/(?P<name>[\w.-]+?)(?:\.git)?/?$"
)
LOCAL = ("--local-dir", "--local_dir")
CACHE = ("--cache-dir", "--cache_dir")
MOVES = ("cd", "pushd", "popd")
MAKES = ("mkdir", "mv", "cp", "ln", "rsync", "tar", "unzip", "wget", "curl", "git")
WRITES = re.compile(r"--(?:output|save|export|local|cache)[-_]?\w*|-o|-O")
HOME = re.compile(r"^(?:\$\{?HOME\}?|~)(?=/|$)")
HERE = re.compile(r"^(?:\$\{?PWD\}?|\$\(pwd\)|`pwd`|\.)/")
MODEL = re.compile(r"--(?:hf_)?model(?:[-_](?:dir|path))?|--tokenizer(?:_dir)?|serve|(?:\S*/)?trtllm-serve")
FOLDER = re.compile(r"[\w./~${}()-]+")


class DownloadedModel(NamedTuple):
    """``folder``: where the files are to go; ``how``: what says it; ``names``: folders that are expected below it."""

    folder: str
    how: str
    form: str
    model: str
    names: tuple[str, ...]
    command: ShellCommand


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """Each folder that is not there once, at its first use."""
    found = [one for one in _downloads(document) if one.folder not in ("", ".")]
    for one in found:
        missing = {plain(posixpath.join(one.folder, name)) for name in one.names}
        missing -= {other.folder for other in found if other.form != "cache"}
        if one.form != "cache" and not document.mounts and missing.isdisjoint(_named(document)):
            continue
        if missing and not any(_makes(command, missing, one) for command in document.commands):
            yield from _first_use(document, one, missing, platform.release.name)


@once
def _named(document: Document) -> Iterator[str]:
    """All paths that commands name, and the folders above them."""
    for command in document.commands:
        for word in (*command.words, *(one.target for one in command.redirects)):
            path = plain(word.text.partition("=")[2] if word.text.startswith("-") else word.text)
            while path.strip("/") not in ("", "."):
                yield path
                path = posixpath.dirname(path)


def _downloads(document: Document) -> Iterator[DownloadedModel]:
    for one in document.of("hf", "huggingface-cli"):
        words = [word.text for word in one.positional]
        match = HUB_NAME.fullmatch(words[1]) if words[:1] == ["download"] and len(words) > 1 else None
        if match is None or one.value("--repo-type") not in (None, "model"):
            continue
        names = (match["name"], f"{match['owner']}/{match['name']}")
        local, cache = _value(one, LOCAL), _value(one, CACHE)
        if local:
            yield DownloadedModel(plain(local), "--local-dir", "", words[1], names, one.command)
        elif cache:
            yield DownloadedModel(plain(cache), "--cache-dir", "cache", words[1], names, one.command)
    for one in document.of("git"):
        words = [word.text for word in one.positional]
        words = [word for word in words if word not in ("lfs", "clone")]
        match = CLONED.fullmatch(words[0]) if words else None
        if match is not None and len(words) == 2 and words[1] not in (".", "./"):
            model = f"{match['owner']}/{match['name']}"
            names = (match["name"], f"{match['owner']}/{match['name']}")
            yield DownloadedModel(plain(words[1]), "git clone", "", model, names, one.command)


def _value(one: Invocation, flags: tuple[str, ...]) -> str:
    value = one.value(*flags) or ""
    return value if FOLDER.fullmatch(value) else ""


def plain(path: str) -> str:
    """A path as others write it, too."""
    path = HERE.sub("", HOME.sub("~", path.strip("\"'")))
    return posixpath.normpath(path) if path else ""


def _is_below(path: str, folders: set[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def _makes(command: ShellCommand, missing: set[str], download: DownloadedModel) -> bool:
    """True where a command puts something there."""
    if command is download.command or not command.words:
        return False
    words = [word.text for word in command.words if word.text != "sudo"]
    if posixpath.basename(words[0]) in MAKES and _is_below(plain(words[-1].rstrip("/*")), missing):
        return True
    for flag, value in pairwise(words):
        name, _, given = flag.partition("=")
        if WRITES.fullmatch(name) and _is_below(plain(given or value), missing):
            return True
    return any(_is_below(plain(one.target.text), missing) for one in command.redirects)


def _first_use(document: Document, download: DownloadedModel, missing: set[str], release: str) -> Iterator[Draft]:
    is_behind = False
    for command in document.commands:
        if command is download.command:
            is_behind = True
            continue
        if not is_behind or command.file != download.command.file or not command.words:
            continue
        if command.words[0].text in MOVES and not download.folder.startswith(("/", "~", "$")):
            return  # what is relative is now another folder
        if command.words[0].text in MAKES and command.words[0].text not in ("cp", "mv", "ln"):
            continue
        for word, path in _paths(document, command):
            is_cache = download.form == "cache" and plain(path) == download.folder and _is_model(command, word)
            if is_cache or _is_below(plain(path), missing):
                known: dict[str, Any] = {"path": word.text.partition("=")[2] or word.text, "how": download.how}
                known |= {"model": download.model, "folder": download.folder}
                yield from drafts(release, RULE, word, form=download.form, file=command.file, **known)
                return


def _is_model(command: ShellCommand, word: Word) -> bool:
    """True for the value of an option that names a model, and for the model of a server."""
    before = next((one.text for one, following in pairwise(command.words) if following is word), "")
    return MODEL.fullmatch(before) is not None or word.text.startswith(("--model=", "--model_dir=", "--tokenizer="))


def _paths(document: Document, command: ShellCommand) -> Iterator[tuple[Word, str]]:
    """The paths that a command reads, those inside of a container as the host has them."""
    dockers = [one for one in document.of("docker") if one.command is command]
    mounts = [mount for one in dockers for mount in mounts_of(one, "")]
    for word in command.words:
        text = word.text.partition("=")[2] if word.text.startswith("-") else word.text
        if not text or text.startswith("-") or ":" in text:
            continue
        below = (one for one in mounts if text == one.inside or text.startswith(f"{one.inside.rstrip('/')}/"))
        inside = next(below, None)
        if inside is not None:
            yield word, posixpath.join(inside.host, text[len(inside.inside.rstrip("/")) + 1 :])
        elif not mounts:
            yield word, text
