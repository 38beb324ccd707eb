"""Whatever of parent, guard and child is killed, nothing of the guarded tree is left."""

import mmap
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest

from checkout import PYTHON_PATH
from serving_base import guard
from serving_base.processes import start_guarded

LIMIT_S = 120.0

# A stubborn family: a server that ignores SIGINT, a child in a session of its own, a daemon, a mapped region.
FAMILY = """
import mmap, os, signal, socket, subprocess, sys, time
port, region, marker = int(sys.argv[1]), sys.argv[2], sys.argv[3]
signal.signal(signal.SIGINT, signal.SIG_IGN)
sleeper = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", sleeper, marker], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)", marker])
    os._exit(0)
os.wait()
with open("/dev/shm/" + region, "w+b") as file:
    file.truncate(4096)
    mapped = mmap.mmap(file.fileno(), 4096)
listener = socket.create_server(("127.0.0.1", port))
print("up", flush=True)
time.sleep(600)
"""

# A parent that starts the family under this file's guards and then waits to be killed.
PARENT = """
import pathlib, sys, time
from serving_base import guard
from serving_base.processes import start_guarded
guard.__file__ = sys.argv.pop(1)
family = start_guarded(sys.argv[2:], log_path=pathlib.Path(sys.argv[1]), grace_s=0.5)
print(family.pid, flush=True)
time.sleep(600)
"""


class Family:
    """A running family under a guard under a parent, found again by a marker on its command lines."""

    def __init__(self, folder: Path, guard_file: Path = Path(guard.__file__)) -> None:
        self.marker = f"family-{uuid.uuid4().hex}"
        self.region = Path("/dev/shm", f"playbook-test-{self.marker}")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        log = folder / "family.log"
        argv = [sys.executable, "-c", FAMILY, str(self.port), self.region.name, self.marker]
        self.parent = subprocess.Popen(
            [sys.executable, "-c", PARENT, str(guard_file), str(log), *argv],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": PYTHON_PATH},
        )
        assert self.parent.stdout is not None
        self.guard_pid = int(self.parent.stdout.readline())
        wait_until(lambda: log.exists() and "up" in log.read_text())
        time.sleep(2 * guard.TICK_S)

    def members(self) -> list[psutil.Process]:
        """Guards and family, the parent left out."""
        found = [process for process in psutil.process_iter() if self.marker in " ".join(command_line(process))]
        return [process for process in found if process.pid != self.parent.pid]

    @property
    def inner_guard(self) -> psutil.Process:
        (inner,) = psutil.Process(self.guard_pid).children()
        return inner

    @property
    def head(self) -> psutil.Process:
        (head,) = [child for child in self.inner_guard.children() if FAMILY in command_line(child)]
        return head

    def traces(self) -> list[str]:
        left = [f"process {process.pid}" for process in self.members()]
        if self.region.exists():
            left.append(f"shared memory {self.region}")
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", self.port))
            except OSError:
                left.append(f"port {self.port}")
        return left


def command_line(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


@contextmanager
def living(family: Family) -> Iterator[Family]:
    try:
        yield family
    finally:
        family.parent.kill()
        for process in family.members():
            process.kill()
        family.parent.communicate()
        family.region.unlink(missing_ok=True)


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Family]:
    with living(Family(tmp_path)) as family:
        yield family


@pytest.fixture
def family_of_sleepers(tmp_path: Path) -> Iterator[Family]:
    """Its guards look after nothing by themselves: they wake when a pipe closes or a signal comes, and not before."""
    sleeper = tmp_path / "guard.py"
    text = Path(guard.__file__).read_text(encoding="utf-8")
    tick = f"\nTICK_S = {guard.TICK_S}\n"
    assert tick in text
    sleeper.write_text(text.replace(tick, f"\nTICK_S = {10 * LIMIT_S}\n"), encoding="utf-8")
    with living(Family(tmp_path, sleeper)) as family:
        yield family


def test_the_family_is_there_before_anything_is_killed(family: Family) -> None:
    assert len(family.members()) == 5  # two guards, the head, a child, a daemon
    assert family.region.exists()
    assert f"port {family.port}" in family.traces()


@pytest.mark.parametrize("victim", ["parent", "outer guard", "inner guard", "head"])
def test_nothing_survives_the_sudden_death_of(victim: str, family: Family) -> None:
    pid = {
        "parent": family.parent.pid,
        "outer guard": family.guard_pid,
        "inner guard": family.inner_guard.pid,
        "head": family.head.pid,
    }[victim]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not family.traces())


def test_the_inner_guard_survives_what_ends_the_group_of_the_outer_one(family: Family) -> None:
    os.killpg(family.guard_pid, signal.SIGKILL)
    wait_until(lambda: not family.traces())


