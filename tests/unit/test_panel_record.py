"""What the panel takes from the record of a workspace in which another release ran before."""

import json
from pathlib import Path

from gpu_serving.execute import RECORD
from playbook.panel import panel_markdown, recorded_words
from playbook.profile import load_profile
from trtllm_check.releases import load_release


def record(folder: Path, *lines: tuple[str, ...]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / RECORD
    path.write_text("".join(json.dumps({"argv": line}) + "\n" for line in lines), encoding="utf-8")
    return path


def test_what_another_releases_image_ran_is_left_out(tmp_path: Path) -> None:
    path = record(
        tmp_path,
        ("docker", "run", "--rm", "old:1", "trtllm-build", "--workers", "1"),
        ("docker", "run", "--rm", "new:2", "trtllm-build", "--workers", "8"),
        ("nvidia-smi",),
    )
    assert recorded_words(path, ("new:2",), "/w") == {("trtllm-build", "--workers", "8"), ("nvidia-smi",)}


def test_the_panel_of_another_release_asks_for_its_own_commands(tmp_path: Path) -> None:
    profile, later = load_profile("p5", "0.12.0"), load_profile("p5", "1.2.1")
    image = load_release(profile.release).image
    record(tmp_path / later.name / "logs", ("docker", "run", image, "python3", "quantize.py"))
    shown = panel_markdown(later, ["quantize"], workspace=tmp_path)
    assert "Commands for you to run" in shown and "Already run" not in shown
