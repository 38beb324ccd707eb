"""Values that a text sets and that do not get where they are meant to go: ``unset $HF_HOME``, a variable that a later
one of the same ``docker run`` replaces, a variable called like an option that no command takes.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.programs import VLLM_IMAGE
from trtllm_check.lint.rules.gpus_seen import SPREAD
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.rules.vllm import is_vllm_option
from trtllm_check.lint.shell.words import Word, lines_of, word_at

RULE = "value-lost"
# Names that programs read: no variable that holds another's name.
READ = (
    r"(?:HF_\w+|HUGGING_?FACE\w*|TRANSFORMERS_\w+|VLLM_\w+|NCCL_\w+|CUDA_\w+|GLOO_\w+|UCX_\w+|LD_LIBRARY_PATH|PYTHONPATH"
    r"|PYTHONHOME|(?:https?|all|no)_proxy|(?:HTTPS?|ALL|NO)_PROXY|SLURM_\w+|PMIX_\w+|OMPI_\w+|ROCR_\w+|HIP_\w+|RAY_\w+"
    r"|TORCH_\w+|LD_PRELOAD)"
)
READ_BY_PROGRAMS = re.compile(READ)
UNSET = re.compile(rf"^[ \t]*unset[ \t]+(?:-v[ \t]+)?[\"']?(?P<written>\$\{{?(?P<name>{READ})\}}?)", re.MULTILINE)
ASSIGNED = re.compile(
    r"^[ \t]*(?:export[ \t]+)?(?P<name>[A-Z][A-Z0-9_]*)=(?P<value>[^\s#`]+)[ \t]*(?:#[^\n]*)?\r?$", re.MULTILINE
)
# What they may be called in front of the option's own name.
PREFIX = re.compile(r"^(?:MODEL|SERVER|LLM|DEFAULT|ENGINE)_")
# Names that say too little, or that programs read themselves.
GENERAL = frozenset(
    {"model", "host", "port", "api_key", "seed", "device", "config", "task", "revision", "root_path", "nodes"}
)
SCRIPT = re.compile(r"\A#!\S*(?:/|env )(?:ba|z|da)?sh\b")
# What hands variables on without naming them.
HANDS_ON = re.compile(
    r"\bset -a\b|allexport|\benvsubst\b|--env-file|\bprintenv\b|\benv\b[ \t]*(?:$|\|)|\bsource\b|^[ \t]*\.[ ]"
    r"|\bsbatch\b|--export|docker[- ]compose|\bmake\b|\.sh\b|\.py\b|\bkubectl\b|\bhelm\b|\$\{!|\beval\b",
)


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    for file, text in document.texts:
        for match in UNSET.finditer(text) if "unset" in text else ():
            known: dict[str, Any] = {"name": match["name"], "written": match["written"]}
            place = word_at(text, match.start("written"), match["written"])
            yield from drafts(release, RULE, place, form="unset", file=file, **known)
    for docker in document.of("docker"):
        yield from _replaced(docker, release)
    yield from _not_taken(document, release)


def _replaced(docker: Invocation, release: str) -> Iterator[Draft]:
    """``-e NAME=a ... -e NAME=b``."""
    first: dict[str, Word] = {}
    if [word.text for word in docker.positional[:1]] not in (["run"], ["create"]):
        return
    for word in docker.values("-e", "--env"):
        name, sign, value = word.text.partition("=")
        before = first.setdefault(name, word) if sign else word
        if before is not word and before.text.partition("=")[2] != value and not is_open(name):
            known: dict[str, Any] = {
                "name": name,
                "value": value,
                "first": before.text.partition("=")[2],
                "line": before.line,
            }
            yield from drafts(release, RULE, word, form="replaced", file=docker.command.file, **known)


def _not_taken(document: Document, release: str) -> Iterator[Draft]:
    """``TENSOR_PARALLEL_SIZE=4`` above a server that is not told."""
    servers = [one for one in document.of("vllm") if [word.text for word in one.positional[:1]] == ["serve"]]
    if len(servers) != 1 or len(document.texts) != 1:
        return
    server, (file, text) = servers[0], document.texts[0]
    is_inside = VLLM_IMAGE.search(server.image) is not None and "docker" in [word.text for word in server.launcher]
    if not SCRIPT.match(text) or is_inside or any(SPREAD.search(word.text) for word in server.arguments):
        return
    if any(HANDS_ON.search(line) for line in lines_of(text) if not line.lstrip().startswith("#")):
        return
    for name, at, value in _assigned(text):
        option = PREFIX.sub("", name).lower()
        flag = f"--{option.replace('_', '-')}"
        if (
            READ_BY_PROGRAMS.fullmatch(name)
            or option in GENERAL
            or not is_vllm_option(option)
            or server.has(flag, f"--{option}")
        ):
            continue
        known: dict[str, Any] = {"name": name, "value": value, "flag": flag, "tool": "vllm serve"}
        yield from drafts(release, RULE, word_at(text, at, name), form="not taken", file=file, **known)


@lru_cache(maxsize=8)
def _assigned(text: str) -> tuple[tuple[str, int, str], ...]:
    """Variables that are set and that no other line names."""
    found = [(match["name"], match.start("name"), match["value"].strip("\"'")) for match in ASSIGNED.finditer(text)]
    return tuple(one for one in found if len(re.findall(rf"\b{one[0]}\b", text)) == 1)
