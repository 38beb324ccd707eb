"""A model of the hub is calibrated on the articles that quantize.py takes; the shipped model on the course's texts."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from playbook.lanes.vllm import lane
from playbook.profile import Profile, load_profile
from ptq.dataset import cnn_dailymail, dataset_texts
from serving_base.errors import EnvironmentProblem
from tiny_llama import MODEL_DIR
from trtllm_check.recipes.quantize import CALIBRATION_DATASET


class Hub(ModuleType):
    """Stands in for the library ``datasets``, which is in vLLM's environment only: it keeps what it was asked."""

    def __init__(self, rows: list[dict[str, str]] | None) -> None:
        super().__init__("datasets")
        self.rows = rows
        self.asked: tuple[object, ...] = ()

    def load_dataset(self, *path: str | None, **more: object) -> list[dict[str, str]]:
        self.asked = (*path, more)
        if self.rows is None:
            raise ConnectionError("Couldn't reach the Hub")
        return self.rows


def test_the_first_articles_are_cut_and_only_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub([{"article": f"Return the number {number}. " * 30} for number in range(9)])
    monkeypatch.setitem(sys.modules, "datasets", hub)
    texts = dataset_texts(cnn_dailymail(CALIBRATION_DATASET), MODEL_DIR, 4, 32)
    assert [len(ids) for ids in texts] == [32] * 4 and len(set(map(tuple, texts))) == 4
    assert hub.asked == ("abisee/cnn_dailymail", "3.0.0", {"split": "train", "streaming": True})


@pytest.mark.parametrize(
    ("hub", "said"),
    [
        (Hub(None), "Couldn't reach the Hub"),
        (Hub([{"text": "no article"}]), "no calibration texts from abisee/cnn_dailymail: 'article'"),
        (None, "this Python has no datasets"),
    ],
)
def test_texts_that_do_not_come_are_an_error_with_a_fix(
    monkeypatch: pytest.MonkeyPatch, hub: Hub | None, said: str
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", hub)
    with pytest.raises(EnvironmentProblem) as error:
        dataset_texts(cnn_dailymail(CALIBRATION_DATASET), MODEL_DIR, 4, 32)
    assert said in str(error.value) and error.value.fix


@pytest.mark.parametrize(
    ("profile", "weights", "texts"),
    [("hopper", "published", 0), ("hopper", "random", 3), ("hopper-tiny", "published", 3)],
)
def test_only_published_weights_of_the_hub_want_the_articles(
    profile: str, weights: str, texts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[dict[str, Any]] = []

    def keep(profile: Profile, module: str, job: dict[str, Any], root: Path) -> dict[str, Any]:
        jobs.append(job)
        return {}

    monkeypatch.setattr(lane, "_run", keep)
    monkeypatch.setattr(lane, "find_vllm", lambda **_: SimpleNamespace(device="cuda", gpus=1))
    (tmp_path / "out").mkdir()
    chosen = load_profile(profile).model_copy(update={"weights": weights, "calib_samples": 3})
    lane.quantize(chosen, MODEL_DIR, tmp_path / "out", layout="tensorrt_llm", root=tmp_path)
    (job,) = jobs
    assert len(job["texts"]) == texts and ("dataset" in job) == (not texts)
