"""What an engine did in every step, under static and in-flight batching. Every rank runs it, in the container.

The container knows nothing of the playbook, so this file is copied beside the requests. It uses the Python bindings of
TensorRT-LLM's executor, the runtime that the Triton backend uses, too. Both policies run on one loaded engine:

- static: the next group is handed over when the whole group before has ended;
- in-flight: all requests are handed over at once, and the executor admits one as soon as a slot is free.

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
    with trtllm.Executor(
        Path(given.engine_dir), trtllm.ModelType.DECODER_ONLY, configured(trtllm, given.slots)
    ) as executor:
        if executor.can_enqueue_requests():  # the first rank only; the others work for it
            result = {policy: measured(trtllm, executor, requests, size) for policy, size in policies(given, requests)}
            Path(given.output).write_text(json.dumps(result), encoding="utf-8")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--engine_dir", "--requests", "--output"):
        parser.add_argument(name, required=True)
    parser.add_argument("--slots", type=int, required=True)
    return parser.parse_args()


def configured(trtllm: Any, slots: int) -> Any:
    """At most ``slots`` requests at a time, and statistics of every step."""
    return trtllm.ExecutorConfig(
        max_batch_size=slots, iter_stats_max_iterations=KEPT_STEPS, request_stats_max_iterations=KEPT_STEPS
    )


def policies(given: argparse.Namespace, requests: list[dict[str, Any]]) -> list[tuple[str, int]]:
    """Each policy with how many requests are handed over together."""
    return [("static", given.slots), ("inflight", len(requests))]


def measured(trtllm: Any, executor: Any, requests: list[dict[str, Any]], size: int) -> list[dict[str, Any]]:
    """Run the requests in groups of ``size`` and return what the executor says of its steps."""
    numbers: dict[int, int] = {}
    for start in range(0, len(requests), size):
        group = range(start, min(start + size, len(requests)))
        wanted = [trtllm.Request(requests[n]["ids"], requests[n]["max_new_tokens"]) for n in group]
        ids = executor.enqueue_requests(wanted)
        numbers.update(zip(ids, group))  # noqa: B905 (Python 3.10)
        wait_for(executor, set(ids))
    latencies = {step.iter: step.iter_latency_ms for step in executor.get_latest_iteration_stats()}
    return [described(step, numbers, latencies) for step in executor.get_latest_request_stats()]


def wait_for(executor: Any, ids: set[int]) -> None:
    while ids:
        for response in executor.await_responses(WAIT):
            if response.has_error():
                raise RuntimeError(response.error_msg)
            if response.result.is_final:
                ids.discard(response.request_id)


def described(step: Any, numbers: dict[int, int], latencies: dict[int, float]) -> dict[str, Any]:
    requests = [
        [numbers[each.id], each.stage.name, each.num_generated_tokens, each.scheduled]
        for each in step.request_stats
        if each.id in numbers
    ]
    return {"iter": step.iter, "ms": latencies.get(step.iter), "requests": requests}


if __name__ == "__main__":
    main()
