import threading
import time
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from model_server.engines import Logits
from model_server.protocol import EngineLimits, EngineStats, FinishReason, Output, Sampling
from model_server.text import TextCodec
from model_server.triton.batcher import CANCEL_CHECK_SHARE, MAX_CANCEL_CHECK_S, Batcher, Figures, each_token
from model_server.triton.outbox import Outbox
from model_server.triton.tensors import (
    GenerationRequest,
    SequenceState,
    is_stop,
    next_tensors,
    read_request,
    read_words,
)
from model_server.triton.token_times import TokenTimes, read_token_times
from serving_base.errors import EnvironmentProblem, RequestRefused
from tiny_llama import MODEL_DIR
from waiting import until

Tensors = dict[str, np.ndarray]


def tensors(**more: object) -> Tensors:
    """The inputs of the smallest request, as Triton hands them over after its reshape."""
    base = {
        "input_ids": np.array([[5, 6, 7]], np.int32),
        "input_lengths": np.array([3], np.int32),
        "request_output_len": np.array([4], np.int32),
    }
    return base | {name: np.asarray(value) for name, value in more.items()}


def read(decoupled: bool = True, exclude_input: bool = False, **more: object) -> GenerationRequest:
    return read_request(tensors(**more), decoupled=decoupled, exclude_input=exclude_input)


# ---- requests


def test_the_smallest_request_is_greedy_and_never_stops_early() -> None:
    request = read()
    assert request.prompts == ((5, 6, 7),)
    sampling = request.samplings[0]
    assert (sampling.max_new_tokens, sampling.end_id, sampling.greedy, sampling.seed) == (4, -1, True, 0)
    assert not request.streaming
    assert not request.exclude_input


@pytest.mark.parametrize(
    ("given", "greedy", "top_k", "top_p"),
    [
        ({"runtime_top_k": [1], "runtime_top_p": [0.0]}, True, 1, 1.0),
        ({"runtime_top_k": [0], "runtime_top_p": [0.0]}, True, 1, 1.0),
        ({"runtime_top_k": [50], "runtime_top_p": [0.0]}, False, 50, 1.0),
        ({"runtime_top_p": np.array([0.5])}, False, 0, 0.5),
    ],
)
def test_sampling_follows_tensorrt_llms_defaults(given: dict[str, Any], greedy: bool, top_k: int, top_p: float) -> None:
    sampling = read(**given).samplings[0]
    assert (sampling.greedy, sampling.top_k, sampling.top_p) == (greedy, top_k, top_p)


def test_seed_goes_by_both_names() -> None:
    assert read(random_seed=np.array([7], np.uint64)).samplings[0].seed == 7
    assert read(seed=np.array([8], np.uint64)).samplings[0].seed == 8


def test_what_clients_send_by_habit_changes_nothing() -> None:
    assert (
        read(
            pad_id=[2],
            decoder_input_ids=[[2]],
            decoder_input_lengths=[1],
            beam_width=[1],
            len_penalty=[1.0],
            early_stopping=[True],
            min_length=[1],
            runtime_top_p_decay=[1.0],
            embedding_bias=np.empty((1, 0), np.float32),
            bad_words_list=np.empty((1, 2, 0), np.int32),
            return_kv_cache_reuse_stats=[False],
        )
        == read()
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"request_output_len": [0]}, "request_output_len is 0"),
        ({"request_output_len": [-1294967296]}, "request_output_len is -1294967296"),
        ({"input_lengths": [4]}, "input_lengths is 4 and input_ids holds 3 tokens"),
        ({"input_lengths": [0]}, "input_lengths is 0"),
        ({"beam_width": [4]}, "beam_width is 4"),
        ({"bad_words_list": [[[9], [1]]]}, "no bad words"),
        ({"embedding_bias": [[0.5]]}, "does not take embedding_bias"),
        ({"draft_input_ids": [[1]]}, "does not take draft_input_ids"),
        ({"lora_task_id": [1]}, "has no LoRA adapters"),
        ({"runtime_top_p_decay": [0.5]}, "takes runtime_top_p_decay only as 1.0"),
        ({"min_length": [5]}, "no min_length above 1"),
        ({"return_kv_cache_reuse_stats": [True]}, "return_kv_cache_reuse_stats"),
    ],
)
def test_what_the_engine_cannot_do_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestRefused, match=message):
        read(**given)


