"""A command as data, and its two faces: text to paste into a shell, and the ``docker run`` around it."""

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from pathlib import PurePosixPath

from serving_base.errors import NotInRelease
from trtllm_check.deployment import Deployment
from trtllm_check.releases import Release, Templates, Tool

HOST = "host"
CONTAINER_ROOT = "/workspace"
LINE_WIDTH = 110

# tensorrtllm_backend@ce68ff5f README.md:120 (limits, network), docs/encoder_decoder.md:28 (shared memory of the ranks)
DOCKER_OPTIONS = (
    *("--gpus", "all"),
    *("--network", "host"),
    *("--shm-size", "20g"),
    *("--ulimit", "memlock=-1"),
    *("--ulimit", "stack=67108864"),
)
# The launch script starts the ranks and returns; the container must live as long as they do. `-s 0` is our session:
# without a container, others' mpirun can be seen, too. `wait` lets bash act on a signal at once, not after its child.
STAY_WITH_RANKS = (
    'trap "exit 0" INT TERM; "$@" && { tail --pid="$(pgrep -s 0 -o mpirun)" -f /dev/null & wait $!; }; exit 1'
)
FlagValue = str | int | float | bool | None


@dataclass(frozen=True)
class Command:
    """One command of the road. ``argv`` is exactly what is executed, without a shell.

    ``where`` is ``"host"`` or the container image; ``secrets`` names environment variables that are passed on and
    never shown; ``background``: the tool starts a server and returns; ``left_out``: what this release cannot do;
    ``ready_url``, of a server only, answers 200 when it is ready; ``creates``: a folder that the command makes, and
    without which it cannot be repeated.
    """

    stage: str
    tool: str
    argv: tuple[str, ...]
    where: str = HOST
    cwd: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    why: str = ""
    secrets: tuple[str, ...] = ()
    background: bool = False
    left_out: tuple[str, ...] = ()
    ready_url: str = ""
    creates: str = ""

    @property
    def reason(self) -> str:
        """Why the command is as it is, and what it leaves out."""
        return " ".join(text for text in (self.why, *self.left_out) if text)


@dataclass(frozen=True)
class Paths:
    """Folders of one profile, as the tools see them; ``host_root`` is where ``root`` is on the host."""

    root: str
    host_root: str
    model: str
    checkpoint: str
    engine: str
    repository: str

    @classmethod
    @cache
    def under(cls, root: str, profile_name: str, *, host_root: str = "") -> "Paths":
        """The workspace's layout: ``<root>/<profile>/<artifact>``."""
        folder = PurePosixPath(root) / profile_name
        artifacts = {name: str(folder / name) for name in ("model", "checkpoint", "engine", "repository")}
        return cls(root=root, host_root=host_root or root, **artifacts)

    @classmethod
    def default(cls, profile: Deployment) -> "Paths":
        """What is printed when nothing is executed: ``./workspace``, mounted as ``/workspace`` in a container."""
        if profile.runner == "docker":
            return cls.under(CONTAINER_ROOT, profile.name, host_root="workspace")
        return cls.under("workspace", profile.name)

    @property
    def checkpoint_bf16(self) -> str:
        """The baseline beside the quantized checkpoint."""
        return f"{self.checkpoint}-bf16"

    @property
    def sources(self) -> str:
        """Clones of what a container lacks."""
        return f"{self.root}/sources"

    @property
    def hub_cache(self) -> str:
        """Keeps calibration texts between containers."""
        return f"{self.root}/.cache/huggingface"

    @property
    def mounts(self) -> dict[str, str]:
        return {self.host_root: self.root}


def place(profile: Deployment, release: Release) -> str:
    """Where the tools run: a container that is started for them, or the host, which may be a container itself."""
    return release.image if profile.runner == "docker" else HOST


def server_place(profile: Deployment, release: Release) -> str:
    """Where the Triton server runs and its repository is written."""
    return release.server_image if profile.runner == "docker" else HOST


def tool_path(profile: Deployment, release: Release, name: str, paths: Paths) -> str:
    """The tool as it is called: a program on PATH, or a script in the container or in a clone."""
    tool = release.tool(name)
    return _path(profile, release, tool, paths) if tool.repo else name


def templates_path(profile: Deployment, release: Release, paths: Paths) -> str:
    """The folder of the model repository's templates; :class:`NotInRelease` where the release has none."""
    if release.templates is None:
        raise NotInRelease(
            f"TensorRT-LLM {release.name} has no templates for engines",
            why="its Triton backend for engines was removed",
            fix="use the LLM-API model of Triton, or an earlier release",
        )
    return _path(profile, release, release.templates, paths)


def llmapi_path(profile: Deployment, release: Release, paths: Paths) -> str:
    """The folder that holds Triton's LLM-API model; :class:`NotInRelease` where the release has none."""
    if release.llmapi is None:
        raise NotInRelease(
            f"no LLM-API model of Triton is known for TensorRT-LLM {release.name}",
            fix="build an engine, or use a release with the PyTorch flow",
        )
    return _path(profile, release, release.llmapi, paths)


def needed_clones(profile: Deployment, parts: Iterable[Tool | Templates]) -> list[str]:
    """Names of ``release.checkouts`` that hold what the container lacks, or, natively, all of ``parts``."""
    return list(dict.fromkeys(part.repo for part in parts if part.repo and not _in_container(profile, part)))


