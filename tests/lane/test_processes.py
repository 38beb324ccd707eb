"""Commands are shown, streamed and logged; ports are looked at before they are given out."""

import os
import shlex
import socket
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from playbook.course.kernel_env import interactive_environment
from serving_base.errors import CommandFailed, EnvironmentProblem
from serving_base.processes import (
    CHANGED,
    KEPT,
    free_port,
    merged_environment,
    shell_line,
    start_guarded,
    stream_command,
    users_environment,
)


def python(code: str, *args: str) -> list[str]:
    return [sys.executable, "-c", code, *args]


def test_the_preferred_port_is_given_when_free() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert free_port(port) == port


def test_a_taken_port_is_replaced_and_named_when_strict() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert free_port(port) not in (0, port)
        with pytest.raises(EnvironmentProblem, match=rf"port {port} is taken by .*pid {os.getpid()}"):
            free_port(port, strict=True)


def test_a_port_shared_by_reuseport_counts_as_taken() -> None:
    """gRPC servers listen with SO_REUSEPORT: a second one would bind without complaint and steal requests."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        assert free_port(port) != port


def test_a_port_already_promised_is_not_given_twice() -> None:
    port = free_port()
    assert free_port(port, taken=[port]) != port


def test_a_command_is_shown_streamed_and_logged(tmp_path: Path) -> None:
    seen: list[str] = []
    log = tmp_path / "logs" / "two.log"
    argv = python("import sys; print('one'); print('two', file=sys.stderr)", "a b")
    result = stream_command(argv, log_path=log, echo=seen.append)
    assert seen[0] == f"$ {shlex.join(argv)}"
    assert sorted(seen[1:]) == ["one", "two"]
    assert sorted(log.read_text().split()) == ["one", "two"]
    assert sorted(result.tail.split()) == ["one", "two"]


def test_the_line_shown_can_be_pasted_into_a_shell(tmp_path: Path) -> None:
    code = "import os, sys; print(os.getcwd(), os.environ['WORD'], os.environ.get('GONE'), sys.argv[1])"
    line = shell_line(python(code, "$HOME; it's"), env={"WORD": "two words", "GONE": None}, cwd=tmp_path)
    environment = os.environ | {"GONE": "x"}
    shown = subprocess.run(["sh", "-c", line], env=environment, capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == f"{tmp_path} two words None $HOME; it's"


def test_a_secret_is_shown_by_name_only() -> None:
    assert shell_line(["true"], env={"HF_TOKEN": "hf_abc"}) == 'HF_TOKEN="$HF_TOKEN" true'


def test_a_failing_command_raises_with_its_last_lines_and_log(tmp_path: Path) -> None:
    log = tmp_path / "fail.log"
    with pytest.raises(CommandFailed, match="exit status 3") as caught:
        stream_command(python("print('out of luck'); raise SystemExit(3)"), log_path=log, echo=lambda _: None)
    assert caught.value.returncode == 3
    assert caught.value.log_path == log
    assert "out of luck" in caught.value.why
    assert str(log) in caught.value.fix


def test_a_command_past_its_time_is_stopped() -> None:
    started = time.monotonic()
    with pytest.raises(CommandFailed, match=r"longer than 0\.5 s"):
        stream_command(python("import time; time.sleep(60)"), timeout_s=0.5, echo=lambda _: None)
    assert time.monotonic() - started < 15


def test_shell_characters_are_plain_text() -> None:
    seen: list[str] = []
    stream_command(python("import sys; print(sys.argv[1])", "$(echo no) `echo no` ; echo no"), echo=seen.append)
    assert seen[1] == "$(echo no) `echo no` ; echo no"


def test_a_missing_program_is_an_error_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="no-such-program"):
        start_guarded(["no-such-program"], log_path=tmp_path / "log")
    assert not (tmp_path / "log").exists()


def test_leaving_the_with_block_ends_the_process(tmp_path: Path) -> None:
    with start_guarded(python("import time; time.sleep(600)"), log_path=tmp_path / "log") as process:
        pid = process.pid
        assert process.poll() is None
    assert process.returncode is not None
    assert not psutil.pid_exists(pid)


def test_environment_none_removes_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAYBOOK_TEST_GONE", "1")
    merged = merged_environment({"PLAYBOOK_TEST_GONE": None, "PLAYBOOK_TEST_NEW": "2"})
    assert "PLAYBOOK_TEST_GONE" not in merged
    assert merged["PLAYBOOK_TEST_NEW"] == "2"


def test_the_machines_tools_get_their_users_environment_in_kernels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`python3` is then the user's own, with tensorrt_llm, and not the course's, also in a kernel below a kernel."""
    monkeypatch.delenv("PYTHONNOUSERSITE", raising=False)
    monkeypatch.setenv("PYTHONPATH", "/opt/mine")
    mine = dict(os.environ)
    assert users_environment() == mine
    for _ in range(2):
        for name, value in interactive_environment().items():
            monkeypatch.setenv(name, value)
        assert os.environ["PATH"] != mine["PATH"] and os.environ["PYTHONNOUSERSITE"] == "1"
        found = users_environment()
        assert {name: found.get(name) for name in CHANGED} == {name: mine.get(name) for name in CHANGED}
        assert not any(name.startswith(KEPT) for name in found)


def test_jupyterlab_asks_nobody_whether_it_may_fetch_news(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plugin is off, and JupyterLab has a plugin of that name."""
    from jupyterlab_server.config import get_page_config

    news = "@jupyterlab/apputils-extension:announcements"
    found = find_spec("jupyterlab")
    assert found and found.origin
    static = Path(found.origin).parent / "static"
    assert any(news in script.read_text(encoding="utf-8") for script in static.glob("jlab_core*.js"))
    assert news not in get_page_config([]).get("disabledExtensions", [])
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", interactive_environment()["JUPYTER_CONFIG_PATH"])
    assert news in get_page_config([])["disabledExtensions"]


def test_jupyterlab_finds_the_extension_that_gives_figures_their_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the extensions of the environment; what it does is driven in a browser (tests/course/test_themes.py)."""
    from jupyter_core.paths import jupyter_path
    from jupyterlab_server.config import get_federated_extensions

    for name, value in interactive_environment().items():
        monkeypatch.setenv(name, value)
    found = get_federated_extensions(jupyter_path("labextensions"))
    own = found["figure_texts"]
    script = Path(own["ext_path"], own["jupyterlab"]["_build"]["load"]).read_text(encoding="utf-8")
    assert '_JUPYTERLAB["figure_texts"]' in script  # under its name JupyterLab asks for it
    assert "@jupyter-widgets/jupyterlab-manager" in found
