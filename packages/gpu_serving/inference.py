"""Answers of an engine without a server: run.py on all ranks, and what it prints."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gpu_serving.execute import Execution, logs, run, setting
from serving_base.errors import EngineError, PlaybookError
from trtllm_check.deployment import Deployment
from trtllm_check.recipes import Paths, checked
from trtllm_check.recipes.run import ask, sample
from trtllm_check.recipes.run import stream as stream_command

SPECIAL_TOKENS_AT_END = re.compile(r"(<\|\w+\|>)+$")
UNFINISHED_CHARACTER = "\ufffd"  # what a tokenizer decodes from a part of a character
GREEDY: Mapping[str, float] = {}


def generate(
    profile: Deployment,
    engine: Path,
    prompts: Sequence[str],
    max_new_tokens: int,
    *,
    root: Path,
    sampling: Mapping[str, float] = GREEDY,
) -> list[str]:
    """The engine's answers to ``prompts`` (special tokens included), by run.py on all ranks.

    Raises :class:`EngineError` for a prompt longer than the engine takes: run.py would cut it and say nothing.
    """
    release, paths = setting(profile, root)
    paths = replace(paths, engine=str(engine))
    asked = ask(profile, release, paths, prompts=prompts, max_output_len=max_new_tokens)
    todo = checked(release, [sample(asked, release, sampling)])
    refuse_long_prompts(engine, paths, prompts)
    execution = run(profile, release, todo, paths, writes=logs(profile, root))[-1]
    answers = printed_answers(execution.output)
    if sorted(answers) != list(range(len(prompts))):
        raise PlaybookError(
            f"run.py printed {len(answers)} answers to {len(prompts)} prompts",
            why="an answer is a line `Output [Text 0 Beam 0]: ...`",
            fix=f"read {execution.log_path}",
        )
    return [answers[number] for number in sorted(answers)]


def stream(profile: Deployment, engine: Path, prompt: str, max_new_tokens: int, *, root: Path) -> list[str]:
    """The answer to ``prompt`` in the pieces in which it came, by run.py --streaming."""
    release, paths = setting(profile, root)
    paths = replace(paths, engine=str(engine))
    todo = checked(release, [stream_command(profile, release, paths, prompt, max_output_len=max_new_tokens)])
    refuse_long_prompts(engine, paths, [prompt])
    execution = run(profile, release, todo, paths, writes=logs(profile, root))[-1]
    return pieces([text for number, text in printed_outputs(execution.output) if number == 0], execution)


def printed_answers(output: str) -> dict[int, str]:
    """Prompt number -> answer, out of what run.py prints; an answer may span lines and contain quotation marks."""
    return dict(printed_outputs(output))


def printed_outputs(output: str) -> list[tuple[int, str]]:
    """Prompt number and text of every output, in order; streaming prints the same answer again as it grows.

    run.py decodes special tokens, too: an <|eot_id|> at an answer's end is left out.
    """
    blocks = re.split(r"^(?=(?:Input|Output) \[Text )", output, flags=re.MULTILINE)
    found = (re.match(r'Output \[Text (\d+)[^\]]*\]: "(.*)"', block, re.DOTALL) for block in blocks)
    return [(int(answer[1]), SPECIAL_TOKENS_AT_END.sub("", answer[2])) for answer in found if answer]


def pieces(texts: Iterable[str], execution: Execution) -> list[str]:
    """What each text adds to the one before. A character is given once it is whole."""
    known, added = "", []
    for text in texts:
        whole = text.rstrip(UNFINISHED_CHARACTER)
        if not whole.startswith(known):
            raise PlaybookError(
                "run.py --streaming printed a text that does not continue the one before",
                why=f"after {known[-20:]!r} came {whole[-20:]!r}",
                fix=f"read {execution.log_path}",
            )
        if whole != known:
            added.append(whole[len(known) :])
        known = whole
    return added


def refuse_long_prompts(engine: Path, paths: Paths, prompts: Sequence[str]) -> None:
    """Compare every prompt's tokens with the engine's ``max_input_len``."""
    from tokenizers import Tokenizer

    limit = json.loads((engine / "config.json").read_text(encoding="utf-8"))["build_config"]["max_input_len"]
    tokenizer = Tokenizer.from_file(str(Path(paths.model) / "tokenizer.json"))
    for prompt in prompts:
        tokens = len(tokenizer.encode(prompt, add_special_tokens=False).ids)
        if tokens > limit:
            raise EngineError(
                f"request refused: prompt of {tokens} tokens exceeds max_input_len {limit}",
                why="run.py would cut the prompt and say nothing",
                fix="shorten the prompt, or build the engine with a larger max_input_len",
            )
