"""perf_analyzer's options: their names, the forms of their values, and which of them go together."""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Edit, Platform, Put, drafts, rule_data
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.rules.load_tools import hides_options
from trtllm_check.lint.rules.names import is_open

TOOL, FAMILY = "perf_analyzer", "load_tools"
SHAPE = re.compile(r".+:\d+(?:,\d+)*")
RANGE = re.compile(r"\d+(?::\d+){0,2}")
RATES = re.compile(r"\d+(?:\.\d+)?(?::\d+(?:\.\d+)?){0,2}")
FORMS = {
    "--shape": (SHAPE, "there must be a colon after the input's name, and numbers behind it", "NAME:1,33"),
    "--concurrency-range": (RANGE, "the value does not match <start:end:step>", "1:8"),
    "--request-rate-range": (RATES, "the value does not match <start:end:step>", "10:50:10"),
}
OPEN = re.compile(r"[$<{]")  # a variable of the shell, or of a template
NEAR = 0.75


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    for one in document.of(TOOL):
        yield from _options(one, platform.release.name)
        yield from _values(one, platform.release.name)
        if one.has("--streaming") and (one.value("-i") or "http").lower() == "http" and not _is_inside(one):
            problem = "--streaming is for gRPC, and it speaks HTTP where -i says nothing"
            edits: tuple[Edit, ...] = (Put("-i", "grpc"),)
            yield from _say(one, "--streaming", problem, "write -i grpc", platform.release.name, edits)


def _is_inside(one: Invocation) -> bool:
    """True where it asks no Triton over a network, and where the protocol may stand in a variable."""
    kind, protocol = one.value("--service-kind"), one.value("-i")
    in_a_variable = protocol is None and hides_options(one)
    return kind not in (None, "triton") or in_a_variable or is_open(protocol or "")


def _options(one: Invocation, release: str) -> Iterator[Draft]:
    known = rule_data(FAMILY)[TOOL]["options"].split()
    for given in one.given:
        flag = given.name
        if not flag.startswith("--") or is_open(flag) or any(option.startswith(flag) for option in known):
            continue
        near = get_close_matches(flag.replace("_", "-"), known, 1, NEAR)
        if near:
            yield from _say(one, flag, f"it has no option {flag}", f"write {near[0]}", release)


def _values(one: Invocation, release: str) -> Iterator[Draft]:
    choices: dict[str, str] = rule_data(FAMILY)[TOOL]["choices"]
    for given in one.given:
        words = [word.text for word in given.values if not OPEN.search(word.text)]
        for text in words[:1]:
            pattern, problem, example = FORMS.get(given.name, (None, "", ""))
            taken = choices.get(given.name, "").split()
            if pattern is not None and not pattern.fullmatch(text):
                problem = f"failed to parse {given.name} {text}: {problem}"
                yield from _say(one, given.name, problem, f"such as {given.name} {example}", release)
            elif taken and text not in taken and text.lower() not in (taken if given.name == "-i" else ()):
                near = get_close_matches(text, taken, 1, 0.4) or taken[:1]
                problem = f"failed to parse {given.name}: there is no {text}"
                yield from _say(one, given.name, problem, f"write {near[0]}, or one of {', '.join(taken)}", release)


def _say(
    one: Invocation, flag: str, problem: str, instead: str, release: str, edits: tuple[Edit, ...] = ()
) -> Iterator[Draft]:
    given = one.find(flag)
    if given is not None:
        known: dict[str, Any] = {"problem": problem, "instead": instead}
        yield from drafts(release, "load-tool", given.word, form="perf", edits=edits, invocation=one, **known)
