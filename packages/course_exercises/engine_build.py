"""The exercises of the chapter on the build: limits for a load, a checkpoint without its base, a pasted command."""

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from course_exercises.exercise import Exercise, Wrong
from course_exercises.verdict import ExerciseVerdict, Solution
from serving_base.errors import CheckpointError, ProfileError
from serving_base.facts.models import known_shape
from trtllm_check.deployment import Deployment, changed
from trtllm_check.lint import check_commands

LIMITS = ("max_batch_size", "max_num_tokens", "max_input_len", "max_seq_len")
RELEASE = "0.12.0"
PROMPT, ANSWER, USERS, TTFT_MS = 6000, 1000, 48, 1000.0
"""The load of exercise 2: tokens of the longest prompt and answer, requests at once, first token at p90."""


def _base() -> Deployment:
    settings: dict[str, Any] = {"model": "llama-3-70b-instruct", "gpu": "h100-sxm-80gb", "gpu_count": 8, "tp": 8}
    return Deployment(name="new-load", release=RELEASE, **settings)


def check_limits(answer: Mapping[str, int | None]) -> Solution:
    """``answer``: the four limits of a build. The profile's rules, the checker and the planner judge them."""
    title = "limits for a new load"
    missing = [name for name in LIMITS if not answer.get(name)]
    if missing:
        return Solution(title, problem=f"{', '.join(missing)}: no number yet")
    limits = {name: answer[name] for name in LIMITS}
    try:
        deployment = changed(_base(), **limits)
    except ProfileError as error:
        return Solution(title, problem=error.what)
    longest = PROMPT + ANSWER
    fits = deployment.max_input_len >= PROMPT and deployment.max_seq_len >= longest
    lengths = ExerciseVerdict(
        "the longest request",
        f"{deployment.max_input_len} and {deployment.max_seq_len}",
        f"at least {PROMPT} and {longest}",
        "max_seq_len counts prompt and answer together; a longer request is refused",
        fits,
    )
    if not fits:
        return Solution(title, (lengths,))
    return Solution(title, (lengths, _build_verdict(deployment), _load_verdict(deployment)))


def _build_verdict(deployment: Deployment) -> ExerciseVerdict:
    from trtllm_check.recipes import commands, shell
    from trtllm_check.releases import load_release

    (command,) = commands(deployment, load_release(RELEASE), "build")
    found = check_commands(shell(command), RELEASE, gpu="h100", gpus=deployment.gpu_count)
    said = [one.message for one in found]  # hints too: a limit that is too high is one
    why = "playbook check has something against the build with these limits"
    return ExerciseVerdict("the build", "; ".join(said) or "nothing said", "nothing said", why, not said)


def _load_verdict(deployment: Deployment) -> ExerciseVerdict:
    from serving_planner import parse_case, plan

    found = plan(
        parse_case(
            {
                "model": deployment.model,
                "gpu": "h100-sxm",
                "tp": deployment.tp,
                "isl": PROMPT,
                "osl": ANSWER,
                "concurrency": USERS,
                "max_num_tokens": deployment.max_num_tokens,
                "max_batch_size": deployment.max_batch_size,
            }
        )
    )
    return ExerciseVerdict(
        f"the first token for {USERS} users [planned]",
        f"{found.ttft_ms.p90:,.0f} ms at p90",
        f"at most {TTFT_MS:,.0f} ms",
        f"{found.binding_limit} binds: users wait for a batch below {USERS}, and a small step cuts prompts into many",
        found.ttft_ms.p90 <= TTFT_MS,
    )


def mended(checkpoint: dict[str, Any], model: dict[str, Any]) -> dict[str, Any]:
    theta = model.get("rope_theta") or model["rope_parameters"]["rope_theta"]
    return {**checkpoint, "rotary_base": theta}


def not_mended(checkpoint: dict[str, Any], model: dict[str, Any]) -> dict[str, Any]:
    return {**checkpoint, "name": model.get("model_type")}


def by_heart(checkpoint: dict[str, Any], model: dict[str, Any]) -> dict[str, Any]:
    return {**checkpoint, "rotary_base": 500000.0, "name": model.get("model_type")}


def old_place_only(checkpoint: dict[str, Any], model: dict[str, Any]) -> dict[str, Any]:
    return {**checkpoint, "rotary_base": model.get("rope_theta")}


MODELS: Mapping[str, tuple[str, bool]] = {
    "Llama-3-8B, config.json of transformers 4": ("llama-3-8b-instruct", True),
    "Llama-3-8B, config.json of transformers 5": ("llama-3-8b-instruct", False),
    "Llama-2-7B, config.json of transformers 5": ("llama-2-7b-chat", False),
}
"""Model -> its shape, and whether ``rope_theta`` stands at the top level."""


def check_rotary(answer: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]) -> Solution:
    """``answer(checkpoint, model)`` gives the checkpoint's config with the model's rotary base; the builder judges."""
    from cpu_serving.checkpoint import tensorrt_llm_shape

    verdicts = []
    for given, (name, at_the_top) in MODELS.items():
        shape = known_shape(name)
        base = {"rope_theta": shape.rope_theta}
        model = {"model_type": "llama"} | (base if at_the_top else {"rope_parameters": base | {"rope_type": "default"}})
        try:
            yours = f"{tensorrt_llm_shape(Path('checkpoint'), answer(_checkpoint_config(name), model)).rope_theta:g}"
        except CheckpointError as error:
            yours = error.what
        why = "the base belongs to the model, and transformers 5 keeps it in rope_parameters"
        verdicts.append(ExerciseVerdict(given, yours, f"{shape.rope_theta:g}", why, yours == f"{shape.rope_theta:g}"))
    return Solution("a checkpoint without its rotary base", tuple(verdicts))


