"""A forked kernel is as fresh as one that Python was started for, and as surely gone."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

from notebook_factory import notebook, write_course
from playbook.course.forked_kernel import DOOR
from playbook.course.forking import forked_kernels, shared_imports
from playbook.course.kernel_env import kernel_environment
from playbook.course.notebooks import Chapter, chapters
from waiting import until

LIMIT_S = 120.0
FORKED = "'torch' in __import__('sys').modules"

# Everything that a kernel could inherit from whoever made it.
# An ordinary kernel looks every second whether Jupyter lives; a forked one has a guard for that.
STATE = """\
import gc, json, locale, os, random, resource, signal, sys, threading, warnings, logging, numpy, matplotlib, torch
def target(fd):
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:  # the listing's own
        return ""
known = set(globals()) - {"state"}
state = {
    "folder": os.getcwd(),
    "path": sys.path,
    "environment": {k: v for k, v in os.environ.items() if k not in ("JPY_PARENT_PID", "JPY_SESSION_NAME", "_")},
    "arguments": len(sys.argv),
    "signals": {n.name: getattr(signal.getsignal(n), "__name__", str(signal.getsignal(n))) for n in signal.Signals},
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "wakeup": signal.set_wakeup_fd(-1) >= 0,
    "threads": sorted(t.name for t in threading.enumerate() if type(t).__name__ != "ParentPollerUnix"),
    "files": sorted({t for t in map(target, os.listdir("/proc/self/fd")) if t.startswith("/") and "history" not in t}),
    "leader": [os.getpgid(0) == os.getpid() or os.getsid(0) != os.getsid(os.getppid())],
    "mask": os.umask(0o022),
    "nice": os.nice(0),
    "cores": sorted(os.sched_getaffinity(0)),
    "limits": [resource.getrlimit(getattr(resource, n)) for n in dir(resource) if n.startswith("RLIMIT_")],
    "collector": [gc.isenabled(), gc.get_threshold()],
    "locale": locale.setlocale(locale.LC_ALL),
    "warnings": len(warnings.filters),
    "handlers": [type(h).__name__ for h in logging.getLogger().handlers],
    "backend": matplotlib.rcParams["backend"],
    "torch": [torch.get_num_threads(), torch.is_grad_enabled(), str(torch.get_default_dtype())],
    "json": hasattr(json, "left_behind"),
    "main": sorted(k for k in known if not k.startswith("_")),
    "name": [__name__, sys.flags.isolated, sys.flags.no_site, sys.dont_write_bytecode, sys.stdout.encoding],
}
print(json.dumps(state))"""

SPOIL = """\
import gc, json, os, random, signal, sys, warnings, numpy, torch
left_behind = 1
json.left_behind = True
os.environ["LEFT_BEHIND"] = "1"
os.chdir("/")
sys.path.append("/left-behind")
signal.signal(signal.SIGINT, signal.SIG_IGN)
torch.manual_seed(1)
torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)
gc.disable()
warnings.filterwarnings("error", category=ImportWarning)
open("/dev/null")"""


class Kernel:
    """A kernel, and what its cells print."""

    def __init__(self, environment: dict[str, str], folder: Path) -> None:
        specs = KernelSpecManager(kernel_dirs=[str(Path(environment["JUPYTER_PATH"], "kernels"))])
        self.manager = KernelManager(kernel_name="python3", kernel_spec_manager=specs)
        self.manager.start_kernel(env=os.environ | environment, cwd=str(folder))
        self.client: BlockingKernelClient = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=LIMIT_S)

    def run(self, source: str) -> str:
        """What the cell printed, or the name of its exception."""
        said: list[str] = []

        def hear(message: dict[str, Any]) -> None:
            content = message["content"]
            said.append(content.get("text", "") or content.get("ename", ""))

        self.client.execute_interactive(source, timeout=LIMIT_S, output_hook=hear)
        return "".join(said).strip()

    def close(self) -> None:
        self.client.stop_channels()
        if self.manager.has_kernel:
            self.manager.shutdown_kernel()


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cells = "import torch, json", f"print({FORKED})"
    folder = tmp_path_factory.mktemp("a-folder-whose-path-is-longer-than-the-address-of-a-socket-may-be-" + 60 * "x")
    return write_course(folder, c01_one=notebook(*cells), c02_two=notebook(*cells))


@pytest.fixture(scope="module")
def environment(course: Path) -> Iterator[dict[str, str]]:
    scratch = course / "scratch"
    scratch.mkdir()
    own = kernel_environment(workspace=course / "workspace", scratch=scratch) | {"PYTEST_CURRENT_TEST": "any"}
    with forked_kernels(course_of(course), own, scratch) as forked:
        until((scratch / "fork-server").exists, "the fork server is ready")
        yield forked


@contextmanager
def kernel(environment: dict[str, str], folder: Path) -> Iterator[Kernel]:
    opened = Kernel(environment, folder)
    try:
        yield opened
    finally:
        opened.close()


def course_of(folder: Path) -> list[Chapter]:
    return chapters(folder / "notebooks")


def state_of(environment: dict[str, str], folder: Path) -> dict[str, Any]:
    with kernel(environment, folder) as opened:
        state: dict[str, Any] = json.loads(opened.run(STATE))
    return state


def test_only_costly_imports_that_two_chapters_share_are_paid_once(tmp_path: Path) -> None:
    write_course(
        tmp_path,
        c01_one=notebook(
            "import torch\nimport json", "from transformers import AutoTokenizer, PreTrainedTokenizerFast"
        ),
        c02_two=notebook("import torch.nn, json", "from transformers import AutoTokenizer"),
        c03_three=notebook("not python", "import pandas"),
    )
    assert shared_imports(course_of(tmp_path)) == ["from transformers import AutoTokenizer"]


def test_where_nothing_is_shared_there_is_no_server(tmp_path: Path) -> None:
    write_course(tmp_path, c01_one=notebook("import torch"), c02_two=notebook("import json"))
    with forked_kernels(course_of(tmp_path), {"A": "1"}, tmp_path) as environment:
        assert environment == {"A": "1"}


def test_it_is_as_fresh_as_an_ordinary_one(environment: dict[str, str], course: Path) -> None:
    ordinary = state_of({**environment, "LANG_OF_THE_OTHER": "1"}, course)
    forked = state_of(environment, course)
    assert ordinary["environment"].pop("LANG_OF_THE_OTHER") == "1"
    assert forked == ordinary


def test_what_one_does_is_not_seen_by_the_next(environment: dict[str, str], course: Path) -> None:
    before = state_of(environment, course)
    with kernel(environment, course) as spoilt:
        assert spoilt.run(SPOIL) == ""
        assert state_of(environment, course) == before
    assert state_of(environment, course) == before


def test_each_has_random_numbers_of_its_own(environment: dict[str, str], course: Path) -> None:
    draw = "import random, numpy, torch; print(random.random(), numpy.random.rand(), torch.rand(1).item())"
    draws = []
    for _ in range(2):
        with kernel(environment, course) as opened:
            draws.append(opened.run(draw).split())
    assert all(one != other for one, other in zip(*draws, strict=True))


@pytest.mark.parametrize("changes", [{"SOMETHING": "else"}, {DOOR: "/nowhere/fork-server"}])
def test_with_another_environment_or_no_server_it_is_an_ordinary_one(
    environment: dict[str, str], course: Path, changes: dict[str, str]
) -> None:
    with kernel(environment, course) as opened:
        assert opened.run(f"print({FORKED})") == "True"
    with kernel({**environment, **changes}, course) as opened:
        assert opened.run(f"print({FORKED})") == "False"


def test_an_interrupt_ends_the_cell_and_not_the_kernel(environment: dict[str, str], course: Path) -> None:
    with kernel(environment, course) as opened:
        started = course / "started"
        waiting = opened.client.execute(f"open({str(started)!r}, 'w').close()\nimport time\ntime.sleep(600)")
        until(started.exists, "the cell has begun")
        opened.manager.interrupt_kernel()
        reply = reply_to(opened, waiting)
        assert reply["content"]["ename"] == "KeyboardInterrupt"
        assert opened.run("print(6 * 7)") == "42"


def reply_to(opened: Kernel, message: str) -> dict[str, Any]:
    while True:
        reply: dict[str, Any] = opened.client.get_shell_msg(timeout=LIMIT_S)
        if reply["parent_header"].get("msg_id") == message:
            return reply


CHILD = """\
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print(os.getpid(), child.pid)"""


def test_when_it_is_killed_its_children_end(environment: dict[str, str], course: Path) -> None:
    with kernel(environment, course) as opened:
        pids = [int(word) for word in opened.run(CHILD).split()]
        opened.manager.shutdown_kernel(now=True)
        until(lambda: not any(is_alive(pid) for pid in pids), "kernel and child are gone")


def test_when_it_dies_jupyter_is_told_how(environment: dict[str, str], course: Path) -> None:
    with kernel(environment, course) as opened:
        pid = int(opened.run("import os; print(os.getpid())"))
        process = opened.manager.provisioner.process  # type: ignore[union-attr]
        os.kill(pid, 9)
        until(lambda: process.poll() is not None, "Jupyter sees the end")
        assert process.returncode == 128 + 9


def test_what_it_registered_for_its_end_is_done(environment: dict[str, str], course: Path) -> None:
    with kernel(environment, course) as opened:
        opened.run(f"import atexit; from pathlib import Path; atexit.register(Path({str(course / 'end')!r}).touch)")
    until((course / "end").exists, "its end was told")


def is_alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
