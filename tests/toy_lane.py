"""A lane in under a hundred lines, for tests: its engine answers every prompt with the prompt's words, backwards."""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from playbook.profile import Profile
from serving_base.checks import Check
from serving_base.errors import UsageError
from serving_base.measures import StepRecord
from tiny_llama import MODEL_DIR

CAN = frozenset({"repeat"})
CELL_LIMIT_S = CHAPTER_LIMIT_S = 600
AT_ONCE = 1
KERNEL_ENVIRONMENT: Mapping[str, str] = {"HF_HUB_OFFLINE": "1"}


def settle() -> None:
    pass


def preflight(profile: Profile, workspace: Path) -> Iterator[Check]:
    yield Check("words", "some", "some", "ok")


def prepare(profile: Profile, out: Path, *, root: Path) -> None:
    shutil.copytree(MODEL_DIR, out, dirs_exist_ok=True)


def run_in_torch(profile: Profile, script: str, job: dict[str, Any], out: Path, *, root: Path) -> None:
    found = import_module(f"serving_base.{script}").run(job | {"device_map": None})
    (out / "result.json").write_text(json.dumps(found), encoding="utf-8")


def quantize(profile: Profile, model: Path, out: Path, *, layout: str, root: Path) -> None:
    (out / "config.json").write_text(json.dumps({"qformat": profile.qformat}), encoding="utf-8")


def build(profile: Profile, checkpoint: Path, out: Path, *, root: Path) -> None:
    (out / "config.json").write_text(json.dumps({"max_input_len": profile.max_input_len}), encoding="utf-8")


def engine_ranks(checkpoint_ranks: int) -> int:
    return checkpoint_ranks


def generate(
    profile: Profile,
    engine: Path,
    prompts: Sequence[str],
    max_new_tokens: int,
    *,
    root: Path,
    sampling: Mapping[str, float],
) -> list[str]:
    return [" ".join(stream(profile, engine, prompt, max_new_tokens, root=root)) for prompt in prompts]


def stream(profile: Profile, engine: Path, prompt: str, max_new_tokens: int, *, root: Path) -> list[str]:
    limit = json.loads((engine / "config.json").read_text(encoding="utf-8"))["max_input_len"]
    if len(prompt.split()) > limit:
        raise UsageError(f"{len(prompt.split())} words are above max_input_len {limit}")
    return prompt.split()[::-1][:max_new_tokens]


def step_records(
    profile: Profile,
    engine: Path,
    prompt: str,
    lengths: Sequence[int],
    slots: int,
    *,
    root: Path,
    narrow: Callable[[], Path],
) -> dict[str, list[StepRecord]]:
    steps = [StepRecord(number, 0.0, {0: "generation"}, {0: 1}) for number in range(sum(lengths))]
    return {"static": steps, "inflight": steps}


def step_tables(engine: Callable[[str], Path], *, profile: Profile, root: Path) -> Any:
    raise UsageError("words have no kernels")


def write_repository(profile: Profile, engine: Path, out: Path, *, root: Path, variables: Mapping[str, Any]) -> None:
    (out / "config.pbtxt").write_text(f'name: "words"\n# {engine}\n', encoding="utf-8")


def serve(profile: Profile, repository: Path, *, root: Path) -> Any:
    return SimpleNamespace(stop=lambda: None, repository=repository)


def local_cloud(folder: Path) -> None:
    return None
