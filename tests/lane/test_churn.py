"""Every request gets its own answer, and every block comes back: the engine under churn (docs/engine-reuse.md)."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.churn.churn import Ask, End, ask_alone, churn, write_asks
from benchmarks.churn.servers import CHURN_OPTIONS
from cpu_serving.build import build_engine
from cpu_serving.config import EngineConfig
from cpu_serving.decoding import SHARED, UNTAGGED, tag_prompt
from cpu_serving.engine import Completion, Engine, Output, Sampling
from serving_base.errors import EngineError
from tiny_llama import MODEL_DIR

ROOT = Path(__file__).parents[2]
START = list(range(100, 110))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prompts of 64 tokens and more are computed in chunks."""
    out = tmp_path_factory.mktemp("churn") / "engine"
    build_engine(MODEL_DIR, out, CHURN_OPTIONS)
    return out


@pytest.mark.parametrize(
    "options",
    [
        ("--reuse", "--requests", "500"),
        ("--reuse", "--requests", "400", "--blocks", "24", "--live", "40", "--no-close"),
        ("--no-reuse", "--requests", "300", "--close"),
        ("--no-reuse", "--requests", "350", "--blocks", "24", "--live", "40", "--no-close"),
    ],
)
def test_churn_changes_no_answer_and_leaks_no_block(folder: Path, options: Sequence[str]) -> None:
    """Alone in a process: the library tells of leaked blocks when it is unloaded; closed or not, there are none."""
    command = [sys.executable, "-m", "benchmarks.churn.run", str(folder), *options]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    report = json.loads(ended.stdout.splitlines()[0])
    assert report["wrong"] == 0, report["examples"]
    assert sum(report["answered"].values()) + report["cancelled"] == int(options[2])
    assert report["cancelled"] > 5 and min(report["answered"].values()) > 30
    assert "leaked" not in ended.stdout + ended.stderr


class MixedUp:
    """A lane that gives every tenth request the answer of the one before it."""

    def __init__(self) -> None:
        self.live: list[tuple[int, Ask]] = []
        self.last: tuple[int, ...] = ()
        self.count = 0

    def submit(self, number: int, ask: Ask) -> None:
        self.live.append((number, ask))

    def cancel(self, number: int) -> None:
        pass

    def collect(self) -> list[End]:
        number, ask = self.live.pop(0)
        self.count += 1
        own = tuple(map(ord, ask.text))
        given = self.last if self.count % 10 == 0 else own
        self.last = own
        return [End(number, given)]


def test_the_harness_sees_answers_that_are_mixed_up() -> None:
    asks = write_asks()
    report = churn(MixedUp(), {ask: tuple(map(ord, ask.text)) for ask in asks}, 300)
    assert 20 <= len(report.wrong) <= 30
    assert all(wrong.other for wrong in report.wrong)
    assert report.ended == 300 and set(report.answered) == {"short", "blocks", "long", "identical", "random"}


def test_the_harness_asks_alone_first() -> None:
    lane = MixedUp()
    asks = write_asks()[:5]
    assert ask_alone(lane, asks) == {ask: tuple(map(ord, ask.text)) for ask in asks}


# ---- the smallest cases


def drain(engine: Engine, outputs: Sequence[Output] = ()) -> list[tuple[int, ...]]:
    """The tokens of each request, in order of ids; ``outputs``: what has come already."""
    outputs = list(outputs)
    while engine.has_work:
        outputs += engine.step()
    numbers = sorted({output.request_id for output in outputs})
    return [tuple(token for o in outputs if o.request_id == number for token in o.token_ids) for number in numbers]


def alone(folder: Path, prompts: Sequence[Sequence[int]], sampling: Sampling) -> list[Completion]:
    with Engine(folder, threads=1, enable_block_reuse=False) as engine:
        return [engine.generate([prompt], sampling)[0] for prompt in prompts]


