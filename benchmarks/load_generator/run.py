"""python -m benchmarks.load_generator.run ENGINE [--clients N]...: what AIPerf's own kind of closed loop costs.

The same closed loops through one server, in turn: as AIPerf calls them (``concurrency``: it looks for a free stream
without a pause), and as the course writes them (at most ``STARTS_PER_S`` starts a second). Shown for each: processor
seconds of AIPerf (its start-up, the same for both, included), what the server answered, and TTFT. A plain client, which
hardly needs a processor, gives the figures of the server alone.
"""

import resource
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.streaming.run import Workers, make_prompts, server
from load_testing import aiperf, plain_client
from load_testing.results import Load, RequestRecord, summarize
from load_testing.workload import WorkItem


class Looking(aiperf.Phase):
    """A closed loop of AIPerf's own kind."""

    def config(self) -> dict[str, object]:
        own = super().config()
        return {name: value for name, value in own.items() if name != "rate"} | {"type": "concurrency"}


def main(
    engine: Path,
    clients: Annotated[list[int] | None, typer.Option(help="streams at once; several times for several")] = None,
    requests: Annotated[int, typer.Option(help="of each stream")] = 12,
    tokens: int = 48,
    rounds: int = 2,
    release: str = "0.12.0",
) -> None:
    counts = clients or [1, 4, 16]
    table = Table("round", "closed loop", "streams", "tokens/s", "TTFT p50, ms", "TPOT p50, ms", "processor s of all")
    with server(engine, release, max(counts), Workers(1, 1, 0)) as served:
        url = served.running.http_url
        for number in range(rounds):
            for name, kind in (("AIPerf's own", Looking), ("as the course writes it", aiperf.Phase)):
                loads = {count: Load(mode="closed", concurrency=count) for count in counts}
                phases = [kind(f"closed_{count}", each, count * requests) for count, each in loads.items()]
                items = make_items(engine, sum(phase.requests for phase in phases), tokens)
                before = children_s()
                with tempfile.TemporaryDirectory() as folder:
                    out = Path(folder) / "out"
                    found = aiperf.profile(url, items, phases, tokenizer=engine / "tokenizer", out=out)
                spent = f"{children_s() - before:.1f}"
                for phase in phases:
                    table.add_row(str(number), name, *figures(phase.load, found[phase.name]), spent)
            for count in counts:
                items = make_items(engine, count * requests, tokens)
                plain = plain_client.closed_loop(url, items, concurrency=count, requests=count * requests, run="plain")
                table.add_row(str(number), "plain client", *figures(loads[count], plain), "")
    Console(width=130).print(table)


def make_items(engine: Path, count: int, tokens: int) -> list[WorkItem]:
    prompts = enumerate(make_prompts(engine, count))
    return [WorkItem(name=f"p{i}", text=text, isl_tokens=len(ids), osl_tokens=tokens) for i, (text, ids) in prompts]


def figures(load: Load, records: Sequence[RequestRecord]) -> tuple[str, ...]:
    found = summarize(records)
    times = (found.ttft_ms.p50, found.tpot_ms.p50)
    return (str(load.concurrency), f"{found.output_tokens_per_s:,.0f}", *(f"{each:.1f}" for each in times))


def children_s() -> float:
    """Processor seconds of the children that have ended: of AIPerf, for the server is there all the time."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


if __name__ == "__main__":
    typer.run(main)
