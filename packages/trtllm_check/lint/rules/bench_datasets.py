"""prepare_dataset.py, which writes the requests of trtllm-bench: its group of options, its commands and its output."""

import posixpath
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.shell.words import ShellCommand, Word

RULE, SCRIPT = "bench-dataset", "prepare_dataset.py"
COMMANDS = ("dataset", "token-norm-dist", "token-unif-dist")
GROUP = ("--tokenizer", "--output", "--stdout", "--random-seed", "--task-id", "--rand-task-id", "--lora-dir")
REQUIRED = {
    "token-norm-dist": ("--num-requests", "--input-mean", "--input-stdev", "--output-mean", "--output-stdev"),
    "token-unif-dist": ("--num-requests", "--input-min", "--input-max", "--output-min", "--output-max"),
}


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    for command in document.commands:
        at = next((at for at, word in enumerate(command.words[:4]) if posixpath.basename(word.text) == SCRIPT), None)
        if at is not None:
            yield from _script(command, command.words[at], command.words[at + 1 :], platform.release.name)


def _script(command: ShellCommand, script: Word, words: tuple[Word, ...], release: str) -> Iterator[Draft]:
    names = [word.text.partition("=")[0] for word in words]
    start = next((at for at, name in enumerate(names) if name in COMMANDS), None)
    if start is None:
        return  # the script of 0.5 to 0.7 has no commands
    kind, behind = names[start], names[start + 1 :]
    for name, word in zip(behind, words[start + 1 :], strict=True):
        if name in GROUP:
            about: dict[str, Any] = {"flag": name, "command": kind}
            yield from drafts(release, RULE, word, form="behind", file=command.file, **about)
    missing = [name for name in REQUIRED.get(kind, ()) if name not in behind]
    is_cut = any(name.startswith(("$", "[", "...")) for name in behind)
    if missing and not is_cut:
        known: dict[str, Any] = {"command": kind, "missing": " and ".join(missing)}
        yield from drafts(release, RULE, words[start], form="missing", file=command.file, **known)
    into = next((one.target for one in command.redirects if one.operator in (">", ">>", "1>")), None)
    if into is not None and "--stdout" not in names:
        yield from drafts(release, RULE, script, form="empty", file=command.file, path=into.text)
