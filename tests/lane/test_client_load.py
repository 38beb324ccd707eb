"""Hundreds of requests while the real server is killed once, stopped once, and left in mid-answer by one in twenty."""

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from serving import PROMPTS, build_tiny_engine, serving
from serving_clients import Client, RetryPolicy, SamplingOptions, TextRequest, Timeouts, TritonGrpc, TritonHttp
from serving_clients.faults import kill

pytestmark = [pytest.mark.server, pytest.mark.slow]

REQUESTS = 240
THREADS = 16
GREEDY = SamplingOptions(end_id=-1)
PATIENT = RetryPolicy(max_attempts=240, base_s=0.05, cap_s=0.5)


def make_request(number: int) -> tuple[TextRequest, bool]:
    leaves = number % 20 == 7
    return TextRequest(
        PROMPTS[number % len(PROMPTS)],
        max_tokens=64 if leaves else 8,
        sampling=GREEDY,
        request_id=f"request-{number}",
        restart=True,
    ), leaves


def test_hundreds_of_requests_none_lost_none_answered_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    engine = build_tiny_engine(tmp_path / "engine")
    ended = count(1)
    restarts: list[str] = []
    outcomes: list[tuple[str, str]] = []
    repeated: list[str] = []
    lock = threading.Lock()
    marks = {80: threading.Event(), 160: threading.Event()}

    with serving(tmp_path / "repository", engine) as server:

        def restart_twice() -> None:
            for mark in marks:
                marks[mark].wait(120)
                if mark == 80:
                    kill(server)
                server.stop()
                server.start()
                restarts.append(server.http_url)

        options: dict[str, Any] = {
            "retry": PATIENT,
            "timeouts": Timeouts(connect_s=1.0, read_s=5.0),
            "max_in_flight": THREADS,
        }
        with (
            Client(TritonHttp(server.http_url, stream=True), **options) as http,
            Client(TritonGrpc(server.grpc_url), **options) as grpc,
        ):
            expected = {
                (prompt, tokens): http.generate(TextRequest(prompt, tokens, GREEDY)).text
                for prompt in PROMPTS
                for tokens in (8, 64)
            }

            def ask(number: int) -> None:
                request, leaves = make_request(number)
                whole = expected[request.prompt, request.max_tokens]
                answer = (http, grpc)[number % 2].stream(request)
                pieces: list[str] = []
                try:
                    while not (leaves and len(pieces) == 3):
                        pieces.append(next(answer))
                except StopIteration as end:
                    repeated.extend(attempt.outcome for attempt in end.value.attempts[:-1])
                answer.close()
                text = "".join(pieces)
                verdict = "left" if leaves and whole.startswith(text) else "whole" if text == whole else "wrong"
                with lock:
                    outcomes.append((request.request_id, verdict))
                    if (number_ended := next(ended)) in marks:
                        marks[number_ended].set()

            started = time.monotonic()
            restarter = threading.Thread(target=restart_twice)
            restarter.start()
            with ThreadPoolExecutor(THREADS) as pool:
                list(pool.map(ask, range(REQUESTS)))
            seconds = time.monotonic() - started
            restarter.join()

    verdicts = Counter(verdict for _, verdict in outcomes)
    answers = Counter(request_id for request_id, _ in outcomes)
    with capsys.disabled():
        print(f"\n{REQUESTS} requests, {len(restarts)} restarts, {dict(verdicts)}, {seconds:.1f} s")
        print(f"attempts that failed: {dict(Counter(repeated))}")
    assert len(restarts) == 2
    assert repeated, "no request felt the restarts"
    assert set(answers) == {f"request-{number}" for number in range(REQUESTS)}, "a request was lost"
    assert set(answers.values()) == {1}, "a request was answered twice"
    assert verdicts == {"whole": 228, "left": 12}
