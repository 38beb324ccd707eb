"""python -m benchmarks.streaming.run ENGINE [--clients N]... ...: what streaming through Triton leaves of an engine.

One run measures, in turn and several times, the engine alone in this process, one answer a request and streamed, by
token ids and through the ensemble, all with the same waves. A share is of the engine alone next to it. "Late" is how
long a piece took from the engine to the client, by one clock, from its first token on. ``--senders`` threads and
instances of ``--preprocessing`` and ``--postprocessing`` share the work. ``--breakdown`` shows where the processor's
time went, which a busy machine changes less; "client" is this process. ``--each-token`` measures the streams alone, on
a second server too, which sends one response a token, and how much later a token comes when it shares its response.

Both engines, the server's and the one alone, are open all the time, and each waits while the other works: an engine of
the vLLM lane on a GPU may take less than half of its memory (``--gpu-memory 0.4``, in a copy of its folder).
"""

import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import median
from typing import Annotated

import psutil
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.streaming import tables
from benchmarks.streaming.client import Load, ask
from benchmarks.streaming.tables import Figures, late_ms, token_late_ms
from model_server.engines import EngineOptions, ServedEngine, opener_of, warm_up
from model_server.protocol import Sampling
from model_server.text import TextCodec
from model_server.triton.repository import ServingOptions, write_repository
from model_server.triton.server import TritonServer
from model_server.triton.token_times import EACH_TOKEN, SENDERS, TOKEN_TIMES, read_token_times
from serving_base.servers import choose_ports

WAYS = {
    "ids, one answer": ("tensorrt_llm", False),
    "ids, streamed": ("tensorrt_llm", True),
    "text, one answer": ("ensemble", False),
    "text, streamed": ("ensemble", True),
}


def main(
    engine: Path,
    clients: Annotated[list[int] | None, typer.Option(help="how many at once; several times for several")] = None,
    waves: int = 4,
    tokens: int = 128,
    rounds: Annotated[int, typer.Option(help="how often each way is measured")] = 3,
    release: str = "0.12.0",
    prompt_tokens: Annotated[list[int] | None, typer.Option(help="length of each prompt; 0: a few words")] = None,
    postprocessing: Annotated[int, typer.Option(help="instances of postprocessing")] = 1,
    preprocessing: Annotated[int, typer.Option(help="instances of preprocessing")] = 1,
    senders: Annotated[int, typer.Option(help="threads that send responses; 0: as the server chooses")] = 0,
    gpu_memory: Annotated[float, typer.Option(help="share of the GPU's memory for each of the two engines")] = 0.0,
    breakdown: Annotated[bool, typer.Option(help="show where the processor's time went")] = False,
    each_token: Annotated[bool, typer.Option(help="measure the streams alone, with one response a token too")] = False,
) -> None:
    counts, lengths = clients or [16], prompt_tokens or [0]
    ways = {way: how for way, how in WAYS.items() if how[1] or not each_token}
    plan = Plan(waves, tokens, rounds, breakdown, ways)
    with lighter(engine, gpu_memory) as folder, opened(folder) as lone:
        shared: dict[tuple[int, int], dict[str, list[Figures]]] = {}
        workers = Workers(preprocessing, postprocessing, senders)
        with server(folder, release, max(counts), workers) as served:
            for length, count in product(lengths, counts):
                prompts = make_prompts(folder, count, length)
                shared[length, count] = measure_clients(served, lone, prompts, plan)
        if not each_token:
            return
        print("\none response a token", flush=True)
        with server(folder, release, max(counts), workers, each_token=True) as served:
            for length, count in product(lengths, counts):
                prompts = make_prompts(folder, count, length)
                found = measure_clients(served, lone, prompts, plan)
                show(tables.compared(shared[length, count], found, count))


@dataclass(frozen=True)
class Plan:
    """What is measured: answers of ``tokens`` tokens in ``waves``, each way ``rounds`` times."""

    waves: int
    tokens: int
    rounds: int
    breakdown: bool
    ways: Mapping[str, tuple[str, bool]]


@dataclass(frozen=True)
class Workers:
    """Processes that share the texts, and threads that share the responses (0: as the server chooses)."""

    preprocessing: int
    postprocessing: int
    senders: int


def show(table: Table) -> None:
    Console(width=150).print(table)


