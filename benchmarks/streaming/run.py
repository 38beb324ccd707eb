"""python -m benchmarks.streaming.run ENGINE [--clients N]... ...: what streaming through Triton leaves of an engine.

One run measures, in turn and several times, the engine alone in this process, one answer a request and streamed, by
token ids and through the ensemble, all with the same waves. A share is of the engine alone next to it. ``cpu_ms`` is
processor time of the server's processes for 1,000 tokens, which a busy machine changes less. "Late" is how long a piece
took from the engine to the client, by one clock, from its first token on. ``--senders`` threads and
``--postprocessing`` instances share the work.

Both engines, the server's and the one alone, are open all the time, and each waits while the other works: an engine of
the vLLM lane on a GPU may take less than half of its memory (``--gpu-memory 0.4``, in a copy of its folder).
"""

import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import median
from typing import Annotated

import numpy as np
import psutil
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.streaming.client import Load, Pieces, ask
from model_server.engines import EngineOptions, ServedEngine, opener_of, warm_up
from model_server.protocol import Sampling
from model_server.text import TextCodec
from model_server.triton.repository import ServingOptions, write_repository
from model_server.triton.server import TritonServer
from model_server.triton.token_times import SENDERS, TOKEN_TIMES, TokenTime, read_token_times
from serving_base.servers import choose_ports

WAYS = {
    "ids, one answer": ("tensorrt_llm", False),
    "ids, streamed": ("tensorrt_llm", True),
    "text, one answer": ("ensemble", False),
    "text, streamed": ("ensemble", True),
}


@dataclass(frozen=True)
class Figures:
    """One round of one way. ``late_ms``: from the first token of each piece, as the engine gave it, to its coming."""

    tokens_per_s: float
    ttft_ms: float
    late_ms: tuple[float, ...]
    pieces: int
    cpu_ms: dict[str, float]


def main(
    engine: Path,
    clients: Annotated[list[int] | None, typer.Option(help="how many at once; several times for several")] = None,
    waves: int = 4,
    tokens: int = 128,
    rounds: Annotated[int, typer.Option(help="how often each way is measured")] = 3,
    release: str = "0.12.0",
    prompt_tokens: Annotated[list[int] | None, typer.Option(help="length of each prompt; 0: a few words")] = None,
    postprocessing: Annotated[int, typer.Option(help="instances of postprocessing")] = 1,
    senders: Annotated[int, typer.Option(help="threads that send responses; 0: as the server chooses")] = 0,
    gpu_memory: Annotated[float, typer.Option(help="share of the GPU's memory for each of the two engines")] = 0.0,
) -> None:
    counts = clients or [16]
    with (
        lighter(engine, gpu_memory) as folder,
        server(folder, release, max(counts), postprocessing, senders) as served,
        opened(folder) as lone,
    ):
        for length, count in product(prompt_tokens or [0], counts):
            print(f"prompts of about {length} tokens" if length else "prompts of a few words", flush=True)
            measure_clients(served, lone, make_prompts(folder, count, length), waves, tokens, rounds)


@dataclass(frozen=True)
class Served:
    """A server, and where it writes when the engine gave each token."""

    running: TritonServer
    token_times: Path


def measure_clients(
    served: Served,
    lone: ServedEngine,
    prompts: list[tuple[str, list[int]]],
    waves: int,
    tokens: int,
    rounds: int,
) -> None:
    alone: list[float] = []
    found: dict[str, list[Figures]] = {way: [] for way in WAYS}
    for number in range(rounds):
        alone.append(measure_alone(lone, [ids for _, ids in prompts], waves, tokens))
        for way, (model, streaming) in WAYS.items():
            load = Load(
                len(prompts), waves, tokens, streaming, model, f"{way}, {len(prompts)}, {number}, {len(prompts[0][1])}"
            )
            found[way].append(measure(served, prompts, load))
    Console(width=150).print(table(alone, found, len(prompts) * waves * tokens, len(prompts)))


@contextmanager
def lighter(engine: Path, gpu_memory: float) -> Iterator[Path]:
    """A copy of the engine's folder that takes another share of the GPU's memory; the folder itself for 0."""
    if not gpu_memory:
        yield engine
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copytree(engine, Path(folder) / "engine"))
        config = json.loads((copy / "config.json").read_text(encoding="utf-8"))
        config["vllm"]["args"]["gpu_memory_utilization"] = gpu_memory
        (copy / "config.json").write_text(json.dumps(config), encoding="utf-8")
        yield copy


