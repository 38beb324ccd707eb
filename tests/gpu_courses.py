"""The course on a machine with GPUs, made of stand-ins: its chapters headless under one profile and one release.

    python tests/gpu_courses.py [--profile p5] [--release 0.12.0] [--out DIR] [00 01 ...]

runs it and prints a table: chapter, status, code cells that ran, those that stayed silent, seconds. The notebooks, the
lane, the recipes and Triton are the real ones; docs/stand-ins.md says what is not.
"""

import argparse
import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from checkout import PYTHON_PATH, ROOT
from cpu_serving.build import build_engine
from made_once import made_once
from model_server.generate import generate_text
from model_server.text import TextCodec
from playbook import artifact, stages
from playbook.course.notebooks import chapters, parameters, read
from playbook.lanes.base import ELSEWHERE, lane_of
from playbook.profile import load_profile
from playbook.stages import reference
from serving import END_ID, ENGINE_OPTIONS
from serving_base.facts.models import ModelShape, model_shape
from sparse_models import write_model
from stand_in_hub import Hub, hub_server
from stand_in_tools import SHOWN, SHOWN_ROWS
from stand_ins import Machine
from tiny_llama import MODEL_DIR
from waiting import interruptible
from warm_kernels import WarmProcess, may_fork, told_to_others

TOKEN = "hf_verysecrettoken"
PROFILES = ("p5", "p5-8b")
WHOLE = ("p5", "0.12.0")
"""Whose chapters all run; the other roads of the lane are walked without notebooks."""
FAR_CORNER = ("p5-8b", "1.2.1")
"""Shares neither profile nor release with ``WHOLE``."""
MODELS = ("llama-3-70b-instruct", "llama-3-8b-instruct")
QUESTIONS = ["How do I count to nine in French?"] + [
    f"Count to {number} in {language}."
    for number in ("four", "seven", "ten")
    for language in ("French", "German", "Italian", "Dutch")
]
SHORT = {
    "concurrency": "[8, 12]",  # streams: with few, a stand-in's tiny model is faster than eight GPUs can read 70B
    "isl": "[16, 48]",
    "osl": "[4, 8]",
    "rate_seconds": "2",
    "comparisons": "1",
    "clients": "4",
    "herd_size": "4",
    "lengths": "[256, 512]",  # of chapter 11, as the next is of 14: nbval has them whole
    "microbatches": "[1, 2]",
}
"""A run's values for the chapters that put load on the server, where two cores serve in place of eight GPUs."""
SAME_EVERYWHERE = ("12", "16", "17", "18")
"""Chapters that compute on the processor and ask nothing of the lane. nbval has them whole, and runs of a minute each
would say nothing more of a profile: here they do what meets it.
"""
MEETS_PROFILE = ("playbook.start", "lab.card", "lab.panel", "lab.close")
NVME = """\
import shutil
_usage, _real = type(shutil.disk_usage("/")), shutil.disk_usage
shutil.disk_usage = lambda path: _usage(28_000_000_000_000, 1_000_000_000, 27_999_000_000_000)
"""
"""What a process of the course sees of the disk: a P5's NVMe array, where sparse files stand in for terabytes."""


