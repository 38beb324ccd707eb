"""A chapter that serves is killed in the middle, wherever it hurts: nothing of it is left, and the next run goes on."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from checkout import PYTHON_PATH
from notebook_factory import notebook, write_course
from serving import build_tiny_engine, write_tiny_repository
from serving_base.guard import mapped_regions

LIMIT_S = 180.0

SERVE = """\
import json
from pathlib import Path
from model_server.triton.server import TritonServer
server = TritonServer(Path({repository!r}))
server.start()
urls = [server.http_url, server.grpc_url, server.metrics_url.removesuffix("/metrics")]
Path({ready!r}).write_text(json.dumps([int(url.rpartition(":")[2]) for url in urls]))"""
WAIT = "import time; time.sleep({seconds})"

pytestmark = [pytest.mark.slow, pytest.mark.server]


class ServingRun:
    """`playbook run` of one chapter whose server is ready."""

    def __init__(self, folder: Path, repository: Path) -> None:
        ready = folder / "ready.json"
        serve = SERVE.format(repository=str(repository), ready=str(ready))
        write_course(folder, c01_serve=notebook(serve, WAIT.format(seconds=600)))
        self.folder = folder
        self.process = self.start()
        wait_until(lambda: ready.exists() and ready.read_text())
        self.ports: list[int] = json.loads(ready.read_text())
        self.family = psutil.Process(self.process.pid).children(recursive=True)
        regions = mapped_regions({process.pid for process in self.family})
        self.regions = [Path("/dev/shm", name) for name in regions]

    def start(self) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "playbook", "run", "--out", str(self.folder / "out")],
            cwd=self.folder,
            env=os.environ | {"PYTHONPATH": PYTHON_PATH},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def find(self, victim: str) -> psutil.Process:
        if victim == "runner":
            return psutil.Process(self.process.pid)
        if victim == "kernel":
            return next(process for process in self.family if "ipykernel_launcher" in process.cmdline())
        return next(process for process in self.family if process.name() == victim)

    def traces(self) -> list[str]:
        left = [f"process {process.pid}" for process in self.family if is_alive(process)]
        left += [f"shared memory {region}" for region in self.regions if region.exists()]
        return left + [f"port {port}" for port in self.ports if is_bound(port)]


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def is_bound(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("serving")
    return write_tiny_repository(folder / "repository", build_tiny_engine(folder / "engine"))


@pytest.fixture
def serving_run(tmp_path: Path, repository: Path) -> Iterator[ServingRun]:
    living = ServingRun(tmp_path, repository)
    yield living
    living.process.kill()
    living.process.communicate()


@pytest.mark.parametrize("victim", ["runner", "kernel", "tritonserver"])
def test_a_chapter_killed_in_the_middle_leaves_nothing(victim: str, serving_run: ServingRun) -> None:
    assert len(serving_run.regions) >= 4
    assert len([trace for trace in serving_run.traces() if trace.startswith("port")]) == 3
    target = serving_run.find(victim)
    if victim == "tritonserver":
        # The chapter itself still waits in its cell; only its server and all that came from it must go.
        serving_run.family = [process for process in serving_run.family if "triton" in " ".join(process.cmdline())]
        assert len(serving_run.family) >= 7  # two guards, the server, four stubs
    target.kill()
    wait_until(lambda: not serving_run.traces())
    if victim == "kernel":
        output, _ = serving_run.process.communicate(timeout=LIMIT_S)
        assert serving_run.process.returncode == 1
        assert "dead kernel" in output


def test_the_next_run_goes_on(serving_run: ServingRun) -> None:
    serving_run.find("runner").kill()
    wait_until(lambda: not serving_run.traces())
    course = serving_run.folder / "notebooks" / "01-serve.ipynb"
    course.write_text(course.read_text().replace(WAIT.format(seconds=600), WAIT.format(seconds=0)))
    again = serving_run.start()
    output, _ = again.communicate(timeout=LIMIT_S)
    assert again.returncode == 0, output
