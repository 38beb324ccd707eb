"""The lanes behind one door: what ships is whole, and a third one is taken without a change to a chapter."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import toy_lane
from checkout import PYTHON_PATH, ROOT
from playbook import stages
from playbook.chapter import ABILITIES_FILE, start
from playbook.lanes.base import REQUIRED, SHIPPED, ability, lane_of
from playbook.profile import load_profile
from serving_base.errors import UsageError
from serving_base.yaml_files import read_yaml

TOY = "lane: toy_lane\nmodel: tiny\nmax_input_len: 32\nmax_seq_len: 64\n"


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    """The profile of the toy lane, as a user writes one."""
    path = tmp_path / "toy.yml"
    path.write_text(TOY, encoding="utf-8")
    return path


def test_an_ability_is_known_and_some_lane_has_it() -> None:
    known = set(read_yaml(ABILITIES_FILE))
    had = [lane_of(name).CAN for name in SHIPPED]
    assert set().union(*had) == known


def test_an_ability_that_is_a_function_is_there_where_it_is_promised() -> None:
    for name in ("summarize", "preview"):
        for lane in SHIPPED:
            assert hasattr(lane_of(lane), name) is (name in lane_of(lane).CAN)


def test_the_toy_lane_lacks_nothing_and_is_small() -> None:
    assert lane_of("toy_lane") is toy_lane
    assert len((ROOT / "tests" / "toy_lane.py").read_text(encoding="utf-8").splitlines()) <= 100


def test_a_name_that_is_no_lane_is_refused_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="no lane 'triton'") as caught:
        lane_of("triton")
    assert "embedded or tensorrt_llm" in caught.value.fix
    (tmp_path / "half_a_lane.py").write_text("CAN = frozenset()\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match="half_a_lane is no lane") as caught:
        lane_of("half_a_lane")
    assert all(name in caught.value.why for name in REQUIRED if name != "CAN")


def test_a_lane_without_an_ability_says_so() -> None:
    with pytest.raises(UsageError, match="the embedded lane cannot summarize"):
        ability("embedded", "summarize")


def test_all_stages_go_through_a_third_lane(toy: Path, tmp_path: Path) -> None:
    workspace = stages.Workspace(tmp_path / "workspace", load_profile(str(toy)))
    stages.prepare(workspace)
    checkpoint = stages.quantize(workspace)
    engine = stages.build(workspace, checkpoint, max_input_len=3)
    assert json.loads((engine.path / "config.json").read_text(encoding="utf-8")) == {"max_input_len": 3}
    assert stages.generate(workspace, engine, ["a b c", "d"], max_new_tokens=2) == ["c b", "d"]
    assert stages.stream(workspace, engine, "a b c", max_new_tokens=2) == ["c", "b"]
    assert len(stages.compare_batching(workspace, engine, "a", [2, 3], slots=1)["static"]) == 5
    repository = stages.write_repository(workspace, engine)
    served: Any = stages.serve(workspace, repository)
    assert served.repository == repository.path
    assert repository.manifest.origin.made_by == "toy_lane.write_repository"
    with pytest.raises(UsageError, match="writes no unified"):
        stages.quantize(workspace, layout="hf")
    assert stages.build(workspace, checkpoint, max_input_len=3).up_to_date


def test_a_chapter_asks_the_third_lane_what_it_can(toy: Path, tmp_path: Path) -> None:
    lab = start("04", profile=str(toy), workspace=str(tmp_path))
    assert lab.can("repeat") and not lab.can("stream")


@pytest.mark.slow
def test_chapters_run_on_a_third_lane_as_they_are(toy: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    argv = [sys.executable, "-m", "playbook", "run", "00", "01", "-p", f"profile={toy}", "--out", str(out)]
    env = os.environ | {"PYTHONPATH": os.pathsep.join([PYTHON_PATH, str(ROOT / "tests")])}
    done = subprocess.run(
        [*argv, "--workspace", str(tmp_path / "workspace")], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((out / "results.json").read_text(encoding="utf-8"))
    assert [result["status"] for result in results] == ["ok", "ok"]
    assert (tmp_path / "workspace" / "toy" / "reference" / "result.json").is_file()
