"""The road of 0.5 to 0.7, where each model had a build.py: its options by look-up, in a text that names no release.

A text that names one is mostly :mod:`trtllm_check.lint.rules.example_scripts`' work.
"""

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.evidence import fitting, told
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.installs import clones
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.shell.words import ShellCommand, Word, file_name, front
from trtllm_check.lint.whereabouts import CLONES
from trtllm_check.releases.clients import example_scripts
from trtllm_check.releases.history import with_flag
from trtllm_check.releases.load import in_range, load_release
from trtllm_check.releases.nearest import nearest

OPTION, GONE = "example-option", "example-folder"
BUILDER, LAST = "build.py", "0.7.1"
TODAYS = "trtllm-build"
OF_TODAY = (TODAYS, "convert_checkpoint.py", "quantize.py")  # what an edition for a later release may take
EXAMPLE = re.compile(r"(?:^|/)(examples/\w+/build\.py)$")
OF_THE_ROAD = frozenset(  # no other build.py has one of these
    {
        *("--use_gpt_attention_plugin", "--use_gemm_plugin", "--use_inflight_batching", "--enable_context_fmha"),
        *("--use_rmsnorm_plugin", "--use_layernorm_plugin", "--ft_model_dir", "--meta_ckpt_dir"),
    }
)
FLAG = re.compile(r"--[A-Za-z]\w*")
FIRST_WORDS = 12
OF_A_CHECKPOINT = "--checkpoint_dir"
NEWER = re.compile(  # than 0.7.1 of December 2023
    r"(?<![\w.])(?:meta-)?llama-?3(?:\.\d)?(?:-\d+b)?|qwen-?(?:1\.5|2(?:\.5)?|3)(?:-\d+b)?|gemma-?[23]?-\d+b|mixtral-8x22b",
    re.IGNORECASE,
)
OLDER = re.compile(
    r"llama-?2|(?<![\w.])llama-(?:7|13|30|65)b|vicuna|falcon|gpt-?j|chatglm|baichuan|bloom", re.IGNORECASE
)
OF_FLAGS = "flag"
NEAR, VERY_NEAR = 0.8, 0.9


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    if platform.earlier:
        return
    if platform.told:
        yield from _gone(document, platform.release.name)
        return
    later = _first_of_today(document)
    for command in document.commands:
        at = next((n for n, word in enumerate(front(command, FIRST_WORDS)) if file_name(word.text) == BUILDER), None)
        if at is None or not _is_of_the_road(command, at):
            continue
        yield from _misspelt(command, at, platform.release.name)
        place = command.words[at]
        newer = _newer(document.texts)
        if any(_flag(word) == OF_A_CHECKPOINT for word in command.words[at + 1 :]):
            yield from drafts(platform.release.name, GONE, place, form="checkpoint", file=command.file, path=place.text)
        elif newer and not later:
            known: dict[str, Any] = {"path": place.text, "model": newer, "last": LAST}
            yield from drafts(platform.release.name, GONE, place, form="newer", file=command.file, **known)
        if later:
            known = {"path": place.text, "version": later, "last": LAST}
            yield from drafts(platform.release.name, GONE, place, form="two roads", file=command.file, **known)


@lru_cache(maxsize=8)
def _newer(texts: tuple[tuple[str, str], ...]) -> str:
    """A model of the texts that came out after the last builder; empty where an older one is named, too."""
    found = [match[0] for _, text in texts for match in NEWER.finditer(text)]
    return found[0] if found and not any(OLDER.search(text) for _, text in texts) else ""


def _gone(document: Document, release: str) -> Iterator[Draft]:
    """A builder in its own folder, of which nothing tells the model, in a text for a release without any."""
    if any(one.name.lower() not in CLONES for one in clones(document)):
        return  # a script of that project
    for command in document.commands:
        for number, word in enumerate(front(command, FIRST_WORDS)):
            is_bare = word.text in (BUILDER, f"./{BUILDER}")
            if is_bare and _is_of_the_road(command, number) and not _goes(document, command):
                known: dict[str, Any] = {"path": word.text, "version": release, "last": LAST}
                yield from drafts(release, GONE, word, form="gone", file=command.file, **known)


def _goes(document: Document, command: ShellCommand) -> bool:
    """True where the text goes into a folder of the examples: other rules know what is there."""
    return any(
        one.words[0].text in ("cd", "pushd") and "examples" in one.words[1].text
        for one in document.commands
        if one.file == command.file and len(one.words) > 1
    )


def _is_of_the_road(command: ShellCommand, at: int) -> bool:
    flags = [flag for word in command.words[at + 1 :] if (flag := _flag(word))]
    is_example = EXAMPLE.search(command.words[at].text) is not None
    return bool(flags) and (is_example or any(nearest(flag, OF_THE_ROAD, VERY_NEAR) for flag in flags))


def _flag(word: Word) -> str:
    name = word.text.partition("=")[0]
    return name if FLAG.fullmatch(name) else ""


def _misspelt(command: ShellCommand, at: int, release: str) -> Iterator[Draft]:
    """The option that no build.py of the examples has, and that is almost one of its own.

    Of several nobody knows whether the script is an edition of the reader's own.
    """
    match = EXAMPLE.search(command.words[at].text)
    own = _options(match[1]) if match else frozenset()
    found = []
    for word in command.words[at + 1 :]:
        flag = _flag(word)
        if not flag or is_open(flag) or flag in _every() or any(one.startswith(flag) for one in _every()):
            continue
        near = nearest(flag, own or _every(), NEAR)
        if near and not any(with_flag(tool, flag) for tool in OF_TODAY):
            found.append((word, flag, near))
    for word, flag, near in found if len(found) == 1 else ():
        known: dict[str, Any] = {"script": BUILDER, "flag": flag, "version": f"0.5.0 to {LAST}", "near": near}
        known |= {"since": "", "last": LAST}
        yield from drafts(release, OPTION, word, form="never", file=command.file, **known)


def _first_of_today(document: Document) -> str:
    """The first release that the text's trtllm-build is of, where its options came after the builders went."""
    flags = [given.name for one in document.of(TODAYS) for given in one.given if given.name.startswith("--")]
    found = told(document) if flags else None
    firsts = [where[0] for flag in flags if (where := with_flag(TODAYS, flag))]
    if (found is not None and found.kind != OF_FLAGS) or all(in_range(first, until="0.8.0") for first in firsts):
        return ""  # of a text that tells its release example_folders speaks
    return next((name for name in fitting(document) if TODAYS in load_release(name).tools), "")


@cache
def _options(path: str) -> frozenset[str]:
    found = example_scripts(BUILDER).get(path, frozenset())
    return frozenset(one for one in found if one.startswith("--"))


@cache
def _every() -> frozenset[str]:
    return frozenset(one for path in example_scripts(BUILDER) for one in _options(path))
