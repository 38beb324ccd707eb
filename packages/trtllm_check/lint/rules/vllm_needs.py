"""What a model needs beside its name: code of its own repository, its owner; and modules that start nothing."""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Edit, Platform, Put, Swap, drafts, rule_data
from trtllm_check.lint.programs import MODULES
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.rules.served import LMI, TRUST, VLLM, ServedModel, served
from trtllm_check.lint.rules.vllm_table import release_for
from trtllm_check.lint.shell.words import Word
from trtllm_check.releases.python_names import python_package
from trtllm_check.releases.vllm import VllmRelease, vllm_facts

FAMILY = "vllm_needs"
# A folder of that name may lie there: what brings one, and what goes into one.
LOCAL = re.compile(
    r"--local-dir|\bgit (?:lfs )?clone\b|snapshot_download|hf download|huggingface-cli download|modelscope"
    r"|save_pretrained|\bmkdir\b|\bcd \S|wget|s3://|gs://|MODELSCOPE|/models?/|\bcp\b|\brsync\b|export_dir|output_dir|volumes?:|\s-v\s",
    re.IGNORECASE,
)
HALF = ("half", "float16")
COMMANDS = ["bench", "build", "eval", "prune", "refit", "serve"]  # tensorrt_llm/commands
# Packages of TensorRT-LLM without a __main__, and the program that does what their name says: setup.py, entry points.
PACKAGES = {
    **dict.fromkeys(("tensorrt_llm.serve", "tensorrt_llm.server", "tensorrt_llm.serving"), "trtllm-serve"),
    "tensorrt_llm.bench": "trtllm-bench",
    **dict.fromkeys(("tensorrt_llm.build", "tensorrt_llm.builder"), "trtllm-build"),
    **dict.fromkeys(("tensorrt_llm", "tensorrt_llm.llmapi"), "trtllm-serve or trtllm-build"),
    "tensorrt_llm.entrypoints.openai.api_server": "trtllm-serve",
    "tensorrt_llm.convert_checkpoint": "convert_checkpoint.py of the model's example",
}
MODULE = "tensorrt_llm.commands."
# The LLM API is a library; what starts a node of several has a __main__: tensorrt_llm/llmapi/mgmn_leader_node.py.
LIBRARY = re.compile(r"tensorrt_llm\.(?:hlapi|llmapi)\.(?!mgmn_)[a-z]\w*(?:\.\w+)*")
# What the last word of an invented module means: none of the others has a __main__ of these names.
MEANT = {
    **dict.fromkeys(("build", "builder", "build_engine", "trtllm_build"), "trtllm-build"),
    **dict.fromkeys(
        ("convert", "convert_checkpoint", "checkpoint_convert"), "convert_checkpoint.py of the model's example"
    ),
    **dict.fromkeys(("quantize", "quantization"), "examples/quantization/quantize.py"),
    **dict.fromkeys(("serve", "server", "api_server", "openai_server", "launch_server"), "trtllm-serve"),
    **dict.fromkeys(("bench", "benchmark"), "trtllm-bench"),
}
SLIP = 0.7
NEAR = 0.7
STARTED = ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.openai.run_batch", "vllm.entrypoints.cli.main")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    seen: set[str] = set()
    for one in served(document):
        if one.engine != VLLM or one.tool == LMI or not one.model or one.model in seen:
            continue
        seen.add(one.model)
        yield from _remote_code(one, release)
        yield from _half(one, release_for(document, one.invocation), release)
        owners = list(_owner(one, release))
        if owners and not any(LOCAL.search(text) for _, text in document.texts):
            yield from owners
    yield from _modules(document, release)


@cache
def _remote() -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{one})" for one in rule_data(FAMILY)["remote_code"]))


def _is_spread(one: ServedModel) -> bool:
    """True where further options may come from what nobody knows."""
    return one.invocation is not None and any(is_open(word.text) for word in one.invocation.arguments)


