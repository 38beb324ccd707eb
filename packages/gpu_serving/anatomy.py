"""What an engine's folder holds: one engine a rank, how it was built, and what the compiler printed."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BUILD_LOG = "build.log"
LINES = {
    "compile_s": re.compile(r"Engine generation completed in ([\d.]+) seconds"),
    "gpu_peak_mib": re.compile(r"Peak memory usage of TRT CPU/GPU memory allocators: CPU \d+ MiB, GPU (\d+) MiB"),
    "host_peak_mib": re.compile(r"Peak memory usage during Engine building and serialization: CPU: (\d+) MiB"),
}
"""What TensorRT prints once a rank (TensorRT-LLM examples/gpt/README.md and examples/chatglm/README.md show it)."""

TOTAL = re.compile(r"Total time of building all engines: (\d+):(\d+):(\d+)")


@dataclass(frozen=True)
class BuildLog:
    """Figures that trtllm-build printed, one a rank where it printed them; ``total_s`` None: no such line.

    A release, or ``--log_level error``, may print less; what is missing is missing.
    """

    compile_s: tuple[float, ...]
    gpu_peak_mib: tuple[float, ...]
    host_peak_mib: tuple[float, ...]
    total_s: float | None


@dataclass(frozen=True)
class BuiltEngine:
    """Bytes of each rank's engine by file name, the plugins and switches of the build, and its log."""

    rank_bytes: Mapping[str, int]
    plugins: Mapping[str, Any]
    build: BuildLog


def describe_built(folder: Path) -> BuiltEngine:
    """Read an engine's folder as `trtllm-build` wrote it, with the log that the stage keeps beside it."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))["build_config"]
    ranks = sorted(folder.glob("rank*.engine"), key=lambda path: (len(path.name), path.name))
    plugins = {name: value for name, value in config["plugin_config"].items() if value not in (None, False, "disable")}
    log = folder / BUILD_LOG
    printed = log.read_text(encoding="utf-8") if log.is_file() else ""
    return BuiltEngine({path.name: path.stat().st_size for path in ranks}, plugins, read_build_log(printed))


def read_build_log(text: str) -> BuildLog:
    """The figures in what trtllm-build printed."""
    found = {name: tuple(float(value) for value in line.findall(text)) for name, line in LINES.items()}
    total = TOTAL.search(text)
    seconds = (
        None
        if total is None
        else sum(int(part) * unit for part, unit in zip(total.groups(), (3600, 60, 1), strict=True))
    )
    return BuildLog(**found, total_s=seconds)
