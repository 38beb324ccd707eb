"""python -m benchmarks.classroom.run [--users N] [--chapters "00 01 04 05"] [--workspace DIR]: a class on one machine.

Every user has a home, a workspace, a temporary folder and a JupyterLab of their own, and one checkout is shared, as on
a JupyterHub. ``--workspace`` is copied to each, as a teacher hands it out. All start at the same moment and run the
chapters headless. Prints a table in Markdown: wall time,
processor time, most memory (PSS: a page that several processes share counts in parts), ports, and what failed. Two
users on one port, and what is left behind in /dev/shm, are failures too. Exit status 1 if there is one.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import psutil
import typer

from serving_base.guard import mapped_regions

ROOT = Path(__file__).parents[2]
PLAYBOOK = ROOT / ".venv" / "bin" / "playbook"
SHM = Path("/dev/shm")
HEAD = """\
| user | chapters passed | wall, s | processor, s | most memory, GB | with JupyterLab, GB | processes | ports | failed |
|---|---|---|---|---|---|---|---|---|"""


@dataclass
class User:
    """One learner: what they started, and what was seen of it."""

    name: str
    folder: Path
    course: subprocess.Popen[bytes]
    lab: subprocess.Popen[bytes]
    began_s: float = field(default_factory=time.monotonic)
    wall_s: float = 0
    cpu_s: dict[int, float] = field(default_factory=dict)
    peak_bytes: int = 0
    peak_with_lab_bytes: int = 0
    now_bytes: int = 0
    processes: int = 0
    ports: set[int] = field(default_factory=set)
    regions: set[str] = field(default_factory=set)
    """Of /dev/shm, by name."""

    @property
    def passed(self) -> list[str]:
        return [each["chapter"][:2] for each in self._results() if each["status"] == "ok"]

    @property
    def failed(self) -> list[str]:
        wrong = [f"{each['chapter'][:2]} {each['status']}" for each in self._results() if each["status"] != "ok"]
        return wrong or ([f"exit status {self.course.returncode}"] if self.course.returncode else [])

    def _results(self) -> list[dict[str, str]]:
        found = self.folder / "run" / "results.json"
        listed: list[dict[str, str]] = json.loads(found.read_text()) if found.is_file() else []
        return listed

    def row(self) -> str:
        facts = [self.name, ", ".join(self.passed), f"{self.wall_s:.0f}", f"{sum(self.cpu_s.values()):.0f}"]
        facts += [f"{self.peak_bytes / 1e9:.2f}", f"{self.peak_with_lab_bytes / 1e9:.2f}", str(self.processes)]
        facts += [", ".join(map(str, sorted(self.ports))), "; ".join(self.failed) or "-"]
        return f"| {' | '.join(facts)} |"


def started(number: int, folder: Path, chapters: Sequence[str], workspace: Path | None) -> User:
    """A user whose JupyterLab and course have just been started."""
    own = {name: folder / name.lower() for name in ("HOME", "TMPDIR")}
    for path in own.values():
        path.mkdir(parents=True)
    if workspace:
        shutil.copytree(workspace, folder / "workspace")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PLAYBOOK_")}
    environment |= {name: str(path) for name, path in own.items()}
    environment["PLAYBOOK_WORKSPACE"] = str(folder / "workspace")
    lab = [str(PLAYBOOK), "lab", "--no-browser", "--allow-root", "--ip=127.0.0.1"]
    run = [str(PLAYBOOK), "run", *chapters, "--keep-going", "--jobs", "1", "--out", str(folder / "run")]
    with (folder / "lab.log").open("wb") as lab_log, (folder / "run.log").open("wb") as run_log:
        return User(
            f"{number}",
            folder,
            lab=subprocess.Popen(lab, cwd=ROOT, env=environment, stdout=lab_log, stderr=lab_log),
            course=subprocess.Popen(run, cwd=ROOT, env=environment, stdout=run_log, stderr=run_log),
        )


def family(pid: int) -> Iterator[psutil.Process]:
    with suppress(psutil.Error):
        first = psutil.Process(pid)
        yield first
        yield from first.children(recursive=True)


def look(user: User) -> set[int]:
    """Add what the user's processes have now; the ports that they listen on."""
    bytes_of = dict.fromkeys((user.course.pid, user.lab.pid), 0)
    count = 0
    now: set[int] = set()
    for pid in bytes_of:
        for process in family(pid):
            with suppress(psutil.Error):
                bytes_of[pid] += process.memory_full_info().pss
                times = process.cpu_times()
                user.cpu_s[process.pid] = times.user + times.system
                listening = [each for each in process.net_connections("tcp") if each.status == psutil.CONN_LISTEN]
                ports = {each.laddr.port for each in listening}
                if not any("ipykernel" in word for word in process.cmdline()):  # a kernel's ports are its own business
                    user.ports |= ports
                now |= ports
                user.regions |= mapped_regions({process.pid})
                count += 1
    user.peak_bytes = max(user.peak_bytes, bytes_of[user.course.pid])
    user.now_bytes = sum(bytes_of.values())
    user.peak_with_lab_bytes = max(user.peak_with_lab_bytes, user.now_bytes)
    user.processes = max(user.processes, count)
    return now


def in_common(ports: Mapping[str, set[int]]) -> set[str]:
    """A sentence for each port that two users have; ``ports`` by the user's name."""
    held: dict[int, list[str]] = defaultdict(list)
    for name, taken in ports.items():
        for port in taken:
            held[port].append(name)
    return {f"port {port}: users {', '.join(names)}" for port, names in held.items() if len(names) > 1}


def watch(users: Sequence[User], every_s: float) -> tuple[int, list[str]]:
    """Until every course has ended: the most that all had at once, in bytes, and ports that two had at one time."""
    peak = 0
    shared: set[str] = set()
    while any(user.course.poll() is None for user in users):
        for user in users:
            if user.course.poll() is None:
                user.wall_s = time.monotonic() - user.began_s
        shared |= in_common({user.name: look(user) for user in users})
        peak = max(peak, sum(user.now_bytes for user in users))
        time.sleep(every_s)
    return peak, sorted(shared)


def main(
    users: int = 8,
    chapters: str = "00 01 02 03 04 05",
    workspace: Annotated[Path | None, typer.Option(help="a finished one, copied to every user")] = None,
    folder: Annotated[Path | None, typer.Option(help="a new one in the temporary folder by default")] = None,
    every_s: float = 2.0,
) -> None:
    place = folder or Path(tempfile.mkdtemp(prefix="classroom-"))
    began_s = time.monotonic()
    group = [started(number, place / f"user{number}", chapters.split(), workspace) for number in range(1, users + 1)]
    try:
        peak, shared = watch(group, every_s)
    finally:
        for user in group:
            for process in (user.course, user.lab):
                process.terminate()
                process.wait(60)
    print(HEAD, *(user.row() for user in group), sep="\n")
    left = sorted(name for user in group for name in user.regions if (SHM / name).exists())
    print(f"\nall: {time.monotonic() - began_s:.0f} s, {peak / 1e9:.1f} GB at the peak, JupyterLab included")
    print(f"ports that two had at once: {'; '.join(shared) or 'none'}; left in {SHM}: {', '.join(left) or 'nothing'}")
    failed = shared or left or any(user.failed for user in group)
    if not failed and folder is None:
        shutil.rmtree(place)
    else:
        print(f"logs: {place}")
    sys.exit(int(bool(failed)))


if __name__ == "__main__":
    typer.run(main)
