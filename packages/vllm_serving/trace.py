"""The kernels of chosen engine steps, by PyTorch's profiler inside vLLM's worker.

``python -m vllm_serving.trace JOB.json RESULT.json`` in vLLM's interpreter. The job: ``model`` and ``args`` of the
engine, ``out`` (folder), ``cases`` (fields of :class:`StepShape`). The result: by case, ``files``, the Chrome
traces of the ranks, rank 0 first, and ``steps``, how many engine steps are in them (0: none had the shape).
"""

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm_serving.job import answer, asked

KERNELS = ("kernel", "gpu_memcpy", "gpu_memset")
WARM_STEPS = 8
"""Matching decode steps before the first traced one."""


@dataclass(frozen=True)
class StepShape:
    """A step by its shape: ``requests`` in it with ``tokens`` in all; ``steps`` such steps are traced.

    ``prompt_tokens`` and ``new_tokens`` of each request make the engine take such steps.
    """

    name: str
    requests: int
    tokens: int
    steps: int
    prompt_tokens: int
    new_tokens: int

    @classmethod
    def prefill(cls, tokens: int) -> "StepShape":
        """One prompt in one step."""
        return cls(f"prefill{tokens}", 1, tokens, 1, tokens, 2)

    @classmethod
    def decode(cls, requests: int, steps: int = 10, prompt_tokens: int = 128) -> "StepShape":
        """One token for each of ``requests``."""
        return cls(f"decode{requests}", requests, requests, steps, prompt_tokens, 2 * WARM_STEPS + steps)


class StepTracer:
    """vLLM's worker extension: its methods become the worker's."""

    model_runner: Any
    rank: int

    def arm_trace(self, tokens: int, requests: int, skip: int, steps: int) -> None:
        """Trace ``steps`` engine steps of that shape, the first one after ``skip`` like it."""
        self._profiler: Any = None
        self._skip, self._wanted, self._traced, self._running = skip, steps, 0, False
        self._untraced = self.model_runner.execute_model

        def execute(scheduled: Any, *args: Any, **options: Any) -> Any:
            counts = scheduled.num_scheduled_tokens
            self._before_step(len(counts) == requests and sum(counts.values()) == tokens)
            return self._untraced(scheduled, *args, **options)

        self.model_runner.execute_model = execute

    def _before_step(self, matches: bool) -> None:
        if self._running and (not matches or self._traced == self._wanted):
            self._stop_trace()
        elif self._running:
            self._traced += 1
        elif matches and self._profiler is None and self._skip:
            self._skip -= 1
        elif matches and self._profiler is None:
            self._start_trace()
            self._traced = 1

    def _start_trace(self) -> None:
        import torch
        from torch.profiler import ProfilerActivity, profile

        torch.cuda.synchronize()
        self._profiler = profile(activities=[ProfilerActivity.CUDA])
        self._profiler.start()
        self._running = True

    def _stop_trace(self) -> None:
        import torch

        torch.cuda.synchronize()
        self._profiler.stop()
        self._running = False

    def save_trace(self, stem: str) -> tuple[str, int]:
        """Write the kernels, times from the first one on: the file and its steps; none if no step had the shape."""
        self.model_runner.execute_model = self._untraced
        if self._profiler is None:
            return "", 0
        if self._running:
            self._stop_trace()
        raw = Path(f"{stem}.rank{self.rank}.raw.json")
        self._profiler.export_chrome_trace(str(raw))
        events = [event for event in json.loads(raw.read_text())["traceEvents"] if event.get("cat") in KERNELS]
        raw.unlink()
        events.sort(key=lambda event: event["ts"])
        first = events[0]["ts"] if events else 0
        kept = [
            {
                "name": event["name"],
                "ph": "X",
                "cat": event["cat"],
                "ts": round(event["ts"] - first, 3),
                "dur": event["dur"],
                "pid": 0,
                "tid": event.get("args", {}).get("stream", 0),
            }
            for event in events
        ]
        path = Path(f"{stem}.rank{self.rank}.trace.json.gz")
        with gzip.open(path, "wt", compresslevel=9) as file:
            json.dump({"traceEvents": kept}, file)
        return str(path), self._traced


def trace_case(engine: Any, case: StepShape, out: Path, vocabulary: int) -> dict[str, Any]:
    """Run the engine until the case's steps have come, twice for a prefill: the first prompt of a size compiles."""
    from vllm import SamplingParams

    prompt_steps = case.tokens > case.requests
    engine.collective_rpc("arm_trace", args=(case.tokens, case.requests, 2 if prompt_steps else WARM_STEPS, case.steps))
    sampling = SamplingParams(temperature=0.0, max_tokens=case.new_tokens, ignore_eos=True, detokenize=False)
    for attempt in range(4 if prompt_steps else 1):
        ids = [(7 * number + attempt) % vocabulary for number in range(case.prompt_tokens)]
        prompts = [{"prompt_token_ids": [*ids[row:], *ids[:row]]} for row in range(case.requests)]
        engine.generate(prompts, sampling, use_tqdm=False)
    ranks = engine.collective_rpc("save_trace", args=(str(out / case.name),))
    files, steps = [path for path, _ in ranks if path], min(traced for _, traced in ranks)
    print(f"job: {case.name}: {steps} steps of {case.requests} requests and {case.tokens} tokens", flush=True)
    return {"files": files, "steps": steps}


def main() -> None:
    from vllm import LLM

    job = asked()
    out = Path(job["out"])
    out.mkdir(parents=True, exist_ok=True)
    engine = LLM(model=job["model"], worker_extension_cls="vllm_serving.trace.StepTracer", **job["args"])
    vocabulary = engine.model_config.get_vocab_size()
    cases = [StepShape(**case) for case in job["cases"]]
    answer({case.name: trace_case(engine, case, out, vocabulary) for case in cases})


if __name__ == "__main__":
    main()
