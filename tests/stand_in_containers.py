"""Stand-ins for what docker does to a container that runs: kill, pause, unpause, rm. For tests only.

The container of `stand_ins.docker` is a process and all its descendants. As with the real one, a kill ends all of
them at once, a pause freezes all of them while the kernel accepts connections for them, and a name that no running
container has is refused.
"""

import argparse
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

SIGNALS = {"kill": signal.SIGKILL, "pause": signal.SIGSTOP, "unpause": signal.SIGCONT}


@contextmanager
def running(folder: Path, name: str | None, pid: int) -> Iterator[None]:
    """While the container ``name`` runs, its first process can be found; ``folder``: the machine's."""
    note = folder / "containers" / str(name)
    note.parent.mkdir(exist_ok=True)
    note.write_text(str(pid), encoding="utf-8")
    try:
        yield
    finally:
        note.unlink(missing_ok=True)


def act(folder: Path, words: list[str]) -> int:
    """`docker kill|pause|unpause NAME` and `docker rm --force NAME`; their exit status."""
    parser = argparse.ArgumentParser(prog="docker", allow_abbrev=False)
    parser.add_argument("verb", choices=[*SIGNALS, "rm"])
    parser.add_argument("--force", action="store_true")
    parser.add_argument("name")
    given = parser.parse_args(words)
    note = folder / "containers" / given.name
    if not note.exists():
        print(f"Error response from daemon: No such container: {given.name}", file=sys.stderr)
        return 0 if given.force else 1
    print(given.name)
    send(int(note.read_text(encoding="utf-8")), SIGNALS.get(given.verb, signal.SIGKILL))
    return 0


def send(pid: int, number: int) -> None:
    """Send the signal to all of the container. A namespace's end and a freezer miss no process: nor may this."""
    if number == signal.SIGKILL:
        for member in family_of(pid):  # so that nobody starts or cleans up anything meanwhile
            send_one(member, signal.SIGSTOP)
    family = family_of(pid)
    regions = {region for member in family for region in regions_of(member)}
    for member in family:
        send_one(member, number)
    if number == signal.SIGKILL:
        psutil.wait_procs(family, timeout=10)
        for region in regions:  # a container's /dev/shm ends with it
            Path("/dev/shm", region).unlink(missing_ok=True)


def send_one(process: psutil.Process, number: int) -> None:
    with suppress(psutil.NoSuchProcess):
        process.send_signal(number)


def family_of(pid: int) -> list[psutil.Process]:
    """The container's first process, its session, whose parents may have ended, and all their descendants."""
    found: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            if os.getsid(process.pid) == pid:
                found |= {one.pid: one for one in (process, *process.children(recursive=True))}
    return list(found.values())


def regions_of(process: psutil.Process) -> set[str]:
    """Triton's /dev/shm regions that the process has mapped."""
    try:
        maps = Path(f"/proc/{process.pid}/maps").read_text(encoding="utf-8").splitlines()
    except OSError:
        return set()
    return {line.rsplit("/", 1)[1].split()[0] for line in maps if "/dev/shm/triton_" in line}
