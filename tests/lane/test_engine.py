"""The engine against transformers, and its own promises: batching, streaming, ends, limits."""

import re
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cpu_serving.engine import Completion, Engine, EngineLogits, Output, Sampling
from serving_base.errors import EngineError, MissingArtifact
from serving_base.quality import log_softmax
from tiny_llama.data import prompt_ids, read_questions

ROOT = Path(__file__).parents[2]
END_ID = 2047  # <|eot_id|>


@pytest.fixture(scope="module")
def prompts(tokenizer: Any) -> list[list[int]]:
    return [prompt_ids(tokenizer, item["question"]) for item in read_questions("train")[:20]]


@pytest.fixture
def engine(bf16_engine: Path) -> Iterator[Engine]:
    with Engine(bf16_engine, threads=1, record_steps=True) as engine:
        yield engine


def drain(engine: Engine) -> list[Output]:
    outputs = []
    while engine.has_work:
        outputs += engine.step()
    return outputs


def test_greedy_tokens_equal_transformers(engine: Engine, prompts: list[list[int]], float32_model: Any) -> None:
    import torch

    answers = engine.generate(prompts, Sampling(24, end_id=END_ID))
    for prompt, answer in zip(prompts, answers, strict=True):
        ids = torch.tensor([prompt])
        with torch.inference_mode():
            out = float32_model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=24, do_sample=False)
        ended = [END_ID] if answer.finish_reason == "end_id" else []
        assert [*answer.token_ids, *ended] == out[0, len(prompt) :].tolist()
    assert len(answers) >= 16
    assert {answer.finish_reason for answer in answers} <= {"end_id", "length"}
    assert any(answer.finish_reason == "end_id" for answer in answers)


def test_end_id_minus_one_never_stops(engine: Engine, prompts: list[list[int]]) -> None:
    short = engine.generate(prompts[:4], Sampling(30, end_id=END_ID))
    for never in (-1, None):
        long = engine.generate(prompts[:4], Sampling(30, end_id=never))
        assert [len(answer.token_ids) for answer in long] == [30] * 4
        assert {answer.finish_reason for answer in long} == {"length"}
        for stopped, going in zip(short, long, strict=True):
            assert going.token_ids[: len(stopped.token_ids)] == stopped.token_ids
    assert any(len(answer.token_ids) < 30 for answer in short)


def test_stream_gives_the_same_tokens_one_by_one(engine: Engine, prompts: list[list[int]]) -> None:
    [whole] = engine.generate(prompts[:1], Sampling(12))
    pieces = list(engine.stream(prompts[0], Sampling(12)))
    assert [len(piece.token_ids) for piece in pieces] == [1] * 12
    assert tuple(token for piece in pieces for token in piece.token_ids) == whole.token_ids
    assert [piece.finish_reason for piece in pieces] == [""] * 11 + ["length"]


def test_leaving_a_stream_cancels_its_request(engine: Engine, prompts: list[list[int]]) -> None:
    stream = engine.stream(prompts[0], Sampling(60))
    next(stream)
    assert engine.active == 1 and isinstance(stream, Generator)
    stream.close()
    assert engine.active == 0
    assert not engine.has_work


def test_cancelled_requests_say_so_and_free_their_blocks(engine: Engine, prompts: list[list[int]]) -> None:
    for number in range(5):  # one more than max_batch_size: the last waits
        engine.submit(number, prompts[number], Sampling(60))
    while engine.stats().generation < 4:
        engine.step()
    assert engine.stats().kv_blocks_used > 0
    assert (engine.active, engine.waiting) == (4, 1)
    assert engine.cancel(0)
    assert engine.cancel(4)
    assert not engine.cancel(99)
    ends = [output for output in engine.step() if output.finish_reason]
    assert ends == [Output(0, 0, (), (), "cancelled"), Output(4, 0, (), (), "cancelled")]
    assert (engine.active, engine.waiting) == (3, 0)
    for number in (1, 2, 3):
        engine.cancel(number)
    drain(engine)
    assert engine.stats().kv_blocks_used == 0
    engine.submit(0, prompts[0], Sampling(1))  # a finished request's id may be used again
    assert drain(engine)[-1].finish_reason == "length"


def test_stop_word_ends_the_answer_and_stays_in_it(engine: Engine, prompts: list[list[int]]) -> None:
    [whole] = engine.generate(prompts[:1], Sampling(12))
    word = whole.token_ids[3:5]
    first = next(i for i in range(12) if whole.token_ids[i : i + 2] == word)
    [stopped] = engine.generate(prompts[:1], Sampling(12, stop_words=((2045,), word), log_probs=True))
    assert stopped.token_ids == whole.token_ids[: first + 2]
    assert len(stopped.log_probs) == first + 2
    assert stopped.finish_reason == "stop_words"
    [kept] = engine.generate(prompts[:1], Sampling(12, stop_words=((2045,),)))
    assert kept == whole


