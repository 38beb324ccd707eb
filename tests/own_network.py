"""A network of its own for a command, where this machine lets us have one."""

import subprocess
from functools import cache


@cache
def without_network() -> tuple[str, ...]:
    """A prefix that leaves a command only a loopback of its own, where the kernel lets us; else none."""
    prefix = ("unshare", "-rn", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
    try:
        allowed = subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return ()
    return prefix if allowed else ()
