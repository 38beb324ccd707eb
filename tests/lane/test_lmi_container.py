"""The container process on the real engine, over HTTP, read as the public clients of LMI read it."""

import http.client
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from benchmarks.churn.churn import churn_server
from benchmarks.churn.servers import CHURN_OPTIONS, serve_lmi
from cloud import streams_at_once
from cpu_serving.apart import EngineApart
from cpu_serving.build import build_engine
from model_server.aws.container import application
from model_server.aws.service import Service
from model_server.protocol import Output
from serving import build_tiny_engine
from serving_base.errors import EngineError
from tiny_llama import MODEL_DIR

SMALL = {"max_new_tokens": 8}
READY_LIMIT_S = 120
"""For what must happen and has no time of its own: far above what a busy machine needs."""
CHAT = [{"role": "user", "content": "What is the capital of France?"}]


class Container:
    """A running container; ``post`` gives status, content type and body."""

    def __init__(self, url: str, process: "subprocess.Popen[str]") -> None:
        self.port = int(url.rpartition(":")[2])
        self.process = process

    def open(self, body: object) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request("POST", "/invocations", data, {"Content-Type": "application/json"})
        return connection, connection.getresponse()

    def post(self, body: object) -> tuple[int, str, bytes]:
        connection, answer = self.open(body)
        try:
            return answer.status, answer.headers["content-type"], answer.read()
        finally:
            connection.close()

    def json(self, **body: object) -> dict[str, Any]:
        status, content_type, data = self.post(body)
        assert (status, content_type) == (200, "application/json"), data
        answer: dict[str, Any] = json.loads(data)
        return answer

    def lines(self, **body: object) -> list[dict[str, Any]]:
        status, content_type, data = self.post({"stream": True, **body})
        assert (status, content_type) == (200, "application/jsonlines"), data
        assert data.endswith(b"\n")
        return [json.loads(line) for line in data.split(b"\n")[:-1]]

    def ping(self) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        connection.request("GET", "/ping")
        try:
            return connection.getresponse().status
        finally:
            connection.close()


@contextmanager
def running(
    folder: Path, engine: Path, *, tag: str = "0.32.0-tensorrtllm0.12.0-cu125", **settings: str
) -> Iterator[Container]:
    folder.mkdir()
    written = {"option.model_id": "unused", **{key.replace("__", "."): value for key, value in settings.items()}}
    (folder / "serving.properties").write_text("".join(f"{key}={value}\n" for key, value in written.items()))
    address = folder / "address"
    arguments = ["--model", folder, "--engine", engine, "--image", f"x:{tag}", "--port", "0", "--address-file", address]
    process = subprocess.Popen(
        [sys.executable, "-m", "model_server.aws.container", *map(str, arguments)],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + READY_LIMIT_S
        while not address.exists():
            assert process.poll() is None and time.monotonic() < deadline, process.communicate()[1]
            time.sleep(0.02)
        yield Container(address.read_text(), process)
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)


def wait_until_healthy(container: Container) -> Container:
    deadline = time.monotonic() + READY_LIMIT_S
    while container.ping() != 200:
        assert container.process.poll() is None, container.process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return container


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_engine(tmp_path_factory.mktemp("container") / "engine")


