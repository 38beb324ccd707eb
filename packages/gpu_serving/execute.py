"""Executes a recipe's commands, natively or through docker: shown, streamed, logged, and explained when they fail.

``commands.jsonl`` beside the logs keeps one line per executed command: what ran where, when, how long, how it ended.
"""

import json
import os
import shutil
import subprocess
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from serving_base.errors import CommandFailed, EnvironmentProblem
from serving_base.processes import stream_command, users_environment
from trtllm_check.deployment import Deployment
from trtllm_check.lint.logs import Sign, known, signs
from trtllm_check.recipes.command import HOST, Command, Paths, on_host
from trtllm_check.recipes.install import clone
from trtllm_check.releases import Release, load_release

KEPT_LINES = 5000  # the answers to a dozen prompts fit, and the tracebacks of eight ranks
SHOWN_LINES = 15
HIDDEN = "[hidden]"
TOKEN = "HF_TOKEN"
RECORD = "commands.jsonl"
REMOVAL_LIMIT_S = 60.0
FINDINGS = signs()
KILLED = (137, -9)


@dataclass(frozen=True)
class Execution:
    """A command that ended with exit code 0. ``output`` holds its last lines."""

    command: Command
    seconds: float
    log_path: Path
    output: str


def setting(deployment: Deployment, root: Path) -> tuple[Release, Paths]:
    """Its release and folders. The workspace keeps its path in the container, so what is written there fits outside."""
    return load_release(deployment.release), Paths.under(str(root), deployment.name)


def logs(deployment: Deployment, root: Path) -> Path:
    return root / deployment.name / "logs"


def run(
    deployment: Deployment, release: Release, todo: list[Command], paths: Paths, *, writes: Path
) -> list[Execution]:
    """Execute the commands of a stage with what they need in place."""
    make_available(deployment, release, paths)
    return execute_all(todo, paths, logs(deployment, Path(paths.root)), writes=writes)


def make_available(deployment: Deployment, release: Release, paths: Paths) -> None:
    """Clone what the container lacks, unless an earlier stage did; half a clone is removed first."""
    for command in clone(deployment, release, paths):
        folder = Path(command.argv[-1])
        if (folder / ".git" / "index").is_file():  # git writes it last
            continue
        shutil.rmtree(folder, ignore_errors=True)
        execute_all([command], paths, logs(deployment, Path(paths.root)), writes=folder)


def execute(command: Command, paths: Paths, log_path: Path, *, echo: Callable[[str], None] = print) -> Execution:
    """Run ``command`` to its end: every line to ``echo`` and to ``log_path``, values of its secrets to neither.

    Raises :class:`CommandFailed` with what a known failure means and how to mend it.
    """
    require_program(command)
    executed = as_executed(command, paths)
    lines: deque[str] = deque(maxlen=KEPT_LINES)
    account = CommandRecord.open(command, executed, log_path)
    log_path.parent.mkdir(parents=True, exist_ok=True)
    for sentence in command.left_out:
        echo(f"left out: {sentence}")
    returncode: int | None = None
    try:
        with log_path.open("a", encoding="utf-8") as log:
            take = _taker(command, lines, log, echo)
            cwd = Path(executed.cwd) if executed.cwd else None
            stream_command(executed.argv, env=dict(executed.env), base=users_environment(), cwd=cwd, echo=take)
        returncode = 0
    except CommandFailed as error:
        returncode = error.returncode
        raise explained(command, "\n".join(lines), returncode, log_path) from None  # its text has no filter
    except BaseException:
        remove_container(executed)
        raise
    finally:
        seconds = account.close(returncode)
    echo(f"{command.tool}: exit code 0 after {seconds:.1f} s, log in {log_path}")
    return Execution(command, seconds, log_path, "\n".join(lines))


@dataclass(frozen=True)
class CommandRecord:
    """One line of ``commands.jsonl``, written when the command has ended."""

    path: Path
    entry: Mapping[str, object]
    began: float

    @classmethod
    def open(cls, command: Command, executed: Command, log_path: Path) -> "CommandRecord":
        secrets = secret_values(command)
        entry = {
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "stage": command.stage,
            "tool": command.tool,
            "where": command.where,
            "argv": [redacted(word, secrets) for word in executed.argv],
            "env": {name: redacted(value, secrets) for name, value in executed.env.items()},
            "log": log_path.name,
        }
        return cls(log_path.with_name(RECORD), entry, time.monotonic())

    def close(self, returncode: int | None) -> float:
        """Write the line and return the seconds; ``returncode`` None: interrupted."""
        seconds = time.monotonic() - self.began
        with self.path.open("a", encoding="utf-8") as record:
            record.write(json.dumps({**self.entry, "exit_code": returncode, "seconds": round(seconds, 2)}) + "\n")
        return seconds


