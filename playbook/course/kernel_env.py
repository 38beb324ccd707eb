"""The environment that the course's kernels get: this interpreter, this package, quiet and repeatable libraries."""

import os
import sys
from pathlib import Path

import playbook
import serving_base
from playbook.lanes.base import ELSEWHERE
from playbook.stages import WORKSPACE_VARIABLE
from serving_base.processes import kept_for_the_user

SAGEMAKER_CONFIG = """\
SchemaVersion: '1.0'
SageMaker:
  PythonSDK:
    Modules:
      TelemetryOptOut: true
"""

# ipykernel 7 warns at every start that the loopback is not encrypted.
KERNEL_CONFIG = "c.IPKernelApp.log_level = 'ERROR'\n"
JUPYTER = Path(__file__).resolve().parents[1] / "data" / "jupyter"
"""JupyterLab asks nobody whether it may fetch news from the internet, and fetches none."""
IMPORTS = "PLAYBOOK_IMPORTS"
# Runs in the kernel before its first cell, and leaves no name there. What is not installed, no cell imports.
STARTUP = f"""\
def _import():
    import gc, importlib.util, os, pkgutil
    elsewhere = os.environ.get("{ELSEWHERE}", "").split()
    gc.disable()  # a library's names are all kept: looking for garbage among them is a sixth of the time
    try:
        for name in os.environ.get("{IMPORTS}", "").split():
            package = name.partition(".")[0]
            if package not in elsewhere and importlib.util.find_spec(package):
                pkgutil.resolve_name(name)
    finally:
        gc.enable()

_import()
del _import
"""


def interactive_environment() -> dict[str, str]:
    """Additions to the environment for kernels that a person drives in JupyterLab."""
    ours = [str(Path(str(package.__file__)).resolve().parents[1]) for package in (playbook, serving_base)]
    return kept_for_the_user() | {
        # The kernel imports the packages that run it, and finds the tools of the same environment first.
        "PYTHONPATH": os.pathsep.join([*ours, *_entries("PYTHONPATH")]),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), *_entries("PATH")]),
        "PYTHONNOUSERSITE": "1",
        "PYTHONDONTWRITEBYTECODE": "",  # empty is unset: a container's setting would compile torch anew in each kernel
        # `python3` must mean this interpreter even if the user has installed another kernel under that name.
        "JUPYTER_PATH": os.pathsep.join([str(Path(sys.prefix, "share", "jupyter")), str(JUPYTER)]),
        "JUPYTER_CONFIG_PATH": os.pathsep.join([str(JUPYTER), *_entries("JUPYTER_CONFIG_PATH")]),
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        "CI": "true",  # OpenVINO's telemetry heeds this and nothing else
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }


def kernel_environment(*, workspace: Path, scratch: Path) -> dict[str, str]:
    """Additions to the environment for headless kernels. `scratch` holds their configuration and runtime files."""
    sagemaker = scratch / "sagemaker.yml"
    sagemaker.write_text(SAGEMAKER_CONFIG, encoding="utf-8")
    kernel_config = scratch / "ipython" / "profile_default" / "ipython_kernel_config.py"
    kernel_config.parent.mkdir(parents=True)
    kernel_config.write_text(KERNEL_CONFIG, encoding="utf-8")
    startup = kernel_config.parent / "startup" / "imports.py"
    startup.parent.mkdir()
    startup.write_text(STARTUP, encoding="utf-8")
    return interactive_environment() | {
        "PLAYBOOK_HEADLESS": "1",
        WORKSPACE_VARIABLE: str(workspace),
        # No start-up file of the user's may change what a chapter computes.
        "JUPYTER_CONFIG_DIR": str(scratch / "jupyter"),
        "JUPYTER_RUNTIME_DIR": str(scratch / "runtime"),
        "IPYTHONDIR": str(scratch / "ipython"),
        "SAGEMAKER_USER_CONFIG_OVERRIDE": str(sagemaker),
    }


def _entries(name: str) -> list[str]:
    """A path variable's entries, made absolute, because kernels run in another directory."""
    return [str(Path(entry).absolute()) for entry in os.environ.get(name, "").split(os.pathsep) if entry]
