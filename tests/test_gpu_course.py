"""Chapters 02 to 05 under profile p5 with stand-ins for the machine's programs: from quantize to a served repository.

The chapters, the lane, the recipes and Triton are the real ones; the tools of TensorRT-LLM and the GPUs are not, and a
tiny engine answers in place of the 70B one. One run per release, on which the tests below look.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serving import ENGINE_OPTIONS
from sparse_models import write_model
from stand_ins import Machine, docker_parser

from playbook import artifact, stages
from playbook.errors import CommandFailed
from playbook.lanes.embedded.build import build_engine
from playbook.lanes.embedded.checkpoint import checkpoint_tensors
from playbook.lanes.embedded.generate import generate_text
from playbook.lanes.embedded.triton.check import check_repository
from playbook.profile import load_profile
from playbook.releases import build_parser, load_release
from playbook.tiny import MODEL_DIR

pytestmark = [pytest.mark.server, pytest.mark.slow]
ROOT = Path(__file__).parents[1]
TOKEN = "hf_verysecrettoken"
RELEASES = ("0.12.0", "1.2.1")
CHAPTERS = ("02", "03", "04", "05")
WEIGHT = "model.layers.0.mlp.down_proj.weight"
QUESTIONS = ["How do I count to nine in French?"] + [
    f"Count to {number} in {language}."
    for number in ("four", "seven", "ten")
    for language in ("French", "German", "Italian", "Dutch")
]


@dataclass(frozen=True)
class Road:
    """A workspace whose model is there, on a machine of stand-ins."""

    machine: Machine
    workspace: Path
    profile_name: str = "p5"

    @property
    def release(self) -> str:
        return self.machine.release

    @property
    def folder(self) -> Path:
        return self.workspace / "p5"

    @property
    def environment(self) -> dict[str, str]:
        path = f"{self.machine.programs}{os.pathsep}{os.environ['PATH']}"
        # one thread: on a busy machine several wait for each other
        return os.environ | {"PATH": path, "PYTHONPATH": str(ROOT), "HF_TOKEN": TOKEN, "OMP_NUM_THREADS": "1"}

    def start(self, *chapters: str, out: Path) -> "subprocess.Popen[str]":
        options = ["-p", f"profile={self.profile_name}", "-p", f"release={self.release}", "--out", str(out)]
        return subprocess.Popen(
            [sys.executable, "-m", "playbook", "run", *chapters, *options, "--workspace", str(self.workspace)],
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )

    def run(self, *chapters: str, out: Path) -> tuple[int, str]:
        with self.start(*chapters, out=out) as process:
            try:
                output, _ = process.communicate(timeout=500)
            except BaseException:
                process.terminate()
                raise
        return process.returncode, output

    def commands(self) -> list[dict[str, Any]]:
        path = self.folder / "logs" / "commands.jsonl"
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def make_road(folder: Path, release: str, tiny_engine: str = "", *, native: bool = False) -> Road:
    """A workspace with the 70B model of chapter 01: true headers, sizes and index, and holes in place of weights."""
    machine = Machine(folder / "machine", release, tiny_engine).install(native=native)
    profile = load_profile("p5", release)
    workspace = stages.Workspace(folder / "workspace", profile)
    origin = workspace.origin("model", "tensorrt_llm.prepare", spec={"model": profile.model}, inputs={})
    weights = {WEIGHT: shown_rows(profile.shape.intermediate_size)} if tiny_engine else {}
    artifact.make(workspace.folder("model"), origin, lambda out: write_model(out, profile.shape, MODEL_DIR, weights))
    name = "p5"
    if native:
        name = str(folder / "p5.yml")
        text = (ROOT / "playbook" / "profiles" / "p5.yml").read_text(encoding="utf-8")
        Path(name).write_text(text.replace("runner: docker", "runner: native"), encoding="utf-8")
    return Road(machine, folder / "workspace", name)


def shown_rows(columns: int) -> bytes:
    """What chapter 02 looks at: 256 rows of one matrix, in bfloat16, the upper half of a float32."""
    rows = np.random.default_rng(1).normal(0, 0.02, (256, columns)).astype(np.float32)
    return (rows.view(np.uint32) >> 16).astype(np.uint16).tobytes()


@pytest.fixture(scope="module")
def tiny_engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny") / "engine"
    build_engine(MODEL_DIR, folder, replace(ENGINE_OPTIONS, max_batch_size=64))
    return folder


@pytest.fixture(scope="module")
def answers(tiny_engine: Path) -> dict[str, str]:
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast.from_pretrained(MODEL_DIR)
    prompts = [
        tokenizer.apply_chat_template([{"role": "user", "content": q}], add_generation_prompt=True, tokenize=False)
        for q in QUESTIONS
    ]
    return dict(zip(prompts, generate_text(tiny_engine, prompts, 64), strict=True))


@dataclass(frozen=True)
class Course(Road):
    """A finished run of chapters 02 to 05."""

    out: Path = Path()
    status: int = 0
    output: str = ""


@pytest.fixture(scope="module", params=RELEASES)
def course(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    tiny_engine: Path,
    answers: dict[str, str],
) -> Course:
    """One release after the other: ranks are waited for by name, and imitated containers see each other's."""
    folder, release = tmp_path_factory.mktemp("course"), request.param
    road = make_road(folder, release, str(tiny_engine))
    (road.machine.folder / "answers.json").write_text(json.dumps(answers), encoding="utf-8")
    status, output = road.run(*CHAPTERS, out=folder / "out")
    return Course(road.machine, road.workspace, out=folder / "out", status=status, output=output)


