"""Folders between the steps: a checkpoint or an engine that is read where no command of the text writes it."""

import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, NamedTuple

from trtllm_check.lint.carried import carriages, may_bring
from trtllm_check.lint.document import Document
from trtllm_check.lint.facts import OUTPUT, QUANTIZES, written_folder
from trtllm_check.lint.filling import fillings
from trtllm_check.lint.finding import Draft, Platform, Swap, drafts
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.shell.words import Word
from trtllm_check.releases import Release

CHECKPOINT = "checkpoint-elsewhere"
BUILD = "trtllm-build"
ENGINE_DIR = re.compile(r"(?<![\w])engine_dir:([^,]+)")
TOKENIZER_DIR = re.compile(r"(?<![\w])tokenizer_dir:([^,]+)")
OF_SAGEMAKER = "/opt/ml/model"  # where its containers see what was built elsewhere
CONVERTER = "convert_checkpoint.py"
SAVES = "save_pretrained"
NOT_LETTERS = re.compile(r"[\W_]+")
DOTS = re.compile(r"^(?:\.{1,2}/)+")
OF_FOLDERS = (".engine", ".plan", ".safetensors", "/config.json")
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
    yield from _tokenizers(document, release)
    yield from _of_a_model(document, readings, release.name)
    builds = [one for one in document.of(BUILD) if one.has("--output_dir")]
    checkpoints = list(_checkpoints_read(document))
    converted, built = _filled(document.of(*QUANTIZES)), _filled(builds)
    starts, loads = Counter(one.path for one in checkpoints), Counter(one.path for one in readings)
    for one in checkpoints:
        yield from _elsewhere(document, one, converted, starts, release.name)
    for one in readings:
        yield from _elsewhere(document, one, built, loads, release.name)


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
        for _, place in paths_in(config):
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
    carried = carriages(document)
    for reading in readings:
        path = reading.path
        is_checkpoint = path in checkpoints - {""} and path not in engines and not _is_open(path)
        if is_checkpoint and not may_bring(carried, path, engines, copies=True):
            yield from drafts(
                release, KIND, reading.place, form="checkpoint", invocation=reading.by, file=reading.file, path=path
            )
    for one in document.of(BUILD):
        for word in one.values("--checkpoint_dir"):
            path = posixpath.normpath(word.text)
            if path in engines and path != _written(one) and not _is_open(path) and not may_bring(carried, path):
                yield from drafts(release, KIND, word, invocation=one, path=word.text, tool=one.tool)
    for one in document.of("run.py", "summarize.py"):
        read = {posixpath.normpath(word.text) for word in one.values("--engine_dir")}
        for word in one.values("--tokenizer_dir"):
            path = posixpath.normpath(word.text)
            if path in engines | read and not _is_open(path) and not may_bring(carried, path):
                yield from drafts(release, KIND, word, form="tokenizer", invocation=one, path=word.text, tool=one.tool)


def _tokenizers(document: Document, release: Release) -> Iterator[Draft]:
    """``tokenizer_dir`` of a template that names what trtllm-build or the converter writes."""
    written = {tool: {_written(one) for one in document.of(tool)} - {""} for tool in (BUILD, CONVERTER)}
    if not any(written.values()) or any(SAVES in text for _, text in document.texts):
        return
    carried = carriages(document)
    for filling in fillings(document, release):
        found = TOKENIZER_DIR.search(filling.word.text)
        path = posixpath.normpath(found[1]) if found else ""
        tool = next((tool for tool, folders in written.items() if path in folders), "")
        if found and tool and not _is_open(path) and not may_bring(carried, path):
            place = filling.word.part(found.start(1), found.end(1))
            known: dict[str, Any] = {"path": path, "tool": filling.model, "writer": tool}
            file = filling.invocation.command.file
            yield from drafts(release.name, KIND, place, form="tokenizer of a template", file=file, **known)


def _of_a_model(document: Document, readings: Sequence[FolderRead], release: str) -> Iterator[Draft]:
    """The folder of the weights where the engine that is made of them is wanted."""
    converters = document.of(*QUANTIZES)
    models = {posixpath.normpath(word.text): one for one in converters for word in one.values("--model_dir")}
    made = {path for one in document.of(*OUTPUT) if (path := _told(one))}
    carried = carriages(document)
    for one in readings:
        maker = models.get(one.path)
        if maker is None or _is_open(one.path) or may_bring(carried, one.path, made, copies=True):
            continue
        if any(_is_open(path) or path == one.path or path.startswith(f"{one.path}/") for path in made):
            continue
        known: dict[str, Any] = {"path": one.path, "maker": maker.tool, "line": maker.path.line}
        yield from drafts(release, KIND, one.place, form="model", invocation=one.by, file=_file(one), **known)


