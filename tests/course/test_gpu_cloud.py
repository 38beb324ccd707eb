"""Chapter 07 under the profiles of a P5: without consent, with it, and when it fails while an endpoint is up.

Without consent nothing is imitated: the chapter needs neither AWS nor a GPU until its price. With consent the account
is the local cloud, which boto3 finds as it finds a real one, by its environment. That proves the chapter's way through
a session that is not on the loopback, its requests, its order and its clean-up. It proves nothing on what LMI's image
does with a checkpoint on H100s: the container is the embedded lane's, on a tiny engine in place of `lmi-engine`.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import nbformat
import pytest

from checkout import PYTHON_PATH, ROOT
from cpu_serving.build import build_engine
from model_server.aws.server import LocalCloud
from playbook import artifact, stages
from playbook.billing import running_endpoints
from playbook.profile import load_profile
from serving import ENGINE_OPTIONS
from serving_clients.aws import AwsSession, loopback_session
from tiny_llama import MODEL_DIR

pytestmark = [pytest.mark.server, pytest.mark.slow]
BUCKET = "somebodys-models"
CONSENT = {"max_usd_per_hour": 100.0, "bucket": BUCKET, "ttl_minutes": 60}
EMBEDDED_ONLY = {"07-37", "07-38", "07-58", "07-59"}
"""Cells that a P5 leaves silent, each with its reason on the page."""


@dataclass(frozen=True)
class Run:
    """A finished headless run of chapter 07."""

    returncode: int
    output: str
    result: dict[str, Any]
    cells: dict[str, str]
    """Id of each code cell that was run -> what it printed or displayed as text."""


def run(folder: Path, profile: str, release: str, env: dict[str, str | None], **parameters: object) -> Run:
    options = {"profile": profile, "release": release, **parameters}
    argv = [sys.executable, "-m", "playbook", "run", "07", "--workspace", str(folder / "workspace")]
    argv += [
        "--out",
        str(folder / "out"),
        *(word for item in options.items() for word in ("-p", "=".join(map(str, item)))),
    ]
    changed = {**os.environ, "PYTHONPATH": PYTHON_PATH, **env}
    done = subprocess.run(
        argv,
        cwd=ROOT,
        env={name: value for name, value in changed.items() if value is not None},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    (result,) = json.loads((folder / "out" / "results.json").read_text(encoding="utf-8"))
    notebook = nbformat.read(folder / "out" / "07-lmi-sagemaker.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    own = {cell.id for cell in nbformat.read(ROOT / "notebooks" / "07-lmi-sagemaker.ipynb", as_version=4).cells}  # type: ignore[no-untyped-call]
    ran = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.execution_count and cell.id in own]
    return Run(done.returncode, done.stdout + done.stderr, result, {cell.id: said(cell) for cell in ran})


def said(cell: nbformat.NotebookNode) -> str:
    texts = [
        out.get("text") or out.get("evalue") or out.get("data", {}).get("text/markdown") or str(out.get("data", ""))
        for out in cell.outputs
    ]
    return "".join(text or "" for text in texts)


def prepare(folder: Path, profile: str, release: str) -> stages.Workspace:
    """The artifacts that chapter 07 asks for, and no content: before the price it reads none of it."""
    workspace = stages.Workspace(folder / "workspace", load_profile(profile, release))
    for kind in ("model", "engine"):
        origin = workspace.origin(kind, "tensorrt_llm.test", spec={}, inputs={})
        artifact.make(workspace.folder(kind), origin, lambda out: (out / "config.json").write_text("{}"))
    return workspace


@pytest.mark.parametrize(("profile", "release"), [("p5-8b", "1.2.1")])
def test_without_consent_the_chapter_is_skipped_at_its_price_and_all_before_it_has_passed(
    profile: str, release: str, tmp_path: Path
) -> None:
    prepare(tmp_path, profile, release)
    found = run(tmp_path, profile, release, {"AWS_ACCESS_KEY_ID": None, "AWS_CONFIG_FILE": "/dev/null"})
    assert found.returncode == 0 and found.result["status"] == "skipped", found.output
    assert "63.30 USD per hour" in found.result["skipped"]["what"] and "nothing has been created" in str(found.result)
    assert (
        "every request validates" in found.cells["07-24"] and "the schedule's request is valid" in found.cells["end-1"]
    )
    assert "our file passes each image's own rules" in found.cells["07-13"]
    loads = {"0.12.0": "there is no lmi-engine folder", "1.2.1": "no image with engines of this release"}
    assert loads[release] in found.cells["model-1"]
    assert list(found.cells)[-1] == "07-17"
    assert [name for name, text in found.cells.items() if not text] == ["07-01", "07-ex2-b"]


@pytest.fixture
def account(tmp_path: Path) -> Iterator[tuple[LocalCloud, AwsSession]]:
    """A local cloud that stands for an account: a bucket of its own, and its two roles."""
    with LocalCloud(tmp_path / "account") as cloud:
        session = loopback_session(cloud.endpoint_url, cloud.region)
        session.client("s3").create_bucket(Bucket=BUCKET)
        yield cloud, session


def with_consent(folder: Path, cloud: LocalCloud, **limits: Any) -> Run:
    """Chapter 07 on p5-8b (one rank, as the local container) with an engine that was built ahead."""
    workspace = prepare(folder, "p5-8b", "0.12.0")
    build_engine(MODEL_DIR, workspace.folder("lmi-engine"), replace(ENGINE_OPTIONS, **limits))
    roles = {"role_arn": cloud.role_arn, "scheduler_role_arn": cloud.scheduler_role_arn}
    return run(folder, "p5-8b", "0.12.0", cloud.environment, **CONSENT, **roles)


def test_with_consent_the_chapter_creates_asks_and_deletes(
    account: tuple[LocalCloud, AwsSession], tmp_path: Path
) -> None:
    cloud, session = account
    found = with_consent(tmp_path, cloud)
    assert found.returncode == 0 and found.result["status"] == "ok", found.output
    assert "it was built before" in found.cells["model-1"] and "63.30 USD per hour" in found.cells["07-17"]
    assert "1 endpoint bill" in found.cells["bill-1"] and "its schedule deletes it" in found.cells["07-28"]
    assert "the endpoint gives the right answer" in found.cells["07-31"]
    assert "deleted at" in found.cells["07-61"] and "this chapter's endpoint is gone" in found.cells["07-65"]
    assert {name for name, text in found.cells.items() if not text} - {
        "07-01",
        "07-26",
        "07-40",
        "07-43",
        "07-scale-d",
        "07-ex2-b",
    } == EMBEDDED_ONLY
    assert running_endpoints(session) == [] and session.client("scheduler").list_schedules()["Schedules"] == []
    assert not session.client("s3").list_objects_v2(Bucket=BUCKET).get("Contents")


def test_a_cell_that_fails_while_an_endpoint_is_up_leaves_none(
    account: tuple[LocalCloud, AwsSession], tmp_path: Path
) -> None:
    cloud, session = account
    found = with_consent(tmp_path, cloud, max_input_len=4)
    assert found.returncode == 1 and found.result["status"] == "failed", found.output
    assert list(found.cells)[-1] == "07-30"  # the container refuses the question, after minutes of starting
    left = [item for item in running_endpoints(session) if item.status != "Deleting"]
    assert left == []
