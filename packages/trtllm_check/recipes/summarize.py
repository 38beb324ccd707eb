"""Stage summarize: the engine's summaries of news articles against the 16-bit model's, scored with ROUGE."""

from trtllm_check.deployment import Deployment
from trtllm_check.recipes.command import HOST, Command, Paths, place, tool_path
from trtllm_check.recipes.flags import optional, required
from trtllm_check.recipes.install import beside
from trtllm_check.recipes.memory import reference_fit, weights_gb
from trtllm_check.recipes.run import END_ID, on_all_ranks, settings_reason
from trtllm_check.releases import Release, Tool

SUMMARIZE = "summarize.py"
ARTICLES = 20
LONGEST_ARTICLE = 923  # tokens: the script's own default
SHORT_DTYPE = {"bfloat16": "bf16", "float16": "fp16"}
ROOM_FOR_ACTIVATIONS = 0.8
ROUGE = ("rouge_score", "absl-py", "nltk", "joblib")
WHY_ROUGE = (
    "What the metric imports is in examples/llama/requirements.txt and not among the container's packages; a folder of "
    "its own leaves those as they are."
)


def summarize(profile: Deployment, release: Release, paths: Paths) -> list[Command]:
    """Score the engine's summaries, and where memory allows the 16-bit model's beside them."""
    command = _summarize(profile, release, paths)
    if command.where == HOST:
        return [command]
    return [beside("summarize", command.where, _packages(paths), ROUGE, why=WHY_ROUGE), command]


def _summarize(profile: Deployment, release: Release, paths: Paths) -> Command:
    tool = release.tool(SUMMARIZE)
    arguments = required(
        release,
        SUMMARIZE,
        {
            "--test_trt_llm": True,
            "--engine_dir": paths.engine,
            "--hf_model_dir": paths.model,
            "--tokenizer_dir": paths.model,
            "--data_type": SHORT_DTYPE[profile.dtype],
            "--max_ite": ARTICLES,
        },
    )
    reference = _reference(profile, tool)
    arguments += optional(
        tool,
        {
            "--max_input_length": min(LONGEST_ARTICLE, profile.max_input_len),
            "--end_id": END_ID,
            "--check_accuracy": True,
            "--tensorrt_llm_rouge1_threshold": _threshold(tool),
            **dict.fromkeys(reference, True),
        },
    )
    where = place(profile, release)
    argv = (*on_all_ranks(profile), *tool.launcher, tool_path(profile, release, SUMMARIZE, paths), *arguments)
    why = f"ROUGE over {ARTICLES} articles of cnn_dailymail's test split; the 16-bit model's score is the measure."
    if _threshold(tool):
        why += f" It fails below a ROUGE-1 of {_threshold(tool)}, the script's own threshold ({tool.source})."
    env = release.environment_of(profile)
    if where != HOST:
        env |= {"HF_HOME": paths.hub_cache, "PYTHONPATH": _packages(paths)}
    why += settings_reason(profile, release)
    left_out = () if reference else (_no_reference(profile, release),)
    return Command(
        "summarize",
        SUMMARIZE,
        argv,
        where,
        env=env,
        why=why,
        left_out=left_out,
    )


def _packages(paths: Paths) -> str:
    return f"{paths.root}/.cache/rouge"


def _reference(profile: Deployment, tool: Tool) -> tuple[str, ...]:
    """Flags that let the 16-bit model answer, too; it is loaded on the first rank after the engine is freed."""
    times = reference_fit(profile).times
    if times <= ROOM_FOR_ACTIVATIONS:
        return ("--test_hf",)
    if tool.has("--hf_device_map_auto") and times <= profile.gpu_count * ROOM_FOR_ACTIVATIONS:
        return ("--test_hf", "--hf_device_map_auto")
    return ()


def _no_reference(profile: Deployment, release: Release) -> str:
    return (
        f"The 16-bit model ({weights_gb(profile):.0f} GB) does not fit into one {profile.gpu} and {release.name} does "
        "not spread it over several here: only the engine is scored."
    )


def _threshold(tool: Tool) -> float | None:
    argument = tool.argument("--tensorrt_llm_rouge1_threshold")
    default = argument.default if argument else None
    return default if isinstance(default, int | float) else None
