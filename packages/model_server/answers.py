"""Whole answers and streams of any engine that is stepped: what a caller with one thread needs."""

from collections.abc import Iterator, Sequence

from model_server.loop import StepEngine
from model_server.protocol import Completion, Output, Sampling
from serving_base.errors import EngineError


def complete(
    engine: StepEngine, prompts: Sequence[Sequence[int]], sampling: Sampling | Sequence[Sampling]
) -> list[Completion]:
    """Answer every prompt; one :class:`Completion` per prompt and returned sequence, in order.

    A refused prompt raises :class:`EngineError` before any of them runs, and so does a busy engine.
    """
    samplings = [sampling] * len(prompts) if isinstance(sampling, Sampling) else list(sampling)
    if len(samplings) != len(prompts):
        raise EngineError(f"{len(prompts)} prompts but {len(samplings)} samplings", fix="give one for each prompt")
    collected: dict[tuple[int, int], list[Output]] = {
        (number, index): [] for number, s in enumerate(samplings) for index in range(s.num_return_sequences)
    }
    for output in _run(engine, prompts, samplings):
        collected[output.request_id, output.sequence_index].append(output)
    return [join_outputs(outputs) for outputs in collected.values()]


def stream(engine: StepEngine, prompt: Sequence[int], sampling: Sampling) -> Iterator[Output]:
    """Yield the answer as it comes; leaving the loop early cancels the request."""
    return _run(engine, [prompt], [sampling])


def join_outputs(outputs: Sequence[Output]) -> Completion:
    """All outputs of one sequence as one answer."""
    return Completion(
        tuple(token for output in outputs for token in output.token_ids),
        tuple(value for output in outputs for value in output.log_probs),
        outputs[-1].finish_reason,
    )


def _run(engine: StepEngine, prompts: Sequence[Sequence[int]], samplings: Sequence[Sampling]) -> Iterator[Output]:
    busy = engine.has_work
    if busy:
        raise EngineError("the engine is busy with other requests", fix="use submit() and step(), or wait")
    numbers = range(len(prompts))
    try:
        for number in numbers:
            engine.submit(number, tuple(prompts[number]), samplings[number])
        while engine.has_work:
            yield from engine.step()
    finally:
        for number in numbers:
            engine.cancel(number)
        while engine.has_work:
            engine.step()
