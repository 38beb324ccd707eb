"""Tools that load a server: vllm bench, genai-perf, aiperf, perf_analyzer; options, endpoints, metrics."""

import re
from collections.abc import Collection, Iterator, Sequence
from difflib import get_close_matches
from functools import cache
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Edit, Platform, Put, Swap, drafts, rule_data
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.programs import Given
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.rules.vllm_table import absence, instead_of, release_for
from trtllm_check.lint.shell.words import Word
from trtllm_check.releases.clients import client, client_options
from trtllm_check.releases.vllm import VllmRelease, options_of

FAMILY = "load_tools"
PINS = {  # how a text tells the release of a tool
    "genai-perf": r"(?<![\w-])genai[-_]perf={2,3}\s*(?P<version>\d+\.\d+\.\d+(?:\.post\d+)?)",
    "aiperf": r"(?<![\w-])aiperf={2,3}\s*(?P<version>\d+\.\d+\.\d+(?:\.post\d+)?)",
    "guidellm": r"(?<![\w-])guidellm(?:\[[\w,-]+\])?={2,3}\s*(?P<version>\d+\.\d+\.\d+)",
    "vllm_router.app": r"vllm-stack[^\n]*--version[ =]v?(?P<version>\d+\.\d+\.\d+)|vllm-stack-(?P<tag>\d+\.\d+\.\d+)",
}
BENCHES = ("genai-perf", "aiperf")
LOCUST, EARLY_LOCUST = "locust", re.compile(r"\blocustio\b|\blocust==0\.")
SERVICE_KIND = "--service-kind"
BENCH = "bench serve"
SCRIPT = "benchmark_serving.py"
NEAR = 0.8
FEWEST = 2  # options of a command that is run; with fewer a sentence only names it
VERSION = "/v1"
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
ENSEMBLE = "/v2/models/ensemble/generate_stream"
COMPLETING = ("vllm", "openai")  # backends that send a prompt, not messages
GENAI = re.compile(r"\bgenai-perf={2,3}(\d+)\.(\d+)\.(\d+)|tritonserver:(\d\d)\.(\d\d)-[\w-]*sdk")
WITHOUT_KIND = ((0, 0, 13), (25, 4))  # versions and months
BEFORE_COMMANDS = ((0, 0, 6), (24, 8))
MONTH = re.compile(r":(\d\d)\.(\d\d)-")
PORT = re.compile(r"(?:^|//|@)[^/:]*:(?P<port>\d+)")
HTTP_PORT, GRPC_PORT = "8000", "8001"
GOAL = re.compile(r"(?P<name>[A-Za-z_][\w]*):\d")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    whole = "\n".join(text for _, text in document.texts)
    for one in document.of("vllm"):
        first = [word.text for word in one.positional[:2]]
        if first == ["bench", "serve"]:
            yield from _bench_options(one, release_for(document, one), release)
            yield from _endpoint(one, release)
            yield from _goals(one, "vllm", release)
    for one in document.of(SCRIPT):
        yield from _endpoint(one, release)
    for tool in BENCHES:
        for one in document.of(tool):
            yield from _bench(one, tool, _genai_versions(whole, platform), release)
    for tool in PINS:
        for one in document.of(tool):
            yield from _by_release(one, tool, whole, release)
    for one in document.of(LOCUST):
        yield from _renamed(one, whole, release)
    for one in document.of("perf_analyzer"):
        is_of_triton = one.value("--service-kind") in (None, "triton")  # OpenAI's and others speak one protocol each
        if is_of_triton and (one.has("-i") or not hides_options(one)):
            yield from _protocol(one, one.value("-i") or "http", release)


def hides_options(one: Invocation) -> bool:
    """True where a word of a command is a variable of its own, which may hold any option."""
    loose = [*one.positional, *(word for given in one.given for word in given.values[1:])]
    return any("$" in word.text for word in loose)


def _bench(one: Invocation, tool: str, versions: set[tuple[int, ...]], release: str) -> Iterator[Draft]:
    words = [word.text for word in one.arguments]
    if any(word in ("-h", "--help", "--version") for word in words):
        return
    commands = rule_data(FAMILY)[tool]["commands"]
    earliest = _are_all(versions, BEFORE_COMMANDS) and tool == "genai-perf"
    if words and words[0].startswith("-") and one.has("-m", "--model", "-u", "--url") and not earliest:
        yield from drafts(
            release, "load-tool-command", one.path, invocation=one, tool=tool, commands=", ".join(commands)
        )
    if not earliest:
        yield from _options(one, tool, tool, release)
    yield from _goals(one, tool, release)
    if tool != "genai-perf":
        return
    kind = one.find(SERVICE_KIND)
    if kind is not None:
        form = "gone" if versions and not _are_all(versions, WITHOUT_KIND) else "gone, not certain"
        if not _are_all(versions, WITHOUT_KIND):
            yield from _say(one, kind.word, form, release, tool=tool, flag=SERVICE_KIND)
    typed = one.find("--endpoint-type")
    types = rule_data(FAMILY)[tool]["endpoint_types"]
    if typed is not None and typed.values and typed.values[0].text not in types and _is_meant(typed.values[0].text):
        word = typed.values[0]
        meant = "chat" if "chat" in word.text else "completions" if "completion" in word.text else ""
        edits: tuple[Edit, ...] = (Put("--endpoint-type", meant),) if meant else ()
        listed = ", ".join(types)
        yield from _say(one, word, "endpoint type", release, edits=edits, value=word.text, types=listed, tool=tool)
    if one.value("--backend") in ("tensorrtllm", "vllm") and (
        typed is None or one.value("--endpoint-type") == "kserve"
    ):
        yield from _protocol(one, "grpc", release)


