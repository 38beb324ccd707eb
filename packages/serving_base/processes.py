"""Child processes that leave nothing behind, free ports, and commands that are shown before they run."""

import atexit
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from serving_base import guard
from serving_base.errors import CommandFailed, EnvironmentProblem

TAIL_LINES = 20
SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSWORD|API_KEY|ACCESS_KEY")

KEPT = "PLAYBOOK_USERS_"
"""Before the name of a variable: what the user had there, in a kernel of the course, which changes it."""
CHANGED = ("PATH", "PYTHONPATH", "PYTHONNOUSERSITE")

STARTED = "PLAYBOOK_STARTED"
"""A variable that every process has which the course started."""

Environment = Mapping[str, str | None]
"""Additions to this process's environment; None removes a variable."""

_running: "weakref.WeakSet[GuardedProcess]" = weakref.WeakSet()


class GuardedProcess:
    """A command under a guard (see `serving_base.guard`). It ends, with all its descendants, when we do."""

    def __init__(
        self, name: str, argv: Sequence[str], process: "subprocess.Popen[bytes]", keep_open: int, log_path: Path | None
    ) -> None:
        self.name = name
        self.argv = tuple(argv)
        self.log_path = log_path
        self._process = process
        self._keep_open: int | None = keep_open
        _running.add(self)

    @property
    def pid(self) -> int:
        """Process id of the guard; the command is its descendant."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Exit status of the command (128 + signal if it was killed), None while it runs."""
        return self._process.returncode

    @property
    def stdout(self) -> IO[bytes] | None:
        """The command's output, if it was not sent to a log file."""
        return self._process.stdout

    def poll(self) -> int | None:
        return self._process.poll()

    def wait(self, timeout_s: float | None = None) -> int:
        """Wait for the command and everything it left. Raises subprocess.TimeoutExpired."""
        return self._process.wait(timeout_s)

    def stop(self, timeout_s: float = 60.0) -> int:
        """End the command and all its descendants; returns the exit status. Safe to call twice."""
        self._close_pipe()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            # The inner guard sees the outer one die and finishes the job.
            self._process.kill()
            self._process.wait()
        finally:
            _running.discard(self)
        return self._process.returncode

    def tail(self, lines: int = TAIL_LINES) -> str:
        """The last lines of the log."""
        if self.log_path is None or not self.log_path.exists():
            return ""
        with self.log_path.open(errors="replace") as log:
            return "".join(deque(log, maxlen=lines))

    def _close_pipe(self) -> None:
        if self._keep_open is not None:
            os.close(self._keep_open)
            self._keep_open = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self.stdout is not None:
            self.stdout.close()

    def __del__(self) -> None:
        self._close_pipe()


@atexit.register
def _stop_all() -> None:
    for process in list(_running):
        process.stop()


def start_guarded(
    argv: Sequence[str],
    *,
    env: Environment | None = None,
    base: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    log_path: Path | None = None,
    name: str = "",
    grace_s: float = 10.0,
) -> GuardedProcess:
    """Start a command that cannot outlive this process, not even if this process is killed with SIGKILL.

    `env` is added to `base`, by default our environment (None removes a name). Output goes to `log_path`, or to
    `.stdout` without one. On stop the command gets SIGINT and `grace_s` seconds. Raises EnvironmentProblem if it does
    not exist.
    """
    if not sys.platform.startswith("linux"):
        raise EnvironmentProblem("guarded processes need Linux", fix="run the playbook on Linux or in WSL 2")
    full_env = merged_environment(env, base) | {STARTED: "1"}
    program = shutil.which(argv[0], path=full_env.get("PATH"))
    if program is None:
        raise EnvironmentProblem(
            f"{argv[0]}: no such program", why="it is neither a file nor on PATH", fix="run: make setup"
        )
    read_end, write_end = os.pipe()
    log: IO[bytes] | None = None
    try:
        if log_path is not None:
            log_path.parent.mkdir(parents=True, exist_ok=True)
            log = log_path.open("ab")
        process = subprocess.Popen(
            guard.guard_argv(read_end, [program, *argv[1:]], grace_s=grace_s),
            env=full_env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=log if log is not None else subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(read_end,),
            start_new_session=True,
        )
    except BaseException:
        os.close(write_end)
        raise
    finally:
        os.close(read_end)
        if log is not None:
            log.close()
    return GuardedProcess(name or Path(program).name, argv, process, write_end, log_path)


def kept_for_the_user() -> dict[str, str]:
    """What a kernel of the course must remember of the environment it changes: see :func:`users_environment`."""
    if KEPT in os.environ:  # a kernel below a kernel
        return {name: value for name, value in os.environ.items() if name.startswith(KEPT)}
    return {KEPT: "1"} | {KEPT + name: os.environ[name] for name in CHANGED if name in os.environ}


