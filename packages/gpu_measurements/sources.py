"""Read what profilers write: Nsight Systems kernel sums (CSV) and exports (SQLite), and Chrome traces of PyTorch.

A reader returns one of two frames. *Events*, one row per launch: ``kernel, start_us, duration_us, stream, device``.
*Sums*, one row per kernel: ``kernel, calls, total_us``. Only events know order and overlap.

What a kernel's name tells is in the ordered patterns of ``patterns.yml``: the first that matches counts.
"""

import csv
import gzip
import io
import json
import re
import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from serving_base.errors import UsageError
from serving_base.record import Record
from serving_base.yaml_files import read_yaml

if TYPE_CHECKING:
    import pandas as pd


PATTERNS_PATH = Path(__file__).with_name("patterns.yml")
UNCLASSIFIED = "unclassified"

Flow = Literal["cuda", "openvino"]


class KernelClass(Record):
    """One row of the tables: its label, the coarse group that it belongs to, and the only phase that it runs in."""

    label: str
    group: str
    phase: Literal["", "prefill", "decode"] = ""


class Pattern(Record):
    """Names that match ``regex`` are kernels of this class.

    ``precision``: only where the name tells it, and ``precision_of`` what has it; ``fused``: classes whose work the
    same kernel does; ``evidence``: where such a name was read.
    """

    kernel_class: str = Field(alias="class")
    regex: re.Pattern[str]
    precision: Literal["", "fp8", "bf16", "fp16"] = ""
    precision_of: Literal["operands", "KV cache"] = "operands"
    fused: str = ""
    evidence: str


class Nameless(Record):
    """Generated kernels whose names tell nothing: right before a kernel of class ``before`` they are ``class``."""

    regex: re.Pattern[str]
    before: str
    kernel_class: str = Field(alias="class")


class Patterns(Record):
    """All patterns, in order; the first match decides."""

    classes: dict[str, KernelClass]
    groups: dict[str, str]
    nameless: Nameless
    cuda: tuple[Pattern, ...]
    openvino: tuple[Pattern, ...]

    @model_validator(mode="after")
    def refuse_unknown_names(self) -> "Patterns":
        used = {pattern.kernel_class for pattern in (*self.cuda, *self.openvino)}
        fused = {name for pattern in self.cuda for name in pattern.fused.split(", ") if name}
        unknown = (used | fused | {self.nameless.kernel_class, self.nameless.before}) - set(self.classes)
        unknown |= {entry.group for entry in self.classes.values()} - set(self.groups)
        if unknown:
            raise ValueError(f"classes or groups that are not declared: {', '.join(sorted(unknown))}")
        return self


NO_MATCH = Pattern.model_validate({"class": UNCLASSIFIED, "regex": "", "evidence": "no pattern matches"})


@cache
def patterns() -> Patterns:
    """The patterns of the package."""
    return Patterns.model_validate(read_yaml(PATTERNS_PATH))


@cache
def classify(kernel: str, flow: Flow = "cuda") -> Pattern:
    """The first pattern that matches the kernel's name; ``unclassified`` when none does."""
    ordered = {"cuda": patterns().cuda, "openvino": patterns().openvino}
    if flow not in ordered:
        raise UsageError(f"unknown flow {flow!r}", fix=f"use one of: {', '.join(ordered)}")
    return next((pattern for pattern in ordered[flow] if pattern.regex.search(kernel)), NO_MATCH)


def reading(kernel: str) -> dict[str, str]:
    """What a kernel's name tells, for a table: class, phase, precision and of what, and what is in FP8."""
    found = classify(kernel)
    phase = patterns().classes[found.kernel_class].phase
    return {
        "class": found.kernel_class,
        "phase": phase or "both",
        "precision": f"{found.precision} {found.precision_of}" if found.precision else "the name does not tell",
        "in FP8": found.precision_of if found.precision == "fp8" else "nothing" if found.precision else "?",
    }


US_PER = {"ns": 1e-3, "us": 1.0, "μs": 1.0, "ms": 1e3, "s": 1e6, "sec": 1e6}
TRACE_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset")
EVENT_COLUMNS = ["kernel", "start_us", "duration_us", "stream", "device"]
SUM_COLUMNS = ["kernel", "calls", "total_us"]

# Column titles without their unit, over the reports and versions of `nsys stats` that list kernels: cuda_gpu_kern_sum
# (gpukernsum before 2023), cuda_gpu_sum, nvtx_kern_sum, cuda_gpu_trace (gputrace); the last are those of hopper.
NAME_TITLES = ("Name", "Kernel Name", "Operation", "kernel")
CALLS_TITLES = ("Instances", "Kern Inst", "Count", "calls")
TOTAL_TITLES = ("Total Time", "total_us")

SQLITE_TABLES = {  # table: how a launch of it is called
    "CUPTI_ACTIVITY_KIND_KERNEL": "(SELECT value FROM StringIds WHERE id = demangledName)",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "'Memcpy'",
    "CUPTI_ACTIVITY_KIND_MEMSET": "'Memset'",
}


def read_capture(path: Path, *, device: int | None = None) -> "pd.DataFrame":
    """Events or sums of a profiler's file, by its content: CSV, SQLite, JSON or gzipped JSON.

    ``device`` picks one GPU of a capture that holds several. :class:`UsageError` says what is wrong with the file.
    """
    path = Path(path)
    if not path.is_file():
        raise UsageError(f"no file {path}", fix="give the path of an nsys CSV or SQLite file, or of a Chrome trace")
    head = path.read_bytes()[:16]
    if head.startswith(b"SQLite format 3"):
        return _one_device(read_sqlite(path), device, path)
    if head.startswith(b"\x1f\x8b") or head.lstrip()[:1] in (b"{", b"["):
        return _one_device(read_trace(path), device, path)
    return read_csv(path)


