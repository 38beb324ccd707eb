"""The GPU lane's stages without a server: streaming, sampling, limits, steps of both policies, scores, the build's log.

The tools are stand-ins; what they print is in the real ones' format (sources in `stand_in_inference.py`).
"""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cpu_serving.build import build_engine
from gpu_serving import inference
from gpu_serving.inference import BuildLog, describe_built, printed_scores, read_build_log, records
from model_server.generate import stream_text
from playbook.lanes.tensorrt_llm import lane as tensorrt_llm
from playbook.profile import Profile, load_profile
from serving import ENGINE_OPTIONS
from serving_base.errors import EngineError, PlaybookError, UsageError
from sparse_models import write_model
from stand_ins import Machine
from tiny_llama import MODEL_DIR

PROMPT = "<|begin_of_text|>Return the number of"
LENGTHS = [8, 40, 12, 6, 10, 4]
RELEASES = ("0.12.0", "1.2.1")


@pytest.fixture(scope="module")
def tiny_engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny") / "engine"
    build_engine(MODEL_DIR, folder, replace(ENGINE_OPTIONS, max_batch_size=8))
    return folder


@pytest.fixture(scope="module", params=RELEASES)
def built(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, tiny_engine: Path
) -> Iterator["Gpu"]:
    """Profile, machine, workspace and engine of Llama-3-8B on one GPU; a tiny engine answers."""
    folder = tmp_path_factory.mktemp("gpu")
    machine = Machine(folder / "machine", request.param, str(tiny_engine)).install()
    profile, root = load_profile("p5-8b", request.param), folder / "workspace"
    model, checkpoint, engine = (root / profile.name / name for name in ("model", "checkpoint", "engine"))
    for made in (model, checkpoint, engine):
        made.mkdir(parents=True)
    write_model(model, profile.shape, MODEL_DIR, {})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{machine.programs}{os.pathsep}{os.environ['PATH']}")
        patch.setenv("OMP_NUM_THREADS", "1")
        tensorrt_llm.quantize(profile, model, checkpoint, root=root)
        tensorrt_llm.build(profile, checkpoint, engine, root=root)
        yield profile, machine, root, engine


@pytest.fixture
def gpu(built: "Gpu") -> "Gpu":
    """The same, with nothing noted yet."""
    (built[1].folder / "calls.jsonl").unlink(missing_ok=True)
    return built


Gpu = tuple[Profile, Machine, Path, Path]


def test_a_streamed_answer_comes_in_pieces(gpu: Gpu, tiny_engine: Path) -> None:
    profile, machine, root, engine = gpu
    pieces = tensorrt_llm.stream(profile, engine, PROMPT, 12, root=root)
    assert len(pieces) > 2
    assert "".join(pieces) == tensorrt_llm.generate(profile, engine, [PROMPT], 12, root=root)[0]
    argv = machine.calls("run.py")[0]["argv"]
    assert "--streaming" in argv and argv[argv.index("--streaming_interval") + 1] == "1"


def test_sampling_becomes_the_releases_own_flags(gpu: Gpu) -> None:
    profile, machine, root, engine = gpu
    asked = {"temperature": 0.8, "top_k": 50, "top_p": 0.9, "seed": 7}
    tensorrt_llm.generate(profile, engine, [PROMPT], 8, root=root, sampling=asked)
    argv = machine.calls("run.py")[0]["argv"]
    flags = ("--temperature", "--top_k", "--top_p", "--random_seed")
    assert [argv[argv.index(flag) + 1] for flag in flags] == ["0.8", "50", "0.9", "7"]
    with pytest.raises(UsageError, match="no sampling parameter is called 'top_n'"):
        tensorrt_llm.generate(profile, engine, [PROMPT], 8, root=root, sampling={"top_n": 1})


def test_a_prompt_that_run_py_would_cut_is_refused(gpu: Gpu) -> None:
    profile, machine, root, engine = gpu
    with pytest.raises(EngineError, match=r"prompt of \d+ tokens exceeds max_input_len 2048"):
        tensorrt_llm.generate(profile, engine, ["one " * 3000], 8, root=root)
    assert machine.calls("run.py") == []


def test_the_steps_of_both_policies_are_the_executors_own(gpu: Gpu) -> None:
    profile, machine, root, engine = gpu
    found = tensorrt_llm.step_records(profile, engine, PROMPT, LENGTHS, 3, root=root)
    assert len(found["static"]) == 40 + 10
    assert len(found["inflight"]) == 40
    for steps in found.values():
        assert {n: sum(step.new_tokens.get(n, 0) for step in steps) for n in range(6)} == dict(enumerate(LENGTHS))
        assert all(len(step.phases) <= 3 for step in steps)
        firsts = [next(step.phases[n] for step in steps if n in step.phases) for n in range(6)]
        assert firsts == ["context"] * 6
    assert found["static"][20].phases == {0: "padding", 1: "generation", 2: "padding"}
    assert "padding" not in {phase for step in found["inflight"] for phase in step.phases.values()}
    (call,) = [call for call in machine.calls("python3") if "executor_steps.py" in call["argv"][0]]
    assert call["argv"][call["argv"].index("--engine_dir") + 1] == str(engine)


def test_the_engine_is_scored_beside_the_16_bit_model(gpu: Gpu) -> None:
    profile, machine, root, engine = gpu
    scores = tensorrt_llm.summarize(profile, engine, root=root)
    assert set(scores.by_model) == {"engine", "16-bit model"}
    assert scores.by_model["engine"]["rouge1"] == 26.3521
    assert scores.left_out == ()
    assert "--test_hf" in machine.calls("summarize.py")[0]["argv"]


