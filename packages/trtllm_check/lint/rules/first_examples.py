"""Commands of TensorRT-LLM's example scripts that hold in every release: words of types, files, folders by ranks."""

import posixpath
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.rules.pairs import engine_world, orchestrated
from trtllm_check.lint.shell.words import ShellCommand, Word, file_name, front
from trtllm_check.releases.load import load_release

RULE = "example-word"
BUILDER = "build.py"  # of each model's folder, before trtllm-build
MOST_BEFORE = 8  # words in front of the script: mpirun, python, a profiler
PLUGIN = re.compile(
    r"(?P<option>--use_(?:gpt_attention|gemm|layernorm|rmsnorm|lookup|smooth_quant)\w*plugin)(?:=(?P<value>.+))?"
)
TYPES = {"fp16": "float16", "half": "float16", "bf16": "bfloat16", "fp32": "float32", "float": "float32"}
QUANTIZED = "--quant_ckpt_path"
SCALES = "--quantized_fp8_model_path"
RUNNERS = ("run.py", "summarize.py", "mmlu.py")
FOLDER = re.compile(r"(?:^|/)(?P<ranks>[1-9]\d?)-gpu/?$")
LAUNCH = "launch_triton_server.py"
ENGINE_DIR = re.compile(r"(?:^|,)(?:engine_dir|gpt_model_path):(?P<path>[^,]+)")
RANKS = ("--world_size", "--tp_size", "--pp_size")
COUNT = re.compile(r"[1-9]\d?")
ENC_DEC = "enc_dec"
REPOSITORY = re.compile(r"(?:^|/)all_models/(?P<name>inflight_batcher_llm|gpt)/?$")
RECURSIVE = re.compile(r"-\w*[rRa]\w*|--recursive")
MODELS = r"(?:tensorrt_llm(?:_bls)?|preprocessing|postprocessing|ensemble)"


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    made: set[str] = set()
    built: dict[str, set[tuple[int, int]]] = {}  # folder -> the ranks and the lines of the builders that write it
    for command in document.commands:
        names = [file_name(word.text) for word in front(command, MOST_BEFORE)]
        if BUILDER in names:
            yield from _builder(command, release)
            yield from _no_scales(command, release)
            yield from _scales_folder(document, command, release)
            yield from _world(command, names.index(BUILDER), built, release)
        if names[:1] == ["mkdir"]:
            made |= {word.text.rstrip("/") for word in command.words[1:]}
        if names[:1] == ["cp"]:
            yield from _models(document, command, made, release)
    yield from _server(document, release)
    for one in document.of(*RUNNERS):
        engines = built.get(posixpath.normpath(one.value("--engine_dir") or "."), set())
        if len(engines) == 1:
            yield from _started(one, *engines.pop(), release)
        elif engine_world(document.facts_of(one), platform.release) is None:  # else ranks-not-tp-pp knows
            yield from _ranks(one, release)


def _builder(command: ShellCommand, release: str) -> Iterator[Draft]:
    """``--use_gemm_plugin fp16``, and an engine in the place of the scales of FP8."""
    for word, behind in pairwise((*command.words, Word("", 0, 0))):
        match = PLUGIN.fullmatch(word.text)
        if match is not None:
            value = match["value"] or behind.text
            if value in TYPES:
                known: dict[str, Any] = {"option": match["option"], "value": value, "right": TYPES[value]}
                yield from drafts(release, RULE, word, form="type", file=command.file, **known)
        if word.text == SCALES and behind.text.endswith(".engine"):
            known = {"option": SCALES, "value": behind.text}
            yield from drafts(release, RULE, behind, form="scales", file=command.file, **known)


def _scales_folder(document: Document, command: ShellCommand, release: str) -> Iterator[Draft]:
    """``--quant_ckpt_path`` with the folder that quantize.py wrote, and not the file in it."""
    written = {
        posixpath.normpath(word.text)
        for one in document.of("quantize.py")
        for word in one.values("--export_path", "--output_dir")
    }
    for word, behind in pairwise((*command.words, Word("", 0, 0))):
        name, sign, value = word.text.partition("=")
        value = value if sign else behind.text
        is_folder = value.endswith("/") or (value != "" and posixpath.normpath(value) in written)
        if name == QUANTIZED and is_folder and posixpath.splitext(value)[1] not in (".npz", ".pt", ".safetensors"):
            yield from drafts(release, RULE, word, form="scales folder", file=command.file, option=name)


def _no_scales(command: ShellCommand, release: str) -> Iterator[Draft]:
    """``--enable_fp8`` without the scales that quantize.py has measured."""
    given = {word.text.partition("=")[0]: word for word in command.words}
    asked = given.get("--enable_fp8") or given.get("--fp8_kv_cache")
    has_weights = any(one.endswith("_dir") and one != "--output_dir" for one in given)  # else all of it is made up
    if asked is not None and has_weights and SCALES not in given and any(map(PLUGIN.fullmatch, given)):
        yield from drafts(release, RULE, asked, form="no scales", file=command.file, option=asked.text, scales=SCALES)


