"""How long `playbook check` takes for 100 lines, start-up included: `python tests/bench_check.py`."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from trtllm_check.lint.page import snippets

LINES = 100
RUNS = 15
PARTS = ("136", "002", "024", "041", "071", "087", "006")  # container, quantize, build, run, fill, launch, request


def hundred_lines() -> str:
    """A road from the container to the request, with the article's mistakes."""
    chosen = [snippet for part in PARTS for snippet in snippets() if snippet.name.startswith(f"{part}-")]
    lines = [line for one in chosen for line in (f"# {one.about}", *one.text.rstrip("\n").split("\n"), "")]
    lines += [f"echo step {number}" for number in range(LINES)]
    return "\n".join(lines[:LINES]) + "\n"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "road.sh")
        script.write_text(hundred_lines(), encoding="utf-8")
        argv = [sys.executable, "-m", "playbook", "check", "--release", "0.12.0", "--gpu", "h100", "--gpus", "8"]
        seconds = []
        for _ in range(RUNS):
            start = time.perf_counter()
            done = subprocess.run([*argv, str(script)], capture_output=True, check=False, text=True)
            seconds.append(time.perf_counter() - start)
            assert done.returncode in (0, 1), done.stderr
    print(f"{LINES} lines: fastest {min(seconds):.2f} s, median {statistics.median(seconds):.2f} s of {RUNS} runs")
    print(f"{done.stdout.rstrip().splitlines()[-1]}; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
