"""The interpreter that has NVIDIA's compiler, and its version: the course's own environment never does."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from serving_base.errors import EnvironmentProblem

PYTHON = "PLAYBOOK_COMPILER_PYTHON"
TESTED = "1.7.1.116"
"""The one version whose layer list :mod:`trt_compiler.steps` was written against; its form is no stable interface."""
FIX = "run: python3 playbook/bootstrap.py --envs compiler (96 MB of NVIDIA's, under the NVIDIA TensorRT SLA)"


@dataclass(frozen=True)
class CompilerInstallation:
    """An interpreter that imports NVIDIA's compiler, and the compiler's version."""

    python: Path
    version: str


def find_compiler(python: Path | None = None) -> CompilerInstallation:
    """Ask ``python``, else ``$PLAYBOOK_COMPILER_PYTHON``, else that of ``.envs/compiler``.

    Raises :class:`EnvironmentProblem` with the command that makes the environment.
    """
    chosen = python or compiler_python()
    code = "import tensorrt_rtx_bindings as trt; print(trt.__version__)"
    try:
        done = subprocess.run([chosen, "-I", "-c", code], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    except OSError as error:
        raise EnvironmentProblem(f"{chosen} does not run", why=str(error), fix=FIX) from error
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        raise EnvironmentProblem(f"{chosen} has no NVIDIA compiler", why=last[0], fix=FIX)
    version = done.stdout.strip()
    if version != TESTED:
        why = "the compiler prints its layers in a form that may change with each version"
        raise EnvironmentProblem(f"{chosen} has TensorRT-RTX {version}, and {TESTED} is needed", why=why, fix=FIX)
    return CompilerInstallation(chosen, version)


def compiler_python() -> Path:
    """The interpreter that would be asked. Raises :class:`EnvironmentProblem` when there is none."""
    given = os.environ.get(PYTHON)
    if given:
        return Path(given)
    place = Path(".envs", "compiler", "bin", "python")
    found = next((root / place for root in (Path(__file__).parents[2], Path.cwd()) if (root / place).exists()), None)
    if found is None:  # the notebook keeps this sentence: no path of one machine
        raise EnvironmentProblem("NVIDIA's compiler is not installed", why=f"there is no {place}", fix=FIX)
    return found


def absence() -> str:
    """Why nothing can be compiled here, with the command that changes it; empty where the compiler is."""
    try:
        find_compiler()
    except EnvironmentProblem as problem:
        return str(problem)
    return ""