def _told(one: Invocation) -> str:
    """Where a command writes, its default included where it is told what to read."""
    if path := written_folder(one):
        return posixpath.normpath(path)
    return OUTPUT[one.tool][1] if one.has("--model_dir", "--checkpoint_dir") else ""


def _written(one: Invocation) -> str:
    path = written_folder(one)
    return posixpath.normpath(path) if path else ""


def _misspelt(readings: Sequence[FolderRead], folders: set[str], release: str) -> Iterator[Draft]:
    """An engine's folder that no command writes, where one is written whose name differs in marks only."""
    plain = {_plain(folder): folder for folder in folders if not is_open(folder)}
    for one in readings:
        other = plain.get(_plain(one.path))
        if other and other.lstrip("./") == one.path.lstrip("./"):
            continue  # the same one, from another working folder
        if other and one.path not in folders and not is_open(one.path):
            yield from drafts(release, "misspelt-folder", one.place, path=one.path, other=other)


def _plain(path: str) -> str:
    return NOT_LETTERS.sub("", path).lower()


class _Filled(NamedTuple):
    """``paths``: the folders that ``writers`` fill; ``wholes``: with the parts of a model as its one folder.

    ``is_known``: each writer tells its folder, and no variable is in it.
    """

    writers: Sequence[Invocation]
    paths: tuple[str, ...]
    wholes: frozenset[str]
    is_known: bool


def _filled(writers: Sequence[Invocation]) -> _Filled:
    written = [path for path in map(_told, writers) if path]
    known = tuple(path for path in written if not _is_open(path))
    wholes = frozenset(posixpath.dirname(path) if posixpath.basename(path) in PARTS else path for path in known)
    return _Filled(writers, known, wholes, bool(known) and len(known) == len(writers))


def _elsewhere(
    document: Document, one: FolderRead, filled: _Filled, alike: Mapping[str, int], release: str
) -> Iterator[Draft]:
    """A folder that is read, beside the one that the only writer fills, or nearly one that one of several does.

    ``alike``: folder -> how many commands read it.
    """
    writers, known, wholes, is_known = filled
    if not is_known or one.path in wholes or _is_open(one.path) or one.path.startswith(OF_SAGEMAKER):
        return
    rule = CHECKPOINT if one.by and one.by.tool == BUILD else "engine-elsewhere"
    parent, part = posixpath.split(posixpath.normpath(one.path))
    if part in PARTS and parent in known:
        return  # a converter writes one checkpoint for each part of the model
    is_example = len(alike) > len(writers)  # a page reads what it shows no build of
    is_one_place = not document.images and not document.mounts and not is_example
    if any(_may_be_one(path, one.path, is_one_place) for path in (*known, *wholes)):
        return
    if _stands_elsewhere(document, one) or may_bring(carriages(document), one.path, known):
        return
    near = next((path for path in known if _nearly(path, one.path)), "")
    is_of_several = len(wholes) > 1 or (one.by is not None and one.by.tool.endswith(BENCHMARK))
    others = (path for path, number in alike.items() if path != one.path or number > 1)
    is_used = rule == CHECKPOINT and any(posixpath.normpath(path) in wholes for path in others)
    if (is_of_several or is_used) and not near:
        return  # another build reads what was written, and this one a checkpoint of its own
    earlier = [each for each in writers if (each.command.file, each.path.line) <= (_file(one), one.place.line)]
    if not earlier:
        return
    about: dict[str, Any] = {"read": one.path, "written": near or next(iter(wholes))}
    yield from drafts(release, rule, one.place, invocation=one.by, file=one.file, **about)


def _file(one: FolderRead) -> str:
    return one.by.command.file if one.by else one.file


def _is_open(path: str) -> bool:
    return is_open(path) or "$" in path


def _may_be_one(written: str, read: str, is_one_place: bool) -> bool:
    """True for paths that may be the same: one from another folder, or in a container, or the parts of a model.

    ``is_one_place``: the text tells of no container, which sees a folder elsewhere.
    """
    first, second = DOTS.sub("", written).strip("/"), DOTS.sub("", read).strip("/")
    if posixpath.basename(first) == posixpath.basename(second) and not is_one_place:
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
    others = [word for command in document.commands for word in command.words]
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
