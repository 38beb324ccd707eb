"""Profilers under MPI: the ranks write one file, or one profiler sees the launcher alone."""

from collections.abc import Iterator, Sequence
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.shell.words import Word, file_name

LAUNCHERS = ("mpirun", "mpiexec", "srun")
PROFILER = "nsys"
OUTPUTS = ("-o", "--output")
OF_A_RANK = ("%", "$")  # of nsys: %q{OMPI_COMM_WORLD_RANK}, %p; of a shell that each rank starts


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    done: set[int] = set()
    for one in document.invocations:
        if not one.ranks or one.ranks < 2 or id(one.command) in done:
            continue
        done.add(id(one.command))
        word = _one_file(one.launcher)
        if word is not None:
            known: dict[str, Any] = {"ranks": one.ranks, "name": word.text}
            yield from drafts(platform.release.name, "profile-of-all-ranks", word, file=one.command.file, **known)


def _one_file(launcher: Sequence[Word]) -> Word | None:
    """The file that nsys writes on every rank, where its name says nothing of the rank."""
    names = [file_name(word.text) for word in launcher]
    starts = [at for at, name in enumerate(names) if name in LAUNCHERS]
    profilers = [at for at, name in enumerate(names) if name == PROFILER]
    if not starts or not profilers or profilers[0] < starts[0]:
        return None
    rest = launcher[profilers[0] :]
    for at, word in enumerate(rest):
        flag, is_set, _ = word.text.partition("=")
        if flag in OUTPUTS:
            value = word.part(len(flag) + 1) if is_set else rest[at + 1] if at + 1 < len(rest) else None
            return value if value is not None and not any(mark in value.text for mark in OF_A_RANK) else None
    return None
