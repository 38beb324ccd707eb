"""The lane of machines with NVIDIA GPUs: each stage executes the recipes' commands for the profile's release.

What the tools need is asked for before anything heavy starts, and nothing is imitated: without docker, GPU or
token a stage says so and ends.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu_serving.checks import checks
from gpu_serving.execute import Execution, execute_all, logs, make_available, run, setting
from gpu_serving.hub import fetch
from gpu_serving.inference import BUILD_LOG
from gpu_serving.inference import generate as generate
from gpu_serving.inference import stream as stream
from gpu_serving.inference import summarize as summarize
from gpu_serving.server import TritonRanks
from playbook.lanes.base import ELSEWHERE
from playbook.profile import Profile
from serving_base.checks import Check
from serving_base.errors import PlaybookError
from trtllm_check.recipes import checked, commands
from trtllm_check.recipes.command import Command, place
from trtllm_check.recipes.triton import NOTHING, template_values
from trtllm_check.recipes.triton import fill as fill_templates
from trtllm_check.releases.templates import IN_ORDER, release_templates

if TYPE_CHECKING:
    import playbook.lanes.tensorrt_llm.lane as this
    from gpu_measurements.tables import StepTables
    from playbook.lanes.base import Lane, Layout
    from serving_base.measures import StepRecord

    _is_a_lane: Lane = this


CAN = frozenset(("summarize", "print_commands", "trained"))
CELL_LIMIT_S = 4 * 3600
CHAPTER_LIMIT_S = 8 * 3600
AT_ONCE = 1  # the engine of each fills the GPUs
KERNEL_ENVIRONMENT: Mapping[str, str] = {ELSEWHERE: "modelopt"}


def settle() -> None:
    """Nothing: the tools run in processes of their own."""


def preflight(profile: Profile, workspace: Path) -> Iterator[Check]:
    return checks(profile, workspace)


def run_in_torch(profile: Profile, script: str, job: dict[str, Any], out: Path, *, root: Path) -> None:
    """In the release's container, which has CUDA's PyTorch, transformers and accelerate; ours has a CPU build."""
    module = import_module(f"serving_base.{script}")
    release, paths = setting(profile, root)
    copied, asked, answered = (out / name for name in (f"{script}.py", "job.json", "result.json"))
    shutil.copyfile(str(module.__file__), copied)
    asked.write_text(json.dumps(job | {"device_map": "auto"}), encoding="utf-8")
    argv = ("python3", str(copied), str(asked), str(answered))
    todo = [Command(script.removesuffix("_run"), copied.name, argv, place(profile, release), why=module.WHY)]
    execute_all(todo, paths, logs(profile, root), writes=out)


def prepare(profile: Profile, out: Path, *, root: Path) -> None:
    """Download the model; what was fetched of it before is not fetched again."""
    fetch(profile, out, root=root)


def quantize(
    profile: Profile, model: Path, out: Path, *, layout: "Layout" = "tensorrt_llm", root: Path
) -> list[Execution]:
    """Write a checkpoint of tp x pp ranks: quantized, or in 16 bits for ``qformat: full_prec``.

    quantize.py of TensorRT-LLM writes its own layout only.
    """
    release, paths = setting(profile, root)
    paths = replace(paths, model=str(model), checkpoint=str(out))
    stage = "convert" if profile.qformat == "full_prec" else "quantize"
    return run(profile, release, commands(profile, release, stage, paths), paths, writes=out)


def build(profile: Profile, checkpoint: Path, out: Path, *, root: Path) -> list[Execution]:
    """Compile the checkpoint into one engine per rank; what the compiler printed stays beside them."""
    release, paths = setting(profile, root)
    paths = replace(paths, checkpoint=str(checkpoint), engine=str(out))
    executions = run(profile, release, commands(profile, release, "build", paths), paths, writes=out)
    (out / BUILD_LOG).write_text(executions[-1].output + "\n", encoding="utf-8")
    return executions


def engine_ranks(checkpoint_ranks: int) -> int:
    """One engine for each rank of the checkpoint."""
    return checkpoint_ranks


def step_records(
    profile: Profile,
    engine: Path,
    prompt: str,
    lengths: Sequence[int],
    slots: int,
    *,
    root: Path,
    narrow: Callable[[], Path] | None = None,
) -> "dict[str, list[StepRecord]]":
    """By the release's executor bindings in its container, which take ``slots`` of the engine's requests."""
    from gpu_serving.inference import step_records as recorded

    return recorded(profile, engine, prompt, lengths, slots, root=root)


def step_tables(engine: Callable[[str], Path], *, profile: Profile, root: Path) -> "StepTables":
    """By Nsight Systems in the container, beside what was recorded on H200s."""
    from playbook.lanes.tensorrt_llm.profiling import step_tables as measured

    return measured(engine, profile=profile, root=root)


def write_repository(
    profile: Profile, engine: Path, out: Path, *, root: Path, variables: Mapping[str, object] = NOTHING
) -> list[Execution]:
    """Copy the release's templates into ``out`` and fill them; a variable that stays unfilled is an error.

    ``variables`` override the profile's and the course's values.
    """
    release, paths = setting(profile, root)
    paths = replace(paths, engine=str(engine), repository=str(out))
    *filling, emptying = checked(release, fill_templates(profile, release, paths, variables=variables))
    executions = run(profile, release, filling, paths, writes=out)
    models = release_templates(release.name).models
    for name, values in template_values(profile, release, paths, variables).items():
        config = (out / name / "config.pbtxt").read_text(encoding="utf-8")
        filled = [variable for variable, value in values.items() if value and variable not in models[name].uncertain]
        left = [variable for variable in filled if f"${{{variable}}}" in config]
        if left:
            raise PlaybookError(
                f"{name}/config.pbtxt still has {', '.join(left)} unfilled",
                why="fill_template.py did not do its work; emptied, a number would stop the server's parser",
                fix=f"read the logs in {logs(profile, root)}",
            )
    executions += run(profile, release, [emptying], paths, writes=out)
    ordered = any(IN_ORDER in word for command in filling for word in command.argv)
    if ordered and IN_ORDER not in (out / "postprocessing" / "config.pbtxt").read_text(encoding="utf-8"):
        raise PlaybookError(
            f"postprocessing/config.pbtxt lacks {IN_ORDER}",
            why="this template's dynamic_batching is written in another way, and streamed words would change places",
            fix=f"add {IN_ORDER} to it, or give postprocessing_instance_count=1; the logs are in {logs(profile, root)}",
        )
    return executions


def serve(profile: Profile, repository: Path, *, root: Path) -> TritonRanks:
    """Start one server process per rank and wait until they are ready. The caller stops them."""
    release, paths = setting(profile, root)
    paths = replace(paths, repository=str(repository))
    make_available(profile, release, paths)
    server = TritonRanks(profile, release, paths, logs(profile, root) / "launch.log")
    server.start()
    return server


def local_cloud(folder: Path) -> None:
    """None: endpoints on GPUs are made in a real account."""
