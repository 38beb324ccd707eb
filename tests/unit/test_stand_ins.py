"""The stand-ins show what the tools of their release show, and nothing else."""

import os
import signal
import subprocess
from pathlib import Path

import httpx
import psutil
import pytest

from stand_in_docker import docker, family_of, freeze
from stand_in_hub import Hub, hub_server
from stand_in_metrics import figures_of, shown
from stand_ins import Machine

PAGE = """\
# HELP nv_inference_count Number of inferences
nv_inference_count{model="ensemble",version="1"} 3
# HELP nv_trt_llm_request_metrics of the embedded engine
# TYPE nv_trt_llm_request_metrics gauge
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="active",version="1"} 0
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="waiting",version="1"} 2
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",model="tensorrt_llm",version="1"} 0.5
# TYPE nv_llm_output_token_len histogram
nv_llm_output_token_len_sum{model="tensorrt_llm",response_metric_type="total_output_tokens",version="1"} 64
nv_llm_output_token_len_bucket{model="tensorrt_llm",response_metric_type="total_output_tokens",version="1",le="10"} 1
"""


def test_an_old_release_shows_no_figure_that_came_later() -> None:
    page = shown(PAGE, "0.12.0")
    assert len(page.splitlines()) == 5
    for absent in ("waiting", "fraction", "nv_llm_"):
        assert absent not in page
    for present in ("nv_inference_count", 'request_type="active"'):
        assert present in page


def test_a_new_release_shows_them() -> None:
    assert shown(PAGE, "1.2.1") == PAGE
    assert "nv_llm_output_token_len" in figures_of("0.16.0")
    assert "nv_llm_output_token_len" not in figures_of("0.15.0")


def test_the_hub_gives_a_model_only_to_its_token(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with hub_server(Hub({"meta-llama/model": tmp_path}, "hf_right")) as address:
        for token, status in (("hf_right", 200), ("hf_wrong", 403)):
            answer = httpx.get(
                f"{address}/api/models/meta-llama/model/auth-check", headers={"Authorization": f"Bearer {token}"}
            )
            assert answer.status_code == status
        assert httpx.get(f"{address}/api/models/other/model").status_code == 404


def test_docker_refuses_what_it_does_not_know(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine = Machine(tmp_path / "machine", "0.12.0").install()
    assert docker(machine, ["freeze", "playbook-launch-1"]) == 1
    assert docker(machine, ["kill", "playbook-launch-1"]) == 1
    assert docker(machine, ["pull", "nvcr.io/nvidia/tritonserver:00.00-py3"]) == 1
    assert "No such container: playbook-launch-1" in capsys.readouterr().err


def test_a_frozen_container_has_no_process_that_runs_not_even_one_just_started() -> None:
    breeding = "while :; do sleep 60 & sleep 0.01; done"
    with subprocess.Popen(["sh", "-c", f"({breeding}) & wait"], start_new_session=True) as first:
        try:
            freeze(first.pid)
            states = {psutil.Process(member).status() for member in family_of(first.pid)}
            assert states - {psutil.STATUS_ZOMBIE, psutil.STATUS_DISK_SLEEP} == {psutil.STATUS_STOPPED}
        finally:
            for member in family_of(first.pid):
                os.kill(member, signal.SIGKILL)
