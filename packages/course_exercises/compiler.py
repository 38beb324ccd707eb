"""The exercises of the chapter on the compiler. A stub raises ``NotImplementedError``: told loudly, stops nothing.

What is right is never stored: the compiler itself is asked.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from course_exercises.verdict import ExerciseVerdict, Solution
from serving_base.errors import PlaybookError
from trt_compiler.bench import CompilerBench
from trt_compiler.fusion import decoder_layer, role, together
from trt_compiler.steps import Compilation

PAIRS: Mapping[str, tuple[str, str]] = {
    "a": ("layers.1.mlp.gate", "layers.1.mlp.up"),
    "b": ("layers.1.attention.residual", "layers.1.post_norm.mean"),
    "c": ("layers.1.attention.q_rope", "layers.1.attention.key_present"),
    "d": ("layers.1.mlp.swiglu", "layers.1.mlp.down"),
    "e": ("layers.1.mlp.residual", "layers.1.mlp.down"),
}
"""Letter -> two layers of the FP8 network, of which the learner says whether one kernel takes both."""
WIDTH = 64
SWIGLU_SCALE = 0.02
SWIGLU_INPUTS = {"gate": ("bfloat16", (-1, WIDTH)), "up": ("bfloat16", (-1, WIDTH))}


def check_merges(compiled: Compilation, chosen: Mapping[str, bool | None]) -> Solution:
    """Exercise 1: in which pairs do both layers end up in one kernel?"""
    title = "which layers merge"
    verdicts = []
    for letter, (first, second) in PAIRS.items():
        yours = chosen.get(letter)
        if yours is None:
            return Solution(title, problem=f"pair {letter} has no answer yet")
        found = together(compiled, first, second)
        homes = dict.fromkeys(role(step) for step in compiled.kernels if {first, second} & set(step.written))
        why = f"the kernels are: {'; '.join(homes)}"
        verdicts.append(ExerciseVerdict(f"pair {letter}", str(bool(yours)), str(found), why, bool(yours) == found))
    return Solution(title, tuple(verdicts))


def check_swiglu(bench: CompilerBench, write: Callable[..., Any]) -> Solution:
    """Exercise 3: ``write(w, gate, up)`` writes silu(gate) * up, rounded to FP8: the right values, one kernel."""
    title = "SwiGLU in NVIDIA's API"
    random = np.random.default_rng(0)
    values = {name: random.standard_normal((8, WIDTH)).astype(np.float32).round(2) for name in SWIGLU_INPUTS}
    try:
        yours = bench.run_function(write, SWIGLU_INPUTS, values)
        compiled = bench.compile_function(write, SWIGLU_INPUTS)
    except (PlaybookError, OSError) as error:
        return Solution(title, problem=str(error))
    gate, up = values["gate"], values["up"]
    exact = gate / (1 + np.exp(-gate)) * up / SWIGLU_SCALE
    worst = float("inf")
    if yours.shape == exact.shape:
        worst = float((np.abs(yours - exact) / np.maximum(np.abs(exact), 1.0)).max())
    why = "E4M3 is off by a sixteenth at most, and BF16 before it by less than a hundredth"
    verdicts = [
        ExerciseVerdict("the largest error", f"{worst:.3f}", "at most 0.08", why, worst <= 0.08),
        ExerciseVerdict(
            "its output",
            compiled.kernels[-1].writes if compiled.kernels else compiled.refusal,
            "FP8",
            "quantize last, and return what the quantize layer gives",
            bool(compiled.kernels) and compiled.kernels[-1].writes == "FP8",
        ),
        ExerciseVerdict(
            "kernels",
            str(len(compiled.kernels)),
            "1",
            "elementwise layers behind each other need no memory between them",
            len(compiled.kernels) == 1,
        ),
    ]
    return Solution(title, tuple(verdicts))


def check_looks(bench: CompilerBench, checkpoint: Path, plain: Compilation, free: str, costly: str) -> Solution:
    """Exercise 2: marking ``free`` as an output adds no kernel to decoder layer 1, marking ``costly`` adds some."""
    title = "look for free"
    before = len(decoder_layer(plain, 1))
    verdicts = []
    for word, name, wanted in (("free", free, "no more"), ("costly", costly, "more")):
        if not name:
            return Solution(title, problem=f"{word} names no tensor yet")
        if not name.startswith("layers.1."):
            return Solution(title, problem=f"{name} is no tensor of decoder layer 1")
        try:
            marked = bench.compile(checkpoint, outputs=[name])
        except PlaybookError as error:
            return Solution(title, problem=str(error))
        more = len(decoder_layer(marked, 1)) - before
        right = not marked.refusal and (more > 0) == (word == "costly")
        why = "a value costs nothing where a kernel ends anyway, and a fusion where it stays inside one"
        verdicts.append(ExerciseVerdict(f"{word}: {name}", f"{more} more kernels", wanted, why, right))
    return Solution(title, tuple(verdicts))
