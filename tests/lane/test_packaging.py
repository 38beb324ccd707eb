"""What is installed is what is locked, what is locked is what is declared, and the package is whole."""

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from playbook.bootstrap import SUPPORTED

ROOT = Path(__file__).parents[2]
LOCKS = ROOT / "playbook" / "locks"
OTHER_ENVIRONMENTS = {
    "triton": Path(os.environ.get("PLAYBOOK_TRITON_ENV") or ROOT / ".envs" / "triton"),
    "aiperf": Path(os.environ.get("PLAYBOOK_AIPERF_ENV") or ROOT / ".envs" / "aiperf"),
}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
# torch's CUDA build requires them, its CPU build does not: it depends on the machine whether they are missed
CUDA_PACKAGES = {
    "cuda-bindings",
    "cuda-toolkit",
    "nvidia-cudnn-cu13",
    "nvidia-cusparselt-cu13",
    "nvidia-nccl-cu13",
    "nvidia-nvshmem-cu13",
    "triton",
}

in_the_course_environment = pytest.mark.skipif(
    Path(sys.prefix) != ROOT / ".venv", reason="says something of .venv, and another Python runs the tests"
)
each_lock = pytest.mark.parametrize("lock", ["course", *OTHER_ENVIRONMENTS])
each_environment = pytest.mark.parametrize(
    "lock", [pytest.param("course", marks=in_the_course_environment), *OTHER_ENVIRONMENTS]
)


def pin_lines(lock: str) -> list[str]:
    return [line for line in (LOCKS / f"{lock}.txt").read_text().splitlines() if line and not line.startswith("#")]


def pins(lock: str) -> dict[str, str]:
    return dict(line.split("==") for line in pin_lines(lock))


def omitted(lock: str) -> set[str]:
    lines = re.findall(r"^# omitted: (.+?)(?:  +\(.*)?$", (LOCKS / f"{lock}.txt").read_text(), re.MULTILINE)
    return {name for line in lines for name in line.split()}


def installed(lock: str) -> dict[str, Distribution]:
    """The distributions of the environment of a lock, by normalized name."""
    environment = OTHER_ENVIRONMENTS.get(lock, Path(sys.prefix))
    # not sys.path: setuptools, once imported, adds the packages that it brings along
    path = [str(folder) for folder in environment.glob("lib/python3.*/site-packages")]
    if not path:
        pytest.skip(f"{environment} is not there")
    return {canonicalize_name(distribution.name): distribution for distribution in distributions(path=path)}


def declared() -> list[Requirement]:
    """What the project, its tests and its build require."""
    dev, build = PROJECT["dependency-groups"]["dev"], PROJECT["build-system"]["requires"]
    extras = [
        line for name in ("bench", "cloud", "course") for line in PROJECT["project"]["optional-dependencies"][name]
    ]
    lines = [*PROJECT["project"]["dependencies"], *extras, *dev, *build]
    return [Requirement(line) for line in lines if not line.startswith(PROJECT["project"]["name"])]


def required(lock: str) -> list[tuple[str, Requirement]]:
    """Every (who, what) required in an environment, directly or not, extras and this machine's markers observed."""
    here, seen = installed(lock), set()
    roots = declared() if lock == "course" else [Requirement(line) for line in pin_lines(lock)]
    found = [("the project", root) for root in roots]
    for _, requirement in found:  # grows while it is walked
        name = canonicalize_name(requirement.name)
        for extra in ("", *requirement.extras):
            if (name, extra) not in seen and name in here:
                seen.add((name, extra))
                lines = [Requirement(line) for line in here[name].requires or []]
                found += [(name, line) for line in lines if not line.marker or line.marker.evaluate({"extra": extra})]
    return found


# --- the locks


@each_lock
def test_every_line_of_a_lock_is_one_exact_version(lock: str) -> None:
    lines = pin_lines(lock)
    assert lines == sorted(lines, key=lambda line: line.split("==")[0])
    assert len(pins(lock)) == len(lines)
    for line in lines:
        assert re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.]*", line), f"{line}: a name, == and a version without local tag"