@dataclass(frozen=True)
class Road:
    """A workspace on a machine of stand-ins."""

    machine: Machine
    workspace: Path
    profile_name: str = "p5"
    hub: str = ""
    warm: str = ""
    """Where its kernels are forked; "": nowhere."""

    @property
    def release(self) -> str:
        return self.machine.release

    @property
    def folder(self) -> Path:
        return self.workspace / Path(self.profile_name).stem

    @property
    def environment(self) -> dict[str, str]:
        site = self.machine.folder / "site"
        site.mkdir(parents=True, exist_ok=True)
        (site / "sitecustomize.py").write_text(NVME, encoding="utf-8")
        own = {
            "PATH": f"{self.machine.programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join([str(site), PYTHON_PATH, str(ROOT / "tests")]),
            "HF_TOKEN": TOKEN,
            "HF_HOME": str(self.machine.folder / "hf"),
            "OMP_NUM_THREADS": "1",  # on a busy machine several wait for each other
        }
        forked = told_to_others(self.warm, site) if self.warm else {}
        return os.environ | own | forked | ({"HF_ENDPOINT": self.hub} if self.hub else {})

    def start(self, *names: str, out: Path, options: Sequence[str] = ()) -> "subprocess.Popen[str]":
        words = ["-p", f"profile={self.profile_name}", "-p", f"release={self.release}", "--out", str(out), *options]
        with interruptible():
            return subprocess.Popen(
                [sys.executable, "-m", "playbook", "run", *names, *words, "--workspace", str(self.workspace)],
                cwd=ROOT,
                env=self.environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )

    def run(self, *names: str, out: Path, options: Sequence[str] = (), limit_s: float = 1100) -> tuple[int, str]:
        with self.start(*names, out=out, options=options) as process:
            try:
                output, _ = process.communicate(timeout=limit_s)
            except BaseException:
                process.terminate()
                raise
        return process.returncode, output

    def meet(self, number: str, limit_s: float = 600) -> str:
        """What a chapter of ``SAME_EVERYWHERE`` shows of this machine's profile: its own statements for that."""
        given = f"profile, release, workspace = {self.profile_name!r}, {self.release!r}, {str(self.workspace)!r}"
        program = ["from IPython.core.interactiveshell import InteractiveShell", "import playbook", given]
        done = subprocess.run(
            [sys.executable, "-c", "\n".join([*program, "InteractiveShell.instance()", *meetings(number)])],
            cwd=ROOT / "notebooks",
            env=self.environment | {"PLAYBOOK_HEADLESS": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=limit_s,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    def walk(self, limit_s: float) -> None:
        """The road without the notebooks: a process on this machine that calls the stages, as :func:`walk` does."""
        argv = [sys.executable, __file__, "--profile", self.profile_name, "--release", self.release]
        done = subprocess.run(
            [*argv, "--walk", str(self.workspace)],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=limit_s,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]

    def commands(self) -> list[dict[str, Any]]:
        path = self.folder / "logs" / "commands.jsonl"
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def make_road(folder: Path, release: str, tiny_engine: str = "", *, native: bool = False) -> Road:
    """A workspace with the 70B model of chapter 01: true headers, sizes and index, and holes in place of weights."""
    machine = Machine(folder / "machine", release, tiny_engine).install(native=native)
    profile = load_profile("p5", release)
    workspace = stages.Workspace(folder / "workspace", profile)
    origin = workspace.origin("model", "tensorrt_llm.prepare", spec={"model": profile.model}, inputs={})
    data = shown_weights(profile.shape) if tiny_engine else {}
    artifact.make(workspace.folder("model"), origin, lambda out: write_model(out, profile.shape, MODEL_DIR, data))
    name = "p5"
    if native:
        name = str(folder / "p5.yml")
        text = (ROOT / "playbook" / "profiles" / "p5.yml").read_text(encoding="utf-8")
        Path(name).write_text(text.replace("runner: docker", "runner: native"), encoding="utf-8")
    return Road(machine, folder / "workspace", name)


def shown_weights(shape: ModelShape) -> dict[str, bytes]:
    """What chapter 02 looks at: some rows of one matrix, in bfloat16, the upper half of a float32."""
    rows = np.random.default_rng(1).normal(0, 0.02, (SHOWN_ROWS, shape.intermediate_size)).astype(np.float32)
    return {SHOWN: (rows.view(np.uint32) >> 16).astype(np.uint16).tobytes()}


# The whole course.


@dataclass(frozen=True)
class Shared:
    """What all courses use and none changes: the hub's models, the engine that answers, and run.py's answers."""

    folder: Path

    @property
    def engine(self) -> Path:
        return self.folder / "engine"

    def hub(self) -> Hub:
        return Hub({model_shape(name).hf_id: self.folder / name for name in MODELS}, TOKEN)

    def make(self) -> "Shared":
        for name in MODELS:
            (self.folder / name).mkdir(parents=True)
            write_model(self.folder / name, model_shape(name), MODEL_DIR, shown_weights(model_shape(name)))
        build_engine(MODEL_DIR, self.engine, replace(ENGINE_OPTIONS, max_batch_size=64))
        (self.folder / "answers.json").write_text(json.dumps(known_answers(self.engine)), encoding="utf-8")
        return self


def shared_by_all() -> Shared:
    return Shared(made_once("gpu-courses", lambda out: Shared(out).make()))


def known_answers(engine: Path) -> dict[str, str]:
    """The tiny engine's answers to the course's questions in chat format: what the stand-in of run.py prints."""
    prompts = chats(QUESTIONS)
    return dict(zip(prompts, generate_text(engine, prompts, 64), strict=True))


@dataclass(frozen=True)
class Course(Road):
    """A run of the chapters, finished."""

    out: Path = Path()
    status: int = 0
    output: str = ""

    def results(self) -> list[dict[str, Any]]:
        return list(json.loads((self.out / "results.json").read_text(encoding="utf-8")))


@contextmanager
def empty_machine(folder: Path, profile: str, release: str, shared: Shared) -> Iterator[Road]:
    """A machine of stand-ins with an empty workspace, while its hub answers."""
    machine = Machine(folder / "machine", release, str(shared.engine)).install()
    (machine.folder / "hub").symlink_to(shared.folder / load_profile(profile).model)
    shutil.copyfile(shared.folder / "answers.json", machine.folder / "answers.json")
    with hub_server(shared.hub()) as address:
        yield Road(machine, folder / "workspace", profile, address)


def statements(number: str) -> Iterator[ast.stmt]:
    """A chapter's, but for its parameters."""
    (path,) = (each.path for each in chapters(ROOT / "notebooks") if each.number == number)
    for cell in code_cells(path):
        if "parameters" not in cell.metadata.tags:
            yield from ast.parse(cell.source).body


def meetings(number: str) -> list[str]:
    """The statements in which a chapter meets the profile."""
    return [
        ast.unparse(statement)
        for statement in statements(number)
        if {ast.unparse(each.func) for each in ast.walk(statement) if isinstance(each, ast.Call)} & {*MEETS_PROFILE}
    ]


@contextmanager
def warm_road(road: Road, names: Sequence[str]) -> Iterator[Road]:
    """Whose kernels are forked from a process that has imported what these chapters do under the lane."""
    if not may_fork():
        yield road
        return
    elsewhere = lane_of("tensorrt_llm").KERNEL_ENVIRONMENT[ELSEWHERE].split()
    wanted = {name for chapter in chapters(ROOT / "notebooks") if chapter.number in names for name in chapter.imports}
    imports = sorted(name for name in wanted if name.partition(".")[0] not in elsewhere)
    with WarmProcess(["pandas", *imports], road.environment) as source:
        yield replace(road, warm=source.address)


def run_course(folder: Path, profile: str, release: str, shared: Shared, *names: str, limit_s: float = 1800) -> Course:
    """All chapters that ask something of the lane, or the named ones, in order, whatever fails on the way."""
    names = names or tuple(each.number for each in chapters(ROOT / "notebooks") if each.number not in SAME_EVERYWHERE)
    with empty_machine(folder, profile, release, shared) as road, warm_road(road, names) as warm:
        out = folder / "out"
        options = ["--keep-going", *short_values(names)]
        status, output = warm.run(*names, out=out, options=options, limit_s=limit_s)
    return Course(road.machine, road.workspace, profile, road.hub, out=out, status=status, output=output)


def walk_road(folder: Path, profile: str, release: str, shared: Shared, *, limit_s: float = 600) -> Road:
    """Every stage of the lane, from the hub to an answer of the server; no notebook."""
    with empty_machine(folder, profile, release, shared) as road:
        road.walk(limit_s)
    return road


def walk(workspace: stages.Workspace) -> None:
    """What the chapters ask of the lane, in their order and with their values, so that they find it up to date."""
    model = stages.prepare(workspace)
    reference(workspace, model, prompts=[[1, 2, 3]], texts=[[1, 2, 3, 4]], max_new_tokens=4)
    engine = stages.build(workspace, stages.quantize(workspace))
    stages.summarize(workspace, engine)
    (prompt,) = chats(QUESTIONS[:1])
    (answer,) = stages.generate(workspace, engine, [prompt], max_new_tokens=64)
    assert "".join(stages.stream(workspace, engine, prompt, max_new_tokens=64)).strip() == answer.strip()
    repository = stages.write_repository(workspace, engine, add_special_tokens=False)
    served: Any = stages.serve(workspace, repository)
    with served as server:
        body = {"text_input": prompt, "max_tokens": 64, "end_id": END_ID, "pad_id": END_ID}
        served = httpx.post(f"{server.http_url}/v2/models/ensemble/generate", json=body, timeout=60, trust_env=False)
    assert "deux" in served.json()["text_output"].lower(), served.text


def chats(questions: Iterable[str]) -> list[str]:
    """The questions in the model's chat format."""
    codec = TextCodec.load(MODEL_DIR)
    return [codec.render_chat([{"role": "user", "content": question}]) for question in questions]


def short_values(names: Sequence[str]) -> list[str]:
    """``SHORT`` as options, as far as one of the chapters knows the parameter; the others would be refused."""
    chosen = [chapter for chapter in chapters(ROOT / "notebooks") if chapter.number in names]
    known = {parameter.name for chapter in chosen for parameter in parameters(read(chapter.path))}
    return [word for name, value in SHORT.items() if name in known for word in ("-p", f"{name}={value}")]


# The table.


@dataclass(frozen=True)
class Row:
    """One chapter of one course. ``silent``: ids of code cells without an output that the embedded lane's have."""

    chapter: str
    status: str
    cells: int
    ran: int
    silent: Sequence[str] = field(default=())
    seconds: float = 0.0
    reason: str = ""


def rows_of(results: Iterable[Mapping[str, Any]], out: Path) -> list[Row]:
    return [row_of(result, out) for result in results]


def row_of(result: Mapping[str, Any], out: Path) -> Row:
    end = result["skipped"] or result["failure"] or {}
    reason = " ".join(str(end.get("what", "")).split())[:160]
    stored = {chapter.name: chapter.path for chapter in chapters(ROOT / "notebooks")}
    shown = {cell.id for cell in code_cells(stored[result["chapter"]]) if cell.outputs}
    if not result["notebook"]:
        return Row(result["chapter"], result["status"], len(shown), 0, (), result["seconds"], reason)
    executed = [
        cell for cell in code_cells(out / result["notebook"]) if "injected-parameters" not in cell.metadata.tags
    ]
    ran = [cell for cell in executed if cell.execution_count]
    silent = tuple(cell.id for cell in ran if cell.id in shown and not cell.outputs)
    return Row(result["chapter"], result["status"], len(executed), len(ran), silent, result["seconds"], reason)


def code_cells(path: Path) -> list[Any]:
    found = [cell for cell in read(path).cells if cell.cell_type == "code"]
    for cell in found:
        cell.metadata.setdefault("tags", [])
    return found


def markdown(title: str, rows: Iterable[Row]) -> str:
    lines = [f"### {title}", "", "| chapter | status | cells run | silent | s | |", "|---|---|---|---|---|---|"]
    for row in rows:
        silent = f"{len(row.silent)}: {', '.join(row.silent)}" if row.silent else "0"
        cells = f"{row.ran} of {row.cells}"
        lines.append(f"| {row.chapter} | {row.status} | {cells} | {silent} | {row.seconds:.0f} | {row.reason} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("chapters", nargs="*")
    parser.add_argument("--profile", choices=PROFILES, default="p5")
    parser.add_argument("--release", default="0.12.0")
    parser.add_argument("--out", type=Path, default=None, help="an empty folder; a new one under /tmp by default")
    parser.add_argument("--walk", type=Path, help="a workspace: walk its road on the machine that PATH holds")
    given = parser.parse_args()
    if given.walk:
        walk(stages.Workspace(given.walk, load_profile(given.profile, given.release)))
        return
    folder = given.out or Path(tempfile.mkdtemp(prefix="gpu-course-"))
    shared = Shared(folder / "shared").make()
    course = run_course(folder / "course", given.profile, given.release, shared, *given.chapters)
    print(course.output)
    print(markdown(f"{given.profile}, {given.release}", rows_of(course.results(), course.out)))
    print(f"executed notebooks: {course.out}")


if __name__ == "__main__":
    main()
