"""Forked kernels are kernels like others, and none outlives the process that it was forked from."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from jupyter_client.manager import KernelManager
from jupyter_client.provisioning.factory import KernelProvisionerFactory

from waiting import until
from warm_kernels import PREFIX, ForkedKernel, WarmProcess, WarmProvisioner, fork, told_to_others, warm_kernels

LIMIT_S = 60
WHO = """
import os, signal, subprocess, sys
print([os.getppid(), os.getsid(0) == os.getpid(), os.getcwd(), os.environ["MARK"], "colorsys" in sys.modules,
       subprocess.run(["sh", "-c", "exit 7"]).returncode, signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL])
"""


@pytest.fixture
def warm(monkeypatch: pytest.MonkeyPatch) -> Iterator[WarmProcess]:
    factory = KernelProvisionerFactory.instance()
    monkeypatch.setattr(factory, "default_provisioner_name", factory.default_provisioner_name)
    monkeypatch.setattr(factory, "provisioners", dict(factory.provisioners))
    source = warm_kernels(["colorsys", "pandas"])
    if source is None:
        pytest.skip("no kernel is forked where a GPU is")
    yield source
    source.close()


def output(client: Any, code: str) -> str:
    """What a cell prints."""
    printed: list[str] = []
    reply = client.execute_interactive(
        code, timeout=LIMIT_S, output_hook=lambda message: printed.append(str(message["content"].get("text", "")))
    )
    assert reply["content"]["status"] == "ok", reply
    return "".join(printed)


def test_a_forked_kernel_is_a_kernel_of_its_own(warm: WarmProcess, tmp_path: Path) -> None:
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(cwd=str(tmp_path), env=os.environ | {"MARK": "one", "IPYTHONDIR": str(tmp_path)})
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=LIMIT_S)
        assert isinstance(manager.provisioner, WarmProvisioner)
        said = output(client, WHO).strip()
        assert said == str([warm.pid, True, str(tmp_path), "one", True, 7, True])
        # A table's columns: as many as the terminal is wide, where pandas takes a terminal for what it is imported in.
        assert int(output(client, "import pandas; print(pandas.get_option('display.max_columns'))")) > 0
        assert output(client, "import IPython; print(IPython.get_ipython() is get_ipython())").strip() == "True"
        output(client, "x = 1")
        manager.restart_kernel(now=True)
        client.wait_for_ready(timeout=LIMIT_S)
        assert output(client, "print('x' in globals())").strip() == "False"
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert not manager.is_alive()


def test_a_kernel_ends_with_the_process_that_it_was_forked_from(warm: WarmProcess, tmp_path: Path) -> None:
    env = os.environ | {"IPYTHONDIR": str(tmp_path)}
    kernel = ForkedKernel(fork(warm.address, ["-f", str(tmp_path / "connection.json")], env, str(tmp_path)))
    until((tmp_path / "connection.json").exists, "the kernel writes its ports")
    assert kernel.poll() is None
    psutil.Process(warm.pid).kill()
    until(lambda: kernel.poll() is not None, "the kernel ends")


ASK = """
import sys, time
from jupyter_client.manager import KernelManager
manager = KernelManager(kernel_name="python3")
manager.start_kernel()
print(manager.provisioner.pid, flush=True)
time.sleep(600)
"""


def test_another_process_is_told_where_and_its_kernel_ends_with_it(warm: WarmProcess, tmp_path: Path) -> None:
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    env = os.environ | {"PYTHONPATH": paths, "IPYTHONDIR": str(tmp_path)} | told_to_others(warm.address, tmp_path)
    with subprocess.Popen([sys.executable, "-c", ASK], env=env, stdout=subprocess.PIPE, text=True) as asker:
        assert asker.stdout is not None
        kernel = psutil.Process(int(asker.stdout.readline()))
        assert kernel.ppid() == warm.pid
        asker.kill()
    until(lambda: not kernel.is_running(), "the kernel ends")


def test_the_command_of_a_kernel_is_the_one_that_is_read_here() -> None:
    spec = KernelManager(kernel_name="python3").kernel_spec
    assert spec is not None and tuple(spec.argv[1:3]) == PREFIX
