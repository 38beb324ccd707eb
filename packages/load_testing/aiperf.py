"""NVIDIA AIPerf 0.13 as load generator against Triton's generate_stream, and its records in our form."""

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from load_testing.results import Load, RequestRecord
from load_testing.workload import NEVER_STOP, WorkItem, write_dataset
from serving_base.errors import CommandFailed, EnvironmentProblem, UsageError
from serving_base.machine import move_to_cores
from serving_base.processes import Environment, shell_line, stream_command
from serving_base.servers import TEXT_MODEL

TOOL = "AIPerf"
ENVIRONMENT = "PLAYBOOK_AIPERF_ENV"
DEFAULT_ENVIRONMENT = Path(".envs") / "aiperf"
OnPhase = Callable[[str, str], None]
PHASE_LINE = re.compile(r"\bPhase (?P<name>\w+) \(\w+\) (?P<event>started|complete) \|")
TIMEOUT_S = 1800.0  # of one start: a sweep of a large model takes minutes, none takes half an hour
BODY = (
    '{"text_input": {{ text|tojson }}, "max_tokens": {{ max_tokens }}, "stream": true, "end_id": '
    f"{NEVER_STOP}}}"
)
# AIPerf 0.13 takes a local tokenizer folder only with both of these unset; it needs no network then either.
VARIABLES: Environment = {"HF_HUB_OFFLINE": None, "TRANSFORMERS_OFFLINE": None, "HF_HUB_DISABLE_TELEMETRY": "1"}

STARTS_PER_S = 1000.0
"""A closed loop's rate, beyond what any server answers: AIPerf 0.13 starts a request where a stream is free, once a
millisecond. Its own kind of closed loop (``concurrency``) looks for a free stream without a pause and keeps a processor
busy (``timing/strategies/request_rate.py``), one of two on a laptop that serves as well (benchmarks/load_generator).
"""


@dataclass(frozen=True)
class Phase:
    """A part of a run with one load. ``name``: letters, digits and ``_``. A warm-up is left out of the results."""

    name: str
    load: Load
    requests: int
    warmup: bool = False

    def config(self) -> dict[str, object]:
        """The phase as AIPerf's configuration has it; an open loop has Poisson arrivals."""
        kind = "warmup" if self.warmup else "profiling"
        head: dict[str, object] = {"name": self.name, "kind": kind, "requests": self.requests}
        if self.load.mode == "closed":
            return {**head, "type": "constant", "rate": STARTS_PER_S, "concurrency": self.load.concurrency}
        cap = {"concurrency": self.load.concurrency} if self.load.concurrency else {}
        return {**head, "type": "poisson", "rate": self.load.rate_per_s, **cap}


def configuration(
    url: str, dataset: Path, tokenizer: Path, phases: Sequence[Phase], *, out: Path, seed: int, workers: int = 1
) -> dict[str, Any]:
    """What ``aiperf profile --config`` reads: one start of AIPerf runs all ``phases``, one after the other."""
    endpoint = {
        "url": url,
        "path": f"/v2/models/{TEXT_MODEL}/generate_stream",
        "type": "template",
        "streaming": True,
        "template": {"body": BODY, "responseField": "text_output"},
    }
    return {
        "schemaVersion": "2.0",
        "randomSeed": seed,
        "benchmark": {
            "model": TEXT_MODEL,
            "endpoint": endpoint,
            "tokenizer": {"name": str(tokenizer.resolve())},
            "dataset": {
                "type": "file",
                "path": str(dataset.resolve()),
                "format": "single_turn",
                "sampling": "sequential",
            },
            "phases": [phase.config() for phase in phases],
            "gpuTelemetry": {"enabled": False},
            "serverMetrics": {"enabled": False},
            "runtime": {"ui": "none", "workers": workers, "recordProcessors": 1},
            "artifacts": {"dir": str(out.resolve())},
        },
    }


