"""Stand-ins for what chapters 03 and 04 run in the container: build log, streaming, summarize.py, the executor.

Formats: trtllm-build's log as in TensorRT-LLM examples/gpt/README.md; summarize.py's as in TensorRT-LLM@010c4b27
examples/summarize.py; run.py's as in TensorRT-LLM@05316d33 examples/run.py; the executor's Python bindings as in
cpp/tensorrt_llm/pybind/executor/bindings.cpp (later executorConfig.cpp, request.cpp and nanobind's copies).
"""

import argparse
import datetime
import json
import os
import re
import runpy
import sys
import types
from enum import Enum
from pathlib import Path
from typing import Any

from stand_ins import Machine
from trtllm_check.releases import Release

STAMP = "[08/29/2024-09:39:37]"
SCORES = {"TensorRT-LLM": (26.3521, 9.5078, 18.1719, 21.1041), "HF": (26.9114, 9.8120, 18.4033, 21.3467)}
METRICS = ("rouge1", "rouge2", "rougeL", "rougeLsum")


def print_rank_build(rank: int, folder: Path, engine_bytes: int) -> None:
    """What TensorRT and trtllm-build log for one rank; its memory is the engine's size here, a figure of no meaning."""
    mib, usage = engine_bytes // 2**20, "[TRT] [I] [MemUsageStats] Peak memory usage"
    for line in (
        "[TRT] [I] Engine generation completed in 97.1204 seconds.",
        f"{usage} of TRT CPU/GPU memory allocators: CPU 212 MiB, GPU {mib} MiB",
        f"{usage} during Engine building and serialization: CPU: {3 * mib} MiB",
        "[TRT-LLM] [I] Total time of building Unnamed Network 0: 00:01:37",
        f"[TRT-LLM] [I] Serializing engine to {folder}/rank{rank}.engine...",
        "[TRT-LLM] [I] Engine serialized. Total time: 00:00:07",
    ):
        print(f"{STAMP} {line}")


def print_build_total() -> None:
    print(f"{STAMP} [TRT-LLM] [I] Total time of building all engines: 00:03:41")


def answer_of(machine: Machine, given: argparse.Namespace, prompt: str) -> str:
    """The test's own answer to a greedy question, else the tiny engine's, decoded as asked."""
    known = machine.answers()
    if prompt in known and given.top_k == 1:
        return known[prompt]
    if not machine.tiny_engine:
        return "un, deux,\ntrois"
    from model_server.generate import generate_text

    sampling = {"top_k": given.top_k, "top_p": given.top_p, "seed": given.random_seed}
    return generate_text(Path(machine.tiny_engine), [prompt], given.max_output_len, sampling)[0]


def print_streamed(number: int, prompt: str, answer: str, interval: int) -> None:
    """Every ``interval`` words the answer so far, and the whole at the end; the real one counts tokens."""
    words = re.findall(r"\s*\S+", answer)
    for end in sorted({*range(interval, len(words) + 1, interval), len(words)}):
        stop = "<|eot_id|>" if end == len(words) else ""
        print(f'Input [Text {number}]: "{prompt}"')
        print(f'Output [Text {number} Beam 0]: "{"".join(words[:end])}{stop}"')


def summarize(machine: Machine, release: Release, given: argparse.Namespace) -> int:
    """Fixed scores for the engine and, where asked, the 16-bit model; fails below the threshold as the tool does."""
    config = json.loads((Path(given.engine_dir) / "config.json").read_text(encoding="utf-8"))
    if config["pretrained_config"]["mapping"]["world_size"] != int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1")):
        return 1
    if given.eval_ppl and not config["build_config"].get("gather_context_logits"):
        print("AssertionError: PPL evaluation requires engine built with gather_context_logits enabled")
        return 1
    for title, tested in (("TensorRT-LLM", given.test_trt_llm), ("HF", given.test_hf)):
        if not tested:
            continue
        full = {"HF": "Hugging Face"}.get(title, title)
        print(f"{STAMP} [TRT-LLM] [I] {full} (total latency: 30.13867211341858 sec)")
        print(f"{STAMP} [TRT-LLM] [I] {title} beam 0 result")
        for name, value in zip(METRICS, SCORES[title], strict=True):
            print(f"{STAMP} [TRT-LLM] [I]   {name}: {value}")
    if given.check_accuracy and SCORES["TensorRT-LLM"][0] <= given.tensorrt_llm_rouge1_threshold:
        print("AssertionError: [FAILED] rouge1 is smaller than threshold")
        return 1
    return 0


def python3(machine: Machine, words: list[str]) -> int:
    """What the container's Python runs beside the release's own scripts."""
    return pip(words[2:]) if words[0] == "-m" else executor_steps(machine, Path(words[0]), words[1:])