def _remote_code(one: ServedModel, release: str) -> Iterator[Draft]:
    if one.is_on(TRUST) or _is_spread(one) or not _remote().fullmatch(one.weights.lower()):
        return
    if one.invocation is None and any(name in one.options for name in ("hf_overrides", "config_format")):
        return
    as_argument = f"{TRUST}=True" if one.invocation is None else "--trust-remote-code"
    edits: tuple[Edit, ...] = () if one.invocation is None else (Put("--trust-remote-code"),)
    known: dict[str, Any] = {"tool": one.tool, "model": one.weights, "argument": as_argument}
    place = _model_place(one)
    yield from drafts(
        release, "vllm-remote-code", place, edits=edits, invocation=one.invocation, file=one.file, **known
    )


def _half(one: ServedModel, told: VllmRelease | None, release: str) -> Iterator[Draft]:
    """``--dtype half`` with a model that overflows in float16."""
    word, data = one.options.get("dtype"), rule_data(FAMILY)["no_float16"]
    kind = next((kind for kind, name in data["models"].items() if re.search(name, one.weights.lower())), "")
    if word is None or word.text not in HALF or not kind:
        return
    if told is not None and told.place < vllm_facts().releases.index(data["since"]):
        return
    flag = one.flag("dtype")
    edits: tuple[Edit, ...] = (Put(flag, "bfloat16"),) if one.invocation is not None else ()
    form = "" if told is not None else "today"
    known: dict[str, Any] = {"tool": one.tool, "kind": kind, "flag": flag, "since": data["since"]}
    yield from drafts(
        release, "vllm-half", word, form=form, edits=edits, invocation=one.invocation, file=one.file, **known
    )


def _owner(one: ServedModel, release: str) -> Iterator[Draft]:
    name = one.model
    if "/" in name or "\\" in name or name.startswith((".", "~")) or _is_spread(one):
        return
    for known in rule_data(FAMILY)["owners"]:
        if re.fullmatch(known["name"], name.lower()):
            about: dict[str, Any] = {"tool": one.tool, "model": name, "instead": f"{known['owner']}/{name}"}
            yield from drafts(release, "model-owner", _model_place(one), form="none", file=one.file, **about)
            return


def _model_place(one: ServedModel) -> Word:
    if one.invocation is None:
        return one.place("model")
    words = one.invocation.arguments
    return next((word for word in words if word.text == one.model), one.at)


def _starts(module: str) -> bool:
    """True for a module that some release of vLLM has."""
    names = python_package("vllm")
    return module in MODULES or module in STARTED or (names is not None and module in names.modules)


def _program(module: str) -> str:
    """The program that a module of TensorRT-LLM without a __main__ is meant for."""
    last = module.rpartition(".")[2] if module.startswith("tensorrt_llm.") and not module.startswith(MODULE) else ""
    meant = PACKAGES.get(module) or MEANT.get(last, "")
    return meant or ("trtllm-serve" if LIBRARY.fullmatch(module) else "")


def _modules(document: Document, release: str) -> Iterator[Draft]:
    """``python -m tensorrt_llm.commands.convert_checkpoint``, ``python -m vllm.entrypoints.openai_api_server``."""
    for one in document.of("python"):
        words = one.arguments
        at = next((number for number, word in enumerate(words[:-1]) if word.text == "-m"), None)
        word = words[at + 1] if at is not None else None
        if word is None or is_open(word.text):
            continue
        name = word.text.removeprefix(MODULE)
        if word.text.startswith(MODULE) and name not in COMMANDS and "." not in name:
            about: dict[str, Any] = {"module": word.text, "known": ", ".join(COMMANDS)}
            yield from drafts(release, "module-starts-nothing", word, invocation=one, **about)
        elif meant := _program(word.text):
            known: dict[str, Any] = {"module": word.text, "known": meant}
            yield from drafts(release, "module-starts-nothing", word, form="package", invocation=one, **known)
        elif word.text.startswith("vllm.entrypoints") and not _starts(word.text):
            close = get_close_matches(word.text, STARTED, 1, NEAR)
            for meant in close:
                edits = (Swap(word, meant),)
                about = {"module": word.text, "known": meant}
                name = meant.rpartition(".")[2]
                for draft in drafts(
                    release, "module-starts-nothing", word, form="vllm", edits=edits, invocation=one, **about
                ):  # one of another name may be in somebody's own build
                    is_slip = get_close_matches(word.text.rpartition(".")[2], [name], 1, SLIP)
                    yield draft if is_slip else draft._replace(severity="warning")
