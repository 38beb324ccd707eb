"""Folders of TensorRT-LLM's examples: those that the release has elsewhere, and slips in their names."""

import posixpath
import re
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.installs import Clone
from trtllm_check.lint.installs import clones as find_clones
from trtllm_check.lint.rules.names import is_open, tool_drafts
from trtllm_check.lint.shell.words import ShellCommand, Word, word_at
from trtllm_check.releases.load import in_range

FAMILY = "example_folders"
RULE = "example-folder"
OLD = re.compile(r"(?P<before>(?:.*/)?)examples/(?P<model>[\w.-]+)(?P<rest>/.*)?")
NEW = re.compile(r"(?P<before>(?:.*/)?)examples/models/(?:core|contrib)/(?P<model>[\w.-]+)(?P<rest>/.*)?")
CLONE = re.compile(r"(?:^|/)(?:tensorrt_llm|TensorRT-LLM|tensorrt-llm)/$", re.IGNORECASE)
TOP = re.compile(r"(?P<before>(?:.*/)?(?:tensorrt_llm|TensorRT-LLM))/(?P<top>[a-z_]+)/(?:\w[\w./-]*)")
OPTIMIZER = re.compile(r"(?P<before>(?:.*/)?(?:TensorRT-)?Model-Optimizer/)examples/(?P<name>[a-z_]+)(?P<rest>/.*)?")
ITS_CLONE = re.compile(r"git clone (?!.*(?:-b|--branch)[ =]).*github\.com/NVIDIA/(?:TensorRT-)?Model-Optimizer")
A_STATE = re.compile(r"git (?:-C \S+ )?(?:checkout|switch)|--branch|nvidia-modelopt\S*(?:==|<)")
COPY = re.compile(r"^(?:COPY|ADD)[ \t]+(?P<path>[\w./-]*/examples/[\w./-]+)[ \t]", re.MULTILINE)
SCRIPTS = (".py", ".sh")
TESTS = ("[", "[[", "test", "ls")
PLAIN_NAME = re.compile(r"\$(\w+)")
TENSORRT_LLM = "nvidia/tensorrt-llm"
BUILDER = re.compile(r"examples/llama/build\.py$")
OF_THE_BUILDER = ("--model_dir", "--use_gpt_attention_plugin", "--use_gemm_plugin", "--output_dir", "--ft_model_dir")
NEAR = 0.85
OF_A_CLONE = re.compile(r"github\.com/NVIDIA/TensorRT-LLM(?:\.git)?/?$", re.IGNORECASE)
OURS = re.compile(r"(?:TensorRT-LLM|tensorrtllm_backend)$", re.IGNORECASE)
DEFAULT_BRANCHES = ("", "main", "master")
OF_THE_WHEEL = re.compile(r"(?:dist|site)-packages/tensorrt_llm/(?P<rest>(?:examples|benchmarks)/.*\.py)$")
LEADS_OUT = re.compile(r"\.\./(?P<rest>(?:quantization/quantize|run|summarize|mmlu)\.py)")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    of_llama = document.of("convert_checkpoint.py", "run.py", "quantize.py", "summarize.py")
    own = {id(one.path) for one in of_llama if any(tool_drafts(one, platform.release))}
    words = (word.text for command in document.commands for word in command.words)
    clones = any(text[-3:].lower() == "llm" and CLONE.search(f"{text}/") for text in words)
    if not platform.guessed:
        yield from _builder(document, release)
    yield from _outside(document, release)
    own_clones = find_clones(document)
    is_of_a_clone = any(OURS.search(one.name) and one.reference in DEFAULT_BRANCHES for one in own_clones)
    targets = {one.git.positional[-1].text.rstrip("/") for one in own_clones if one.name.lower() == TENSORRT_LLM}
    main = [one for one in own_clones if one.name.lower() == TENSORRT_LLM and one.reference in DEFAULT_BRANCHES]
    if not platform.told and len(main) == 1 and len(own_clones) == 1:
        yield from _in_main(document, main[0], release)
    newest = {file for file, text in document.texts if ITS_CLONE.search(text) and not A_STATE.search(text)}
    for command in document.commands:
        for word in _paths(command):
            yield from _misspelt(command, word, release)
            if match := OF_THE_WHEEL.search(word.text):
                known: dict[str, Any] = {"path": word.text, "rest": match["rest"]}
                yield from drafts(release, RULE, word, form="wheel", file=command.file, **known)
            if command.file in newest:
                yield from _optimizer(command, word, release)
            if not platform.guessed and id(word) not in own:
                is_there = is_of_a_clone and NEW.fullmatch(word.text) and not word.text.startswith("/")
                if not is_there:  # in the clone's newest state, whatever the container has
                    yield from _moved(command.file, word, clones, targets, release)
    if not platform.guessed:
        yield from _copied(document, release)


