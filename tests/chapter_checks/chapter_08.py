"""Chapter 08: values that its checks accept, and values that they refuse."""

from pathlib import Path
from types import SimpleNamespace as Thing
from typing import Any

from chapter_cells import Case
from load_testing import load as real

GOOD = "env: null"
LOAD = real.Load(mode="closed", concurrency=1)


def records(count: int = 4, *, gap_ms: float = 500.0, late_s: float = 0.0) -> list[real.RequestRecord]:
    """A closed loop of one stream: each request takes a second and begins ``late_s`` after the one before."""
    return [
        real.RequestRecord(
            run="closed_1", tool="AIPerf", load=LOAD, began_unix_s=1.0, prompt="p", scheduled_s=at, sent_s=at,
            first_token_s=at + 0.5, last_token_s=at + 1, isl_tokens=5, osl_tokens=2, gaps_ms=(gap_ms,),
        )
        for at in (number * (1 + late_s) for number in range(count))
    ]  # fmt: skip


class Load:
    """The names of ``playbook.load``, some of them changed."""

    def __init__(self, **changed: object) -> None:
        vars(self).update(changed)

    def __getattr__(self, name: str) -> Any:
        return getattr(real, name)


def idle(**counts: int) -> dict[str, Any]:
    stub = Thing(clients=Thing(triton=Thing(metrics=lambda url: {})))
    return {"playbook": stub, "server": Thing(metrics_url=""), "load": Load(server_counts=lambda metrics: counts)}


def swept(failed: int = 0) -> dict[str, Any]:
    load = Load(summarize=lambda run: Thing(requests=4, failed=failed))
    return {"load": load, "sweep": [Thing(name="closed_1")], "arrivals": [], "every_run": {"closed_1": []}}


def counted(**theirs: int) -> dict[str, Any]:
    """Four requests of 5 and 2 tokens, without a warm-up; ``theirs``: what the server has counted."""
    before = dict.fromkeys(("requests", "isl_tokens", "osl_tokens"), 0)
    found = {"requests": 4, "isl_tokens": 20, "osl_tokens": 8} | theirs
    given = {"items": [], "warm": 0, "probe": records(1), "beside": Thing(records=records(1)), "before": before}
    given |= {"every_run": {"closed_1": records(2)}, "load": real}
    return given | {"counted": lambda: {kind: number for kind, number in found.items() if number >= 0}}


def faster(measured: float) -> dict[str, Any]:
    plan = Thing(floor=Thing(output_tokens_per_s=100.0))
    return {"measured": {1: Thing(output_tokens_per_s=measured)}, "plans": {1: plan}}


def law(*, rest_s: float = 0.0) -> dict[str, Any]:
    """A stream that rests so long before each request."""
    return {"runs": {"closed_1": records(12, late_s=rest_s)}, "load": real}


def arrived(*errors: str) -> dict[str, Any]:
    answers = [Thing(ok=not error) for error in errors]
    summaries = {"closed_1": Thing(requests_per_s=2.0)}
    return {"opened": {"poisson_40": answers}, "arriving": {"poisson_40": 0.8}, "summaries": summaries}


def written(loses: int = 0) -> dict[str, Any]:
    """A results file that loses the last ``loses`` requests of a run."""
    run = records(4)

    class Folder:
        def __truediv__(self, name: str) -> Path:
            return Path(name)

    load = Load(write_results=lambda runs, path: None, read_results=lambda path: run[: len(run) - loses])
    given = {"load": load, "tries": [], "runs": {"closed_1": run}, "opened": {}, "overload": [], "out": Folder()}
    return given | {"summaries": {"closed_1": real.summarize(run)}, "knee": Thing(run="closed_1")}


def fmbench(*findings: str) -> dict[str, Any]:
    """FMBench's files, in which the check finds ``findings``."""
    file = Thing(suffix=".yml", name="config.yml", relative_to=lambda out: "config.yml", read_text=lambda: GOOD)
    tool = Thing(write=lambda *words, **options: [file] * 3, check=lambda text: list(findings))
    given = {"playbook": Thing(recipes=Thing(fmbench=tool)), "out": Path("out"), "items": [], "priced": None}
    return given | {"fmbench": tool, "files": [file] * 3}


def in_flight(most: int) -> dict[str, Any]:
    return {"timelines": {"closed loop, knee": ([0.0], [most])}, "knee": Thing(load=LOAD)}


def hidden(intended_ms: float) -> dict[str, Any]:
    return {"intended": Thing(p50=intended_ms), "from_sending": Thing(p50=10.0)}


def ended(stubs: tuple[int, ...] = ()) -> dict[str, Any]:
    return {"server": Thing(stop=lambda: Thing(stubs=stubs, regions=()))}


ZEROS = {"requests": 0, "isl_tokens": 0, "osl_tokens": 0}
LOST = -1  # a counter that the server does not have
AGREES = Thing(holds=False, errors=frozenset(), difference_ms=3.0)  # late, but answered: no fault
FAILED = Thing(holds=False, errors=frozenset({"refused"}), difference_ms=0.0)
RELEASE = "the server counts what its release counts"


def bursts(**theirs: int) -> dict[str, Any]:
    """A burst of two requests, of which the server counted so much."""
    found = {"requests": 2, "isl_tokens": 10, "osl_tokens": 4} | theirs
    load = Load(counted_when=lambda counted, requests: found)
    given = {"load": load, "counted": lambda: found, "counted_so_far": dict.fromkeys(found, 0)}
    return given | {"burst": [Thing(isl_tokens=5, osl_tokens=2)] * 2}


CASES = [
    Case("08-09", "a new server has counted nothing", idle(**ZEROS), idle(**ZEROS | {"requests": 3})),
    Case("08-11b", "no request failed", swept(), swept(failed=1)),
    Case("08-15", RELEASE, counted(), counted(osl_tokens=LOST)),
    Case("08-15", RELEASE, counted(), counted(isl_tokens=LOST, osl_tokens=LOST), profile="p5", release="1.2.1"),
    Case("08-15", RELEASE, counted(isl_tokens=LOST, osl_tokens=LOST), counted(), profile="p5", release="0.12.0"),
    Case("08-15", "the server counted as many osl_tokens", counted(), counted(osl_tokens=7)),
    Case("08-plan-h", "no load is faster than its ceiling", faster(99.0), faster(101.0), profile="p5"),
    Case("08-22", "closed_1: its streams hardly rested", law(), law(rest_s=0.5)),
    Case("08-23", "e2e = TTFT + the sum of the gaps", law(), {"runs": {"closed_1": records(gap_ms=490.0)}}),
    Case("08-26", "no request of the two clients failed", {"tries": [AGREES]}, {"tries": [FAILED]}),
    Case("08-28", "every request was answered", arrived("", ""), arrived("", "refused")),
    Case("08-33", "the closed loop never has more in flight", in_flight(1), in_flight(2)),
    Case("08-36", "counted from sending", hidden(100.0), hidden(15.0)),
    Case("08-38", "read back, the file gives the same figures", written(), written(loses=1)),
    Case("08-42", "FMBench's loader takes config.yml", fmbench(), fmbench("a literal brace")),
    Case("08-44", "found: a literal brace", fmbench("a literal brace"), fmbench()),
    Case("08-48", "the server left nothing behind", ended(), ended(stubs=(7,))),
    Case("08-lb-e", "the sum of isl_tokens is the server's", bursts(), bursts(isl_tokens=11)),
    Case("08-lb-e", "the sum of osl_tokens is the server's", bursts(), bursts(osl_tokens=3)),
]
