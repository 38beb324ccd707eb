"""How long a simulated load test takes: `python benchmarks/planner/bench_schedule.py`, about ten seconds.

The step time is a stand-in that spends 10 us, as the real one may. Each case is timed three times, and the fastest
counts. The speed of a machine varies, so a loop of 2,000,000 additions is timed in the same run. Exits with 1 when a
case is over its limit.
"""

import sys
import time
from collections.abc import Callable
from functools import partial

from serving_planner.cost_model.step import StepLoad
from serving_planner.simulator.arrivals import Workload, closed_loop, open_loop
from serving_planner.simulator.batching import ReplicaLimits, client, policy
from serving_planner.simulator.scheduler import simulate

STEP_TIME_COST_S = 10e-6
AMPLE = 10**7


def seconds(load: StepLoad) -> float:
    until = time.perf_counter() + STEP_TIME_COST_S
    value = (
        6e-3
        + 4e-5 * load.decode_sequences
        + 2.2e-8 * load.decode_context_tokens
        + 3.5e-5 * load.prefill_tokens
        + 1e-9 * load.prefill_pairs
    )
    while time.perf_counter() < until:
        pass
    return value


C64 = closed_loop(64, 1024, 256, ratio=0.8, requests=500)
C512 = closed_loop(512, 1024, 8192, ratio=0.8)
RATE10 = open_loop(10.0, 1024, 256, ratio=0.8, requests=500)
CASES: list[tuple[str, str, Workload, ReplicaLimits, float]] = [
    # what, engine, workload, limits, most seconds
    ("500 requests 1024/256, c 64", "tensorrt-llm", C64, ReplicaLimits(AMPLE), 1.0),
    ("the same, two pipeline stages", "tensorrt-llm", C64, ReplicaLimits(AMPLE, pp=2), 1.0),
    ("the same, KV for half of them", "vllm", C64, ReplicaLimits(40_000), 1.0),
    ("500 requests 1024/256, 10 a second", "tensorrt-llm", RATE10, ReplicaLimits(AMPLE), 1.0),
    ("2,560 requests 1024/8192, c 512", "tensorrt-llm", C512, ReplicaLimits(AMPLE), 3.0),
    ("the same, pages on demand", "vllm", C512, ReplicaLimits(AMPLE), 3.0),
    ("the same, two pipeline stages", "tensorrt-llm", C512, ReplicaLimits(AMPLE, pp=2), 3.0),
]


def fastest_s(work: Callable[[], object], times: int = 3) -> float:
    found = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return min(found)


def additions() -> int:
    total = 0
    for number in range(2_000_000):
        total += number
    return total


def main() -> int:
    loop_s = fastest_s(additions)
    print(f"{'2,000,000 additions':36} {'':13} {loop_s:8.3f} s")
    over = 0
    for what, engine, workload, limits, most_s in CASES:
        spent_s = fastest_s(partial(simulate, seconds, workload, limits, policy(engine), client()))
        over += spent_s > most_s
        print(f"{what:36} {engine:13} {spent_s:8.3f} s = {spent_s / loop_s:5.1f} loops, limit {most_s} s")
    return int(over > 0)


if __name__ == "__main__":
    sys.exit(main())