def _path(profile: Deployment, release: Release, part: Tool | Templates, paths: Paths) -> str:
    if _in_container(profile, part):
        return part.container_path
    return f"{paths.sources}/{release.checkouts[part.repo].folder}/{part.repo_path}"


def _in_container(profile: Deployment, part: Tool | Templates) -> bool:
    return profile.runner != "native" and bool(part.container_path)


def tool_arguments(command: Command) -> list[str]:
    """What follows the tool's own path in ``argv``: launchers such as ``mpirun -n 8 python3`` are left out."""
    for position, word in enumerate(command.argv):
        if command.tool in word and PurePosixPath(word).name == command.tool:
            return list(command.argv[position + 1 :])
    return list(command.argv[1:])


def shell(command: Command) -> str:
    """The command to paste into a shell, a long one with one flag per line; values of secrets do not occur."""
    start = [f"{key}={shlex.quote(value)}" for key, value in command.env.items()]
    lines = _lines(start, command)
    text = " ".join(lines)
    if len(text) > LINE_WIDTH:
        text = " \\\n  ".join(lines)
    return f"cd {shlex.quote(command.cwd)} && {text}" if command.cwd else text


def _lines(start: list[str], command: Command) -> list[str]:
    """Settings, launchers and tool, filled up to the line's width; then each of the tool's flags with its values."""
    first_argument = len(command.argv) - len(tool_arguments(command))
    flags = [i for i, word in enumerate(command.argv) if i >= first_argument and word.startswith("--")]
    head_end = flags[0] if flags else len(command.argv)
    lines = [""]
    for word in [*start, *map(shlex.quote, command.argv[:head_end])]:
        if lines[-1] and len(lines[-1]) + len(word) >= LINE_WIDTH:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".lstrip()
    for begin, end in pairwise([*flags, len(command.argv)]):
        lines.append(shlex.join(command.argv[begin:end]))
    return lines


def docker_argv(command: Command, mounts: Mapping[str, str]) -> tuple[str, ...]:
    """``docker run`` around a command whose ``where`` is an image; ``mounts`` maps host folders to container ones.

    A relative host folder needs Docker 23 or newer. Secrets are passed by name.
    """
    volumes = [("--volume", f"{_mountable(host)}:{inside}") for host, inside in mounts.items()]
    settings = [("--env", f"{key}={value}") for key, value in command.env.items()]
    secrets = [("--env", name) for name in command.secrets]
    workdir = [("--workdir", command.cwd)] if command.cwd else []
    options = [word for option in (*volumes, *settings, *secrets, *workdir) for word in option]
    return ("docker", "run", "--rm", "--init", *DOCKER_OPTIONS, *options, command.where, *foreground(command))


def on_host(command: Command, paths: Paths) -> Command:
    """The command as the host executes it, in the foreground: in ``docker run`` if it belongs in a container."""
    if command.where == HOST:
        return replace(command, argv=foreground(command), background=False)
    return replace(command, argv=docker_argv(command, paths.mounts), where=HOST, cwd="", env={}, background=False)


def foreground(command: Command) -> tuple[str, ...]:
    """What stays in the foreground for as long as the command's server runs."""
    return ("bash", "-c", STAY_WITH_RANKS, "bash", *command.argv) if command.background else command.argv


def _mountable(host: str) -> str:
    return host if host.startswith("/") else f"./{host}"


def required(release: Release, tool_name: str, flags: Mapping[str, FlagValue]) -> list[str]:
    """The flags as an argument list. None leaves a flag out, True writes a bare switch.

    Raises :class:`NotInRelease` if the release's tool does not have one of them.
    """
    tool = release.tool(tool_name)
    for flag, value in flags.items():
        if value is not None and not tool.has(flag):
            raise NotInRelease(
                f"{tool_name} of TensorRT-LLM {release.name} has no {flag}",
                why=f"its arguments are: {', '.join(tool.arguments)}",
                fix="use a release that has it, or a profile that does not need it",
            )
    return _render(flags)


def optional(tool: Tool, flags: Mapping[str, FlagValue]) -> list[str]:
    """Those of the flags that the tool surely has, and takes with this value."""
    return _render({flag: value for flag, value in flags.items() if _takes(tool, flag, value)})


def switch(tool: Tool, flag: str) -> FlagValue:
    """How to turn ``flag`` on: True for a bare switch, ``"enable"`` for a flag with a value, None if it is absent."""
    argument = tool.argument(flag)
    if argument is None:
        return None
    return True if argument.is_switch else "enable"


def first_of(tool: Tool, *flags: str) -> str:
    """The first of several names of one flag that the tool has; "" if it has none."""
    return next((flag for flag in flags if tool.has(flag)), "")


def _takes(tool: Tool, flag: str, value: FlagValue) -> bool:
    if value is True:
        argument = tool.argument(flag)
        return argument is not None and argument.is_switch and tool.certain(flag)
    return value is not None and value is not False and tool.certain(flag, value)


def _render(flags: Mapping[str, FlagValue]) -> list[str]:
    words: list[str] = []
    for flag, value in flags.items():
        if value is True:
            words.append(flag)
        elif value is not None and value is not False:
            words += [flag, str(value)]
    return words
