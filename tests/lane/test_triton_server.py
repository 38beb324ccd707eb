"""Life and death of the real tritonserver."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from benchmarks.churn.churn import churn_server
from benchmarks.churn.servers import CHURN_OPTIONS, serve_triton
from cpu_serving.build import build_engine
from model_server.triton.server import TritonInstallation, TritonServer, find_installation, find_libpython
from serving import (
    PROMPTS,
    build_tiny_engine,
    leftovers,
    regions_of,
    serving,
    write_tiny_repository,
)
from serving_base.errors import EnvironmentProblem, ServerError
from serving_base.processes import free_port
from serving_clients import triton
from tiny_llama import MODEL_DIR
from waiting import tried, until

pytestmark = [pytest.mark.server]


@pytest.fixture(scope="module")
def engine_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_engine(tmp_path_factory.mktemp("engine") / "engine")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, engine_folder: Path) -> Iterator[TritonServer]:
    with serving(tmp_path_factory.mktemp("decoupled") / "repository", engine_folder) as running:
        yield running


def test_taken_ports_are_replaced(tmp_path: Path, engine_folder: Path, server: TritonServer) -> None:
    taken = int(server.http_url.rsplit(":", 1)[1])
    repository = write_tiny_repository(tmp_path / "repository", engine_folder)
    with TritonServer(repository, http_port=taken) as second:
        assert second.http_url != server.http_url
        assert triton.health(second.http_url).ready
        assert second.http_url.startswith("http://127.0.0.1:")


def test_forty_streams_closed_in_mid_answer_leave_nothing(tmp_path: Path, engine_folder: Path) -> None:
    with serving(tmp_path / "repository", engine_folder) as doomed:

        def leave(number: int) -> None:
            model = ("ensemble", "tensorrt_llm_bls")[number % 2]
            ask = triton.generate_stream if number % 4 < 2 else triton.grpc_stream
            url = doomed.http_url if number % 4 < 2 else doomed.grpc_url
            pieces = ask(url, PROMPTS[0], 150, model=model, end_id=-1)
            next(pieces)
            assert isinstance(pieces, Generator)
            pieces.close()

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(leave, range(40)))
        assert triton.health(doomed.http_url).ready
        pids, port = doomed.stub_pids, int(doomed.http_url.rsplit(":", 1)[1])
        regions = regions_of(pids)
        assert len(pids) == len(regions) == 4
        report = doomed.stop()
    assert (report.stubs, report.regions) == ((), ())
    assert leftovers(pids, regions) == ([], [])
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # the client's kept connection is in TIME_WAIT
        probe.bind(("127.0.0.1", port))


def test_cancelled_requests_free_the_engine(server: TritonServer) -> None:
    def figure(name: str) -> float:
        return sum(value for key, value in triton.metrics(server.metrics_url).items() if key.startswith(name))

    asked = {"request_output_len": [[600]], "input_lengths": [[4]], "end_id": [[-1]]}
    tensors = {name: np.array(value, dtype=np.int32) for name, value in asked.items()}
    tensors |= {"input_ids": np.array([[5, 6, 7, 8]], dtype=np.int32), "streaming": np.array([[True]])}

    def ask() -> Iterator[dict[str, np.ndarray]]:
        return triton.grpc_infer(server.grpc_url, "tensorrt_llm", tensors)

    def leave() -> bool | None:
        before = figure("nv_llm_output_token_len_count")  # of the answers that came to their end
        for _ in range(4):
            pieces = ask()
            next(pieces)
            assert isinstance(pieces, Generator)
            pieces.close()
        assert list(ask())  # began last: when it ends, the others have
        return True if figure("nv_llm_output_token_len_count") - before < 1 + 2 else None

    tried(leave, "requests that were left end before their last token")
    until(
        lambda: figure('nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="active"') == 0, "none is active"
    )


def children(pid: int) -> tuple[int, ...]:
    return tuple(child.pid for child in psutil.Process(pid).children(recursive=True))


def wait_until_gone(pids: tuple[int, ...], regions: set[str], limit_s: float = 25.0) -> tuple[list[int], list[str]]:
    deadline = time.monotonic() + limit_s
    while leftovers(pids, regions) != ([], []) and time.monotonic() < deadline:
        time.sleep(0.1)
    return leftovers(pids, regions)


def test_killing_the_server_leaves_nothing(tmp_path: Path, engine_folder: Path) -> None:
    with serving(tmp_path / "repository", engine_folder) as doomed:
        stubs = doomed.stub_pids
        regions = regions_of(stubs)
        family = children(doomed.pid)
        server_pid = next(pid for pid in family if psutil.Process(pid).name() == "tritonserver")
        os.kill(server_pid, signal.SIGKILL)
        assert wait_until_gone(family, regions) == ([], [])
    assert len(stubs) == 4


def test_killing_our_own_process_leaves_nothing(tmp_path: Path, engine_folder: Path) -> None:
    repository = write_tiny_repository(tmp_path / "repository", engine_folder)
    script = f"""
        import sys, time
        from pathlib import Path
        from model_server.triton.server import TritonServer
        server = TritonServer(Path({str(repository)!r}))
        server.start()
        print(server.pid, flush=True)
        time.sleep(100)
    """
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    try:
        family = children(int(parent.stdout.readline()))
        regions = regions_of(family)
        assert len(regions) == 4
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
    assert wait_until_gone(family, regions) == ([], [])


def test_a_server_that_cannot_load_says_why(tmp_path: Path, engine_folder: Path) -> None:
    repository = write_tiny_repository(tmp_path / "repository", engine_folder)
    config = repository / "tensorrt_llm" / "config.pbtxt"
    config.write_text(config.read_text().replace("inflight_fused_batching", "someday"))
    server = TritonServer(repository)
    with pytest.raises(ServerError, match="ended before it was ready") as caught:
        server.start()
    assert "batching_strategy is 'someday'" in str(caught.value)
    assert server.stub_pids == ()


def test_a_port_taken_at_the_last_moment_is_replaced(
    tmp_path: Path, engine_folder: Path, server: TritonServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = int(server.http_url.rsplit(":", 1)[1])
    looks: list[int] = []

    def late(preferred: int = 0, **options: Any) -> int:
        looks.append(preferred)
        return taken if len(looks) == 1 else free_port(preferred, **options)

    monkeypatch.setattr("serving_base.servers.free_port", late)
    with TritonServer(write_tiny_repository(tmp_path / "repository", engine_folder)) as second:
        assert second.http_url != server.http_url
    assert len(looks) == 6


@pytest.mark.parametrize("falls", [1, 3])
def test_a_backend_that_falls_over_its_shared_memory_is_started_again(
    falls: int, tmp_path: Path, engine_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As seen on a busy machine, and at triton-inference-server/server issue 8882; not for ever."""
    fallen = ["sh", "-c", 'echo "what():  boost::interprocess::lock_exception"; exit 134']
    real, starts = TritonServer.command, []

    def command(self: TritonServer, installation: TritonInstallation) -> list[str]:
        starts.append(self.ports)
        return fallen if len(starts) <= falls else real(self, installation)

    monkeypatch.setattr(TritonServer, "command", command)
    server = TritonServer(write_tiny_repository(tmp_path / "repository", engine_folder))
    if falls == 1:
        with server:
            assert server.stub_pids
    else:
        with pytest.raises(ServerError, match="exit status 134"):
            server.start()
    assert len(starts) == falls + (falls == 1)


