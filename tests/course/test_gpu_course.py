"""The course and its road under the GPU profiles, with stand-ins for the machine's programs.

The chapters, the lane, the recipes and Triton are the real ones; the tools of TensorRT-LLM and the GPUs are not, and a
tiny engine answers in place of the 70B one (docs/stand-ins.md). All chapters run once, under one profile and release,
headless and in order. Under the others every stage of the lane runs, without notebooks: one process each. Then the
chapters that the release changes most meet what those made, in the corner that shares neither profile nor release.
"""

import json
import re
import signal
import time
from itertools import pairwise
from pathlib import Path

import pytest

from cpu_serving.checkpoint import checkpoint_tensors
from gpu_courses import (
    FAR_CORNER,
    ROADS,
    TOKEN,
    WHOLE,
    Course,
    Road,
    Shared,
    make_road,
    markdown,
    rows_of,
    run_course,
    walk_road,
)
from model_server.triton.repository import check_repository
from playbook import stages
from playbook.course.notebooks import chapters
from playbook.course.notebooks import read as read_notebook
from playbook.panel import ALREADY, NOT_HERE, YOURS
from playbook.profile import load_profile
from serving_base.errors import CommandFailed
from stand_in_docker import docker_parser
from trtllm_check.releases import build_parser, load_release

LIMIT_S = 3600
"""Of one course of eleven chapters: six minutes on a quiet machine."""
pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(LIMIT_S + 60)]
ROAD = ("quantize.py", "trtllm-build", "run.py", "fill_template.py", "launch_triton_server.py")
NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
MOST_SILENT = 9
SILENT = {
    "02": {"02-25": "A model of this size is not computed twice in this process."},
    "04": {"04-bf16-b": "On another lane this cell stays silent, because no second engine is built for it there."},
    "07": dict.fromkeys(("07-37", "07-38", "07-58", "07-59"), "On a real account these two cells stay silent"),
    "08": {"08-lb-e": "A release whose backend counts no tokens leaves that check silent."},
    "15": dict.fromkeys(("15-31", "15-34"), "On a paid account this part is skipped"),
}
"""Chapter -> code cell that is silent under a GPU profile -> the sentence of the chapter that says why."""
CHAPTERS = [item.number for item in chapters(NOTEBOOKS)]
ENDS = dict.fromkeys(CHAPTERS, "ok") | {"07": "skipped"}
"""Chapter 07 asks what it may cost, and a headless run has no answer."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Shared:
    return Shared(tmp_path_factory.mktemp("shared") / "all").make()


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory, shared: Shared) -> Course:
    profile, release = WHOLE
    done = run_course(tmp_path_factory.mktemp("course"), profile, release, shared, limit_s=LIMIT_S)
    print(markdown(f"{profile}, {release}", rows_of(done.results(), done.out)))
    return done


@pytest.fixture(scope="module")
def far_corner(tmp_path_factory: pytest.TempPathFactory, shared: Shared) -> Road:
    return walk_road(tmp_path_factory.mktemp("corner"), *FAR_CORNER, shared)


@pytest.fixture(scope="module", params=ROADS, ids="-".join)
def road(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, shared: Shared) -> Road:
    """One road after the other: ranks are waited for by name, and imitated containers see each other's."""
    name = {WHOLE: "course", FAR_CORNER: "far_corner"}.get(request.param, "")
    if name:
        found: Road = request.getfixturevalue(name)
        return found
    profile, release = request.param
    return walk_road(tmp_path_factory.mktemp("road"), profile, release, shared)


def option(argv: list[str], name: str) -> list[str]:
    """Every value of an option that may be repeated."""
    return [value for flag, value in pairwise(argv) if flag == name]


@pytest.mark.parametrize("number", CHAPTERS)
def test_a_chapter_runs_to_its_end(course: Course, number: str) -> None:
    (result,) = (each for each in course.results() if each["chapter"].startswith(number))
    assert result["status"] == ENDS[number], result["failure"]


def test_the_course_is_no_failure_when_nobody_consents_to_a_price(course: Course) -> None:
    assert course.status == 0, course.output[-3000:]
    (skipped,) = (each["skipped"] for each in course.results() if each["status"] == "skipped")
    assert re.search(r"\d USD", skipped["what"])
    assert f"skipped: {skipped['what'].splitlines()[0]}" in course.output


def test_the_report_names_the_release_and_not_the_token(course: Course) -> None:
    page = (course.out / "report.html").read_text(encoding="utf-8")
    assert course.release in page
    for path in [*course.out.iterdir(), *(course.folder / "logs").iterdir()]:
        assert TOKEN.encode() not in (path.read_bytes() if path.is_file() else b"")


