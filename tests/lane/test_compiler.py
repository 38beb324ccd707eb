"""NVIDIA's compiler itself, without a GPU: the table of its counts, what it refuses, and what its networks compute."""

import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nbformat import NotebookNode

from checkout import PYTHON_PATH, ROOT
from compiler_here import needs_compiler
from course_exercises.exercise import checked, exercise
from playbook.course.notebooks import chapter, chapters, read
from serving_base.facts.models import known_shape
from tiny_llama import MODEL_DIR
from tiny_llama.data import prompt_ids
from trt_compiler.bench import CompilerBench, CompilerRefusal, open_compiler
from trt_compiler.environment import FIX, PYTHON
from trt_compiler.formats import FORMATS
from trt_compiler.fusion import decoder_layer, role, together, written_layers
from trt_compiler.planted import without_setting
from trt_compiler.steps import Compilation

TARGETS = ["SM80", "SM86", "SM89", "SM120"]
COUNTS = {"fp8": (430, 76, 58, 103, 12), "bf16": (278, 76, 58, 65, 12)}
"""TensorRT-RTX 1.7.1.116: layers written, steps, kernels; written in decoder layer 1, kernels of it."""
ACCEPTED = {
    "BF16": TARGETS,
    "FP8": TARGETS[2:],
    "FP8, scale per channel": TARGETS[2:],
    "FP8 weight-only": TARGETS[2:],
    "INT8 SmoothQuant": TARGETS,
    "INT8 weight-only": TARGETS,
    "INT4 AWQ": TARGETS,
    "NVFP4": TARGETS[3:],
}
STEPS = {
    "BF16": ["gemm BF16"],
    "FP8": ["kgen FP8", "gemm BF16"],
    "FP8, scale per channel": ["kgen FP8", "gemm FP32", "kgen BF16"],
    "FP8 weight-only": ["runtime_fusion BF16"],
    "INT8 SmoothQuant": ["kgen INT8", "gemm FP32", "kgen BF16"],
    "INT8 weight-only": ["runtime_fusion BF16"],
    "INT4 AWQ": ["runtime_fusion BF16"],
    "NVFP4": ["kgen FP4+FP8", "kgen FP8", "gemm BF16"],
}
SHORT = {"max_seq_len": 128, "max_input_len": 64}
ASKED = {"13-1": ["compiled"], "13-2": ["bench", "checkpoint", "compiled"], "13-3": ["bench"], "13-4": ["refusals"]}
"""What chapter 13 hands to each of its exercises."""
INPUTS = {"x": ("bfloat16", (-1, 64))}
QUESTION = "How do I count to nine in French?"


@pytest.fixture(scope="module")
def bench() -> CompilerBench:
    return open_compiler()


@pytest.fixture(scope="module")
def built(bench: CompilerBench, fp8_checkpoint: Path) -> dict[str, Compilation]:
    return {"fp8": bench.compile(fp8_checkpoint), "bf16": bench.compile(MODEL_DIR)}


@pytest.fixture(scope="module")
def tried(bench: CompilerBench) -> dict[str, dict[str, Compilation]]:
    """Format -> target -> what became of it."""
    return bench.compile_formats(list(FORMATS), TARGETS)


@pytest.fixture(scope="module")
def spoken(bench: CompilerBench, fp8_checkpoint: Path, tokenizer: Any) -> list[int]:
    """The FP8 network's answer to ``QUESTION``."""
    asked = {"max_new_tokens": 40, "end_id": tokenizer.eos_token_id, **SHORT}
    return bench.answer(fp8_checkpoint, prompt_ids(tokenizer, QUESTION), **asked)


@needs_compiler
def test_the_compile_table(built: dict[str, Compilation]) -> None:
    found = {
        name: (
            len(one.written),
            len(one.steps),
            len(one.kernels),
            len(written_layers(one, 1)),
            len(decoder_layer(one, 1)),
        )
        for name, one in built.items()
    }
    assert found == COUNTS
    assert 0 < built["fp8"].engine_bytes < built["bf16"].engine_bytes


