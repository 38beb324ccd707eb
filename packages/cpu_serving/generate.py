"""What the steps of a batch hold, on one engine in this process."""

from collections.abc import Sequence
from pathlib import Path

from cpu_serving.engine import Engine, Sampling
from model_server.protocol import Batching, StepRecord
from model_server.text import TextCodec


def step_records(engine_dir: Path, prompt: str, lengths: Sequence[int], batching: Batching) -> list[StepRecord]:
    """The steps that one request of ``prompt`` per entry of ``lengths`` takes, each that many tokens long."""
    ids = TextCodec.load(engine_dir / "tokenizer").encode(prompt, special_tokens=False)
    with Engine(engine_dir, batching=batching, record_steps=True) as engine:
        engine.generate([ids] * len(lengths), [Sampling(max_new_tokens=length) for length in lengths])
        return list(engine.records)
