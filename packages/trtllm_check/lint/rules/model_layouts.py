"""Folders of Triton's model repository, as a page draws them and as commands make them: MODEL/config.pbtxt, MODEL/1/...

Nothing is said of a folder that something else may fill: a copy of a whole folder, a clone, a script.
"""

import posixpath
import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.pbtxt_mending import mended_config
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.shell.words import ShellCommand, Word, lines_of
from trtllm_check.lint.trees import DrawnTree, trees

RULE = "model-layout"
CONFIG = "config.pbtxt"
MODEL_FILES = ("model.py", "model.json", "model.onnx", "model.plan", "model.pt", "model.graphdef", "rank0.engine")
SERVERS = ("launch_triton_server.py", "tritonserver")
READ = ("--model_repo", "--model-repository", "--model-store", "--model-repo")
COPIES, MAKES = ("cp", "mv", "install"), ("mkdir",)
WRITES = ("cat", "tee", "echo", "printf", "touch")
LOOKS = ("ls", "tree", "find", "docker", "podman", "curl", "chmod", "chown", "sudo", "rm")
WRONG = re.compile(r"\b(?:wrong|incorrect|bad|invalid|don['’]?t|do not|avoid|error)\b|[❌✗✘]", re.IGNORECASE)
ABOVE = 5  # lines above a drawing that tell what it is
OTHER_FILES = ("model.plan", "model.onnx", "model.pt", "model.engine", "model.trt", "model.safetensors")
TITLE = re.compile(
    r"^[ \t>]*+(?:[#-]|//|\*\*)*+[ \t]*+(?:[Ff]ile(?:name)?:?[ \t]*+)?[`*\"]*+"
    r"(?P<path>[\w./${}-]*[\w}-]/\d+/config\.pbtxt)[`*\"]*[ \t]*(?:\([^)]*\))?[ \t]*:?[`*]*[ \t]*$"
)
FENCE = re.compile(r"^[ \t>]*(?:`{3,}|~{3,})")
FIRST_FIELD = re.compile(r"^[ \t>]*(?:name|backend|platform|max_batch_size)[ \t]*:")
TOOLS = (*COPIES, *MAKES, *WRITES, *LOOKS, *SERVERS, "cd")


class Layout:
    """What is there; ``opened``: folders that may hold more."""

    def __init__(self, file: str, root: str = "", *, is_drawn: bool = False) -> None:
        self.file, self.root, self.is_drawn = file, root, is_drawn
        self.files: dict[str, Word] = {}
        self.folders: dict[str, Word] = {}
        self.opened: set[str] = set()

    def add(self, path: str, place: Word, *, is_folder: bool) -> None:
        (self.folders if is_folder else self.files).setdefault(path, place)
        above = posixpath.dirname(path)
        while above and above not in ("/", ".") and above not in self.folders:
            self.folders[above] = place
            above = posixpath.dirname(above)

    def inside(self, folder: str) -> dict[str, Word]:
        """The files and folders directly in it."""
        return {
            path: place for path, place in {**self.folders, **self.files}.items() if posixpath.dirname(path) == folder
        }

    def is_open(self, folder: str) -> bool:
        """True where it, a folder around it or one in it may hold more."""
        return any(
            one == folder or folder.startswith(f"{one}/") or one.startswith(f"{folder}/") or not one
            for one in self.opened
        )

    def models(self) -> list[str]:
        """Folders with a configuration of their own."""
        folders = (posixpath.dirname(path) for path in self.files if posixpath.basename(path) == CONFIG)
        return [folder for folder in folders if folder and not _is_version(folder)]


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    if not any(CONFIG in text for _, text in document.texts):
        return
    drawn = [
        _drawn(tree, file)
        for file, text in document.texts
        for tree in trees(text)
        if not _is_a_warning(tree, text.split("\n"))
    ]
    files = {command.file for command in document.commands}
    made = [_made([one for one in document.commands if one.file == file], file) for file in sorted(files)]
    yield from _titles(document, platform)
    for layout in (*drawn, *made):
        yield from _versions(layout, platform)
        yield from _engines(layout, document, platform)
        yield from _depth(layout, document, platform)


def _is_a_warning(tree: DrawnTree, lines: list[str]) -> bool:
    """True for a drawing of how not to do it."""
    first, last = tree.entries[0].place.line, tree.entries[-1].place.line
    return any(WRONG.search(line) for line in lines[max(first - ABOVE, 0) : last])