@dataclass(frozen=True)
class Served:
    """A server, and where it writes when the engine gave each token."""

    running: TritonServer
    token_times: Path


def measure_clients(
    served: Served, lone: ServedEngine, prompts: list[tuple[str, list[int]]], plan: Plan
) -> dict[str, list[Figures]]:
    """The rounds of each way, shown too."""
    clients, length = len(prompts), len(prompts[0][1])
    print(f"prompts of about {length} tokens", flush=True)
    alone: list[float] = []
    alone_ms: list[float] = []
    found: dict[str, list[Figures]] = {way: [] for way in plan.ways}
    for number in range(plan.rounds):
        before = processor_s()
        alone.append(measure_alone(lone, [ids for _, ids in prompts], plan.waves, plan.tokens))
        spent_s = sum(since(before, processor_s()).values())
        alone_ms.append(1e6 * spent_s / (clients * plan.waves * plan.tokens))
        for way, (model, streaming) in plan.ways.items():
            name = f"{way}, {clients}, {number}, {length}"
            load = Load(clients, plan.waves, plan.tokens, streaming, model, name)
            found[way].append(measure(served, prompts, load))
    show(tables.shares(alone, found, clients))
    if plan.breakdown:
        show(tables.breakdown(alone_ms, found))
    return found


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
def server(engine: Path, release: str, clients: int, workers: Workers, *, each_token: bool = False) -> Iterator[Served]:
    http, grpc, metrics = choose_ports((0, 0, 0))
    with tempfile.TemporaryDirectory() as folder, measuring(Path(folder), workers.senders, each_token) as token_times:
        options = ServingOptions(
            engine_dir=engine,
            tokenizer_dir=engine / "tokenizer",
            max_batch_size=clients,
            preprocessing_instances=workers.preprocessing,
            postprocessing_instances=workers.postprocessing,
        )
        write_repository(Path(folder) / "repository", release, options.values())
        repository = Path(folder) / "repository"
        with TritonServer(repository, http_port=http, grpc_port=grpc, metrics_port=metrics) as running:
            yield Served(running, token_times)


@contextmanager
def measuring(folder: Path, senders: int, each_token: bool) -> Iterator[Path]:
    """What the server's processes inherit."""
    token_times = folder / "token-times.pickles"
    wanted = {TOKEN_TIMES: str(token_times), SENDERS: str(senders or ""), EACH_TOKEN: "1" if each_token else ""}
    os.environ.update(wanted)
    try:
        yield token_times
    finally:
        for name in wanted:
            del os.environ[name]


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
    spent = since(before, processor_s(running))
    times = read_token_times(served.token_times) if load.streaming else {}
    streams = [(each, times[each.request_id]) for each in answers if times]
    return Figures(
        tokens=load.all_tokens,
        tokens_per_s=load.all_tokens / answers.seconds,
        ttft_ms=1e3 * median(each.at_s[0] - each.began_s for each in answers),
        late_ms=tuple(late for stream in streams for late in late_ms(*stream)),
        token_late_ms=tuple(late for stream in streams for late in token_late_ms(*stream)),
        pieces=sum(len(each.sizes) for each in answers),
        cpu_ms={name: 1e6 * seconds / load.all_tokens for name, seconds in spent.items()},
    )


def processor_s(running: TritonServer | None = None) -> dict[str, float]:
    """Processor seconds so far of this process ("client") and of those below it.

    Those of the server are "tritonserver", each stub by its model's name, and "engine" what is below a stub.
    """
    me = psutil.Process()
    guard, stubs = (running.pid, running.stub_pids) if running else (0, ())
    found = {"client": time.process_time()}
    for process in me.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            above = {process.pid, *(parent.pid for parent in process.parents())}
            if process.pid in stubs:
                name = _model_of(process.pid)
            elif above & set(stubs):
                name = "engine"
            else:
                name = "tritonserver" if guard in above else "engine alone"
            found[name] = found.get(name, 0.0) + times.user + times.system
    return found


def since(before: Mapping[str, float], now: Mapping[str, float]) -> dict[str, float]:
    return {name: seconds - before.get(name, 0.0) for name, seconds in now.items()}


def _model_of(pid: int) -> str:
    """The folder of the model file on a stub's command line."""
    return next(word.rsplit("/", 3)[-3] for word in psutil.Process(pid).cmdline() if word.endswith("model.py"))


if __name__ == "__main__":
    typer.run(main)