@each_environment
def test_the_environment_satisfies_its_lock(lock: str) -> None:
    here = {name: distribution.version.split("+")[0] for name, distribution in installed(lock).items()}
    wrong = {name: (version, here.get(name)) for name, version in pins(lock).items() if here.get(name) != version}
    assert wrong == {}, "(locked, installed)"


@each_environment
def test_a_lock_holds_all_that_is_required_but_what_it_omits(lock: str) -> None:
    locked, left_out = pins(lock), omitted(lock)
    unmet, used = [], set()
    for who, requirement in required(lock):
        needed = canonicalize_name(requirement.name)
        if needed in left_out:
            used.add(needed)
        elif needed not in locked or not requirement.specifier.contains(locked[needed], prereleases=True):
            unmet.append(f"{who} requires {requirement}, locked: {locked.get(needed)}")
    assert unmet == []
    assert left_out - used - CUDA_PACKAGES == set(), "omitted, but nothing requires it"


@each_environment
def test_a_lock_holds_nothing_that_nobody_requires(lock: str) -> None:
    reached = {canonicalize_name(requirement.name) for _, requirement in required(lock)}
    assert set(pins(lock)) - reached == set()


@each_lock
def test_what_a_lock_omits_is_not_locked(lock: str) -> None:
    assert omitted(lock)
    assert (omitted(lock) | CUDA_PACKAGES | {"openvino-telemetry"}) & set(pins(lock)) == set()


def test_the_course_lock_is_within_the_declared_ranges() -> None:
    locked = pins("course")
    for line in declared():
        assert line.specifier.contains(locked[canonicalize_name(line.name)], prereleases=True), line


def test_the_locks_differ_only_where_the_server_must() -> None:
    course, triton = pins("course"), pins("triton")
    assert {name for name in course.keys() & triton.keys() if course[name] != triton[name]} == {"numpy"}
    assert triton["numpy"].startswith("1.")


def test_the_load_generators_lock_differs_only_where_aiperf_pins_another_release() -> None:
    course, aiperf = pins("course"), pins("aiperf")
    differing = {name for name in course.keys() & aiperf.keys() if course[name] != aiperf[name]}
    wanted = {canonicalize_name(line.name): line.specifier for line in requirements_of("aiperf", "aiperf")}
    assert differing == {"jmespath", "pillow", "psutil", "pyzmq", "rich"}
    assert [name for name in differing if wanted[canonicalize_name(name)].contains(course[name])] == []


def requirements_of(lock: str, name: str) -> list[Requirement]:
    return [Requirement(line) for line in installed(lock)[name].requires or []]


@each_environment
def test_every_locked_package_allows_the_oldest_patch_of_python_3_11(lock: str) -> None:
    """Debian 12 ships 3.11.2: a package for 3.11.5 and later would end set-up there."""
    here = installed(lock)
    wanted = {name: here[name].metadata.get_all("Requires-Python") or [""] for name in pins(lock)}
    allowed = {name: SpecifierSet(specifier) for name, (specifier,) in wanted.items()}
    assert [name for name in allowed if "3.11.0" not in allowed[name]] == []


def test_only_the_python_that_is_tested_is_allowed() -> None:
    allowed = SpecifierSet(PROJECT["project"]["requires-python"])
    versions = [(3, minor) for minor in range(9, 16) if f"3.{minor}.0" in allowed]
    names = [f"Programming Language :: Python :: {major}.{minor}" for major, minor in versions]
    assert tuple(versions) == SUPPORTED == ((3, 11),)
    assert [line for line in PROJECT["project"]["classifiers"] if ":: Python ::" in line] == names
    for page in ("README.md", "docs/teaching.md", "docs/first-hour-on-a-p5.md"):
        assert set(re.findall(r"(?<=Python )3\.\d+", (ROOT / page).read_text())) <= {"3.11"}, page


