"""python -m benchmarks.streaming.official ...: the same engine and load behind NVIDIA's own vllm_backend.

``write ENGINE FOLDER`` makes its model repository from an engine of the vllm lane. Start a server on that, in NVIDIA's
container or with the backend's ``src`` as ``vllm`` in a backend directory, and then ``measure ENGINE HOST:GRPC-PORT``
with the options of :mod:`benchmarks.streaming.run` whose figures it shall stand beside.
"""

from pathlib import Path
from statistics import median
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.streaming.client import Load, ask
from benchmarks.streaming.run import lighter, make_prompts, measure_alone, opened
from vllm_serving.official import MODEL, write_official_repository

app = typer.Typer(help=__doc__)
GpuMemory = Annotated[float, typer.Option(help="share of the GPU's memory for each of the two engines")]


@app.command()
def write(engine: Path, folder: Path, gpu_memory: GpuMemory = 0.0) -> None:
    """Write FOLDER/vllm_model for ENGINE."""
    write_official_repository(engine, folder, gpu_memory=gpu_memory)


@app.command()
def measure(
    engine: Path,
    grpc_url: str,
    clients: Annotated[list[int] | None, typer.Option(help="how many at once; several times for several")] = None,
    waves: int = 4,
    tokens: int = 128,
    rounds: int = 3,
    prompt_tokens: int = 0,
    gpu_memory: GpuMemory = 0.0,
) -> None:
    """Measure the running server at GRPC_URL, and ENGINE alone beside it."""
    shown = Table(title="NVIDIA's vllm_backend, text")
    for name in ("clients", "engine alone, tokens/s", "way", "tokens/s", "share", "pieces an answer", "TTFT ms"):
        shown.add_column(name)
    with lighter(engine, gpu_memory) as folder, opened(folder) as lone:
        for count in clients or [16]:
            prompts = make_prompts(folder, count, prompt_tokens)
            alone = [measure_alone(lone, [ids for _, ids in prompts], waves, tokens) for _ in range(rounds)]
            for way, streaming in (("one answer", False), ("streamed", True)):
                ask(grpc_url, prompts, Load(count, 1, 4, streaming, MODEL))
                load = Load(count, waves, tokens, streaming, MODEL)
                found = [ask(grpc_url, prompts, load) for _ in range(rounds)]
                rate = median(load.all_tokens / each.seconds for each in found)
                shown.add_row(
                    str(count),
                    f"{median(alone):,.0f}",
                    way,
                    f"{rate:,.0f}",
                    f"{rate / median(alone):.2f}",
                    f"{median(len(each.sizes) for answers in found for each in answers):.0f}",
                    f"{1e3 * median(each.at_s[0] - each.began_s for answers in found for each in answers):.0f}",
                )
    Console(width=150).print(shown)


if __name__ == "__main__":
    app()
