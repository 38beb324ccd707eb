"""Do the tests bite? Seeds one fault at a time into a copy of the project and runs the tests that must catch it.

    python tests/mutation/run.py [NAME ...]   # all of faults.yml by default; exit status 1 if one is not caught

Each entry of ``faults.yml``: ``file`` (below the project's root), ``find`` (stands there once), ``put`` in its place,
and ``tests``: files, or functions in them, of which one has to fail with the fault and to pass without it. ``before``:
what differs in commit f12fb95, when the project was one package; ``--before DIR`` judges a checkout of it. Where
``file`` is not there the text is looked for in all code. README.md has the results of both.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("playbook", "packages", "tests", "conftest.py", "pyproject.toml")
LINKED = ("notebooks", "benchmarks", "docs", "README.md", "CONTRIBUTING.md", "Makefile", "environment.yml", ".github")
NEW_SINCE = "no such code"  # ``before`` of a fault in what was not there yet


@dataclass(frozen=True)
class Fault:
    """One wrong line and the tests that have to see it."""

    name: str
    file: str
    find: str
    put: str
    tests: tuple[str, ...]


def faults(*, before: bool = False) -> list[Fault]:
    sys.path.insert(0, str(ROOT / "packages"))
    from serving_base.yaml_files import read_yaml

    entries: dict[str, dict[str, Any]] = read_yaml(Path(__file__).with_name("faults.yml"))
    differing = {name: entry.pop("before", {}) for name, entry in entries.items()}
    if before:
        entries = {name: entry | differing[name] for name, entry in entries.items() if differing[name] != NEW_SINCE}
    return [Fault(name, **entry) for name, entry in entries.items()]


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
        raise ValueError(f"its text stands in {len(found)} places; mend faults.yml")
    return found[0]


def code(copy: Path) -> Iterator[Path]:
    for name in ("playbook", "packages"):
        yield from (copy / name).rglob("*.py")


def catching(fault: Fault, copy: Path) -> str:
    """The first test that fails with the fault; "" if none does. The file is as before in the end."""
    path = place(fault, copy)
    sound = path.read_text(encoding="utf-8")
    path.write_text(sound.replace(fault.find, fault.put), encoding="utf-8")
    try:
        return next(iter(failing(named(fault.tests, copy), copy, "-x")), "")
    finally:
        path.write_text(sound, encoding="utf-8")


def named(tests: Iterable[str], copy: Path) -> Iterator[str]:
    """``test_x.py`` or ``test_x.py::test_y`` as pytest takes it, wherever the file is."""
    for test in tests:
        file, *function = test.split("::")
        yield from ("::".join([str(path), *function]) for path in (copy / "tests").rglob(file))


def failing(tests: Iterable[str], copy: Path, *options: str) -> list[str]:
    """Those of ``tests`` that fail. :class:`ValueError` if pytest did not get so far."""
    noted = copy / ".pytest_cache" / "v" / "cache" / "lastfailed"
    noted.unlink(missing_ok=True)
    environ = os.environ | {"PYTHONPATH": f"{copy}{os.pathsep}{copy / 'packages'}", "PYTHONDONTWRITEBYTECODE": "1"}
    argv = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:nbval", "--no-header", *options, *tests]
    done = subprocess.run(argv, cwd=copy, env=environ, capture_output=True, text=True, check=False)
    failed = list(json.loads(noted.read_text(encoding="utf-8"))) if noted.is_file() else []
    if bool(failed) != bool(done.returncode):
        raise ValueError(f"pytest ended with {done.returncode}\n{done.stdout[-500:]}{done.stderr[-500:]}")
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="faults; all by default")
    parser.add_argument("--before", type=Path, metavar="DIR", help="judge this checkout of f12fb95 instead")
    given = parser.parse_args()
    chosen = [one for one in faults(before=bool(given.before)) if not given.names or one.name in given.names]
    with tempfile.TemporaryDirectory() as scratch:
        copy = copied((given.before or ROOT).resolve(), Path(scratch))
        caught = {fault.name: told(fault, copy) for fault in chosen}
        unsound = failing(filter(None, caught.values()), copy) if any(caught.values()) else []
    for test in unsound:
        print(f"fails without a fault too, so it catches none: {test}")
    count = sum(bool(test) and test not in unsound for test in caught.values())
    print(f"{count} of {len(chosen)} caught")
    return 0 if count == len(chosen) else 1


def told(fault: Fault, copy: Path) -> str:
    started = time.monotonic()
    try:
        test = catching(fault, copy)
        verdict = f"caught by {test}" if test else "NOT CAUGHT"
    except ValueError as error:
        test, verdict = "", f"NOT JUDGED: {error}"
    print(f"{fault.name:34} {time.monotonic() - started:4.0f} s  {verdict}", flush=True)
    return test


if __name__ == "__main__":
    sys.exit(main())