@in_the_course_environment
def test_telemetry_and_tensorrt_llm_are_not_installed() -> None:
    for module in ("openvino_telemetry", "tensorrt_llm", "tensorrt"):
        assert importlib.util.find_spec(module) is None
    assert [Requirement(line).name for line in PROJECT["project"]["optional-dependencies"]["gpu"]] == ["tensorrt-llm"]
    assert "tensorrt-llm" not in {line.name for line in declared()}


# --- conda


def conda_pip_lines() -> list[str]:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    return next(entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict))


def test_environment_yml_is_in_step_with_the_project() -> None:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    python = next(entry for entry in environment["dependencies"] if str(entry).startswith("python="))
    assert f"{python.removeprefix('python=')}.0" in SpecifierSet(PROJECT["project"]["requires-python"])
    lines = conda_pip_lines()
    assert "--requirement playbook/locks/course.txt" in lines
    assert f"torch=={pins('course')['torch']}+cpu" in lines
    assert "--editable ." in lines


@in_the_course_environment
@pytest.mark.parametrize("no_deps", ["1", "0"])
def test_pip_takes_environment_yml_as_conda_hands_it_over(no_deps: str, tmp_path: Path) -> None:
    """As its head says: satisfied by the lock with PIP_NO_DEPS=1, and not without."""
    version = installed("course")["torch"].version
    lines = [line for line in conda_pip_lines() if not line.startswith(("--editable", "--extra-index-url"))]
    handed = [line if not line.startswith("torch==") else f"torch=={version}" for line in lines]
    requirements_file = tmp_path / "conda.txt"
    requirements_file.write_text("\n".join(handed).replace("playbook/locks", str(LOCKS)))
    argv = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-index", "--requirement", str(requirements_file)]
    environ = os.environ | {"PIP_NO_DEPS": no_deps, "PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": ""}
    done = subprocess.run(argv, capture_output=True, text=True, env=environ, check=False)
    if no_deps == "1":
        assert done.returncode == 0, done.stderr
        assert "Would install" not in done.stdout
    else:
        assert done.returncode != 0
        assert "No matching distribution" in done.stderr


