"""config.pbtxt of Triton's vLLM backend: which GPUs its instances get."""

from collections.abc import Iterator

from trtllm_check.lint.document import ConfigFile, Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.pbtxt import ConfigError, Message, Scalar, read_config
from trtllm_check.lint.rules.served import VLLM, served
from trtllm_check.lint.shell.words import Word

BACKEND = "vllm"
RULE = "vllm-instances"
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
