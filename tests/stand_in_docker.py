"""A stand-in for docker's client: a "container" is a session of processes with the container's PATH and environment.

What reaches a container reaches every process in it: kill, pause, unpause and stop work on the whole family.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from made_once import SHARED
from stand_ins import PLACE, Machine, fail

RUNTIMES = {
    "io.containerd.runc.v2": {"path": "runc"},
    "nvidia": {"path": "nvidia-container-runtime"},
    "runc": {"path": "runc"},
}


def docker_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="docker run", allow_abbrev=False)
    for flag in ("--rm", "--init", "--interactive", "--tty", "--detach"):
        parser.add_argument(flag, action="store_true")
    for flag in ("--gpus", "--network", "--shm-size", "--name", "--workdir", "--ipc", "--entrypoint"):
        parser.add_argument(flag)
    for flag in ("--ulimit", "--volume", "--env", "--cap-add", "--security-opt", "--publish"):
        parser.add_argument(flag, action="append", default=[])
    parser.add_argument("image")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    return parser


def docker(machine: Machine, words: list[str]) -> int:
    """One call of the client; an unknown verb is refused, as docker refuses it."""
    verb, *rest = words
    if verb == "run":
        return run(machine, words)
    machine.note("docker", words)
    if verb not in VERBS:
        print(f"docker: '{verb}' is not a docker command.", file=sys.stderr)
        return 1
    return VERBS[verb](machine, rest)


def run(machine: Machine, words: list[str]) -> int:
    """`docker run`: the program runs on this machine, with the container's PATH and nothing of our environment.

    As the real client it passes signals on, and when the first process ends, so does everything in the container.
    """
    given = docker_parser().parse_args(words[1:])
    machine.note("docker", words, name=given.name)
    if machine.failure().get("tool") == "docker":
        return fail(machine.failure())
    if given.image not in machine.facts()["images"]:
        print(f"docker: manifest for {given.image} not found: manifest unknown", file=sys.stderr)
        return 125
    keep_image(machine, given.image)
    settings = {}
    for item in given.env:
        name, sign, value = item.partition("=")
        settings[name] = value if sign else os.environ.get(name, "")
    refuse_unmounted(machine, given.command, [volume.split(":")[0] for volume in given.volume])
    env = {"PATH": f"{machine.container}:/usr/bin:/bin", PLACE: given.image, **settings}
    env |= {SHARED: os.environ[SHARED]} if SHARED in os.environ else {}  # the stand-ins' own, as PLACE is
    if shutil.which(given.command[0], path=env["PATH"]) is None:
        print(f"[FATAL tini (7)] exec {given.command[0]} failed: No such file or directory", file=sys.stderr)
        return 127
    process = subprocess.Popen(given.command, env=env, start_new_session=True)
    place = container_file(machine, given.name)
    place.parent.mkdir(exist_ok=True)
    place.write_text(json.dumps({"pid": process.pid, "image": given.image}), encoding="utf-8")

    def pass_on(number: int, _: object) -> None:
        machine.note("signal", [signal.Signals(number).name], name=given.name)
        process.send_signal(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, pass_on)
    status = process.wait()
    place.unlink(missing_ok=True)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return status if status >= 0 else 128 - status


def refuse_unmounted(machine: Machine, command: list[str], mounts: list[str]) -> None:
    """A container sees of this machine only what is mounted; the playbook mounts its workspace at its own path."""
    for word in command:
        for path in re.findall(rf"{re.escape(str(machine.folder.parent))}[\w./-]*", word):
            if not any(Path(path).is_relative_to(mount) for mount in mounts):
                sys.exit(f"docker stand-in: {path} is not mounted")


def container_file(machine: Machine, name: str | None) -> Path:
    return machine.folder / "containers" / f"{name or f'unnamed-{os.getpid()}'}.json"


def info(machine: Machine, words: list[str]) -> int:
    """`docker info --format '{{json .Runtimes}}'`, of a host with NVIDIA's container toolkit."""
    if words != ["--format", "{{json .Runtimes}}"]:
        print("docker stand-in: only the list of runtimes", file=sys.stderr)
        return 1
    without = {"nvidia"} if machine.failure().get("tool") == "no container toolkit" else set()
    print(json.dumps({name: value for name, value in RUNTIMES.items() if name not in without}))
    return 0


