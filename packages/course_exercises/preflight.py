"""The exercises of the chapter on preflight: what must fit on the disk, and a profile that is refused and mended."""

from collections.abc import Callable, Mapping
from typing import Any

from course_exercises.exercise import Exercise, Wrong
from course_exercises.verdict import ExerciseVerdict, Solution
from serving_base.errors import ProfileError
from serving_base.facts.models import known_shape
from trtllm_check.deployment import Deployment, changed

SHAPES = ("llama-3-8b-instruct", "llama-3-70b-instruct", "llama-3.1-405b-instruct")
CLOSE = 0.01


def disk_gb(linear: int, other: int) -> float:
    model = 2 * (linear + other)
    checkpoint = linear + 2 * other
    engine = checkpoint
    return (model + checkpoint + engine) / 1e9


def one_byte_each(linear: int, other: int) -> float:
    return (2 + 1 + 1) * (linear + other) / 1e9


def without_the_engine(linear: int, other: int) -> float:
    return (3 * linear + 4 * other) / 1e9


def one_copy(linear: int, other: int) -> float:
    return 2 * (linear + other) / 1e9


def in_gib(linear: int, other: int) -> float:
    return (4 * linear + 6 * other) / 2**30


def check_disk(answer: Callable[[int, int], float]) -> Solution:
    """``answer(linear, other)``: GB of the 16-bit model, its FP8 checkpoint and the engine, from parameter counts."""
    verdicts = []
    for name in SHAPES:
        shape = known_shape(name)
        yours = float(answer(shape.linear_parameters, shape.parameters - shape.linear_parameters))
        expected = (shape.weight_bytes("full_prec") + 2 * shape.weight_bytes("fp8")) / 1e9
        why = (
            f"{shape.weight_bytes('full_prec') / 1e9:.1f} GB in 16 bits, and {shape.weight_bytes('fp8') / 1e9:.1f} GB "
            "each for checkpoint and engine, where embedding, lm_head and norms keep two bytes"
        )
        right = abs(yours / expected - 1) < CLOSE
        verdicts.append(ExerciseVerdict(name, f"{yours:.1f} GB", f"{expected:.1f} GB", why, right))
    return Solution("what must fit on the disk", tuple(verdicts))


def check_split(answer: Mapping[str, Mapping[str, Any]], *, profile: Deployment) -> Solution:
    """``broken``: settings of ``profile`` that its heads refuse. ``mended``: another split of all its GPUs."""
    title = "a profile that is refused"
    broken, mended = answer.get("broken"), answer.get("mended")
    if not broken or not mended:
        return Solution(title, problem="broken and mended name settings, such as {'tp': 2}; one is still empty")
    refusal = _refusal(profile, broken)
    verdicts = [
        ExerciseVerdict(
            f"broken: {dict(broken)}",
            refusal or "accepted",
            "refused for the attention heads",
            f"the {profile.shape.num_attention_heads} attention heads have to be divided evenly among the ranks, on "
            f"no more than {profile.gpu_count} GPUs",
            "attention heads" in refusal,
        )
    ]
    refusal = _refusal(profile, mended)
    ranks = "refused: " + refusal if refusal else f"{_split(changed(profile, **mended))}"
    other = not refusal and _split(changed(profile, **mended)) != _split(profile)
    full = not refusal and changed(profile, **mended).world_size == profile.gpu_count
    why = f"TP x PP uses every one of the {profile.gpu_count} GPUs, and it is not {_split(profile)}"
    verdicts.append(ExerciseVerdict(f"mended: {dict(mended)}", ranks, "another full split", why, other and full))
    return Solution(title, tuple(verdicts))


def _split(profile: Deployment) -> str:
    return f"TP {profile.tp} x PP {profile.pp}"


def _refusal(profile: Deployment, settings: Mapping[str, Any]) -> str:
    """What the profile's own rules say against ``settings``; empty when they are accepted."""
    try:
        changed(profile, **settings)
    except ProfileError as error:
        return error.what
    return ""


def _eight_gpus() -> Mapping[str, Any]:
    settings: dict[str, Any] = {"model": "llama-3-70b-instruct", "gpu": "h100-sxm-80gb", "gpu_count": 8, "tp": 8}
    return {"profile": Deployment(name="eight", **settings)}


EXERCISES = (
    Exercise(
        number="00-1",
        title="A profile that is refused",
        kind="break",
        minutes=5,
        check=check_split,
        solution={"broken": {"tp": 6}, "mended": {"tp": 4, "pp": 2}},
        also=({"broken": {"tp": 3, "pp": 2}, "mended": {"tp": 2, "pp": 4}},),
        wrong=(
            Wrong({"broken": {}, "mended": {}}, "one is still empty"),
            Wrong({"broken": {"tp": 16}, "mended": {"tp": 4, "pp": 2}}, "needs 16 GPUs"),
            Wrong({"broken": {"tp": 4}, "mended": {"tp": 4, "pp": 2}}, "yours accepted"),
            Wrong({"broken": {"tp": 6}, "mended": {"tp": 4}}, "uses every one of the 8 GPUs"),
            Wrong({"broken": {"tp": 6}, "mended": {"tp": 8}}, "and it is not TP 8 x PP 1"),
            Wrong({"broken": {"tp": 6}, "mended": {"tp": 1, "pp": 7}}, "does not divide the 80 layers"),
        ),
        row="profile is refused",
        context=_eight_gpus,
    ),
    Exercise(
        number="00-2",
        title="What must fit on the disk?",
        kind="compute",
        minutes=5,
        check=check_disk,
        solution=disk_gb,
        wrong=(
            Wrong(one_byte_each, "embedding, lm_head and norms keep two bytes"),
            Wrong(without_the_engine, "each for checkpoint and engine"),
            Wrong(in_gib, "expected 34.2 GB"),
            Wrong(one_copy, "yours 16.1 GB"),
        ),
    ),
)
