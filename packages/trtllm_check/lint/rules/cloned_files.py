"""Files and folders of a clone that it does not have: where the text stands, and which release it has cloned."""

import posixpath
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.installs import Clone
from trtllm_check.lint.rules.example_folders import moved_folders
from trtllm_check.lint.shell.words import ShellCommand, Word
from trtllm_check.lint.whereabouts import BACKEND, FETCHED, MOVES, SUBMODULE, TENSORRT_LLM, Standing, standings
from trtllm_check.releases.load import container_release
from trtllm_check.releases.trees import WELL_KNOWN, RepositoryTree, backend_tree, examples_tree

RULE = "file-of-a-clone"
SOURCES = ("cp", "mv", "ln")
MAKES = frozenset(
    ["mkdir", "cp", "mv", "ln", "wget", "curl", "tar", "unzip", "touch", "tee", "git", "install", "rsync"]
)
FIRST_WORDS = 4
NUMBER = re.compile(r"v(\d+\.\d+\.\d+)")
MONTH = re.compile(r"r(\d\d\.\d\d)")
NEWEST = ("", "main")
LAST_OF_BACKEND = "0.19.0"  # with the templates and tools
TWICE = re.compile(r"(?:^|/)examples/(?:.*/)?examples/")
OF_MODEL = re.compile(r"examples/(?P<model>[\w.-]+)(?P<rest>(?:/.*)?)")
OF_THE_CLONE = re.compile(r"^(?:\./)?TensorRT-LLM/examples/")
GLOB = re.compile(r"/(?:\*|\.)?$")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    found = standings(document)
    if not found:
        return
    made = _made(document)
    fetched = any(FETCHED.search(text) for _, text in document.texts)
    said: set[str] = set()
    if platform.guessed or platform.earlier:  # else the rule on clones says that it is another release's
        yield from _of_main(found, platform.release.name)
    for one in found:
        yield from _no_target(document, one, platform.release.name)
        for word in words_read(one.command):
            for form, draft in _judged(one, word, platform, made, fetched=fetched):
                key = form if form in ("moved", "submodule", "name") else draft.message
                if key not in said:
                    said.add(key)
                    yield draft


def _no_target(document: Document, one: Standing, release: str) -> Iterator[Draft]:
    """``cp -r all_models/inflight_batcher_llm/* repo/`` in a fresh clone, where nothing has made repo."""
    words = [word for word in one.command.words if not word.text.startswith("-")]
    if len(words) < 3 or words[0].text != "cp" or not one.is_sure or one.clone is None:
        return
    target = words[-1]
    found = list(one.paths(target.text))
    if not (words[1].text.endswith("/*") or len(words) > 3) or not found or any(sign in target.text for sign in "$*{<"):
        return
    clone, path = found[0]
    name = posixpath.basename(path)
    if clone is not one.clone or path == "." or _tree(clone).knows(path) or not _tree(clone).is_whole:
        return
    others = (word for command in document.commands if command is not one.command for word in command.words)
    earlier = (word for word in others if word.line <= target.line)
    if not any(name in re.split(r"[/:=]", word.text) for word in earlier):
        for _, draft in _drafts(release, target, "no target", one, path=target.text):
            yield draft


def is_of_main(draft: Draft) -> bool:
    """True for what holds of the branch that is cloned, whatever release the text is for."""
    return draft.rule == RULE and "(main)" in draft.message


def _of_main(found: Iterable[Standing], release: str) -> Iterator[Draft]:
    """``cd TensorRT-LLM/examples/llama`` in a clone of the default branch, once in a file."""
    said: set[str] = set()
    for one in found:
        file = one.command.file
        for word in words_read(one.command) if file not in said else ():
            if not one.is_sure and not OF_THE_CLONE.search(word.text):
                continue
            clone, path = next(one.paths(GLOB.sub("", word.text)), (None, ""))
            match = OF_MODEL.fullmatch(path)
            if clone is None or match is None or clone.name.lower() != TENSORRT_LLM:
                continue
            kind = moved_folders().get(match["model"])
            if kind is not None and clone.reference in NEWEST and clone.checkout is None and file not in said:
                said.add(file)
                right = f"examples/models/{kind}/{match['model']}{match['rest']}"
                for _, draft in _drafts(release, word, "of main", one, path=word.text, name=path, right=right):
                    yield draft


def words_read(
    command: ShellCommand, moves: Collection[str] = MOVES, sources: Collection[str] = SOURCES
) -> Iterator[Word]:
    """The words of a command that name a file or folder which has to be there.

    ``moves``: the commands whose first operand it is; ``sources``: those of which it is every operand but the last.
    """
    words = [word for word in command.words if word.text != "sudo"]
    first = posixpath.basename(words[0].text) if words else ""
    plain = [word for word in words[1:] if not word.text.startswith("-")]
    if first in moves:
        yield from plain[:1]
    elif first in sources:
        yield from plain[:-1]
    else:
        yield from (word for word in words[:FIRST_WORDS] if word.text.endswith(".py"))


def _made(document: Document) -> frozenset[str]:
    """Names of what the commands of the text make."""
    names: set[str] = set()
    for command in document.commands:
        words = [word.text for word in command.words]
        if any(posixpath.basename(word) in MAKES for word in words[:2]):
            targets = words[1:] if {"mkdir", "tar", "unzip"} & set(words[:2]) else words[-1:]
            names |= {posixpath.basename(word.rstrip("/")) for word in targets}
        names |= {posixpath.basename(one.target.text) for one in command.redirects}
    return frozenset(names)


