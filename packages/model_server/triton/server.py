"""Starts and ends the real Triton Inference Server of the nvidia-pytriton wheel, on the loopback only.

Finds the server in its wheel first, and lays out what it needs to run our models.
"""

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from serving_base.checks import Check
from serving_base.errors import EnvironmentProblem, ServerError
from serving_base.facts import TRITON_PORTS
from serving_base.processes import GuardedProcess, start_guarded
from serving_base.servers import HOST, LoopbackServer, StopReport, choose_ports

if TYPE_CHECKING:
    import psutil


ENVIRONMENT = "PLAYBOOK_TRITON_ENV"
DEFAULT_ENVIRONMENT = Path(".envs") / "triton"
BACKEND_MODEL = Path(__file__).parent / "backend" / "model.py"
INTERPRETER_FACTS = """
import importlib.util, json, sysconfig
print(json.dumps({
    "libdir": sysconfig.get_config_var("LIBDIR"),
    "library": sysconfig.get_config_var("INSTSONAME"),
    "shared": bool(sysconfig.get_config_var("Py_ENABLE_SHARED")),
    "version": sysconfig.get_python_version(),
    "wheel": importlib.util.find_spec("pytriton").submodule_search_locations[0],
}))
"""


@dataclass(frozen=True)
class TritonInstallation:
    """Where the server is: its Python environment, the wheel's tree, and that Python's shared library."""

    environment: Path
    wheel: Path
    python_version: str
    library_dir: Path

    @property
    def tree(self) -> Path:
        return self.wheel / "tritonserver"

    @property
    def binary(self) -> Path:
        return self.tree / "bin" / "tritonserver"

    @property
    def stub(self) -> Path:
        """The python backend's process, built for this Python version."""
        return self.tree / "python_backend_stubs" / self.python_version / "triton_python_backend_stub"