@pytest.fixture(scope="module")
def rolling(engine: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    with running(tmp_path_factory.mktemp("rolling") / "model", engine) as container:
        yield wait_until_healthy(container)


def test_ping_says_when_the_engine_is_loaded(engine: Path, tmp_path: Path) -> None:
    with running(tmp_path / "model", engine) as container:
        assert container.ping() == 503
        assert container.post({"inputs": "x"})[0] == 503
        wait_until_healthy(container)


def test_one_answer(rolling: Container) -> None:
    assert set(rolling.json(inputs="The value of", parameters=SMALL)) == {"generated_text"}
    told = rolling.json(inputs="The value of", parameters={**SMALL, "details": True})
    tokens = told["details"].pop("tokens")
    assert told["details"] == {"finish_reason": "length", "generated_tokens": 8, "inputs": "The value of"}
    assert "".join(token["text"] for token in tokens) == told["generated_text"]
    probabilities = [token["log_prob"] for token in tokens]
    assert all(value <= 0 for value in probabilities) and len(set(probabilities)) > 1


def test_a_stream_is_the_same_answer(rolling: Container) -> None:
    parameters = {**SMALL, "details": True}
    told = rolling.json(inputs="The value of", parameters=parameters)
    lines = rolling.lines(inputs="The value of", parameters=parameters)
    assert [line["token"]["id"] for line in lines] == [token["id"] for token in told["details"]["tokens"]]
    assert all(set(line) == {"token"} for line in lines[:-1])
    assert lines[-1]["generated_text"] == told["generated_text"]
    assert lines[-1]["details"] == {"finish_reason": "length", "generated_tokens": 8, "inputs": "The value of"}


def test_thirty_new_tokens_are_the_default(rolling: Container) -> None:
    assert len(rolling.lines(inputs="The value of")) == 30


def test_greedy_and_seeded_answers_repeat(rolling: Container) -> None:
    def ask(**parameters: object) -> str:
        return str(rolling.json(inputs="A list", parameters={"max_new_tokens": 20, **parameters})["generated_text"])

    assert ask(do_sample=False, temperature=5.0, top_k=50) == ask()
    sampled = {seed: ask(do_sample=True, seed=seed, temperature=2.0, top_k=50, top_p=1.0) for seed in (1, 2)}
    assert sampled[1] == ask(do_sample=True, seed=1, temperature=2.0, top_k=50, top_p=1.0)
    assert sampled[1] != sampled[2]


def test_an_answer_ends_at_the_end_token(rolling: Container) -> None:
    text = "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nWhat is the capital of France?<|eot_id|>"
    prompt = text + "<|start_header_id|>assistant<|end_header_id|>\n\n"
    details = rolling.json(inputs=prompt, parameters={"max_new_tokens": 60, "details": True})["details"]
    assert details["finish_reason"] == "eos_token" and details["generated_tokens"] < 60
    assert details["tokens"][-1]["text"] == "" and details["tokens"][-1]["log_prob"] <= 0


def test_a_stop_sequence_ends_the_answer(rolling: Container) -> None:
    whole = rolling.json(inputs="The value of", parameters=SMALL)["generated_text"]
    word = whole.split()[1]
    told = rolling.json(inputs="The value of", parameters={**SMALL, "details": True, "stop_sequences": [word]})
    assert told["details"]["finish_reason"] == "stop_sequence"
    assert told["generated_text"] == whole[: whole.index(word) + len(word)]


def test_chat(rolling: Container) -> None:
    told = rolling.json(messages=CHAT, max_tokens=40, temperature=0)
    choice = told["choices"][0]
    assert choice["finish_reason"] == "stop" and choice["message"]["role"] == "assistant"
    usage = told["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    chunks = rolling.lines(messages=CHAT, max_tokens=40, temperature=0)
    assert "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks) == choice["message"]["content"]
    assert rolling.json(prompt="The value of", max_tokens=3, temperature=0)["choices"][0]["text"]


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[1]",
        b"{}",
        {"inputs": 3},
        {"inputs": "x", "parameters": {"max_new_tokens": "many"}},
        {"inputs": "x", "parameters": {"max_new_tokens": 0}},
        {"inputs": "x", "parameters": {"max_new_tokens": 100_000}},
        {"inputs": "word " * 2000},
        {"inputs": "x", "parameters": {"do_sample": True, "temperature": -1.0}},
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_bad_input_is_answered_with_424(
    rolling: Container,
    body: bytes
    | dict[str, dict[str, bool | float] | str]
    | dict[str, dict[str, int] | str]
    | dict[str, dict[str, str] | str]
    | dict[str, int]
    | dict[str, list[dict[str, list[dict[str, str]] | str]]]
    | dict[str, str],
    stream: bool,
) -> None:
    status, content_type, data = rolling.post(body if isinstance(body, bytes) else {**body, "stream": stream})
    told = json.loads(data)
    assert (status, content_type, told["code"]) == (424, "application/json", 424)
    assert told["error"] and "Traceback" not in told["error"] and "\n" not in told["error"]


def test_eight_streams_run_in_one_batch(rolling: Container) -> None:
    def read() -> list[float]:
        connection, answer = rolling.open(
            {"inputs": "A list of", "stream": True, "parameters": {"max_new_tokens": 300}}
        )
        times = []
        while answer.readline():
            times.append(time.monotonic())
        connection.close()
        assert len(times) == 300
        return times

    assert any(streams_at_once(read, 8) >= 4 for _ in range(5))  # this process's threads do not all read in time


def post_together(container: Container, body: object, count: int) -> list[int]:
    """Statuses of equal requests sent at once, in order."""
    with ThreadPoolExecutor(count) as pool:
        return sorted(pool.map(lambda _: container.post(body)[0], range(count)))


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_its_slot(engine: Path, tmp_path: Path, stream: bool) -> None:
    settings = {"option__max_rolling_batch_size": "1", "job_queue_size": "1"}
    with running(tmp_path / "model", engine, **settings) as container:
        wait_until_healthy(container)
        long = {"inputs": "A list of", "stream": stream, "parameters": {"max_new_tokens": 700}}
        leaver = http.client.HTTPConnection("127.0.0.1", container.port, timeout=30)
        leaver.request("POST", "/invocations", json.dumps(long))
        if stream:
            leaver.getresponse().readline()
        leaver.close()
        time.sleep(0.2)
        statuses = post_together(container, {"inputs": "x", "parameters": {"max_new_tokens": 300}}, 2)
        assert statuses == [200, 200]  # one runs and one waits; with the leaver there would be one too many


def test_clients_that_leave_while_they_wait_free_their_places(engine: Path, tmp_path: Path) -> None:
    settings = {"option__max_rolling_batch_size": "1", "job_queue_size": "2"}
    with running(tmp_path / "model", engine, **settings) as container:
        wait_until_healthy(container)
        connection, _ = container.open({"inputs": "A", "stream": True, "parameters": {"max_new_tokens": 700}})
        for stream in (True, False):
            leaver = http.client.HTTPConnection("127.0.0.1", container.port, timeout=30)
            leaver.request("POST", "/invocations", json.dumps({"inputs": "A", "stream": stream}))
            time.sleep(0.05)
            leaver.close()
        time.sleep(0.3)  # until they are missed; the first stream takes about a second
        assert post_together(container, {"inputs": "x"}, 2) == [200, 200]
        connection.close()


def test_a_full_queue_is_answered_with_503(engine: Path, tmp_path: Path) -> None:
    settings = {"option__max_rolling_batch_size": "1", "job_queue_size": "1"}
    with running(tmp_path / "model", engine, **settings) as container:
        wait_until_healthy(container)
        statuses = post_together(container, {"inputs": "A list of", "parameters": {"max_new_tokens": 600}}, 6)
        assert set(statuses) == {200, 503} and statuses.count(200) >= 2
        assert container.json(inputs="x", parameters=SMALL)


@pytest.mark.parametrize("stream", [True, False])
def test_an_engine_that_breaks_after_the_start(
    engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    """HTTP 200 has been sent by then: the answer itself says that it failed, and the container is no longer healthy."""
    service = Service(tmp_path, engine, "x:0.32.0-tensorrtllm0.12.0-cu125")
    healthy_steps = iter(range(3))
    step = EngineApart.step

    def break_after_three(self: EngineApart) -> list[Output]:
        outputs = step(self)
        if service.loop is not None and outputs and next(healthy_steps, None) is None:
            raise EngineError("the engine failed in a step")
        return outputs

    monkeypatch.setattr(EngineApart, "step", break_after_three)
    with TestClient(application(service, threading.Event())) as http_client:
        while http_client.get("/ping").status_code != 200:
            time.sleep(0.02)
        answer = http_client.post("/invocations", json={"inputs": "The value of", "stream": stream})
        last = json.loads(answer.text.splitlines()[-1])
        assert answer.status_code == 200 and last["details"]["finish_reason"] == "error"
        assert "failed in a step" in (last["token"]["error_msg"] if stream else last["error"])
        assert http_client.get("/ping").status_code == 503
        assert http_client.post("/invocations", json={"inputs": "x"}).status_code == 503


def test_the_schema_of_033(engine: Path, tmp_path: Path) -> None:
    with running(tmp_path / "model", engine, tag="0.33.0-tensorrtllm0.21.0-cu128") as container:
        wait_until_healthy(container)
        parameters = {**SMALL, "do_sample": False, "details": True}
        lines = container.lines(inputs="The value of", parameters=parameters)
        assert [line["token"]["id"] for line in lines] == [None] * 8
        details = lines[-1]["details"]
        assert (details["generated_tokens"], details["finish_reason"]) == (9, "length") and details["input_length"] > 0
        told = container.json(inputs="The value of", parameters=parameters)
        assert "".join(line["token"]["text"] for line in lines) == told["generated_text"]


def test_output_formatter(engine: Path, tmp_path: Path) -> None:
    with running(tmp_path / "model", engine, option__output_formatter="sse") as container:
        wait_until_healthy(container)
        status, content_type, data = container.post({"inputs": "x", "parameters": SMALL})
        assert (status, content_type, data.count(b"data: ")) == (200, "text/event-stream", 8)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"option__tensor_parallel_degree": "8"}, "this machine has one device"),
        ({"option__max_rolling_batch_size": "none"}, "is not a number above 0"),
    ],
)
def test_settings_that_cannot_be_end_the_container(
    engine: Path, tmp_path: Path, settings: dict[str, str], reason: str
) -> None:
    with running(tmp_path / "model", engine, **settings) as container:
        assert container.process.wait(30) == 1
        assert reason in (container.process.stderr or pytest.fail("it has no stderr")).read()


def test_a_folder_without_engine_ends_the_container(tmp_path: Path) -> None:
    with running(tmp_path / "model", tmp_path) as container:
        assert container.process.wait(30) == 1
        assert "no tokenizer in" in (container.process.stderr or pytest.fail("it has no stderr")).read()


def test_the_container_stands_without_torch_and_pydantic() -> None:
    modules = "torch transformers pydantic moto boto3"
    code = f"import sys, model_server.aws.container; print([m for m in {modules.split()} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


@pytest.mark.parametrize(("reuse", "requests"), [(True, 60), (False, 20)])
def test_churn_through_the_container_changes_no_answer_and_leaks_no_block(
    tmp_path: Path, reuse: bool, requests: int
) -> None:
    build_engine(MODEL_DIR, tmp_path / "engine", replace(CHURN_OPTIONS, use_paged_context_fmha=reuse))
    with serve_lmi(tmp_path, tmp_path / "engine") as (calls, log):
        reports = {way: churn_server(call, requests) for way, call in calls.items()}
    assert [wrong for report in reports.values() for wrong in report.wrong] == []
    assert len(reports) == 2 and all(report.ended == requests for report in reports.values())
    assert "leaked" not in log.read_text(errors="replace")