def _checkpoint_config(name: str) -> dict[str, Any]:
    """What an exporter under transformers 5 writes of model ``name``: everything but ``rotary_base``."""
    shape = known_shape(name)
    same = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    return {
        "architecture": "LlamaForCausalLM",
        **{key: getattr(shape, key) for key in (*same, "vocab_size", "max_position_embeddings")},
        "norm_epsilon": shape.rms_norm_eps,
        "mapping": {"world_size": 1, "tp_size": 1, "pp_size": 1},
        "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"},
    }


OLD, NEW = "0.12.0", "1.2.1"
UNKNOWN = "unrecognized arguments"


def check_pasted(answer: Mapping[str, str]) -> Solution:
    """``pasted``: a build that ``OLD`` takes and ``NEW`` does not know. ``mended``: the same for ``NEW``."""
    title = "a command of another release"
    pasted, mend = answer.get("pasted", "").strip(), answer.get("mended", "").strip()
    for word, text in (("pasted", pasted), ("mended", mend)):
        if not text.startswith("trtllm-build "):
            return Solution(title, problem=f"{word} is no trtllm-build command yet")
    refused = [error for error in _errors(pasted, NEW) if UNKNOWN in error]
    unknown = set(" ".join(refused).split())
    kept = {flag for flag in _flags(pasted) if flag not in unknown}
    lost = sorted(kept - _flags(mend))
    return Solution(
        title,
        (
            ExerciseVerdict(
                f"pasted, {OLD}",
                _told(_errors(pasted, OLD)),
                "no error",
                "it has to be right somewhere",
                not _errors(pasted, OLD),
            ),
            ExerciseVerdict(
                f"pasted, {NEW}",
                _told(_errors(pasted, NEW)),
                UNKNOWN,
                f"playbook explain shows which flags of {OLD} are gone in {NEW}",
                bool(refused),
            ),
            ExerciseVerdict(
                f"mended, {NEW}", _told(_errors(mend, NEW)), "no error", "its own parser judges", not _errors(mend, NEW)
            ),
            ExerciseVerdict(
                "what the mended one keeps",
                f"without {', '.join(lost)}" if lost else "every other flag",
                "every other flag",
                f"only what {NEW} does not know goes",
                not lost,
            ),
        ),
    )


def _errors(command: str, release: str) -> list[str]:
    found = check_commands(command, release, gpu="h100", gpus=8)
    return [one.message for one in found if one.severity == "error"]


def _told(errors: list[str]) -> str:
    return "; ".join(errors) or "no error"


def _flags(command: str) -> set[str]:
    return {word.split("=")[0] for word in shlex.split(command) if word.startswith("--")}


GOOD = {"max_batch_size": 64, "max_num_tokens": 8192, "max_input_len": 6000, "max_seq_len": 7000}
BUILD = "trtllm-build --checkpoint_dir checkpoint --output_dir engine --max_batch_size 64"
PASTED = {"pasted": f"{BUILD} --enable_xqa enable", "mended": BUILD}
EXERCISES = (
    Exercise(
        number="03-1",
        title="A checkpoint without its rotary base",
        kind="mend",
        minutes=5,
        check=check_rotary,
        solution=mended,
        wrong=(
            Wrong(not_mended, "has no rotary_base"),
            Wrong(by_heart, "yours 500000, expected 10000"),
            Wrong(old_place_only, "transformers 5 keeps it in rope_parameters"),
        ),
    ),
    Exercise(
        number="03-2",
        title="Limits for a new load",
        kind="choose",
        minutes=10,
        check=check_limits,
        solution=GOOD,
        also=({"max_batch_size": 48, "max_num_tokens": 2048, "max_input_len": 6144, "max_seq_len": 8192},),
        wrong=(
            Wrong(GOOD | {"max_batch_size": None}, "max_batch_size: no number yet"),
            Wrong(GOOD | {"max_seq_len": 6500}, "max_seq_len counts prompt and answer together"),
            Wrong(GOOD | {"max_seq_len": 16384}, "above the 8192 positions"),
            Wrong(GOOD | {"max_batch_size": 16}, "batch_size binds"),
            Wrong(GOOD | {"max_num_tokens": 1024}, "a small step cuts prompts into many"),
            Wrong(GOOD | {"max_num_tokens": 65536}, "takes activation memory from the KV cache"),
        ),
    ),
    Exercise(
        number="03-3",
        title="A command of another release",
        kind="break",
        minutes=5,
        check=check_pasted,
        solution=PASTED,
        wrong=(
            Wrong({"pasted": "", "mended": ""}, "pasted is no trtllm-build command yet"),
            Wrong(PASTED | {"pasted": f"{BUILD} --warp_speed 9"}, "it has to be right somewhere"),
            Wrong(PASTED | {"pasted": BUILD}, "which flags of 0.12.0 are gone in 1.2.1"),
            Wrong(PASTED | {"mended": PASTED["pasted"]}, "its own parser judges"),
            Wrong(PASTED | {"mended": "trtllm-build --checkpoint_dir checkpoint"}, "without --max_batch_size"),
        ),
        row="`unrecognized arguments` on a P5",
    ),
)
