"""python -m benchmarks.streaming.run ENGINE [--clients N] ...: what streaming through Triton leaves of an engine.

One run measures, in turn and several times, the engine alone in this process, one answer a request and streamed, by
token ids and through the ensemble, all with the same waves. A share is of the engine alone next to it. ``cpu_ms`` is
processor time of the server's processes for 1,000 tokens, which a busy machine changes less.
"""

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated

import numpy as np
import psutil
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.streaming.client import Load, ask
from model_server.engines import EngineOptions, opener_of, warm_up
from model_server.protocol import Sampling
from model_server.text import TextCodec
from model_server.triton.repository import ServingOptions, write_repository
from model_server.triton.server import TritonServer
from serving_base.servers import choose_ports

WAYS = {
    "ids, one answer": ("tensorrt_llm", False),
    "ids, streamed": ("tensorrt_llm", True),
    "text, one answer": ("ensemble", False),
    "text, streamed": ("ensemble", True),
}


@dataclass(frozen=True)
class Figures:
    """One round of one way. ``late_ms``: how long the first token of each piece waited for its last one."""

    tokens_per_s: float
    ttft_ms: float
    late_ms: tuple[float, ...]
    pieces: int
    cpu_ms: dict[str, float]


def main(
    engine: Path,
    clients: int = 16,
    waves: int = 4,
    tokens: int = 128,
    rounds: Annotated[int, typer.Option(help="how often each way is measured")] = 3,
    release: str = "0.12.0",
    postprocessing: Annotated[int, typer.Option(help="instances of postprocessing")] = 1,
) -> None:
    prompts = make_prompts(engine, clients)
    alone: list[float] = []
    found: dict[str, list[Figures]] = {way: [] for way in WAYS}
    with server(engine, release, clients, postprocessing) as running:
        for _ in range(rounds):
            alone.append(measure_alone(engine, [ids for _, ids in prompts], waves, tokens))
            for way, (model, streaming) in WAYS.items():
                load = Load(clients, waves, tokens, streaming, model)
                found[way].append(measure(running, prompts, load, alone[-1]))
    Console(width=150).print(table(alone, found, clients * waves * tokens))


def make_prompts(engine: Path, clients: int) -> list[tuple[str, list[int]]]:
    codec = TextCodec.load(engine / "tokenizer")
    texts = [f"The value of {number}" for number in range(clients)]
    return [(text, list(codec.encode(text, special_tokens=True))) for text in texts]


@contextmanager
def server(engine: Path, release: str, clients: int, postprocessing: int) -> Iterator[TritonServer]:
    http, grpc, metrics = choose_ports((0, 0, 0))
    with tempfile.TemporaryDirectory() as folder:
        options = ServingOptions(engine_dir=engine, tokenizer_dir=engine / "tokenizer", max_batch_size=clients)
        values = options.values() | {"postprocessing_instance_count": str(postprocessing)}
        write_repository(Path(folder) / "repository", release, values)
        repository = Path(folder) / "repository"
        with TritonServer(repository, http_port=http, grpc_port=grpc, metrics_port=metrics) as running:
            yield running


def measure_alone(folder: Path, prompts: Sequence[Sequence[int]], waves: int, tokens: int) -> float:
    """Tokens a second of the engine as the server opens it, with nobody to tell."""
    engine = opener_of(folder).open_engine(folder, EngineOptions(threads=1))
    try:
        warm_up(engine)
        began = time.perf_counter()
        for wave in range(waves):
            for number, prompt in enumerate(prompts):
                engine.submit(wave * len(prompts) + number, tuple(prompt), Sampling(max_new_tokens=tokens, end_id=-1))
            while engine.has_work:
                engine.step()
        return waves * len(prompts) * tokens / (time.perf_counter() - began)
    finally:
        engine.close()


def measure(running: TritonServer, prompts: list[tuple[str, list[int]]], load: Load, alone: float) -> Figures:
    ask(running.grpc_url, prompts, Load(load.clients, 1, 4, load.streaming, load.model))
    before = processor_s(running)
    answers = ask(running.grpc_url, prompts, load)
    spent = {name: seconds - before.get(name, 0.0) for name, seconds in processor_s(running).items()}
    step_ms = 1e3 * load.clients / alone
    whole = sum(sum(each.sizes) for each in answers)
    size_of_token = whole / load.all_tokens  # 1 of ids; of text, bytes
    late = [(size / size_of_token - 1) * step_ms for each in answers for size in each.sizes if load.streaming]
    return Figures(
        tokens_per_s=load.all_tokens / answers.seconds,
        ttft_ms=1e3 * median(each.at_s[0] for each in answers),
        late_ms=tuple(late),
        pieces=sum(len(each.sizes) for each in answers),
        cpu_ms={name: 1e6 * seconds / load.all_tokens for name, seconds in spent.items()},
    )


def processor_s(running: TritonServer) -> dict[str, float]:
    """Processor seconds so far of the server and of each stub, which is named for its model."""
    family = [psutil.Process(running.pid), *psutil.Process(running.pid).children(recursive=True)]
    found: dict[str, float] = {}
    for process in family:
        times = process.cpu_times()
        name = _model_of(process.pid) if process.pid in running.stub_pids else process.name()
        found[name] = found.get(name, 0.0) + times.user + times.system
    return found


def _model_of(pid: int) -> str:
    """The folder of the model file on a stub's command line."""
    return next(word.rsplit("/", 3)[-3] for word in psutil.Process(pid).cmdline() if word.endswith("model.py"))


def table(alone: list[float], found: dict[str, list[Figures]], all_tokens: int) -> Table:
    shown = Table(title=f"engine alone: {median(alone):,.0f} tokens/s (median of {len(alone)})")
    for name in ("way", "tokens/s", "share", "from..to", "tokens a piece", "TTFT ms", "late ms p50", "p99", "cpu_ms"):
        shown.add_column(name)
    for way, rounds in found.items():
        shares = [figures.tokens_per_s / rate for figures, rate in zip(rounds, alone, strict=True)]
        late = [each for figures in rounds for each in figures.late_ms] or [0.0]
        cpu = {name: median(figures.cpu_ms[name] for figures in rounds) for name in rounds[0].cpu_ms}
        shown.add_row(
            way,
            f"{median(figures.tokens_per_s for figures in rounds):,.0f}",
            f"{median(shares):.2f}",
            f"{min(shares):.2f}..{max(shares):.2f}",
            f"{all_tokens * len(rounds) / sum(figures.pieces for figures in rounds):.1f}",
            f"{median(figures.ttft_ms for figures in rounds):.0f}",
            f"{np.percentile(late, 50):.0f}",
            f"{np.percentile(late, 99):.0f}",
            ", ".join(f"{name} {value:.0f}" for name, value in cpu.items()),
        )
    return shown


if __name__ == "__main__":
    typer.run(main)
