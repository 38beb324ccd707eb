"""The Triton Inference Server over the ranks of one engine, in the release's container."""

import subprocess
import time
from pathlib import Path
from typing import Literal

from gpu_serving.execute import (
    KEPT_LINES,
    CommandRecord,
    as_executed,
    container_name,
    explained,
    remove_container,
    require_program,
)
from serving_base.errors import CommandFailed, ServerError
from serving_base.facts import TRITON_PORTS
from serving_base.processes import GuardedProcess, shell_line, start_guarded, users_environment
from serving_base.servers import LoopbackServer, StopReport, choose_ports
from trtllm_check.deployment import Deployment
from trtllm_check.recipes import checked
from trtllm_check.recipes.command import Paths
from trtllm_check.recipes.triton import launch
from trtllm_check.releases import Release

READY_LIMIT_S = 1800.0  # loading 70B onto eight GPUs from a network disk takes minutes
POLL_S = 1.0
GRACE_S = 30.0  # for the ranks to end on their own
STOP_LIMIT_S = 120.0
KILL_LIMIT_S = 60.0  # eight GPUs' memory is given back meanwhile


class TritonRanks(LoopbackServer):
    """A running server; a context manager that stops it. Another port is taken where 8000 to 8002 are in use."""

    def __init__(self, profile: Deployment, release: Release, paths: Paths, log_path: Path) -> None:
        self._ports = choose_ports(TRITON_PORTS)
        (self._command,) = checked(release, launch(profile, release, paths, ports=self._ports))
        self._paths = paths
        self._process: GuardedProcess | None = None
        self.log_path = log_path
        self.ready_s = 0.0

    @property
    def pid(self) -> int:
        """Process id of the guard above the server; :class:`ServerError` while none runs."""
        return self._running().pid

    def start(self) -> None:
        """Start the ranks and wait until every model is ready; a server that ends before that is explained.

        Started again, it has the ports that it had, and a container of another name: the old one's may not be gone.
        """
        if self._process is not None:
            raise ServerError("this server runs already", fix="stop() it first")
        require_program(self._command)
        self._executed = as_executed(self._command, self._paths)
        print(f"$ {shell_line(self._executed.argv, env=self._executed.env)}")
        started = time.monotonic()
        self._account = CommandRecord.open(self._command, self._executed, self.log_path)
        self._process = start_guarded(
            self._executed.argv,
            env=dict(self._executed.env),
            base=users_environment(),
            log_path=self.log_path,
            name="tritonserver",
            grace_s=GRACE_S,
        )
        try:
            while not self.ready():
                if self._process.poll() is not None:
                    raise self._died(self._process)
                if time.monotonic() - started > READY_LIMIT_S:
                    raise ServerError(
                        f"the server was not ready after {READY_LIMIT_S:.0f} s",
                        why=self._process.tail(),
                        fix=f"read {self.log_path}",
                    )
                time.sleep(POLL_S)
        except BaseException:
            self.stop()
            raise
        self.ready_s = time.monotonic() - started

    def ready(self) -> bool:
        """True when the server answers that all its models are loaded."""
        import httpx

        try:
            return httpx.get(f"{self.http_url}/v2/health/ready", timeout=5.0, trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False

    def kill(self) -> None:
        """End the container, or inside one the ranks, with SIGKILL, and wait for the end. The next call is ``stop``."""
        process = self._running()
        if name := container_name(self._executed):
            act_on("kill", name)
            process.wait(KILL_LIMIT_S)
        else:
            super().kill()

    def pause(self) -> None:
        """Freeze the container, or inside one the ranks: connections are accepted, and nothing is answered."""
        self._running()
        if name := container_name(self._executed):
            act_on("pause", name)
        else:
            super().pause()

    def resume(self) -> None:
        """Let a paused container, or paused ranks, go on."""
        self._running()
        if name := container_name(self._executed):
            act_on("unpause", name)
        else:
            super().resume()

    def _running(self) -> GuardedProcess:
        if self._process is None:
            raise ServerError("the server does not run", fix="start() it")
        return self._process

    def stop(self) -> StopReport:
        """End the server and all its ranks. Safe to call twice."""
        if self._process is None:
            return StopReport(0.0, 0)
        started = time.monotonic()
        returncode = self._process.stop(STOP_LIMIT_S)
        self._process = None
        remove_container(self._executed)
        self._account.close(returncode)
        return StopReport(time.monotonic() - started, returncode)

    def _died(self, process: GuardedProcess) -> CommandFailed:
        return explained(self._command, process.tail(KEPT_LINES), process.returncode or 0, self.log_path)

    def __enter__(self) -> "TritonRanks":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def act_on(verb: Literal["kill", "pause", "unpause"], name: str) -> None:
    """``docker kill``, ``pause`` or ``unpause``; :class:`CommandFailed` with docker's words if it refuses.

    Killed, all of the container's processes end at once and the client ends with status 137. Paused, the kernel
    freezes them (cgroup freezer) and still accepts connections to the ports that they listen on.
    """
    done = subprocess.run(["docker", verb, name], check=False, capture_output=True, text=True, timeout=KILL_LIMIT_S)
    if done.returncode:
        raise CommandFailed(
            f"docker {verb} {name} ended with exit code {done.returncode}",
            returncode=done.returncode,
            why=done.stderr.strip(),
            fix="see with `docker ps --all` what runs",
        )
