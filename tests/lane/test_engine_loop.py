"""The engine's loop: in-flight batching, limits, cancelled and failed requests, with a scripted engine."""

import threading
import time
from typing import Any

import pytest

from model_server.loop import EngineJob, EngineLoop, Event, Failed, JobQueueFull, JobRefused
from model_server.protocol import EngineLimits, FinishReason, Output, Sampling
from serving_base.errors import EngineError
from waiting import until

CONFIG = EngineLimits(4, 64, 32, 64, 32)
FOREVER = Sampling(max_new_tokens=60, log_probs=True)


class ScriptedEngine:
    """Gives every request one token a step until ``gate`` is set; then they end."""

    config = CONFIG

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.live: dict[int, int] = {}
        self.largest = 0
        self.breaks = ""
        self.refuses = ""
        self.ended: list[int] = []

    def submit(self, request_id: int, prompt_ids: tuple[int, ...], sampling: Sampling) -> None:
        if self.refuses:
            raise EngineError("request refused: no", fix="ask for less")
        self.live[request_id] = 0

    def cancel(self, request_id: int) -> bool:
        return self.live.pop(request_id, None) is not None

    @property
    def has_work(self) -> bool:
        return bool(self.live)

    def step(self) -> list[Output]:
        time.sleep(0.001)
        if self.breaks:
            raise EngineError(self.breaks)
        self.largest = max(self.largest, len(self.live))
        reason: FinishReason = "length" if self.gate.is_set() else ""
        outputs = [Output(number, 0, (1,), (-0.1,), reason) for number in self.live]
        if reason:
            self.live.clear()
        return outputs


class Client(EngineJob):
    """Collects what is delivered."""

    def __init__(self, sampling: Sampling = FOREVER, rows: int = 1) -> None:
        super().__init__(((1, 2),) * rows, (sampling,) * rows)
        self.events: list[Event] = []
        self.first, self.done = threading.Event(), threading.Event()

    def deliver(self, row: int, event: Event) -> None:
        self.events.append(event)
        self.first.set()
        if not isinstance(event, Output) or event.finish_reason:
            self.done.set()


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine()


def loop_of(engine: ScriptedEngine, **limits: Any) -> EngineLoop[Client]:
    return EngineLoop(engine, Client.deliver, **{"max_running": 4, "max_waiting": 10, **limits})


def reason_of(event: Event) -> str:
    return event.finish_reason if isinstance(event, Output) else ""


def submit(loop: EngineLoop[Client], count: int) -> list[Client]:
    clients = [Client() for _ in range(count)]
    for client in clients:
        loop.submit(client)
    return clients


def test_requests_run_together_up_to_the_batch_size(engine: ScriptedEngine) -> None:
    loop = loop_of(engine, max_running=3)
    clients = submit(loop, 5)
    assert all(client.first.wait(5) for client in clients[:3])
    assert not clients[3].first.is_set() and engine.largest == 3
    engine.gate.set()
    assert all(client.done.wait(5) for client in clients)
    assert engine.largest == 3
    loop.close("the end")


def test_the_engines_own_batch_size_is_the_limit(engine: ScriptedEngine) -> None:
    loop = loop_of(engine, max_running=32)
    clients = submit(loop, 6)
    engine.gate.set()
    assert all(client.done.wait(5) for client in clients)
    assert engine.largest <= CONFIG.max_batch_size
    loop.close("the end")


def test_a_full_queue_sheds_load(engine: ScriptedEngine) -> None:
    loop = loop_of(engine, max_running=1, max_waiting=2)
    clients = submit(loop, 3)
    with pytest.raises(JobQueueFull) as full:
        submit(loop, 1)
    assert full.value.limit == 2
    engine.gate.set()
    assert all(client.done.wait(5) for client in clients)
    submit(loop, 1)
    loop.close("the end")


def test_a_cancelled_request_frees_its_slot(engine: ScriptedEngine) -> None:
    loop = loop_of(engine, max_running=1)
    clients = submit(loop, 3)
    assert clients[0].first.wait(5)
    loop.cancel(clients[1])
    loop.cancel(clients[0])
    assert clients[2].first.wait(5)
    assert set(engine.live) == set(clients[2].numbers) and not clients[1].events
    loop.cancel(Client())
    loop.close("the end")


def test_what_can_never_run_is_refused_at_once(engine: ScriptedEngine) -> None:
    loop = loop_of(engine)
    with pytest.raises(EngineError, match="max_seq_len"):
        loop.check(Client(Sampling(max_new_tokens=500)))
    loop.close("the end")


