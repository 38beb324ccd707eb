"""How much slower a GPU's layers get when it is kept busy: power-limited clocks, measured on one GPU with torch.

Operation tables time a kernel for milliseconds, at full clocks; a loaded server runs for minutes, at its power limit.
One layer of Llama-3 (its four products and causal attention, random data) is timed in bursts of 20 ms after a rest, and
again after it has run without a break. usage: measure_sustained.py OUT.csv
"""

import csv
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

SHAPES = {"llama3-8b tp1": (4096, 14336, 32, 8), "llama3-70b tp2": (8192, 14336, 32, 4)}
TOKENS = (1, 16, 32, 64, 128, 256, 1024, 8192)
PROMPT_TOKENS = 1024
REST_S, BURST_S, SUSTAINED_S = 3.0, 0.02, 5.0
COPIES = 3  # of the weights, so that the cache does not hold them


def product(tokens: int, n: int, k: int, precision: str) -> Callable[[int], torch.Tensor]:
    weights = [torch.randn(n, k, device="cuda", dtype=torch.bfloat16) for _ in range(COPIES)]
    x = torch.randn(tokens, k, device="cuda", dtype=torch.bfloat16)
    if precision == "bf16":
        return lambda copy: x @ weights[copy].t()
    one = torch.ones((), device="cuda")
    eight = [weight.mul_(60).clamp_(-448, 448).to(torch.float8_e4m3fn) for weight in weights]
    x8 = x.mul(60).clamp_(-448, 448).to(torch.float8_e4m3fn)
    return lambda copy: torch._scaled_mm(
        x8, eight[copy].t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True
    )


def layer(shape: tuple[int, int, int, int], tokens: int, precision: str) -> Callable[[int], None]:
    hidden, half_ff, heads, kv_heads = shape
    sizes = [((heads + 2 * kv_heads) * 128, hidden), (hidden, heads * 128), (2 * half_ff, hidden), (hidden, half_ff)]
    products = [product(tokens, n, k, precision) for n, k in sizes]
    prompts, length = max(1, tokens // PROMPT_TOKENS), min(tokens, PROMPT_TOKENS)
    q = torch.randn(prompts, heads, length, 128, device="cuda", dtype=torch.bfloat16)
    k, v = (torch.randn(prompts, heads, length, 128, device="cuda", dtype=torch.bfloat16) for _ in range(2))

    def run(copy: int) -> None:
        for multiply in products:
            multiply(copy)
        torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    return run


def graph_of(run: Callable[[int], None]) -> torch.cuda.CUDAGraph:
    """One pass over every copy of the weights."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for copy in range(COPIES):
            run(copy)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for copy in range(COPIES):
            run(copy)
    return graph


def for_seconds(graph: torch.cuda.CUDAGraph, seconds: float) -> list[float]:
    """Microseconds of a layer, one value for each batch of replays, without a break."""
    times: list[float] = []
    until = time.monotonic() + seconds
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    while not times or time.monotonic() < until:
        start.record()
        for _ in range(4):
            graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / 4 / COPIES)
    return times


def state() -> tuple[float, float]:
    """SM clock in MHz and power in W, now."""
    query = ["nvidia-smi", "--query-gpu=clocks.sm,power.draw", "--format=csv,noheader,nounits", "-i", "0"]
    clock, power = subprocess.run(query, capture_output=True, text=True, check=True).stdout.split(",")
    return float(clock), float(power)


def measured() -> Iterator[dict[str, object]]:
    for name, shape in SHAPES.items():
        for precision in ("bf16", "fp8"):
            for tokens in TOKENS:
                graph = graph_of(layer(shape, tokens, precision))
                bursts = []
                for _ in range(3):
                    torch.cuda.synchronize()
                    time.sleep(REST_S / 3)
                    bursts.append(statistics.median(for_seconds(graph, BURST_S)))
                times = for_seconds(graph, SUSTAINED_S)
                graph.replay()
                for _ in range(200):
                    graph.replay()
                clock, power = state()
                torch.cuda.synchronize()
                late = statistics.median(times[len(times) * 3 // 4 :])
                burst = statistics.median(bursts)
                yield {
                    "gpu": torch.cuda.get_device_name(), "layer": name, "precision": precision, "tokens": tokens,
                    "burst_us": round(burst, 2), "sustained_us": round(late, 2), "ratio": round(late / burst, 4),
                    "sm_mhz": clock, "watts": power,
                }  # fmt: skip
                del graph
                torch.cuda.empty_cache()


def main(path: str) -> None:
    rows = []
    for row in measured():
        print(row, flush=True)
        rows.append(row)
        with Path(path).open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main(sys.argv[1])
