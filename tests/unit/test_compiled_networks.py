"""What is said of a compiled network: the builder's list read, kernels named, faults found, exercises judged."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace as Thing
from typing import Any

import numpy as np
import pytest

import playbook
from checkout import ROOT
from compiled_networks import AT, bf16_layer, compilation, fp8_layer, kernel
from course_exercises.compiler import PAIRS, check_looks, check_merges, check_swiglu
from course_exercises.verdict import NOT_SOLVED, Solution
from serving_base.errors import EnvironmentProblem, UsageError
from serving_base.facts.models import known_shape
from trt_compiler import environment
from trt_compiler.bench import CompilerBench, CompilerRefusal
from trt_compiler.builds import refusal_of
from trt_compiler.fusion import decoder_layer, kernel_rows, kernels_with, role, together
from trt_compiler.onnx_llama import onnx_module
from trt_compiler.planted import differences, rotary_base, without_setting
from trt_compiler.steps import CompiledStep, pack, read_steps, unpack


def tensor(name: str, dtype: str) -> str:
    form = "Strides: [64,1], StrideOrder: [1,0]"
    return f"[ {{ Name: {name}, Dimensions: [8,64], {form}, Datatype: {dtype}, Format: (Linear) Row major }}]"


def listed(*steps: tuple[str, str, str]) -> str:
    """The builder's message about (name, kind, metadata)."""
    parts = (
        f"Inputs: {tensor('x', 'FP8')}, Constants: [], Outputs: {tensor('y', 'BFloat16')}, TacticName: t, StreamId: 0"
    )
    lines = [f"Name: {name}, LayerType: {kind}, {parts}, Metadata: {metadata}" for name, kind, metadata in steps]
    return "\n".join(["Layers:", *lines])


def test_the_builders_list_is_read() -> None:
    log = ["something else", listed(("a_myl0_1", "gemm", "qkv\x1fqkv.input_dq"), ("w", "wait", ""))]
    gemm, wait = read_steps(log)
    assert (gemm.name, gemm.kind, gemm.reads, gemm.writes) == ("a_myl0_1", "gemm", "FP8", "BF16")
    assert gemm.written == ("qkv", "qkv.input_dq")
    assert gemm.inputs[0].shape == (8, 64)
    assert gemm.computes and not wait.computes
    assert unpack(json.loads(json.dumps(pack(gemm)))) == gemm


def test_a_step_in_an_unknown_form_is_an_error_and_not_left_out() -> None:
    with pytest.raises(ValueError, match="unknown form"):
        read_steps([listed(("a", "gemm", "b")).replace("Constants: [], ", "")])


def test_a_kernel_that_spans_two_layers_counts_for_the_later_one() -> None:
    spanning = kernel("layers.0.mlp.residual", "layers.1.input_norm.mean")
    made = compilation([kernel("layers.0.mlp.down", kind="gemm"), spanning, kernel("logits")])
    assert decoder_layer(made, 0) == [made.steps[0]]
    assert decoder_layer(made, 1) == [spanning]


@pytest.mark.parametrize(
    ("step", "wanted"),
    [
        (kernel("layers.0.mlp.residual", "layers.1.input_norm.mean", f"{AT}.qkv.input_q"), "residual add + RMSNorm"),
        (kernel(f"{AT}.attention.dense", f"{AT}.attention.residual"), "GEMM dense + residual add"),
        (kernel(f"{AT}.mlp.up", f"{AT}.mlp.gate"), "GEMM gate and up"),
        (kernel(f"{AT}.attention.mix", name="_gemm_mha_v2_myl0_34"), "attention"),
        (kernel(f"{AT}.attention.mix", name="__myl_Repl"), "K or V repeated for each query head"),
        (kernel(f"{AT}.attention.scores"), "GEMM Q K^T"),
        (kernel("something"), "layout"),
    ],
)
def test_a_kernel_is_named_by_the_layers_in_it(step: CompiledStep, wanted: str) -> None:
    assert role(step).startswith(wanted)


def test_where_a_layer_went() -> None:
    made = compilation(fp8_layer())
    assert kernels_with(made, f"{AT}.mlp.up.input_q") == [made.steps[1]]
    assert together(made, f"{AT}.mlp.gate", f"{AT}.mlp.up")
    assert not together(made, f"{AT}.mlp.gate", f"{AT}.post_norm.mean")
    assert [row["written layers in it"] for row in kernel_rows(made.kernels)] == [1, 3, 2]


