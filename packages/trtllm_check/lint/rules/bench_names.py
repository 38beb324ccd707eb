"""What loads a server of the same text: the name it asks for, its tokenizer, and scripts that became a command."""

import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Edit, Platform, Put, drafts, rule_data
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.rules.image_bases import MOVED_SINCE
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.rules.served import VLLM, ServedModel, served
from trtllm_check.lint.rules.vllm_table import release_for
from trtllm_check.lint.shell.words import ShellCommand, Word

FAMILY = "bench_names"
NAMES, SCRIPT = "bench-name", "bench-script"
LOADERS = ("benchmark_serving.py", "genai-perf", "aiperf")
OWN_TOKENIZER = ("genai-perf", "aiperf")  # take another one where none is named
IN_VLLM = re.compile(r"(?:.*/)?vllm/benchmarks/benchmark_(?P<kind>serving|throughput|latency)\.py")
IN_A_CLONE = re.compile(r"(?:\./|\.\./)?(?:benchmarks/)?benchmark_(?P<kind>serving|throughput|latency)\.py")
CLONE = re.compile(r"github\.com/vllm-project/vllm(?:\.git)?/?")
COMMANDS = {"serving": "serve", "throughput": "throughput", "latency": "latency"}


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    servers = [one for one in served(document) if one.engine == VLLM and not one.is_part]
    for one in _loaders(document):
        yield from _name(one, servers, release)
    yield from _scripts(document, release)


def _loaders(document: Document) -> Iterator[Invocation]:
    for one in document.of("vllm"):
        if [word.text for word in one.positional[:2]] == ["bench", "serve"]:
            yield one
    yield from document.of(*LOADERS)


def _names(server: ServedModel) -> tuple[str, ...]:
    """The names that ``server`` answers to; none where the reader fills them in."""
    given = server.invocation.find("--served-model-name") if server.invocation else None
    names = [word.text for word in given.values] if given else [server.model]
    return () if any(is_open(name) or "$" in name or not name for name in names) else tuple(names)


def _name(one: Invocation, servers: list[ServedModel], release: str) -> Iterator[Draft]:
    """``--model`` of the client: the name that the server has, and where the client's tokenizer is."""
    given = one.find("--model", "-m")
    names = [_names(server) for server in servers]
    if given is None or len(given.values) != 1 or is_open(given.values[0].text) or not all(names) or not names:
        return
    word, asked = given.values[0], one.value("--served-model-name")
    model, known = word.text, {name for each in names for name in each}
    called = any(server.model != each[0] for server, each in zip(servers, names, strict=True))
    sources = [server.model for server, each in zip(servers, names, strict=True) if model in each]
    about: dict[str, Any] = {"tool": _tool(one), "model": model}
    if not called:
        return
    if model in known:
        bare = "/" not in model and model not in rule_data(FAMILY)["bare"].split() and model not in sources
        if bare and one.tool not in OWN_TOKENIZER and not one.has("--tokenizer", "--skip-tokenizer-init"):
            edits: tuple[Edit, ...] = (Put("--tokenizer", sources[0]),) if len(set(sources)) == 1 else ()
            about["source"] = sources[0]
            yield from _say(one, word, "tokenizer", release, edits, about)
    elif not asked and model in {server.model for server in servers}:
        right = next(each[0] for server, each in zip(servers, names, strict=True) if server.model == model)
        put = (Put("--served-model-name", right),) if one.tool not in OWN_TOKENIZER else ()
        yield from _say(one, word, "", release, put, {**about, "right": right})


def _say(
    one: Invocation, word: Word, form: str, release: str, edits: tuple[Edit, ...], about: dict[str, Any]
) -> Iterator[Draft]:
    file = one.command.file
    yield from drafts(release, NAMES, word, form=form, edits=edits, invocation=one, file=file, **about)


def _tool(one: Invocation) -> str:
    return "vllm bench serve" if one.tool == "vllm" else one.tool


def _scripts(document: Document, release: str) -> Iterator[Draft]:
    """``python3 vllm/benchmarks/benchmark_serving.py``, which only says what it is called today.

    Where the text tells a release, ``script-moved`` speaks of it.
    """
    words = (word.text for command in document.commands for word in command.words if "vllm" in word.text)
    clones = any(map(CLONE.search, words))
    for command in document.commands:
        for word, kind in _paths(command, clones):
            if release_for(document, None) is not None:
                return
            known: dict[str, Any] = {"path": word.text, "kind": COMMANDS[kind], "since": MOVED_SINCE}
            yield from drafts(release, SCRIPT, word, file=command.file, **known)


def _paths(command: ShellCommand, clones: bool) -> Iterator[tuple[Word, str]]:
    words = command.words
    if not words or not words[0].text.rpartition("/")[2].startswith("python"):
        return
    of_vllm = any(
        words[place].text == "vllm" and words[place - 1].text == "--backend" for place in range(2, len(words))
    )
    for word in words[1:3]:
        inside = IN_VLLM.fullmatch(word.text)
        match = inside or IN_A_CLONE.fullmatch(word.text)
        if match and (inside or clones or (of_vllm and word.text.startswith("benchmarks/"))):
            yield word, match["kind"]
