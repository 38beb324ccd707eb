"""The YAML that ``vllm serve --config`` reads, as the words of the command that vLLM makes of it."""

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from trtllm_check.lint.carriers.option_lines import ENTRY, ITEM, is_broken_config
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.shell import ShellCommand, Word
from trtllm_check.releases.vllm import options_of

OF_A_LAUNCHER = re.compile(
    r"^(?=[\w-]*vllm)[a-z][\w-]*[ \t]*:[^\n]*|^env(?:ironment)?:[ \t]*\n(?:[ \t]+[^\n]*(?:\n|$))+", re.MULTILINE
)
SERVER = ("python3", "-m", "vllm.entrypoints.openai.api_server")
SERVE = "serve"
ENOUGH, MOST_UNKNOWN = 2, 1


def config_words(text: str, first: int, *, model: bool = False) -> tuple[Word, ...]:
    """``key: value`` as ``--key value``; true as the switch alone, false as nothing; a mapping is left out.

    ``model``: with the model, which ``vllm serve`` itself takes out of the file.
    """
    words: list[Word] = []
    for number, line in enumerate(text.split("\n"), first):
        if match := ENTRY.match(line):
            key = match["key"].replace("_", "-")
            value = (match["value"] or "").strip("\"'")
            if key == "model" and not model:
                continue
            if value.lower() != "false":
                words.append(Word(f"--{key}", number, 1))
            if value and value.lower() not in ("true", "false"):
                words.append(Word(value, number, match.start("value") + 1))
        elif words and (item := ITEM.match(line)):
            words.append(Word(item["value"].strip("\"'"), number, item.start("value") + 1))
    return tuple(words)


def named_configs(found: Sequence[Invocation]) -> set[str]:
    """The names of the files that vLLM's commands read."""
    return {_name(word.text) for one in found if one.tool == "vllm" for word in one.values("--config")}


def with_config(
    command: ShellCommand, found: Sequence[Invocation], name: str, words: tuple[Word, ...], model: Word | None = None
) -> ShellCommand:
    """``command`` with what its file of options says at its end, where it starts vLLM with that file.

    ``model``: the one of the file, which counts where ``vllm serve`` is given none.
    """
    own = [one for one in found if one.command is command and one.tool == "vllm"]
    named = {_name(word.text) for one in own for word in one.values("--config")}
    if name not in named:
        return command
    serves = [number for number, word in enumerate(command.words) if word.text == SERVE]
    has_none = all([word.text for word in one.positional] == [SERVE] and not one.has("--model") for one in own)
    if model is None or len(serves) != 1 or not has_none:
        return command._replace(words=(*command.words, *words))
    behind = serves[0] + 1
    return command._replace(words=(*command.words[:behind], model, *command.words[behind:], *words))


def config_model(text: str, first: int) -> Word | None:
    """The model that a file of options names."""
    for number, line in enumerate(text.split("\n"), first):
        match = ENTRY.match(line)
        if match is not None and match["key"] == "model" and match["value"]:
            return Word(match["value"].strip("\"'"), number, match.start("value") + 1)
    return None


def is_loose_config(text: str) -> bool:
    """True for YAML with nothing but options of ``vllm serve``."""
    keys = [match["key"].replace("_", "-") for line in text.split("\n") if (match := ENTRY.match(line))]
    known = [key for key in keys if key in options_of(SERVE)]
    return len(known) >= ENOUGH and len(known) == len(keys)


def is_lone_config(text: str) -> bool:
    """True for a text of lines of options alone, which nothing else says of itself what it is."""
    lines = [line for line in text.split("\n") if line.strip() and not line.lstrip().startswith("#")]
    alone = bool(lines) and all(ENTRY.match(line) or ITEM.match(line) for line in lines)
    return is_broken_config(text) or (alone and any(True for _ in lone_config(text, "")))


def lone_config(text: str, file: str) -> Iterator[ShellCommand]:
    """The server that a file of options alone is for; nothing for any other YAML."""
    own = _of_the_server(text)
    keys = [match["key"].replace("_", "-") for line in own.split("\n") if (match := ENTRY.match(line))]
    known = [key for key in keys if key in options_of("serve")]
    is_named = "vllm" in text.lower()
    if len(known) < ENOUGH or len(keys) - len(known) > (MOST_UNKNOWN if is_named else 0):
        return
    if is_named or (len(known) > ENOUGH and any("-" in key and f"{key}:" in text for key in known)):
        words = config_words(own, 1, model=True)
        start = tuple(Word(one, words[0].line, 1) for one in SERVER)
        yield ShellCommand((*start, *words), {}, words[0].line, words[-1].line, file=file)


def _of_the_server(text: str) -> str:
    """``text`` without what a launcher keeps for itself: ``min-vllm-version: 0.9.0``, which no option is called."""
    return OF_A_LAUNCHER.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def _name(path: str) -> str:
    return PurePosixPath(path).name
