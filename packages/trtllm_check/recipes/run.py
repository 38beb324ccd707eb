"""Commands that ask an engine directly: run.py, summarize.py, a driver of run.py, and run.py under Nsight Systems."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from serving_base.errors import UsageError
from trtllm_check.deployment import Deployment, reference_fit, weights_gb
from trtllm_check.recipes.command import HOST, Command, FlagValue, Paths, optional, place, required, tool_path
from trtllm_check.recipes.install import beside
from trtllm_check.releases import Release, Tool

RUN = "run.py"
QUESTION = "How do I count to nine in French?"
MAX_OUTPUT_LEN = 64
# <|eot_id|>, see generation_config.json of Meta-Llama-3-8B-Instruct; a request has one end id (tensorrtllm_backend#82)
END_ID = 128009
USER_TURN = "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n{}<|eot_id|>"
ANSWER_TURN = "<|start_header_id|>assistant<|end_header_id|>\n\n"
SAMPLING_FLAGS = {"temperature": "--temperature", "top_k": "--top_k", "top_p": "--top_p", "seed": "--random_seed"}
STEPS_SCRIPT = "executor_steps.py"
# Engine iterations to record: number 0 reads the prompts, each later one makes a token per prompt.
ITERATIONS = {"prefill": "0", "decode": "16-25"}
# The second is the older name; with both set the first counts (TensorRT-LLM cudaProfilerUtilsTest.cpp).
START_STOP = ("TLLM_PROFILE_START_STOP", "TLLM_GPTM_PROFILE_START_STOP")
RANK = "%q{OMPI_COMM_WORLD_RANK}"  # nsys writes the variable's value in its place
RECORD = (
    *("nsys", "profile"),
    "--trace=cuda,nvtx",
    "--sample=none",
    "--cuda-graph-trace=node",
    "--capture-range=cudaProfilerApi",
    "--capture-range-end=stop",
    "--force-overwrite=true",
)
HAS_NSYS = (
    "command -v nsys || { echo 'no nsys here: add the package nsight-systems-cli of NVIDIA to the image' >&2; exit 1; }"
)
WHY = {
    "prefill": "The variables name the iterations to record (TensorRT-LLM@1aa45ba6 perf-analysis.md); loading stays "
    "out. Without --cuda-graph-trace=node the kernels of a graph show as one launch. Bring prompts of your own length "
    "with --input_file. A container without nsys needs the package nsight-systems-cli of NVIDIA's repository.",
    "decode": "Ten decode steps in one capture: tables per step need steps=10.",
}
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


def chat_prompt(question: str) -> str:
    """The question in Llama-3-Instruct's chat format (chat_template of its tokenizer_config.json)."""
    return USER_TURN.format(question) + ANSWER_TURN


def run(profile: Deployment, release: Release, paths: Paths) -> list[Command]:
    """Ask the engine once through the C++ session, which servers use, too, and once through the Python session."""
    return [ask(profile, release, paths), ask(profile, release, paths, python_session=True)]


def ask(
    profile: Deployment,
    release: Release,
    paths: Paths,
    *,
    prompts: Sequence[str] = (chat_prompt(QUESTION),),
    max_output_len: int = MAX_OUTPUT_LEN,
    python_session: bool = False,
    profiler: Sequence[str] = (),
) -> Command:
    """Load the engine on all ranks and print its answers to ``prompts``, which carry their special tokens.

    ``profiler`` is put before every rank's own process.
    """
    tool = release.tool(RUN)
    arguments = required(
        release,
        RUN,
        {
            "--engine_dir": paths.engine,
            "--tokenizer_dir": paths.model,
            "--max_input_length": profile.max_input_len,
            "--max_output_len": max_output_len,
            "--use_py_session": python_session,
        },
    )
    arguments += optional(tool, {"--end_id": END_ID, "--no_add_special_tokens": True})
    arguments += ["--input_text", *prompts]
    argv = (*on_all_ranks(profile), *profiler, *tool.launcher, tool_path(profile, release, RUN, paths), *arguments)
    return Command(
        "run",
        RUN,
        argv,
        place(profile, release),
        env=release.environment_of(profile),
        why=_session_reason() if python_session else _reason(profile, release),
        left_out=_left_out(release),
    )


def on_all_ranks(profile: Deployment) -> tuple[str, ...]:
    """What starts one process per rank; nothing for one GPU."""
    ranks = profile.world_size
    return ("mpirun", "--allow-run-as-root", "-n", str(ranks)) if ranks > 1 else ()


def settings_reason(profile: Deployment, release: Release) -> str:
    """Why this release needs environment variables for this profile; "" if it needs none."""
    return "".join(
        f" {setting.name}={setting.value}: {setting.why} ({setting.source})."
        for setting in release.environment
        if setting.applies_to(profile)
    )


def _reason(profile: Deployment, release: Release) -> str:
    tool = release.tool(RUN)
    truncates, tokenizer = tool.arguments["--max_input_length"].default, tool.arguments["--tokenizer_dir"].default
    why = f"Without --max_input_length run.py cuts prompts at {truncates} tokens"
    why += f", and without --tokenizer_dir it takes {tokenizer}'s, both silently. " if tokenizer else ", silently. "
    if tool.has("--end_id"):
        why += f"{END_ID} is <|eot_id|>, where Llama-3-Instruct ends its answer (tensorrtllm_backend#82). "
    why += "The prompt carries its own <|begin_of_text|>."
    if profile.world_size > 1:
        why += f" mpirun starts one process per rank: tp x pp = {profile.world_size}."
    return why + settings_reason(profile, release)


