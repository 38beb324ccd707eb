"""Run a command so that nothing of it outlives us: `python guard.py --parent-fd N -- argv...`.

The parent keeps the write end of a pipe and gives the read end as file descriptor N. The guard ends the
command, and every process that came from it, when the command exits, on SIGTERM or SIGINT, and when the pipe
closes, which the kernel does even if the parent is killed with SIGKILL. A guard stands under a second guard
that sweeps up after it, so the guard itself may be killed too.

Standard library only: any interpreter on the machine can run this file as a script. Linux only.
"""

import argparse
import ctypes
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
TICK_S = 0.5
LOOK_S = 0.1
TERM_GRACE_S = 3.0
KILL_LIMIT_S = 10.0
LOOKS = 3
"""At a new region, one a tick, until it is taken for another tree's. Each look reads the whole of /proc."""
SECOND_LOOK_S = 1.0
"""Between making a region and mapping it a server needs microseconds, unless the machine is very busy."""
SHM = Path("/dev/shm")
TRITON_REGION = re.compile(r"triton_\w+_backend_shm_region_[\w-]+")
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

_libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        errno = ctypes.get_errno()
        raise OSError(errno, f"prctl({option}, {value}): {os.strerror(errno)}")


def guard_argv(parent_fd: int, argv: Sequence[str], *, grace_s: float, outer: bool = True) -> list[str]:
    """The command line that runs `argv` under a guard whose parent's pipe is `parent_fd`."""
    role = ["--outer"] if outer else []
    interpreter = [sys.executable, "-I", "-S", __file__]
    return [*interpreter, *role, "--parent-fd", str(parent_fd), "--grace", str(grace_s), "--", *argv]


def descendants(root: int) -> set[int]:
    """All living processes below `root`; zombies, which only wait to be reaped, are left out."""
    children: dict[int, list[int]] = {}
    for pid, parent in _parents():
        children.setdefault(parent, []).append(pid)
    found: set[int] = set()
    todo = [root]
    while todo:
        for pid in children.get(todo.pop(), []):
            found.add(pid)
            todo.append(pid)
    return found


def _parents() -> Iterator[tuple[int, int]]:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text(errors="replace")
        except OSError:  # it ended while we were looking
            continue
        # The command name, in brackets, may itself hold spaces and brackets.
        state, parent = stat.rpartition(")")[2].split()[:2]
        if state != "Z":
            yield int(folder.name), int(parent)


def mapped_regions(pids: Sequence[int] | set[int]) -> set[str]:
    """Names in /dev/shm that one of these processes has mapped."""
    names: set[str] = set()
    for pid in pids:
        try:
            maps = Path(f"/proc/{pid}/maps").read_text(errors="replace")
        except OSError:
            continue
        names.update(re.findall(r" /dev/shm/([^/\n]+)$", maps, re.MULTILINE))
    return names


def _unmapped(names: set[str]) -> set[str]:
    """Those of these names in /dev/shm that no process has mapped."""
    return names - mapped_regions({pid for pid, _ in _parents()}) if names else set()


class SharedMemory:
    """Which regions of /dev/shm belong to the guarded tree, and their removal once nobody maps them."""

    def __init__(self) -> None:
        self._before = self._names()
        self._ours: set[str] = set()
        self._looks: Counter[str] = Counter()

    def watch(self, root: int) -> None:
        new = {name for name in self._names() - self._before - self._ours if self._looks[name] < LOOKS}
        if new:
            self._ours |= new & mapped_regions(descendants(root))
            self._looks.update(new)

    def sweep(self) -> None:
        """Remove the tree's regions. Regions that somebody still maps, or that are not ours, stay."""
        left = self._names() - self._before
        # A Triton stub's region may have been made after the last look; by its name it is told from others' files.
        named = {name for name in left - self._ours if TRITON_REGION.fullmatch(name)}
        orphans = _unmapped((left & self._ours) | named)
        if orphans & named:
            # Another server of this machine may just have made it, and maps it next.
            time.sleep(SECOND_LOOK_S)
            orphans = _unmapped(orphans)
        for name in orphans:
            region = SHM / name
            with suppress(FileNotFoundError):
                if region.stat().st_uid == os.getuid():
                    region.unlink()

    @staticmethod
    def _names() -> set[str]:
        try:
            return {entry.name for entry in os.scandir(SHM) if entry.is_file(follow_symlinks=False)}
        except FileNotFoundError:
            return set()