def test_the_sentence_that_refuses_is_found_among_the_errors() -> None:
    said = (
        "Error 4: Cannot compile for target(s) sm86, because the model contains HW-specific datatypes: fp8_e4m3. In f"
    )
    assert refusal_of(["first", said]).endswith("datatypes: fp8_e4m3.")
    assert refusal_of(["first", "second"]) == "first"
    assert "no reason" in refusal_of([])


def rotated(base: float) -> tuple[np.ndarray, np.ndarray]:
    before = np.random.default_rng(0).standard_normal((1, 4, 16, 32))
    angles = np.arange(16)[:, None] * base ** (-np.arange(16) / 16)
    low, high = np.split(before, 2, -1)
    turned = [low * np.cos(angles) - high * np.sin(angles), high * np.cos(angles) + low * np.sin(angles)]
    return before, np.concatenate(turned, -1)


@pytest.mark.parametrize("base", [10_000.0, 500_000.0])
def test_the_base_of_rope_is_read_back_from_what_it_turned(base: float) -> None:
    assert rotary_base(*rotated(base), position=12) == pytest.approx(base, rel=1e-6)


def test_differences_are_relative_in_order_and_zero_only_where_equal() -> None:
    right = {"a": np.ones(4), "b": np.full(4, 2.0)}
    found = differences(right, {"a": np.ones(4), "b": np.full(4, 3.0)})
    assert list(found.items()) == [("a", 0.0), ("b", 0.5)]


def test_a_copy_lacks_one_setting_and_shares_the_weights(tmp_path: Path) -> None:
    checkpoint = tmp_path / "whole"
    checkpoint.mkdir()
    (checkpoint / "config.json").write_text('{"rotary_base": 500000.0, "dtype": "bfloat16"}', encoding="utf-8")
    (checkpoint / "rank0.safetensors").write_bytes(b"weights")
    for _ in range(2):  # a cell may run twice
        spoiled = without_setting(checkpoint, "rotary_base", tmp_path / "spoiled")
    assert json.loads((spoiled / "config.json").read_text(encoding="utf-8")) == {"dtype": "bfloat16"}
    assert (spoiled / "rank0.safetensors").read_bytes() == b"weights"
    with pytest.raises(UsageError, match="has no rope"):
        without_setting(checkpoint, "rope", tmp_path / "spoiled")


# Exercises.


def truth(steps: list[CompiledStep]) -> dict[str, bool | None]:
    return {letter: together(compilation(steps), *pair) for letter, pair in PAIRS.items()}


def test_the_compiled_network_judges_the_merges() -> None:
    for steps in (fp8_layer(), bf16_layer()):
        assert check_merges(truth(steps), compilation(steps)).solved
    assert not check_merges(truth(fp8_layer()), compilation(bf16_layer())).solved
    assert str(check_merges(dict.fromkeys(PAIRS), compilation(fp8_layer()))).startswith(NOT_SOLVED)


class HandBench:
    """Stands for the compiler: says what the test wants of every network."""

    def __init__(self, values: Callable[..., np.ndarray], made: Any) -> None:
        self.values, self.made = values, made

    def run_function(self, write: object, inputs: object, given: dict[str, np.ndarray]) -> np.ndarray:
        return self.values(**given)

    def compile_function(self, write: object, inputs: object) -> Any:
        return self.made

    def compile(self, checkpoint: object, outputs: list[str]) -> Any:
        return self.made[outputs[0]]


def silu(gate: np.ndarray, up: np.ndarray) -> np.ndarray:
    return np.asarray(gate / (1 + np.exp(-gate)) * up / 0.02)


def test_swiglu_wants_the_values_the_format_and_one_kernel() -> None:
    one = compilation([kernel("swiglu", writes="FP8")])
    two = compilation([kernel("silu"), kernel("swiglu", writes="FP8")])
    wide = compilation([kernel("swiglu", writes="BF16")])

    def judged(values: Callable[..., np.ndarray], made: Any) -> str:
        return str(check_swiglu(lambda: None, HandBench(values, made)))  # type: ignore[arg-type]

    assert "solved" in judged(silu, one) and NOT_SOLVED not in judged(silu, one)
    assert "largest error" in judged(lambda gate, up: gate * up, one)
    assert "largest error" in judged(lambda gate, up: gate[:1], one)
    assert "kernels: yours 2" in judged(silu, two)
    assert "its output: yours BF16" in judged(silu, wide)


