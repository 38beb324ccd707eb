"""report.html: one self-contained page about a run, and the facts of the machine that it ran on."""

import importlib.metadata
import json
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from playbook.course.runner import ChapterResult

TEMPLATE = Path(__file__).parent / "templates" / "report.html.j2"
DISTRIBUTION = "llama3-fp8-playbook"
PACKAGES = (
    "torch",
    "transformers",
    "nvidia-modelopt",
    "openvino",
    "openvino-genai",
    "tokenizers",
    "tritonclient",
    "numpy",
    "papermill",
    "ipykernel",
)


@dataclass(frozen=True)
class RunFacts:
    """What a run was asked to do, and when it started (ISO 8601). ``choices``: the profile's values."""

    started: str
    profile: str
    lane: str
    release: str
    workspace: str
    parameters: Mapping[str, str]
    choices: Mapping[str, Any] = field(default_factory=dict)


def environment() -> dict[str, str]:
    """This machine in words: system, processor, cores, memory, Python and the versions of the main packages."""
    import os

    import psutil

    facts = {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{psutil.virtual_memory().total / 2**30:.1f} GiB",
        "python": platform.python_version(),
    }
    for package in PACKAGES:
        try:
            facts[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    seen = os.environ.get("CUDA_VISIBLE_DEVICES", "")  # a run tells of the GPUs that it sees
    which = [f"--id={seen}"] if seen else []
    gpus = _said("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader", *which).splitlines()
    return facts | ({"gpus": "; ".join(gpus)} if gpus else {"gpus": "none"})


def playbook_version() -> dict[str, str]:
    """The package's version, and the commit of a checkout, read from its files: no run calls git for it."""
    return {"version": importlib.metadata.version(DISTRIBUTION), "commit": _commit(Path(__file__).parents[2] / ".git")}


def _commit(git: Path) -> str:
    """Twelve digits of what HEAD names; "" outside a checkout, and in a worktree, whose .git is a file."""
    head = git / "HEAD"
    if not head.is_file():
        return ""
    said = head.read_text(encoding="utf-8").strip()
    if not said.startswith("ref: "):
        return said[:12]
    name = said.removeprefix("ref: ")
    if (git / name).is_file():
        return (git / name).read_text(encoding="utf-8").strip()[:12]
    packed = git / "packed-refs"
    lines = packed.read_text(encoding="utf-8").splitlines() if packed.is_file() else []
    return next((line[:12] for line in lines if line.endswith(f" {name}")), "")


def _said(*command: str) -> str:
    """What a program prints; "" where there is none, or it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def write_facts(folder: Path, facts: RunFacts) -> dict[str, str]:
    """Write run.json, before the first chapter too: a machine can be lost in the middle. Returns the environment."""
    machine = environment()
    run = {**asdict(facts), "playbook": playbook_version(), "command": sys.argv[1:], "environment": machine}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text(json.dumps(run, indent=2), encoding="utf-8")
    return machine


def write_report(folder: Path, facts: RunFacts, results: Sequence[ChapterResult]) -> Path:
    """Write run.json and report.html into the run's folder; returns the page."""
    import jinja2

    machine = write_facts(folder, facts)
    engine = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    engine.filters["number"] = format_value
    page = engine.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        facts=facts,
        results=results,
        environment=machine,
        passed=sum(result.status == "ok" for result in results),
        skipped=sum(result.status == "skipped" for result in results),
        seconds=sum(result.seconds for result in results),
    )
    path = folder / "report.html"
    path.write_text(page, encoding="utf-8")
    return path


def format_value(value: Any) -> str:
    """Numbers with a thin space between thousands; anything else as it is."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    text = f"{value:,}" if isinstance(value, int) else f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return text.replace(",", "\u202f")