def test_a_stopped_server_may_be_stopped_again(tmp_path: Path, engine_folder: Path) -> None:
    server = TritonServer(write_tiny_repository(tmp_path / "repository", engine_folder))
    assert server.stop().seconds == 0
    with pytest.raises(ServerError, match="not running"):
        _ = server.pid


def test_the_stubs_import_neither_torch_nor_transformers(server: TritonServer) -> None:
    for pid in server.stub_pids:
        maps = Path(f"/proc/{pid}/maps").read_text()
        assert "/torch/" not in maps
        assert "libtorch" not in maps


def test_a_missing_environment_or_libpython_is_named_with_the_fix(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="no Triton environment"):
        find_installation(tmp_path)
    with pytest.raises(EnvironmentProblem, match=r"apt-get install libpython3\.11"):
        find_libpython(str(tmp_path), "libpython3.11.a", "3.11", shared=False)


def test_libpython_is_found_beside_its_interpreter_or_in_the_systems_folder(tmp_path: Path) -> None:
    system = tmp_path / f"{os.uname().machine}-linux-gnu"
    system.mkdir()
    (system / "libpython3.11.so.1.0").touch()
    assert find_libpython(str(tmp_path), "libpython3.11.a", "3.11", shared=False) == system
    (tmp_path / "libpython3.11.so.1.0").touch()
    assert find_libpython(str(tmp_path), "libpython3.11.so.1.0", "3.11", shared=True) == tmp_path


@pytest.mark.parametrize(("reuse", "requests"), [(True, 60), (False, 20)])
def test_churn_through_triton_changes_no_answer_and_leaks_no_block(tmp_path: Path, reuse: bool, requests: int) -> None:
    """Token ids and text, whole and streamed; the course's own engine loop with prompts computed in chunks."""
    build_engine(MODEL_DIR, tmp_path / "engine", replace(CHURN_OPTIONS, use_paged_context_fmha=reuse))
    with serve_triton(tmp_path, tmp_path / "engine") as (calls, log):
        reports = {way: churn_server(call, requests) for way, call in calls.items()}
    assert [wrong for report in reports.values() for wrong in report.wrong] == []
    assert len(reports) == 4 and all(report.ended == requests for report in reports.values())
    assert "leaked" not in log.read_text(errors="replace")
