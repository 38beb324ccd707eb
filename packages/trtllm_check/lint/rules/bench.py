"""trtllm-bench: its sub-command and its options.

Its options differ from release to release and were not read for each: only what none of the sources has is named.
"""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.rules.names import is_open
from trtllm_check.releases import known_releases

FAMILY = "bench"
NEAR = 0.8
RUN = "throughput"


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """A missing sub-command, and options that no release has."""
    data = rule_data(FAMILY)
    known = {option for line in data["options"] for option in line}
    for bench in document.of("trtllm-bench"):
        words = [word.text for word in bench.arguments]
        commands = [word for word in words if word in data["commands"]]
        if words[:1] in (["--help"], ["--version"]):
            continue
        if any(word in data["unread"] for word in commands):
            yield from _in_front(bench, commands[0], platform.release.name)
            continue
        if not commands and words and not any(map(is_open, words)):
            yield from drafts(platform.release.name, "bench-without-command", bench.path, invocation=bench)
        yield from _options(bench, known, platform.release.name)
        yield from _before(bench, commands, known, platform.release.name)
        yield from _behind(bench, commands, platform.release.name)
        yield from _quantized(bench, commands, platform.release.name)
        yield from _engine(bench, commands, platform)
        if not platform.guessed:
            yield from _too_new(bench, data["since"], platform.release.name)


def _in_front(bench: Invocation, command: str, release: str) -> Iterator[Draft]:
    """Options in front of a sub-command whose own options were not read: only the group's may stand there."""
    own = rule_data(FAMILY)["options"][0]
    words = [word.text for word in bench.arguments]
    for word in bench.arguments[: words.index(command)]:
        name = word.text.partition("=")[0]
        if name.startswith("--") and name not in own and not is_open(name):
            yield from drafts(
                release, "bench-option", word, form="before", invocation=bench, flag=name, command=command
            )


def _before(bench: Invocation, commands: list[str], known: set[str], release: str) -> Iterator[Draft]:
    """Options of the sub-command in front of it, where click looks for those of the group."""
    own = rule_data(FAMILY)["options"][0]
    words = [word.text for word in bench.arguments]
    if not commands:
        return
    for word in bench.arguments[: words.index(commands[0])]:
        name = word.text.partition("=")[0]
        if name in known and name not in own:
            yield from drafts(
                release, "bench-option", word, form="before", invocation=bench, flag=name, command=commands[0]
            )


def _behind(bench: Invocation, commands: list[str], release: str) -> Iterator[Draft]:
    """``throughput --model NAME``: an option of the group, which no sub-command has."""
    words = [word.text for word in bench.arguments]
    of_the_group = rule_data(FAMILY)["group_alone"]
    for word in bench.arguments[words.index(commands[0]) :] if commands else ():
        name = word.text.partition("=")[0]
        if name in of_the_group:
            yield from drafts(
                release, "bench-option", word, form="behind", invocation=bench, flag=name, command=commands[0]
            )


def _quantized(bench: Invocation, commands: list[str], release: str) -> Iterator[Draft]:
    """A quantization under another name than ``build`` has of it."""
    for word in bench.values("--quantization", "-q") if commands[:1] == ["build"] else ():
        meant = rule_data(FAMILY)["quantizations"].get(word.text)
        if meant:
            known = {"value": word.text, "meant": meant}
            yield from drafts(release, "bench-option", word, form="quantization", invocation=bench, **known)


def _engine(bench: Invocation, commands: list[str], platform: Platform) -> Iterator[Draft]:
    """An engine for a backend that takes none, and a length for one that has its own."""
    engine, backend = bench.find("--engine_dir"), bench.value("--backend")
    release = platform.release.name
    if commands[:1] == [RUN] and backend == "tensorrt" and (length := bench.find("--max_seq_len")):
        yield from drafts(release, "bench-option", length.word, form="length of the engine", invocation=bench)
    if engine and commands[:1] in ([RUN], ["latency"]) and backend in (None, "pytorch") and not platform.guessed:
        form = "engine ignored"
        yield from drafts(release, "bench-option", engine.word, form=form, invocation=bench, command=commands[0])


def _too_new(bench: Invocation, since: Mapping[str, str], release: str) -> Iterator[Draft]:
    """An option of a later release, of those whose first one is known."""
    releases = known_releases()
    for given in bench.given:
        first = since.get(given.name)
        if first and releases.index(release) < releases.index(first):
            yield from drafts(
                release, "bench-option", given.word, form="too new", invocation=bench, flag=given.name, first=first
            )


def _options(bench: Invocation, known: set[str], release: str) -> Iterator[Draft]:
    for given in bench.given:
        if not given.name.startswith("--") or given.name in known or is_open(given.name):
            continue
        close = get_close_matches(given.name, sorted(known), 1, NEAR)
        told = rule_data(FAMILY)["nearest"].get(given.name)
        instead = told or (f"write {close[0]}" if close else "leave it out")
        yield from drafts(release, "bench-option", given.word, invocation=bench, flag=given.name, instead=instead)
