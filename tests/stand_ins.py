"""Stand-ins for the programs of a GPU machine: docker, git, and what runs in TensorRT-LLM's container. For tests only.

Each takes what the release's own parser takes (built from the release's facts) and writes what the real one writes:
the files, their layout, names, shapes and dtypes, in sparse files where they would be large. `Machine` installs them
into a folder for PATH; every program that runs notes itself in ``calls.jsonl``. Programs start often, so they import
the package inside functions.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent
sys.path[:0] = [str(TESTS.parent)]

Facts = Mapping[str, Any]
"""What of the release's facts the machine itself needs."""

HOST_PROGRAMS = ("docker", "git")
CONTAINER_PROGRAMS = ("python3", "mpirun", "cp", "trtllm-build", "nvidia-smi", "hf", "huggingface-cli")
PROFILERS = ("nsys",)  # an image may lack it: delete it from Machine.container
PLACE = "STAND_IN_MACHINE"


@dataclass(frozen=True)
class Machine:
    """A machine with stand-ins: ``folder`` holds the programs, their settings and what they noted.

    ``tiny_engine``: an engine of the embedded lane that answers in place of the 70B one; ``answers``: prompt -> answer
    for run.py.
    """

    folder: Path
    release: str
    tiny_engine: str = ""

    @property
    def programs(self) -> Path:
        return self.folder / "bin"

    @property
    def container(self) -> Path:
        """What a container has on its PATH."""
        return self.folder / "container"

    def install(self, *, native: bool = False) -> "Machine":
        """Write the programs; ``native``: those of the container are on the host, too."""
        for folder, names in (
            (self.programs, HOST_PROGRAMS + (CONTAINER_PROGRAMS if native else ())),
            (self.container, CONTAINER_PROGRAMS + PROFILERS),
        ):
            folder.mkdir(parents=True, exist_ok=True)
            for name in names:
                write_script(folder / name, self, name)
        (self.folder / "facts.json").write_text(json.dumps(facts_of(self.release)), encoding="utf-8")
        return self

    def facts(self) -> Facts:
        found: Facts = json.loads((self.folder / "facts.json").read_text(encoding="utf-8"))
        return found

    def fail(self, tool: str, output: str = "", code: int = 1, **how: Any) -> None:
        """Let the next runs of ``tool`` fail, after half of their work; ``hang=True``: work on until a signal comes."""
        failure = {"tool": tool, "output": output, "code": code, **how}
        (self.folder / "failure.json").write_text(json.dumps(failure), encoding="utf-8")

    def mend(self) -> None:
        (self.folder / "failure.json").unlink(missing_ok=True)

    def failure(self) -> dict[str, Any]:
        path = self.folder / "failure.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    def calls(self, program: str = "") -> list[dict[str, Any]]:
        path = self.folder / "calls.jsonl"
        noted = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
        return [call for call in noted if not program or call["program"] == program]

    def note(self, program: str, argv: Iterable[str], **more: Any) -> None:
        line = json.dumps({"program": program, "argv": list(argv), "pid": os.getpid(), **more})
        with (self.folder / "calls.jsonl").open("a", encoding="utf-8") as calls:
            calls.write(line + "\n")

    def answers(self) -> dict[str, str]:
        path = self.folder / "answers.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def facts_of(release_name: str) -> Facts:
    from playbook.releases import load_release

    release = load_release(release_name)
    templates = release.templates
    assert templates is not None
    return {
        "images": [release.image, release.server_image],
        "checkouts": {name: [at.url, at.tag] for name, at in release.checkouts.items()},
        "tools": {
            name: {"inside": tool.container_path, "repo": tool.repo, "path": tool.repo_path}
            for name, tool in release.tools.items()
        },
        "templates": {"inside": templates.container_path, "repo": templates.repo, "path": templates.repo_path},
    }


