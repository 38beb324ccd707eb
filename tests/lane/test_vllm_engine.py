"""vLLM's engine process and the engine that steps it, on a stand-in for vLLM: the real worker, and no kernel."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from model_server.answers import complete, stream
from model_server.engines import EngineOptions, opener_of
from model_server.loop import EngineJob, EngineLoop, Event, Failed, JobQueueFull
from model_server.protocol import Output, Sampling
from serving_base.errors import EngineError, MissingArtifact, RequestRefused
from vllm_serving.engine import WORKER, EngineFolder, VllmEngine
from vllm_stand_in import (
    END_ID,
    answer,
    answer_to_end,
    births,
    log_probabilities,
    stand_in_engine,
    workers,
)
from waiting import until

PROMPT = (5, 6, 7)
LONG = Sampling(max_new_tokens=400)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stand_in_engine(tmp_path_factory.mktemp("vllm"))


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[VllmEngine]:
    with VllmEngine(folder, record_steps=True) as running:
        yield running


def drain(engine: VllmEngine) -> list[Output]:
    outputs = []
    while engine.has_work:
        outputs += engine.step()
    return outputs


def only(engine: VllmEngine, sampling: Sampling) -> Any:
    (found,) = complete(engine, [PROMPT], sampling)
    return found


def test_answers_with_log_probabilities_end_where_they_should(engine: VllmEngine) -> None:
    found = only(engine, Sampling(max_new_tokens=9, log_probs=True))
    assert (found.token_ids, found.log_probs) == (answer(PROMPT, 9), log_probabilities(9))
    assert found.finish_reason == "length"
    ended = only(engine, Sampling(max_new_tokens=60, end_id=END_ID, log_probs=True))
    assert ended.token_ids == answer_to_end(PROMPT, 60) and len(ended.token_ids) == 23
    assert len(ended.log_probs) == 23 and ended.finish_reason == "end_id"
    assert END_ID in only(engine, Sampling(max_new_tokens=60)).token_ids  # nobody asked it to end there


def test_many_requests_get_their_own_answers(engine: VllmEngine) -> None:
    prompts = [tuple(range(number, number + 4)) for number in range(64)]
    found = complete(engine, prompts, Sampling(max_new_tokens=30, end_id=END_ID))
    assert [each.token_ids for each in found] == [answer_to_end(prompt, 30) for prompt in prompts]


def test_a_stream_comes_in_order_and_in_pieces(engine: VllmEngine) -> None:
    pieces = list(stream(engine, PROMPT, Sampling(max_new_tokens=20)))
    assert sum((piece.token_ids for piece in pieces), ()) == answer(PROMPT, 20)
    assert len(pieces) > 1 and [bool(piece.finish_reason) for piece in pieces].index(True) == len(pieces) - 1


def test_what_came_together_is_one_output(engine: VllmEngine) -> None:
    engine.submit(0, PROMPT, Sampling(max_new_tokens=20, log_probs=True))
    time.sleep(0.3)  # all of it comes; nothing breaks where only a part has
    first = engine.step()
    assert len(first) == 1 and len(first[0].token_ids) == len(first[0].log_probs) > 1
    drain(engine)


def test_leaving_a_stream_ends_the_request(engine: VllmEngine) -> None:
    pieces = stream(engine, PROMPT, LONG)
    next(pieces)
    pieces.close()  # type: ignore[attr-defined]
    assert not engine.has_work
    assert only(engine, Sampling(max_new_tokens=3)).token_ids == answer(PROMPT, 3)


@pytest.mark.parametrize("length", [1, 2])
def test_a_stop_word_ends_an_answer_and_stays_in_it(engine: VllmEngine, length: int) -> None:
    whole = answer(PROMPT, 30)
    sampling = Sampling(max_new_tokens=30, stop_words=((1, 2, 3), whole[8 : 8 + length]), log_probs=True)
    found = only(engine, sampling)
    assert (found.token_ids, found.finish_reason) == (whole[: 8 + length], "stop_words")
    assert len(found.log_probs) == 8 + length


def test_seeds_and_sequences(engine: VllmEngine) -> None:
    drawn = Sampling(max_new_tokens=4, top_k=50, seed=3)
    assert only(engine, drawn).token_ids == answer(PROMPT, 4, draw=4)
    assert only(engine, replace(drawn, seed=None)).token_ids == answer(PROMPT, 4, draw=1)  # seed 0
    three = complete(engine, [PROMPT], replace(drawn, num_return_sequences=3))
    assert [each.token_ids for each in three] == [answer(PROMPT, 4, draw=draw) for draw in (4, 5, 6)]
    greedy = complete(engine, [PROMPT], Sampling(max_new_tokens=4, num_return_sequences=2))
    assert [each.token_ids for each in greedy] == [answer(PROMPT, 4)] * 2


def test_what_cannot_run_is_refused_by_name(engine: VllmEngine) -> None:
    with pytest.raises(EngineError, match="max_input_len 320"):
        engine.submit(0, tuple(range(321)), LONG)
    with pytest.raises(EngineError, match=r"outside the vocabulary of 2048: \[2048\]"):
        engine.submit(0, (1, 2048), LONG)
    engine.submit(0, PROMPT, LONG)
    with pytest.raises(EngineError, match="already running"):
        engine.submit(0, PROMPT, LONG)
    with pytest.raises(EngineError, match="busy"):
        complete(engine, [PROMPT], LONG)
    assert engine.cancel(0) and not engine.cancel(0)
    assert [output.finish_reason for output in drain(engine)] == ["cancelled"]
    engine.submit(0, PROMPT[:1] * 13, LONG)  # vLLM's own refusal
    assert [output.finish_reason for output in drain(engine)] == ["refused"]


def test_steps_are_recorded_with_their_requests(engine: VllmEngine) -> None:
    before = len(engine.records)
    complete(engine, [(1,), (2,)], [Sampling(max_new_tokens=3), Sampling(max_new_tokens=5)])
    records = engine.records[before:]
    for number, length in ((0, 3), (1, 5)):
        own = [record for record in records if number in record.phases]
        assert [record.phases[number] for record in own] == ["context"] + ["generation"] * (length - 1)
        assert [record.new_tokens[number] for record in own] == [1] * length
    assert all(record.seconds > 0 for record in records)


def test_a_method_of_the_worker_is_called(engine: VllmEngine) -> None:
    engine.submit(0, PROMPT, Sampling(max_new_tokens=6))
    assert engine.call("add", 2, 3) == [5]
    assert sum((output.token_ids for output in drain(engine)), ()) == answer(PROMPT, 6)
    with pytest.raises(EngineError, match="the worker has no such_method"):
        engine.call("such_method")


def test_a_cancelled_request_frees_its_slot(tmp_path: Path) -> None:
    with VllmEngine(stand_in_engine(tmp_path, max_batch_size=1)) as engine:
        engine.submit(1, PROMPT, LONG)
        engine.submit(2, PROMPT, Sampling(max_new_tokens=3))
        until(lambda: [output for output in engine.step() if output.request_id == 1], "the first token")
        assert engine.stats().active == 1 and engine.stats().waiting == 1 and engine.stats().kv_blocks_used == 10
        engine.cancel(1)
        outputs = drain(engine)
        assert engine.stats().steps < LONG.max_new_tokens  # nobody waited for the end of the long answer
    assert [output.finish_reason for output in outputs if output.request_id == 1] == ["cancelled"]
    assert sum((output.token_ids for output in outputs if output.request_id == 2), ()) == answer(PROMPT, 3)


def test_a_static_batch_lets_nobody_join(tmp_path: Path) -> None:
    with VllmEngine(stand_in_engine(tmp_path, max_batch_size=2), batching="static", record_steps=True) as engine:
        complete(engine, [PROMPT] * 4, [Sampling(max_new_tokens=n) for n in (2, 12, 4, 4)])
        together = [set(record.phases) for record in engine.records]
    assert not any(numbers & {0, 1} and numbers & {2, 3} for numbers in together) and {2, 3} in together


def test_the_opener_follows_the_servers_wishes(folder: Path) -> None:
    opened = opener_of(folder).open_engine(folder, EngineOptions(kv_cache_tokens=40 * 16, threads=1))
    assert opened.stats().kv_blocks_max == 40
    opened.close()
    shared = opener_of(folder).open_engine(folder, EngineOptions(gpu_sharers=2))
    assert shared.stats().kv_blocks_max == 500  # of the 1000 that it has alone
    shared.close()
    with pytest.raises(RequestRefused, match="no logits"):
        opener_of(folder).open_logits(folder)


def test_a_closed_engine_leaves_no_process_and_no_file(folder: Path) -> None:
    with births() as born:
        engine = VllmEngine(folder)
        assert len(workers(born.alive())) == 1
        engine.submit(0, PROMPT, LONG)
        engine.close()
        engine.close()
        assert not born.alive() and not engine.log_path.parent.exists()
    with pytest.raises(EngineError, match="closed"):
        engine.submit(1, PROMPT, LONG)
    assert not engine.has_work


def failure(folder: Path, **changes: Any) -> EngineError:
    """What a step says, at last; then nothing of the engine may be left but its log."""
    with births() as born:
        engine = VllmEngine(folder, **changes)
        engine.submit(0, PROMPT, LONG)
        with pytest.raises(EngineError) as raised:
            drain(engine)
        assert not born.alive() and engine.log_path.is_file() and str(engine.log_path) in raised.value.fix
        with pytest.raises(EngineError, match="closed"):
            engine.submit(1, PROMPT, LONG)
        engine.close()
    return raised.value


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("die", "the engine's process ended"),
        ("dead", "EngineCore encountered an issue"),
        ("late_nonsense", "speaks nonsense"),
    ],
)
def test_a_broken_worker_is_named(tmp_path: Path, fault: str, said: str) -> None:
    assert said in failure(stand_in_engine(tmp_path, fault)).what


def test_a_worker_that_hangs_is_named(tmp_path: Path) -> None:
    assert "hangs: no token for 0.5 s" in failure(stand_in_engine(tmp_path, "hang", hang_s=0.5)).what


def test_a_long_answer_is_no_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_STAND_IN_STEP_S", "0.1")
    with VllmEngine(stand_in_engine(tmp_path, hang_s=3.0)) as engine:
        assert only(engine, Sampling(max_new_tokens=40)).token_ids == answer(PROMPT, 40)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("fatal", "Free memory on device cuda:0 is less than desired"),
        ("slow", "not ready after 2 s"),
        ("nonsense", "speaks nonsense"),
    ],
)
def test_an_engine_that_does_not_start_says_why(tmp_path: Path, fault: str, said: str) -> None:
    seconds = 2.0 if fault == "slow" else 60.0
    with births() as born, pytest.raises(EngineError) as raised:
        VllmEngine(stand_in_engine(tmp_path, fault, start_s=seconds))
    assert said in raised.value.what and not born.alive()
    if fault == "fatal":
        assert "Traceback" not in raised.value.what and "ValueError" in raised.value.why


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(MissingArtifact):
        VllmEngine(tmp_path)
    (tmp_path / "config.json").write_text('{"builder": {"name": "vllm"}}')
    with pytest.raises(EngineError, match=r"not a config\.json of a vLLM engine"):
        VllmEngine(tmp_path)


PARENT = """
import sys
from pathlib import Path
from model_server.protocol import Sampling
from vllm_serving.engine import VllmEngine
engine = VllmEngine(Path(sys.argv[1]))
engine.submit(0, (1,), Sampling(max_new_tokens=700))
print("ready", flush=True)
while engine.has_work:
    engine.step()