def test_few_cells_are_silent_and_each_has_its_reason_on_the_page(course: Course) -> None:
    rows = rows_of(course.results(), course.out)
    silent = {(row.chapter[:2], cell) for row in rows for cell in row.silent}
    assert len(silent) <= MOST_SILENT
    assert {key for key in silent if not is_said(*key)} == set()


@pytest.mark.parametrize(("name", "title"), [("00-preflight", YOURS), ("01-llama3-setup", ALREADY)])
def test_a_panel_says_whether_its_commands_ran(course: Course, name: str, title: str) -> None:
    cells = read_notebook(course.out / f"{name}.ipynb").cells
    shown = str([cell.outputs for cell in cells if cell.cell_type == "code"])
    assert title in shown
    assert ({YOURS, ALREADY, NOT_HERE} - {title}) & {
        each for each in (YOURS, ALREADY, NOT_HERE) if each in shown
    } == set()


def test_the_reference_is_that_of_the_container(road: Road) -> None:
    (call,) = road.machine.calls("reference_run.py")
    assert call["place"] == load_release(road.release).image
    assert (road.folder / "reference" / "manifest.json").is_file()


def test_the_checkpoint_has_the_models_ranks_shapes_and_bytes(road: Road) -> None:
    profile = load_profile(road.profile_name, road.release)
    last = f"rank{profile.world_size - 1}.safetensors"
    shapes = {t.name: (t.dtype, t.shape) for t in checkpoint_tensors(road.folder / "checkpoint") if t.file == last}
    expected = {"p5": ("transformer.layers.79", (1280, 8192)), "p5-8b": ("transformer.layers.31", (6144, 4096))}
    layer, qkv = expected[road.profile_name]
    assert shapes[f"{layer}.attention.qkv.weight"] == ("F8_E4M3", qkv)
    sizes = [path.stat().st_size for path in (road.folder / "checkpoint").glob("rank*.safetensors")]
    assert len(sizes) == profile.world_size
    assert sum(sizes) == pytest.approx(profile.shape.weight_bytes("fp8"), rel=0.01)


def test_the_containers_get_what_they_need(road: Road) -> None:
    runs = [call["argv"] for call in road.machine.calls("docker") if call["argv"][0] == "run"]
    image = load_release(road.release).image
    assert len(runs) >= 8
    for argv in runs:
        given = docker_parser().parse_args(argv[1:])
        assert given.image == image
        assert (given.rm, given.init, given.gpus, given.shm_size) == (True, True, "all", "20g")
        assert given.ulimit == ["memlock=-1", "stack=67108864"]
        assert given.volume == [f"{road.workspace}:{road.workspace}"]
        assert re.fullmatch(r"playbook-[\w-]+-[0-9a-f]{12}", given.name)
    assert len({option(argv, "--name")[0] for argv in runs}) == len(runs)


def test_every_tool_was_called_as_its_parser_wants(road: Road) -> None:
    """The stand-ins refuse what the parser refuses; this says that each tool did run, and in the container."""
    release = load_release(road.release)
    calls = [call for call in road.machine.calls() if call["program"] in release.tools]
    order = [name for name in dict.fromkeys(call["program"] for call in calls) if name in ROAD]
    assert order == list(ROAD)
    for call in calls:
        build_parser(release, call["program"]).parse_args(call["argv"])
        assert call["place"] in (release.image, release.server_image)
        assert not call["token"]  # nothing but the download needs the hub's token
    (download,) = road.machine.calls(release.download.argv[0])
    assert download["token"]
    ranks = load_profile(road.profile_name).world_size
    asked = [call["argv"] for call in road.machine.calls("mpirun") if "/run.py" in " ".join(call["argv"])]
    assert bool(asked) == (ranks > 1)
    assert all(argv[:3] == ["--allow-run-as-root", "-n", str(ranks)] for argv in asked)
    servers = [call["argv"] for call in road.machine.calls("mpirun") if "tritonserver" in " ".join(call["argv"])]
    assert servers
    assert all(sum(word.endswith("/tritonserver") for word in argv) == ranks for argv in servers)


def test_scripts_come_from_clones_at_the_tag_where_the_container_lacks_them(road: Road) -> None:
    release = load_release(road.release)
    clones = road.machine.calls("git")
    lacking = {tool.repo for tool in release.tools.values() if tool.repo and not tool.container_path}
    assert {option(call["argv"], "--branch")[0] for call in clones} == {release.checkouts[n].tag for n in lacking}
    assert len(clones) == len(lacking)
    assert all(call["skip_lfs"] == "1" for call in clones)