def option(argv: list[str], name: str) -> list[str]:
    """Every value of an option that may be repeated."""
    return [value for flag, value in pairwise(argv) if flag == name]


def test_every_chapter_passes(course: Course) -> None:
    assert course.status == 0, course.output
    results = json.loads((course.out / "results.json").read_text(encoding="utf-8"))
    assert [item["status"] for item in results] == ["ok"] * 4
    found = {item["name"]: item["value"] for each in results for item in each["key_results"]}
    assert found == {"fp8_checkpoint_over_bf16": 0.52, "exact_answers_over_grpc": 64}
    page = (course.out / "report.html").read_text(encoding="utf-8")
    assert f"TensorRT-LLM {course.release}" in page or course.release in page
    assert TOKEN not in page


def test_the_checkpoint_is_that_of_70b_in_eight_ranks(course: Course) -> None:
    tensors = [t for t in checkpoint_tensors(course.folder / "checkpoint") if t.file == "rank7.safetensors"]
    shapes = {t.name: (t.dtype, t.shape) for t in tensors}
    assert shapes["transformer.layers.79.attention.qkv.weight"] == ("F8_E4M3", (1280, 8192))
    sizes = [path.stat().st_size for path in (course.folder / "checkpoint").glob("rank*.safetensors")]
    assert len(sizes) == 8
    assert sum(sizes) == pytest.approx(load_profile("p5").shape.weight_bytes("fp8"), rel=0.01)


def test_the_containers_get_what_they_need(course: Course) -> None:
    runs = [call["argv"] for call in course.machine.calls("docker") if call["argv"][0] == "run"]
    image = load_release(course.release).image
    assert len(runs) >= 8
    for argv in runs:
        given = docker_parser().parse_args(argv[1:])
        assert given.image == image
        assert (given.rm, given.init, given.gpus, given.shm_size) == (True, True, "all", "20g")
        assert given.ulimit == ["memlock=-1", "stack=67108864"]
        assert given.volume == [f"{course.workspace}:{course.workspace}"]
        assert re.fullmatch(r"playbook-\w+-[0-9a-f]{12}", given.name)
    assert len({option(argv, "--name")[0] for argv in runs}) == len(runs)