sys.stdin.read()
"""


def test_a_killed_parent_leaves_no_worker(folder: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout and parent.stdout.readline() == b"ready\n"
        born = psutil.Process(parent.pid).children(recursive=True)
        assert len(workers({each.pid for each in born})) == 1 and any(each.name() == "sleep" for each in born)
        os.kill(parent.pid, signal.SIGKILL)
        until(lambda: not any(each.is_running() for each in born), "the worker's end")


def worker_alone(folder: Path, then: bytes) -> tuple[int, list[dict[str, Any]]]:
    """Exit status and messages of a worker without guard and engine, which is sent these bytes; then nobody listens."""
    wanted = EngineFolder.read(folder)
    address = folder.parent / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))
        listener.listen(1)
        listener.settimeout(60)
        with subprocess.Popen([wanted.python, WORKER, address], env={**os.environ, **wanted.env}) as process:
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as lines:
                start = {"model": wanted.model, "args": wanted.args, "iterations": False}
                connection.sendall(json.dumps({"start": start}).encode() + b"\n")
                messages = [json.loads(lines.readline())]
                connection.sendall(then)
                connection.shutdown(socket.SHUT_WR)
                messages += [json.loads(line) for line in lines]
            return process.wait(60), messages


@pytest.mark.parametrize("nonsense", [b"it rains\n", b'{"what": 1}\n', b"[1]\n"])
def test_a_worker_that_is_told_nonsense_says_so_and_ends(tmp_path: Path, nonsense: bytes) -> None:
    with births() as born:
        status, messages = worker_alone(stand_in_engine(tmp_path), nonsense)
        assert status == 1 and [next(iter(message)) for message in messages] == ["ready", "fatal"]
        assert not born.alive()


def test_a_worker_ends_when_nobody_listens_any_more(tmp_path: Path) -> None:
    asked = {"submit": 1, "prompt": [1], "sampling": {**asdict(LONG), "greedy": True}}
    with births() as born:
        status, messages = worker_alone(stand_in_engine(tmp_path), json.dumps(asked).encode() + b"\n")
        assert status == 0 and "ready" in messages[0] and not born.alive()


class Client(EngineJob):
    def __init__(self) -> None:
        super().__init__((PROMPT,), (LONG,))
        self.events: list[Event] = []

    def deliver(self, row: int, event: Event) -> None:
        self.events.append(event)


def test_a_full_queue_and_a_killed_worker_behind_the_loop(tmp_path: Path) -> None:
    with births() as born:
        engine = VllmEngine(stand_in_engine(tmp_path, max_batch_size=2))
        (worker,) = workers(born.alive())
    loop: EngineLoop[Client] = EngineLoop(engine, Client.deliver, max_waiting=2)
    clients = [Client() for _ in range(4)]
    for client in clients:
        loop.submit(client)
    with pytest.raises(JobQueueFull):
        loop.submit(Client())
    until(lambda: clients[0].events, "a first token")
    worker.kill()
    until(lambda: all(map(failed, clients)), "their failures")
    with pytest.raises(EngineError, match="broken"):
        loop.submit(Client())
    loop.close("the end")
    engine.close()


def failed(client: Client) -> bool:
    return bool(client.events) and isinstance(client.events[-1], Failed) and "ended" in client.events[-1].reason