@needs_compiler
def test_what_each_kernel_of_the_fp8_layer_is(built: dict[str, Compilation]) -> None:
    repeated = "K or V repeated for each query head"
    assert [role(step) for step in decoder_layer(built["fp8"], 1)] == [
        "residual add + RMSNorm + rounding to FP8",
        "GEMM qkv",
        "RoPE + KV cache update + rounding to FP8",
        repeated,
        repeated,
        "attention",
        "heads side by side + rounding to FP8",
        "GEMM dense",
        "residual add + RMSNorm + rounding to FP8",
        "GEMM gate and up",
        "SwiGLU + rounding to FP8",
        "GEMM down",
    ]
    assert together(built["bf16"], "layers.1.attention.dense", "layers.1.attention.residual")


@needs_compiler
def test_eight_formats_on_four_targets(tried: dict[str, dict[str, Compilation]]) -> None:
    assert {name: [to for to in TARGETS if by[to].engine_bytes] for name, by in tried.items()} == ACCEPTED
    newest = {name: by["SM120"].kernels for name, by in tried.items()}
    assert {name: [f"{step.kind} {step.writes}" for step in steps] for name, steps in newest.items()} == STEPS
    refused = "Cannot compile for target(s) sm86, because the model contains HW-specific datatypes: fp8_e4m3."
    assert tried["FP8"]["SM86"].refusal == refused


@needs_compiler
def test_the_written_network_is_llama(
    bench: CompilerBench, fp8_checkpoint: Path, tokenizer: Any, spoken: list[int]
) -> None:
    prompt = prompt_ids(tokenizer, QUESTION)
    asked = {"max_new_tokens": 40, "end_id": tokenizer.eos_token_id, **SHORT}
    assert bench.answer(fp8_checkpoint, prompt, attention="primitive", **asked) == spoken
    assert bench.answer(MODEL_DIR, prompt, **asked) == spoken
    assert "un, deux, trois, quatre" in tokenizer.decode(spoken)


@needs_compiler
def test_a_wrong_base_shows_first_in_rope(bench: CompilerBench, fp8_checkpoint: Path) -> None:
    right = bench.tensors(fp8_checkpoint, range(9, 20), max_seq_len=32)
    wrong = bench.tensors(fp8_checkpoint, range(9, 20), max_seq_len=32, rope_theta=10000.0)
    differing = [name for name in right if not np.array_equal(right[name], wrong[name])]
    assert differing[0] == "layers.0.attention.q_rope"
    assert "layers.3.mlp.residual" in differing


def rms_norm(w, x):  # type: ignore[no-untyped-def]
    wide = w.cast(x, "float32", "wide")
    mean = w.mean(w.multiply(wide, wide, "square"), "mean")
    root = w.square_root(w.add(mean, w.constant(np.full((1, 1), 1e-5, np.float32), "epsilon"), "variance"), "root")
    return w.multiply(w.cast(w.divide(wide, root, "scaled"), "bfloat16", "narrow"), w.bf16(np.ones((1, 64)), "g"), "n")


def broken(w, x):  # type: ignore[no-untyped-def]
    return missing_name  # type: ignore[name-defined] # noqa: F821


