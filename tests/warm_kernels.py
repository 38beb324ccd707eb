"""Kernels that are forks of one process, which has imported beforehand what the chapters import.

An import of modelopt takes five seconds of a processor, one of transformers three, and a course has nineteen kernels.
Only for runs of several notebooks, and never where a GPU is: CUDA does not survive a fork. nbval asks for them in its
own process; the runner's processes are told by their environment where to ask.

As a script this is that process. Each connection to its socket is one kernel: a line of JSON comes, a process id goes.
"""

import json
import os
import pathlib
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import EntryPoint
from typing import Any, Self

from jupyter_client.provisioning.factory import KernelProvisionerFactory
from jupyter_client.provisioning.local_provisioner import LocalProvisioner

from serving_base.guard import PR_SET_PDEATHSIG, prctl

NAME = "warm"
PROVISIONER = "warm_kernels:WarmProvisioner"
ADDRESS = "PLAYBOOK_TESTS_WARM"
"""The environment variable that tells a process of the runner where to ask for its kernel."""
PREFIX = ("-m", "ipykernel_launcher")
"""What a kernel's command says between the interpreter and its own arguments."""


class WarmProcess:
    """The process that kernels are forked from. It ends when its standard input does, and its kernels with it."""

    def __init__(self, imports: Iterable[str], env: Mapping[str, str] | None = None) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="warm-")
        self.address = str(pathlib.Path(self._folder.name, "socket"))
        with socket.socket(socket.AF_UNIX) as door:
            door.bind(self.address)
            door.listen()  # who asks while it imports waits
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(door.fileno()), *imports],
                stdin=subprocess.PIPE,
                env=env,
                pass_fds=[door.fileno()],
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        self._process.communicate()
        self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def fork(address: str, argv: Sequence[str], env: Mapping[str, str], cwd: str) -> int:
    """The process id of a kernel, forked from the process at ``address``. It ends when this process does."""
    with socket.socket(socket.AF_UNIX) as call:
        call.connect(address)
        call.sendall(
            json.dumps({"argv": list(argv), "env": dict(env), "cwd": cwd, "asker": os.getpid()}).encode() + b"\n"
        )
        return int(call.makefile().readline())


class ForkedKernel:
    """What jupyter_client asks of a :class:`subprocess.Popen`, for a process that is not this one's child."""

    stdin = stdout = stderr = None

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        try:
            self._alive = os.pidfd_open(pid)
        except ProcessLookupError:
            self.returncode = 1

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._alive], [], [], 0)[0]:
            os.close(self._alive)
            self.returncode = 0
        return self.returncode

    def wait(self) -> int:
        while self.poll() is None:
            select.select([self._alive], [], [])
        return self.returncode or 0

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._alive, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


class WarmProvisioner(LocalProvisioner):
    """Jupyter's own, but for where the process comes from."""

    address = os.environ.get(ADDRESS, "")

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> Any:
        where = str(kwargs.get("cwd") or pathlib.Path.cwd())
        assert tuple(cmd[1:3]) == PREFIX, cmd
        kernel: Any = ForkedKernel(fork(self.address, cmd[3:], kwargs.get("env") or os.environ, where))
        self.process, self.pid, self.pgid, self.cwd = kernel, kernel.pid, kernel.pid, where
        return self.connection_info


def may_fork() -> bool:
    return not shutil.which("nvidia-smi") and hasattr(os, "pidfd_open")


def warm_kernels(imports: Iterable[str]) -> WarmProcess | None:
    """Every kernel from now on is a fork of the process that this starts; None where that may not be."""
    if not may_fork():
        return None
    source = WarmProcess(imports)
    WarmProvisioner.address = source.address
    factory = KernelProvisionerFactory.instance()
    factory.provisioners[NAME] = EntryPoint(NAME, PROVISIONER, factory.GROUP_NAME)
    factory.default_provisioner_name = NAME
    return source


def told_to_others(address: str, site: pathlib.Path) -> dict[str, str]:
    """Additions to the environment of processes whose kernels shall be forks, too. ``site`` is on their path."""
    about = site / "warm-0.dist-info" / "entry_points.txt"
    about.parent.mkdir(parents=True, exist_ok=True)
    about.write_text(f"[{KernelProvisionerFactory.GROUP_NAME}]\n{NAME} = {PROVISIONER}\n", encoding="utf-8")
    return {ADDRESS: address, KernelProvisionerFactory.default_provisioner_name_env: NAME}


# The process that is forked.


class KernelToCome:
    """For libraries that ask at their import whether a notebook runs them: pandas for its tables, tqdm for its bars."""

    config: Mapping[str, Any] = {"IPKernelApp": {}}
    kernel = None


@contextmanager
def as_in_a_kernel() -> Iterator[None]:
    import builtins

    import IPython

    real, importing = IPython.get_ipython, [KernelToCome()]

    def get_ipython() -> Any:  # kept by those who import it by name
        return real() or (importing[0] if importing else None)

    vars(builtins)["get_ipython"] = IPython.get_ipython = get_ipython
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    try:
        yield
    finally:
        importing.clear()
        IPython.get_ipython = real
        del vars(builtins)["get_ipython"], os.environ["MPLBACKEND"]


def import_all(names: Iterable[str]) -> None:
    import gc
    import pkgutil

    gc.disable()
    pkgutil.resolve_name("ipykernel.kernelapp")
    with as_in_a_kernel():
        for name in names:
            pkgutil.resolve_name(name)
    gc.freeze()  # what is here already is no garbage of a kernel's, and its pages stay shared
    gc.enable()
    if (threads := len(os.listdir("/proc/self/task"))) > 1:  # noqa: PTH208
        sys.exit(f"{threads} threads after the imports: a fork would have one of them, and the others' locks")


def serve(door: socket.socket) -> dict[str, Any]:
    """Fork until the input ends. Returns in a kernel only, with what was asked for it."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    me = os.getpid()
    while sys.stdin not in select.select([sys.stdin, door], [], [])[0]:
        call, _ = door.accept()
        with call, call.makefile("rw") as lines:
            line = lines.readline()
            if line and (pid := os.fork()) == 0:
                prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
                if os.getppid() != me:
                    os._exit(1)
                wanted: dict[str, Any] = json.loads(line)
                return wanted
            if line:
                lines.write(f"{pid}\n")
    sys.exit()


def end_with(asker: int) -> None:
    """Kill this process when that one ends."""
    with suppress(ProcessLookupError):
        select.select([os.pidfd_open(asker)], [], [])
    os.kill(os.getpid(), signal.SIGKILL)


def become_a_kernel(argv: Sequence[str], env: Mapping[str, str], cwd: str, asker: int) -> None:
    from ipykernel.kernelapp import launch_new_instance

    threading.Thread(target=end_with, args=[asker], daemon=True).start()

    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nowhere, number)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    sys.argv[1:] = argv
    launch_new_instance()


def main() -> None:
    import_all(sys.argv[2:])
    with socket.socket(fileno=int(sys.argv[1])) as door:
        wanted = serve(door)
    become_a_kernel(**wanted)


if __name__ == "__main__":
    main()