def _world(command: ShellCommand, at: int, built: dict[str, set[tuple[int, int]]], release: str) -> Iterator[Draft]:
    """``--tp_size 2`` of a builder without ``--world_size 2``; ``built`` learns what it writes."""
    given = {one.text: two.text for one, two in pairwise(command.words[at:])}
    given |= {name: value for word in command.words[at:] for name, sign, value in [word.text.partition("=")] if sign}
    texts = [given.get(flag, "1") for flag in RANKS]
    if (
        not any(map(PLUGIN.fullmatch, given))
        or not all(map(COUNT.fullmatch, texts))
        or ENC_DEC in command.words[at].text
    ):
        return
    world, tp, pp = map(int, texts)
    if {"--tp_size", "--pp_size"} & given.keys() and tp * pp != world:
        known: dict[str, Any] = {"tp": tp, "pp": pp, "world": world, "right": tp * pp}
        yield from drafts(release, RULE, command.words[at], form="world", file=command.file, **known)
        return
    folder = given.get("--output_dir", "")
    if folder and "$" not in folder:
        built.setdefault(posixpath.normpath(folder), set()).add((world, command.words[at].line))


def _started(one: Invocation, world: int, line: int, release: str) -> Iterator[Draft]:
    """A builder's engine, started as another number of processes."""
    is_open = one.ranks is None and any("mpi" in word.text or "$" in word.text for word in one.launcher)
    if is_open or "mpi" in one.path.text or (one.ranks or 1) == world:
        return
    known: dict[str, Any] = {"ranks": one.ranks or 1, "world": world, "line": line, "tool": one.tool}
    yield from drafts(release, RULE, one.path, form="built", invocation=one, **known)


def _ranks(one: Invocation, release: str) -> Iterator[Draft]:
    """``mpirun -n 2 python run.py --engine_dir engines/4-gpu``."""
    given = one.find("--engine_dir")
    match = FOLDER.search(given.values[0].text) if given is not None and given.values else None
    ranks = one.ranks or 1
    if given is None or match is None or int(match["ranks"]) == ranks or "mpi" in one.path.text:
        return
    known: dict[str, Any] = {"folder": given.values[0].text, "ranks": ranks, "wanted": match["ranks"]}
    yield from drafts(release, RULE, given.values[0], form="ranks", file=one.command.file, tool=one.tool, **known)


def _server(document: Document, release: str) -> Iterator[Draft]:
    """``launch_triton_server.py --world_size 2`` beside engines of a folder ``4-gpu``, and of no other."""
    launches = [one for one in document.of(LAUNCH) if not orchestrated(one)]
    if len(launches) != 1 or any("orchestrator" in text.lower() for _, text in document.texts):
        return
    one = launches[0]
    given = one.find("--world_size")
    number = given.values[0].text if given is not None and given.values else "1"
    named = {match["ranks"]: match for path in _engine_folders(document) if (match := FOLDER.search(path))}
    if engine_world(document.facts_of(one), load_release(release)) is not None or len(named) != 1:
        return  # ranks-not-tp-pp knows
    wanted, match = next(iter(named.items()))
    if COUNT.fullmatch(number) and number != wanted:
        place = given.values[0] if given is not None and given.values else one.path
        known: dict[str, Any] = {"tool": LAUNCH, "folder": match.string, "ranks": number, "wanted": wanted}
        yield from drafts(release, RULE, place, form="server", file=one.command.file, **known)


def _engine_folders(document: Document) -> Iterator[str]:
    """Where the text says that engines are: variables, what is filled in, what a build writes."""
    for command in document.commands:
        for word in command.assignments:
            name, _, value = word.text.partition("=")
            if "engine" in name.lower():
                yield value
    for fill in document.of("fill_template.py"):
        yield from (match["path"] for word in fill.arguments for match in ENGINE_DIR.finditer(word.text))
    yield from (word.text for build in document.of("trtllm-build") for word in build.values("--output_dir"))


def _models(document: Document, command: ShellCommand, made: set[str], release: str) -> Iterator[Draft]:
    """``mkdir repo; cp -r all_models/inflight_batcher_llm repo``, and then ``repo/tensorrt_llm/1``."""
    plain = [word for word in command.words[1:] if not word.text.startswith("-")]
    if len(plain) != 2 or not any(RECURSIVE.fullmatch(word.text) for word in command.words[1:]):
        return
    match, target = REPOSITORY.search(plain[0].text), plain[1].text.rstrip("/")
    text = dict(document.texts).get(command.file, "")
    used = re.search(rf"(?<![\w-]){re.escape(target)}/{MODELS}\b", text)
    if match is None or target not in made or not used or f"{target}/{match['name']}" in text:
        return
    known: dict[str, Any] = {"target": f"{target}/{match['name']}", "used": used[0]}
    known["right"] = f"{plain[0].text.rstrip('/')}/."
    yield from drafts(release, RULE, plain[0], form="models", file=command.file, **known)
