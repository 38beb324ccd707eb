"""python -m benchmarks.churn.run ENGINE [--requests N] [--reuse | --no-reuse] [--blocks N] [--seed N]

Churn on the engine itself. Prints a line of JSON; OpenVINO GenAI prints a line with "leaked" if blocks are left.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.churn.churn import Answer, Ask, ask_alone, churn, write_asks
from benchmarks.churn.lanes import EngineLane, sizes
from cpu_serving.engine import Engine, Sampling
from model_server.text import TextCodec


def main(
    folder: Path,
    requests: int = 2000,
    reuse: bool = True,
    blocks: Annotated[int, typer.Option(help="KV cache blocks; 0: enough for every slot")] = 0,
    seed: int = 1,
    live: int = 24,
    close: Annotated[bool, typer.Option(help="close the engine, or leave that to the end of Python")] = True,
) -> None:
    codec = TextCodec.load(folder / "tokenizer")
    asks = write_asks()
    right = answers_alone(folder, codec, asks)
    engine = Engine(folder, threads=1, enable_block_reuse=reuse, kv_cache_blocks=blocks)
    report = churn(EngineLane(engine, codec), right, requests, seed=seed, most_live=live)
    for n, ask in enumerate(asks[:4]):  # some are still running when it is closed
        engine.submit(n, codec.encode(ask.text, special_tokens=True), Sampling(max_new_tokens=64))
        engine.step()
    if close:
        engine.close()
    print(
        json.dumps(
            {
                "reuse": reuse,
                "blocks": blocks,
                "seed": seed,
                "prompt_tokens": sizes(codec, asks),
                "answered": report.answered,
                "cancelled": report.cancelled,
                "wrong": len(report.wrong),
                "another_ones": sum(bool(one.other) for one in report.wrong),
                "examples": [asdict(one) for one in report.wrong[:3]],
            }
        ),
        flush=True,
    )


def answers_alone(folder: Path, codec: TextCodec, asks: list[Ask]) -> dict[Ask, Answer]:
    with Engine(folder, threads=1, enable_block_reuse=False) as engine:
        return ask_alone(EngineLane(engine, codec), asks)


if __name__ == "__main__":
    typer.run(main)