def _renamed(one: Invocation, whole: str, release: str) -> Iterator[Draft]:
    """Options that locust 1.0 gave other names."""
    names = rule_data(FAMILY)[LOCUST]["renamed"]
    for given in one.given if EARLY_LOCUST.search(whole) is None else ():
        if given.name in names:
            known = {"tool": LOCUST, "flag": given.name, "instead": names[given.name]}
            yield from _say(one, given.word, "renamed", release, **known)


def _by_release(one: Invocation, tool: str, whole: str, release: str) -> Iterator[Draft]:
    """Options that the tool does not have in the release that the text tells, or in none."""
    table = client(tool)
    versions = {match.group(match.lastgroup or 0) for match in re.finditer(PINS[tool], whole)}
    version = versions.pop() if len(versions) == 1 else ""
    if table is None:
        return
    for given in _own(one.given):
        flag = given.name.replace("_", "-")
        if not flag.startswith("--") or is_open(flag) or "." in flag or flag.startswith("--no-"):
            continue
        if flag == SERVICE_KIND:
            continue  # of which `_bench` speaks, by the month of a container too
        if any(option.startswith(flag) for option in table.calls[tool] if option != flag):
            continue  # the beginning of one
        verdict = table.judge_keyword(tool, flag, version)
        if verdict is None or (verdict.kind == "never" and (tool in BENCHES or not verdict.near)):
            continue
        if verdict.kind == "never":
            word = given.word.part(0, len(given.flag))
            edits = (Swap(word, verdict.near),)
            yield from _say(one, word, "option", release, edits=edits, tool=tool, flag=flag, instead=verdict.near)
        elif version and table.near_releases(version):
            is_gone = verdict.kind == "gone"
            has = f"to {verdict.last}" if is_gone else f"from {verdict.since} on"
            instead = "leave it out" if is_gone else f"leave it out, or take {tool} {verdict.since} or later"
            about: dict[str, Any] = {"tool": tool, "flag": flag, "instead": instead, "has": has, "version": version}
            for draft in _say(one, given.word, "of a release", release, **about):
                yield draft._replace(source=table.source)


def _is_meant(value: str) -> bool:
    """False for what the reader fills in."""
    return not is_open(value) and value != value.upper()


def _genai_versions(whole: str, platform: Platform) -> set[tuple[int, ...]]:
    """Versions of genai-perf, and months of containers, that the text tells; else the month of its release."""
    found = {tuple(int(part) for part in match.groups() if part is not None) for match in GENAI.finditer(whole)}
    if found or platform.guessed:
        return found
    own = (MONTH.search(image) for image in platform.release.containers.triton)
    months: set[tuple[int, ...]] = {(int(match[1]), int(match[2])) for match in own if match}
    return months if _are_all(months, WITHOUT_KIND) else set()  # later clients go with earlier servers


def _are_all(versions: set[tuple[int, ...]], first: tuple[tuple[int, ...], tuple[int, ...]]) -> bool:
    """True where all ``versions`` are before the ``first`` of their kind; False for none."""
    return bool(versions) and all(one < first[len(one) == len(first[1])] for one in versions)


def _say(
    one: Invocation, place: Word, form: str, release: str, *, edits: tuple[Edit, ...] = (), **known: Any
) -> Iterator[Draft]:
    yield from drafts(release, "load-tool", place, form=form, edits=edits, invocation=one, **known)


@cache
def _known(tool: str) -> tuple[str, ...]:
    return tuple(sorted({*rule_data(FAMILY)[tool]["options"].split(), *client_options(tool)}))


def _options(one: Invocation, tool: str, name: str, release: str) -> Iterator[Draft]:
    """An option that no version which was read has, and that looks like one that they have."""
    known = _known(tool)
    for given in _own(one.given):
        flag = given.name
        if not flag.startswith("--") or is_open(flag) or "." in flag or flag == "--service-kind":
            continue
        if flag in known or (tool != "aiperf" and any(option.startswith(flag) for option in known)):
            continue
        close = get_close_matches(flag, known, 1, NEAR)
        if close:
            word = given.word.part(0, len(given.flag))
            yield from _say(
                one,
                word,
                "option",
                release,
                edits=(Swap(word, close[0]),),
                tool=name,
                flag=given.name,
                instead=close[0],
            )