@pytest.mark.parametrize("sampling", [Sampling(10, log_probs=True), Sampling(10, top_k=40, seed=3, log_probs=True)])
def test_log_probs_are_those_of_the_model(
    bf16_engine: Path, engine: Engine, prompts: list[list[int]], sampling: Sampling
) -> None:
    [answer] = engine.generate(prompts[:1], sampling)
    scores = log_softmax(EngineLogits(bf16_engine, threads=1)([*prompts[0], *answer.token_ids]))
    expected = [scores[len(prompts[0]) + i - 1, token] for i, token in enumerate(answer.token_ids)]
    assert answer.log_probs == pytest.approx(expected, abs=1e-3)
    assert all(value <= 0 for value in answer.log_probs)
    assert len(set(answer.log_probs)) > 1


def test_a_seed_fixes_a_sampled_answer(engine: Engine, prompts: list[list[int]]) -> None:
    def ask(seed: int | None, others: int = 0) -> Completion:
        wanted = Sampling(16, top_k=0, temperature=1.5, seed=seed)
        return engine.generate(prompts[: others + 1], [wanted] + [Sampling(20, top_k=5, seed=9)] * others)[0]

    assert ask(1) == ask(1) == ask(1, others=3)
    assert ask(1) != ask(2)
    assert ask(None) == ask(0)


def test_several_sequences_of_one_prompt(engine: Engine, prompts: list[list[int]]) -> None:
    sampled = engine.generate(prompts[:1], Sampling(12, top_k=0, temperature=1.5, num_return_sequences=3))
    assert len({answer.token_ids for answer in sampled}) == 3
    greedy = engine.generate(prompts[:1], Sampling(12, num_return_sequences=2))
    assert greedy[0] == greedy[1] == engine.generate(prompts[:1], Sampling(12))[0]


@pytest.mark.parametrize("greedy", [{"top_k": 0, "top_p": 0.0}, {"top_k": 5, "temperature": 0.0}])
def test_zero_temperature_or_top_p_is_greedy(engine: Engine, prompts: list[list[int]], greedy: dict[str, Any]) -> None:
    assert engine.generate(prompts[:1], Sampling(8, **greedy)) == engine.generate(prompts[:1], Sampling(8))


@pytest.mark.parametrize(
    "penalty", [{"repetition_penalty": 2.0}, {"presence_penalty": 2.0}, {"frequency_penalty": 2.0}]
)
def test_penalties_change_the_answer(engine: Engine, prompts: list[list[int]], penalty: dict[str, Any]) -> None:
    assert engine.generate(prompts[:4], Sampling(40, **penalty)) != engine.generate(prompts[:4], Sampling(40))


def test_a_request_joins_a_running_batch(engine: Engine, prompts: list[list[int]]) -> None:
    alone = engine.generate([prompts[1]], Sampling(4))[0].token_ids
    engine.submit(1, prompts[0], Sampling(30))
    for _ in range(10):
        engine.step()
    engine.submit(2, prompts[1], Sampling(4))
    joined = engine.step()
    assert {output.request_id for output in joined} == {1, 2}
    outputs = joined + drain(engine)
    late = [output for output in outputs if output.request_id == 2]
    assert tuple(token for output in late for token in output.token_ids) == alone
    assert outputs.index(late[-1]) < len(outputs) - 1  # the newcomer finished first


def test_static_batch_holds_its_slots_until_all_have_finished(bf16_engine: Path, prompts: list[list[int]]) -> None:
    """Eight requests in four slots, answers of 4 and 20 tokens by turns."""
    short = [prompt[-8:] for prompt in prompts[:8]]  # all prompts fit one step, so steps are decode steps
    samplings = [Sampling(4 if number % 2 else 20) for number in range(8)]
    steps, answers, padding = {}, {}, {}
    for batching in ("inflight", "static"):
        with Engine(bf16_engine, threads=1, batching=batching, record_steps=True) as engine:
            answers[batching] = engine.generate(short, samplings)
            steps[batching] = len(engine.records)
            padding[batching] = sum(list(record.phases.values()).count("padding") for record in engine.records)
            tokens = sum(sum(record.new_tokens.values()) for record in engine.records)
            assert tokens == 4 * 4 + 4 * 20
            assert all(len(record.phases) <= 4 for record in engine.records)
    assert answers["static"] == answers["inflight"]
    assert steps["static"] == 2 * 20
    assert padding["static"] == 2 * 2 * (20 - 4)
    assert steps["inflight"] < steps["static"]
    assert padding["inflight"] == 0


