"""What a machine's cores can do: the roofs that a model on them cannot break, measured as a model would use them.

Matrices are of FP32, in which the embedded engine computes. The measurement runs in a process of its own, since a
library of linear algebra counts its cores once, when it is loaded.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from serving_base.errors import EnvironmentProblem

SQUARE = 1024  # rows and columns of the product: 12 MiB in all, 2.1 GFLOP
COLUMNS = 1024  # of the matrix that a vector is multiplied with
ROUNDS = 5  # of both, apart in time, since another program may hold the cores for seconds
SECONDS = 0.2  # that each is repeated for in a round; the best counts, as whatever disturbs only adds time
PAUSE_S = 0.3  # between two rounds
LONGEST_S = 60.0
FP32_BYTES = 4
GENERATOR_SHARE = 4


@dataclass(frozen=True)
class Cores:
    """Two disjoint sets of core numbers; on a machine with a single core both are that core.

    On one machine the server and its load generator would otherwise take each other's time.
    """

    server: frozenset[int]
    generator: frozenset[int]


def split_cores() -> Cores:
    """The cores that this process may use: the last quarter, at least one, for the generator."""
    usable = sorted(os.sched_getaffinity(0))
    count = max(1, len(usable) // GENERATOR_SHARE)
    return Cores(frozenset(usable[:-count] or usable), frozenset(usable[-count:]))


@contextmanager
def on_cores(cores: frozenset[int]) -> Iterator[None]:
    """Whatever this thread starts meanwhile, processes and threads, runs on ``cores``, and stays there."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def move_to_cores(program: str, cores: frozenset[int]) -> None:
    """Confine this process's descendants that run ``program``, with every thread, to ``cores``."""
    import psutil

    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error, OSError):  # it has just ended
            # `/bin/program`, `python /bin/program`, or what a process calls itself: `program its part`.
            if program in {Path(word.split()[0]).name for word in process.cmdline()[:2] if word.strip()}:
                for thread in process.threads():
                    os.sched_setaffinity(thread.id, cores)


@dataclass(frozen=True)
class MachineRates:
    """Of ``cores`` cores together: bytes/s that are read, FLOP/s, and the bytes of memory that are free now."""

    cores: int
    bandwidth_bytes_per_s: float
    flops: float
    memory_bytes: int


def measure_machine(cores: frozenset[int], *, weight_bytes: int) -> MachineRates:
    """The rates of ``cores``, for a model of ``weight_bytes``: one of that size is read, cached if it fits.

    Takes about four seconds. :class:`EnvironmentProblem` if the measuring process fails.
    """
    argv = [sys.executable, "-m", "serving_base.machine", str(weight_bytes)]
    with on_cores(cores):
        done = subprocess.run(argv, capture_output=True, text=True, timeout=LONGEST_S, check=False)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise EnvironmentProblem(
            "the machine could not be measured", why=last[0], fix=f"see what `{' '.join(argv)}` prints"
        )
    return MachineRates(cores=len(cores), **json.loads(done.stdout))


def _measured(weight_bytes: int) -> dict[str, float]:
    import numpy as np
    import psutil

    generator = np.random.default_rng(0)
    rows = max(1, weight_bytes // (FP32_BYTES * COLUMNS))
    weights = generator.standard_normal((rows, COLUMNS), dtype=np.float32)
    vector = generator.standard_normal(COLUMNS, dtype=np.float32)
    square = generator.standard_normal((SQUARE, SQUARE), dtype=np.float32)
    read_s, product_s = [], []
    for number in range(ROUNDS):
        time.sleep(PAUSE_S if number else 0)
        read_s.append(_best_s(lambda: weights @ vector))
        product_s.append(_best_s(lambda: square @ square))
    return {
        "bandwidth_bytes_per_s": weights.nbytes / min(read_s),
        "flops": 2 * SQUARE**3 / min(product_s),
        "memory_bytes": psutil.virtual_memory().available,
    }


def _best_s(work: Callable[[], object]) -> float:
    """Seconds of the fastest of many runs."""
    work()
    best, end = float("inf"), time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


if __name__ == "__main__":
    print(json.dumps(_measured(int(sys.argv[1]))))
