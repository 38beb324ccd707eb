"""Kernels that are forked from one process, which has imported what the chapters share.

`python fork_server.py ADDRESS STATEMENT ...` runs the import statements, then listens at the path ADDRESS. For each
request of :mod:`playbook.course.forked_kernel` it forks a guard (see :mod:`serving_base.guard`), and the guard forks
the kernel. Nothing runs here but imports: no thread, no connection and no random number is there to be shared. A
request with another environment than this process's is refused, because imports read it.
"""

import atexit
import gc
import json
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from serving_base.guard import Guard, die_with

VOLATILE = frozenset({"JPY_PARENT_PID", "JPY_SESSION_NAME", "PWD", "OLDPWD", "SHLVL", "_"})
"""What may differ: no library that a chapter imports reads it."""
GRACE_S = 5.0
INLINE = "module://matplotlib_inline.backend_inline"


def main() -> None:
    address, *statements = sys.argv[1:]
    del sys.path[0]  # this file's folder, which no kernel has there
    prepare(statements)
    gc.collect()
    gc.freeze()  # a child that collects garbage would copy every page
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the guards
    path = Path(address)
    os.chdir(path.parent)  # a socket's address may have 107 characters, a path more
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(path.name + ".new")
        door.listen()
        Path(path.name + ".new").rename(path)  # from here on it can be found
        while True:
            connection, _ = door.accept()
            with connection:
                answer(connection, door)


def prepare(statements: Sequence[str]) -> None:
    """Run the imports as a kernel would, which has told matplotlib where to draw."""
    os.environ["MPLBACKEND"] = INLINE
    for statement in statements:
        exec(statement, {})
    del os.environ["MPLBACKEND"]


def answer(connection: socket.socket, door: socket.socket) -> None:
    """Fork a guarded kernel, or say 0."""
    _, streams, _, _ = socket.recv_fds(connection, 1, 3)
    try:
        with connection.makefile() as words:
            request = json.loads(words.readline())
        if lasting(request["environment"]) != lasting(os.environ):
            connection.sendall(b"0\n")
        elif os.fork() == 0:
            door.close()
            guard_kernel(connection, request, streams)
    finally:
        for stream in streams:
            os.close(stream)


def lasting(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name not in VOLATILE}


def guard_kernel(connection: socket.socket, request: Mapping[str, Any], streams: list[int]) -> None:
    """Tell the kernel's process id, wait for its end or the connection's, tell its exit status. Does not return."""
    status = 1
    try:
        me = os.getpid()

        def start() -> int:
            pid = os.fork()
            if pid == 0:
                die_with(me)
                run_kernel(request, streams)
            connection.sendall(f"{pid}\n".encode())
            return pid

        status = Guard(connection.fileno(), [], grace_s=GRACE_S, start=start).run()
        connection.sendall(f"{status}\n".encode())
    except OSError:
        pass  # whoever asked is gone; the guard has ended the kernel
    finally:
        os._exit(status)


def run_kernel(request: Mapping[str, Any], streams: list[int]) -> None:
    """Be the kernel as if Python had just been started for it. Does not return."""
    status = 1
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for target, stream in enumerate(streams):
            os.dup2(stream, target)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        os.chdir(request["cwd"])
        os.environ.update(request["environment"])
        sys.argv[1:] = request["argv"]
        reseed()
        status = serve_notebook()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def reseed() -> None:
    """NumPy and torch take their seeds when they are imported. Python has made its own anew after the fork."""
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()
    if torch := sys.modules.get("torch"):
        torch.default_generator.seed()


def serve_notebook() -> int:
    """The exit status that Python would give. What Python does at its end is done here, because a fork has none."""
    from ipykernel import kernelapp

    try:
        kernelapp.launch_new_instance()
        return 0
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()


if __name__ == "__main__":
    main()
