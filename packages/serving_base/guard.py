"""Run a command so that nothing of it outlives us: `python guard.py N GRACE argv...`.

The parent keeps the write end of a pipe and gives the read end as file descriptor N. The guard ends the
command, and every process that came from it, when the command exits, on SIGTERM or SIGINT, and when the pipe
closes, which the kernel does even if the parent is killed with SIGKILL. The command gets GRACE seconds to end after
SIGINT. A guard stands under a second guard that sweeps up after it, so the guard itself may be killed too.

Standard library only: any interpreter on the machine can run this file as a script. Linux only. Every command of the
course starts one, so it imports no more than it needs, and the second guard forks the first.
"""
# Importing pathlib would be a tenth of a guard's work.
# ruff: noqa: PTH108, PTH116, PTH123, PTH208

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
SHM = "/dev/shm"
TRITON_REGION = re.compile(r"triton_\w+_backend_shm_region_[\w-]+")
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
CAUGHT = (*STOP_SIGNALS, signal.SIGCHLD)

_libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        errno = ctypes.get_errno()
        raise OSError(errno, f"prctl({option}, {value}): {os.strerror(errno)}")


def guard_argv(parent_fd: int, argv: Sequence[str], *, grace_s: float) -> list[str]:
    """The command line that runs `argv` under a guard whose parent's pipe is `parent_fd`."""
    return [sys.executable, "-I", "-S", __file__, str(parent_fd), str(grace_s), *argv]


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
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", errors="replace") as file:
                stat = file.read()
        except OSError:  # it ended while we were looking
            continue
        # The command name, in brackets, may itself hold spaces and brackets.
        state, parent = stat.rpartition(")")[2].split()[:2]
        if state != "Z":
            yield int(name), int(parent)


def mapped_regions(pids: Sequence[int] | set[int]) -> set[str]:
    """Names in /dev/shm that one of these processes has mapped."""
    names: set[str] = set()
    for pid in pids:
        try:
            with open(f"/proc/{pid}/maps", errors="replace") as file:
                maps = file.read()
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
            region = f"{SHM}/{name}"
            with suppress(FileNotFoundError):
                if os.stat(region).st_uid == os.getuid():
                    os.unlink(region)

    @staticmethod
    def _names() -> set[str]:
        try:
            return {entry.name for entry in os.scandir(SHM) if entry.is_file(follow_symlinks=False)}
        except FileNotFoundError:
            return set()


class Guard:
    """One guarded command. An `outer` guard guards the inner one, which it forks and lets do its work first."""

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
        signal.pthread_sigmask(signal.SIG_UNBLOCK, CAUGHT)
        try:
            self.child = self._fork_inner() if self.outer else self._start()
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
        if (others := signal.set_wakeup_fd(write_end)) >= 0:
            os.close(others)  # of the guard that forked us
        for number in CAUGHT:
            signal.signal(number, lambda *_: None)
        return read_end

    def _start(self) -> int:
        """Start the command; its process id."""
        me = os.getpid()

        def die_with_guard() -> None:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != me:
                os._exit(128 + signal.SIGKILL)

        self._process = subprocess.Popen(self.argv, start_new_session=True, preexec_fn=die_with_guard)
        return self._process.pid

    def _fork_inner(self) -> int:
        """Fork the inner guard; its process id.

        It must outlive us to clean up, so it does not die with us: our end of its pipe closes.
        """
        read_end, self._keep_open = os.pipe()
        signal.pthread_sigmask(signal.SIG_BLOCK, CAUGHT)  # what is sent before it can take it waits
        pid = os.fork()
        if pid == 0:
            status = 128 + signal.SIGKILL
            try:
                os.setsid()
                for number in (self._keep_open, self.parent_fd, self._wakeup):
                    os.close(number)
                status = Guard(read_end, self.argv, grace_s=self.grace_s, outer=False).run()
            except BaseException:
                sys.excepthook(*sys.exc_info())
            finally:
                sys.stderr.flush()
                os._exit(status)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, CAUGHT)
        os.close(read_end)
        return pid

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
            if pid == self.child:
                self.returncode = os.waitstatus_to_exitcode(status)

    def _stop(self) -> None:
        """Ask the command, then whatever it left, then insist; last its shared memory."""
        me = os.getpid()
        self.shared_memory.watch(me)
        if self.returncode is None:
            self._send(signal.SIGINT, {self.child})
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
    parent_fd, grace_s, *argv = sys.argv[1:]
    return Guard(int(parent_fd), argv, grace_s=float(grace_s), outer=True).run()


if __name__ == "__main__":
    sys.exit(main())
