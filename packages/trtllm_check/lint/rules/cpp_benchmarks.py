"""TensorRT-LLM's benchmark programs in C++: their options by release, and what of them goes together."""

import posixpath
import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.facts import output
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.programs import Given
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.rules.pairs import engine_world
from trtllm_check.releases.clients import example_script
from trtllm_check.releases.load import in_range

FAMILY = "cpp_benchmarks"
RULE = "cpp-benchmark"
MANAGER = "gptManagerBenchmark"
PROGRAMS = (MANAGER, "gptSessionBenchmark", "bertBenchmark")
OF_THE_IMAGE = "/app/tensorrt_llm/"
NO = ("false", "0", "no", "off", "disable", "enable=false")
RATE, CONCURRENCY, BATCH = "--request_rate", "--concurrency", "--static_emulated_batch_size"
EXECUTOR_ALONE = "0.12.0"  # --concurrency came with it, and the check of the two


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    version = platform.written if platform.earlier else "" if platform.guessed else platform.release.name
    for one in document.of(*PROGRAMS):
        if one.has("--help", "-h") or (one.arguments and re.fullmatch(r"[A-Za-z']+", one.arguments[0].text)):
            continue  # or a sentence about the program
        name = platform.release.name
        yield from _options(one, version, name)
        yield from _switches(one, name)
        if one.tool == MANAGER:
            yield from _together(one, version, name)
        yield from _ranks(document, one, platform)


def _options(one: Invocation, version: str, release: str) -> Iterator[Draft]:
    table = example_script(one.tool)
    if table is None:
        return
    version = version if version and table.near_releases(version) else ""  # newer than all that were read
    lacks_engine = not any(given.name.endswith("engine_dir") for given in one.given)
    if lacks_engine and not any(is_open(word.text) for word in one.arguments):
        yield from drafts(release, RULE, one.path, form="no engine", invocation=one, tool=one.tool)
    for given in one.given:
        if not given.flag.startswith("--") or is_open(given.flag):
            continue
        verdict = table.judge_keyword(one.tool, given.name, version)
        if verdict is None:
            continue
        told = rule_data(FAMILY)["instead"].get(given.name, "")
        is_own = verdict.kind == "never" and not (told or verdict.near or OF_THE_IMAGE in one.path.text)
        if verdict.kind != "never" and not version:
            continue
        instead = told or (f"write {verdict.near}" if verdict.near else "leave it out")
        known: dict[str, Any] = {
            "tool": one.tool,
            "flag": given.name,
            "instead": instead,
            "version": version or release,
        }
        known |= {"since": verdict.since, "last": verdict.last}
        for draft in drafts(release, RULE, given.word, form=verdict.kind, invocation=one, **known):
            yield draft._replace(severity="warning") if is_own else draft


def _switches(one: Invocation, release: str) -> Iterator[Draft]:
    """``--streaming false``: the program takes the option alone."""
    names = rule_data(FAMILY)["switches"].split()
    for given in one.given:
        values = [word.text.lower() for word in given.values]
        if given.name.removeprefix("--") in names and given.word.text == given.flag and values[:1] and values[0] in NO:
            known: dict[str, Any] = {"flag": given.name, "value": given.values[0].text, "tool": one.tool}
            yield from drafts(release, RULE, given.word, form="switch", invocation=one, **known)


def _together(one: Invocation, version: str, release: str) -> Iterator[Draft]:
    rate, kind = one.find(RATE), one.find("--type")
    value = kind.values[0].text if kind and kind.values else ""
    if kind and value and not is_open(value) and value not in rule_data(FAMILY)["types"]:
        yield from drafts(release, RULE, kind.values[0], form="type", invocation=one, value=value)
    if rate is None or (version and not in_range(version, since=EXECUTOR_ALONE)):
        return
    if one.has(CONCURRENCY):
        yield from drafts(release, RULE, rate.word, form="two loads", invocation=one)
    elif one.has(BATCH) and _is_positive(rate):
        yield from drafts(release, RULE, rate.word, form="delays", invocation=one)


def _is_positive(given: Given) -> bool:
    try:
        return float(given.values[0].text) > 0 if given.values else False
    except ValueError:
        return False


def _ranks(document: Document, one: Invocation, platform: Platform) -> Iterator[Draft]:
    """An engine of several ranks that the text builds, and another number of processes."""
    folder = posixpath.normpath(one.value("--engine_dir") or "")
    if folder not in map(output, document.of("trtllm-build")):
        return
    facts = document.facts_of(one)
    world = engine_world(facts, platform.release)
    is_alone = not one.launcher and one.command.words[:1] == (one.path,)
    started = one.ranks if one.ranks is not None else 1 if is_alone else None
    if world is None or started is None or started == world:
        return
    known: dict[str, Any] = {"tool": one.tool, "ranks": started, "world": world, "tp": facts.tp, "pp": facts.pp}
    yield from drafts(platform.release.name, "ranks-not-tp-pp", one.path, invocation=one, **known)
