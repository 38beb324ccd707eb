"""``playbook commands``: what a profile and a release need, without running anything."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from serving_base.errors import UsageError

if TYPE_CHECKING:
    from playbook.profile import Profile
    from trtllm_check.recipes import Command


ON_GPUS = sorted({path.stem for path in Path(__file__).parents[1].glob("profiles/*.yml")} - {"local"})
SHIPPED = f"{', '.join(ON_GPUS)}, or your own .yml."
Switch = Annotated[bool, typer.Option("--json", help="A list of {stage, tool, argv, where, cwd, env, why}.")]


def commands_command(
    profile: Annotated[str, typer.Option(help=SHIPPED)] = "p5",
    release: Annotated[str, typer.Option(help="TensorRT-LLM release; the profile's by default.")] = "",
    stage: Annotated[str, typer.Option(help="Such as quantize, build, launch; all of them by default.")] = "",
    qformat: Annotated[str, typer.Option(help="Another quantization: fp8, int8_sq, int8_wo, int4_awq ...")] = "",
    kv_cache_dtype: Annotated[str, typer.Option(help="Another KV cache: fp8, int8 or auto.")] = "",
    runner: Annotated[str, typer.Option(help="docker; inside: in the container already; native: installed.")] = "",
    as_json: Switch = False,
    as_script: Annotated[bool, typer.Option("--sh", help="One bash script that runs without the playbook.")] = False,
) -> None:
    """Print the commands of the road, checked against the release's own parsers; runs nothing.

    What the release or the profile cannot do goes to stderr.
    """
    from playbook.profile import load_profile
    from trtllm_check.deployment import changed
    from trtllm_check.recipes import road
    from trtllm_check.recipes.script import script
    from trtllm_check.releases import load_release

    if as_json and as_script:
        raise UsageError("--json and --sh exclude each other", fix="give one of them")
    chosen = _other_precision(load_profile(profile, release), qformat, kv_cache_dtype)
    chosen = changed(chosen, runner=runner) if runner else chosen
    facts = load_release(chosen.release)
    way = road(chosen, facts, stage)
    for sentence in way.left_out:
        typer.echo(f"left out: {sentence}", err=True)
    if as_json:
        typer.echo(json.dumps([as_data(command) for command in way.commands], indent=2))
    elif as_script:
        typer.echo(script(chosen, facts, way.commands, way.left_out), nl=False)
    else:
        typer.echo("\n\n".join(_shown(command) for command in way.commands))


def as_data(command: "Command") -> dict[str, Any]:
    """One command as ``--json`` prints it. ``argv`` is what is executed in ``where``, without a shell."""
    return {
        "stage": command.stage,
        "tool": command.tool,
        "argv": list(command.argv),
        "where": command.where,
        "cwd": command.cwd,
        "env": dict(command.env),
        "why": command.reason,
    }


def _other_precision(profile: "Profile", qformat: str, kv_cache_dtype: str) -> "Profile":
    """The profile with another format. Only FP8 weights keep an FP8 KV cache unless it is asked for."""
    from trtllm_check.deployment import changed

    if qformat not in ("", profile.qformat, "fp8") and not kv_cache_dtype:
        kv_cache_dtype = "auto"
    return changed(profile, qformat=qformat, kv_cache_dtype=kv_cache_dtype)


def _shown(command: "Command") -> str:
    from trtllm_check.recipes import shell

    heading = f"# {command.stage}: {command.tool}, {'on the host' if command.where == 'host' else command.where}"
    return "\n".join([heading, *([f"# {command.reason}"] if command.reason else []), shell(command)])