def profile(
    url: str,
    items: Sequence[WorkItem],
    phases: Sequence[Phase],
    *,
    tokenizer: Path,
    out: Path,
    seed: int = 0,
    cores: frozenset[int] | None = None,
    on_phase: OnPhase = lambda _name, _event: None,
) -> dict[str, list[RequestRecord]]:
    """Run AIPerf with these phases and return the records of each that is not a warm-up, by phase name.

    ``on_phase`` is called with a phase's name and "started" or "complete" when AIPerf says so.

    Everything goes into ``out``, which must be new or empty: the data set, ``aiperf.yml``, AIPerf's own exports and
    its log. Raises EnvironmentProblem without AIPerf, CommandFailed with the log's last lines if it fails.
    """
    import yaml

    if out.exists() and any(out.iterdir()):
        raise UsageError(f"{out} holds another run", fix="remove it, or choose another folder")
    names = Counter(item.name for item in items)
    if twice := [name for name, count in names.items() if count > 1]:
        raise UsageError(f"two prompts are called {twice[0]}", fix="give make_workload a name for each of its lists")
    out.mkdir(parents=True, exist_ok=True)
    write_dataset(items, out / "dataset.jsonl")
    usable = cores or frozenset(os.sched_getaffinity(0))
    config = configuration(
        url, out / "dataset.jsonl", tokenizer, phases, out=out / "export", seed=seed, workers=max(1, len(usable) // 2)
    )
    (out / "aiperf.yml").write_text(yaml.safe_dump(config, sort_keys=False, width=110), encoding="utf-8")

    def begin(name: str, event: str) -> None:
        if (name, event) == (phases[0].name, "started"):  # until then it imports: on all cores, as nothing is measured
            move_to_cores("aiperf", usable)
        on_phase(name, event)

    stream_command(command(out), env=VARIABLES, log_path=out / "aiperf.log", timeout_s=TIMEOUT_S, echo=_told_to(begin))
    lines = (out / "export" / "profile_export.jsonl").read_text(encoding="utf-8").splitlines()
    loads = {phase.name: phase.load for phase in phases if not phase.warmup}
    runs = parse_records([json.loads(line) for line in lines], loads, {item.name: item for item in items})
    missing = [f"{p.name}: {len(runs[p.name])}" for p in phases if not p.warmup and len(runs[p.name]) != p.requests]
    if missing:
        raise CommandFailed(
            f"AIPerf's export lacks records ({', '.join(missing)})",
            returncode=0,
            log_path=out / "aiperf.log",
            fix=f"read {out / 'aiperf.log'}",
        )
    return runs


def _told_to(on_phase: OnPhase) -> Callable[[str], None]:
    """A reader of AIPerf's log, which says ``Phase closed_4 (profiling) started | ...``."""

    def read(line: str) -> None:
        if found := PHASE_LINE.search(line):
            on_phase(found["name"], found["event"])

    return read


def command(out: Path) -> list[str]:
    """The command line that :func:`profile` runs."""
    return [str(find_aiperf()), "profile", "--config", str(out / "aiperf.yml")]


def command_line(out: Path) -> str:
    """The same to paste into a shell that stands in the project's folder."""
    return shell_line([word.removeprefix(f"{_project()}/") for word in command(out)], env=VARIABLES)


def find_aiperf() -> Path:
    """The ``aiperf`` program of ``$PLAYBOOK_AIPERF_ENV``, else of ``.envs/aiperf`` of the project or of the folder."""
    given = os.environ.get(ENVIRONMENT)
    roots = [Path(given)] if given else [folder / DEFAULT_ENVIRONMENT for folder in (_project(), Path.cwd())]
    programs = [root / "bin" / "aiperf" for root in roots]
    found = next((program for program in programs if program.is_file()), None)
    if found is None:
        raise EnvironmentProblem(
            f"no AIPerf in {roots[0]}",
            why="it has an environment of its own",
            fix=f"run: make setup, or set {ENVIRONMENT}",
        )
    return found


class _Metadata(BaseModel):
    model_config = ConfigDict(extra="ignore")

    conversation_id: str
    phase_name: str
    credit_issued_ns: int
    request_start_ns: int


def parse_records(
    rows: Sequence[Mapping[str, Any]], loads: Mapping[str, Load], items: Mapping[str, WorkItem]
) -> dict[str, list[RequestRecord]]:
    """AIPerf's per-request export (``profile_export.jsonl``) as records, by phase; phases not in ``loads`` are skipped.

    AIPerf counts tokens by encoding the answer again, which is not what the server generated: the lengths are those
    of the data set. What a request was meant to be sent at is when AIPerf's scheduler issued its credit.
    """
    phases: dict[str, list[tuple[_Metadata, Mapping[str, Any]]]] = {name: [] for name in loads}
    for row in rows:
        metadata = _Metadata.model_validate(row["metadata"])
        if metadata.phase_name in phases:
            phases[metadata.phase_name].append((metadata, row))
    return {
        name: [_record(metadata, row, loads[name], items, began_ns=_began_ns(found)) for metadata, row in found]
        for name, found in phases.items()
    }


def _record(
    metadata: _Metadata, row: Mapping[str, Any], load: Load, items: Mapping[str, WorkItem], *, began_ns: int
) -> RequestRecord:
    item = items[metadata.conversation_id]
    metrics = {name: entry["value"] for name, entry in row["metrics"].items()}
    sent_s = (metadata.request_start_ns - began_ns) / 1e9
    error = _error_text(row.get("error"))
    if not error and "time_to_first_token" not in metrics:
        error = "the answer held no text"
    return RequestRecord(
        run=metadata.phase_name,
        tool=TOOL,
        load=load,
        began_unix_s=began_ns / 1e9,
        prompt=item.name,
        scheduled_s=(metadata.credit_issued_ns - began_ns) / 1e9 if load.mode == "open" else sent_s,
        sent_s=sent_s,
        first_token_s=None if error else sent_s + metrics["time_to_first_token"] / 1000,
        last_token_s=None if error else sent_s + metrics["request_latency"] / 1000,
        isl_tokens=item.isl_tokens,
        osl_tokens=0 if error else item.osl_tokens,
        gaps_ms=() if error else tuple(metrics.get("inter_chunk_latency", ())),
        error=error,
    )


def _error_text(error: Any) -> str:
    if not error:
        return ""
    return f"{error.get('type', 'error')}: {error.get('message', '')}" if isinstance(error, dict) else str(error)


def _began_ns(found: Sequence[tuple[_Metadata, Mapping[str, Any]]]) -> int:
    return min(min(metadata.credit_issued_ns, metadata.request_start_ns) for metadata, _ in found)


def _project() -> Path:
    return Path(__file__).parents[2]