def test_no_request_joins_a_static_batch(bf16_engine: Path, prompts: list[list[int]]) -> None:
    with Engine(bf16_engine, threads=1, batching="static", record_steps=True) as engine:
        engine.submit(1, prompts[0][-8:], Sampling(6))
        engine.step()
        engine.submit(2, prompts[1][-8:], Sampling(6))
        drain(engine)
        assert [set(record.phases) for record in engine.records] == [{1}] * 6 + [{2}] * 6


def test_block_reuse_skips_the_cached_part_of_a_prompt(bf16_engine: Path, prompts: list[list[int]]) -> None:
    prompt = [token for ids in prompts for token in ids][:300]  # 5 steps of at most 64 tokens

    def context_steps(reuse: bool) -> list[int]:
        with Engine(bf16_engine, threads=1, enable_block_reuse=reuse, record_steps=True) as engine:
            counts = []
            for _ in range(2):
                engine.records.clear()
                engine.generate([prompt], Sampling(2))
                counts.append(sum(record.phases[0] == "context" for record in engine.records))
            return counts

    assert context_steps(reuse=False) == [5, 5]
    assert context_steps(reuse=True) == [5, 1]


def test_a_small_cache_pool_changes_no_answer(bf16_engine: Path, engine: Engine, prompts: list[list[int]]) -> None:
    expected = engine.generate(prompts[:6], Sampling(60))
    with Engine(bf16_engine, threads=1, kv_cache_blocks=6) as tight:
        assert tight.generate(prompts[:6], Sampling(60)) == expected


def test_threads_may_submit_while_one_steps(engine: Engine, prompts: list[list[int]]) -> None:
    expected = [answer.token_ids for answer in engine.generate(prompts[:16], Sampling(6))]
    clients = [threading.Thread(target=engine.submit, args=(n, prompts[n], Sampling(6))) for n in range(16)]
    for client in clients:
        client.start()
    outputs: list[Output] = []
    while any(client.is_alive() for client in clients) or engine.has_work:
        outputs += engine.step()
    got = [tuple(t for o in outputs if o.request_id == n for t in o.token_ids) for n in range(16)]
    assert got == expected


@pytest.mark.parametrize(
    ("prompt", "sampling", "reason"),
    [
        ([], Sampling(4), "prompt is empty"),
        ([1] * 321, Sampling(4), "max_input_len 320"),
        ([1] * 320, Sampling(193), "max_seq_len 512"),
        ([1, 2048], Sampling(4), "outside the vocabulary"),
        ([1, -1], Sampling(4), "outside the vocabulary"),
        ([1], Sampling(0), "max_new_tokens is 0"),
        ([1], Sampling(4, temperature=-1.0), "temperature"),
        ([1], Sampling(4, top_k=-1), "top_k is -1"),
        ([1], Sampling(4, top_p=1.5), "top_p is 1.5"),
        ([1], Sampling(4, top_k=5, top_p=0.0), "top_p is 0"),
        ([1], Sampling(4, repetition_penalty=0.0), "repetition_penalty"),
        ([1], Sampling(4, presence_penalty=3.0), "presence_penalty"),
        ([1], Sampling(4, seed=-1), "seed"),
        ([1], Sampling(4, num_return_sequences=0), "num_return_sequences is 0"),
        ([1], Sampling(4, num_return_sequences=5), "max_batch_size 4"),
        ([1], Sampling(4, stop_words=((),)), "stop word"),
    ],
)
def test_impossible_requests_are_refused(engine: Engine, prompt: list[int], sampling: Sampling, reason: str) -> None:
    with pytest.raises(EngineError, match=reason):
        engine.submit(1, prompt, sampling)
    assert not engine.has_work


def test_request_larger_than_the_pool_is_refused(bf16_engine: Path) -> None:
    reason = "3 KV cache blocks are needed, 2 exist"
    with Engine(bf16_engine, threads=1, kv_cache_blocks=2) as engine, pytest.raises(EngineError, match=reason):
        engine.submit(1, [1] * 60, Sampling(8))


