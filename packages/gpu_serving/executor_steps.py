"""What an engine did in every step, under static and in-flight batching. Every rank runs it, in the container.

The container knows nothing of the playbook, so this file is copied beside the requests. It uses the Python bindings of
TensorRT-LLM's executor, the runtime that the Triton backend uses, too. Both policies run on one loaded engine:

- static: the next group is handed over when the whole group before has ended;
- in-flight: the executor admits a request as soon as a slot is free.

The file ``--output`` gets, for each policy, a list of steps: number, milliseconds, and per request its number, stage,
tokens generated and whether it was scheduled.
"""

import argparse
import datetime
import importlib
import json
from pathlib import Path
from typing import Any

KEPT_STEPS = 100_000
WAIT = datetime.timedelta(seconds=1)


def main() -> None:
    given = arguments()
    trtllm: Any = importlib.import_module("tensorrt_llm.bindings.executor")
    requests = json.loads(Path(given.requests).read_text(encoding="utf-8"))
    config = configured(trtllm, given.slots)
    at_once = {"static": given.slots, "inflight": len(requests) if limits_batches(config) else given.slots}
    with trtllm.Executor(Path(given.engine_dir), trtllm.ModelType.DECODER_ONLY, config) as executor:
        if executor.can_enqueue_requests():  # the first rank only; the others work for it
            result = {policy: measured(trtllm, executor, requests, policy, n) for policy, n in at_once.items()}
            Path(given.output).write_text(json.dumps(result), encoding="utf-8")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--engine_dir", "--requests", "--output"):
        parser.add_argument(name, required=True)
    parser.add_argument("--slots", type=int, required=True)
    return parser.parse_args()


def configured(trtllm: Any, slots: int) -> Any:
    """At most ``slots`` requests at a time, where the release lets one say so, and statistics of every step."""
    config = trtllm.ExecutorConfig(iter_stats_max_iterations=KEPT_STEPS, request_stats_max_iterations=KEPT_STEPS)
    if limits_batches(config):
        config.max_batch_size = slots
    return config


def limits_batches(config: Any) -> bool:
    """Whether the executor itself keeps to a number of slots. Where not, no more requests than that are handed over."""
    return hasattr(config, "max_batch_size")


def measured(
    trtllm: Any, executor: Any, requests: list[dict[str, Any]], policy: str, at_once: int
) -> list[dict[str, Any]]:
    """Run the requests, ``at_once`` of them handed over at most, and return what the executor says of its steps."""
    numbers: dict[int, int] = {}
    waiting = list(enumerate(requests))
    running: set[int] = set()
    while waiting or running:
        free = 0 if policy == "static" and running else at_once - len(running)
        if waiting and free:
            group, waiting = waiting[:free], waiting[free:]
            wanted = [trtllm.Request(request["ids"], request["max_new_tokens"]) for _, request in group]
            ids = executor.enqueue_requests(wanted)
            numbers.update({one: number for one, (number, _) in zip(ids, group)})  # noqa: B905 (Python 3.10)
            running |= set(ids)
        running -= ended(executor)
    latencies = {step.iter: step.iter_latency_ms for step in executor.get_latest_iteration_stats()}
    return [described(step, numbers, latencies) for step in executor.get_latest_request_stats()]


def ended(executor: Any) -> set[int]:
    """Wait for news, and return which requests ended."""
    done = set()
    for response in executor.await_responses(WAIT):
        if response.has_error():
            raise RuntimeError(response.error_msg)
        if response.result.is_final:
            done.add(response.request_id)
    return done


def described(step: Any, numbers: dict[int, int], latencies: dict[int, float]) -> dict[str, Any]:
    requests = [
        [numbers[each.id], each.stage.name, each.num_generated_tokens, each.scheduled]
        for each in step.request_stats
        if each.id in numbers
    ]
    return {"iter": step.iter, "ms": latencies.get(step.iter), "requests": requests}


if __name__ == "__main__":
    main()