@needs_compiler
def test_a_function_of_the_reader_is_compiled_and_computed(bench: CompilerBench) -> None:
    assert len(bench.compile_function(rms_norm, INPUTS).kernels) == 1
    rows = np.random.default_rng(0).standard_normal((3, 64)).astype(np.float32) + 1
    exact = rows / np.sqrt((rows**2).mean(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(bench.run_function(rms_norm, INPUTS, {"x": rows}), exact, rtol=0.02, atol=0.02)
    with pytest.raises(CompilerRefusal, match="missing_name"):
        bench.compile_function(broken, INPUTS)
    with pytest.raises(CompilerRefusal, match="no target SM90"):
        bench.compile_function(rms_norm, INPUTS, targets=["SM90"])


@needs_compiler
def test_what_the_library_refuses(bench: CompilerBench) -> None:
    assert bench.limits() == {"targets": ["SM75", "SM80", "SM86", "SM89", "SM120", "SM121"], "plugin methods": []}
    refused = bench.compile_function(rms_norm, INPUTS, flags=["REFIT"])
    assert refused.engine_bytes == 0 and "CUDA_SUCCESS" in refused.refusal


@needs_compiler
@pytest.mark.parametrize("number", [*ASKED])
def test_the_compiler_takes_the_solution_and_refuses_the_wrong_answers(
    number: str,
    bench: CompilerBench,
    built: dict[str, Compilation],
    tried: dict[str, dict[str, Compilation]],
    fp8_checkpoint: Path,
) -> None:
    refusals = {name: {target: one.refusal for target, one in by.items()} for name, by in tried.items()}
    given = {"compiled": built["fp8"], "bench": bench, "checkpoint": fp8_checkpoint, "refusals": refusals}
    asked = {name: given[name] for name in ASKED[number]}
    one = exercise(number)
    assert checked(number, one.solution, **asked).solved
    for wrong in one.wrong:
        found = checked(number, wrong.answer, **asked)
        assert not found.solved and wrong.says in str(found), str(found)


@needs_compiler
def test_one_onnx_file_answers_by_onnx_runtime_and_goes_through_nvidias_parser(
    bench: CompilerBench, fp8_checkpoint: Path, tokenizer: Any, spoken: list[int], tmp_path: Path
) -> None:
    prompt = prompt_ids(tokenizer, QUESTION)
    asked: dict[str, Any] = {"max_new_tokens": 40, "end_id": tokenizer.eos_token_id}
    for name, checkpoint, nodes, layers, steps in (
        ("fp8", fp8_checkpoint, 217, 506, 77),
        ("fp16", MODEL_DIR, 117, 342, 51),
    ):
        file = tmp_path / f"{name}.onnx"
        assert sum(bench.write_onnx(checkpoint, file).values()) == nodes
        assert bench.answer_onnx(file, prompt, **asked) == spoken
        made = bench.compile_onnx(file)
        assert (len(made.written), len(made.steps)) == (layers, steps), name
        assert sum("mha" in step.name for step in made.kernels) == 4
    script = bench.hand_over(tmp_path, prompt, spoken, end_id=tokenizer.eos_token_id)
    argv = [str(bench.installation.python), str(script), str(tmp_path / "fp8.onnx"), "--cpu"]
    told = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    assert "the same tokens as the course's processor: True" in told
    spoiled = tmp_path / "spoiled.onnx"
    spoiled.write_bytes((tmp_path / "fp8.onnx").read_bytes().replace(b"MatMul", b"NoSuch"))
    with pytest.raises(CompilerRefusal, match=r"stops at layers\.0\.attention\.query \(NoSuch\)"):
        bench.compile_onnx(spoiled)


@needs_compiler
def test_a_large_model_is_compiled_from_its_sizes(bench: CompilerBench) -> None:
    made = bench.compile_shape(known_shape("llama-3-8b-instruct"), fp8=True, layers=3)
    assert made.weight_bytes < 2**20
    assert len(decoder_layer(made, 1)) == COUNTS["fp8"][4] + 1


@needs_compiler
def test_an_unknown_tensor_and_a_checkpoint_without_its_base_are_told(
    bench: CompilerBench, fp8_checkpoint: Path, tmp_path: Path
) -> None:
    with pytest.raises(CompilerRefusal, match=r"no tensor is called layers\.9\.x"):
        bench.compile(fp8_checkpoint, outputs=["layers.9.x"])
    with pytest.raises(CompilerRefusal, match="has no rotary_base"):
        bench.compile(without_setting(fp8_checkpoint, "rotary_base", tmp_path))


def test_without_the_compiler_the_chapter_says_so_and_goes_on(tmp_path: Path) -> None:
    """Every cell runs, and those that need the compiler name the command that installs it."""
    from nbclient import NotebookClient

    notebook: NotebookNode = read(chapter("13", chapters(ROOT / "notebooks")).path)
    saved = {name: os.environ.get(name) for name in (PYTHON, "PYTHONPATH", "PLAYBOOK_WORKSPACE")}
    os.environ |= {PYTHON: str(tmp_path / "none"), "PYTHONPATH": PYTHON_PATH, "PLAYBOOK_WORKSPACE": str(tmp_path / "w")}
    try:
        NotebookClient(
            notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
        ).execute()
    finally:
        for name, value in saved.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    silent = [
        cell.id
        for cell in code
        if "print(missing)" in cell.source and FIX not in "".join(o.get("text", "") for o in cell.outputs)
    ]
    assert silent == []
    assert sum("print(missing)" in cell.source for cell in code) > 10