def find_installation(environment: Path | None = None) -> TritonInstallation:
    """Look into ``environment``, else ``$PLAYBOOK_TRITON_ENV``, else ``.envs/triton`` of the project or of the folder.

    Raises :class:`EnvironmentProblem` that names what is missing and the command that installs it.
    """
    root = environment or _default_environment()
    python = root / "bin" / "python"
    if not python.exists():
        raise EnvironmentProblem(
            f"no Triton environment in {root}", fix=f"run: python3 playbook/bootstrap.py, or set {ENVIRONMENT}"
        )
    result = subprocess.run([python, "-c", INTERPRETER_FACTS], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise EnvironmentProblem(
            f"{root} has no usable nvidia-pytriton",
            why=result.stderr.strip().splitlines()[-1] if result.stderr.strip() else "its python does not run",
            fix="run: python3 playbook/bootstrap.py",
        )
    facts = json.loads(result.stdout)
    library_dir = find_libpython(facts["libdir"], facts["library"], facts["version"], shared=facts["shared"])
    found = TritonInstallation(root, Path(facts["wheel"]), facts["version"], library_dir)
    if not found.stub.is_file():
        raise EnvironmentProblem(
            f"nvidia-pytriton has no stub for Python {facts['version']}", fix="make the environment with Python 3.11"
        )
    return found


def server_check() -> Check:
    """The line of a preflight table on this server."""
    try:
        found = find_installation()
    except EnvironmentProblem as problem:
        return Check("tritonserver", problem.what, "installed", "missing", problem.fix)
    return Check("tritonserver", f"installed, Python {found.python_version} stub", "installed", "ok")


def _default_environment() -> Path:
    given = os.environ.get(ENVIRONMENT)
    if given:
        return Path(given)
    candidates = [root / DEFAULT_ENVIRONMENT for root in (Path(__file__).parents[3], Path.cwd())]
    return next((path for path in candidates if path.is_dir()), candidates[0])


def find_libpython(libdir: str, library: str, version: str, *, shared: bool) -> Path:
    """The folder of the interpreter's own libpython; one of another patch version breaks multiprocessing."""
    if shared and (Path(libdir) / library).is_file():
        return Path(libdir)
    system = Path(libdir) / f"{os.uname().machine}-linux-gnu"
    wanted = f"libpython{version}.so.1.0"
    for folder in (Path(libdir), system):
        if (folder / wanted).is_file():
            return folder
    raise EnvironmentProblem(
        f"{wanted} is missing, so Triton's python backend cannot start",
        why=f"it is not in {libdir}; the wheel brings a stub that is linked against it",
        fix=f"run: sudo apt-get install libpython{version} (a Python of pyenv: build it with --enable-shared)",
    )


def assemble_backends(folder: Path, installation: TritonInstallation) -> None:
    """Lay out a backend directory: the wheel's python backend with its stub, and ours as ``tensorrtllm``.

    Copies: Triton refuses a library that a link leads out of its backend's folder. May be done again at any time.
    """
    shared = (installation.tree / "backends" / "python").iterdir()
    for source in (*(path for path in shared if path.is_file()), installation.stub):
        _put(source, folder / "python" / source.name)
    _put(BACKEND_MODEL, folder / "tensorrtllm" / BACKEND_MODEL.name)


def _put(source: Path, target: Path) -> None:
    """Copy by rename, so that another server that runs on ``target`` keeps the old file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.copy2(source, aside)
    aside.replace(target)


def server_environment(installation: TritonInstallation) -> dict[str, str | None]:
    """Additions to the environment: the stub runs the first ``python3`` on PATH, copies find no library beside them."""
    libraries = [installation.library_dir, installation.wheel.parent / "nvidia_pytriton.libs"]
    return {
        "PATH": f"{installation.environment.absolute() / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}",
        "LD_LIBRARY_PATH": os.pathsep.join(str(path) for path in libraries),
        "PYTHONPATH": None,
        "PYTHONHOME": None,
        "VIRTUAL_ENV": None,
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


SHM = Path("/dev/shm")
REGION = re.compile(r"triton_\w+_backend_shm_region_[\w-]+")
"""A stub's shared memory, named for its backend."""
STUB_BYTES = 16 * 2**20
"""A stub's shared memory at its start; only what is used counts. From 1 MiB, the default, it grows under load, and a
stub was seen to die of a write just behind its end.
"""
START_ATTEMPTS = 3
AGAIN = ("already in use", "boost::interprocess::lock_exception")
"""In the log of a server that did not start, and may when it is tried again: somebody took the port between our look
and Triton's, or the python backend fell over its own shared memory (triton-inference-server/server issue 8882).
"""
EXIT_TIMEOUT_S = 5
"""What Triton waits for requests in flight at its end; clients that left in mid-answer never let it get to zero."""
LOG_NOISE = ("DCGM", "NVML", "CUDA", "Cuda", "pinned memory pool")
ERROR_LINE = re.compile(r"E\d{4} |error: |\w*Error: ")


class TritonServer(LoopbackServer):
    """The server on one model repository: ``with TritonServer(folder) as server: ...``.

    Ports that are taken are replaced by free ones; read them from ``http_url``, ``grpc_url`` and ``metrics_url``.
    Attributes after ``start``: ``ready_s``, ``pid``, ``log_path``.
    """

    def __init__(
        self,
        repository: Path,
        *,
        http_port: int = TRITON_PORTS[0],
        grpc_port: int = TRITON_PORTS[1],
        metrics_port: int = TRITON_PORTS[2],
        log_path: Path | None = None,
        environment: Path | None = None,
        ready_timeout_s: float = 180.0,
        options: Iterable[str] = (),
    ) -> None:
        self.repository = Path(repository)
        self.log_path = log_path or self.repository.with_name(f"{self.repository.name}-tritonserver.log")
        self.backends = self.repository.with_name(f"{self.repository.name}-backends")
        self.ready_s = 0.0
        self.stop_report: StopReport | None = None
        self._wanted_ports = (http_port, grpc_port, metrics_port)
        self._environment = environment
        self._ready_timeout_s = ready_timeout_s
        self._options = tuple(options)
        self._process: GuardedProcess | None = None
        self._stubs: dict[int, str] = {}

    @property
    def pid(self) -> int:
        """Process id of the guard above the server."""
        return self._running().pid

    @property
    def stub_pids(self) -> tuple[int, ...]:
        """The model processes of this server that live now."""
        self._watch_stubs()
        return tuple(pid for pid in self._stubs if _is_stub(pid))

    def start(self) -> None:
        """Start and wait until every model is ready. Raises :class:`ServerError` with the log's last lines."""
        if self._process is not None:
            raise ServerError("this server runs already", fix="stop() it first")
        installation = find_installation(self._environment)
        assemble_backends(self.backends, installation)
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        for attempt in range(1, START_ATTEMPTS + 1):
            try:
                self._launch(installation)
                return
            except ServerError:
                if attempt == START_ATTEMPTS or not any(reason in self._log() for reason in AGAIN):
                    raise

    def _launch(self, installation: TritonInstallation) -> None:
        # A server that is started again comes back where its clients look for it.
        self._ports = choose_ports(self._ports or self._wanted_ports)
        self.log_path.unlink(missing_ok=True)
        started = time.monotonic()
        self._process = start_guarded(
            self.command(installation),
            env=server_environment(installation),
            log_path=self.log_path,
            name="tritonserver",
            grace_s=EXIT_TIMEOUT_S + 5,
        )
        try:
            self._wait_until_ready(started + self._ready_timeout_s)
        except BaseException:
            self.stop()
            raise
        self.ready_s = time.monotonic() - started
        self._watch_stubs()

    def command(self, installation: TritonInstallation) -> list[str]:
        """The command line of the server."""
        http, grpc, metrics = self.ports
        return [
            str(installation.binary),
            f"--model-repository={self.repository.resolve()}",
            f"--backend-directory={self.backends.resolve()}",
            f"--cache-directory={installation.tree / 'caches'}",
            "--disable-auto-complete-config",
            f"--exit-timeout-secs={EXIT_TIMEOUT_S}",
            f"--http-address={HOST}",
            f"--grpc-address={HOST}",
            f"--metrics-address={HOST}",
            f"--http-port={http}",
            f"--grpc-port={grpc}",
            f"--metrics-port={metrics}",
            "--metrics-interval-ms=500",
            f"--backend-config=python,shm-default-byte-size={STUB_BYTES}",
            *self._options,
        ]

    def stop(self) -> StopReport:
        """SIGINT, wait, then look for what is left: stubs and shared memory that outlived the server. Safe twice."""
        if self._process is None:
            return self.stop_report or StopReport(0.0, 0)
        self._watch_stubs()
        started = time.monotonic()
        returncode = self._process.stop(EXIT_TIMEOUT_S + 25)
        stubs, regions = self._remove_leftovers()
        self.stop_report = StopReport(time.monotonic() - started, returncode, stubs, regions)
        self._process = None
        return self.stop_report

    def tail(self, lines: int = 12) -> str:
        """What the log says last: its errors if it has any, without those about GPUs that are not there."""
        written = self._log().splitlines() or ["(no log)"]
        told = [line for line in written if not any(noise in line for noise in LOG_NOISE)]
        return "\n".join(([line for line in told if ERROR_LINE.match(line)] or told)[-lines:])

    def _log(self) -> str:
        return self.log_path.read_text(encoding="utf-8", errors="replace") if self.log_path.is_file() else ""

    def _running(self) -> GuardedProcess:
        if self._process is None:
            raise ServerError("the server is not running", fix="start() it")
        return self._process

    def _wait_until_ready(self, deadline: float) -> None:
        import httpx

        process = self._running()
        with httpx.Client(timeout=1.0, trust_env=False) as client:
            while time.monotonic() < deadline:
                if process.poll() is not None:
                    raise ServerError(
                        f"tritonserver ended before it was ready, with exit status {process.returncode}",
                        why="its log ends:\n" + self.tail(),
                        fix=f"the whole log is {self.log_path}",
                    )
                try:
                    answer = client.get(f"{self.http_url}/v2/health/ready")
                    if answer.status_code == httpx.codes.OK and self._listens():
                        return
                except httpx.TransportError:
                    pass  # it does not listen before its models are loaded
                self._watch_stubs()
                time.sleep(0.05)
        raise ServerError(
            f"tritonserver was not ready after {self._ready_timeout_s:g} s",
            why="its log ends:\n" + self.tail(),
            fix=f"the whole log is {self.log_path}; a slow machine needs a larger ready_timeout_s",
        )

    def _family(self) -> "list[psutil.Process]":
        import psutil

        if self._process is None or self._process.poll() is not None:
            return []
        try:
            return psutil.Process(self._process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def _listens(self) -> bool:
        """Whether the answer came from our server, and not from another that has had the port all along."""
        import psutil

        for process in self._family():
            with suppress(psutil.Error):
                if any(
                    connection.status == psutil.CONN_LISTEN and connection.laddr.port == self.ports[0]
                    for connection in process.net_connections("tcp")
                ):
                    return True
        return False

    def _watch_stubs(self) -> None:
        """Note which stubs are ours while their parent can still be seen; an orphan's cannot."""
        import psutil

        for process in self._family():
            try:
                words = process.cmdline()
            except psutil.Error:
                continue
            if words and words[0].endswith("triton_python_backend_stub"):
                self._stubs[process.pid] = next((word for word in words if REGION.fullmatch(word)), "")

    def _remove_leftovers(self) -> tuple[tuple[int, ...], tuple[str, ...]]:
        import psutil

        left = tuple(pid for pid in self._stubs if _is_stub(pid))
        for pid in left:
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                process.kill()
                process.wait(5)
        regions = tuple(region for region in self._stubs.values() if region and (SHM / region).exists())
        for region in regions:
            (SHM / region).unlink(missing_ok=True)
        self._stubs.clear()
        return left, regions

    def __enter__(self) -> "TritonServer":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _is_stub(pid: int) -> bool:
    import psutil

    try:
        process = psutil.Process(pid)
        alive = process.status() != psutil.STATUS_ZOMBIE
        return alive and process.name().startswith("triton_python_b")
    except psutil.NoSuchProcess:
        return False