def test_one_answer_models_refuse_streams_and_several_answers() -> None:
    with pytest.raises(RequestRefused, match=r"Streaming is only supported in decoupled mode\."):
        read(decoupled=False, streaming=[True])
    with pytest.raises(RequestRefused, match="1 prompts and 2 sequences"):
        read(decoupled=False, num_return_sequences=[2])


def test_rows_of_a_batch_keep_their_own_settings() -> None:
    request = read_request(
        {
            "input_ids": np.array([[5, 6, 7], [8, 0, 0]], np.int32),
            "input_lengths": np.array([3, 1], np.int32),
            "request_output_len": np.array([4, 9], np.int32),
        },
        decoupled=True,
        exclude_input=True,
    )
    assert request.prompts == ((5, 6, 7), (8,))
    assert [sampling.max_new_tokens for sampling in request.samplings] == [4, 9]


def test_the_requests_flag_beats_the_models_parameter() -> None:
    assert not read(exclude_input=True, exclude_input_in_output=[False]).exclude_input


def test_stop_is_seen_before_lengths_are_checked() -> None:
    assert is_stop(tensors(stop=[True], input_lengths=[0], request_output_len=[0]))


def test_word_lists_are_read_row_by_row() -> None:
    words = np.array([[[9, 8, 7, 0], [2, 3, -1, -1]], [[4, 0, 0, 0], [1, -1, -1, -1]]])
    assert read_words(words, 0) == ((9, 8), (7,))
    assert read_words(words, 1) == ((4,),)


# ---- answers


def state_after(*outputs: tuple[tuple[int, ...], FinishReason]) -> SequenceState:
    state = SequenceState(0, 0, (5, 6, 7))
    for tokens, reason in outputs:
        state.take(Output(0, 0, tokens, tuple(-0.5 for _ in tokens), reason))
    return state


def no_logits() -> Logits:
    raise AssertionError("logits were not asked for")


def answer_of(request: GenerationRequest, state: SequenceState, logits: Callable[[], Logits], **how: bool) -> Tensors:
    answer = next_tensors(request, state, logits, **how)
    assert answer is not None
    return answer


def test_one_answer_holds_prompt_and_new_tokens() -> None:
    request = read()
    assert next_tensors(request, state_after(((1,), "")), no_logits) is None
    answer = answer_of(request, state_after(((1,), ""), ((2,), "length")), no_logits)
    assert answer["output_ids"].tolist() == [[[5, 6, 7, 1, 2]]]
    assert answer["sequence_length"].tolist() == [[5]]
    assert answer["batch_index"].tolist() == answer["sequence_index"].tolist() == [[0]]
    assert "cum_log_probs" not in answer


def test_the_prompt_is_left_out_when_asked() -> None:
    answer = answer_of(read(exclude_input_in_output=[True]), state_after(((1,), "length")), no_logits)
    assert answer["output_ids"].tolist() == [[[1]]]


def test_streaming_sends_only_new_tokens_and_nothing_empty() -> None:
    request = read(streaming=[True])
    state = state_after(((1,), ""))
    assert answer_of(request, state, no_logits)["output_ids"].tolist() == [[[1]]]
    state.take(Output(0, 0, (), (), "end_id"))
    assert next_tensors(request, state, no_logits) is None


def test_log_probabilities_cover_the_new_tokens() -> None:
    request = read(return_log_probs=[True])
    answer = answer_of(request, state_after(((1, 2), "length")), no_logits)
    assert answer["output_log_probs"].tolist() == [[[-0.5, -0.5]]]
    assert answer["cum_log_probs"].tolist() == [[-1.0]]


def test_logits_have_one_row_per_token() -> None:
    request = read(return_context_logits=[True], return_generation_logits=[True])

    def logits() -> Logits:
        return lambda ids: np.array([[float(token)] * 2 for token in ids], np.float32)

    answer = answer_of(request, state_after(((1, 2), "length")), logits)
    assert answer["context_logits"][0, :, 0].tolist() == [5, 6, 7]
    # The row that predicts token 1 stands at the prompt's last token, the row for 2 at token 1.
    assert answer["generation_logits"][0, 0, :, 0].tolist() == [7, 1]


