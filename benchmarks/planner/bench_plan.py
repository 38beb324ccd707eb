"""How long a plan takes, on one core: `python benchmarks/planner/bench_plan.py`. Nothing here is about a GPU's speed.

Limits: a steady state 20 ms, a simulation of 500 requests 1 s, 912 that run out of KV cache again and again 2 s, the
choice over an instance 10 s. CPU seconds, since other work on the machine stretches the others; start-up is measured
as it is felt.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from serving_planner.case import parse_case
from serving_planner.predict import plan, steady
from serving_planner.report import answers
from serving_planner.search import Target, choose

RUNS = 7
CASE = {"model": "llama3-70b", "gpu": "h100-sxm", "tp": 4, "isl": 1024, "osl": 256}
PREEMPTING = {**CASE, "tp": 2, "osl": 8192, "concurrency": 256, "engine": "vllm"}
"""912 requests, simulated twice (the floor too), each time with about 3,100 preemptions."""
LIMITS_S = {"steady": 0.020, "simulation": 1.0, "preempting": 2.0, "choice": 10.0}


def cpu_s(work: Callable[[], object], runs: int = RUNS) -> tuple[float, float]:
    """The fastest and the median run, the first left out: it reads the data files."""
    work()
    seconds = []
    for _ in range(runs):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return min(seconds), statistics.median(seconds)


def batch_lines() -> list[bytes]:
    """A sweep as a user would write it: lengths, loads, splits, engines."""
    return [
        json.dumps(
            {**CASE, "gpu": gpu, "tp": tp, "isl": isl, "osl": osl, "concurrency": load, "engine": engine}
        ).encode()
        for gpu in ("h100-sxm", "h200")
        for tp in (2, 4, 8)
        for isl, osl in ((1024, 1024), (8192, 1024), (1024, 8192))
        for load in (4, 16, 64, 256)
        for engine in ("tensorrt-llm", "vllm")
    ]


def slowest_of(lines: list[bytes]) -> tuple[float, float, bytes]:
    """CPU seconds of the whole batch and of its slowest line."""
    worst, slow, total = 0.0, b"", 0.0
    for line in lines:
        start = time.process_time()
        list(answers([line]))
        took = time.process_time() - start
        total += took
        worst, slow = max((worst, slow), (took, line))
    return total, worst, slow


def start_up_s() -> list[float]:
    argv = [sys.executable, "-m", "playbook", "plan"]
    argv += [word for key, value in CASE.items() for word in (f"--{key}", str(value))]
    seconds = []
    for _ in range(RUNS):
        start = time.perf_counter()
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        seconds.append(time.perf_counter() - start)
        if done.returncode:
            raise SystemExit(done.stderr)
    return seconds


def main() -> None:
    closed = parse_case({**CASE, "concurrency": 64})
    asked = {"model": "llama3-70b", "isl": 1024, "osl": 256, "ttft_ms": 500, "tpot_ms": 30}
    target = Target.model_validate(asked)
    work: dict[str, Callable[[], object]] = {
        "steady": lambda: steady(closed),
        "simulation": lambda: plan(parse_case({**CASE, "concurrency": 64, "requests": 500})),
        "preempting": lambda: plan(parse_case(PREEMPTING)),
        "choice": lambda: choose(target, "p5.48xlarge"),
    }
    for name, limit_s in LIMITS_S.items():
        fastest, median = cpu_s(work[name])
        verdict = "ok" if median <= limit_s else "TOO SLOW"
        took = f"fastest {fastest * 1e3:.1f} ms, median {median * 1e3:.1f} ms"
        print(f"{name}: {took}, limit {limit_s * 1e3:.0f} ms: {verdict}")
    lines = batch_lines()
    total, worst, slow = slowest_of(lines)
    print(f"batch of {len(lines)}: {total:.1f} s, slowest line {worst:.2f} s: {slow.decode()}")
    seconds = start_up_s()
    print(f"playbook plan, start-up included: fastest {min(seconds):.2f} s, median {statistics.median(seconds):.2f} s")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
