"""Stage run: run.py, prompts through the engine, without a server."""

from collections.abc import Sequence

from playbook.profile import Profile
from playbook.recipes.command import Command, Paths, place, tool_path
from playbook.recipes.flags import optional, required
from playbook.releases import Release

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


def run(
    profile: Profile,
    release: Release,
    paths: Paths,
    *,
    prompts: Sequence[str] = (chat_prompt(QUESTION),),
    max_output_len: int = MAX_OUTPUT_LEN,
    profiler: Sequence[str] = (),
) -> list[Command]:
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
        },
    )
    arguments += optional(tool, {"--end_id": END_ID, "--no_add_special_tokens": True})
    arguments += ["--input_text", *prompts]
    ranks = profile.world_size
    launcher = ("mpirun", "--allow-run-as-root", "-n", str(ranks)) if ranks > 1 else ()
    argv = (*launcher, *profiler, *tool.launcher, tool_path(release, RUN, paths), *arguments)
    why = (
        f"Without --max_input_length run.py cuts prompts at {tool.arguments['--max_input_length'].default} tokens; "
        f"{END_ID} is <|eot_id|>, where Llama-3-Instruct ends its answer (tensorrtllm_backend#82); the prompt carries "
        "its own <|begin_of_text|>."
    )
    if ranks > 1:
        why += f" mpirun starts one process per rank: tp x pp = {ranks}."
    return [Command("run", RUN, argv, place(profile, release), why=why)]
