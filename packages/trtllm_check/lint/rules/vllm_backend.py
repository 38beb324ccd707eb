"""config.pbtxt of Triton's vLLM backend: which GPUs its instances get, and what the backend itself sets."""

from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import ConfigFile, Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.pbtxt import ConfigError, Message, Scalar, read_config
from trtllm_check.lint.rules.served import VLLM, served
from trtllm_check.lint.shell.words import Word

BACKEND = "vllm"
RULE = "vllm-instances"
OFF, FALSE = "disable-auto-complete-config", ("false", "f", "0")
ARGUMENTS = "AsyncEngineArgs"


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    ranks = max((one.ranks for one in served(document) if one.engine == VLLM and one.tool == ARGUMENTS), default=1)
    for config in document.configs:
        try:
            message = read_config(config.text)
        except ConfigError:
            continue
        if message.text("backend") == BACKEND:
            yield from _instances(config, message, ranks, platform.release.name)
            if not any(OFF in text for _, text in document.texts):
                yield from _completed(config, message, platform.release.name)


def _completed(config: ConfigFile, message: Message, release: str) -> Iterator[Draft]:
    """What contradicts its auto_complete_config."""
    batch = message.scalar("max_batch_size")
    if batch is not None and batch.text.isdecimal() and int(batch.text) > 0:
        problem = f"configuration specified max_batch_size {batch.text}, and the vLLM backend sets it to 0"
        instead = "write max_batch_size: 0; vLLM makes the batches itself"
        yield from _refused(config, batch, release, problem=problem, instead=instead)
    for policy in message.messages("model_transaction_policy"):
        decoupled = policy.scalar("decoupled")
        if decoupled is not None and decoupled.text.lower() in FALSE:
            problem = "decoupled is already set to False, and the vLLM backend sets it to True"
            instead = "write decoupled: True, or leave the policy out"
            yield from _refused(config, decoupled, release, problem=problem, instead=instead)


def _refused(config: ConfigFile, place: Scalar, release: str, **known: Any) -> Iterator[Draft]:
    word = _word(config, place)
    yield from drafts(release, "config-refused", word, file=config.path, model=config.model, **known)


def _instances(config: ConfigFile, message: Message, ranks: int, release: str) -> Iterator[Draft]:
    for group in message.messages("instance_group"):
        kind, count = group.scalar("kind"), group.scalar("count")
        number = int(count.text) if count is not None and count.text.isdecimal() else 1
        if kind is not None and count is not None and kind.text == "KIND_MODEL" and number > 1:
            yield from drafts(release, RULE, _word(config, kind), file=config.path, count=number)
        elif kind is not None and kind.text == "KIND_GPU" and ranks > 1:
            yield from drafts(release, RULE, _word(config, kind), form="ranks", file=config.path, ranks=ranks)


def _word(config: ConfigFile, place: Scalar) -> Word:
    return Word(place.text, config.line + place.line - 1, place.column)
