"""Folders of one repository, looked for in the other: TensorRT-LLM and its Triton backend, apart up to 0.19."""

import posixpath
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.installs import clones
from trtllm_check.lint.rules.cloned_files import words_read
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.shell.words import ShellCommand, Word

RULE = "file-of-a-clone"
SOURCES = ("cp", "mv", "ln", "rsync")
MOVES = ("cd", "pushd", "ls", "cat")
OF_TENSORRT_LLM = ("examples", "triton_backend")  # a folder with both is a clone of it
VOLUME = ("-v", "--volume")


class Other(NamedTuple):
    """What is not in ``folder``; ``right``: where it is instead, for the part behind the folder."""

    path: re.Pattern[str]
    folder: str
    right: str


OTHERS = (
    Other(
        re.compile(
            r"(?P<before>(?:.*/)?)(?P<name>TensorRT[-_]LLM|tensorrt[-_]llm|trtllm)/"
            r"(?P<inside>all_models|inflight_batcher_llm|tools/fill_template\.py|scripts/launch_triton_server\.py|tools/inflight_batcher_llm)(?P<rest>/.*)?"
        ),
        "TensorRT-LLM",
        "tensorrtllm_backend/{inside} up to 0.19, and triton_backend/{inside} of TensorRT-LLM from 0.20 on",
    ),
    Other(
        re.compile(
            r"(?P<before>(?:.*/)?)(?P<name>tensorrt_?llm_backend)/"
            r"(?P<inside>(?:examples|benchmarks)/[\w.-]+|triton_backend)(?P<rest>/.*)?"
        ),
        "tensorrtllm_backend",
        "tensorrt_llm/{inside} of it, which is the submodule TensorRT-LLM",
    ),
)


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """Each folder once, where no clone of the text says what it holds."""
    own = clones(document)
    said: set[str] = set()
    for command in document.commands:
        for word in _read(command):
            for other in OTHERS:
                match = other.path.fullmatch(word.text)
                if match is None or is_open(match["inside"]) or match["inside"] in said:
                    continue
                if match["before"].startswith("/app/") or _is_another(document, match, own != []):
                    continue
                said.add(match["inside"])
                right = other.right.format(inside=match["inside"])
                known: dict[str, Any] = {"path": word.text, "inside": match["inside"], "repository": other.folder}
                yield from drafts(
                    platform.release.name, RULE, word, form="other repository", file=command.file, right=right, **known
                )


def _read(command: ShellCommand) -> Iterator[Word]:
    """Words that name what has to be there."""
    words = [word for word in command.words if word.text != "sudo"]
    if words and posixpath.basename(words[0].text) in ("docker", "podman"):
        for flag, word in pairwise(words):
            if flag.text in VOLUME:
                yield word.part(0, word.text.find(":")) if ":" in word.text else word
    else:
        yield from words_read(command, MOVES, SOURCES)


def _is_another(document: Document, match: re.Match[str], has_clones: bool) -> bool:
    """True where the folder may hold something else: a clone by that name, what the text has put there."""
    texts = " ".join(text for _, text in document.texts)
    is_backend = "backend" in match["name"]
    if is_backend and has_clones and not match["before"]:
        return True  # the rule on files of a clone speaks of it
    if re.search(rf"(?:mkdir|>|tee|wget|-O|--output_dir)\s*\S*{re.escape(match[0])}", texts):
        return True
    if re.search(rf"\bclone\b[^\n]*\s\S*{re.escape(match['name'])}[\"']?[ \t]*(?:$|&|;)", texts, re.MULTILINE):
        return True  # the folder is called as somebody likes
    words = [word.text for command in document.commands for word in command.words if match["name"] in word.text]
    return is_backend and all(any(f"{match['name']}/{one}/" in word for word in words) for one in OF_TENSORRT_LLM)