def write_script(path: Path, machine: Machine, name: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    source = f"""#!{sys.executable}
import sys
sys.path.insert(0, {str(TESTS)!r})
import stand_ins
sys.exit(stand_ins.main({name!r}, stand_ins.Machine(stand_ins.Path({str(machine.folder)!r}), {machine.release!r},
                                                    {machine.tiny_engine!r}), sys.argv[1:]))
"""
    path.write_text(source, encoding="utf-8")
    path.chmod(0o755)


def main(name: str, machine: Machine, words: list[str]) -> int:
    """Run the stand-in ``name``; its exit status."""
    special = {"docker": docker, "git": git, "python3": python3, "mpirun": mpirun, "cp": cp}
    if name in PROFILERS:
        from stand_in_nsys import nsys

        return nsys(machine, words)
    return special[name](machine, words) if name in special else run_tool(machine, name, words)


# The host's programs.


def docker_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="docker run", allow_abbrev=False)
    for flag in ("--rm", "--init", "--interactive", "--tty"):
        parser.add_argument(flag, action="store_true")
    for flag in ("--gpus", "--network", "--shm-size", "--name", "--workdir", "--ipc"):
        parser.add_argument(flag)
    for flag in ("--ulimit", "--volume", "--env"):
        parser.add_argument(flag, action="append", default=[])
    parser.add_argument("image")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    return parser


def docker(machine: Machine, words: list[str]) -> int:
    """`docker run`: the program runs on this machine, with the container's PATH and nothing of our environment.

    As the real client it passes signals on, and when the first process ends, so does everything in the container.
    """
    if words[0] != "run":
        machine.note("docker", words)
        return 0
    given = docker_parser().parse_args(words[1:])
    machine.note("docker", words, name=given.name)
    if machine.failure().get("tool") == "docker":
        return fail(machine.failure())
    if given.image not in machine.facts()["images"]:
        print(f"docker: manifest for {given.image} not found: manifest unknown", file=sys.stderr)
        return 125
    settings = {}
    for item in given.env:
        name, sign, value = item.partition("=")
        settings[name] = value if sign else os.environ.get(name, "")
    refuse_unmounted(machine, given.command, [volume.split(":")[0] for volume in given.volume])
    env = {"PATH": f"{machine.container}:/usr/bin:/bin", PLACE: given.image, **settings}
    if shutil.which(given.command[0], path=env["PATH"]) is None:
        print(f"[FATAL tini (7)] exec {given.command[0]} failed: No such file or directory", file=sys.stderr)
        return 127
    process = subprocess.Popen(given.command, env=env, start_new_session=True)

    def pass_on(number: int, _: object) -> None:
        machine.note("signal", [signal.Signals(number).name], name=given.name)
        process.send_signal(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, pass_on)
    status = process.wait()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return status if status >= 0 else 128 - status


def refuse_unmounted(machine: Machine, command: list[str], mounts: list[str]) -> None:
    """A container sees of this machine only what is mounted; the playbook mounts its workspace at its own path."""
    for word in command:
        for path in re.findall(rf"{re.escape(str(machine.folder.parent))}[\w./-]*", word):
            if not any(Path(path).is_relative_to(mount) for mount in mounts):
                sys.exit(f"docker stand-in: {path} is not mounted")


def git(machine: Machine, words: list[str]) -> int:
    """`git clone` at the release's tag: the scripts and templates that the facts place in that repository."""
    machine.note("git", words, skip_lfs=os.environ.get("GIT_LFS_SKIP_SMUDGE"))
    parser = argparse.ArgumentParser(prog="git", allow_abbrev=False)
    parser.add_argument("verb", choices=["clone"])
    parser.add_argument("--depth", type=int)
    parser.add_argument("--branch")
    parser.add_argument("url")
    parser.add_argument("folder", type=Path)
    given = parser.parse_args(words)
    facts = machine.facts()
    name = next((key for key, at in facts["checkouts"].items() if at == [given.url, given.branch]), None)
    if name is None:
        print(f"fatal: Remote branch {given.branch} not found in {given.url}", file=sys.stderr)
        return 128
    if given.folder.exists() and any(given.folder.iterdir()):
        print(f"fatal: destination path '{given.folder}' already exists and is not an empty directory.")
        return 128
    (given.folder / ".git").mkdir(parents=True)
    if machine.failure().get("tool") == "git":
        return fail(machine.failure())
    for tool_name, tool in facts["tools"].items():
        if tool["repo"] == name:
            write_script(given.folder / tool["path"], machine, tool_name)
    if facts["templates"]["repo"] == name:
        from stand_in_tools import write_templates

        write_templates(machine.release, given.folder / facts["templates"]["path"])
    (given.folder / ".git" / "index").write_text("")
    return 0


# The container's programs.