def pip(words: list[str]) -> int:
    """`python3 -m pip install --target FOLDER`: refuses what is no such command, and makes the folder."""
    parser = argparse.ArgumentParser(prog="pip", allow_abbrev=False)
    parser.add_argument("verb", choices=["install"])
    for flag in ("--no-deps", "--upgrade"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("packages", nargs="+")
    given = parser.parse_args(words)
    given.target.mkdir(parents=True, exist_ok=True)
    return 0


# The executor.


class RequestStage(Enum):
    QUEUED = 0
    CONTEXT_IN_PROGRESS = 2
    GENERATION_IN_PROGRESS = 3
    GENERATION_COMPLETE = 4


class ExecutorConfig:
    """Keywords that both releases' bindings take; others are refused, as theirs refuse them."""

    def __init__(
        self,
        max_beam_width: int = 1,
        *,
        iter_stats_max_iterations: int = 1000,
        request_stats_max_iterations: int = 0,
        max_batch_size: int | None = None,
        max_num_tokens: int | None = None,
    ) -> None:
        self.kept = request_stats_max_iterations
        self.max_batch_size = max_batch_size


class Request:
    """Positional: 0.12 calls the second argument max_new_tokens, later releases max_tokens."""

    def __init__(self, input_token_ids: list[int], max_tokens: int, /) -> None:
        self.ids, self.max_tokens = input_token_ids, max_tokens


def make_executor(tiny_engine: str) -> type:
    """The executor's interface over the embedded lane's engine, which batches in flight for real."""
    from cpu_serving.engine import Engine, Sampling

    class Executor:
        def __init__(self, model_path: Path, model_type: str, executor_config: ExecutorConfig) -> None:
            assert (Path(model_path) / "rank0.engine").is_file()
            self.engine = Engine(Path(tiny_engine), record_steps=True)
            self.config, self.asked = executor_config, 0
            self.waiting: list[Any] = []

        def __enter__(self) -> "Executor":
            return self

        def __exit__(self, *how: object) -> None:
            self.engine.close()

        def can_enqueue_requests(self) -> bool:
            return True

        def enqueue_requests(self, requests: list[Request]) -> list[int]:
            numbers = list(range(self.asked + 1, self.asked + 1 + len(requests)))
            self.asked += len(requests)
            self.waiting += zip(numbers, requests, strict=True)
            return numbers

        def await_responses(self, timeout: datetime.timedelta) -> list[Any]:
            slots = self.config.max_batch_size or 0
            while self.waiting and self.engine.active + self.engine.waiting < slots:
                number, request = self.waiting.pop(0)
                self.engine.submit(number, request.ids, Sampling(max_new_tokens=request.max_tokens))
            ended = [output.request_id for output in self.engine.step() if output.finish_reason]
            result = types.SimpleNamespace(is_final=True)
            return [types.SimpleNamespace(request_id=n, has_error=lambda: False, result=result) for n in ended]

        def get_latest_iteration_stats(self) -> list[Any]:
            return [types.SimpleNamespace(iter=r.step, iter_latency_ms=1000 * r.seconds) for r in self.engine.records]

        def get_latest_request_stats(self) -> list[Any]:
            """What has happened since the last call. After its step a request's stage is the next one already."""
            records, self.engine.records = self.engine.records[-self.config.kept :], []
            made: dict[int, int] = {}
            steps = []
            for record in records:
                for number, new in record.new_tokens.items():
                    made[number] = made.get(number, 0) + new
                stats = [
                    types.SimpleNamespace(
                        id=number,
                        stage=RequestStage.GENERATION_IN_PROGRESS,
                        num_generated_tokens=made.get(number, 0),
                        scheduled=True,
                    )
                    for number in record.phases
                ]
                steps.append(types.SimpleNamespace(iter=record.step, request_stats=stats))
            return steps

    return Executor


def executor_steps(machine: Machine, script: Path, words: list[str]) -> int:
    """Run the playbook's own script, with the bindings' interface over the tiny engine."""
    bindings: Any = types.ModuleType("tensorrt_llm.bindings.executor")
    bindings.ModelType = types.SimpleNamespace(DECODER_ONLY="decoder only")
    bindings.ExecutorConfig, bindings.Request = ExecutorConfig, Request
    bindings.Executor = make_executor(machine.tiny_engine)
    for name in ("tensorrt_llm", "tensorrt_llm.bindings"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["tensorrt_llm.bindings.executor"] = bindings
    sys.argv = [str(script), *words]
    runpy.run_path(str(script), run_name="__main__")
    return 0
