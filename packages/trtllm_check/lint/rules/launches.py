"""An engine of several ranks that tritonserver, or a runner of Python, is started for as one process."""

import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.shell.words import ShellCommand, word_at

BUILDER = "build.py"  # of each model's folder, before trtllm-build
OTHERWISE = re.compile(  # ways in which one process starts the others, and servers of other engines
    r"TRTLLM_ORCHESTRATOR|orchestrator|--multi-model|mpirun|mpiexec|srun|llmapi|launch_triton_server|python_vllm|vllm",
    re.IGNORECASE,
)
ENGINE_OF_A_FILLING = re.compile(r"(?<![\w])(?:engine_dir|gpt_model_path):([^,\s$]+)")
ENGINE_OF_A_CONFIG = re.compile(
    r"key:\s*\"(?:engine_dir|gpt_model_path)\"\s*,?\s*value:?\s*\{\s*string_value:\s*\"([^\"$]+)\""
)
TP = re.compile(r"(?:^|[/_.-])(?:tp[-_]?|world[-_]?size[-_]?)(\d{1,3})(?!\d)|(?:^|[/_.-])(\d{1,3})[-_]?gpus?(?![a-z])")
PP = re.compile(r"(?:^|[/_.-]|tp\d)pp[-_]?(\d{1,3})(?!\d)")
MOST = 64  # ranks: what is more is no number of them
RUNNER = re.compile(r"(?<![\w.])(?P<name>ModelRunner(?:Cpp)?)\.from_dir\((?P<given>[^()]*(?:\([^()]*\)[^()]*)*)\)")
RANK = re.compile(r"\b(?:runtime_)?rank\s*=\s*(?!0\b)")  # of a process that knows its own
FOLDER = re.compile(r"[\"'](?P<folder>[^\"'\s]*?/(?P<ranks>[1-9]\d?)-gpus?/?)[\"']")
STARTED = re.compile(r"mpirun|mpiexec|\bsrun\b|torchrun|mpi4py|mpi_rank|COMM_WORLD|llmapi-launch|\bMPI\b")
MAKERS = ("convert_checkpoint.py", "quantize.py", "trtllm-build")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    yield from _runners(document, platform.release.name)
    servers = [one for one in document.of("tritonserver") if not one.ranks and "mpi" not in one.path.text]
    if not servers or any(OTHERWISE.search(text) for _, text in document.texts):
        return
    tp, pp = _ranks(document)
    is_told_by_name = tp * pp == 1 and not document.of(*MAKERS) and not any(map(_is_builder, document.commands))
    tp, pp = _named(document) if is_told_by_name else (tp, pp)
    if tp * pp > 1:
        known: dict[str, Any] = {"world": tp * pp, "tp": tp, "pp": pp, "tool": "tritonserver"}
        for draft in drafts(
            platform.release.name,
            "ranks-not-tp-pp",
            servers[0].path,
            form="no MPI",
            file=servers[0].command.file,
            **known,
        ):
            yield draft._replace(severity="warning") if is_told_by_name else draft


def _named(document: Document) -> tuple[int, int]:
    """tp and pp as the folder of the only engine is called: ``/engines/llama-70b-tp8``, ``trt_engines/fp16/4-gpu``."""
    paths = {value for one in document.of("fill_template.py") for value in ENGINE_OF_A_FILLING.findall(_words(one))}
    for config in document.configs:
        if '"tensorrtllm"' in config.text:
            paths |= {match[1] for match in ENGINE_OF_A_CONFIG.finditer(config.text)}
    if len(paths) != 1:
        return 1, 1
    name = paths.pop()
    tp, pp = (int(found[found.lastindex or 1]) if (found := one.search(name)) else 1 for one in (TP, PP))
    return (tp, pp) if 1 <= tp <= MOST and 1 <= pp <= MOST else (1, 1)


def _words(one: Invocation) -> str:
    return " ".join(word.text for word in one.arguments)


def _runners(document: Document, release: str) -> Iterator[Draft]:
    """``ModelRunner.from_dir("engine")`` in a text that starts one process, of an engine of several ranks."""
    found = [(file, text, match) for file, text in document.texts for match in RUNNER.finditer(text)]
    if len(found) != 1 or any(STARTED.search(text) for _, text in document.texts):
        return
    file, text, match = found[0]
    tp, pp = _ranks(document)
    named = FOLDER.search(match["given"])
    if RANK.search(match["given"]) or (tp * pp == 1 and (named is None or named["ranks"] == "1")):
        return
    world = f"{tp * pp} (tp {tp} x pp {pp})" if tp * pp > 1 or named is None else f"{named['ranks']} ranks"
    known: dict[str, Any] = {"tool": f"{match['name']}.from_dir", "world": world}
    known["number"] = tp * pp if tp * pp > 1 or named is None else named["ranks"]
    place = word_at(text, match.start(), f"{match['name']}.from_dir")
    yield from drafts(release, "ranks-not-tp-pp", place, form="runner", file=file, **known)


def _ranks(document: Document) -> tuple[int, int]:
    """tp and pp of the engine, where the commands that make it agree on both; else 1 and 1."""
    built = {_of_builder(command) for command in document.commands if _is_builder(command)}
    if not document.of(*MAKERS):
        return built.pop() if len(built) == 1 else (1, 1)
    facts = document.facts
    return (facts.tp or 1, facts.pp or 1) if facts.tp and not built else (1, 1)


def _is_builder(command: ShellCommand) -> bool:
    return any(word.text.rpartition("/")[2] == BUILDER for word in command.words[:4])


def _of_builder(command: ShellCommand) -> tuple[int, int]:
    values = {one.text: two.text for one, two in zip(command.words, command.words[1:], strict=False)}
    numbers = [values.get(flag, "1") for flag in ("--tp_size", "--pp_size")]
    tp, pp = (int(text) if text.isascii() and text.isdecimal() and len(text) < 4 else 1 for text in numbers)
    return tp, pp
