"""A run's folder as `playbook run` leaves it: run.json and results.json."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serving_base.errors import UsageError

LIMITS = ("max_batch_size", "max_num_tokens", "max_input_len", "max_seq_len")
NOT_SAID = "not written down"
"""For what a run of an older playbook did not write."""


@dataclass(frozen=True)
class KeyResult:
    """One result that a chapter names. ``origin``: how its value came about, such as "measured here"."""

    chapter: str
    name: str
    value: float | str
    unit: str
    origin: str

    @property
    def number(self) -> float | None:
        """None for a result in words."""
        return None if isinstance(self.value, str | bool) else float(self.value)


@dataclass(frozen=True)
class CourseRun:
    """``facts``: run.json. ``status`` and ``seconds`` by chapter."""

    folder: Path
    facts: Mapping[str, Any]
    status: Mapping[str, str]
    seconds: Mapping[str, float]
    results: tuple[KeyResult, ...]

    @property
    def title(self) -> str:
        """The profile and when the run began."""
        return f"{self.facts['profile']}, {self.facts['started'][:16].replace('T', ' ')}"

    def choice(self, *path: str) -> str:
        """One value of the profile that the run had, in words."""
        found: Any = self.facts.get("choices", {})
        for name in path:
            found = found.get(name, NOT_SAID) if isinstance(found, Mapping) else NOT_SAID
        return str(found)

    def conditions(self) -> dict[str, str]:
        """What may differ between two runs: what was asked for, and on what."""
        machine = self.facts["environment"]
        version = self.facts.get("playbook", {})
        return {
            "playbook": " ".join(filter(None, (version.get("version"), version.get("commit")))) or NOT_SAID,
            "lane": self.facts["lane"],
            "release": self.facts["release"],
            "model": self.choice("model"),
            "weights": self.choice("weights"),
            "format": self.choice("qformat"),
            "KV cache": self.choice("kv_cache_dtype"),
            "GPUs of the model": f"tp {self.choice('tp')}, pp {self.choice('pp')}",
            "engine limits": ", ".join(f"{name} {self.choice(name)}" for name in LIMITS),
            "load of chapter 08": self.choice("benchmark"),
            "parameters": ", ".join(f"{name}={value}" for name, value in sorted(self.facts["parameters"].items()))
            or "none",
            "processor": f"{machine['processor']}, {machine['cores']} cores",
            "GPUs": counted(machine.get("gpus", NOT_SAID)),
        }


def read_run(folder: Path) -> CourseRun:
    """:class:`UsageError` says what is missing, or not as `playbook run` writes it."""
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder", fix="name a run's folder, such as runs/20261120-101500")
    facts, chapters = (_read(folder, name) for name in ("run.json", "results.json"))
    try:
        return CourseRun(
            folder,
            {
                **facts,
                **{
                    name: facts[name] for name in ("profile", "started", "lane", "release", "parameters", "environment")
                },
            },
            {each["chapter"]: each["status"] for each in chapters},
            {each["chapter"]: each["seconds"] for each in chapters},
            tuple(
                KeyResult(each["chapter"], found["name"], found["value"], found["unit"], found["origin"])
                for each in chapters
                for found in each["key_results"]
            ),
        )
    except (KeyError, TypeError) as error:
        raise UsageError(
            f"{folder} does not hold a run's files as this playbook writes them", why=repr(error), fix="run it again"
        ) from error


def _read(folder: Path, name: str) -> Any:
    path = folder / name
    if not path.is_file():
        others = sorted(each.parent.name for each in folder.glob("*/run.json"))
        raise UsageError(
            f"{folder} holds no finished run",
            why=f"{name} is not there; the run may still be going on",
            fix=f"name one of the runs in it: {', '.join(others[-3:])}"
            if others
            else "wait for its end, or run: playbook run",
        )
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UsageError(f"{path} is not JSON", why=str(error), fix="run it again") from error


def counted(listed: str) -> str:
    """ "a; a" as "2 x a"."""
    each = listed.split("; ")
    return "; ".join(f"{each.count(one)} x {one}" if each.count(one) > 1 else one for one in dict.fromkeys(each))