def test_the_repository_is_filled_and_valid(road: Road) -> None:
    repository = road.folder / "repository"
    findings = check_repository(repository)
    assert [finding for finding in findings if finding.severity == "error"] == []
    config = (repository / "tensorrt_llm" / "config.pbtxt").read_text(encoding="utf-8")
    assert f'string_value: "{road.folder}/engine"' in config
    assert f"max_batch_size: {load_profile(road.profile_name).max_batch_size}" in config
    preprocessing = (repository / "preprocessing" / "config.pbtxt").read_text(encoding="utf-8")
    assert f'string_value: "{road.folder}/model"' in preprocessing


def test_the_record_says_what_ran_and_how_it_ended(road: Road) -> None:
    logs = road.folder / "logs"
    record = road.commands()
    stages_run = list(dict.fromkeys(entry["stage"] for entry in record))
    in_order = ["fetch", "quantize", "build", "run", "fill", "launch"]
    assert [stage for stage in stages_run if stage in in_order] == in_order
    for entry in record:
        assert entry["seconds"] > 0
        assert (logs / entry["log"]).is_file()
        assert entry["argv"][0] == ("git" if entry["stage"] == "install" else "docker")
    docker = [["docker", *call["argv"]] for call in road.machine.calls("docker") if call["argv"][0] == "run"]
    assert [entry["argv"] for entry in record if entry["argv"][0] == "docker"] == docker
    assert TOKEN not in (logs / "commands.jsonl").read_text(encoding="utf-8")


def test_the_log_of_the_build_is_streamed_into_the_notebook(course: Course) -> None:
    notebook = (course.out / "03-engine-build.ipynb").read_text(encoding="utf-8")
    assert "Serializing engine to" in notebook
    assert "trtllm-build: exit code 0 after" in notebook
    assert "Serializing engine to" in (course.folder / "logs" / "build-0-trtllm-build.log").read_text(encoding="utf-8")


def test_the_server_is_gone(road: Road) -> None:
    """Its container got a signal, and its client was not left to be killed."""
    launch = next(entry for entry in road.commands() if entry["stage"] == "launch")  # chapter 05's: nobody kills it
    name = option(launch["argv"], "--name")[0]
    assert {"signal", "docker"} <= {c["program"] for c in road.machine.calls() if name in (c.get("name"), *c["argv"])}
    alive = [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(road.workspace).encode() in read(path)]
    assert alive == []


def is_said(number: str, cell: str) -> bool:
    """Whether the reason that the data gives for this silent cell stands on the chapter's page."""
    (chapter,) = (each for each in chapters(NOTEBOOKS) if each.number == number)
    page = " ".join(" ".join(each.source.split()) for each in read_notebook(chapter.path).cells)
    reason = SILENT.get(number, {}).get(cell, "")
    return bool(reason) and reason in page


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_the_chapters_go_on_from_a_road_that_was_walked(far_corner: Road, tmp_path: Path) -> None:
    """What is there is not made again; scores are no artifact: they are measured anew."""
    before = len(far_corner.machine.calls())
    status, output = far_corner.run("03", "05", out=tmp_path / "out")
    assert status == 0, output
    again = {call["program"] for call in far_corner.machine.calls()[before:]}
    assert {"summarize.py", "launch_triton_server.py"} <= again
    assert again & {"hf", "huggingface-cli", "quantize.py", "trtllm-build", "fill_template.py", "git"} == set()
    assert "engine: up to date" in (tmp_path / "out" / "03-engine-build.ipynb").read_text(encoding="utf-8")
    for name in ("03-engine-build", "05-triton-serving"):
        assert far_corner.release in (tmp_path / "out" / f"{name}.ipynb").read_text(encoding="utf-8"), name


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


def test_a_failing_tool_fails_the_chapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Natively: the same chapter without docker. The next run goes on as the stage does, above."""
    road, _ = ready_to_build(tmp_path, monkeypatch, native=True)
    road.machine.fail("trtllm-build", "torch.OutOfMemoryError: CUDA out of memory.")
    status, output = road.run("03", "09", out=tmp_path / "failed")
    assert status == 1
    assert "trtllm-build ended with exit code 1 (stage build): gpu-memory" in output
    assert "smaller max_num_tokens" in output
    results = json.loads((tmp_path / "failed" / "results.json").read_text(encoding="utf-8"))
    assert [item["status"] for item in results] == ["failed", "not run"]
    assert not (road.folder / "engine").exists()
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
    output, _ = process.communicate(timeout=180)
    assert process.returncode == 130, output
    assert not Path("/proc", str(call["pid"])).exists()
    (name,) = option(road.machine.calls("docker")[1]["argv"], "--name")
    assert next(note["argv"] for note in road.machine.calls("signal") if note["name"] == name) == ["SIGINT"]
    assert not (road.folder / "engine").exists()
