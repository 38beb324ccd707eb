"""An engine without a server: its folder, run.py's answers, summarize.py's scores, and the steps of its executor."""

import json
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpu_serving.execute import Execution, logs, run, setting
from serving_base.errors import EngineError, PlaybookError
from serving_base.measures import Phase, StepRecord
from trtllm_check.deployment import Deployment
from trtllm_check.recipes import Paths, checked, commands
from trtllm_check.recipes.run import ask, sample
from trtllm_check.recipes.run import steps as steps_command
from trtllm_check.recipes.run import stream as stream_command

BUILD_LOG = "build.log"
LINES = {
    "compile_s": re.compile(r"Engine generation completed in ([\d.]+) seconds"),
    "gpu_peak_mib": re.compile(r"Peak memory usage of TRT CPU/GPU memory allocators: CPU \d+ MiB, GPU (\d+) MiB"),
    "host_peak_mib": re.compile(r"Peak memory usage during Engine building and serialization: CPU: (\d+) MiB"),
}
"""What TensorRT prints once a rank (TensorRT-LLM examples/gpt/README.md and examples/chatglm/README.md show it)."""

TOTAL = re.compile(r"Total time of building all engines: (\d+):(\d+):(\d+)")


@dataclass(frozen=True)
class BuildLog:
    """Figures that trtllm-build printed, one a rank where it printed them; ``total_s`` None: no such line.

    A release, or ``--log_level error``, may print less; what is missing is missing.
    """

    compile_s: tuple[float, ...]
    gpu_peak_mib: tuple[float, ...]
    host_peak_mib: tuple[float, ...]
    total_s: float | None


@dataclass(frozen=True)
class BuiltEngine:
    """Bytes of each rank's engine by file name, the plugins and switches of the build, and its log."""

    rank_bytes: Mapping[str, int]
    plugins: Mapping[str, Any]
    build: BuildLog


def describe_built(folder: Path) -> BuiltEngine:
    """Read an engine's folder as `trtllm-build` wrote it, with the log that the stage keeps beside it."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))["build_config"]
    ranks = sorted(folder.glob("rank*.engine"), key=lambda path: (len(path.name), path.name))
    plugins = {name: value for name, value in config["plugin_config"].items() if value not in (None, False, "disable")}
    log = folder / BUILD_LOG
    printed = log.read_text(encoding="utf-8") if log.is_file() else ""
    return BuiltEngine({path.name: path.stat().st_size for path in ranks}, plugins, read_build_log(printed))


def read_build_log(text: str) -> BuildLog:
    """The figures in what trtllm-build printed."""
    found = {name: tuple(float(value) for value in line.findall(text)) for name, line in LINES.items()}
    total = TOTAL.search(text)
    seconds = (
        None
        if total is None
        else sum(int(part) * unit for part, unit in zip(total.groups(), (3600, 60, 1), strict=True))
    )
    return BuildLog(**found, total_s=seconds)


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


def _token_ids(paths: Paths, prompts: Sequence[str]) -> list[list[int]]:
    """Each prompt as the model's tokenizer has it, without special tokens."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(Path(paths.model) / "tokenizer.json"))
    return [tokenizer.encode(prompt, add_special_tokens=False).ids for prompt in prompts]


def refuse_long_prompts(engine: Path, paths: Paths, prompts: Sequence[str]) -> None:
    """Compare every prompt's tokens with the engine's ``max_input_len``."""
    limit = json.loads((engine / "config.json").read_text(encoding="utf-8"))["build_config"]["max_input_len"]
    for tokens in map(len, _token_ids(paths, prompts)):
        if tokens > limit:
            raise EngineError(
                f"request refused: prompt of {tokens} tokens exceeds max_input_len {limit}",
                why="run.py would cut the prompt and say nothing",
                fix="shorten the prompt, or build the engine with a larger max_input_len",
            )


RESULT = re.compile(r"(TensorRT-LLM|HF) beam 0 result")
SCORE = re.compile(r"(rouge\w+)\s?: ([\d.]+)|(Per-token perplexity): ([\d.]+)")
NAMES = {"TensorRT-LLM": "engine", "HF": "16-bit model"}