def _drawn(tree: DrawnTree, file: str) -> Layout:
    layout = Layout(file, tree.root, is_drawn=True)
    for one in tree.entries:
        is_folder = one.is_folder or "." not in posixpath.basename(one.path)
        layout.add(posixpath.join(tree.root, one.path), one.place, is_folder=is_folder)
        if one.is_open:
            layout.opened.add(posixpath.join(tree.root, one.path))
    return layout


def _made(commands: list[ShellCommand], file: str) -> Layout:
    """What the commands of one file make, one after the other."""
    layout, here = Layout(file), ""
    for command in commands:
        words = [word for word in command.words if not word.text.startswith("-")]
        tool = posixpath.basename(words[0].text) if words else ""
        if tool == "sudo" and len(words) > 1:
            words = words[1:]
            tool = words[0].text
        if tool == "cd":
            here = posixpath.join(here, words[1].text) if len(words) > 1 else ""
            continue
        for redirect in command.redirects:
            if redirect.operator in (">", ">>", ">|"):
                layout.add(_path(here, redirect.target), redirect.target, is_folder=False)
        if tool in MAKES:
            for word in words[1:]:
                _make(layout, here, word)
        elif tool in ("tee", "touch"):
            for word in words[1:]:
                layout.add(_path(here, word), word, is_folder=False)
        elif tool in COPIES and len(words) > 2:
            _copy(layout, here, words[1:], is_deep=len(words) < len(command.words))
        elif tool not in TOOLS:
            layout.opened |= {
                _path(here, word) for word in words[1:] if "/" in word.text or word.text in layout.folders
            }
    return layout


def _make(layout: Layout, here: str, word: Word) -> None:
    path = _path(here, word)
    if "{" in path or "*" in path:
        layout.opened.add(posixpath.dirname(path.partition("{")[0].rstrip("/") + "/x"))
    else:
        layout.add(path, word, is_folder=True)


def _copy(layout: Layout, here: str, words: list[Word], *, is_deep: bool) -> None:
    *sources, last = words
    target = _path(here, last)
    for one in (_path(here, word) for word in sources):  # what is copied on stands there for a while
        if posixpath.basename(one) == CONFIG and one in layout.files:
            layout.opened.add(posixpath.dirname(one))
    names = [posixpath.basename(word.text.rstrip("/")) for word in sources]
    plain = all("." in name.lstrip(".") and "*" not in name and "$" not in name for name in names) and not is_deep
    is_folder = last.text.endswith("/") or target in layout.folders or len(sources) > 1
    if plain and is_folder:
        for name in names:
            layout.add(posixpath.join(target, name), last, is_folder=False)
    elif plain and "." in posixpath.basename(target):
        layout.add(target, last, is_folder=False)
    else:
        layout.opened.add(target)


def _path(here: str, word: Word) -> str:
    return posixpath.normpath(posixpath.join(here, word.text)) if word.text else here


def _is_version(folder: str) -> bool:
    return posixpath.basename(folder).isdecimal()


def _versions(layout: Layout, platform: Platform) -> Iterator[Draft]:
    """The folder of each model: its configuration, and a version below it."""
    for path, place in layout.files.items():
        folder = posixpath.dirname(path)
        model = posixpath.dirname(folder)
        is_inside = posixpath.basename(path) == CONFIG and _is_version(folder) and posixpath.basename(model)
        if is_inside and posixpath.join(model, CONFIG) not in layout.files:
            known = {"version": posixpath.basename(folder), "right": f"{posixpath.basename(model)}/{CONFIG}"}
            yield from _draft(layout, place, platform, "config in a version", **known)
    models = layout.models()
    some = any(_is_version(path) for model in models for path in layout.inside(model))
    for model in models:
        inside = layout.inside(model)
        if layout.is_open(model) or any(_is_version(path) for path in inside):
            continue
        name = posixpath.basename(model)
        below = [path for path in layout.files if posixpath.dirname(posixpath.dirname(path)) == model]
        other = next((path for path in below if posixpath.basename(path) in MODEL_FILES), "")
        held = next((inside[path] for path in inside if posixpath.basename(path) in MODEL_FILES), None)
        if other and (version := posixpath.dirname(other)) in layout.folders:
            known = {"model": name, "version": posixpath.basename(version)}
            yield from _draft(layout, layout.folders[version], platform, "name of a version", **known)
        elif held is not None:
            known = {"model": name, "found": posixpath.basename(held.text) or "its file"}
            yield from _draft(layout, held, platform, "file without a version", **known)
        elif name == "ensemble" and "/all_models/" in f"/{model}":
            continue  # the backend's own templates, of which a page draws what matters
        elif some and not any(path in layout.folders for path in inside):
            place = layout.files[posixpath.join(model, CONFIG)]
            for draft in _draft(layout, place, platform, "no version", model=name):
                yield draft._replace(severity="warning") if layout.is_drawn else draft  # what is empty is seldom drawn