class Guard:
    """One guarded command. `outer` guards guard the inner guard, and let it do its work first."""

    def __init__(self, parent_fd: int, argv: Sequence[str], *, grace_s: float, outer: bool) -> None:
        self.parent_fd = parent_fd
        self.parent_pid = os.getppid()
        self.argv = list(argv)
        self.grace_s = grace_s
        self.outer = outer
        self.shared_memory = SharedMemory()
        self.returncode: int | None = None

    def run(self) -> int:
        """Run the command to its end or ours. Returns its exit status as a shell would (128 + signal)."""
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        self._wakeup = self._catch_signals()
        try:
            self.child = self._start()
        except OSError as error:
            print(f"{self.argv[0]}: {error.strerror}", file=sys.stderr)
            return 127
        while self.returncode is None and not self._parent_gone():
            self._reap()
            self.shared_memory.watch(os.getpid())
        self._stop()
        status = self.returncode if self.returncode is not None else -signal.SIGKILL
        return status if status >= 0 else 128 - status

    def _catch_signals(self) -> int:
        read_end, write_end = os.pipe()
        os.set_blocking(write_end, False)
        os.set_blocking(read_end, False)
        signal.set_wakeup_fd(write_end)
        for number in (*STOP_SIGNALS, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)
        return read_end

    def _start(self) -> "subprocess.Popen[bytes]":
        me = os.getpid()

        def die_with_guard() -> None:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != me:
                os._exit(128 + signal.SIGKILL)

        if not self.outer:
            return subprocess.Popen(self.argv, start_new_session=True, preexec_fn=die_with_guard)
        # The inner guard must outlive us to clean up, so it does not die with us: our end of its pipe closes.
        read_end, self._keep_open = os.pipe()
        argv = guard_argv(read_end, self.argv, grace_s=self.grace_s, outer=False)
        child = subprocess.Popen(argv, start_new_session=True, pass_fds=(read_end,))
        os.close(read_end)
        return child

    def _parent_gone(self) -> bool:
        """Wait up to a tick; true if we were told to stop or the parent is no more."""
        readable, _, _ = select.select([self.parent_fd, self._wakeup], [], [], TICK_S)
        if self._wakeup in readable and any(number in STOP_SIGNALS for number in os.read(self._wakeup, 4096)):
            return True
        # The second look is for a pipe end that a forked sibling of ours keeps open.
        return self.parent_fd in readable or os.getppid() != self.parent_pid

    def _reap(self) -> None:
        """Collect every dead child, adopted orphans too."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.child.pid:
                self.returncode = self.child.returncode = os.waitstatus_to_exitcode(status)

    def _stop(self) -> None:
        """Ask the command, then whatever it left, then insist; last its shared memory."""
        me = os.getpid()
        self.shared_memory.watch(me)
        if self.returncode is None:
            self._send(signal.SIGINT, {self.child.pid})
            # The inner guard needs its own three steps before the outer one may insist.
            patience_s = 2 * self.grace_s + TERM_GRACE_S + 2 if self.outer else self.grace_s
            self._wait(lambda: self.returncode is not None, patience_s)
        if left := descendants(me):
            self._send(signal.SIGTERM, left)
            # Guards further down the tree hold servers of their own that need time to end.
            self._wait(lambda: not descendants(me), max(TERM_GRACE_S, self.grace_s))
        deadline = time.monotonic() + KILL_LIMIT_S
        while (left := descendants(me)) and time.monotonic() < deadline:
            self._send(signal.SIGKILL, left)
            self._wait(lambda: not descendants(me), 0.2)
        self._reap()
        self.shared_memory.sweep()

    def _wait(self, done: Callable[[], bool], limit_s: float) -> None:
        """Look again whenever a child of ours ends, and now and then for the children of others."""
        deadline = time.monotonic() + limit_s
        while (left_s := deadline - time.monotonic()) > 0:
            self._reap()
            if done():
                return
            if select.select([self._wakeup], [], [], min(left_s, LOOK_S))[0]:
                os.read(self._wakeup, 4096)

    @staticmethod
    def _send(number: signal.Signals, pids: set[int]) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--parent-fd", type=int, required=True)
    parser.add_argument("--grace", type=float, default=10.0, help="seconds that the command gets after SIGINT")
    parser.add_argument("--outer", action="store_true", help="be the guard of a guard")
    parser.add_argument("argv", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    argv = options.argv[1:] if options.argv[:1] == ["--"] else options.argv
    return Guard(options.parent_fd, argv, grace_s=options.grace, outer=options.outer).run()


if __name__ == "__main__":
    sys.exit(main())
