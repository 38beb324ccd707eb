"""Arguments of vLLM's server that ``helm --set`` puts into the values of a chart: as a list, by number, as one text."""

import re
from collections.abc import Iterator, Sequence

from trtllm_check.lint.carriers.python_words import split
from trtllm_check.lint.carriers.script import Script
from trtllm_check.lint.held_arguments import HELD_MODEL, started_at
from trtllm_check.lint.shell import ShellCommand, Word, read_inside
from trtllm_check.releases.vllm import options_of

SETS = ("--set", "--set-string", "--set-literal")
OF_ARGUMENTS = re.compile(r"(?:^|\.)[A-Za-z_]*(?:[Aa]rgs|[Aa]rguments|[Oo]ptions|[Ff]lags)(?:\[\d+\])?$")
ABOUT = re.compile(r"vllm", re.IGNORECASE)
OTHER_PART = re.compile(r"router|gateway|proxy|prometheus|grafana|redis|webui|cacheserver|sglang", re.IGNORECASE)
COMMA = re.compile(r"(?<!\\),")


def helm_commands(commands: Sequence[ShellCommand]) -> Iterator[ShellCommand]:
    """``vllm serve`` with the arguments that a command of helm sets; nothing for a chart of another server."""
    for command in commands:
        if not command.words or command.words[0].text.rpartition("/")[2] != "helm":
            continue
        if not ABOUT.search(" ".join(word.text for word in command.words)):
            continue
        words = [one for setting in _settings(command.words) for one in _arguments(setting)]
        flags = [word.text.partition("=")[0].removeprefix("--") for word in words if word.text.startswith("--")]
        known = [flag for flag in flags if flag.replace("_", "-") in options_of("serve")]
        if words and words[0].text.startswith("--") and known and len(known) * 2 >= len(flags):
            script = Script()
            script.words([*started_at(words[0], "vllm", "serve", HELD_MODEL), *words])
            yield from read_inside(script.word(), command.file)


def _settings(words: Sequence[Word]) -> Iterator[Word]:
    """The values of ``--set``."""
    for number, word in enumerate(words):
        flag, sign, _ = word.text.partition("=")
        if flag in SETS and sign:
            yield word.part(len(flag) + 1)
        elif word.text in SETS and number + 1 < len(words):
            yield words[number + 1]


def _arguments(setting: Word) -> Iterator[Word]:
    """The words of ``a.extraArgs={--x,1}``, ``a.args[0]=--x=1`` and ``a.extraArgs="--x 1"``."""
    name, sign, value = setting.text.partition("=")
    if not sign or not OF_ARGUMENTS.search(name) or OTHER_PART.search(name):
        return
    place = setting.part(len(name) + 1)
    if value.startswith("{"):
        position = 1
        for part in COMMA.split(value.strip("{}")):
            yield place.part(position, position + len(part))
            position += len(part) + 1
    elif " " in value:
        yield from split(place)
    elif value:
        yield place
