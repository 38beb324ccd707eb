"""What happens to a server is done to its container where it has one, else to the processes of all its ranks."""

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from gpu_serving.execute import container_name
from gpu_serving.server import TritonRanks, act_on
from playbook.profile import load_profile
from serving_base.errors import CommandFailed, ServerError
from serving_base.servers import SERVER_PROCESS, LoopbackServer, server_processes
from serving_clients import faults
from trtllm_check.recipes import Command
from trtllm_check.recipes.command import Paths
from trtllm_check.releases import load_release

DOCKER = """#!/bin/sh
echo "$@" >> "{log}"
case "$*" in *gone*) echo "Error response from daemon: No such container: gone" >&2; exit 1;; esac
"""


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A docker that notes its words and knows every container but ``gone``; the file of its words."""
    log = tmp_path / "words"
    program = tmp_path / "bin" / "docker"
    program.parent.mkdir()
    program.write_text(DOCKER.format(log=log), encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return log


class Waiting:
    """A process of which is asked only that it ends."""

    pid = -1

    def __init__(self) -> None:
        self.waited: list[float | None] = []

    def wait(self, timeout_s: float | None = None) -> int:
        self.waited.append(timeout_s)
        return 137


def ranks(tmp_path: Path, runner: str = "docker") -> TritonRanks:
    profile = load_profile("p5").model_copy(update={"runner": runner})
    return TritonRanks(profile, load_release("0.12.0"), Paths.under(str(tmp_path), "p5"), tmp_path / "launch.log")


def running(tmp_path: Path) -> tuple[Any, Waiting]:
    """Ranks whose container is called ``one``."""
    server: Any = ranks(tmp_path)
    process = Waiting()
    server._process = process
    server._executed = Command("launch", "docker", ("docker", "run", "--name", "one", "image"))
    return server, process


def test_a_container_is_paused_and_goes_on(docker: Path, tmp_path: Path) -> None:
    server, _ = running(tmp_path)
    with faults.frozen(server):
        assert docker.read_text(encoding="utf-8").splitlines() == ["pause one"]
    assert docker.read_text(encoding="utf-8").splitlines() == ["pause one", "unpause one"]


def test_a_container_goes_on_when_what_was_tried_meanwhile_fails(docker: Path, tmp_path: Path) -> None:
    server, _ = running(tmp_path)
    with pytest.raises(ValueError, match="meanwhile"), faults.frozen(server):
        raise ValueError("meanwhile")
    assert docker.read_text(encoding="utf-8").splitlines()[-1] == "unpause one"


def test_a_killed_container_is_waited_for(docker: Path, tmp_path: Path) -> None:
    server, process = running(tmp_path)
    faults.kill(server)
    assert docker.read_text(encoding="utf-8").splitlines() == ["kill one"]
    assert len(process.waited) == 1


def test_what_docker_says_is_in_the_error(docker: Path) -> None:
    with pytest.raises(CommandFailed) as caught:
        act_on("pause", "gone")
    assert "No such container: gone" in caught.value.why
    assert caught.value.returncode == 1


def test_a_server_that_does_not_run_cannot_be_broken(tmp_path: Path) -> None:
    for act in (faults.kill, lambda server: faults.frozen(server).__enter__()):
        with pytest.raises(ServerError, match="does not run"):
            act(ranks(tmp_path))


def test_a_command_on_the_host_has_no_container() -> None:
    assert container_name(Command("launch", "python3", ("python3", "launch_triton_server.py"))) == ""


def test_inside_the_container_its_server_is_killed_and_frozen_without_docker(docker: Path, two_ranks: "Ranks") -> None:
    server: Any = ranks(docker.parent, runner="inside")
    server._process = two_ranks.shell
    server._executed = Command("launch", "mpirun", ("mpirun", "python3", "launch_triton_server.py"))
    processes = server_processes(two_ranks.pid)
    with faults.frozen(server):
        assert until(lambda: all(process.status() == psutil.STATUS_STOPPED for process in processes))
    faults.kill(server)
    assert count(two_ranks) == 0
    assert not docker.exists()


class Ranks(LoopbackServer):
    """Two processes called as the server's, below a shell, as mpirun's are inside a container."""

    def __init__(self, folder: Path) -> None:
        program = folder / SERVER_PROCESS
        program.symlink_to("/bin/sleep")
        self.shell = subprocess.Popen(["/bin/sh", "-c", f"{program} 60 & {program} 60 & wait"], start_new_session=True)

    @property
    def pid(self) -> int:
        return self.shell.pid


@pytest.fixture
def two_ranks(tmp_path: Path) -> Iterator[Ranks]:
    server = Ranks(tmp_path)
    assert until(lambda: count(server) == 2)
    yield server
    with suppress(psutil.NoSuchProcess):
        for process in psutil.Process(server.pid).children(recursive=True):
            process.kill()
    server.shell.wait(30)


def count(server: LoopbackServer) -> int:
    try:
        return len(server_processes(server.pid))
    except ServerError:
        return 0


def until(holds: Callable[[], bool], limit_s: float = 30.0) -> bool:
    """A signal is delivered when the kernel comes to it."""
    deadline = time.monotonic() + limit_s
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.02)
    return holds()


def test_without_a_container_every_rank_is_paused(two_ranks: Ranks) -> None:
    processes = server_processes(two_ranks.pid)
    with faults.frozen(two_ranks):
        assert until(lambda: all(process.status() == psutil.STATUS_STOPPED for process in processes))
    assert until(lambda: all(process.status() != psutil.STATUS_STOPPED for process in processes))


def test_without_a_container_every_rank_is_killed(two_ranks: Ranks) -> None:
    processes = server_processes(two_ranks.pid)
    faults.kill(two_ranks)
    assert two_ranks.shell.wait(30) in (0, 128 + signal.SIGKILL)
    assert not any(process.is_running() for process in processes)
    with pytest.raises((ServerError, psutil.NoSuchProcess)):
        server_processes(two_ranks.pid)