def as_executed(command: Command, paths: Paths) -> Command:
    """The command as the host runs it; a container gets a name, so that it can be found and removed."""
    executed = on_host(command, paths)
    if command.where == HOST:
        return executed
    docker, run, *rest = executed.argv
    return replace(executed, argv=(docker, run, "--name", f"playbook-{command.stage}-{uuid.uuid4().hex[:12]}", *rest))


def container_name(executed: Command) -> str:
    """The name that ``docker run`` gives the command's container; "" where the command runs on the host."""
    words = executed.argv
    return words[words.index("--name") + 1] if "--name" in words else ""


def remove_container(executed: Command) -> None:
    """End the container of an interrupted command: where its client had to be killed, it would hold the GPUs on."""
    name = container_name(executed)
    if not name:
        return
    with suppress(subprocess.TimeoutExpired):
        subprocess.run(["docker", "rm", "--force", name], check=False, capture_output=True, timeout=REMOVAL_LIMIT_S)


def execute_all(commands: Iterable[Command], paths: Paths, log_folder: Path, *, writes: Path) -> list[Execution]:
    """Run the commands in order, each with a log of its own; ``writes`` is the folder that they fill.

    Containers write as root: what they left is handed to this user, also after a failure.
    """
    last: Command | None = None
    executions = []
    try:
        for number, command in enumerate(commands):
            last = command
            log_path = log_folder / f"{command.stage}-{number}-{Path(command.tool).stem}.log"
            executions.append(execute(command, paths, log_path))
    finally:
        if last is not None and last.where != HOST and os.getuid() != 0:
            owner = f"{os.getuid()}:{os.getgid()}"
            chown = ("chown", "--recursive", owner, str(writes))
            execute(Command("own", "chown", chown, last.where), paths, log_folder / "own.log", echo=lambda _: None)
    return executions


def diagnose(output: str, returncode: int) -> Sign | None:
    """The known failure that this output shows, one of ``trtllm_check/lint/logs.yml``, or None."""
    found = known(output)
    if found is None and returncode in KILLED:
        return next(sign for sign in FINDINGS if sign.rule == "killed")
    return found


def explained(command: Command, output: str, returncode: int, log_path: Path) -> CommandFailed:
    """The error for a failed command: its known cause and fix, else its last lines."""
    finding = diagnose(output, returncode)
    what = f"{command.tool} ended with exit code {returncode} (stage {command.stage})"
    shown = "\n    ".join(["its last lines:", *output.splitlines()[-SHOWN_LINES:]])
    if finding is None:
        return CommandFailed(
            what, returncode=returncode, log_path=log_path, why=shown, fix=f"read the whole output in {log_path}"
        )
    return CommandFailed(
        f"{what}: {finding.rule}",
        returncode=returncode,
        log_path=log_path,
        why=f"{finding.cause} ({finding.source})\n    {shown}",
        fix=f"{finding.fix}; the whole output is in {log_path}",
    )


def require_program(command: Command) -> None:
    """Refuse before anything starts if docker, or natively the tool, is not on this machine."""
    if command.where != HOST and shutil.which("docker") is None:
        raise EnvironmentProblem(
            "docker is not on this machine",
            why=f"{command.tool} runs in {command.where}",
            fix="install docker and nvidia-container-toolkit; runner: native does without for all but Triton",
        )
    if command.where == HOST and shutil.which(command.argv[0], path=users_environment().get("PATH")) is None:
        raise EnvironmentProblem(
            f"{command.argv[0]} is not on this machine",
            why=f"stage {command.stage} runs {command.tool} on the host",
            fix="install it; or, for TensorRT-LLM's own tools, set runner: docker in the profile",
        )


def redacted(text: str, secrets: Mapping[str, str]) -> str:
    for value in secrets.values():
        text = text.replace(value, HIDDEN)
    return text


def secret_values(command: Command) -> dict[str, str]:
    """The values that may not be shown, by name: the command's own, and the hub's token in any case."""
    return {name: os.environ[name] for name in {*command.secrets, TOKEN} if os.environ.get(name)}


def _taker(command: Command, lines: deque[str], log: TextIO, echo: Callable[[str], None]) -> Callable[[str], None]:
    secrets = secret_values(command)

    def take(line: str) -> None:
        clean = redacted(line, secrets)
        lines.append(clean)
        log.write(clean + "\n")
        log.flush()
        echo(clean)

    return take