def read_trace(path: Path) -> "pd.DataFrame":
    """Events of a Chrome trace, as ``torch.profiler`` exports it: ``cat`` kernel, gpu_memcpy, gpu_memset; times in us.

    The device is ``args.device``, else the process id, which is the rank in a trace stripped of it.
    """
    import pandas as pd

    raw = path.read_bytes()
    try:
        document = json.loads(gzip.decompress(raw) if raw.startswith(b"\x1f\x8b") else raw)
    except (ValueError, OSError, EOFError) as error:
        raise UsageError(f"{path} is not a Chrome trace", why=str(error), fix="export it again") from error
    entries = document.get("traceEvents", []) if isinstance(document, dict) else document
    rows = [
        (entry["name"], entry["ts"], entry["dur"], entry.get("tid"), _trace_device(entry))
        for entry in entries
        if str(entry.get("cat", "")).lower() in TRACE_CATEGORIES and "dur" in entry
    ]
    if not rows:
        raise UsageError(
            f"{path} holds no GPU kernels",
            why=f"none of its {len(entries)} events is of category kernel",
            fix="profile with ProfilerActivity.CUDA",
        )
    return pd.DataFrame(rows, columns=EVENT_COLUMNS)


def _trace_device(entry: dict[str, Any]) -> Any:
    return entry.get("args", {}).get("device", entry.get("pid"))


def read_sqlite(path: Path) -> "pd.DataFrame":
    """Events of ``nsys export --type sqlite``: kernels, copies and fills; names through ``StringIds``."""
    import pandas as pd

    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if "CUPTI_ACTIVITY_KIND_KERNEL" not in tables:
            raise UsageError(
                f"{path} holds no CUDA kernels",
                why="the export has no table CUPTI_ACTIVITY_KIND_KERNEL: nothing ran while the capture was on",
                fix="capture with --trace=cuda, and choose iterations that the run reaches",
            )
        query = " UNION ALL ".join(
            f"SELECT {name} AS kernel, start / 1e3, (end - start) / 1e3, streamId, deviceId FROM {table}"
            for table, name in SQLITE_TABLES.items()
            if table in tables
        )
        return pd.DataFrame(database.execute(query).fetchall(), columns=EVENT_COLUMNS)


def read_csv(path: Path) -> "pd.DataFrame":
    """Sums of ``nsys stats --format csv``, whatever stands before its header; times in the unit its header names.

    ``cuda_gpu_trace`` lists launches and gives events.
    """
    import pandas as pd

    report = _first_report(path.read_text(encoding="utf-8-sig", errors="replace").splitlines())
    if not report:
        raise UsageError(
            f"{path} has no header of a kernel report",
            why="a line with a column Name, and Total Time or Duration, is missing",
            fix="write it with: nsys stats --report cuda_gpu_kern_sum --format csv",
        )
    found = _columns(report[0])
    frame = pd.read_csv(io.StringIO("\n".join(report)), usecols=list(found), thousands=",", skipinitialspace=True)
    frame = frame.rename(columns=found).dropna(subset=["kernel"])
    for title, name in found.items():
        if name.endswith("_us"):
            frame[name] = frame[name].astype(float) * _us_per_unit(title)
    if "start_us" in frame:
        for name in ("stream", "device"):
            frame[name] = frame.get(name, 0)
        return frame[EVENT_COLUMNS].reset_index(drop=True)
    return frame.groupby("kernel", sort=False, as_index=False)[["calls", "total_us"]].sum()[SUM_COLUMNS]


def _first_report(lines: list[str]) -> list[str]:
    """Header and rows of the first kernel report; `nsys stats` writes several into one stream, blank lines between."""
    begin = next((number for number, line in enumerate(lines) if _columns(line)), len(lines))
    end = next((number for number in range(begin, len(lines)) if not lines[number].strip()), len(lines))
    return lines[begin:end]


def _columns(header: str) -> dict[str, str]:
    """Title in the file -> our name; empty when this line is not the header of a kernel report."""
    titles = next(csv.reader([header]), [])
    plain = {re.sub(r"\s*\([^)]*\)\s*$", "", title).strip(): title for title in titles}

    def first(candidates: tuple[str, ...]) -> str:
        return next((plain[title] for title in candidates if title in plain), "")

    name = first(NAME_TITLES)
    if name and "Start" in plain and "Duration" in plain:
        found = {name: "kernel", plain["Start"]: "start_us", plain["Duration"]: "duration_us"}
        return found | {
            plain[title]: own for title, own in (("Strm", "stream"), ("Device", "device")) if title in plain
        }
    calls, total = first(CALLS_TITLES), first(TOTAL_TITLES)
    return {name: "kernel", calls: "calls", total: "total_us"} if name and calls and total else {}


def _us_per_unit(title: str) -> float:
    unit = re.search(r"\((\w+)\)\s*$", title)
    if unit is None:
        return 1.0 if title.endswith("_us") else US_PER["ns"]
    return US_PER.get(unit[1], 1.0)


def _one_device(events: "pd.DataFrame", device: int | None, path: Path) -> "pd.DataFrame":
    devices = sorted(events["device"].unique())
    if device is None and len(devices) > 1:
        raise UsageError(
            f"{path} holds kernels of {len(devices)} devices: {', '.join(map(str, devices))}",
            why="ranks run at the same time: their sum is no step's time",
            fix="choose one with device=...",
        )
    chosen = events if device is None else events[events["device"] == device]
    if chosen.empty:
        raise UsageError(f"{path} holds no kernels of device {device}", fix=f"it holds {', '.join(map(str, devices))}")
    return chosen.sort_values("start_us", ignore_index=True)