# --- the package and the files around it


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's own files, copied: building leaves folders beside them."""
    source = tmp_path_factory.mktemp("source")
    unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for folder in ("playbook", "packages"):
        shutil.copytree(ROOT / folder, source / folder, ignore=unwanted)
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, source)
    (source / "tests").mkdir()
    (source / "tests" / "test_x.py").touch()
    return source


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    argv = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(folder)]
    subprocess.run([*argv, str(source)], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


@in_the_course_environment
def test_a_wheel_holds_every_file_of_the_packages(source: Path, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    files = [path for name in ("playbook", "packages") for path in (source / name).rglob("*") if path.is_file()]
    expected = {path.relative_to(source).as_posix().removeprefix("packages/") for path in files}
    assert packed == expected
    assert "tiny_llama/model/model.safetensors" in packed


@pytest.fixture(scope="module")
def core(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``pip install`` of the wheel without extras puts into an empty environment, and nothing else."""
    site = tmp_path_factory.mktemp("core")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    todo = [Requirement(line) for line in PROJECT["project"]["dependencies"]]
    for requirement in todo:  # grows while it is walked
        installed_here = distribution(requirement.name)
        for name in {path.parts[0] for path in installed_here.files or () if path.parts[0] != ".."}:
            if not (site / name).exists():
                (site / name).symlink_to(Path(str(installed_here.locate_file(name))))
        lines = [Requirement(line) for line in installed_here.requires or []]
        todo += [line for line in lines if not line.marker or line.marker.evaluate({"extra": ""})]
    assert len(PROJECT["project"]["dependencies"]) <= 10  # tree-sitter and its bash grammar among them
    return site


def run_core(core: Path, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-S", "-m", "playbook", *words]
    environ = {"PYTHONPATH": str(core), "PYTHONDONTWRITEBYTECODE": "1", "PATH": os.environ["PATH"]}
    return subprocess.run(argv, input=text, capture_output=True, text=True, env=environ, cwd=core, check=False)


@in_the_course_environment
def test_the_core_alone_checks(core: Path) -> None:
    done = run_core(
        core, "check", "-", "--release", "0.12.0", text="trtllm-build --checkpoint_dir c --max_output_len 9\n"
    )
    assert done.returncode == 1, done.stderr
    assert "--max_output_len" in done.stdout and "--max_seq_len" in done.stdout


@in_the_course_environment
def test_the_core_alone_reads_configurations(core: Path, tmp_path: Path) -> None:
    (tmp_path / "config.pbtxt").write_text('name: "a"\nbackend "python"\n')
    done = run_core(core, "check", str(tmp_path), "--release", "0.12.0")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "config.pbtxt:2" in done.stdout and "Traceback" not in done.stderr


@in_the_course_environment
@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (
            ("plan", "--model", "llama-3-70b", "--gpu", "h100", "--gpus", "8", "--isl", "1024", "--osl", "256"),
            "tokens/s",
        ),
        (("explain", "--use_fp8_context_fmha"), "trtllm-build"),
        (("commands", "--profile", "p5", "--stage", "build"), "--workers 8"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_the_core_alone_answers(core: Path, words: tuple[str, ...], printed: str) -> None:
    done = run_core(core, *words)
    assert done.returncode == 0, done.stderr
    assert printed in done.stdout


@in_the_course_environment
def test_the_core_says_what_the_course_needs(core: Path) -> None:
    done = run_core(core, "run", "00")
    assert done.returncode == 3, done.stderr
    assert "llama3-fp8-playbook[course]" in done.stderr
    assert "Traceback" not in done.stderr


def test_every_target_but_setup_and_help_is_one_line_of_the_command_line() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = {
        name: body.strip().splitlines()
        for name, body in re.findall(r"^([a-z]+):.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    }
    assert set(targets) == {"help", "setup", "course", "test", "check", "docs", "book", "slides", "lab", "clean"}
    assert all(len(lines) == 1 for lines in targets.values())
    assert "playbook/bootstrap.py" in targets["setup"][0]
    called = {"course": "run", "check": "test"}
    for target in set(targets) - {"help", "setup"}:
        assert f"$(PLAYBOOK) {called.get(target, target)}" in targets[target][0]


def test_make_passes_the_profile_release_and_workspace_on() -> None:
    variables = ["PROFILE=p5", "RELEASE=0.12.0", "WORKSPACE=/data", "ARGS=02 --keep-going"]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    argv = ["make", "--dry-run", "course", *variables]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True, env=environ)
    command = done.stdout.splitlines()[-1].split()
    assert command[:2] == [".venv/bin/playbook", "run"]
    assert command[2:] == ["--profile", "p5", "--release", "0.12.0", "--workspace", "/data", "02", "--keep-going"]


def test_readme_names_exactly_the_chapters_that_exist() -> None:
    named = re.findall(r"\(notebooks/([^)]+\.ipynb)\)", (ROOT / "README.md").read_text())
    assert named == sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))


def test_readme_and_contributing_link_to_files_that_exist() -> None:
    for name in ("README.md", "CONTRIBUTING.md"):
        links = re.findall(r"\]\((?!https?:)([^)#]+)\)", (ROOT / name).read_text())
        assert [link for link in links if not (ROOT / link).exists()] == []


def test_a_codespace_sets_up_with_the_readmes_command_and_a_supported_python() -> None:
    made = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    assert made["onCreateCommand"] == "make setup"
    (python,) = re.findall(r":(3\.\d+)-", made["image"])
    assert f"{python}.0" in SpecifierSet(PROJECT["project"]["requires-python"])


def test_binder_sets_up_with_the_readmes_command_and_takes_the_courses_interpreter(tmp_path: Path) -> None:
    """``binder/postBuild`` runs in a copy with an interpreter that writes down what it is called with."""
    made = yaml.safe_load((ROOT / "binder" / "environment.yml").read_text())["dependencies"]
    assert made == [f"python={version}" for version in made_versions()]
    stand_in = tmp_path / ".venv" / "bin" / "python"
    stand_in.parent.mkdir(parents=True)
    stand_in.write_text('#!/bin/bash\necho "$(basename "$0") $*" >> calls\n')
    stand_in.chmod(0o755)
    stand_in.with_name("python3").symlink_to(stand_in)
    environ = {"PATH": f"{stand_in.parent}:{os.environ['PATH']}", "NB_PYTHON_PREFIX": "/srv/notebook"}
    subprocess.run([ROOT / "binder" / "postBuild"], cwd=tmp_path, check=True, env=environ)
    setup, kernel = (tmp_path / "calls").read_text().splitlines()
    assert setup == "python3 playbook/bootstrap.py --yes"
    assert "`python3 playbook/bootstrap.py`" in (ROOT / "README.md").read_text()
    assert kernel.startswith("python -m ipykernel install --prefix /srv/notebook --name python3 ")
    without = {"PATH": environ["PATH"]}
    assert subprocess.run([ROOT / "binder" / "postBuild"], cwd=tmp_path, env=without, capture_output=True).returncode


def made_versions() -> list[str]:
    return [".".join(map(str, version)) for version in SUPPORTED]


def test_ci_runs_the_readmes_test_command() -> None:
    run = ROOT / ".ci" / "run"
    assert os.access(run, os.X_OK)
    assert run.read_text().endswith('[ $# -gt 0 ] || set -- test\nexec make "$@"\n')


def test_ci_has_three_jobs_of_existing_targets_with_a_cache_of_the_locks_and_artifacts() -> None:
    job = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]["debian"]
    todo = {entry["job"]: shlex.split(entry["make"]) for entry in job["strategy"]["matrix"]["include"]}
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {name: words[0] for name, words in todo.items()} == {"check": "check", "lane": "test", "course": "test"}
    assert all(words[0] in targets and words[1].startswith("ARGS=") for words in todo.values())
    assert {"run": ".ci/run ${{ matrix.make }}"} in job["steps"]
    (cache,) = [step["with"] for step in job["steps"] if str(step.get("uses")).startswith("actions/cache@")]
    assert cache["path"] == job["env"]["PIP_CACHE_DIR"] and "playbook/locks/*.txt" in cache["key"]
    (kept,) = [step["with"]["path"] for step in job["steps"] if "upload-artifact" in str(step.get("uses"))]
    assert kept.split() == ["runs/junit-*.xml", "runs/*/report.html", "build/checker/index.html"]


def test_the_jobs_run_every_tier() -> None:
    """What `make check` leaves out, CI's other jobs run; and no test stands outside the tiers."""
    (fast,) = re.findall(r"\(PLAYBOOK\) test (tests/\w+) \$\(ARGS\)", (ROOT / "Makefile").read_text())
    rest = re.findall(r'ARGS="(tests/\w+) ', (ROOT / ".github" / "workflows" / "ci.yml").read_text())
    tiers = {path.parent.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")}
    assert sorted([fast, *rest]) == sorted(tiers)


def test_every_import_package_says_that_it_is_typed() -> None:
    packages = [ROOT / "playbook", *(path for path in (ROOT / "packages").iterdir() if (path / "__init__.py").exists())]
    named = {name.removesuffix("*") for name in PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]}
    assert {path.name for path in packages} == named
    assert [path.name for path in packages if not (path / "py.typed").exists()] == []


def test_the_changelog_has_the_version() -> None:
    sections = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert sections[0] == "Unreleased"
    assert sections[1].startswith(f"[{PROJECT['project']['version']}]")


def test_licence_is_apache_2() -> None:
    assert PROJECT["project"]["license"] == "Apache-2.0"
    assert "Apache License\n                           Version 2.0, January 2004" in (ROOT / "LICENSE").read_text()
