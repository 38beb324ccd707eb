"""Stage gate: MMLU, asked of the 16-bit model and of the engine by the release's own script, before serving.

From 1.0 on GSM8K as well, by lm-eval in trtllm-eval (:mod:`trtllm_check.recipes.evaluate`); without engines that alone.
"""

from serving_base.errors import NotInRelease
from trtllm_check.deployment import Deployment, reference_fit
from trtllm_check.recipes.command import Command, FlagValue, Paths, optional, place, required, tool_path
from trtllm_check.recipes.evaluate import evaluate
from trtllm_check.recipes.run import ROOM_FOR_ACTIVATIONS, SHORT_DTYPE, on_all_ranks, settings_reason
from trtllm_check.releases import Release, Tool

MMLU = "mmlu.py"
QUESTIONS = "https://people.eecs.berkeley.edu/~hendrycks/data.tar"
LARGEST_LOSS = 0.01
"""Of the baseline; NVIDIA's own table has FP8 between 0.14 % and 0.89 % (quantization-in-TRT-LLM.md)."""
EXAMPLES = 5


def gate(profile: Deployment, release: Release, paths: Paths) -> list[Command]:
    """Fetch the questions, ask the 16-bit model where it fits, and ask the engine."""
    with_lm_eval = evaluate(profile, release, paths)
    if MMLU not in release.tools:
        if with_lm_eval:
            return with_lm_eval
        raise NotInRelease(
            f"no arguments of {MMLU} are known for TensorRT-LLM {release.name}",
            why="the script asks engines, and this release builds none",
            fix="ask the served model with `trtllm-eval` or lm-eval; read their options with --help",
        )
    baseline = _baseline(profile, release, paths)
    engine = _engine(profile, release, paths, alone=not baseline)
    return [*_questions(profile, release, paths), *baseline, engine, *with_lm_eval]


def _folder(paths: Paths) -> str:
    return f"{paths.root}/mmlu"


def _questions(profile: Deployment, release: Release, paths: Paths) -> list[Command]:
    where, folder = place(profile, release), _folder(paths)
    archive = f"{folder}/mmlu.tar"
    todo = {
        "A folder for the questions.": ("mkdir", "--parents", folder),
        "MMLU's questions, from the address that the script names.": ("wget", QUESTIONS, "--output-document", archive),
        "The archive holds a folder data.": ("tar", "--extract", "--file", archive, "--directory", folder),
    }
    return [Command("gate", argv[0], argv, where, why=why) for why, argv in todo.items()]


def _baseline(profile: Deployment, release: Release, paths: Paths) -> list[Command]:
    """The 16-bit model, in one process; it needs no ranks, and spreads over the GPUs where one is too small."""
    times = reference_fit(profile).times
    if times > profile.gpu_count * ROOM_FOR_ACTIVATIONS:
        return []
    flags: dict[str, FlagValue] = {"--test_hf": True, "--data_type": SHORT_DTYPE[profile.dtype]}
    if times > ROOM_FOR_ACTIVATIONS:
        flags["--hf_device_map_auto"] = True
    why = (
        f"The baseline: `{profile.dtype}`, {EXAMPLES} examples for each question. Write its accuracy down, and set the "
        f"threshold {LARGEST_LOSS:.0%} of it lower."
    )
    return [_command(profile, release, paths, flags, (), why)]


def _engine(profile: Deployment, release: Release, paths: Paths, *, alone: bool) -> Command:
    tool = release.tool(MMLU)
    why = (
        "The engine, the same questions. Its max_input_len must hold five examples: for a prompt that is too long the "
        "script takes fewer, for the engine only (TensorRT-LLM@10c1d594 examples/mmlu.py)."
    ) + settings_reason(profile, release)
    left_out = [_threshold_reason(tool)]
    if alone:
        left_out.append("The 16-bit model does not fit into these GPUs: take its accuracy from a larger machine.")
    return _command(profile, release, paths, {"--test_trt_llm": True}, on_all_ranks(profile), why, left_out)


def _threshold_reason(tool: Tool) -> str:
    if not tool.has("--accuracy_threshold"):
        return "This release's script has no threshold: compare the printed accuracy yourself."
    if tool.certain("--accuracy_threshold"):
        return "Add `--check_accuracy --accuracy_threshold` with your number: a share such as 0.67, not percent."
    return (
        "`--check_accuracy --accuracy_threshold` ends the script with an error below a number: a share in 0.10, "
        "percent in 2026. Which of them this release takes was not read. 0.67 against percent passes everything, so "
        "try an impossible threshold first, 0.999, and see it fail."
    )


def _command(
    profile: Deployment,
    release: Release,
    paths: Paths,
    flags: dict[str, FlagValue],
    launcher: tuple[str, ...],
    why: str,
    left_out: list[str] | None = None,
) -> Command:
    tool = release.tool(MMLU)
    own: dict[str, FlagValue] = {
        "--hf_model_dir": paths.model,
        "--engine_dir": paths.engine,
        "--data_dir": f"{_folder(paths)}/data",
        **flags,
    }
    arguments = required(release, MMLU, own) + optional(tool, {"--tokenizer_dir": paths.model})
    argv = (*launcher, *tool.launcher, tool_path(profile, release, MMLU, paths), *arguments)
    return Command(
        "gate",
        MMLU,
        argv,
        place(profile, release),
        env=release.environment_of(profile) if launcher else {},
        why=why,
        left_out=tuple(left_out or ()),
    )