def _copied(document: Document, release: str) -> Iterator[Draft]:
    """``COPY TensorRT-LLM/examples/llama/requirements.txt .`` into an image of a release that has it elsewhere.

    The tree beside the Dockerfile may be of another release than the image, whose requirements do not fit it then.
    """
    for file, text in document.texts:
        for match in COPY.finditer(text) if "COPY" in text or "ADD" in text else ():
            word = word_at(text, match.start("path"), match["path"])
            for draft in _moved(file, word, clones=False, targets=set(), release=release):
                yield draft._replace(severity="warning")


def _builder(document: Document, release: str) -> Iterator[Draft]:
    """Llama's own build.py, which no release with facts has."""
    folder, file = "", ""
    for command in document.commands:
        texts = [word.text for word in command.words]
        if command.file != file:
            folder, file = "", command.file
        if len(texts) > 1 and texts[0] in ("cd", "pushd"):
            folder = posixpath.normpath(posixpath.join(folder, texts[1]))
        for word in command.words[1:3]:
            if "build.py" not in word.text:
                continue
            path = posixpath.normpath(posixpath.join(folder, word.text))
            if BUILDER.search(path) and any(text.startswith(OF_THE_BUILDER) for text in texts):
                yield from drafts(release, RULE, word, form="builder", file=command.file, path=word.text)


def _outside(document: Document, release: str) -> Iterator[Draft]:
    """``../quantization/quantize.py`` at the top of a clone that the text has made and gone into."""
    folder, file, cloned = "", "", False
    for command in document.commands:
        texts = [word.text for word in command.words]
        if command.file != file:
            folder, file, cloned = "", command.file, False
        cloned = cloned or (texts[:2] == ["git", "clone"] and any(OF_A_CLONE.search(text) for text in texts[2:]))
        if texts[:1] in (["cd"], ["pushd"]):
            folder = texts[1] if cloned and len(texts) == 2 and CLONE.search(f"{texts[1]}/") else ""
        elif texts[:1] in (["docker"], ["podman"]):
            there = [texts[at + 1] for at, text in enumerate(texts[:-1]) if text in ("-w", "--workdir")]
            folder = folder if folder and there and CLONE.search(f"{there[-1]}/") else ""
        for word in _paths(command) if folder else ():
            match = LEADS_OUT.fullmatch(word.text)
            if match:
                known: dict[str, Any] = {"path": word.text, "folder": folder, "rest": match["rest"]}
                yield from drafts(release, RULE, word, form="outside", file=command.file, **known)


def _paths(command: ShellCommand) -> Iterator[Word]:
    """Where a command goes, and the scripts that it starts."""
    words = command.words
    if words and words[0].text in ("cd", "pushd"):
        yield from words[1:2]
        return
    if words and words[0].text in TESTS:
        for word in words[1:4]:
            if "/" in word.text:  # as it is written, with its quotes
                yield Word(PLAIN_NAME.sub(r"${\1}", word.text.strip("\"'")), word.line, word.column)
        return
    yield from (word for word in words[:4] if word.text.endswith(SCRIPTS) and not word.text.startswith("-"))