def users_environment() -> dict[str, str]:
    """The environment without what the course changed for its own Python, for programs that are the machine's.

    ``python3`` is then the one that the user calls by this name, which may have tensorrt_llm; the course's has not.
    """
    env = {name: value for name, value in os.environ.items() if not name.startswith(KEPT)}
    if KEPT in os.environ:
        kept = {name: os.environ.get(KEPT + name) for name in CHANGED}
        env = {name: value for name, value in env.items() if name not in kept}
        env |= {name: value for name, value in kept.items() if value is not None}
    return env


def merged_environment(env: Environment | None, base: Mapping[str, str] | None = None) -> dict[str, str]:
    """`base`, by default this process's environment, with `env` laid over it."""
    merged = dict(os.environ if base is None else base)
    for key, value in (env or {}).items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = value
    return merged


def shell_line(argv: Sequence[str], *, env: Environment | None = None, cwd: Path | None = None) -> str:
    """The command as one line to paste into a shell. Secrets appear by name only."""
    env = env or {}
    unset = [f"-u {shlex.quote(key)}" for key, value in env.items() if value is None]
    words = ["env", *unset] if unset else []
    for key, value in env.items():
        if value is not None:
            words.append(f'{key}="${key}"' if SECRET_NAME.search(key) else f"{key}={shlex.quote(value)}")
    line = " ".join([*words, shlex.join(argv)])
    return f"cd {shlex.quote(str(cwd))} && {line}" if cwd else line


@dataclass(frozen=True)
class CommandResult:
    """What a finished command left: its last lines and how long it took."""

    argv: tuple[str, ...]
    seconds: float
    tail: str
    log_path: Path | None


def stream_command(
    argv: Sequence[str],
    *,
    env: Environment | None = None,
    base: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    log_path: Path | None = None,
    timeout_s: float | None = None,
    echo: Callable[[str], None] = print,
) -> CommandResult:
    """Show a command, run it under a guard, and pass its lines to `echo` as they come, and to `log_path`.

    Shown is what differs from the user's own shell: the command and `env`, not `base`.
    Raises CommandFailed, with the last lines, if it exits with another status than 0 or runs past `timeout_s`.
    """
    echo(f"$ {shell_line(argv, env=env, cwd=cwd)}")
    tail: deque[str] = deque(maxlen=TAIL_LINES)
    started = time.monotonic()
    process = start_guarded(argv, env=env, base=base, cwd=cwd)
    timer = threading.Timer(threading.TIMEOUT_MAX if timeout_s is None else timeout_s, process.stop)
    timer.daemon = True
    timer.start()
    try:
        with process, _open_log(log_path) as log:
            assert process.stdout is not None
            for raw in process.stdout:
                line = raw.decode(errors="replace").rstrip("\n")
                tail.append(line)
                log.write(line + "\n")
                echo(line)
            returncode = process.wait()
    finally:
        timer.cancel()
    seconds = time.monotonic() - started
    if returncode != 0:
        late = timeout_s is not None and seconds >= timeout_s
        what = f"ran longer than {timeout_s:g} s" if late else f"ended with exit status {returncode}"
        raise _failure(argv, what, returncode, tail, log_path)
    return CommandResult(tuple(argv), seconds, "\n".join(tail), log_path)


def _open_log(log_path: Path | None) -> IO[str]:
    if log_path is None:
        return Path(os.devnull).open("w")
    log_path.parent.mkdir(parents=True, exist_ok=True)
    return log_path.open("a")


def _failure(
    argv: Sequence[str], what: str, returncode: int, tail: Collection[str], log_path: Path | None
) -> CommandFailed:
    where = f"the whole output is in {log_path}" if log_path else "run the line above in a shell to see it alone"
    return CommandFailed(
        f"{Path(argv[0]).name} {what}",
        returncode=returncode,
        log_path=log_path,
        why="its last lines:\n    " + "\n    ".join(tail) if tail else "it printed nothing",
        fix=where,
    )


def free_port(preferred: int = 0, *, strict: bool = False, host: str = "127.0.0.1", taken: Collection[int] = ()) -> int:
    """`preferred` if nothing listens there, else a port that the system picks (never one of `taken`).

    With `strict` a busy port raises EnvironmentProblem instead, which names the process that has it.
    """
    if preferred and preferred not in taken and _can_bind(host, preferred):
        return preferred
    if preferred and strict:
        holder = _listener(preferred)
        raise EnvironmentProblem(
            f"port {preferred} is taken" + (f" by {holder}" if holder else ""),
            why="two servers cannot listen on one port",
            fix="end that process, or choose another port",
        )
    while True:
        with socket.socket() as probe:
            probe.bind((host, 0))
            port = int(probe.getsockname()[1])
        if port not in taken:
            return port


def _can_bind(host: str, port: int) -> bool:
    with socket.socket() as probe:
        # Without it a port whose last connection closed a minute ago looks taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _listener(port: int) -> str:
    import psutil

    for connection in psutil.net_connections("tcp"):
        listens = connection.status == psutil.CONN_LISTEN and getattr(connection.laddr, "port", None) == port
        if listens and connection.pid:
            try:
                return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
            except psutil.NoSuchProcess:
                return ""
    return ""