def test_no_signal_to_one_of_them_reaches_another(family: Family) -> None:
    """Each is the head of a session: not even the terminal's Ctrl-C, which is for the parent, goes further."""
    apart = (family.guard_pid, family.inner_guard.pid, family.head.pid)
    assert [os.getsid(pid) for pid in apart] == list(apart)


@pytest.mark.parametrize("victim", ["parent", "outer guard"])
def test_a_pipe_that_closes_wakes_a_guard_that_would_not_look(victim: str, family_of_sleepers: Family) -> None:
    """So each end of a pipe is held by the one whose death it tells of, and by nobody else."""
    family = family_of_sleepers
    os.kill({"parent": family.parent.pid, "outer guard": family.guard_pid}[victim], signal.SIGKILL)
    wait_until(lambda: not family.traces())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_guard_told_to_stop_ends_everything(number: signal.Signals, family: Family) -> None:
    os.kill(family.guard_pid, number)
    wait_until(lambda: not family.traces())


def test_the_commands_own_exit_status_comes_through(tmp_path: Path) -> None:
    assert start_guarded([sys.executable, "-c", "raise SystemExit(7)"], log_path=tmp_path / "log").wait(LIMIT_S) == 7


def test_a_command_killed_by_a_signal_reads_as_in_a_shell(tmp_path: Path) -> None:
    suicide = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    assert start_guarded([sys.executable, "-c", suicide], log_path=tmp_path / "log").wait(LIMIT_S) == 137


def test_a_command_gets_its_grace_to_end_by_itself(tmp_path: Path) -> None:
    polite = "import time\ntry:\n  print('up', flush=True); time.sleep(600)\nexcept KeyboardInterrupt:\n  print('bye')"
    process = start_guarded([sys.executable, "-c", polite], log_path=tmp_path / "log")
    wait_until(lambda: "up" in process.tail())
    assert process.stop() == 0
    assert process.tail().split() == ["up", "bye"]


def test_regions_of_others_stay(tmp_path: Path) -> None:
    """A file that appears in /dev/shm while a guard runs is not the guard's, unless its tree mapped it."""
    stranger = Path("/dev/shm", f"playbook-test-{uuid.uuid4().hex}")
    process = start_guarded([sys.executable, "-c", "import time; time.sleep(600)"], log_path=tmp_path / "log")
    try:
        time.sleep(guard.TICK_S)
        stranger.write_bytes(b"precious")
        time.sleep(2 * guard.TICK_S)
        process.stop()
        assert stranger.read_bytes() == b"precious"
    finally:
        stranger.unlink(missing_ok=True)


def test_a_triton_region_left_by_a_killed_stub_is_removed_and_a_living_one_is_not(tmp_path: Path) -> None:
    dead = Path("/dev/shm", f"triton_tensorrtllm_backend_shm_region_{uuid.uuid4()}")
    alive = Path("/dev/shm", f"triton_python_backend_shm_region_{uuid.uuid4()}")
    process = start_guarded([sys.executable, "-c", "import time; time.sleep(600)"], log_path=tmp_path / "log")
    try:
        time.sleep(guard.TICK_S)
        dead.write_bytes(b"x" * 4096)
        alive.write_bytes(b"x" * 4096)
        with alive.open("r+b") as file, mmap.mmap(file.fileno(), 4096):
            process.stop()
            assert not dead.exists()
            assert alive.exists()
    finally:
        dead.unlink(missing_ok=True)
        alive.unlink(missing_ok=True)


def test_a_region_that_another_server_maps_a_moment_after_it_made_it_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two servers of a machine: one ends just when the other has made its region and not mapped it yet."""
    region = Path("/dev/shm", f"triton_python_backend_shm_region_{uuid.uuid4()}")
    memory = guard.SharedMemory()
    with ExitStack() as other_server:

        def meanwhile(seconds: float) -> None:
            file = other_server.enter_context(region.open("r+b"))
            other_server.enter_context(mmap.mmap(file.fileno(), 4096))

        monkeypatch.setattr(time, "sleep", meanwhile)
        other_server.callback(region.unlink)
        region.write_bytes(b"x" * 4096)
        memory.sweep()
        assert region.exists()


def test_descendants_are_found_below_names_with_brackets(tmp_path: Path) -> None:
    odd = tmp_path / "a) R 1 (b"
    odd.symlink_to("/bin/sleep")
    process = subprocess.Popen([odd, "600"])
    try:
        assert process.pid in guard.descendants(os.getpid())
    finally:
        process.kill()
        process.wait()
    assert process.pid not in guard.descendants(os.getpid())