def test_the_folder_tells_how_the_engine_was_built(gpu: Gpu) -> None:
    profile, _, _, engine = gpu
    found = describe_built(engine)
    assert sum(found.rank_bytes.values()) == pytest.approx(profile.shape.weight_bytes("fp8"), rel=0.01)
    assert found.build.total_s == 221
    assert len(found.build.compile_s) == len(found.build.gpu_peak_mib) == len(found.rank_bytes) == 1
    assert found.plugins["use_paged_context_fmha"] == "enable"


def test_sampling_without_top_p_draws_from_all_of_top_k(gpu: Gpu) -> None:
    profile, machine, root, engine = gpu
    tensorrt_llm.generate(profile, engine, [PROMPT], 8, root=root, sampling={"top_k": 50})
    argv = machine.calls("run.py")[0]["argv"]
    assert argv[argv.index("--top_p") + 1] == "1.0"


def test_an_executor_without_a_limit_of_its_own_gets_no_more_than_the_slots() -> None:
    """Some release's ExecutorConfig may have no max_batch_size: then the script itself holds requests back."""
    from types import SimpleNamespace as Thing

    from gpu_serving import executor_steps

    class Bare:
        def __init__(self) -> None:
            self.running: list[int] = []
            self.groups: list[int] = []

        def enqueue_requests(self, requests: list[object]) -> list[int]:
            ids = list(range(sum(self.groups), sum(self.groups) + len(requests)))
            self.groups.append(len(requests))
            self.running += ids
            return ids

        def await_responses(self, timeout: object) -> list[Thing]:
            return [Thing(request_id=self.running.pop(0), has_error=lambda: False, result=Thing(is_final=True))]

        def get_latest_iteration_stats(self) -> list[Thing]:
            return []

        get_latest_request_stats = get_latest_iteration_stats

    requests = [{"ids": [1], "max_new_tokens": 2}] * 5
    trtllm = Thing(Request=lambda ids, length: None)
    assert not executor_steps.limits_batches(Thing())
    static, inflight = Bare(), Bare()
    executor_steps.measured(trtllm, static, requests, "static", 2)
    executor_steps.measured(trtllm, inflight, requests, "inflight", 2)
    assert (static.groups, inflight.groups) == ([2, 2, 1], [2, 1, 1, 1])


# Formats, as published.

CHATGLM = """\
[01/26/2024-02:40:36] [TRT] [I] Engine generation completed in 136.52 seconds.
[01/26/2024-02:40:36] [TRT] [I] [MemUsageStats] Peak memory usage of TRT CPU/GPU memory allocators: CPU 1016 MiB, GPU 11909 MiB
[01/26/2024-02:40:40] [TRT] [I] [MemUsageStats] Peak memory usage during Engine building and serialization: CPU: 29706 MiB
[01/26/2024-02:42:29] [TRT-LLM] [I] Engine serialized. Total time: 00:01:47
[01/26/2024-02:42:30] [TRT-LLM] [I] Total time of building all engines: 00:05:19
"""  # noqa: E501

QWEN = """\
[11/09/2023-02:24:06] [TRT-LLM] [I] TensorRT-LLM (total latency: 30.13867211341858 sec)
[11/09/2023-02:24:06] [TRT-LLM] [I] TensorRT-LLM beam 0 result
[11/09/2023-02:24:06] [TRT-LLM] [I]   rouge1 : 26.35215119137573
[11/09/2023-02:24:06] [TRT-LLM] [I]   rougeLsum : 21.10413175647868
[11/09/2023-02:24:06] [TRT-LLM] [I] Hugging Face (total latency: 12.436068534851074 sec)
[11/09/2023-02:24:06] [TRT-LLM] [I] HF beam 0 result
[11/09/2023-02:24:06] [TRT-LLM] [I]   rouge1: 15.732643239575761
[11/09/2023-02:24:06] [TRT-LLM] [I]   Per-token perplexity: 9.25
"""


def test_published_build_logs_are_read() -> None:
    assert read_build_log(CHATGLM) == BuildLog((136.52,), (11909,), (29706,), 319)
    assert read_build_log("nothing of it").total_s is None


def test_published_scores_are_read() -> None:
    found = printed_scores(QWEN)
    assert found["engine"] == {"rouge1": 26.35215119137573, "rougeLsum": 21.10413175647868}
    assert found["16-bit model"] == {"rouge1": 15.732643239575761, "perplexity": 9.25}


def test_a_stream_that_does_not_continue_is_an_error(tmp_path: Path) -> None:
    from types import SimpleNamespace as Thing

    execution: Any = Thing(log_path=tmp_path / "x.log")
    assert inference.pieces(["a", "ab\ufffd", "abé"], execution) == ["a", "b", "é"]
    with pytest.raises(PlaybookError, match="does not continue"):
        inference.pieces(["ab", "ba"], execution)


def test_steps_without_work_and_slots_of_a_finished_group_are_told_apart() -> None:
    def step(*requests: tuple[int, int]) -> dict[str, object]:
        return {"iter": 0, "ms": 2.0, "requests": [[n, "GENERATION_IN_PROGRESS", made, True] for n, made in requests]}

    found = records([step((0, 1), (1, 1)), step((1, 2)), step(), step((2, 1))], group=2)
    assert [one.phases for one in found] == [
        {0: "context", 1: "context"},
        {0: "padding", 1: "generation"},
        {2: "context"},
    ]
    assert [one.new_tokens for one in found] == [{0: 1, 1: 1}, {1: 1}, {2: 1}]


def test_both_lanes_stream_the_same_way(tiny_engine: Path) -> None:
    assert len(stream_text(tiny_engine, PROMPT, 5)) == 5