def test_request_that_the_scheduler_drops_ends_as_refused(bf16_engine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Engine(bf16_engine, threads=1, kv_cache_blocks=2) as engine:
        monkeypatch.setattr(type(engine.config), "check_fits", lambda *_: None)
        engine.submit(1, [1] * 200, Sampling(8))
        assert drain(engine)[-1] == Output(1, 0, (), (), "refused")


def test_busy_engine_and_running_ids_are_refused(engine: Engine) -> None:
    engine.submit(1, [1], Sampling(4))
    with pytest.raises(EngineError, match="already running"):
        engine.submit(1, [1], Sampling(4))
    with pytest.raises(EngineError, match="busy"):
        engine.generate([[1]], Sampling(4))
    with pytest.raises(EngineError, match="2 prompts but 1 samplings"):
        engine.generate([[1], [2]], [Sampling(4)])


def test_a_refused_prompt_leaves_nothing_behind(engine: Engine, prompts: list[list[int]]) -> None:
    with pytest.raises(EngineError, match="max_input_len"):
        engine.generate([prompts[0], [1] * 400], Sampling(4))
    assert not engine.has_work


def test_closed_engine_refuses(bf16_engine: Path, prompts: list[list[int]]) -> None:
    engine = Engine(bf16_engine, threads=1)
    engine.submit(1, prompts[0], Sampling(20))
    engine.step()
    engine.close()
    engine.close()
    assert not engine.has_work
    with pytest.raises(EngineError, match="closed"):
        engine.submit(2, prompts[0], Sampling(4))


def test_folders_and_settings_that_are_no_engine(bf16_engine: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingArtifact, match="no engine in"):
        Engine(tmp_path)
    with pytest.raises(EngineError, match="unknown batching"):
        Engine(bf16_engine, batching="dynamic")  # type: ignore[arg-type]
    (tmp_path / "openvino_model.xml").write_text("<net/>")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(EngineError, match="is not an engine's config"):
        Engine(tmp_path)
    (tmp_path / "config.json").write_bytes((bf16_engine / "config.json").read_bytes())
    with pytest.raises(EngineError, match="did not load"):
        Engine(tmp_path)


@pytest.mark.parametrize(
    ("key", "reason"), [("use_paged_kv_cache", "without a paged"), ("enable_block_reuse", "not built for block reuse")]
)
def test_what_was_not_built_in_cannot_be_used(bf16_engine: Path, tmp_path: Path, key: str, reason: str) -> None:
    text = (bf16_engine / "config.json").read_text()
    (tmp_path / "config.json").write_text(text.replace(f'"{key}": true', f'"{key}": false'))
    (tmp_path / "openvino_model.xml").touch()
    with pytest.raises(EngineError, match=reason):
        Engine(tmp_path, enable_block_reuse=True)


def test_stats_count_what_runs(engine: Engine, prompts: list[list[int]]) -> None:
    idle = engine.stats()
    assert (idle.active, idle.waiting, idle.kv_blocks_used, idle.steps) == (0, 0, 0, 0)
    assert (idle.max_active, idle.tokens_per_block, idle.kv_blocks_max) == (4, 32, 4 * 512 // 32)
    engine.submit(1, prompts[0][:8], Sampling(40))
    engine.step()
    one = engine.stats()
    assert (one.active, one.context, one.generation, one.scheduled, one.steps) == (1, 0, 1, 1, 1)
    assert (one.kv_blocks_used, one.kv_blocks_free) == (1, one.kv_blocks_max - 1)
    for _ in range(30):
        engine.step()
    assert engine.stats().kv_blocks_used == 2  # 8 + 31 tokens in blocks of 32


def test_engine_logits_do_not_remember(bf16_engine: Path, prompts: list[list[int]]) -> None:
    logits = EngineLogits(bf16_engine, threads=1)
    first = logits(prompts[0])
    logits(prompts[1])
    assert first.shape == (len(prompts[0]), 2048)
    assert first.dtype == np.float32
    np.testing.assert_array_equal(logits(prompts[0]), first)


def test_engine_needs_no_training_libraries() -> None:
    """The Triton environment has none of them."""
    blocked = "; ".join(f"sys.modules[{name!r}] = None" for name in ("torch", "transformers", "pydantic", "ml_dtypes"))
    code = f"import sys; {blocked}; import cpu_serving.engine as e; assert 'openvino' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_openvino_is_imported_in_one_place() -> None:
    direct = re.compile(r"^\s*(import|from) openvino", re.MULTILINE)
    assert not [
        path
        for name in ("playbook", "packages")
        for path in (ROOT / name).rglob("*.py")
        if direct.search(path.read_text())
    ]


def test_openvino_is_imported_without_its_telemetry(tmp_path: Path) -> None:
    """A stand-in for openvino_telemetry, which set-up leaves out, keeps what it would have decided by."""
    (tmp_path / "openvino_telemetry" / "backend").mkdir(parents=True)
    (tmp_path / "openvino_telemetry" / "backend" / "backend_ga4.py").touch()
    (tmp_path / "openvino_telemetry" / "__init__.py").write_text(
        "import os\nseen = os.environ.get('CI')\n"
        "class Telemetry:\n"
        "    def __init__(self, **_): pass\n"
        "    def send_event(self, *_, **__): pass\n"
    )
    code = (
        f"import os, sys; os.environ.pop('CI', None); sys.path.insert(0, {str(tmp_path)!r})\n"
        "from cpu_serving.runtime import openvino_genai\n"
        "openvino_genai()\n"
        "import openvino_telemetry\n"
        "assert openvino_telemetry.seen == 'true', openvino_telemetry.seen\n"
        "assert 'CI' not in os.environ\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
