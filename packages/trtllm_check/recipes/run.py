"""Stage run: run.py, prompts through the engine, without a server."""

from collections.abc import Sequence

from trtllm_check.deployment import Deployment
from trtllm_check.recipes.command import Command, Paths, place, tool_path
from trtllm_check.recipes.flags import optional, required
from trtllm_check.releases import Release

RUN = "run.py"
QUESTION = "How do I count to nine in French?"
MAX_OUTPUT_LEN = 64
# <|eot_id|>, see generation_config.json of Meta-Llama-3-8B-Instruct; a request has one end id (tensorrtllm_backend#82)
END_ID = 128009
USER_TURN = "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n{}<|eot_id|>"
ANSWER_TURN = "<|start_header_id|>assistant<|end_header_id|>\n\n"


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
