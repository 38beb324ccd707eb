"""What an engine is asked to do against what it is built for: drafts, adapters, an encoder's output."""

import posixpath
from collections.abc import Iterator
from typing import Any, NamedTuple

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Edit, Platform, Put, drafts
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.rules.arguments import is_checked
from trtllm_check.lint.rules.engine_limits import number_of, written_once
from trtllm_check.releases import Release

BUILD, RUN = "trtllm-build", "run.py"
RULE = "engine-feature"
MODE, DRAFTS, ENCODER = "--speculative_decoding_mode", "--max_draft_len", "--max_encoder_input_len"
ADAPTERS = ("--lora_plugin", "--lora_dir")
WHOLE = ("--model_config", "--build_config")  # files that may say all of it
PARTS = ("encoder", "decoder")


class Asked(NamedTuple):
    """``flag`` of run.py wants an engine of ``mode``; ``form``: of the rule."""

    flag: str
    mode: str
    form: str = "speculation"


ASKED = (
    Asked("--draft_target_model_config", "draft_tokens_external", "drafts"),
    Asked("--medusa_choices", "medusa"),
    Asked("--lookahead_config", "lookahead_decoding"),
    Asked("--eagle_choices", "eagle"),
)


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release
    builds = [one for one in document.of(BUILD) if is_checked(one, release)]
    made = written_once(builds)
    for run in document.of(RUN):
        folder = run.value("--engine_dir")
        built = made.get(posixpath.normpath(folder)) if folder else None
        if built is not None and not any(built.find(flag) for flag in WHOLE):
            yield from _speculation(run, built, release)
            yield from _adapters(run, built, release)
    yield from _encoders(builds, release)


def _say(
    form: str, flag: str, one: Invocation, release: Release, edits: tuple[Edit, ...] = (), **known: Any
) -> Iterator[Draft]:
    given = one.find(flag)
    if given:
        yield from drafts(
            release.name, RULE, given.word, form=form, edits=edits, invocation=one, tool=one.tool, flag=flag, **known
        )


def _speculation(run: Invocation, build: Invocation, release: Release) -> Iterator[Draft]:
    """A way of drafting that the engine is not built for."""
    argument = release.tools[BUILD].argument(MODE)
    if argument is None:
        return
    written = build.value(MODE)
    for asked in ASKED:
        if asked.mode in argument.choices and written is None:
            yield from _say(asked.form, asked.flag, run, release, mode=asked.mode, line=build.path.line)


def _adapters(run: Invocation, build: Invocation, release: Release) -> Iterator[Draft]:
    if release.tools[BUILD].has(ADAPTERS[0]) and not any(build.find(flag) for flag in ADAPTERS):
        yield from _say("adapter", "--lora_dir", run, release, line=build.path.line)


def _encoders(builds: list[Invocation], release: Release) -> Iterator[Draft]:
    """A decoder that takes less than the encoder beside it gives."""
    parts: dict[tuple[str, str], list[Invocation]] = {}
    for build in builds:
        parent, name = posixpath.split(posixpath.normpath(build.value("--checkpoint_dir") or ""))
        if name in PARTS:
            parts.setdefault((parent, name), []).append(build)
    for (parent, name), decoders in parts.items():
        encoders = parts.get((parent, PARTS[0]), [])
        if name != PARTS[1] or len(decoders) != 1 or len(encoders) != 1:
            continue
        takes, gives = number_of(decoders[0].value(ENCODER)), number_of(encoders[0].value("--max_input_len"))
        if takes and gives and takes < gives:
            edits = (Put(ENCODER, str(gives)),)
            yield from _say("encoder", ENCODER, decoders[0], release, edits, takes=takes, gives=gives)