def test_placeholders_stand_behind_the_real_outputs() -> None:
    answer = answer_of(read(), state_after(((1,), "length")), no_logits, placeholders=True)
    assert next(iter(answer)) == "output_ids"
    assert answer["output_log_probs"].shape == (1, 1, 3)
    assert answer["generation_logits"].shape == (1, 1, 1, 1)


# ---- batcher


class ScriptedEngine:
    """Gives one token per step and request."""

    config = EngineLimits(2, 64, 32, 64, 32)

    def __init__(self, slots: int = 2) -> None:
        self.slots = slots
        self.left: dict[int, int] = {}
        self.cancelled: list[int] = []
        self.hold = threading.Event()
        self.hold.set()

    def submit(self, request_id: int, prompt_ids: tuple[int, ...], sampling: Sampling) -> None:
        self.left[request_id] = sampling.max_new_tokens

    def cancel(self, request_id: int) -> bool:
        self.cancelled.append(request_id)
        return request_id in self.left

    @property
    def has_work(self) -> bool:
        return bool(self.left)

    def step(self) -> list[Output]:
        self.hold.wait(5)
        outputs = []
        for number in list(self.left):
            if number in self.cancelled:
                del self.left[number]
                outputs.append(Output(number, 0, (), (), "cancelled"))
                continue
            self.left[number] -= 1
            done = self.left[number] == 0
            outputs.append(Output(number, 0, (number,), (), "length" if done else ""))
            if done:
                del self.left[number]
        return outputs

    def stats(self) -> EngineStats:
        active = min(len(self.left), self.slots)
        return EngineStats(active, len(self.left) - active, active, 0, active, self.slots, 8, 0, 8, 32, 0)


class RecordedReply:
    """Breaks the test if anything is asked or sent after the final response, which would crash the real server."""

    def __init__(self) -> None:
        self.sent: list[Tensors] = []
        self.error, self.final, self.gone = "", threading.Event(), False
        self.after_final: list[str] = []
        self.pass_on = threading.Event()
        self.pass_on.set()

    def tokens(self) -> list[int]:
        return [int(token) for answer in self.sent for token in answer["output_ids"].ravel()]

    def send(self, tensors: Tensors | None, *, final: bool) -> None:
        self.pass_on.wait(5)
        if self.final.is_set():
            self.after_final.append("send")
        if tensors is not None:
            self.sent.append(tensors)
        if final:
            self.final.set()

    def fail(self, message: str, *, cancelled: bool = False, overloaded: bool = False) -> None:
        if self.final.is_set():
            self.after_final.append("fail")
        self.error = message
        self.final.set()

    def cancelled(self) -> bool:
        if self.final.is_set():
            self.after_final.append("cancelled")
        return self.gone


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine()


@pytest.fixture(params=(1, 3), ids="{} senders".format)
def batcher(engine: ScriptedEngine, request: pytest.FixtureRequest) -> Iterator[Batcher]:
    made = Batcher(engine, no_logits, max_queue_size=1, senders=request.param)
    yield made
    engine.hold.set()
    made.close()


def test_each_request_gets_its_own_tokens_and_one_final(batcher: Batcher) -> None:
    replies = [RecordedReply() for _ in range(2)]
    for reply in replies:
        batcher.submit("", read(streaming=[True]), reply)
    for number, reply in enumerate(replies):
        assert reply.final.wait(5)
        assert reply.tokens() == [number] * 4
        assert reply.after_final == []


def test_who_left_is_asked_less_often_where_asking_takes_long(engine: ScriptedEngine) -> None:
    class Slow(RecordedReply):
        def cancelled(self) -> bool:
            time.sleep(0.02)
            return False

    batcher = Batcher(engine, no_logits)
    engine.hold.clear()
    try:
        batcher.submit("", read(streaming=[True]), Slow())
        batcher._end_cancelled()
        assert 0.02 / CANCEL_CHECK_SHARE <= batcher._cancel_pause_s <= MAX_CANCEL_CHECK_S
    finally:
        engine.hold.set()
        batcher.close()