@cache
def moved_folders() -> dict[str, str]:
    """Model -> core or contrib, where its examples went with 0.19.0."""
    data = rule_data(FAMILY)
    return {model: kind for kind in ("core", "contrib") for model in data[kind].split()}


def _moved(file: str, word: Word, clones: bool, targets: set[str], release: str) -> Iterator[Draft]:
    """The folder of a model where another release has it; ``targets``: where the text clones TensorRT-LLM to."""
    data = rule_data(FAMILY)
    new, old = NEW.fullmatch(word.text), OLD.fullmatch(word.text)
    match = new or old
    if match is None or match["model"] not in moved_folders() or is_open(word.text[match.end("before") :]):
        return
    before = match["before"]
    is_target = before.rstrip("/") in targets
    if not is_target and (is_open(before) or not (CLONE.search(before) or (clones and not before.strip("./")))):
        return
    rest = match["rest"] or ""
    known: dict[str, Any] = {"path": word.text, "first": data["since"]}
    if new is None and in_range(release, data["since"], data["until"]):
        known["right"] = f"{before}examples/models/{moved_folders()[match['model']]}/{match['model']}{rest}"
        yield from drafts(release, RULE, word, file=file, **known)
    elif new is not None and not in_range(release, data["since"]):
        known["right"] = f"{before}examples/{match['model']}{rest}"
        yield from drafts(release, RULE, word, form="later", file=file, **known)


def _in_main(document: Document, clone: Clone, release: str) -> Iterator[Draft]:
    """``cd TensorRT-LLM/examples/llama`` in a clone of no tag, whose newest state has it below examples/models."""
    place = clone.git.positional[-1].text.rstrip("/") if len(clone.git.positional) > 2 else clone.folder
    inside, seen = False, False
    for command in document.commands:
        seen = seen or command is clone.git.command
        words = [word.text for word in command.words]
        if not seen or command.file != clone.git.command.file or words[:1] in (["docker"], ["podman"]):
            continue
        for word in _paths(command):
            match = OLD.fullmatch(word.text)
            before = match["before"].rstrip("/") if match else ""
            is_there = before == place or posixpath.basename(before) == place or (inside and before in ("", "."))
            if match and is_there and match["model"] in moved_folders():
                right = f"{match['before']}examples/models/{moved_folders()[match['model']]}/{match['model']}"
                known: dict[str, Any] = {"path": word.text, "first": rule_data(FAMILY)["since"], "right": right}
                yield from drafts(release, RULE, word, form="main", file=command.file, **known)
                return
        if words[:1] in (["cd"], ["pushd"]) and len(words) > 1:
            inside = words[1].rstrip("/") in (place, f"./{place}") or words[1].endswith(f"/{place}")


def _optimizer(command: ShellCommand, word: Word, release: str) -> Iterator[Draft]:
    """A folder that the newest Model Optimizer has no longer, in a clone of it."""
    match, gone = OPTIMIZER.fullmatch(word.text), rule_data(FAMILY)["optimizer"]
    if match and match["name"] in gone:
        right = f"{match['before']}examples/{gone[match['name']]}{match['rest'] or ''}"
        yield from drafts(release, RULE, word, form="optimizer", file=command.file, path=word.text, right=right)


def _misspelt(command: ShellCommand, word: Word, release: str) -> Iterator[Draft]:
    """``tensorrt_llm/xamples/llama``."""
    match = TOP.fullmatch(word.text)
    names = rule_data(FAMILY)["top"].split()
    if match is None or match["top"] in names:
        return
    close = get_close_matches(match["top"], names, 1, NEAR)
    for meant in close:
        right = word.text.replace(f"/{match['top']}/", f"/{meant}/", 1)
        yield from drafts(release, RULE, word, form="slip", file=command.file, path=word.text, right=right)
