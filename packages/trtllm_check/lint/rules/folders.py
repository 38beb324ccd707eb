"""Folders between the steps: a checkpoint or an engine that is read where no command of the text writes it."""

import posixpath
import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any, NamedTuple

from trtllm_check.lint.document import Document
from trtllm_check.lint.facts import OUTPUT, QUANTIZES, written_folder
from trtllm_check.lint.filling import fillings
from trtllm_check.lint.finding import Draft, Platform, Swap, drafts
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.shell.words import Word
from trtllm_check.releases import Release

BUILD = "trtllm-build"
ENGINE_DIR = re.compile(r"(?<![\w])engine_dir:([^,]+)")
NOT_LETTERS = re.compile(r"[\W_]+")
DOTS = re.compile(r"^(?:\.{1,2}/)+")
COPIES = ("cp", "ln", "mv", "rsync", "tar")
MOVES = ("cp", "hf", "huggingface-cli", "ln", "mv", "rsync", "aws", "gsutil", "tar")
OF_FOLDERS = (".engine", ".safetensors", "/config.json")
PARTS = ("encoder", "decoder", "vision", "llm")
BENCHMARK = "Benchmark"  # programs that a page shows with engines of other models
KIND = "folder-of-another-kind"
SLIP = 0.9  # how alike two paths are that are one with a slip of the keyboard


class FolderRead(NamedTuple):
    """A folder that a step reads, where it stands, and by which command."""

    path: str
    place: Word
    by: Invocation | None
    file: str = ""


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release
    readings = list(_engines_read(document, release))
    folders = _output_folders(document)
    yield from _files(document, [*readings, *_of_configs(document)], release.name)
    yield from _misspelt(readings, folders, release.name)
    yield from _of_another_kind(document, readings, release.name)
    builds = [one for one in document.of(BUILD) if one.has("--output_dir")]
    if not _moves(document):
        for one in _checkpoints_read(document):
            yield from _elsewhere(document, one, document.of(*QUANTIZES), "checkpoint-elsewhere", release.name)
        for one in readings:
            yield from _elsewhere(document, one, builds, "engine-elsewhere", release.name)


def _output_folders(document: Document) -> set[str]:
    """What the commands of the text write checkpoints and engines into."""
    written = map(written_folder, document.of(*OUTPUT))
    return {posixpath.normpath(folder) for folder in written if folder}


def _engines_read(document: Document, release: Release) -> Iterator[FolderRead]:
    for one in document.invocations:
        for word in one.values("--engine_dir"):
            yield FolderRead(posixpath.normpath(word.text), word, one)
    for filling in fillings(document, release):
        if found := ENGINE_DIR.search(filling.word.text):
            place = filling.word.part(found.start(1), found.end(1))
            yield FolderRead(posixpath.normpath(found[1]), place, None, filling.invocation.command.file)


def _of_configs(document: Document) -> Iterator[FolderRead]:
    """The folders of the engine and of the tokenizer that a config.pbtxt names."""
    if not document.configs:
        return
    from trtllm_check.lint.config_files import paths_in

    for config in document.configs:
        for place in paths_in(config):
            yield FolderRead(posixpath.normpath(place.text), place, None, config.path)


def _checkpoints_read(document: Document) -> Iterator[FolderRead]:
    for one in document.of(BUILD):
        for word in one.values("--checkpoint_dir"):
            yield FolderRead(posixpath.normpath(word.text), word, one)


def _files(document: Document, readings: Sequence[FolderRead], release: str) -> Iterator[Draft]:
    """``--engine_dir e/rank0.engine``, ``--checkpoint_dir c/rank0.safetensors``: a file where its folder is wanted."""
    for one in (*readings, *_checkpoints_read(document)):
        if one.path.endswith(OF_FOLDERS):
            known = {"path": one.path, "folder": posixpath.dirname(one.path) or "."}
            edits = (Swap(one.place, known["folder"]),) if one.by else ()
            yield from drafts(
                release, KIND, one.place, form="file", invocation=one.by, file=one.file, edits=edits, **known
            )


def _of_another_kind(document: Document, readings: Sequence[FolderRead], release: str) -> Iterator[Draft]:
    """An engine's folder where a checkpoint's or a tokenizer's is wanted."""
    checkpoints = {_written(one) for one in document.of(*QUANTIZES)}
    engines = {_written(one) for one in document.of(BUILD)} - checkpoints - {""}
    if _copies(document):
        return
    for reading in readings:
        if reading.path in checkpoints - {""} and reading.path not in engines and not _is_open(reading.path):
            yield from drafts(
                release,
                KIND,
                reading.place,
                form="checkpoint",
                invocation=reading.by,
                file=reading.file,
                path=reading.path,
            )
    if _moves(document):
        return
    for one in document.of(BUILD):
        for word in one.values("--checkpoint_dir"):
            path = posixpath.normpath(word.text)
            if path in engines and path != _written(one) and not _is_open(path):
                yield from drafts(release, KIND, word, invocation=one, path=word.text, tool=one.tool)
    for one in document.of("run.py", "summarize.py"):
        read = {posixpath.normpath(word.text) for word in one.values("--engine_dir")}
        for word in one.values("--tokenizer_dir"):
            path = posixpath.normpath(word.text)
            if path in engines | read and not _is_open(path):
                yield from drafts(release, KIND, word, form="tokenizer", invocation=one, path=word.text, tool=one.tool)


