"""The lane of machines with NVIDIA GPUs: each stage executes the recipes' commands for the profile's release.

What the tools need is asked for before anything heavy starts, and nothing is imitated: without docker, GPU or
token a stage says so and ends.
"""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from playbook.errors import PlaybookError
from playbook.lanes.tensorrt_llm.execute import Execution, execute_all
from playbook.lanes.tensorrt_llm.hub import file_sizes, require_space, verify
from playbook.lanes.tensorrt_llm.server import TritonRanks
from playbook.profile import Profile
from playbook.recipes import Command, Paths, checked, commands
from playbook.recipes.install import clone
from playbook.recipes.run import ask
from playbook.recipes.triton import NOTHING, template_values
from playbook.recipes.triton import fill as fill_templates
from playbook.releases import Release, load_release
from playbook.releases.templates import release_templates

SPECIAL_TOKENS_AT_END = re.compile(r"(<\|\w+\|>)+$")

__all__ = ["TritonRanks", "build", "fill", "generate", "prepare", "quantize", "serve"]


def prepare(profile: Profile, out: Path, *, root: Path) -> None:
    """Download the model and put its files into ``out``.

    Token, access and disk are checked before the first byte, every file's size after the last. The download stays
    under ``<root>/downloads``, so an interrupted one goes on where it stopped, and profiles share it.
    """
    sizes = file_sizes(profile.shape.hf_id)
    downloads = root / "downloads" / profile.model
    downloads.mkdir(parents=True, exist_ok=True)
    require_space(sizes, downloads)
    release, paths = _setting(profile, root)
    paths = replace(paths, model=str(downloads))
    execute_all(commands(profile, release, "fetch", paths), paths, _logs(profile, root), writes=downloads)
    verify(downloads, sizes)
    shutil.copytree(downloads, out, copy_function=os.link, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".cache"))


def quantize(profile: Profile, model: Path, out: Path, *, root: Path) -> list[Execution]:
    """Write a checkpoint of tp x pp ranks: quantized, or in 16 bits for ``qformat: full_prec``."""
    release, paths = _setting(profile, root)
    paths = replace(paths, model=str(model), checkpoint=str(out))
    stage = "convert" if profile.qformat == "full_prec" else "quantize"
    return _run(profile, release, commands(profile, release, stage, paths), paths, writes=out)


def build(profile: Profile, checkpoint: Path, out: Path, *, root: Path) -> list[Execution]:
    """Compile the checkpoint into one engine per rank."""
    release, paths = _setting(profile, root)
    paths = replace(paths, checkpoint=str(checkpoint), engine=str(out))
    return _run(profile, release, commands(profile, release, "build", paths), paths, writes=out)


def generate(profile: Profile, engine: Path, prompts: Sequence[str], max_new_tokens: int, *, root: Path) -> list[str]:
    """The engine's answers to ``prompts`` (special tokens included), by run.py on all ranks."""
    release, paths = _setting(profile, root)
    paths = replace(paths, engine=str(engine))
    asked = checked(release, [ask(profile, release, paths, prompts=prompts, max_output_len=max_new_tokens)])
    execution = _run(profile, release, asked, paths, writes=_logs(profile, root))[-1]
    answers = printed_answers(execution.output)
    if sorted(answers) != list(range(len(prompts))):
        raise PlaybookError(
            f"run.py printed {len(answers)} answers to {len(prompts)} prompts",
            why="an answer is a line `Output [Text 0 Beam 0]: ...`",
            fix=f"read {execution.log_path}",
        )
    return [answers[number] for number in sorted(answers)]


def printed_answers(output: str) -> dict[int, str]:
    """Prompt number -> answer, out of what run.py prints; an answer may span lines and contain quotation marks.

    run.py decodes special tokens, too: an <|eot_id|> at an answer's end is left out.
    """
    blocks = re.split(r"^(?=(?:Input|Output) \[Text )", output, flags=re.MULTILINE)
    found = (re.match(r'Output \[Text (\d+)[^\]]*\]: "(.*)"', block, re.DOTALL) for block in blocks)
    return {int(answer[1]): SPECIAL_TOKENS_AT_END.sub("", answer[2]) for answer in found if answer}


def fill(
    profile: Profile, engine: Path, out: Path, *, root: Path, variables: Mapping[str, object] = NOTHING
) -> list[Execution]:
    """Copy the release's templates into ``out`` and fill them; a variable that stays unfilled is an error.

    ``variables`` override the profile's and the course's values.
    """
    release, paths = _setting(profile, root)
    paths = replace(paths, engine=str(engine), repository=str(out))
    *filling, emptying = checked(release, fill_templates(profile, release, paths, variables=variables))
    executions = _run(profile, release, filling, paths, writes=out)
    models = release_templates(release.name).models
    for name, values in template_values(profile, release, paths, variables).items():
        config = (out / name / "config.pbtxt").read_text(encoding="utf-8")
        filled = [variable for variable, value in values.items() if value and variable not in models[name].uncertain]
        left = [variable for variable in filled if f"${{{variable}}}" in config]
        if left:
            raise PlaybookError(
                f"{name}/config.pbtxt still has {', '.join(left)} unfilled",
                why="fill_template.py did not do its work; emptied, a number would stop the server's parser",
                fix=f"read the logs in {_logs(profile, root)}",
            )
    return executions + _run(profile, release, [emptying], paths, writes=out)


def serve(profile: Profile, repository: Path, *, root: Path) -> TritonRanks:
    """Start one server process per rank and wait until they are ready. The caller stops them."""
    release, paths = _setting(profile, root)
    paths = replace(paths, repository=str(repository))
    _make_available(profile, release, paths)
    server = TritonRanks(profile, release, paths, _logs(profile, root) / "launch.log")
    server.start()
    return server


def _setting(profile: Profile, root: Path) -> tuple[Release, Paths]:
    """The workspace keeps its path in the container, so what is written there fits outside, too."""
    return load_release(profile.release), Paths.under(str(root), profile.name)


def _logs(profile: Profile, root: Path) -> Path:
    return root / profile.name / "logs"


def _run(profile: Profile, release: Release, todo: list[Command], paths: Paths, *, writes: Path) -> list[Execution]:
    _make_available(profile, release, paths)
    return execute_all(todo, paths, _logs(profile, Path(paths.root)), writes=writes)


def _make_available(profile: Profile, release: Release, paths: Paths) -> None:
    """Clone what the container lacks, unless an earlier stage did; half a clone is removed first."""
    for command in clone(profile, release, paths):
        folder = Path(command.argv[-1])
        if (folder / ".git" / "index").is_file():  # git writes it last
            continue
        shutil.rmtree(folder, ignore_errors=True)
        execute_all([command], paths, _logs(profile, Path(paths.root)), writes=folder)
