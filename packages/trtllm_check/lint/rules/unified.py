"""A Hugging Face checkpoint handed to trtllm-build: of the hub, downloaded, or exported by ModelOpt."""

import posixpath
import re
from collections.abc import Iterator

from serving_base.facts.published import published_model
from trtllm_check.lint.document import Document
from trtllm_check.lint.facts import QUANTIZES, written_folder
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.rules.arguments import is_checked
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.shell.pasted import is_of_another_section
from trtllm_check.lint.shell.words import Word

RULE = "checkpoint-of-hugging-face"
BUILD = "trtllm-build"
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
UNIFIED = re.compile(r"nvidia/[\w.-]+-(?:FP8|FP4|NVFP4)(?:-[\w.-]+)?", re.IGNORECASE)
ENGINES = re.compile(r"trt|tensorrt|engine|ckpt|checkpoint", re.IGNORECASE)  # repositories of TensorRT-LLM's own files
OTHER_FORMATS = re.compile(r"-(?:GGUF|AWQ|GPTQ|MLX)(?:-|$)", re.IGNORECASE)
OWN_FILE = "hf_quant_config.json"
EXPORTED = re.compile(
    r"export_hf_checkpoint\(\s*[^()]*?(?:export_dir\s*=\s*|,\s*)(?P<quote>[\"'])(?P<folder>[^\"'{}$]+)(?P=quote)"
)
CLONE = re.compile(r"(?:https://)?(?:www\.)?huggingface\.co/(?P<name>[\w.-]+/[\w.-]+?)(?:\.git)?/?$")


SOURCES = ("--model_dir", "--hf_model_dir", "--pyt_ckpt_path")
DOWNLOADED = re.compile(
    r"snapshot_download\((?:[^()]|\(\))*?local_dir\s*=\s*(?:str\()?"
    r"(?:(?P<quote>[\"'])(?P<folder>[^\"'{}$]+)(?P=quote)|(?P<name>[A-Za-z_]\w*))"
)
# How a text describes a variable that holds the path of such a model.
DESCRIBED = re.compile(
    r"(?<!\w)(?P<name>(?:hf_)?model_?(?:path|dir)|hf_\w+)(?:[ \t]*[:=#][^\n]{0,120}|[\"'][ \t]*,[^()]{0,280}\(?)"
    r"\bHugging ?Face (?:format|model|checkpoint)",
    re.IGNORECASE,
)
VARIABLE = re.compile(r"\$\{?(?P<name>[A-Za-z_]\w*)\}?")
LINE = re.compile(r"line (\d+) ")
CLONE_WORDS = 2  # clone and the address


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    builds = [one for one in document.of(BUILD) if is_checked(one, platform.release)]
    if not builds or not platform.release.builds_engines:
        return
    folders = dict(_folders(document))
    written = {posixpath.normpath(written_folder(one) or "") for one in document.of(*QUANTIZES)} - {"."}
    for build in builds:
        for word in build.values("--checkpoint_dir")[:1]:
            folder = posixpath.normpath(word.text)
            how = folders.get(folder, "")
            if not how and folder not in written and _is_of_the_hub(word.text):
                how = f"{word.text} is a repository of the hub"
            if how and not is_open(word.text):
                yield from drafts(platform.release.name, RULE, word, invocation=build, how=how)
            elif how and _is_set_anew(word, how, dict(document.texts).get(build.command.file, "")):
                continue
            elif folder not in written and (how := how or _described(document, word.text)):
                for draft in drafts(platform.release.name, RULE, word, invocation=build, how=how):
                    yield draft._replace(severity="warning")  # another value may be in the variable by then


def _is_set_anew(word: Word, how: str, text: str) -> bool:
    """True for a variable that the reader sets, where another section of the page speaks of it, too."""
    variable, line = VARIABLE.fullmatch(word.text), LINE.match(how)
    if variable is None or line is None or re.search(rf"(?<![\w$]){variable['name']}=", text):
        return False
    return is_of_another_section(text, int(line[1]), word.line)


def _is_of_the_hub(name: str) -> bool:
    """True for the name of a repository that holds a model of Hugging Face."""
    if not HUB_NAME.fullmatch(name) or ENGINES.search(name):
        return False
    model = published_model(name)
    if OTHER_FORMATS.search(name):
        return True
    return UNIFIED.fullmatch(name) is not None or (model is not None and model.official)


def _folders(document: Document) -> Iterator[tuple[str, str]]:
    """Folders that hold a checkpoint of Hugging Face, and how the text tells that."""
    for one in document.of("hf", "huggingface-cli"):
        names = [word.text for word in one.positional if HUB_NAME.fullmatch(word.text)]
        folder = one.value("--local-dir")
        if folder and names and _is_of_the_hub(names[0]):
            yield posixpath.normpath(folder), f"line {one.path.line} downloads {names[0]} into it"
    for one in document.of("git"):
        yield from _cloned(one)
    for one in document.of("hf_ptq.py"):
        folder = one.value("--export_path")
        if folder and one.value("--export_fmt") == "hf":
            yield posixpath.normpath(folder), f"line {one.path.line} exports it with --export_fmt hf"
    for one in document.of(*QUANTIZES):
        for word in one.values(*SOURCES)[:1]:
            yield posixpath.normpath(word.text), f"line {one.path.line} reads it as the model to convert"
    for _, text in document.texts:
        for match in DOWNLOADED.finditer(text):
            if ENGINES.search(match[0]):
                continue
            line = text.count("\n", 0, match.start()) + 1
            how = f"line {line} downloads a model into it"
            if match["name"]:
                yield f"${{{match['name']}}}", how
                folders = re.findall(
                    rf"^[ \t]*{match['name']}[ \t]*=[ \t]*[\"']([^\"'{{}}\n]+)[\"'][ \t]*$", text, re.MULTILINE
                )
                yield from ((posixpath.normpath(folder), how) for folder in folders)
            else:
                yield posixpath.normpath(match["folder"]), how
        for match in EXPORTED.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            yield posixpath.normpath(match["folder"]), f"line {line} exports it with export_hf_checkpoint"
    for config in document.json_configs:
        if posixpath.basename(config.path) == OWN_FILE and posixpath.dirname(config.path):
            yield posixpath.dirname(posixpath.normpath(config.path)), f"it holds {OWN_FILE}"


def _described(document: Document, written: str) -> str:
    """What the text says of the variable that the folder is."""
    variable = VARIABLE.fullmatch(written)
    for _, text in document.texts if variable else ():
        for match in DESCRIBED.finditer(text):
            if variable and match["name"] == variable["name"]:
                line = text.count("\n", 0, match.start()) + 1
                return f"line {line} says that {match['name']} is one"
    return ""


def _cloned(one: Invocation) -> Iterator[tuple[str, str]]:
    """``git clone https://huggingface.co/ORGANIZATION/MODEL [FOLDER]``."""
    words = [word.text for word in one.positional]
    match = CLONE.match(words[1]) if len(words) > 1 and words[0] == "clone" else None
    if match is not None and _is_of_the_hub(match["name"]):
        folder = words[2] if len(words) > CLONE_WORDS else match["name"].rpartition("/")[2]
        yield posixpath.normpath(folder), f"line {one.path.line} clones {match['name']} into it"
