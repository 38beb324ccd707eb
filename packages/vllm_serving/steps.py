"""The steps that a batch takes under "static" and "inflight" batching, seen from outside the engine."""

import time
from collections import Counter, deque
from collections.abc import Sequence
from pathlib import Path

from model_server.engines import held_engine
from model_server.loop import StepEngine
from model_server.protocol import Batching, Sampling
from model_server.text import TextCodec
from serving_base.measures import Phase, StepRecord


def step_records(engine: Path, prompt: str, lengths: Sequence[int], slots: int) -> dict[str, list[StepRecord]]:
    """The steps of one request of ``prompt`` per entry of ``lengths``, at most ``slots`` at a time, by policy."""
    ids = tuple(TextCodec.load(engine / "tokenizer").encode(prompt, special_tokens=False))
    policies: tuple[Batching, ...] = ("static", "inflight")
    with held_engine(engine) as opened:
        return {policy: run_policy(opened, ids, lengths, slots, policy) for policy in policies}


def run_policy(
    engine: StepEngine, ids: tuple[int, ...], lengths: Sequence[int], slots: int, policy: Batching
) -> list[StepRecord]:
    """One record for every step that brought tokens. Static: none is sent before the whole batch has finished."""
    waiting, batch = deque(range(len(lengths))), list[int]()
    running, started = set[int](), set[int]()
    records: list[StepRecord] = []
    began = time.perf_counter()
    while waiting or running:
        if policy == "static" and not running:
            batch.clear()
        while waiting and len(running) < slots and (policy == "inflight" or len(batch) < slots):
            number = waiting.popleft()
            engine.submit(number, ids, Sampling(max_new_tokens=lengths[number]))
            running.add(number)
            batch.append(number)
        outputs = engine.step()
        if not outputs:
            continue  # nothing came within a tick
        now = time.perf_counter()
        made = Counter({output.request_id: 0 for output in outputs})
        phases: dict[int, Phase] = {number: "generation" if number in started else "context" for number in made}
        if policy == "static":
            phases |= {number: "padding" for number in batch if number not in running}
        for output in outputs:
            made[output.request_id] += len(output.token_ids)
        records.append(StepRecord(len(records), now - began, phases, dict(made)))
        running -= {output.request_id for output in outputs if output.finish_reason}
        started |= made.keys()
        began = now
    return records
