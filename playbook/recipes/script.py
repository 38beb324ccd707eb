"""The whole road as one bash script, which needs docker (or an installed TensorRT-LLM) and not the playbook."""

import shlex
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import replace

from playbook.profile import Profile
from playbook.recipes.command import DOCKER_OPTIONS, HOST, Command, Paths, foreground, shell
from playbook.releases import Release

WIDTH = 106
ASKS = "request"  # the stage whose commands go to the server that was started before

HEAD = """\
#!/usr/bin/env bash
# {model}, {qformat} weights, {kv_cache_dtype} KV cache, TP {tp} x PP {pp}: profile {name}, TensorRT-LLM {release}.
# Written by: playbook commands --profile {name} --release {release} --sh
# Every argument was accepted by a parser built from that release's own. None of it was run on a GPU here.
#
#   bash THIS_FILE                 all stages: {stages}
#   bash THIS_FILE quantize build  only these
# shellcheck disable=SC2016,SC2317,SC2329  # single quotes are for inner shells; stages are called by name
set -euo pipefail
mkdir -p {folder}
"""
CONTAINER = """
# docker's options, the image, and the command in it. Ranks and server need the GPUs, limits and shared memory.
docker_options=({options}
  --volume "$PWD/{host}:{inside}")
in_container() {{ docker run --rm "${{docker_options[@]}}" "$@"; }}
start_server() {{ docker run --detach --name playbook-server "${{docker_options[@]}}" "$@" >/dev/null; }}
stop_server() {{ docker rm --force playbook-server >/dev/null 2>&1 || true; }}
server_runs() {{ [ "$(docker inspect --format '{{{{.State.Running}}}}' playbook-server)" = true ]; }}
server_log() {{ docker logs --tail 60 playbook-server; }}
"""
NATIVE = """
server=
start_server() { setsid "$@" & server=$!; }
stop_server() { if [ -n "$server" ]; then kill -- "-$server" 2>/dev/null || true; fi; server=; }
server_runs() { kill -0 "$server" 2>/dev/null; }
server_log() { echo "the server ended; its output is above" >&2; }
"""
WAIT = """
trap stop_server EXIT
wait_until_ready() {
  until curl --silent --fail --output /dev/null "$1"; do
    server_runs || { server_log; exit 1; }
    sleep 5
  done
}
"""
MAIN = """
stages=({stages})
if [ $# -gt 0 ]; then stages=("$@"); fi
for stage in "${{stages[@]}}"; do
  declare -F "stage_$stage" >/dev/null || {{ echo "no stage $stage; there are: {stages}" >&2; exit 2; }}
done
for stage in "${{stages[@]}}"; do
  printf '\\n== %s  %s\\n' "$(date +%H:%M:%S)" "$stage"
  "stage_$stage"
done
"""


def script(profile: Profile, release: Release, todo: Sequence[Command], left_out: Iterable[str] = ()) -> str:
    """``todo`` as a script with a function for each stage; ``left_out`` stands in a comment.

    A server is started in the background, waited for, asked, and stopped before the next stage.
    """
    paths = Paths.default(profile)
    stages = list(dict.fromkeys(_function(command) for command in todo))
    head = HEAD.format(
        **profile.model_dump(exclude={"release"}),
        release=release.name,
        stages=" ".join(stages),
        folder=f"{paths.host_root}/{profile.name}",
    )
    parts = [head, *(_comment(f"Left out: {sentence}") for sentence in left_out)]
    if profile.runner == "docker":
        options = shlex.join(("--init", *DOCKER_OPTIONS))
        parts.append(CONTAINER.format(options=options, host=paths.host_root, inside=paths.root))
    else:
        parts.append(NATIVE)
    parts.append(WAIT)
    parts += [_stage(stage, [command for command in todo if _function(command) == stage]) for stage in stages]
    parts.append(MAIN.format(stages=" ".join(stages)))
    return "".join(parts)


def _function(command: Command) -> str:
    """A request belongs to the stage that started its server."""
    return "launch" if command.stage == ASKS else command.stage


def _stage(name: str, todo: Sequence[Command]) -> str:
    lines = [f"\nstage_{name}() {{\n"]
    for command in todo:
        lines.append(_comment(command.reason, indent="  ") if command.reason else "")
        lines += [f'  : "${{{secret}:?export {secret} first}}"\n' for secret in command.secrets]
        lines.append(f"  {_call(command)}\n")
        if command.ready_url:
            lines.append(f"  wait_until_ready {command.ready_url}\n")
    if any(command.ready_url for command in todo):
        lines.append("  stop_server\n")
    return "".join([*lines, "}\n"])


def _call(command: Command) -> str:
    """The command's own words behind one of the script's functions."""
    if command.where == HOST:
        return shell(replace(command, argv=("start_server", *foreground(command))) if command.ready_url else command)
    settings = [word for key, value in command.env.items() for word in ("--env", f"{key}={value}")]
    secrets = [word for name in command.secrets for word in ("--env", name)]
    workdir = ("--workdir", command.cwd) if command.cwd else ()
    function = "start_server" if command.ready_url else "in_container"
    argv = (function, *settings, *secrets, *workdir, command.where, *foreground(command))
    return shell(replace(command, argv=argv, env={}, cwd=""))


def _comment(text: str, indent: str = "") -> str:
    return "".join(f"{indent}# {line}\n" for line in textwrap.wrap(text, WIDTH - len(indent)))
