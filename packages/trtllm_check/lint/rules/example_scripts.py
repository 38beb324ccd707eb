"""TensorRT-LLM's example scripts without a table of their own: options that the release's script does not take."""

import posixpath
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.shell.words import ShellCommand, Word, file_name, front
from trtllm_check.releases.clients import backend_scripts, example_script, example_words
from trtllm_check.releases.load import in_range
from trtllm_check.releases.python_names import ANY

RULE = "example-option"
FAMILY = "example_scripts"
OF_LLAMA = "examples/llama/build.py"
THERE = "."  # in the table: the script itself
CLONE = re.compile(r"NVIDIA/TensorRT-LLM|(?:^|[\s/])TensorRT-LLM/(?:examples|benchmarks)|cd \S*TensorRT-LLM\b")
Texts = tuple[tuple[str, str], ...]
PLACE = re.compile(r"(?:^|/)((?:examples|benchmarks)/.*)")
OF_THE_BACKEND = re.compile(r"(?:^|/)((?:inflight_batcher_llm/client|tools/(?:inflight_batcher_llm|gpt))/[\w.-]+\.py)$")
CLIENTS = "inflight_batcher_llm/client"
PRECISION, CALIBRATED = "--weight_only_precision", ("int4_awq", "awq", "w4a8_awq", "fp8", "int8_sq")
# What build_visual_engine.py takes for --model_type: NVIDIA/TensorRT-LLM@05316d33 examples/multimodal (0.11.0; those
# before take some of these), and @8681b3a4 tensorrt_llm/tools/multimodal_builder.py (0.13.0; then came more).
VISUAL, MODEL_TYPE, LAST_READ = "examples/multimodal/build_visual_engine.py", "--model_type", "0.13.0"
MODEL_TYPES = frozenset(
    [
        "blip2",
        "llava",
        "vila",
        "nougat",
        "cogvlm",
        "fuyu",
        "pix2struct",
        "neva",
        "kosmos-2",
        "video-neva",
        "phi-3-vision",
        "llava_next",
    ]
)
BELOW_MODELS = re.compile(r"examples/models/(?:core|contrib)/")  # where they went with 0.19
LATER = "9"  # than all releases that were read
FIRST_WORDS = 12  # of a command, mpirun and its options included
OF_TABLES = re.compile(
    r"examples/(?:llama/(?:convert_checkpoint|summarize)|quantization/quantize|run|summarize|mmlu)\.py"
)


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    version = platform.written if platform.earlier else "" if platform.guessed else platform.release.name
    among = any(CLIENTS in word.text for command in document.commands for word in command.words[1:2])
    for command in document.commands:
        yield from _whole(command, platform.release.name)
    yield from _of_commands(document, platform, version, among=among)


def _of_commands(document: Document, platform: Platform, version: str, *, among: bool) -> Iterator[Draft]:
    folders: dict[str, str] = {}
    for command in document.commands:
        if command.words[:1] and command.words[0].text in ("cd", "pushd"):
            folders[command.file] = _moved(folders.get(command.file, ""), command)
            continue
        at = next((n for n, word in enumerate(front(command, FIRST_WORDS)) if word.text.endswith(".py")), None)
        script = _script(command.words[at], folders.get(command.file, ""), among=among) if at is not None else ""
        if at is not None and script and (platform.earlier or not OF_TABLES.fullmatch(script)):
            yield from _options(script, command, at, version, platform.release.name, document.texts)


def _whole(command: ShellCommand, release: str) -> Iterator[Draft]:
    """Options that no release of a script has whose options are all known."""
    words = command.words
    for number, script in enumerate(words[:FIRST_WORDS]):
        entry = rule_data(FAMILY)["whole"].get(file_name(script.text)) if script.text.endswith(".py") else None
        if entry is None:
            continue
        options = entry["options"].split()
        for word, behind in pairwise((*words[number + 1 :], Word("", 0, 0))):
            flag, sign, value = word.text.partition("=")
            known: dict[str, Any] = {"script": file_name(script.text), "flag": flag, "where": entry["where"]}
            if word.text in ("|", "&&", ";", "&"):
                return
            if flag in entry["words"]:
                given = value if sign else behind.text
                if given and not is_open(given) and given not in entry["words"][flag].split():
                    known |= {"value": given, "words": ", ".join(entry["words"][flag].split())}
                    yield from drafts(release, RULE, word, form="word", file=command.file, **known)
            elif re.fullmatch(r"--[A-Za-z][\w-]*", flag) and not any(one.startswith(flag) for one in options):
                yield from drafts(release, RULE, word, form="whole", file=command.file, **known)