def _engines(layout: Layout, document: Document, platform: Platform) -> Iterator[Draft]:
    """A file of weights of another backend in the version of a model that TensorRT-LLM's backend loads."""
    ours = {one.model or one_name for one in document.configs if (one_name := _of_the_engine(one.text))}
    folders = [posixpath.dirname(path) for path in layout.files]
    for path, place in layout.files.items():
        version, name = posixpath.split(path)
        model = posixpath.basename(posixpath.dirname(version))
        if name not in OTHER_FILES or not _is_version(version) or model not in ours:
            continue
        if not any(one != version and one.startswith(version) for one in folders):
            yield from _draft(layout, place, platform, "another's file", model=model, found=name)


def _of_the_engine(text: str) -> str:
    """The name in a configuration for TensorRT-LLM's backend, a dash where it has none; "" for another backend."""
    message = mended_config(text)
    return (message.text("name") or "-") if message.text("backend") == "tensorrtllm" else ""


def _titles(document: Document, platform: Platform) -> Iterator[Draft]:
    """``# models/llama/1/config.pbtxt`` above a configuration: the page puts it into the folder of a version."""
    for file, text in document.texts:
        lines = lines_of(text)
        for number, line in enumerate(lines) if "/config.pbtxt" in text else ():
            match = TITLE.match(line)
            below = next((one for one in lines[number + 1 :] if one.strip() and not FENCE.match(one)), "")
            if match is None or not FIRST_FIELD.match(below):
                continue
            right = posixpath.join(posixpath.dirname(posixpath.dirname(match["path"])), CONFIG)
            if right in text:
                continue  # both are drawn or named, and one is a slip at most
            place = Word(match["path"], number + 1, match.start("path") + 1)
            known: dict[str, Any] = {"version": posixpath.basename(posixpath.dirname(match["path"])), "right": right}
            for draft in drafts(platform.release.name, RULE, place, form="config in a version", file=file, **known):
                yield draft._replace(severity="warning")  # of a page's heading, which nobody runs


def _depth(layout: Layout, document: Document, platform: Platform) -> Iterator[Draft]:
    """A server that is given a model's folder, or the folder around the repository."""
    models = layout.models()
    for server in document.of(*SERVERS):
        given = server.find(*READ)
        word = given.values[0] if given and given.values else None
        if word is None or not models or (server.command.file != layout.file and not layout.root):
            continue
        folder = _folder(layout, word, document)
        if not folder or layout.is_open(folder):
            continue
        here = {posixpath.dirname(model) for model in models}
        if folder in models and any(_is_version(path) for path in layout.inside(folder)):
            known = {"given": word.text, "model": posixpath.basename(folder)}
            yield from _draft(layout, word, platform, "too deep", **known)
        elif len(here) == 1 and folder not in here and posixpath.dirname(min(here)) == folder:
            right = posixpath.join(word.text, posixpath.basename(min(here)))
            yield from _draft(layout, word, platform, "too high", given=word.text, right=right)


def _folder(layout: Layout, word: Word, document: Document) -> str:
    """The folder of the layout that the server reads; "" where that is not told."""
    path = posixpath.normpath(word.text)
    if is_open(path):
        return ""
    for mount in document.mounts:
        inside = mount.inside.rstrip("/")
        if inside and f"{path}/".startswith(f"{inside}/"):
            path = posixpath.normpath(mount.host.rstrip("/") + path[len(inside) :])
            break
    if not layout.root:
        return path if path in layout.folders else ""
    name = posixpath.basename(path)
    if name == posixpath.basename(layout.root):
        return layout.root
    found = [one for one in layout.folders if posixpath.basename(one) == name]
    return found[0] if len(found) == 1 and not _is_version(found[0]) else ""


def _draft(layout: Layout, place: Word, platform: Platform, form: str, **known: Any) -> Iterator[Draft]:
    return drafts(platform.release.name, RULE, place, form=form, file=layout.file, **known)