@contextmanager
def opened(folder: Path) -> Iterator[ServedEngine]:
    """The engine as the server opens it, warm."""
    engine = opener_of(folder).open_engine(folder, EngineOptions(threads=1))
    try:
        warm_up(engine)
        yield engine
    finally:
        engine.close()


def make_prompts(engine: Path, clients: int, length: int = 0) -> list[tuple[str, list[int]]]:
    """Text and ids, another one for each client: its words once, or again and again up to about ``length`` tokens."""
    codec = TextCodec.load(engine / "tokenizer")
    texts = [f"The value of {number}" for number in range(clients)]
    if length:
        long = [codec.encode(f"{text}, " * length, special_tokens=False)[: length - 1] for text in texts]
        texts = [codec.decode(ids) for ids in long]
    return [(text, list(codec.encode(text, special_tokens=True))) for text in texts]


@contextmanager
def server(engine: Path, release: str, clients: int, postprocessing: int, senders: int) -> Iterator[Served]:
    http, grpc, metrics = choose_ports((0, 0, 0))
    with tempfile.TemporaryDirectory() as folder, measuring_environment(Path(folder), senders) as token_times:
        options = ServingOptions(
            engine_dir=engine,
            tokenizer_dir=engine / "tokenizer",
            max_batch_size=clients,
            postprocessing_instances=postprocessing,
        )
        write_repository(Path(folder) / "repository", release, options.values())
        repository = Path(folder) / "repository"
        with TritonServer(repository, http_port=http, grpc_port=grpc, metrics_port=metrics) as running:
            yield Served(running, token_times)


@contextmanager
def measuring_environment(folder: Path, senders: int) -> Iterator[Path]:
    """What the server's processes inherit."""
    token_times = folder / "token-times.jsonl"
    os.environ[TOKEN_TIMES] = str(token_times)
    os.environ[SENDERS] = str(senders or "")
    try:
        yield token_times
    finally:
        del os.environ[TOKEN_TIMES], os.environ[SENDERS]


def measure_alone(engine: ServedEngine, prompts: Sequence[Sequence[int]], waves: int, tokens: int) -> float:
    """Tokens a second of the engine with nobody to tell."""
    began = time.perf_counter()
    for wave in range(waves):
        for number, prompt in enumerate(prompts):
            engine.submit(wave * len(prompts) + number, tuple(prompt), Sampling(max_new_tokens=tokens, end_id=-1))
        while engine.has_work:
            engine.step()
    return waves * len(prompts) * tokens / (time.perf_counter() - began)


def measure(served: Served, prompts: list[tuple[str, list[int]]], load: Load) -> Figures:
    running = served.running
    ask(running.grpc_url, prompts, Load(load.clients, 1, 4, load.streaming, load.model, f"warm, {load.name}"))
    before = processor_s(running)
    answers = ask(running.grpc_url, prompts, load)
    spent = {name: seconds - before.get(name, 0.0) for name, seconds in processor_s(running).items()}
    times = read_token_times(served.token_times) if load.streaming else {}
    return Figures(
        tokens_per_s=load.all_tokens / answers.seconds,
        ttft_ms=1e3 * median(each.at_s[0] - each.began_s for each in answers),
        late_ms=tuple(late for each in answers if times for late in late_ms(each, times[each.request_id])),
        pieces=sum(len(each.sizes) for each in answers),
        cpu_ms={name: 1e6 * seconds / load.all_tokens for name, seconds in spent.items()},
    )


def late_ms(pieces: Pieces, time: TokenTime) -> list[float]:
    """For each piece the time from the engine's giving its first token to its coming, in milliseconds.

    So the way of a single token is in it, and what a piece waited for its other tokens. ValueError where other pieces
    came than were sent.
    """
    begun = time.first_s()
    if len(begun) != len(pieces.at_s):
        raise ValueError(f"{len(begun)} responses were sent for {pieces.request_id}, and {len(pieces.at_s)} came")
    return [1e3 * (at_s - first_s) for at_s, first_s in zip(pieces.at_s, begun, strict=True)]


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


def table(alone: list[float], found: dict[str, list[Figures]], all_tokens: int, clients: int) -> Table:
    title = f"{clients} clients; engine alone: {median(alone):,.0f} tokens/s (median of {len(alone)})"
    shown = Table(title=title)
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