@pytest.mark.parametrize("penalty", [1.0, 1.3])
def test_two_prompts_that_go_on_from_a_partly_filled_block(folder: Path, penalty: float) -> None:
    prompts, sampling = ([*START, 500], [*START, 600]), Sampling(8, repetition_penalty=penalty)
    right = [answer.token_ids for answer in alone(folder, prompts, sampling)]
    with Engine(folder, threads=1, enable_block_reuse=True) as engine:
        engine.generate([START], Sampling(1, repetition_penalty=penalty))
        for number, prompt in enumerate(prompts):
            engine.submit(number, prompt, sampling)
        assert drain(engine) == right


def test_a_prompt_dropped_while_it_is_computed_leaves_no_block(folder: Path) -> None:
    prompt = list(range(300, 400))
    [right] = alone(folder, [prompt], Sampling(8))
    with Engine(folder, threads=1, enable_block_reuse=True) as engine:
        engine.submit(0, list(range(200, 260)), Sampling(6))
        engine.submit(1, prompt, Sampling(8))
        engine.step()  # of 64 tokens 60 are the first one's: the second one's block of 32 has four
        assert engine.cancel(1)
        assert Output(1, 0, (), (), "cancelled") in engine.step()
        drain(engine)
        assert engine.generate([prompt], Sampling(8)) == [right]


def test_nobody_joins_while_a_prompt_is_computed_in_part(folder: Path) -> None:
    long, short = list(range(300, 500)), list(range(300, 340))  # four steps; a beginning of it
    right = [answer.token_ids for answer in alone(folder, [long, short], Sampling(8))]
    with Engine(folder, threads=1, enable_block_reuse=True) as engine:
        engine.submit(0, long, Sampling(8))
        outputs = engine.step()
        engine.submit(1, short, Sampling(8))
        outputs += engine.step()
        assert (engine.active, engine.waiting) == (1, 1)
        assert drain(engine, outputs) == right


def test_a_request_waits_for_blocks_and_nobody_is_preempted(folder: Path) -> None:
    prompts = [list(range(n, n + 60)) for n in range(300, 304)]  # three blocks each
    right = [answer.token_ids for answer in alone(folder, prompts, Sampling(30))]
    for reuse in (False, True):
        with Engine(folder, threads=1, enable_block_reuse=reuse, kv_cache_blocks=7) as engine:
            for number, prompt in enumerate(prompts):
                engine.submit(number, prompt, Sampling(30))
            outputs = engine.step()
            assert (engine.active, engine.waiting) == (2, 2)
            assert drain(engine, outputs) == right


def test_an_id_is_free_only_when_its_last_word_is_out(folder: Path) -> None:
    """Else the "cancelled" of the old request would end the new one."""
    with Engine(folder, threads=1) as engine:
        engine.submit(7, START, Sampling(20))
        engine.step()
        engine.cancel(7)
        with pytest.raises(EngineError, match="already running"):
            engine.submit(7, START, Sampling(2))
        assert [output.finish_reason for output in engine.step()] == ["cancelled"]
        engine.submit(7, START, Sampling(2))
        assert [output.finish_reason for output in engine.step() + engine.step()] == ["", "length"]


def test_whole_blocks_are_found_and_the_rest_is_ones_own(folder: Path) -> None:
    config = EngineConfig.read(folder)
    vocab = config.vocab_size
    tagged = tag_prompt(range(64), 5, config)
    assert tagged == [n + SHARED * vocab for n in range(32)] + [n + 5 * vocab for n in range(32, 64)]
    assert tag_prompt(range(65), 5, config)[63:] == [63 + SHARED * vocab, 64 + 5 * vocab]
    assert tag_prompt(range(40), UNTAGGED, config) == list(range(40))


def test_reuse_is_off_in_a_folder_without_tags(folder: Path, tmp_path: Path) -> None:
    old = tmp_path / "old"
    build_engine(MODEL_DIR, old, CHURN_OPTIONS)
    config = json.loads((old / "config.json").read_text())
    del config["build_config"]["tagged_prompts"]
    (old / "config.json").write_text(json.dumps(config))
    with Engine(old, threads=1) as engine:
        assert not engine.block_reuse
    with pytest.raises(EngineError, match="another one's answer"):
        Engine(old, threads=1, enable_block_reuse=True)
    with Engine(folder, threads=1) as engine:
        assert engine.block_reuse