def _bench_options(one: Invocation, told: VllmRelease | None, release: str) -> Iterator[Draft]:
    """Options of ``vllm bench serve`` that the release of the text, or today's, or none has."""
    known, tool = options_of(BENCH), f"vllm {BENCH}"
    if told is not None and not any(changes.at(told.place) for changes in known.values()):
        told = None  # a release without the command is not the one that is meant
    is_patched = any(_is_nobodys(given.name, known) for given in _own(one.given))
    for given in _own(one.given):
        name = given.name.lstrip("-").replace("_", "-")
        if not given.name.startswith("--") or is_open(given.name) or "." in name:
            continue
        changes = known.get(name) or known.get(name.removeprefix("no-"))
        if changes is None:
            flag, flags = f"--{name}", [f"--{option}" for option in known]
            close = [] if any(one.startswith(flag) for one in flags) else get_close_matches(flag, flags, 1, NEAR)
            if close and not is_patched:
                word, meant = given.word.part(0, len(given.flag)), close[0]
                edits = (Swap(word, meant),)
                yield from _say(one, word, "option", release, edits=edits, tool=tool, flag=given.name, instead=meant)
            continue
        lacking = absence(changes, told)
        if lacking is None or (told is None and (is_patched or not lacking.gone)):
            continue
        form = "left" if told is None else "of a release"
        instead = instead_of("bench", name) if lacking.gone else f"leave it out, or take vLLM {lacking.edge} or later"
        version = told.written if told else ""
        about: dict[str, Any] = {
            "tool": tool,
            "flag": given.name,
            "instead": instead,
            "has": lacking.has,
            "version": version,
        }
        yield from _say(one, given.word, form, release, **about)


def _is_nobodys(name: str, known: Collection[str]) -> bool:
    """True for an option that no release has and that is like none: the reader's own, in a program that was changed."""
    plain = name.lstrip("-").replace("_", "-")
    if not name.startswith("--") or is_open(name) or "." in plain or any(one.startswith(plain) for one in known):
        return False
    flags = [f"--{one}" for one in known]
    return plain.removeprefix("no-") not in known and not get_close_matches(f"--{plain}", flags, 1, NEAR)


def _own(given: Sequence[Given]) -> Iterator[Given]:
    """What stands in front of ``--``, behind which another program's options begin."""
    for one in given:
        if one.word.text == "--":
            return
        yield one


def _endpoint(one: Invocation, release: str) -> Iterator[Draft]:
    """The endpoint takes messages or a prompt, and the backend sends the other."""
    backend, endpoint = one.find("--backend"), one.find("--endpoint")
    kind = one.value("--backend", "--endpoint-type") or "openai"
    path = one.value("--endpoint") or COMPLETIONS
    if is_open(kind) or is_open(path) or len([given for given in one.given if given.flag]) < FEWEST:
        return
    for word in one.values("--base-url"):
        if word.text.rstrip("/").endswith(VERSION) and path.startswith(f"{VERSION}/"):
            right = word.text.rstrip("/").removesuffix(VERSION)
            known = {"whole": f"{VERSION}{path}", "right": right}
            yield from _say(one, word, "base", release, edits=(Swap(word, right),), **known)
    if kind == "tensorrt-llm" and not path.rstrip("/").endswith("generate_stream"):
        place = endpoint.values[0] if endpoint and endpoint.values else (backend.word if backend else one.path)
        yield from _say(one, place, "triton endpoint", release, edits=(Put("--endpoint", ENSEMBLE),), path=path)
    elif kind == "openai-chat" and not path.rstrip("/").endswith("chat/completions"):
        place = endpoint.values[0] if endpoint and endpoint.values else (backend.word if backend else one.path)
        yield from _say(one, place, "chat backend", release, edits=(Put("--endpoint", CHAT),), path=path)
    elif kind in COMPLETING and path.rstrip("/").endswith("chat/completions") and endpoint:
        place = backend.values[0] if backend and backend.values else endpoint.word
        yield from _say(
            one, place, "chat endpoint", release, edits=(Put("--backend", "openai-chat"),), path=path, backend=kind
        )


def _goals(one: Invocation, tool: str, release: str) -> Iterator[Draft]:
    """Names of metrics that only another tool has."""
    data = rule_data(FAMILY)
    meant = data["short_metrics" if tool == "vllm" else "metrics"]
    for word in one.values("--goodput", "-g"):
        for match in GOAL.finditer(word.text):
            if instead := meant.get(match["name"]):
                name = "vllm bench serve" if tool == "vllm" else tool
                form = "metric, not certain" if tool == "aiperf" else "metric"
                yield from _say(one, word, form, release, tool=name, name=match["name"], instead=instead)


def _protocol(one: Invocation, protocol: str, release: str) -> Iterator[Draft]:
    """gRPC at Triton's port of HTTP."""
    given = one.find("-u", "--url")
    match = PORT.search(given.values[0].text) if given and given.values else None
    if match and given and protocol.lower() == "grpc" and match["port"] == HTTP_PORT:
        yield from _say(one, given.values[0], "port", release, tool=one.tool)
    elif match and given and protocol.lower() == "http" and match["port"] == GRPC_PORT:
        yield from _say(one, given.values[0], "grpc port", release, tool=one.tool)