@dataclass(frozen=True)
class Scores:
    """Who was scored ("engine", "16-bit model") -> metric -> value in percent; ``left_out``: what was not, and why."""

    by_model: Mapping[str, Mapping[str, float]]
    left_out: tuple[str, ...]


def summarize(profile: Deployment, engine: Path, *, root: Path) -> Scores:
    """Let the engine summarize articles and score it, beside the 16-bit model where that fits the GPUs."""
    release, paths = setting(profile, root)
    paths = replace(paths, engine=str(engine))
    todo = commands(profile, release, "summarize", paths)
    execution = run(profile, release, todo, paths, writes=logs(profile, root))[-1]
    found = printed_scores(execution.output)
    if "engine" not in found:
        raise PlaybookError(
            "summarize.py printed no score of the engine",
            why="a score is a line `rouge1: 26.3` below `TensorRT-LLM beam 0 result`",
            fix=f"read {execution.log_path}",
        )
    return Scores(found, execution.command.left_out)


def printed_scores(output: str) -> dict[str, dict[str, float]]:
    """Model -> metric -> value, out of what summarize.py logs."""
    scores: dict[str, dict[str, float]] = {}
    current: dict[str, float] = {}
    for line in output.splitlines():
        if heading := RESULT.search(line):
            current = scores.setdefault(NAMES[heading[1]], {})
        elif score := SCORE.search(line):
            current[score[1] or "perplexity"] = float(score[2] or score[4])
    return scores


SCRIPT = Path(__file__).with_name("executor_steps.py")


def step_records(
    profile: Deployment, engine: Path, prompt: str, lengths: Sequence[int], slots: int, *, root: Path
) -> dict[str, list[StepRecord]]:
    """Policy -> steps, for one request of ``prompt`` per entry of ``lengths``, each that many tokens long."""
    release, paths = setting(profile, root)
    folder = logs(profile, root) / "steps"
    folder.mkdir(parents=True, exist_ok=True)
    (ids,) = _token_ids(paths, [prompt])
    requests = folder / "requests.json"
    requests.write_text(json.dumps([{"ids": ids, "max_new_tokens": n} for n in lengths]), encoding="utf-8")
    script = shutil.copyfile(SCRIPT, folder / SCRIPT.name)
    paths = replace(paths, engine=str(engine))
    todo = steps_command(profile, release, paths, script=str(script), requests=str(requests), slots=slots)
    run(profile, release, [todo], paths, writes=folder)
    found = json.loads((folder / "steps.json").read_text(encoding="utf-8"))
    static = records(found["static"], group=slots)
    return {"static": static, "inflight": records(found["inflight"], group=0)}


def records(steps: Sequence[Mapping[str, Any]], *, group: int) -> list[StepRecord]:
    """Step records out of what `executor_steps.py` wrote, without the steps in which nothing was scheduled.

    A request's first step reads its prompt. ``group``: how many requests were handed over together; the slot of one
    that has ended stays its own ("padding") until its group has ended. 0: a slot is free at once.
    """
    seen: dict[int, int] = {}
    made: list[StepRecord] = []
    for step in steps:
        tokens = {number: count for number, _, count, scheduled in step["requests"] if scheduled}
        if not tokens:
            continue
        phases: dict[int, Phase] = {number: "generation" if number in seen else "context" for number in tokens}
        if group:
            phases |= _kept(tokens, seen, group)
        new = {number: count - seen.get(number, 0) for number, count in tokens.items()}
        seen |= tokens
        made.append(StepRecord(len(made) + 1, (step["ms"] or 0.0) / 1000, dict(sorted(phases.items())), new))
    return made


def _kept(tokens: Mapping[int, int], seen: Mapping[int, int], group: int) -> dict[int, Phase]:
    """Requests of the running group that ended before: their slots are kept."""
    running = min(tokens) // group
    return {number: "padding" for number in seen if number // group == running and number not in tokens}