def image(machine: Machine, words: list[str]) -> int:
    """`docker image inspect --format {{.Id}} IMAGE`: an image is there once it was pulled, or run."""
    verb, _, what, name = words
    if (verb, what) != ("inspect", "{{.Id}}"):
        return 1
    if name not in present_images(machine):
        print(f"Error response from daemon: No such image: {name}", file=sys.stderr)
        return 1
    print("sha256:" + "0" * 64)
    return 0


def present_images(machine: Machine) -> set[str]:
    path = machine.folder / "images.json"
    return set(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else set()


def keep_image(machine: Machine, name: str) -> None:
    known = sorted(present_images(machine) | {name})
    (machine.folder / "images.json").write_text(json.dumps(known), encoding="utf-8")


def pull(machine: Machine, words: list[str]) -> int:
    (name,) = words
    if name not in machine.facts()["images"]:
        print(f"Error response from daemon: manifest for {name} not found: manifest unknown", file=sys.stderr)
        return 1
    keep_image(machine, name)
    print(f"Status: Downloaded newer image for {name}")
    return 0


def to_family(default: signal.Signals) -> Callable[[Machine, list[str]], int]:
    """A verb that sends a signal to every process of the named containers."""

    def act(machine: Machine, words: list[str]) -> int:
        parser = argparse.ArgumentParser(prog="docker", allow_abbrev=False)
        parser.add_argument("--signal", "-s", default=default.name)
        parser.add_argument("--force", "-f", action="store_true")
        parser.add_argument("--time", "-t", "--timeout")
        parser.add_argument("names", nargs="+")
        given = parser.parse_args(words)
        number = signal.Signals[given.signal if given.signal.startswith("SIG") else f"SIG{given.signal}"]
        missing = [name for name in given.names if not container_file(machine, name).is_file()]
        for name in set(given.names) - set(missing):
            send(json.loads(container_file(machine, name).read_text(encoding="utf-8"))["pid"], number)
            print(name)
        for name in missing:
            print(f"Error response from daemon: No such container: {name}", file=sys.stderr)
        return 1 if missing else 0

    return act


def send(pid: int, number: signal.Signals) -> None:
    """To the first process of a container, or, for what acts on the container as a whole, to every process in it.

    A namespace's end and a freezer miss nobody, and a container's shared memory ends with it: nor may these stay.
    """
    if number in (signal.SIGTERM, signal.SIGINT):
        send_one(pid, number)
        return
    if number in (signal.SIGKILL, signal.SIGSTOP):  # so that nobody starts, cleans up or answers anything meanwhile
        freeze(pid)
    family = family_of(pid)
    regions = {region for member in family for region in regions_of(member)} if number == signal.SIGKILL else set()
    for member in family:
        send_one(member, number)
    for region in regions:
        Path("/dev/shm", region).unlink(missing_ok=True)


def freeze(pid: int) -> None:
    """Stop every process, those too that one of them started while the others were being stopped."""
    import psutil

    still = (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE, psutil.STATUS_DISK_SLEEP)
    # The last one: between vfork and exec a parent waits for its child in the kernel, and stops when it comes back.

    def runs(member: int) -> bool:
        with suppress(psutil.NoSuchProcess):
            return psutil.Process(member).status() not in still
        return False

    sent: set[int] = set()
    while running := [member for member in family_of(pid) if member not in sent or runs(member)]:
        for member in running:
            send_one(member, signal.SIGSTOP)
            sent.add(member)
        time.sleep(0.01)


def send_one(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def family_of(pid: int) -> list[int]:
    """The processes of the container's session, whose parents may have ended, and all that came from them."""
    import psutil

    found: set[int] = set()
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            if os.getsid(process.pid) == pid:
                found |= {process.pid, *(child.pid for child in process.children(recursive=True))}
    return sorted(found)


def regions_of(pid: int) -> set[str]:
    """Triton's /dev/shm regions that the process has mapped."""
    with suppress(OSError):
        maps = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8").splitlines()
        return {line.rsplit("/", 1)[1].split()[0] for line in maps if "/dev/shm/triton_" in line}
    return set()


VERBS: dict[str, Callable[[Machine, list[str]], int]] = {
    "image": image,
    "info": info,
    "pull": pull,
    "kill": to_family(signal.SIGKILL),
    "rm": to_family(signal.SIGKILL),
    "stop": to_family(signal.SIGTERM),
    "pause": to_family(signal.SIGSTOP),
    "unpause": to_family(signal.SIGCONT),
}
"""Another verb is one more line; its function takes the machine and the words after the verb."""