def test_every_tool_was_called_as_its_parser_wants(course: Course) -> None:
    """The stand-ins refuse what the parser refuses; this says that each tool did run, and in the container."""
    release = load_release(course.release)
    calls = [call for call in course.machine.calls() if call["program"] in release.tools]
    names = [call["program"] for call in calls]
    order = list(dict.fromkeys(names))
    assert order == ["quantize.py", "trtllm-build", "run.py", "fill_template.py", "launch_triton_server.py"]
    for call in calls:
        build_parser(release, call["program"]).parse_args(call["argv"])
        assert call["place"] == release.image
        assert not call["token"]  # nothing of this road needs the hub's token
    mpirun = course.machine.calls("mpirun")
    assert [call["argv"][:3] for call in mpirun[:2]] == [["--allow-run-as-root", "-n", "8"]] * 2
    assert sum(word.endswith("/tritonserver") for word in mpirun[-1]["argv"]) == 8


def test_scripts_come_from_clones_at_the_tag_where_the_container_lacks_them(course: Course) -> None:
    release = load_release(course.release)
    clones = course.machine.calls("git")
    lacking = {tool.repo for tool in release.tools.values() if tool.repo and not tool.container_path}
    assert {option(call["argv"], "--branch")[0] for call in clones} == {release.checkouts[n].tag for n in lacking}
    assert len(clones) == len(lacking)
    assert all(call["skip_lfs"] == "1" for call in clones)


def test_the_repository_is_filled_and_valid(course: Course) -> None:
    repository = course.folder / "repository"
    findings = check_repository(repository)
    assert [finding for finding in findings if finding.severity == "error"] == []
    config = (repository / "tensorrt_llm" / "config.pbtxt").read_text(encoding="utf-8")
    assert f'string_value: "{course.folder}/engine"' in config
    assert "max_batch_size: 64" in config
    preprocessing = (repository / "preprocessing" / "config.pbtxt").read_text(encoding="utf-8")
    assert f'string_value: "{course.folder}/model"' in preprocessing


def test_the_record_says_what_ran_and_how_it_ended(course: Course) -> None:
    logs = course.folder / "logs"
    record = course.commands()
    stages_run = list(dict.fromkeys(entry["stage"] for entry in record))
    assert [stage for stage in stages_run if stage != "install"] == ["quantize", "build", "run", "fill", "launch"]
    for entry in record:
        assert entry["seconds"] > 0
        assert entry["exit_code"] == 0
        assert (logs / entry["log"]).is_file()
        assert entry["argv"][0] == ("git" if entry["stage"] == "install" else "docker")
    docker = [["docker", *call["argv"]] for call in course.machine.calls("docker") if call["argv"][0] == "run"]
    assert [entry["argv"] for entry in record if entry["argv"][0] == "docker"] == docker
    assert TOKEN not in (logs / "commands.jsonl").read_text(encoding="utf-8")


def test_the_log_of_the_build_is_streamed_into_the_notebook(course: Course) -> None:
    notebook = (course.out / "03-engine-build.ipynb").read_text(encoding="utf-8")
    assert "Serializing engine to" in notebook
    assert "trtllm-build: exit code 0 after" in notebook
    assert "Serializing engine to" in (course.folder / "logs" / "build-0-trtllm-build.log").read_text(encoding="utf-8")


def test_the_server_is_gone(course: Course) -> None:
    """Its container got a signal, and its client was not left to be killed."""
    launch = course.commands()[-1]
    name = option(launch["argv"], "--name")[0]
    assert {"signal", "docker"} <= {c["program"] for c in course.machine.calls() if name in (c.get("name"), *c["argv"])}
    alive = [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(course.workspace).encode() in read(path)]
    assert alive == []


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_a_second_run_makes_nothing_again(course: Course, tmp_path: Path) -> None:
    before = len(course.machine.calls())
    status, output = course.run("02", "03", out=tmp_path / "out")
    assert status == 0, output
    assert len(course.machine.calls()) == before
    assert "engine: up to date" in (tmp_path / "out" / "03-engine-build.ipynb").read_text(encoding="utf-8")


