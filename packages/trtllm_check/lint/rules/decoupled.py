"""Whether the engine's model answers several times, against the backend's own clients, and the backend in Python."""

import posixpath
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from trtllm_check.lint.document import Document
from trtllm_check.lint.filling import FALSE, TRUE, fillings
from trtllm_check.lint.finding import Draft, Edit, Platform, drafts
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.pbtxt import ConfigError, read_config
from trtllm_check.lint.shell.words import ShellCommand, Word

RULE = "decoupled-needed"
ENGINE_MODEL = "tensorrt_llm"
STREAMS = ("-S", "--streaming")
STREAMING = ("inflight_batcher_llm_client.py", "end_to_end_grpc_client.py")  # with one of STREAMS
ONE_ANSWER = ("inflight_batcher_llm_client.py", "end_to_end_test.py", "benchmark_core_model.py", "identity_test.py")
OTHERS = ("--model-name", "--model_name", "-h", "--help")
FIRST_WORDS = 4
OF_THE_BACKEND = re.compile(r"(?:inflight_batcher_llm/client|tools/inflight_batcher_llm)/[\w.]+$")


class AnswerPolicy(NamedTuple):
    """What the text says of the engine's model: ``decoupled`` True or False, at ``place``; ``backend`` as written."""

    decoupled: bool
    place: Word
    backend: str
    invocation: Invocation | None
    edits: tuple[Edit, ...]
    file: str


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    policies = list(_policies(document, platform))
    for one in policies:
        if not one.decoupled and one.backend == "python":
            yield from drafts(
                release, RULE, one.place, form="python", edits=one.edits, invocation=one.invocation, file=one.file
            )
    if len({one.decoupled for one in policies}) != 1:
        return
    decoupled, folder = policies[0].decoupled, ""
    for command in document.commands:
        if command.words[:1] and command.words[0].text in ("cd", "pushd"):
            folder = command.words[-1].text
        word = _client(command, folder)
        if word is None:
            continue
        name = posixpath.basename(word.text)
        streams = any(one.text in STREAMS for one in command.words)
        known: dict[str, Any] = {"client": name, "line": policies[0].place.line}
        if streams and not decoupled and name in STREAMING:
            yield from drafts(release, RULE, word, form="client", file=command.file, **known)
        elif not streams and decoupled and name in ONE_ANSWER:
            yield from drafts(release, RULE, word, form="client of one answer", file=command.file, **known)


def _client(command: ShellCommand, folder: str) -> Word | None:
    """The script of a client of the backend's own, which asks the model that it asks by default."""
    names = (*STREAMING, *ONE_ANSWER)
    word = next((one for one in command.words[:FIRST_WORDS] if posixpath.basename(one.text) in names), None)
    is_other = any(one.text.partition("=")[0] in OTHERS for one in command.words)
    of_the_backend = word is not None and OF_THE_BACKEND.search(f"{folder}/{word.text}")
    return word if of_the_backend and not is_other else None


def _policies(document: Document, platform: Platform) -> Iterator[AnswerPolicy]:
    for one in fillings(document, platform.release):
        value = one.values.get("decoupled_mode", "")
        if one.model == ENGINE_MODEL and value in (*TRUE, *FALSE):
            edits: tuple[Edit, ...] = (one.with_values({"decoupled_mode": "true"}),)
            backend = one.values.get("triton_backend", "")
            file = one.invocation.command.file
            yield AnswerPolicy(value in TRUE, one.at("decoupled_mode"), backend, one.invocation, edits, file)
    for config in document.configs:
        if config.model != ENGINE_MODEL:
            continue
        try:
            message = read_config(config.text)
        except ConfigError:
            continue
        scalars = [one.scalar("decoupled") for one in message.messages("model_transaction_policy")]
        for scalar in scalars[-1:]:
            if scalar is not None and scalar.text.lower() in ("true", "false"):
                place = Word(scalar.text, config.line + scalar.line - 1, scalar.column)
                yield AnswerPolicy(scalar.text.lower() == "true", place, "", None, (), config.path)
