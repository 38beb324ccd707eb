"""The kernel that Jupyter starts, `python forked_kernel.py -f CONNECTION`: one of the fork server's.

This process passes its environment, folder and standard streams on, interrupts the kernel when it is interrupted, and
ends with the kernel's exit status; when it is killed, the kernel's guard sees the connection close. Without a fork
server, or when that has another environment, it becomes an ordinary kernel. Standard library only: it starts often.
"""

import json
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

DOOR = "PLAYBOOK_FORK_SERVER"
"""The variable that holds the fork server's address, a path."""


def forked(door: str, argv: list[str]) -> int | None:
    """The exit status of a kernel that the fork server made; None if it made none."""
    with socket.socket(socket.AF_UNIX) as server:
        connect(server, door)
        socket.send_fds(server, [b"\0"], [0, 1, 2])
        request = {"argv": argv, "cwd": str(Path.cwd()), "environment": dict(os.environ)}
        server.sendall(json.dumps(request).encode() + b"\n")
        with server.makefile() as answers:
            pid = int(answers.readline() or 0)
            if not pid:
                return None
            signal.signal(signal.SIGINT, lambda *_: interrupt(pid))
            return int(answers.readline() or 1)


def connect(server: socket.socket, door: str) -> None:
    """From the door's folder, because a socket's address may have 107 characters only."""
    here = Path.cwd()
    try:
        os.chdir(Path(door).parent)
        server.connect(Path(door).name)
    finally:
        os.chdir(here)


def interrupt(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGINT)


def main() -> None:
    door = os.environ.get(DOOR, "")
    with suppress(OSError):  # it is not ready yet, or no more
        status = forked(door, sys.argv[1:])
        if status is not None:
            sys.exit(status)
    os.execv(sys.executable, [sys.executable, "-m", "ipykernel_launcher", *sys.argv[1:]])


if __name__ == "__main__":
    main()