def test_a_sender_that_waits_holds_up_nobody_elses_answer_and_every_end_counts(
    engine: ScriptedEngine, tmp_path: Path
) -> None:
    counted: list[tuple[int, int]] = []
    times = TokenTimes(str(tmp_path / "times"))
    batcher = Batcher(
        engine,
        no_logits,
        senders=2,
        count=lambda prompt, answer: counted.append((prompt, answer)),
        times=times,
    )
    slow, quick = RecordedReply(), RecordedReply()
    slow.pass_on.clear()
    for name, reply in (("slow", slow), ("quick", quick)):
        batcher.submit(name, read(streaming=[True]), reply)
    assert quick.final.wait(5)
    assert quick.tokens() == [1] * 4 and not slow.final.is_set()
    slow.pass_on.set()
    batcher.close()
    assert slow.tokens() == [0] * 4
    assert [answer for _, answer in counted] == [4, 4]
    times.close()
    noted = read_token_times(tmp_path / "times")
    assert {name: (len(one.came_s), sum(one.sent)) for name, one in noted.items()} == {"slow": (4, 4), "quick": (4, 4)}


def test_a_lone_sender_counts_an_end_before_its_client_knows_of_it(engine: ScriptedEngine) -> None:
    counted: list[int] = []
    batcher = Batcher(engine, no_logits, count=lambda prompt, answer: counted.append(answer))
    reply = RecordedReply()
    reply.pass_on.clear()  # holds up the sending of each response
    batcher.submit("", read(), reply)
    while not counted and not reply.final.is_set():
        reply.final.wait(0.01)
    assert counted == [4] and not reply.final.is_set()
    reply.pass_on.set()
    batcher.close()


def test_a_request_alone_gets_each_token_by_itself_from_a_slow_sender(batcher: Batcher) -> None:
    reply = RecordedReply()
    reply.pass_on.clear()
    batcher.submit("", read(streaming=[True]), reply)
    time.sleep(0.1)  # all four tokens are there
    reply.pass_on.set()
    assert reply.final.wait(5)
    assert [answer["output_ids"].tolist() for answer in reply.sent] == [[[[0]]]] * 4


def test_tokens_that_come_while_a_response_is_sent_share_the_next_one(
    batcher: Batcher, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    puts: list[object] = []
    put = Outbox.put

    def noted(outbox: Outbox, key: Hashable, action: Callable[[], None], **how: bool) -> None:
        puts.append(key)
        put(outbox, key, action, **how)

    monkeypatch.setattr(Outbox, "put", noted)
    slow, other = RecordedReply(), RecordedReply()
    slow.pass_on.clear()
    batcher.submit("slow", read(streaming=[True], request_output_len=[50]), slow)
    batcher.submit("", read(streaming=[True], request_output_len=[10**6]), other)
    until(lambda: engine.left.get(1, 10**6) < 10**6 - 100, "the engine goes on while a response cannot be sent")
    assert slow.sent == []
    slow.pass_on.set()
    assert slow.final.wait(5)
    assert slow.tokens() == [0] * 50
    assert len(slow.sent) < 5
    assert slow.after_final == []
    told = [key for key in puts if isinstance(key, tuple) and key[0].request_id == "slow"]
    assert len(told) < 5  # and not once for each token


def test_a_measurement_gets_one_response_a_token_whatever_waits(engine: ScriptedEngine) -> None:
    batcher = Batcher(engine, no_logits, sharing=False)
    slow, other = RecordedReply(), RecordedReply()
    slow.pass_on.clear()
    batcher.submit("", read(streaming=[True], request_output_len=[50]), slow)
    batcher.submit("", read(streaming=[True], request_output_len=[10**6]), other)
    until(lambda: engine.left.get(1, 10**6) < 10**6 - 100, "the engine goes on while a response cannot be sent")
    slow.pass_on.set()
    assert slow.final.wait(5)
    assert [answer["output_ids"].tolist() for answer in slow.sent] == [[[[0]]]] * 50
    batcher.close()


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (Output(7, 1, (4,), (-0.5,)), [Output(7, 1, (4,), (-0.5,))]),
        (Output(7, 1, (), (), "cancelled"), [Output(7, 1, (), (), "cancelled")]),
        (
            Output(7, 1, (4, 5), (-0.5, -0.25), "length"),
            [Output(7, 1, (4,), (-0.5,)), Output(7, 1, (5,), (-0.25,), "length")],
        ),
        (Output(7, 1, (4, 5)), [Output(7, 1, (4,)), Output(7, 1, (5,))]),
    ],
)
def test_an_output_of_several_tokens_as_one_for_each(output: Output, expected: list[Output]) -> None:
    assert each_token(output) == expected