def _moved(folder: str, command: ShellCommand) -> str:
    """The folder among the examples that a text is in after ``cd``, "" where that is not known."""
    target = command.words[1].text.rstrip("/") if len(command.words) > 1 else ""
    match = PLACE.search(f"{target}/")
    if match:
        return match[1].rstrip("/")
    if folder and target and not target.startswith(("/", "~", "$")):
        path = posixpath.normpath(posixpath.join(folder, target))
        return path if PLACE.search(f"{path}/") else ""
    return ""


def _script(word: Word, folder: str, *, among: bool) -> str:
    """The path of a script in its repository; ``among``: the text goes to the backend's clients."""
    if backend := OF_THE_BACKEND.search(word.text):
        return backend[1]
    name = word.text.rpartition("/")[2]
    if among and word.text in (name, f"./{name}") and name in backend_scripts():
        return backend_scripts()[name]
    match = PLACE.search(word.text)
    if match:
        return posixpath.normpath(match[1])
    is_here = folder and not word.text.startswith(("/", "~", "$"))
    return posixpath.normpath(posixpath.join(folder, word.text)) if is_here else ""


def _precision(script: str, command: ShellCommand, at: int, release: str) -> Iterator[Draft]:
    """Formats that want a calibration, asked of a script that only rounds weights."""
    if not script.endswith("/convert_checkpoint.py"):
        return
    words = command.words[at + 1 :]
    for flag, value in pairwise(words):
        if flag.text == PRECISION and value.text in CALIBRATED:
            known: dict[str, Any] = {"script": script, "value": value.text}
            yield from drafts(release, RULE, value, form="calibrated", file=command.file, **known)


def _model_type(script: str, command: ShellCommand, at: int, version: str, release: str) -> Iterator[Draft]:
    """``--model_type mllama`` of a release before the model came."""
    if script != VISUAL or version != release or not in_range(release, until=LAST_READ):
        return
    for flag, value in pairwise(command.words[at + 1 :]):
        if flag.text == MODEL_TYPE and value.text not in MODEL_TYPES and not is_open(value.text):
            known: dict[str, Any] = {"script": script, "value": value.text, "version": version}
            yield from drafts(release, RULE, value, form="model type", file=command.file, **known)


def _options(script: str, command: ShellCommand, at: int, version: str, release: str, texts: Texts) -> Iterator[Draft]:
    yield from _precision(script, command, at, release)
    yield from _model_type(script, command, at, version, release)
    is_later = False
    table = example_script(script)
    if table is None and BELOW_MODELS.match(script):
        script, version = BELOW_MODELS.sub("examples/", script), LATER
        table = example_script(script) if not OF_TABLES.fullmatch(script) else None
    if table is None:
        return
    if version and not table.near_releases(version):
        version = ""  # later than all that were read: the scripts hardly changed, and a slip stays one
        is_later = script not in backend_scripts().values()
    known = table.calls[script]
    absent = table.judge_command(script, THERE, version) if version else None
    if absent is not None and script == OF_LLAMA:
        return  # the rule on folders speaks of it
    if absent is not None:
        place = command.words[at]
        is_ours = CLONE.search(" ".join(text for _, text in texts)) is not None
        names: dict[str, Any] = {
            "script": script,
            "version": version,
            "since": absent.since,
            "last": absent.last,
            "flag": "",
            "near": "",
        }
        for draft in drafts(release, RULE, place, form=f"script {absent.kind}", file=command.file, **names):
            yield draft._replace(source=table.source, severity="error" if is_ours else "warning")
        return
    if not version and ANY in known:
        return
    is_whole = posixpath.basename(script) in rule_data(FAMILY)["whole"]  # whose options are told already
    for word in () if is_whole else command.words[at + 1 :]:
        flag = word.text.partition("=")[0]
        if word.text in ("|", "&&", ";", "&"):
            break
        if not re.fullmatch(r"--[A-Za-z][\w-]*", flag) or is_open(flag):
            continue
        if flag not in known and any(one.startswith(flag) for one in known):
            continue  # argparse completes it
        if is_later and flag in example_words():
            continue  # it may have come
        verdict = table.judge_keyword(script, flag, version)
        if verdict is None or (not version and (flag in known or not verdict.near)):
            continue  # where no release is told, only a slip of all of them counts
        form = verdict.kind if verdict.kind != "never" else "never" if verdict.near else "never, perhaps"
        meant = version or f"{table.releases[0]} to {table.releases[-1]}"
        names = {"script": script, "flag": flag, "version": meant, "near": verdict.near}
        names |= {"since": verdict.since, "last": verdict.last}
        for draft in drafts(release, RULE, word, form=form, file=command.file, **names):
            is_bound = (
                script in backend_scripts().values() and verdict.kind != "never"
            )  # to the clone's tag, not the container's
            severity = draft.severity if version and not is_bound else "warning"
            yield draft._replace(source=table.source, severity=severity)
