"""The road of the GPU lane under another profile and release, with stand-ins for the machine's programs.

Every stage of the lane runs, without notebooks, in the corner that shares neither profile nor release with the course
of test_gpu_course.py. Then the chapters that the release changes most meet what it made; and some stages and chapters
fail. tests/lane/test_gpu_lane.py walks the road of p5 and 1.2.1, but for the server.
"""

import json
import signal
import time
from pathlib import Path

import pytest

from gpu_courses import FAR_CORNER, Road, make_road, shared_by_all, walk_road
from playbook import stages
from playbook.profile import load_profile
from road_checks import RoadChecks, option
from serving_base.errors import CommandFailed

pytestmark = [pytest.mark.server, pytest.mark.slow]


@pytest.fixture(scope="module")
def far_corner(tmp_path_factory: pytest.TempPathFactory, network: None) -> Road:
    return walk_road(tmp_path_factory.mktemp("corner"), *FAR_CORNER, shared_by_all())


class TestRoad(RoadChecks):
    @pytest.fixture
    def road(self, far_corner: Road) -> Road:
        return far_corner


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
