"""Starting a Triton server and asking it, whatever model it serves."""

import json
from collections.abc import Mapping

from serving_base.errors import PlaybookError
from trtllm_check.deployment import Deployment
from trtllm_check.recipes.command import Command, Paths, server_place, tool_path
from trtllm_check.recipes.flags import FlagValue, required
from trtllm_check.recipes.run import settings_reason
from trtllm_check.releases import Release
from trtllm_check.releases.templates import TensorSpec

LAUNCH = "launch_triton_server.py"
HTTP_PORT = 8000  # the launch script's own default
WHY_STREAM = "A stream of `data:` events; needs decoupled mode (server docs/protocol/extension_generate.md)."


def start(
    profile: Deployment,
    release: Release,
    paths: Paths,
    flags: Mapping[str, FlagValue],
    *,
    why: str,
    left_out: tuple[str, ...] = (),
) -> Command:
    """The launch script over the repository, one process per rank of the profile."""
    all_flags = {"--world_size": profile.world_size, "--model_repo": paths.repository, **flags}
    arguments = required(release, LAUNCH, all_flags)
    argv = (*release.tool(LAUNCH).launcher, tool_path(profile, release, LAUNCH, paths), *arguments)
    return Command(
        "launch",
        LAUNCH,
        argv,
        server_place(profile, release),
        env=release.environment_of(profile),
        why=why + settings_reason(profile, release),
        left_out=left_out,
        background=release.behaviour.launch_returns_at_once.value,
        ready_url=f"http://localhost:{flags.get('--http_port', HTTP_PORT)}/v2/health/ready",
    )


def ask(
    model: str,
    inputs: tuple[TensorSpec, ...],
    body: Mapping[str, object],
    port: int,
    *,
    why: str,
    stream: Mapping[str, object] | None = None,
) -> list[Command]:
    """Ask ``model`` for a whole answer and, with the fields of ``stream`` added, for a stream.

    :class:`PlaybookError` for a field that is none of ``inputs``: the server would ignore it silently.
    """
    url = f"http://localhost:{port}/v2/models/{model}"
    post = ("--silent", "--show-error", "--fail", "--request", "POST")
    whole = ("curl", f"{url}/generate", *post, "--data", _checked(model, inputs, body))
    commands = [Command("request", "curl", whole, why=why)]
    if stream:
        data = _checked(model, inputs, {**body, **stream})
        streamed = ("curl", f"{url}/generate_stream", *post, "--no-buffer", "--data", data)
        commands.append(Command("request", "curl", streamed, why=WHY_STREAM))
    return commands


def _checked(model: str, inputs: tuple[TensorSpec, ...], body: Mapping[str, object]) -> str:
    names = {tensor.name for tensor in inputs}
    required_names = {tensor.name for tensor in inputs if not tensor.optional}
    if not required_names <= set(body) <= names:
        raise PlaybookError(
            f"a request with {', '.join(body)} does not fit {model}",
            why=f"it needs {', '.join(sorted(required_names))} and takes {', '.join(sorted(names))}",
            fix="mend the request, or the templates' files in packages/trtllm_check/releases/data/triton",
        )
    return json.dumps(dict(body))
