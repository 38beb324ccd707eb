"""A network of its own, where this machine lets us have one: two may serve on the same ports at the same time."""

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

CLONE_NEWNET = 0x40000000
NETWORK = "/proc/thread-self/ns/net"
UP = 'ip link set lo up && exec "$@"'


def allowed(*prefix: str) -> bool:
    try:
        return subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@cache
def without_network() -> tuple[str, ...]:
    """A prefix that leaves a command only a loopback of its own, where the kernel lets us; else none."""
    prefix = ("unshare", "-rn", "sh", "-c", UP, "sh")
    return prefix if allowed(*prefix) else ()


@cache
def may_leave_network() -> bool:
    """Whether :func:`own_network` may be used: it wants root, for a process with threads cannot become another user."""
    return os.geteuid() == 0 and allowed("unshare", "-n", "sh", "-c", UP, "sh")


@contextmanager
def own_network() -> Iterator[None]:
    """This thread, and all threads and processes that it starts meanwhile, have only a loopback of their own."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open(NETWORK, os.O_RDONLY)
    try:
        entered(libc.unshare(CLONE_NEWNET))
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        yield
    finally:
        entered(libc.setns(before, CLONE_NEWNET))
        os.close(before)


def entered(status: int) -> None:
    if status != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
