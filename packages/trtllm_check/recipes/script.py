"""The whole road as one bash script, which needs docker (or an installed TensorRT-LLM) and not the playbook."""

import math
import re
import shlex
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import replace

from trtllm_check.deployment import Deployment, weights_gb
from trtllm_check.recipes.command import DOCKER_OPTIONS, HOST, Command, Paths, foreground, shell
from trtllm_check.releases import Release

WIDTH = 106
YOUR_BUCKET = "s3://your-bucket"
BUCKET = re.compile(rf"""[^\s'"]*{YOUR_BUCKET}[^\s'"]*""")
# Stages that the road does not need: a baseline in 16 bits, a profile, an endpoint's files.
ON_REQUEST = {
    "convert": "the checkpoint in 16 bits, as large as the model",
    "profile": "needs nsys in the image",
    "lmi": "uploads to your bucket: export S3_BUCKET",
}
ASKS = "request"  # the stage whose commands go to the server that was started before

HEAD = """\
#!/usr/bin/env bash
# {model}, {qformat} weights, {kv_cache_dtype} KV cache, TP {tp} x PP {pp}: profile {name}, TensorRT-LLM {release}.
# Written by: playbook commands --profile {name} --release {release} --sh
# Every argument was accepted by a parser built from that release's own. None of it was run on a GPU here.
#
#   bash THIS_FILE                 the road: {stages}
#   bash THIS_FILE quantize build  only these{asked_for}
#
# What it writes lies under {folder}: run it on a large disk (on a P5, /opt/dlami/nvme). Files belong to root.
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
  local end=$((SECONDS + ${READY_SECONDS:-3600}))
  until curl --silent --fail --output /dev/null "$1"; do
    server_runs || { server_log; exit 1; }
    if [ "$SECONDS" -gt "$end" ]; then
      server_log
      echo "the server was not ready in ${READY_SECONDS:-3600} s; READY_SECONDS sets another limit" >&2
      exit 1
    fi
    sleep 5
  done
}
"""
DISK = """
has_room() {{
  local free
  free=$(df --output=avail --block-size=1000000000 {folder} | tail -n 1 | tr -dc '0-9')
  [ "$free" -ge "${{DISK_GB:-{needed}}}" ] || {{
    echo "$free GB are free here, model, checkpoint and engine need {needed}: go to a larger disk, or set DISK_GB" >&2
    exit 1
  }}
}}
"""
MAIN = """
stages=({stages})
if [ $# -gt 0 ]; then stages=("$@"); fi
for stage in "${{stages[@]}}"; do
  declare -F "stage_$stage" >/dev/null || {{ echo "no stage $stage; there are: {all_stages}" >&2; exit 2; }}
done
if [[ " ${{stages[*]}} " == *" fetch "* ]]; then has_room; fi
for stage in "${{stages[@]}}"; do
  printf '\\n== %s  %s\\n' "$(date +%H:%M:%S)" "$stage"
  "stage_$stage"
done
"""


def script(profile: Deployment, release: Release, todo: Sequence[Command], left_out: Iterable[str] = ()) -> str:
    """``todo`` as a script with a function for each stage; ``left_out`` stands in a comment.

    A server is started in the background, waited for, asked, and stopped before the next stage.
    """
    paths = Paths.default(profile)
    every = list(dict.fromkeys(_function(command) for command in todo))
    stages = [stage for stage in every if stage not in ON_REQUEST or (stage == "convert" and "quantize" not in every)]
    asked_for = [_asked_for(stage, todo) for stage in every if stage not in stages]
    folder = f"{paths.host_root}/{profile.name}"
    names = {"stages": " ".join(stages or every), "all_stages": " ".join(every), "folder": folder}
    head = HEAD.format(
        **profile.model_dump(exclude={"release"}), release=release.name, asked_for="".join(asked_for), **names
    )
    parts = [head, *(_comment(f"Left out: {sentence}") for sentence in left_out)]
    if profile.runner == "docker":
        options = shlex.join(("--init", *DOCKER_OPTIONS))
        parts.append(CONTAINER.format(options=options, host=paths.host_root, inside=paths.root))
    else:
        parts.append(NATIVE)
    parts += [WAIT, DISK.format(needed=disk_gb(profile), **names)]
    parts += [_stage(stage, [command for command in todo if _function(command) == stage]) for stage in every]
    parts.append(MAIN.format(**names))
    return "".join(parts)


def disk_gb(profile: Deployment) -> int:
    """GB (1e9 bytes) of the road: the model as downloaded, its checkpoint and its engine."""
    return math.ceil(weights_gb(profile) + 2 * profile.shape.weight_bytes(profile.qformat) / 1e9)


def _asked_for(stage: str, todo: Sequence[Command]) -> str:
    """The head's line on a stage, with what this stage does not take from the head: 0.8.0's endpoint has no FP8."""
    exceptions = dict.fromkeys(
        sentence for command in todo if _function(command) == stage for sentence in command.left_out
    )
    lines = [f"bash THIS_FILE {stage:<15} {ON_REQUEST[stage]}", *(f"{'':<30} but {one}" for one in exceptions)]
    return "".join(f"\n#   {line}" for line in lines)


def _function(command: Command) -> str:
    """A request belongs to the stage that started its server."""
    return "launch" if command.stage == ASKS else command.stage


def _stage(name: str, todo: Sequence[Command]) -> str:
    lines = [f"\nstage_{name}() {{\n"]
    for command in todo:
        lines.append(_comment(command.reason, indent="  ") if command.reason else "")
        lines += [f'  : "${{{secret}:?export {secret} first}}"\n' for secret in command.secrets]
        lines += ['  : "${S3_BUCKET:?export S3_BUCKET first, the name of your bucket}"\n'] if _uploads(command) else []
        call = _guarded(command)  # the pattern begins anywhere, so it is slow where the text has no bucket
        lines.append(f"  {BUCKET.sub(_in_bucket, call) if YOUR_BUCKET in call else call}\n")
        if command.ready_url:
            lines.append(f"  wait_until_ready {command.ready_url}\n")
    if any(command.ready_url for command in todo):
        lines.append("  stop_server\n")
    return "".join([*lines, "}\n"])


def _uploads(command: Command) -> bool:
    return any(YOUR_BUCKET in word for word in command.argv)


def _in_bucket(match: re.Match[str]) -> str:
    """The place in the reader's bucket, for the shell to fill in."""
    return '"' + match[0].replace(YOUR_BUCKET, "s3://$S3_BUCKET") + '"'


def _guarded(command: Command) -> str:
    """The call, left out where what it makes is there already."""
    return f"[ -d {shlex.quote(command.creates)} ] || {_call(command)}" if command.creates else _call(command)


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
