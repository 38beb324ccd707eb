"""A real account is opened only above its price; the embedded lane's cloud is on this machine and costs nothing."""

from pathlib import Path
from typing import Any

import pytest

from playbook import cloud
from playbook.cloud import open_cloud, places
from playbook.profile import load_profile
from playbook.stages import Workspace
from serving_base.errors import Skipped, UsageError
from serving_base.facts.prices import price
from serving_clients.aws import AwsSession
from serving_clients.security import is_loopback

NAMES = {
    "role_arn": "arn:aws:iam::210987654321:role/x",
    "bucket": "models",
    "scheduler_role_arn": "arn:aws:iam::210987654321:role/y",
}


@pytest.fixture
def p5(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path, load_profile("p5"))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Regions for which a real session was asked."""
    regions: list[str] = []

    def session(region: str) -> AwsSession:
        regions.append(region)
        return AwsSession(None, region)

    monkeypatch.setattr(cloud, "real_session", session)
    return regions


@pytest.mark.parametrize(
    ("options", "total"),
    [
        ({}, price("ml.p5.48xlarge").usd_per_hour),
        ({"max_usd_per_hour": 63.0}, price("ml.p5.48xlarge").usd_per_hour),
        ({"instance_count": 2, "max_usd_per_hour": 100.0}, 2 * price("ml.p5.48xlarge").usd_per_hour),
        ({"usd_per_hour": 50.0, "max_usd_per_hour": 49.0}, 50.0),
    ],
)
def test_nothing_is_opened_below_its_price(
    p5: Workspace, opened: list[str], options: dict[str, Any], total: float
) -> None:
    with pytest.raises(Skipped, match=f"would cost .* = {total:.2f} USD per hour") as refused:
        open_cloud(p5, places(p5, **NAMES), **options)
    assert (
        f"set max_usd_per_hour to {total:.2f}" in refused.value.fix and "nothing has been created" in refused.value.why
    )
    assert opened == []


def test_a_confirmed_price_opens_the_account(p5: Workspace, opened: list[str]) -> None:
    found = open_cloud(p5, places(p5, **NAMES, region="us-west-2"), max_usd_per_hour=64.0)
    assert opened == ["us-west-2"] and "63.30 USD per hour" in found.price and "2026" in found.price
    assert open_cloud(p5, places(p5, **NAMES), usd_per_hour=1.0, max_usd_per_hour=1.0).price.endswith(
        "(your own price)"
    )


def test_an_instance_without_a_known_price_needs_yours(p5: Workspace, opened: list[str]) -> None:
    with pytest.raises(UsageError, match=r"no price is known for ml\.g5"):
        open_cloud(p5, places(p5, **NAMES), instance_type="ml.g5.xlarge", max_usd_per_hour=1000.0)
    open_cloud(p5, places(p5, **NAMES), instance_type="ml.g5.xlarge", usd_per_hour=2.0, max_usd_per_hour=2.0)


@pytest.mark.parametrize("missing", list(NAMES))
def test_a_real_account_needs_roles_and_bucket(p5: Workspace, opened: list[str], missing: str) -> None:
    with pytest.raises(UsageError, match=f"a real account needs {missing}"):
        open_cloud(p5, places(p5, **{**NAMES, missing: ""}), max_usd_per_hour=100.0)
    assert opened == []


def test_requests_can_be_written_before_an_account_is_opened(p5: Workspace, opened: list[str]) -> None:
    example = places(p5, region="eu-west-1")
    assert example.missing == tuple(NAMES) and example.bucket == "your-bucket" and opened == []
    assert example.endpoint_arn("a") == "arn:aws:sagemaker:eu-west-1:123456789012:endpoint/a"
    assert places(p5, **NAMES).missing == () and places(p5, **NAMES).account_id == "210987654321"


def test_the_region_is_the_configured_one(p5: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    assert places(p5).region == "us-east-1"
    monkeypatch.setenv("AWS_DEFAULT_REGION", "ap-south-1")
    assert places(p5).region == "ap-south-1"


def test_the_embedded_lane_s_cloud_is_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cloud, "real_session", lambda region: pytest.fail("a real account was opened"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    found = open_cloud(Workspace(tmp_path, load_profile("local")))
    try:
        assert is_loopback(found.session.endpoint_url.split("/")[2].split(":")[0])
        assert "nothing" in found.price
        assert [item["Name"] for item in found.client("s3").list_buckets()["Buckets"]] == [found.bucket]
        assert found.bill().summary == "no endpoint is running"
    finally:
        found.stop()


def test_a_local_cloud_that_cannot_be_used_is_stopped_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from model_server.aws.server import LocalCloud

    done: list[str] = []
    monkeypatch.setattr(LocalCloud, "start", lambda _: done.append("start"))
    monkeypatch.setattr(LocalCloud, "stop", lambda _: done.append("stop"))
    monkeypatch.setattr(LocalCloud, "endpoint_url", "http://127.0.0.1:9")
    monkeypatch.setattr(cloud, "loopback_session", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        open_cloud(Workspace(tmp_path, load_profile("local")))
    assert done == ["start", "stop"]
