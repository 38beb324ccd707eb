"""Do the tests bite? Seeds one fault at a time into a copy of the project and runs the tests that must catch it.

    python tests/mutation/run.py [NAME ...]   # all of faults.yml by default; exit status 1 if one is not caught

Each entry of ``faults.yml``: ``file`` (below the project's root), ``find`` (stands there once), ``put`` in its place,
and ``tests``, the files of which at least one test has to fail. Where ``file`` is not there the text is looked for in
all code, so that the list also judges an older state of the project (``--project DIR``).
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("playbook", "packages", "tests", "conftest.py", "pyproject.toml")
LINKED = ("notebooks", "benchmarks", "docs", "README.md", "CONTRIBUTING.md", "Makefile", "environment.yml", ".github")
COLLECTION_FAILED = (2, 3, 4, 5)  # pytest's exit statuses that say nothing of the fault


@dataclass(frozen=True)
class Fault:
    """One wrong line and the tests that have to see it."""

    name: str
    file: str
    find: str
    put: str
    tests: tuple[str, ...]


def faults(path: Path = ROOT / "tests" / "mutation" / "faults.yml") -> list[Fault]:
    sys.path.insert(0, str(ROOT / "packages"))
    from serving_base.yaml_files import read_yaml

    return [Fault(name, **{**entry, "tests": tuple(entry["tests"])}) for name, entry in read_yaml(path).items()]


def copied(project: Path, folder: Path) -> Path:
    """The project's own files, so that a fault never gets into the checkout."""
    for name in COPIED:
        if (project / name).is_dir():
            shutil.copytree(project / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif (project / name).is_file():
            shutil.copy(project / name, folder)
    for name in LINKED:
        if (project / name).exists():
            (folder / name).symlink_to(project / name)
    return folder


def place(fault: Fault, copy: Path) -> Path:
    """The one file that holds the text. :class:`ValueError` for a fault that fits nowhere, or twice."""
    candidates = [copy / fault.file] if (copy / fault.file).is_file() else list(code(copy))
    found = [path for path in candidates if path.read_text(encoding="utf-8").count(fault.find) == 1]
    if len(found) != 1:
        raise ValueError(f"{fault.name}: its text stands in {len(found)} places; mend faults.yml")
    return found[0]


def code(copy: Path) -> Iterator[Path]:
    for name in ("playbook", "packages"):
        yield from (copy / name).rglob("*.py")


def caught(fault: Fault, copy: Path, python: str) -> bool:
    """Whether a test fails with the fault; the file is as before in the end."""
    path = place(fault, copy)
    sound = path.read_text(encoding="utf-8")
    path.write_text(sound.replace(fault.find, fault.put), encoding="utf-8")
    try:
        return failing(fault.tests, copy, python)
    finally:
        path.write_text(sound, encoding="utf-8")


def failing(tests: tuple[str, ...], copy: Path, python: str) -> bool:
    found = [str(path) for name in tests for path in sorted((copy / "tests").rglob(name))]
    argv = [python, "-m", "pytest", "-q", "-x", "-n0", "-p", "no:cacheprovider", "--no-header", *found]
    environ = os.environ | {"PYTHONPATH": f"{copy}{os.pathsep}{copy / 'packages'}", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(argv, cwd=copy, env=environ, capture_output=True, text=True, check=False)
    if done.returncode in COLLECTION_FAILED and "error" not in done.stdout:
        raise ValueError(f"{tests}: pytest ended with {done.returncode}\n{done.stdout[-500:]}{done.stderr[-500:]}")
    return done.returncode != 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="faults; all by default")
    parser.add_argument("--project", type=Path, default=ROOT, help="the state that is judged")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that runs its tests")
    given = parser.parse_args()
    chosen = [fault for fault in faults() if not given.names or fault.name in given.names]
    missed = 0
    with tempfile.TemporaryDirectory() as scratch:
        copy = copied(given.project.resolve(), Path(scratch))
        for fault in chosen:
            started = time.monotonic()
            try:
                verdict = "caught" if caught(fault, copy, given.python) else "NOT CAUGHT"
            except ValueError as error:
                verdict = f"NOT JUDGED: {error}"
            missed += verdict != "caught"
            print(f"{fault.name:45} {verdict}  ({time.monotonic() - started:.0f} s)", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} caught")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