def python3(machine: Machine, words: list[str]) -> int:
    """The container's Python: the release's scripts at their places, in the container or in a mounted clone."""
    if words[0] == "-c":
        machine.note("python3", words)
        return 0
    if words[:2] == ["-m", "pip"] or Path(words[0]).name == "executor_steps.py":
        import stand_in_inference

        machine.note("python3", words)
        return stand_in_inference.python3(machine, words)
    by_path = {tool["inside"]: name for name, tool in machine.facts()["tools"].items() if tool["inside"]}
    path = Path(words[0])
    name = by_path.get(words[0]) or (path.name if path.is_file() else None)
    if name is None:
        print(f"python3: can't open file '{path}': [Errno 2] No such file or directory", file=sys.stderr)
        return 2
    return run_tool(machine, name, words[1:])


def mpirun(machine: Machine, words: list[str]) -> int:
    """`mpirun -n N program`: one process stands for all ranks; `tritonserver` is the embedded lane's."""
    machine.note("mpirun", words)
    if any(Path(word).name == "tritonserver" for word in words):
        from stand_in_tools import tritonserver

        return tritonserver(machine, words)
    parser = argparse.ArgumentParser(prog="mpirun", allow_abbrev=False)
    parser.add_argument("--allow-run-as-root", action="store_true")
    parser.add_argument("-n", type=int, required=True)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args(words)
    if os.getuid() == 0 and not given.allow_run_as_root:
        print("mpirun has detected an attempt to run as root.", file=sys.stderr)
        return 1
    return subprocess.call(given.command, env={**os.environ, "OMPI_COMM_WORLD_SIZE": str(given.n)})


def cp(machine: Machine, words: list[str]) -> int:
    """`cp`, from the container's own templates, too, which are not on this machine's disk."""
    machine.note("cp", words)
    *sources, target = [word for word in words if not word.startswith("-")]
    inside = machine.facts()["templates"]["inside"] if os.environ.get(PLACE) else ""
    if inside and all(Path(source).is_relative_to(inside) for source in sources):
        from stand_in_tools import write_templates

        write_templates(machine.release, Path(target), [Path(source).name for source in sources])
        return 0
    return subprocess.call(["/bin/cp", *words])


def run_tool(machine: Machine, name: str, words: list[str]) -> int:
    """One of the release's tools: refuses what its parser refuses, and else does its work."""
    from playbook.errors import UsageError
    from playbook.releases import build_parser, load_release

    release = load_release(machine.release)
    given = argparse.Namespace()
    if name in release.tools:
        try:
            given = build_parser(release, name).parse_args(words)
        except UsageError as error:
            print(f"usage: {name} ...\n{name}: error: {error.why}", file=sys.stderr)
            return 2
    machine.note(name, words, place=os.environ.get(PLACE, "host"), token=bool(os.environ.get("HF_TOKEN")))
    failure = machine.failure()
    if failure.get("tool") == name:
        for folder in (getattr(given, "output_dir", None),):
            if folder:
                Path(folder).mkdir(parents=True, exist_ok=True)
                (Path(folder) / "half").write_bytes(b"written")
        return fail(failure)
    print(f"[TensorRT-LLM] TensorRT-LLM version: {release.name}")
    if name in ("hf", "huggingface-cli"):
        return download(machine, words)
    from stand_in_tools import WORK

    return WORK[name](machine, release, given) if name in WORK else 0


def download(machine: Machine, words: list[str]) -> int:
    """`hf download`: what the test put into the machine's folder ``hub``, and the client's own ``.cache``."""
    parser = argparse.ArgumentParser(prog="hf", allow_abbrev=False)
    parser.add_argument("verb", choices=["download"])
    parser.add_argument("repo_id")
    parser.add_argument("--local-dir", type=Path, required=True)
    parser.add_argument("--exclude")
    given = parser.parse_args(words)
    (given.local_dir / ".cache").mkdir(parents=True, exist_ok=True)
    for path in (machine.folder / "hub").iterdir():
        if not (given.local_dir / path.name).exists():
            os.link(path, given.local_dir / path.name)
    return 0


def fail(failure: Mapping[str, Any]) -> int:
    print(failure["output"], flush=True)
    if failure.get("hang"):
        with suppress(KeyboardInterrupt):
            signal.pause()
        return 130
    if failure["code"] == 137:
        os.kill(os.getpid(), signal.SIGKILL)
    return int(failure["code"])