def test_the_engines_refusal_is_delivered(engine: ScriptedEngine) -> None:
    engine.refuses = "yes"
    loop = loop_of(engine)
    (client,) = submit(loop, 1)
    assert client.done.wait(5)
    assert client.events == [JobRefused("request refused: no; ask for less")]
    loop.close("the end")


def test_a_broken_engine_fails_everybody_and_takes_no_more(engine: ScriptedEngine) -> None:
    loop = loop_of(engine, max_running=1)
    clients = submit(loop, 2)
    assert clients[0].first.wait(5)
    engine.breaks = "it broke"
    assert all(client.done.wait(5) for client in clients)
    assert all(isinstance(client.events[-1], Failed) for client in clients)
    with pytest.raises(EngineError, match="broken"):
        submit(loop, 1)
    assert loop.broken
    loop.close("the end")


def test_close_tells_what_runs_and_what_waits(engine: ScriptedEngine) -> None:
    loop = loop_of(engine, max_running=1)
    clients = submit(loop, 2)
    assert clients[0].first.wait(5)
    loop.close("the container is shutting down")
    for client in clients:
        assert client.events[-1] == Failed("the container is shutting down", closed=True)
    assert not engine.live


def test_an_error_that_the_engine_survives_fails_what_runs_and_no_more(
    engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = loop_of(engine, max_running=1, survives=(RuntimeError,))
    (running,) = submit(loop, 1)
    assert running.first.wait(5)
    monkeypatch.setattr(engine, "step", broken)
    assert running.done.wait(5) and running.events[-1] == Failed("out of memory") and not engine.live
    monkeypatch.undo()
    engine.gate.set()
    (later,) = submit(loop, 1)
    assert later.done.wait(5) and reason_of(later.events[-1]) == "length"
    loop.close("the end")


def broken() -> None:
    raise RuntimeError("out of memory")


def test_a_stopped_job_that_waits_ends_through_the_engine(
    engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told that it is over, though it never had a slot."""
    loop = loop_of(engine, max_running=1)
    _, waiting = submit(loop, 2)
    monkeypatch.setattr(engine, "cancel", engine.ended.append)
    ended = lambda: [Output(engine.ended.pop(), 0, (), (), "cancelled")] if engine.ended else []  # noqa: E731
    monkeypatch.setattr(engine, "step", ended)
    loop.stop(waiting)
    assert waiting.done.wait(5) and reason_of(waiting.events[-1]) == "cancelled"
    loop.close("the end")


def test_a_refused_row_takes_its_whole_job_out_of_the_engine(
    engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = loop_of(engine, max_running=2)
    job = Client(rows=2)
    submitted = engine.submit

    def refuse_the_second(request_id: int, prompt_ids: tuple[int, ...], sampling: Sampling) -> None:
        if request_id == job.numbers[-1]:
            raise EngineError("request refused: no")
        submitted(request_id, prompt_ids, sampling)

    monkeypatch.setattr(engine, "submit", refuse_the_second)
    loop.submit(job)
    assert job.done.wait(5) and job.events == [JobRefused("request refused: no")] and not engine.live
    after = submit(loop, 2)
    assert all(client.first.wait(5) for client in after)
    loop.close("the end")


def test_every_row_of_a_stopped_job_ends(engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = loop_of(engine)
    job = Client(rows=2)
    loop.submit(job)
    assert job.first.wait(5)
    monkeypatch.setattr(engine, "cancel", engine.ended.append)
    cancelled = lambda: [Output(number, 0, (), (), "cancelled") for number in sorted(engine.ended)]  # noqa: E731
    monkeypatch.setattr(engine, "step", cancelled)
    loop.stop(job)
    until(lambda: [reason_of(event) for event in job.events][-2:] == ["cancelled"] * 2, "both rows have ended")
    assert not loop.jobs
    loop.close("the end")


def test_a_job_that_was_cancelled_is_not_told_of_the_end(
    engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = loop_of(engine)
    (client,) = submit(loop, 1)
    assert client.first.wait(5)
    inside, go_on = threading.Event(), threading.Event()

    def held() -> list[Output]:
        inside.set()
        go_on.wait(5)
        return []

    monkeypatch.setattr(engine, "step", held)
    assert inside.wait(5)
    seen = len(client.events)
    loop.cancel(client)
    closing = threading.Thread(target=loop.close, args=("the end",))
    closing.start()
    until(lambda: loop._closing, "the loop is told to end")
    go_on.set()
    closing.join(5)
    assert len(client.events) == seen


def test_a_job_is_alone_only_without_another(engine: ScriptedEngine) -> None:
    loop, one, other = loop_of(engine), Client(), Client()
    assert loop.alone(one)
    loop.submit(one)
    assert loop.alone(one) and not loop.alone(other)
    loop.submit(other)
    assert not loop.alone(one)
    loop.close("over")
