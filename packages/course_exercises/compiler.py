"""The exercises of the chapter on the compiler. A stub raises ``NotImplementedError``: told loudly, stops nothing.

What is right is never stored: the compiler itself is asked.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from course_exercises.exercise import Exercise, Wrong
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


def check_merges(chosen: Mapping[str, bool | None], compiled: Compilation) -> Solution:
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


WEIGHT_BITS: Mapping[str, int] = {
    "BF16": 16,
    "FP8": 8,
    "FP8, scale per channel": 8,
    "FP8 weight-only": 8,
    "INT8 SmoothQuant": 8,
    "INT8 weight-only": 8,
    "INT4 AWQ": 4,
    "NVFP4": 4,
}


def check_targets(chosen: Mapping[str, str], refusals: Mapping[str, Mapping[str, str]]) -> Solution:
    """Exercise 4: ``broken`` is a format that ``target`` refuses, ``mended`` one of as many bits that it takes.

    ``refusals``: format -> target -> what the compiler said; empty where it made an engine.
    """
    title = "a format that a GPU refuses"
    targets = sorted({target for by in refusals.values() for target in by})
    for word, known in {"target": targets, "broken": [*refusals], "mended": [*refusals]}.items():
        if chosen.get(word) not in known:
            return Solution(title, problem=f"{word} is none of {', '.join(known)}")
    target, verdicts = chosen["target"], []
    for word, expected in (("broken", "refused"), ("mended", "taken")):
        said = refusals[chosen[word]][target]
        yours, why = ("refused", f"the compiler says: {said}") if said else ("taken", "the compiler makes an engine")
        verdicts.append(ExerciseVerdict(f"{word}, {chosen[word]} on {target}", yours, expected, why, yours == expected))
    before, now = (WEIGHT_BITS[chosen[word]] for word in ("broken", "mended"))
    why = "the model has to fit the same memory, with no fewer bits"
    verdicts.append(ExerciseVerdict("bits of a weight", str(now), str(before), why, now == before))
    return Solution(title, tuple(verdicts))


def check_swiglu(write: Callable[..., Any], bench: CompilerBench) -> Solution:
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


def check_looks(marked: Mapping[str, str], bench: CompilerBench, checkpoint: Path, compiled: Compilation) -> Solution:
    """Exercise 2: marking ``free`` as an output adds no kernel to decoder layer 1, ``costly`` adds some."""
    title = "look for free"
    before = len(decoder_layer(compiled, 1))
    verdicts = []
    for word, wanted in (("free", "no more"), ("costly", "more")):
        name = marked.get(word, "")
        if not name:
            return Solution(title, problem=f"{word} names no tensor yet")
        if not name.startswith("layers.1."):
            return Solution(title, problem=f"{name} is no tensor of decoder layer 1")
        try:
            looked = bench.compile(checkpoint, outputs=[name])
        except PlaybookError as error:
            return Solution(title, problem=str(error))
        more = len(decoder_layer(looked, 1)) - before
        right = not looked.refusal and (more > 0) == (word == "costly")
        why = "a value costs nothing where a kernel ends anyway, and a fusion where it stays inside one"
        verdicts.append(ExerciseVerdict(f"{word}: {name}", f"{more} more kernels", wanted, why, right))
    return Solution(title, tuple(verdicts))


def swiglu(w: Any, gate: Any, up: Any) -> Any:
    sigmoid = w.named(w.net.add_activation(gate, w.trt.ActivationType.SIGMOID), "sigmoid")
    return w.quantize(w.multiply(w.multiply(gate, sigmoid, "silu"), up, "swiglu"), 0.02, "low")


def _not_quantized(w: Any, gate: Any, up: Any) -> Any:
    sigmoid = w.named(w.net.add_activation(gate, w.trt.ActivationType.SIGMOID), "sigmoid")
    return w.multiply(w.multiply(gate, sigmoid, "silu"), up, "swiglu")


def _without_silu(w: Any, gate: Any, up: Any) -> Any:
    return w.quantize(w.multiply(gate, up, "product"), 0.02, "low")


def _unknown_name(w: Any, gate: Any, up: Any) -> Any:
    return w.silu(gate) * up


MERGED = {"a": True, "b": True, "c": True, "d": False, "e": False}
LOOKS = {"free": "layers.1.attention.dense", "costly": "layers.1.input_norm"}
ON_A10G = {"target": "SM86", "broken": "FP8", "mended": "INT8 SmoothQuant"}
COMPILER = "the compiler"
EXERCISES = (
    Exercise(
        number="13-1",
        title="What merges?",
        kind="predict",
        minutes=5,
        check=check_merges,
        solution=MERGED,
        wrong=(
            Wrong(dict.fromkeys(PAIRS), "pair a has no answer yet"),
            Wrong(MERGED | {"a": False}, "pair a: yours False, expected True"),
            Wrong(MERGED | {"d": True}, "pair d: yours True, expected False"),
            Wrong(MERGED | {"e": True}, "pair e: yours True, expected False"),
        ),
        needs=COMPILER,
    ),
    Exercise(
        number="13-2",
        title="Look for free",
        kind="choose",
        minutes=5,
        check=check_looks,
        solution=LOOKS,
        wrong=(
            Wrong({"free": "", "costly": ""}, "free names no tensor yet"),
            Wrong(LOOKS | {"free": "layers.0.attention.dense"}, "no tensor of decoder layer 1"),
            Wrong({"free": LOOKS["costly"], "costly": LOOKS["free"]}, "expected no more"),
        ),
        needs=COMPILER,
    ),
    Exercise(
        number="13-3",
        title="SwiGLU in NVIDIA's API",
        kind="compute",
        minutes=10,
        check=check_swiglu,
        solution=swiglu,
        wrong=(
            Wrong(_not_quantized, "expected FP8"),
            Wrong(_without_silu, "the largest error"),
            Wrong(_unknown_name, "silu"),
        ),
        needs=COMPILER,
    ),
    Exercise(
        number="13-4",
        title="A format that a GPU refuses",
        kind="break",
        minutes=5,
        check=check_targets,
        solution=ON_A10G,
        also=(ON_A10G | {"target": "SM80"}, ON_A10G | {"broken": "NVFP4", "mended": "INT4 AWQ"}),
        wrong=(
            Wrong({"target": "", "broken": "", "mended": ""}, "target is none of"),
            Wrong(ON_A10G | {"broken": "FP9"}, "broken is none of"),
            Wrong(ON_A10G | {"target": "SM89"}, "broken, FP8 on SM89: yours taken, expected refused"),
            Wrong(ON_A10G | {"mended": "FP8 weight-only"}, "HW-specific datatypes"),
            Wrong(ON_A10G | {"mended": "INT4 AWQ"}, "bits of a weight: yours 4, expected 8"),
        ),
        row="`Cannot compile for target(s) sm86 …`",
        needs=COMPILER,
    ),
)