def _written(one: Invocation) -> str:
    path = written_folder(one)
    return posixpath.normpath(path) if path else ""


def _misspelt(readings: Sequence[FolderRead], folders: set[str], release: str) -> Iterator[Draft]:
    """An engine's folder that no command writes, where one is written whose name differs in marks only."""
    plain = {_plain(folder): folder for folder in folders if not is_open(folder)}
    for one in readings:
        other = plain.get(_plain(one.path))
        if other and one.path not in folders and not is_open(one.path):
            yield from drafts(release, "misspelt-folder", one.place, path=one.path, other=other)


def _plain(path: str) -> str:
    return NOT_LETTERS.sub("", path).lower()


def _copies(document: Document) -> bool:
    """True if something of the text copies or renames folders."""
    return any(posixpath.basename(word.text) in COPIES for command in document.commands for word in command.words[:2])


def _moves(document: Document) -> bool:
    """True if something of the text may bring a folder to another place."""
    return bool(document.of("cp", "hf", "huggingface-cli")) or any(
        posixpath.basename(word.text) in MOVES for command in document.commands for word in command.words[:2]
    )


def _elsewhere(
    document: Document, one: FolderRead, writers: Sequence[Invocation], rule: str, release: str
) -> Iterator[Draft]:
    """A folder that is read, beside the one that the only writer fills, or nearly one that one of several does."""
    written = [posixpath.normpath(path) for path in map(written_folder, writers) if path]
    known = [path for path in written if not _is_open(path)]
    if not known or len(known) < len(writers) or _is_open(one.path):
        return
    parent, part = posixpath.split(posixpath.normpath(one.path))
    if part in PARTS and parent in known:
        return  # a converter writes one checkpoint for each part of the model
    wholes = {posixpath.dirname(path) if posixpath.basename(path) in PARTS else path for path in known}
    if any(_may_be_one(path, one.path) for path in (*known, *wholes)) or _stands_elsewhere(document, one):
        return
    near = next((path for path in known if _nearly(path, one.path)), "")
    is_of_several = len(wholes) > 1 or (one.by is not None and one.by.tool.endswith(BENCHMARK))
    if is_of_several and not near:
        return
    earlier = [each for each in writers if (each.command.file, each.path.line) <= (_file(one), one.place.line)]
    if not earlier:
        return
    about: dict[str, Any] = {"read": one.path, "written": near or next(iter(wholes))}
    yield from drafts(release, rule, one.place, invocation=one.by, file=one.file, **about)


def _file(one: FolderRead) -> str:
    return one.by.command.file if one.by else one.file


def _is_open(path: str) -> bool:
    return is_open(path) or "$" in path


def _may_be_one(written: str, read: str) -> bool:
    """True for paths that may be the same: one from another folder, or in a container, or the parts of a model."""
    first, second = DOTS.sub("", written).strip("/"), DOTS.sub("", read).strip("/")
    if posixpath.basename(first) == posixpath.basename(second):
        return not _nearly(written, read)
    return f"/{first}".endswith(f"/{second}") or f"/{second}".endswith(f"/{first}") or first.startswith(f"{second}/")


def _nearly(written: str, read: str) -> bool:
    """True for two paths of the same depth of which a single part has a slip of the keyboard."""
    first, second = written.split("/"), read.split("/")
    if len(first) != len(second):
        return False
    unlike = [(one, two) for one, two in zip(first, second, strict=True) if one != two]
    same_digits = all(re.findall(r"\d+", one) == re.findall(r"\d+", two) for one, two in unlike)
    alike = all(SequenceMatcher(None, one, two).ratio() >= SLIP for one, two in unlike)
    return len(unlike) == 1 and same_digits and alike


def _stands_elsewhere(document: Document, one: FolderRead) -> bool:
    """True if another word of the text names the folder that is read, or one around it: a mount, a mkdir."""
    around = [mount.inside for mount in document.mounts]
    if any(_inside(one.path, folder) for folder in around if folder not in ("", "/")):
        return True
    others = [word for command in document.commands for word in (*command.words, *command.assignments)]
    same = [
        word
        for word in others
        if (word.line, word.column) != (one.place.line, one.place.column)
        and one.path in (posixpath.normpath(part) for part in re.split(r"[=:,]", word.text) if part)
    ]
    reads = {(word.line, word.column) for word in _reading_words(document)}
    return any((word.line, word.column) not in reads and "engine_dir:" not in word.text for word in same)


def _reading_words(document: Document) -> Iterator[Word]:
    for each in document.invocations:
        yield from each.values("--engine_dir", "--checkpoint_dir")
        yield from (given.word for given in each.given if given.name in ("--engine_dir", "--checkpoint_dir"))


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")
