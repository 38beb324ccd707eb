"""Part of stage gate: GSM8K by NVIDIA's trtllm-eval, which runs EleutherAI's lm-eval on the LLM API.

MMLU looks at one token per question; GSM8K's answers are written out, so a model that loses its thread is seen. Which
tasks need ``lm_eval``: nvidia.github.io/TensorRT-LLM/1.0.0/commands/trtllm-eval.html (GSM8K and GPQA; not MMLU).
"""

from dataclasses import replace

from trtllm_check.deployment import Deployment, reference_fit
from trtllm_check.recipes.command import Command, Paths, optional, place, required, tool_path
from trtllm_check.recipes.install import beside
from trtllm_check.recipes.pytorch import backend, refuse_formats, served
from trtllm_check.recipes.run import ROOM_FOR_ACTIVATIONS, settings_reason
from trtllm_check.releases import Release

EVAL = "trtllm-eval"
TASK = "gsm8k"
LARGEST_LOSS = 0.02
"""Of the 16-bit model's score. 1,319 questions: one standard error of a score of 80 % is 1.1 points."""
WHY_LM_EVAL = (
    "GSM8K needs lm_eval, which the container lacks. It installs what it depends on, so keep it apart. The version is "
    "that of {source}."
)


def evaluate(profile: Deployment, release: Release, paths: Paths) -> list[Command]:
    """Install lm-eval beside the container's packages, ask the 16-bit model where it fits, and ask what is served.

    Nothing where the release has no trtllm-eval; :class:`NotInRelease` for a format that it cannot run.
    """
    if EVAL not in release.tools or release.lm_eval is None:
        return []
    refuse_formats(profile, release)
    folder = f"{paths.root}/.cache/lm_eval"
    model = served(profile, release, paths)
    pinned, why = (f"lm_eval[api]=={release.lm_eval.version}",), WHY_LM_EVAL.format(source=release.lm_eval.source)
    todo = [_with_dependencies(beside("gate", place(profile, release), folder, pinned, why=why))]
    if model != paths.model and reference_fit(profile).times <= profile.gpu_count * ROOM_FOR_ACTIVATIONS:
        why = f"The baseline of {TASK}: the 16-bit model in PyTorch. Write its score down, in percent."
        todo.append(_ask(profile, release, paths, paths.model, folder, why, engine=False))
    why = f"The same questions to what is served. Let it lose at most {LARGEST_LOSS:.0%} of the baseline's score."
    return [*todo, _ask(profile, release, paths, model, folder, why, engine=release.builds_engines)]


def _with_dependencies(command: Command) -> Command:
    return replace(command, argv=tuple(word for word in command.argv if word != "--no-deps"))


def _ask(
    profile: Deployment, release: Release, paths: Paths, model: str, folder: str, why: str, *, engine: bool
) -> Command:
    tool = release.tool(EVAL)
    arguments = required(release, EVAL, {"--model": model, "--backend": backend(tool, engine=engine)})
    arguments += optional(
        tool,
        {
            "--tokenizer": paths.model if engine else None,
            "--tp_size": profile.tp,
            "--pp_size": profile.pp,
            "--max_batch_size": profile.max_batch_size,
            "--max_num_tokens": profile.max_num_tokens,
            "--max_seq_len": profile.max_seq_len,
        },
    )
    of_task = optional(tool, {"--apply_chat_template": True, "--max_input_length": profile.max_input_len})
    argv = (*tool.launcher, tool_path(profile, release, EVAL, paths), *arguments, TASK, *of_task)
    return Command(
        "gate",
        EVAL,
        argv,
        place(profile, release),
        env=release.environment_of(profile) | {"PYTHONPATH": folder},
        why=why + settings_reason(profile, release),
        left_out=("trtllm-eval gives no threshold for this task: compare the two printed scores yourself.",),
    )