def _version(clone: Clone) -> str:
    """The release that a clone holds, as far as its tag or branch says it; "" for another state."""
    if match := NUMBER.fullmatch(clone.reference):
        return match[1]
    if match := MONTH.fullmatch(clone.reference):
        return container_release(f"nvcr.io/nvidia/tritonserver:{match[1]}-trtllm-python-py3")
    return backend_tree().package.releases[-1] if clone.name.lower() == BACKEND and clone.reference in NEWEST else ""


def _judged(
    one: Standing, word: Word, platform: Platform, made: frozenset[str], *, fetched: bool
) -> Iterator[tuple[str, Draft]]:
    found = list(one.paths(GLOB.sub("", word.text)))
    if not found and one.is_sure and one.clone is not None:
        yield from _above(one, one.clone, word, platform.release.name)
    if not found or any(sign in word.text for sign in "${<%?[") or posixpath.basename(found[0][1]) in made - WELL_KNOWN:
        return
    release = platform.release.name
    if one.is_sure and found[0][0] is None:
        yield from _beside(one, word, found[0][1], release)
    inside = [(clone, path) for clone, path in found if clone is not None]
    for clone, path in inside:
        if clone.name.lower() == BACKEND and path.startswith(f"{SUBMODULE}/"):
            if not fetched and clone.checkout is None:
                known: dict[str, Any] = {"path": word.text}
                yield from _drafts(release, word, "submodule", one, **known)
            return
        if _tree(clone).knows(path):
            yield from _of_release(one, word, clone, path, release)
            return
    if inside and len(inside) == len(found):
        yield from _nowhere(one, word, *inside[0], release)


def _above(one: Standing, clone: Clone, word: Word, release: str) -> Iterator[tuple[str, Draft]]:
    """``../tools/fill_template.py`` at the top of the clone, where nobody has gone into the folder of the models."""
    path = posixpath.normpath(posixpath.join(one.folder, word.text))
    inside = path.removeprefix("../")
    if path == inside or inside.startswith("..") or word.text[:1] in "/$~" or not _tree(clone).knows(inside):
        return
    if not any(place != posixpath.dirname(place) and inside.startswith(f"{place}/") for place in one.known):
        right = posixpath.relpath(inside, one.folder)
        known: dict[str, Any] = {"path": word.text, "repository": clone.name, "inside": "outside of it", "right": right}
        yield from _drafts(release, word, "", one, **known)


def _tree(clone: Clone) -> RepositoryTree:
    return backend_tree() if clone.name.lower() == BACKEND else examples_tree()


def _of_release(one: Standing, word: Word, clone: Clone, path: str, release: str) -> Iterator[tuple[str, Draft]]:
    """A file that another release has than the one that is cloned."""
    version = _version(clone)
    verdict = _tree(clone).judge(path, version) if version else None
    is_backend = clone.name.lower() == BACKEND
    if verdict is None or not (is_backend or one.command.words[0].text in MOVES):
        return  # the rule on scripts speaks of TensorRT-LLM's
    form = "moved" if is_backend and verdict.last == LAST_OF_BACKEND else verdict.kind
    known: dict[str, Any] = {"path": word.text, "repository": clone.name, "inside": path}
    known |= {"version": clone.reference or "its newest state", "since": verdict.since, "last": verdict.last}
    for _, draft in _drafts(release, word, form, one, **known):
        yield form, draft if clone.reference not in NEWEST else draft._replace(severity="warning")


def _nowhere(one: Standing, word: Word, clone: Clone, path: str, release: str) -> Iterator[tuple[str, Draft]]:
    """A file of the repository, looked for in a folder that has no such file in any release."""
    name, version, tree = posixpath.basename(path), _version(clone), _tree(clone)
    is_read = version and tree.package.near_releases(version)
    if one.command.words[0].text in MOVES or not (is_read or TWICE.search(path)):
        return
    if one.command.words[0].text in SOURCES and not tree.knows(path.partition("/")[0]):
        return  # a folder that somebody has put there, to copy from
    places = tree.places(name, version) if name in WELL_KNOWN else ()
    if not places and tree.is_whole and "/" in word.text:
        places = tuple(one for one in tree.folders if one.endswith(f"/{name}"))
    if places:
        best = max(places, key=lambda place: (_shared(place.split("/"), path.split("/")), -len(place)))
        right = posixpath.relpath(best, one.folder if one.clone is clone else ".")
        known: dict[str, Any] = {"path": word.text, "repository": clone.name, "inside": path, "right": right}
        for form, draft in _drafts(release, word, "", one, **known):
            yield form, draft if one.is_sure else draft._replace(severity="warning")


def _shared(first: list[str], second: list[str]) -> int:
    count = 0
    for one, other in zip(reversed(first), reversed(second), strict=False):
        if one != other:
            break
        count += 1
    return count


def _beside(one: Standing, word: Word, path: str, release: str) -> Iterator[tuple[str, Draft]]:
    """``examples/llama/convert_checkpoint.py`` where the clone lies beside it and nobody has gone in."""
    first, _, rest = path.partition("/")
    for place, clone in one.known.items():
        known: dict[str, Any] = {"path": word.text, "repository": clone.name}
        if _plain(first) in (_plain(place), _plain(clone.name.partition("/")[2])) and posixpath.dirname(place) == "":
            right = posixpath.join(place, rest)
            yield from _drafts(release, word, "name", one, right=right, folder=place, **known)
            return
        tops = ("examples", "tools", "scripts", "all_models", "benchmarks")
        if one.folder == "." and rest and first in tops and _tree(clone).knows(path):
            yield from _drafts(release, word, "beside", one, right=f"{place}/{path}", **known)
            return


def _plain(name: str) -> str:
    return re.sub(r"[-_.]", "", name).lower()


def _drafts(release: str, word: Word, form: str, one: Standing, **known: Any) -> Iterator[tuple[str, Draft]]:
    return ((form, draft) for draft in drafts(release, RULE, word, form=form, file=one.command.file, **known))
