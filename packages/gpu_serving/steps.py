"""The steps of an engine under static and in-flight batching, from the executor's own statistics."""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpu_serving.execute import logs, run, setting
from serving_base.steps import Phase, StepRecord
from trtllm_check.deployment import Deployment
from trtllm_check.recipes.run import steps as steps_command

SCRIPT = Path(__file__).with_name("executor_steps.py")


def step_records(
    profile: Deployment, engine: Path, prompt: str, lengths: Sequence[int], slots: int, *, root: Path
) -> dict[str, list[StepRecord]]:
    """Policy -> steps, for one request of ``prompt`` per entry of ``lengths``, each that many tokens long."""
    from tokenizers import Tokenizer

    release, paths = setting(profile, root)
    folder = logs(profile, root) / "steps"
    folder.mkdir(parents=True, exist_ok=True)
    ids = Tokenizer.from_file(str(Path(paths.model) / "tokenizer.json")).encode(prompt, add_special_tokens=False).ids
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
