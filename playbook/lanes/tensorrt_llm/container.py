"""A running container as a whole: what docker can do to it from outside."""

import subprocess
from typing import Literal

from serving_base.errors import CommandFailed
from trtllm_check.recipes.command import Command

LIMIT_S = 60.0


def container_name(executed: Command) -> str:
    """The name that ``docker run`` gives the command's container; "" where the command runs on the host."""
    words = executed.argv
    return words[words.index("--name") + 1] if "--name" in words else ""


def act_on(verb: Literal["kill", "pause", "unpause"], name: str) -> None:
    """``docker kill``, ``pause`` or ``unpause``; :class:`CommandFailed` with docker's words if it refuses.

    Killed, all of the container's processes end at once and the client ends with status 137. Paused, the kernel
    freezes them (cgroup freezer) and still accepts connections to the ports that they listen on.
    """
    done = subprocess.run(["docker", verb, name], check=False, capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode:
        raise CommandFailed(
            f"docker {verb} {name} ended with exit code {done.returncode}",
            returncode=done.returncode,
            why=done.stderr.strip(),
            fix="see with `docker ps --all` what runs",
        )
