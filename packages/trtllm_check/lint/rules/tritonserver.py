"""tritonserver's own options, and its three ports."""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Edit, Platform, Put, Swap, drafts, rule_data
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.rules.load_tools import hides_options
from trtllm_check.lint.rules.names import is_open
from trtllm_check.releases.history import with_flag

FAMILY = "tritonserver"
NEAR = 0.85
LONG_OPTION = re.compile(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)+")
NUMBERS = ("--log-verbose", "--http-port", "--grpc-port", "--metrics-port", "--http-thread-count")
LOADS = re.compile(r"--load-model|repository/models/|load_model\(|[\"'{ ]load[\"' ]|perf_analyzer|unload")
ASKED = re.compile(r"/v2/models/[^/]+/(?:versions/[^/]+/)?(?:generate|generate_stream|infer)\b")
BACKENDS, CACHES = "--backend-config", ("--response-cache-byte-size", "--cache-config")
PORTS = {"--http-port": "8000", "--grpc-port": "8001", "--metrics-port": "8002"}


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    for server in document.of("tritonserver"):
        yield from _options(server, release)
        yield from _ports(server, release)
        yield from _values(server, release)
        yield from _formed(server, release)
        yield from _loads(server, document, release)
    for launch in document.of("launch_triton_server.py"):
        yield from _ports(launch, release)
        yield from _models(launch, release)
    for build in document.of("trtllm-build"):
        yield from _nothing(build, release)
        config = build.find("--model_config")
        if config is not None and not build.has("--checkpoint_dir", "--build_config", "--model_cls_file"):
            yield from drafts(release, "build-of-nothing", config.word, form="config alone", invocation=build)


def _options(server: Invocation, release: str) -> Iterator[Draft]:
    known = rule_data(FAMILY)["options"].split()
    for given in server.given:
        name = given.name.removeprefix("--")
        if not given.name.startswith("--") or is_open(name) or name in known or not name:
            continue
        if sum(option.startswith(name) for option in known) == 1:
            continue  # getopt_long takes a beginning that no other option has
        dashed = name.replace("_", "-")
        if other := rule_data(FAMILY)["of_others"].get(dashed):
            yield from drafts(
                release, "tritonserver-option", given.word, invocation=server, flag=given.name, instead=other
            )
            continue
        close = [dashed] if dashed in known else get_close_matches(dashed, known, 1, NEAR)
        if close and not any(option.startswith(name) for option in known):
            word = given.word.part(0, len(given.flag))
            edits: tuple[Edit, ...] = (Swap(word, f"--{close[0]}"),)
            yield from drafts(
                release,
                "tritonserver-option",
                word,
                edits=edits,
                invocation=server,
                flag=given.name,
                instead=f"--{close[0]}",
            )
        elif not close and name not in rule_data(FAMILY)["earlier"].split() and LONG_OPTION.fullmatch(name):
            word = given.word.part(0, len(given.flag))
            yield from drafts(release, "tritonserver-option", word, form="unknown", invocation=server, flag=given.name)


def _loads(server: Invocation, document: Document, release: str) -> Iterator[Draft]:
    """Models that are named and not asked for: the server loads all of them; or none that anything asks for."""
    texts = [text for _, text in document.texts]
    given, mode = server.find("--load-model"), server.value("--model-control-mode")
    is_told = mode is not None or not hides_options(server)
    if given is not None and is_told and (mode is None or mode in ("none", "poll")):
        edits = (Put("--model-control-mode", "explicit"),)
        yield from drafts(release, "tritonserver-option", given.word, form="loads", edits=edits, invocation=server)
    control = server.find("--model-control-mode")
    if control is not None and mode == "explicit" and given is None and not any(map(LOADS.search, texts)):
        asks = any(ASKED.search(one.url) for one in document.requests)
        form = "empty, and asked" if asks else "empty"
        yield from drafts(release, "tritonserver-option", control.word, form=form, invocation=server)


def _values(server: Invocation, release: str) -> Iterator[Draft]:
    """A word where a number is wanted."""
    for given in server.given:
        for word in given.values[:1] if given.name in NUMBERS else ():
            if not is_open(word.text) and not re.fullmatch(r"-?\d+", word.text):
                known: dict[str, Any] = {"flag": given.name, "value": word.text}
                yield from drafts(release, "tritonserver-option", word, form="number", invocation=server, **known)


def _formed(server: Invocation, release: str) -> Iterator[Draft]:
    """A word, or a text of another form, where the option takes a few; and two ways of one cache."""
    facts = rule_data(FAMILY)
    for given in server.given:
        form = facts["forms"].get(given.name, {})
        words = facts["words"].get(given.name, "").split()
        for word in given.values[:1] if form or words else ():
            fits = re.fullmatch(form["pattern"], word.text) if form else word.text.lower() in words
            if not is_open(word.text) and not fits:
                wanted = form["wanted"] if form else "one of " + ", ".join(words)
                known: dict[str, Any] = {"flag": given.name, "value": word.text, "wanted": wanted}
                yield from drafts(release, "tritonserver-option", word, form="value", invocation=server, **known)
            elif given.name == BACKENDS and "," not in word.text and ":" in word.text.partition("=")[0]:
                known = {"value": word.text, "wanted": word.text.replace(":", ",", 1)}
                yield from drafts(release, "tritonserver-option", word, form="setting", invocation=server, **known)
    cache = server.find(CACHES[0])
    if cache is not None and server.has(CACHES[1]):
        yield from drafts(release, "tritonserver-option", cache.word, form="caches", invocation=server)


def _models(launch: Invocation, release: str) -> Iterator[Draft]:
    """``--multi-model`` beside a number of ranks: the server starts them itself."""
    given, ranks = launch.find("--multi-model"), launch.value("--world_size")
    alone = not launch.has("--disable-spawn-processes", "--disable_spawn_processes")
    if given is not None and alone and ranks and ranks.isdecimal() and int(ranks) != 1:
        edits = (Put("--world_size", "1"),)
        yield from drafts(release, "tritonserver-option", given.word, form="models", edits=edits, invocation=launch)


def _ports(server: Invocation, release: str) -> Iterator[Draft]:
    """Two of its ports are one."""
    taken: dict[str, str] = {}
    underscores = server.tool != "tritonserver"
    for name, default in PORTS.items():
        flag = f"--{name[2:].replace('-', '_')}" if underscores else name
        if any(one.name.startswith("--reuse-") or one.name.startswith("--allow-") for one in server.given):
            return
        port = server.value(flag) or default
        if port in taken and port.isdecimal():
            given = server.find(flag, taken[port])
            place = given.word if given else server.path
            yield from drafts(
                release,
                "tritonserver-option",
                place,
                form="port",
                invocation=server,
                port=port,
                flag=flag,
                other=taken[port],
            )
        taken[port] = flag


def _nothing(build: Invocation, release: str) -> Iterator[Draft]:
    """trtllm-build of nothing."""
    needs = ("--checkpoint_dir", "--model_config", "--build_config", "--model_cls_file", "--help", "-h")
    if build.arguments and not build.has(*needs) and not any(is_open(word.text) for word in build.positional):
        flags = [one.name for one in build.given if one.flag]
        if any(needs[0].startswith(name) and len(name) > len("--c") for name in flags):
            return
        if not all(with_flag("trtllm-build", name) for name in flags if name.startswith("--")):
            return  # it stops at what it does not know
        edits = (Put("--checkpoint_dir", "CHECKPOINT"),)
        yield from drafts(release, "build-of-nothing", build.path, edits=edits, invocation=build)
