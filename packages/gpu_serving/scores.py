"""The quality of an engine by the release's own summarize.py: ROUGE over news articles, beside the 16-bit model's."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gpu_serving.execute import logs, run, setting
from serving_base.errors import PlaybookError
from trtllm_check.deployment import Deployment
from trtllm_check.recipes import commands

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
