"""Stand-ins for the programs of a GPU machine: docker, git, and what runs in TensorRT-LLM's container. For tests only.

Each takes what the release's own parser takes (built from the release's facts) and writes what the real one writes:
the files, their layout, names, shapes and dtypes, in sparse files where they would be large. `Machine` installs them
into a folder for PATH; every program that runs notes itself in ``calls.jsonl``. Programs start often, so they import
the package inside functions.
"""

import argparse
import json
import os
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
sys.path[:0] = [str(TESTS.parent), str(TESTS.parent / "packages")]

Facts = Mapping[str, Any]
"""What of the release's facts the machine itself needs."""

HOST_PROGRAMS = ("docker", "git", "nvidia-smi")
CONTAINER_PROGRAMS = ("python3", "mpirun", "cp", "trtllm-build", "nvidia-smi", "hf", "huggingface-cli")
PROFILERS = ("nsys",)  # an image may lack it: delete it from Machine.container
PLACE = "STAND_IN_MACHINE"
GPU_COUNT, GPU_NAME, DRIVER = 8, "NVIDIA H100 80GB HBM3", "550.163.01"  # of a p5.48xlarge

OTHER_PACKAGES = {"torch": "2.9.1", "accelerate": "1.7.0", "transformers": "4.57.3"}
"""requirements.txt of TensorRT-LLM asks for all three; the versions are one release's and stand for any."""


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
    from trtllm_check.releases import load_release

    release = load_release(release_name)
    templates = release.templates
    assert templates is not None
    return {
        "images": [release.image, release.server_image],
        "packages": {"tensorrt_llm": release.container_version, **OTHER_PACKAGES},
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
    if name in PROFILERS:
        from stand_in_nsys import nsys

        return nsys(machine, words)
    special = {
        "docker": docker,
        "git": git,
        "nvidia-smi": nvidia_smi,
        "python3": python3,
        "mpirun": mpirun,
        "cp": cp,
    }
    return special[name](machine, words) if name in special else run_tool(machine, name, words)


# The host's programs.


def docker(machine: Machine, words: list[str]) -> int:
    import stand_in_docker

    return stand_in_docker.docker(machine, words)


def nvidia_smi(machine: Machine, words: list[str]) -> int:
    """`nvidia-smi`: the profile's GPUs as CSV for a query, else the table's first words."""
    machine.note("nvidia-smi", words)
    if machine.failure().get("tool") == "nvidia-smi":
        return fail(machine.failure())
    query = next((word.partition("=")[2] for word in words if word.startswith("--query-gpu=")), "")
    for number in range(GPU_COUNT):
        gpu = {"name": GPU_NAME, "driver_version": DRIVER, "index": str(number), "memory.total": "81559 MiB"}
        print(", ".join(gpu[field] for field in query.split(",")) if query else f"GPU {number}: {GPU_NAME}")
    return 0


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
    """The container's Python: the release's scripts at their places, in the container or in a mounted clone.

    ``-c`` runs really, with the packages that the container has, as far as their names and versions go.
    """
    if words[0] == "-c":
        machine.note("python3", words)
        return subprocess.call([sys.executable, "-S", *words], env={**os.environ, "PYTHONPATH": str(packages(machine))})
    if words[:2] == ["-m", "pip"] or Path(words[0]).name == "executor_steps.py":
        import stand_in_inference

        machine.note("python3", words)
        return stand_in_inference.python3(machine, words)
    by_path = {tool["inside"]: name for name, tool in machine.facts()["tools"].items() if tool["inside"]}
    path = Path(words[0])
    if path.name in ("reference_run.py", "attention_run.py"):
        import stand_in_tools

        return stand_in_tools.run_in_torch(machine, words)
    name = by_path.get(words[0]) or (path.name if path.is_file() else None)
    if name is None:
        print(f"python3: can't open file '{path}': [Errno 2] No such file or directory", file=sys.stderr)
        return 2
    return run_tool(machine, name, words[1:])


def packages(machine: Machine) -> Path:
    """What `import` and `importlib.metadata` find of the container's packages."""
    folder = machine.folder / "packages"
    versions = machine.facts()["packages"]
    lacking = machine.failure().get("without", [])
    shutil.rmtree(folder, ignore_errors=True)
    for name, version in versions.items():
        if name in lacking:
            continue
        (folder / f"{name}-{version}.dist-info").mkdir(parents=True)
        (folder / f"{name}-{version}.dist-info" / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
        (folder / f"{name}.py").write_text(f"__version__ = {version!r}\n")
    gpus = 0 if "cuda" in lacking else GPU_COUNT
    with (folder / "torch.py").open("a") as torch:
        torch.write(f"class cuda:\n    device_count = staticmethod(lambda: {gpus})\n")
        torch.write(f"    is_available = staticmethod(lambda: {gpus > 0})\n")
    return folder


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
    from serving_base.errors import UsageError
    from trtllm_check.releases import build_parser, load_release

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
    if name in ("hf", "huggingface-cli"):
        return download(machine, words)
    print(f"[TensorRT-LLM] TensorRT-LLM version: {release.container_version}")
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
    print(given.local_dir)
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