class RecordedMetrics:
    """Stands for Triton's module: notes what each gauge of the requests was set to."""

    def __init__(self) -> None:
        self.told: list[tuple[str, float]] = []
        family = SimpleNamespace(Metric=self.metric)
        self.MetricFamily = Mock(return_value=family, GAUGE=0, HISTOGRAM=1)

    def metric(self, labels: dict[str, str], buckets: object = None) -> SimpleNamespace:
        return SimpleNamespace(set=lambda value: self.told.append((labels.get("request_type", ""), value)))


def test_triton_is_told_only_of_gauges_that_changed() -> None:
    metrics = RecordedMetrics()
    figures = Figures(metrics, "tensorrt_llm", "1")
    stats = EngineStats(2, 1, 2, 0, 2, 16, 100, 5, 95, 32, 1)
    for now in (stats, stats, replace(stats, active=3), stats):
        figures.observe(now, 0)
    assert [value for gauge, value in metrics.told if gauge == "active"] == [2, 3, 2]
    assert [value for gauge, value in metrics.told if gauge == "max"] == [16]


def test_what_came_before_a_failure_is_sent_before_it(
    batcher: Batcher, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, step = iter(range(3)), engine.step

    def breaking() -> list[Output]:
        if next(steps, None) is None:
            engine.left.clear()
            raise RuntimeError("out of memory")
        return step()

    monkeypatch.setattr(engine, "step", breaking)
    reply = RecordedReply()
    reply.pass_on.clear()
    batcher.submit("", read(streaming=[True]), reply)
    time.sleep(0.1)
    reply.pass_on.set()
    assert reply.final.wait(5)
    assert reply.tokens() == [0] * 3
    assert "out of memory" in reply.error
    assert reply.after_final == []


def test_an_answer_that_cannot_be_made_ends_its_request_alone(engine: ScriptedEngine) -> None:
    def broken() -> Logits:
        raise RuntimeError("no memory for a second copy")

    batcher = Batcher(engine, broken)
    asking, other = RecordedReply(), RecordedReply()
    batcher.submit("", read(return_context_logits=[True]), asking)
    batcher.submit("", read(exclude_input=True), other)
    assert asking.final.wait(5)
    assert other.final.wait(5)
    batcher.close()
    assert "no memory for a second copy" in asking.error
    assert other.tokens() == [1] * 4


def test_a_client_that_left_is_noticed_and_its_request_cancelled(batcher: Batcher, engine: ScriptedEngine) -> None:
    reply = RecordedReply()
    engine.hold.clear()
    batcher.submit("", read(request_output_len=[10**6]), reply)
    reply.gone = True
    engine.hold.set()
    assert reply.final.wait(5)
    assert "cancelled" in reply.error
    until(lambda: engine.cancelled == [0], "the engine ends it")
    time.sleep(0.3)
    assert reply.after_final == []


def test_stop_ends_the_request_of_that_id_with_what_it_has(batcher: Batcher, engine: ScriptedEngine) -> None:
    running, stopping = RecordedReply(), RecordedReply()
    batcher.submit("a", read(request_output_len=[10**6]), running)
    batcher.stop("a", stopping)
    assert stopping.final.wait(5)
    assert running.final.wait(5)
    assert stopping.sent == [{}]
    assert running.sent[0]["output_ids"].shape[2] < 10**6


def test_stop_ends_only_the_request_of_that_id(batcher: Batcher, engine: ScriptedEngine) -> None:
    running, other = RecordedReply(), RecordedReply()
    batcher.submit("a", read(request_output_len=[10**6]), running)
    batcher.submit("b", read(request_output_len=[10**6], streaming=[True]), other)
    batcher.stop("a", RecordedReply())
    assert running.final.wait(5)
    seen = len(other.sent)
    until(lambda: len(other.sent) > seen, "the other one goes on")
    assert not other.final.is_set()


def test_the_last_row_of_a_batch_ends_the_answer(batcher: Batcher) -> None:
    both = {
        "input_ids": np.array([[5, 6, 7], [8, 9, 10]], np.int32),
        "input_lengths": np.array([3, 3], np.int32),
        "request_output_len": np.array([2, 5], np.int32),
    }
    reply = RecordedReply()
    batcher.submit("", read_request(both, decoupled=True, exclude_input=True), reply)
    assert reply.final.wait(5)
    assert [answer["batch_index"].tolist() for answer in reply.sent] == [[[0]], [[1]]]
    assert [answer["output_ids"].shape[2] for answer in reply.sent] == [2, 5] and reply.after_final == []


def test_a_full_queue_refuses_in_tritons_words(batcher: Batcher, engine: ScriptedEngine) -> None:
    engine.hold.clear()
    replies = [RecordedReply() for _ in range(4)]
    for reply in replies:
        batcher.submit("", read(request_output_len=[2]), reply)
    engine.hold.set()
    assert all(reply.final.wait(5) for reply in replies)
    refused = [reply.error for reply in replies if reply.error]
    assert len(refused) == 1
    assert "Exceeds maximum queue size" in refused[0]


def test_a_broken_engine_answers_everybody(
    batcher: Batcher, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        engine.left.clear()
        raise RuntimeError("out of memory")

    monkeypatch.setattr(engine, "step", broken)
    reply = RecordedReply()
    batcher.submit("", read(), reply)
    assert reply.final.wait(5)
    assert "out of memory" in reply.error


def test_close_answers_what_still_runs(engine: ScriptedEngine) -> None:
    batcher = Batcher(engine, no_logits)
    reply = RecordedReply()
    batcher.submit("", read(request_output_len=[10**9]), reply)
    while not engine.left:
        time.sleep(0.01)
    batcher.close()
    assert "shutting down" in reply.error
    assert reply.after_final == []
    assert engine.cancelled == [0]


def test_close_answers_what_had_not_begun(engine: ScriptedEngine) -> None:
    batcher = Batcher(engine, no_logits)
    engine.hold.clear()
    first, late = RecordedReply(), RecordedReply()
    batcher.submit("", read(request_output_len=[10**9]), first)
    while not engine.left:
        time.sleep(0.01)
    closing = threading.Thread(target=batcher.close)
    closing.start()  # the engine is in a step
    batcher.submit("", read(), late)
    engine.hold.set()
    closing.join(5)
    assert "shutting down" in first.error and "shutting down" in late.error


# ---- text


@pytest.fixture(scope="module")
def codec() -> TextCodec:
    return TextCodec.load(MODEL_DIR)


def test_ids_of_the_special_tokens(codec: TextCodec) -> None:
    assert (codec.end_id, codec.pad_id) == (2047, 2044)


def test_prompts_are_padded_and_begin_with_the_special_token(codec: TextCodec) -> None:
    ids, lengths = codec.prompts(["Return", "Return the name"], special_tokens=True)
    assert ids[0, 0] == ids[1, 0] == 2040
    assert lengths[1, 0] == ids.shape[1] > lengths[0, 0]
    assert set(ids[0, lengths[0, 0] :]) == {2044}
    assert codec.prompts(["Return"], special_tokens=False)[0][0, 0] != 2040


def test_special_tokens_are_skipped_on_demand(codec: TextCodec) -> None:
    ids = [*codec.encode("Return", special_tokens=False), codec.end_id]
    assert codec.decode(ids, skip_special_tokens=True) == "Return"
    assert codec.decode(ids, skip_special_tokens=False) == "Return<|eot_id|>"


def test_an_empty_prompt_is_refused(codec: TextCodec) -> None:
    with pytest.raises(RequestRefused, match="text_input is empty"):
        codec.prompts([""], special_tokens=True)


def test_words_in_tensorrt_llms_layout(codec: TextCodec) -> None:
    the, space_the = (codec.encode(word, special_tokens=False) for word in ("the", " the"))
    assert the != space_the
    words = codec.words([["the", " the", ""], []])
    assert words.shape == (2, 2, len(the + space_the))
    assert words[0, 0].tolist() == the + space_the
    assert words[0, 1, :2].tolist() == [len(the), len(the + space_the)]
    assert set(words[1, 1]) == {-1}
    assert codec.words([[], []]).shape == (2, 2, 0)
    assert read_words(words, 0) == (tuple(the), tuple(space_the))


def test_a_folder_without_tokenizer_or_end_token_says_so(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="no tokenizer in"):
        TextCodec.load(tmp_path)
    (tmp_path / "tokenizer.json").write_bytes((MODEL_DIR / "tokenizer.json").read_bytes())
    with pytest.raises(EnvironmentProblem, match="does not name an end token"):
        _ = TextCodec.load(tmp_path).end_id
