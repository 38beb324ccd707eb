"""The embedded engine in a process of its own: as the engine itself, and what happens when one of the two ends."""

import os
import queue
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from cpu_serving.apart import SILENCE_S, EngineApart
from cpu_serving.engine import Engine
from model_server.answers import complete
from model_server.engines import EngineOptions, opener_of
from model_server.loop import EngineJob, EngineLoop, Event, Failed
from model_server.protocol import EngineHung, Output, Sampling
from serving import build_tiny_engine
from serving_base.errors import EngineError, MissingArtifact
from waiting import LIMIT_S, until

PROMPTS = [[5, 6, 7], [8, 9], list(range(40))]
SAMPLING = Sampling(max_new_tokens=12, end_id=-1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_engine(tmp_path_factory.mktemp("engine") / "engine")


@pytest.fixture
def engine(folder: Path) -> Iterator[EngineApart]:
    made = EngineApart(folder, threads=1)
    yield made
    made.close()


def test_it_answers_as_the_engine_does(folder: Path, engine: EngineApart) -> None:
    with Engine(folder, threads=1) as other:
        expected = other.generate(PROMPTS, SAMPLING)
    assert complete(engine, PROMPTS, SAMPLING) == expected
    assert engine.stats().steps > 0
    assert not engine.has_work


def test_servers_open_it_and_others_do_not(folder: Path) -> None:
    for apart, kind in ((True, EngineApart), (False, Engine)):
        opened = opener_of(folder).open_engine(folder, EngineOptions(threads=1, apart=apart))
        assert type(opened) is kind
        opened.close()


@pytest.mark.parametrize(
    ("prompt", "sampling", "words"),
    [
        ((5,), Sampling(max_new_tokens=5000), "exceed max_seq_len 768"),
        ((99999,), SAMPLING, "outside the vocabulary"),
        ((5,), Sampling(max_new_tokens=0), "ask for at least 1 new token|max_new_tokens is 0"),
    ],
)
def test_what_can_never_run_is_refused_at_once(
    engine: EngineApart, prompt: tuple[int, ...], sampling: Sampling, words: str
) -> None:
    with pytest.raises(EngineError, match=words):
        engine.submit(0, prompt, sampling)
    assert not engine.has_work


def test_an_id_is_for_one_request_at_a_time(engine: EngineApart) -> None:
    engine.submit(0, (5, 6), SAMPLING)
    with pytest.raises(EngineError, match="already running"):
        engine.submit(0, (5, 6), SAMPLING)


def test_a_cancelled_request_says_so_and_frees_its_blocks(engine: EngineApart) -> None:
    engine.submit(3, (5, 6), Sampling(max_new_tokens=600, end_id=-1))
    until(lambda: engine.step(), "its first token")
    assert engine.stats().kv_blocks_used > 0
    assert engine.cancel(3)
    reasons: list[str] = []
    while engine.has_work:
        reasons += [output.finish_reason for output in engine.step()]
    assert reasons[-1] == "cancelled"
    assert not engine.cancel(3)
    until(lambda: engine.stats().kv_blocks_used == 0, "its blocks are free")


def test_a_killed_process_is_told_of_and_the_engine_is_closed(engine: EngineApart) -> None:
    engine.submit(0, (5, 6), Sampling(max_new_tokens=700, end_id=-1))
    until(lambda: engine.step(), "its first token")
    os.kill(engine.pid, signal.SIGKILL)
    with pytest.raises(EngineError, match="the engine's process ended") as told:
        until(lambda: engine.step() is None, "never: it raises")
    assert told.value.why == "exit status -9"
    assert engine.closed
    with pytest.raises(EngineError, match="closed"):
        engine.submit(1, (5, 6), SAMPLING)


def test_a_process_that_ended_while_idle_is_noticed_by_its_figures(engine: EngineApart) -> None:
    os.kill(engine.pid, signal.SIGKILL)
    with pytest.raises(EngineError, match="the engine's process ended"):
        until(lambda: engine.stats() is None, "never: it raises")


def test_a_process_that_hangs_is_ended_with_its_stack_in_the_log_and_another_one_answers(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with Engine(folder, threads=1) as other:
        expected = other.generate(PROMPTS[:1], SAMPLING)
    hanging(tmp_path, monkeypatch)
    engine = EngineApart(folder, threads=1, silence_s=0.5)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # the next process is a healthy one
    first = engine.pid
    for number in range(2):
        engine.submit(number, (5, 6), SAMPLING)
    with pytest.raises(EngineHung, match=r"the engine's process hung: no token for 0\.5 s") as told:
        until(lambda: engine.step() is None, "never: it raises")
    assert "2 requests ran and were dropped" in told.value.why and str(first) in told.value.why
    stack = capfd.readouterr().err
    assert "in hang" in stack and "in serve" in stack, stack
    assert not psutil.pid_exists(first) and engine.pid != first
    assert not engine.closed and not engine.has_work
    monkeypatch.setattr(engine, "_silence_s", SILENCE_S)
    assert complete(engine, PROMPTS[:1], SAMPLING) == expected
    engine.close()


def hanging(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on a new process of the engine hangs in its first step, in C and with Python's lock held."""
    (folder / "sitecustomize.py").write_text(
        "import ctypes, sys\n"
        "def hang(engine):\n"
        "    ctypes.PyDLL(None).sleep(1000)\n"
        "if 'cpu_serving.worker' in sys.orig_argv:\n"
        "    from cpu_serving.engine import Engine\n"
        "    Engine.step = hang\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *sys.path]))


def test_a_server_tells_of_a_hung_engine_by_name_and_answers_the_next(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging(tmp_path, monkeypatch)
    engine = EngineApart(folder, threads=1, silence_s=0.5)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    with EngineLoopOf(engine) as ask:
        lost = ask((5, 6))
        assert isinstance(lost, Failed) and "the engine's process hung" in lost.reason
        engine._silence_s = SILENCE_S
        later = ask((5, 6))
        assert isinstance(later, Output) and later.finish_reason == "length"


class EngineLoopOf:
    """The loop as a server has it; called with a prompt, the last event of its job."""

    def __init__(self, engine: EngineApart) -> None:
        self._engine, self._events = engine, queue.SimpleQueue[Event]()
        self._loop = EngineLoop[EngineJob](
            engine, lambda job, row, event: self._events.put(event), survives=(EngineHung,)
        )

    def __enter__(self) -> "EngineLoopOf":
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.close("the end")
        self._engine.close()

    def __call__(self, prompt: tuple[int, ...]) -> Event:
        self._loop.submit(EngineJob((prompt,), (SAMPLING,)))
        while isinstance(event := self._events.get(timeout=LIMIT_S), Output) and not event.finish_reason:
            pass
        return event


def test_close_ends_the_process_and_may_come_twice(engine: EngineApart) -> None:
    pid = engine.pid
    engine.submit(0, (5, 6), Sampling(max_new_tokens=700, end_id=-1))
    engine.close()
    engine.close()
    assert not psutil.pid_exists(pid)
    assert not engine.has_work


def test_the_process_ends_with_its_parent(folder: Path) -> None:
    program = f"""
import sys, time
from pathlib import Path
from cpu_serving.apart import EngineApart
engine = EngineApart(Path({str(folder)!r}), threads=1)
print(engine.pid, flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    until(lambda: not psutil.pid_exists(pid), "the engine's process ends")


def test_a_folder_that_does_not_load_says_what_the_engine_says(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingArtifact, match="no engine in"):
        EngineApart(tmp_path)
    for name in ("config.json", "openvino_model.xml"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    (tmp_path / "openvino_model.bin").write_bytes(b"")
    with pytest.raises(EngineError, match="did not load"):
        EngineApart(tmp_path)