def _session_reason() -> str:
    return (
        "The Python session drives the same engine step by step from Python, for debugging: it batches only the "
        "prompts of one call, and has neither reuse of prefixes nor chunked prompts."
    )


def _left_out(release: Release) -> tuple[str, ...]:
    if release.tool(RUN).has("--end_id"):
        return ()
    return (
        f"run.py of {release.name} has no --end_id: answers end at the tokenizer's own eos_token. Where that is "
        f"<|end_of_text|>, Llama-3-Instruct talks on past <|eot_id|> ({END_ID}).",
    )


def stream(profile: Deployment, release: Release, paths: Paths, prompt: str, *, max_output_len: int) -> Command:
    """Print the answer to ``prompt`` after every token."""
    asked = ask(profile, release, paths, prompts=[prompt], max_output_len=max_output_len)
    why = "--streaming prints the answer so far; an interval of 1 does so after every token (the default is 5)."
    return _with(asked, release, {"--streaming": True, "--streaming_interval": 1}, stage="stream", why=why)


def sample(command: Command, release: Release, sampling: Mapping[str, float]) -> Command:
    """The same question, decoded as ``sampling`` says: ``temperature``, ``top_k``, ``top_p``, ``seed``.

    Without ``top_p`` all of the ``top_k`` tokens may be drawn; the tool's own default is 0.
    """
    unknown = sorted(set(sampling) - set(SAMPLING_FLAGS))
    if unknown:
        raise UsageError(f"no sampling parameter is called {unknown[0]!r}", fix=f"use {', '.join(SAMPLING_FLAGS)}")
    given = {"top_p": 1.0, **sampling} if sampling else {}
    flags: dict[str, FlagValue] = {SAMPLING_FLAGS[name]: value for name, value in given.items()}
    return _with(command, release, flags, stage="run", why=command.why)


def steps(profile: Deployment, release: Release, paths: Paths, *, script: str, requests: str, slots: int) -> Command:
    """Run a few requests under both batching policies and write what every step did.

    ``script``: the playbook's own, on TensorRT-LLM's Python bindings of the executor, as the container sees it;
    ``requests``: the JSON file with the prompts, whose answer goes beside it.
    """
    answer = str(PurePosixPath(requests).with_name("steps.json"))
    arguments = ("--engine_dir", paths.engine, "--requests", requests, "--slots", str(slots), "--output", answer)
    return Command(
        "steps",
        STEPS_SCRIPT,
        (*on_all_ranks(profile), "python3", script, *arguments),
        place(profile, release),
        env=release.environment_of(profile),
        why="The executor's own statistics, per step and request; one load of the engine serves both policies.",
    )


def _with(command: Command, release: Release, flags: Mapping[str, FlagValue], *, stage: str, why: str) -> Command:
    argv = (*command.argv, *required(release, RUN, flags))
    return replace(command, stage=stage, argv=argv, why=why)


def nsys(profile: Deployment, release: Release, paths: Paths) -> list[Command]:
    """Record prefill and decode, one report per rank; then kernel sums (CSV) and launches (SQLite)."""
    folder = f"{paths.root}/{profile.name}/profiles"
    where = place(profile, release)
    commands = [
        Command("profile", "bash", ("bash", "-c", HAS_NSYS), where, why="The recordings need Nsight Systems."),
        Command("profile", "mkdir", ("mkdir", "-p", folder), where, why="nsys makes no folder for a report."),
    ]
    for phase, iterations in ITERATIONS.items():
        report = f"{folder}/{phase}_rank{RANK if profile.world_size > 1 else 0}"
        command = ask(profile, release, paths, profiler=(*RECORD, f"--output={report}"))
        variables = {**command.env, **dict.fromkeys(START_STOP, iterations)}
        commands.append(replace(command, stage="profile", env=variables, why=WHY[phase], left_out=()))
    for phase in ITERATIONS:
        commands.append(_sum(f"{folder}/{phase}_rank0", where))
        if profile.world_size > 1:
            commands.append(_launches(f"{folder}/{phase}_rank1", where))
    return commands


def _sum(report: str, where: str) -> Command:
    argv = ("nsys", "stats", "--report=cuda_gpu_kern_sum", "--format=csv", f"--output={report}", f"{report}.nsys-rep")
    why = f"Writes {report}_cuda_gpu_kern_sum.csv, a row per kernel name, and {report}.sqlite, a row per launch."
    return Command("profile", "nsys", argv, where, why=why)


def _launches(report: str, where: str) -> Command:
    output = f"--output={report}.sqlite"
    argv = ("nsys", "export", "--type=sqlite", "--force-overwrite=true", output, f"{report}.nsys-rep")
    why = "The second rank's launches: an all-reduce took as long as the shorter of the two ranks' kernels."
    return Command("profile", "nsys", argv, where, why=why)


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