def test_a_stub_of_swiglu_is_loud() -> None:
    def refuses(**_: np.ndarray) -> np.ndarray:
        raise CompilerRefusal("NotImplementedError: write swiglu")

    found = check_swiglu(lambda: None, HandBench(refuses, None))  # type: ignore[arg-type]
    assert str(found).startswith(NOT_SOLVED) and "write swiglu" in str(found)


def test_looking_is_judged_by_the_kernels_of_the_layer() -> None:
    plain = compilation(fp8_layer())
    made = {f"{AT}.free": plain, f"{AT}.costly": compilation([*fp8_layer(), kernel(f"{AT}.more")])}
    bench: Any = HandBench(silu, made)

    def judged(free: str, costly: str) -> Solution:
        return check_looks({"free": free, "costly": costly}, bench, Path(), plain)

    assert judged(f"{AT}.free", f"{AT}.costly").solved
    assert not judged(f"{AT}.costly", f"{AT}.free").solved
    assert "names no tensor yet" in str(judged("", ""))
    assert "no tensor of decoder layer 1" in str(judged("layers.0.x", f"{AT}.costly"))


# Where the compiler is, and where it is not.


def test_a_missing_compiler_names_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(environment.PYTHON, str(tmp_path / "python"))
    assert "bootstrap.py --envs compiler" in environment.absence()
    assert "NVIDIA TensorRT SLA" in environment.absence()


def test_a_missing_environment_is_told_without_the_path_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Chapter 13 prints it, and a notebook with such a path cannot be recorded."""
    monkeypatch.delenv(environment.PYTHON, raising=False)
    monkeypatch.setattr(environment, "__file__", str(tmp_path / "packages" / "trt_compiler" / "environment.py"))
    monkeypatch.chdir(tmp_path)
    told = environment.absence()
    assert "there is no .envs/compiler/bin/python" in told and str(tmp_path) not in told


def interpreter(folder: Path, script: str) -> Path:
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def test_an_interpreter_without_the_compiler_and_one_with_another_version(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="has no NVIDIA compiler") as caught:
        environment.find_compiler(interpreter(tmp_path, "echo No module named x >&2; exit 1"))
    assert "No module named x" in caught.value.why
    with pytest.raises(EnvironmentProblem, match=r"has TensorRT-RTX 1\.6\.1\.120"):
        environment.find_compiler(interpreter(tmp_path, "echo 1.6.1.120"))
    found = environment.find_compiler(interpreter(tmp_path, f"echo {environment.TESTED}"))
    assert found.version == environment.TESTED


def test_a_compiler_that_dies_is_told_with_its_last_line(tmp_path: Path) -> None:
    python = interpreter(tmp_path, "echo cannot load the library >&2; exit 7")
    bench = CompilerBench(environment.CompilerInstallation(python, environment.TESTED))
    with pytest.raises(EnvironmentProblem, match="ended during limits") as caught:
        bench.limits()
    assert caught.value.why == "cannot load the library"


def test_more_layers_than_the_model_has_are_refused() -> None:
    bench = CompilerBench(Thing(python=Path("never asked")))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="has no 33 decoder layers"):
        bench.compile_shape(known_shape("llama-3-8b-instruct"), fp8=True, layers=33)


def test_the_ability_is_there_only_with_the_compiler_and_the_small_model(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for absent in ("", "not installed"):
        monkeypatch.setattr("playbook.chapter._compiler_absence", lambda absent=absent: absent)
        assert playbook.start("13", profile="local", workspace=str(tmp_path)).can("compile_network") is (not absent)
        assert not playbook.start("13", profile="p5", workspace=str(tmp_path)).can("compile_network")


def test_the_lock_has_the_tested_version_and_ci_makes_the_environment() -> None:
    lock = (ROOT / "playbook" / "locks" / "compiler.txt").read_text(encoding="utf-8")
    assert {f"tensorrt-rtx-cu13-{part}=={environment.TESTED}" for part in ("libs", "bindings")} <= set(lock.split())
    assert "NVIDIA TensorRT SLA" in lock
    assert "--envs compiler" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_an_environment_without_onnx_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(EnvironmentProblem, match="has no ONNX") as caught:
        onnx_module()
    assert "compiler" in caught.value.fix


def test_a_machine_without_the_compiler_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(environment.PYTHON, raising=False)
    monkeypatch.setattr(environment, "__file__", str(tmp_path / "a" / "b" / "environment.py"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(EnvironmentProblem, match="compiler is not installed") as caught:
        environment.find_compiler()
    assert "compiler" in caught.value.fix
