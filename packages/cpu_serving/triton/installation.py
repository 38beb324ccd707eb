"""Finds the Triton server of the nvidia-pytriton wheel, and lays out what it needs to run our models."""

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from serving_base.errors import EnvironmentProblem

ENVIRONMENT = "PLAYBOOK_TRITON_ENV"
DEFAULT_ENVIRONMENT = Path(".envs") / "triton"
BACKEND_MODEL = Path(__file__).parent / "backend" / "model.py"
INTERPRETER_FACTS = """
import importlib.util, json, sysconfig
print(json.dumps({
    "libdir": sysconfig.get_config_var("LIBDIR"),
    "library": sysconfig.get_config_var("INSTSONAME"),
    "shared": bool(sysconfig.get_config_var("Py_ENABLE_SHARED")),
    "version": sysconfig.get_python_version(),
    "wheel": importlib.util.find_spec("pytriton").submodule_search_locations[0],
}))
"""


@dataclass(frozen=True)
class TritonInstallation:
    """Where the server is: its Python environment, the wheel's tree, and that Python's shared library."""

    environment: Path
    wheel: Path
    python_version: str
    library_dir: Path

    @property
    def tree(self) -> Path:
        return self.wheel / "tritonserver"

    @property
    def binary(self) -> Path:
        return self.tree / "bin" / "tritonserver"

    @property
    def stub(self) -> Path:
        """The python backend's process, built for this Python version."""
        return self.tree / "python_backend_stubs" / self.python_version / "triton_python_backend_stub"


def find_installation(environment: Path | None = None) -> TritonInstallation:
    """Look into ``environment``, else ``$PLAYBOOK_TRITON_ENV``, else ``.envs/triton`` of the project or of the folder.

    Raises :class:`EnvironmentProblem` that names what is missing and the command that installs it.
    """
    root = environment or _default_environment()
    python = root / "bin" / "python"
    if not python.exists():
        raise EnvironmentProblem(
            f"no Triton environment in {root}", fix=f"run: python3 playbook/bootstrap.py, or set {ENVIRONMENT}"
        )
    result = subprocess.run([python, "-c", INTERPRETER_FACTS], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise EnvironmentProblem(
            f"{root} has no usable nvidia-pytriton",
            why=result.stderr.strip().splitlines()[-1] if result.stderr.strip() else "its python does not run",
            fix="run: python3 playbook/bootstrap.py",
        )
    facts = json.loads(result.stdout)
    library_dir = find_libpython(facts["libdir"], facts["library"], facts["version"], shared=facts["shared"])
    found = TritonInstallation(root, Path(facts["wheel"]), facts["version"], library_dir)
    if not found.stub.is_file():
        raise EnvironmentProblem(
            f"nvidia-pytriton has no stub for Python {facts['version']}", fix="make the environment with Python 3.11"
        )
    return found


def _default_environment() -> Path:
    given = os.environ.get(ENVIRONMENT)
    if given:
        return Path(given)
    candidates = [root / DEFAULT_ENVIRONMENT for root in (Path(__file__).parents[3], Path.cwd())]
    return next((path for path in candidates if path.is_dir()), candidates[0])


def find_libpython(libdir: str, library: str, version: str, *, shared: bool) -> Path:
    """The folder of the interpreter's own libpython; one of another patch version breaks multiprocessing."""
    if shared and (Path(libdir) / library).is_file():
        return Path(libdir)
    system = Path(libdir) / f"{os.uname().machine}-linux-gnu"
    wanted = f"libpython{version}.so.1.0"
    for folder in (Path(libdir), system):
        if (folder / wanted).is_file():
            return folder
    raise EnvironmentProblem(
        f"{wanted} is missing, so Triton's python backend cannot start",
        why=f"it is not in {libdir}; the wheel brings a stub that is linked against it",
        fix=f"run: sudo apt-get install libpython{version} (a Python of pyenv: build it with --enable-shared)",
    )


def assemble_backends(folder: Path, installation: TritonInstallation) -> None:
    """Lay out a backend directory: the wheel's python backend with its stub, and ours as ``tensorrtllm``.

    Copies: Triton refuses a library that a link leads out of its backend's folder. May be done again at any time.
    """
    shared = (installation.tree / "backends" / "python").iterdir()
    for source in (*(path for path in shared if path.is_file()), installation.stub):
        _put(source, folder / "python" / source.name)
    _put(BACKEND_MODEL, folder / "tensorrtllm" / BACKEND_MODEL.name)


def _put(source: Path, target: Path) -> None:
    """Copy by rename, so that another server that runs on ``target`` keeps the old file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.copy2(source, aside)
    aside.replace(target)


def server_environment(installation: TritonInstallation) -> dict[str, str | None]:
    """Additions to the environment: the stub runs the first ``python3`` on PATH, copies find no library beside them."""
    libraries = [installation.library_dir, installation.wheel.parent / "nvidia_pytriton.libs"]
    return {
        "PATH": f"{installation.environment.absolute() / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}",
        "LD_LIBRARY_PATH": os.pathsep.join(str(path) for path in libraries),
        "PYTHONPATH": None,
        "PYTHONHOME": None,
        "VIRTUAL_ENV": None,
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
