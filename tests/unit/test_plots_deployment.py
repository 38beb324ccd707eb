"""The figures of an endpoint: every step is drawn, and an update's fleet follows from its request."""

import itertools
from datetime import UTC, datetime
from typing import Any

import pytest

from playbook import plots
from playbook.plots.deployment import PARTIES, PATH, FleetStage, extra_usd, fleet_stages
from trtllm_check.recipes import sagemaker
from trtllm_check.recipes.sagemaker import Strategy

SPEC = sagemaker.EndpointSpec(
    name="a", image_uri="image", model_data="s3://b/c", role_arn="r", expires_at=datetime(2026, 11, 24, tzinfo=UTC)
)


def config(how: Strategy) -> dict[str, Any]:
    found: dict[str, Any] = sagemaker.update_endpoint(SPEC, how)["DeploymentConfig"]
    return found


def test_the_path_of_a_request_goes_from_party_to_party_and_back() -> None:
    assert (PATH[0].source, PATH[-1].target) == (PARTIES[0], PARTIES[0])
    assert all(one.target == following.source for one, following in itertools.pairwise(PATH))


def test_every_step_of_the_path_and_its_refusal_is_drawn(shown: list[tuple[Any, str]]) -> None:
    plots.request_path()
    ((figure, alt),) = shown
    words = " ".join(text.get_text() for text in figure.axes[0].texts)
    for step in PATH:
        assert step.text in words and step.text in alt
        assert not step.refusal or f"else {step.refusal}" in words


def test_blue_green_runs_two_fleets_until_the_last_wait_is_over() -> None:
    (stage,) = fleet_stages(config("canary"), 4, 1000)
    assert stage == FleetStage(1000 + 300 + 300, 4, 4)
    assert extra_usd([stage], 4, 10) == pytest.approx(4 * 1600 / 3600 * 10)


@pytest.mark.parametrize(
    ("instances", "expected"), [(4, [(4, 2), (2, 4)]), (3, [(3, 1), (2, 2), (1, 3)]), (1, [(1, 1)])]
)
def test_rolling_replaces_at_most_half_at_a_time(instances: int, expected: list[tuple[int, int]]) -> None:
    stages = fleet_stages(config("rolling"), instances, 1000)
    assert [(stage.old, stage.new) for stage in stages] == expected
    assert {stage.seconds for stage in stages} == {1300}


def test_the_title_is_the_finding(shown: list[tuple[Any, str]]) -> None:
    configs = {how: config(how) for how in ("canary", "rolling")}
    plots.updates(configs, instances=4, start_s=1800, usd_per_hour=60)
    ((figure, alt),) = shown
    assert figure.get_suptitle() == "A rolling update of 4 instances needs 6 at once, a canary update 8"
    assert [axis.get_title() for axis in figure.axes] == [
        "canary: 8 instances at most, 40 min, 160 USD more",
        "rolling: 6 instances at most, 70 min, 140 USD more",
    ]
    assert "160 USD more" in alt