# Failures.


def ready_to_build(folder: Path, monkeypatch: pytest.MonkeyPatch, *, native: bool) -> tuple[Road, stages.Workspace]:
    """The checkpoint is there, the engine is next."""
    road = make_road(folder, "1.2.1", native=native)
    monkeypatch.setenv("PATH", road.environment["PATH"])
    workspace = stages.Workspace(road.workspace, load_profile(road.profile_name, road.release))
    stages.quantize(workspace)
    return road, workspace


@pytest.mark.parametrize(
    ("output", "code", "native", "rule", "fix"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory.", 1, False, "gpu-memory", "max_num_tokens"),
        ("[TRT] Version tag does not match.", 1, False, "version-mismatch", "same container"),
        ("Loading weights", 137, False, "killed", "dmesg"),
        ("Loading weights", 137, True, "killed", "dmesg"),
        ("a cosmic ray", 3, True, "", "read the whole output in"),
    ],
)
def test_a_failed_stage_names_the_fix_and_leaves_nothing_half_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, code: int, native: bool, rule: str, fix: str
) -> None:
    road, workspace = ready_to_build(tmp_path, monkeypatch, native=native)
    checkpoint = stages.require(workspace, "checkpoint")
    road.machine.fail("trtllm-build", output, code)
    with pytest.raises(CommandFailed) as caught:
        stages.build(workspace, checkpoint)
    assert caught.value.what.startswith(f"trtllm-build ended with exit code {code} (stage build)")
    assert caught.value.what.endswith(rule)
    assert fix in caught.value.fix
    assert output in caught.value.why
    assert not workspace.folder("engine").exists()
    assert not list((road.folder / ".making").glob("engine/*"))
    assert (road.commands()[-1]["tool"], road.commands()[-1]["exit_code"]) == ("trtllm-build", code)
    road.machine.mend()
    assert not stages.build(workspace, checkpoint).up_to_date
    assert bool(road.machine.calls("docker")) is not native


def test_a_failing_tool_fails_the_chapter_and_the_next_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Natively: the same chapter without docker."""
    road, _ = ready_to_build(tmp_path, monkeypatch, native=True)
    road.machine.fail("trtllm-build", "torch.OutOfMemoryError: CUDA out of memory.")
    status, output = road.run("03", "04", out=tmp_path / "failed")
    assert status == 1
    assert "trtllm-build ended with exit code 1 (stage build): gpu-memory" in output
    assert "smaller max_num_tokens" in output
    results = json.loads((tmp_path / "failed" / "results.json").read_text(encoding="utf-8"))
    assert [item["status"] for item in results] == ["failed", "not run"]
    assert not (road.folder / "engine").exists()

    road.machine.mend()
    status, output = road.run("03", out=tmp_path / "mended")
    assert status == 0, output
    assert len(road.machine.calls("quantize.py")) == 1
    assert road.machine.calls("docker") == []


def test_an_interrupted_chapter_ends_the_tool_and_its_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    road, _ = ready_to_build(tmp_path, monkeypatch, native=False)
    road.machine.fail("trtllm-build", "working", hang=True)
    process = road.start("03", out=tmp_path / "out")
    deadline = time.monotonic() + 120
    while not road.machine.calls("trtllm-build") and time.monotonic() < deadline:
        time.sleep(0.1)
    (call,) = road.machine.calls("trtllm-build")
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert not Path("/proc", str(call["pid"])).exists()
    (name,) = option(road.machine.calls("docker")[1]["argv"], "--name")
    assert next(note["argv"] for note in road.machine.calls("signal") if note["name"] == name) == ["SIGINT"]
    assert not (road.folder / "engine").exists()
