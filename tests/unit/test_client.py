"""The client's own logic, over a scripted transport: what is repeated, when, how many at once, and what comes back."""

import pickle
import random
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from scripted_transport import Script
from serving_base.errors import UsageError
from serving_clients import (
    BrokenStream,
    Cancelled,
    Client,
    DeadlineExceeded,
    Overloaded,
    QueueFull,
    Refused,
    RetryBudget,
    RetryPolicy,
    TextRequest,
    TextResult,
    TimedOut,
    Unreachable,
)
from serving_clients import client as client_module
from serving_clients.requests import AttemptLimits, Piece, Pieces
from serving_clients.retry import may_repeat, parse_retry_after


def request(**options: Any) -> TextRequest:
    defaults: dict[str, Any] = {"prompt": "Hi", "max_tokens": 4}
    return TextRequest(**(defaults | options))


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that the client would have made; none is made."""
    made: list[float] = []
    monkeypatch.setattr(client_module, "pause", lambda cancelled, seconds: made.append(seconds))
    return made


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"prompt": ""}, "prompt is empty"),
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"max_tokens": 3.0}, r"max_tokens is 3\.0"),
        ({"max_tokens": True}, "max_tokens is True"),
        ({"max_tokens": 3_000_000_000}, "max_tokens is 3000000000"),
        ({"request_id": ""}, "empty id"),
        ({"deadline_s": 0}, "deadline_s is 0"),
    ],
)
def test_an_impossible_request_is_not_made(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        request(**wrong)


def test_requests_have_ids_of_their_own_and_do_not_change() -> None:
    first, second = request(), request()
    assert first.request_id != second.request_id
    with pytest.raises(AttributeError):
        first.prompt = "other"  # type: ignore[misc]


def test_the_result_has_the_text_its_pieces_and_its_history(pauses: list[float]) -> None:
    script = Script([Overloaded("busy")], ["one", " two", Piece("", tokens=7, finish="length")])
    result = Client(script).generate(request(request_id="r"))
    assert (result.text, result.pieces) == ("one two", ("one", " two", ""))
    assert (result.request_id, result.tokens, result.finish, result.transport) == ("r", 7, "length", "script")
    assert [attempt.outcome for attempt in result.attempts] == ["Overloaded", "ok"]
    assert result.attempts[0].wait_s == pauses[0] <= 0.1
    assert [wire_id.rpartition(".")[0] for wire_id, _, _ in script.sent] == ["r.1", "r.2"]
    assert 0 <= result.ttft_ms <= result.e2e_ms


def test_a_request_that_is_sent_again_has_an_id_of_its_own_on_the_wire() -> None:
    """Else the stop for an answer that was left, late on a busy machine, ends the next one."""
    script, one = Script(["a"], ["b"]), request(request_id="r")
    assert [Client(script).generate(one).request_id, Client(script).generate(one).request_id] == ["r", "r"]
    assert len({wire_id for wire_id, _, _ in script.sent}) == 2


SAFE = {"idempotent": True, "restart": False}
ONCE_ONLY = {"idempotent": False, "restart": False}
RESTART = {"idempotent": True, "restart": True}


@pytest.mark.parametrize(
    ("error", "repeated_for"),
    [
        (Refused("x"), ()),
        (QueueFull("x"), ()),
        (DeadlineExceeded("x"), ()),
        (Cancelled("x"), ()),
        (ValueError("x"), ()),
        (Overloaded("x"), (SAFE, ONCE_ONLY, RESTART)),
        (Unreachable("x", sent=False), (SAFE, ONCE_ONLY, RESTART)),
        (Unreachable("x", sent=True), (SAFE, RESTART)),
        (TimedOut("x"), (SAFE, RESTART)),
        (BrokenStream("x"), (SAFE, RESTART)),
        (BrokenStream("x", pieces=["a"]), (RESTART,)),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_what_is_repeated(error: Exception, repeated_for: tuple[dict[str, bool], ...]) -> None:
    for kind in (SAFE, ONCE_ONLY, RESTART):
        assert may_repeat(error, request(**kind)) == (kind in repeated_for), kind


def test_the_last_error_is_raised_after_the_last_attempt(pauses: list[float]) -> None:
    script = Script(*([Overloaded("busy", why=str(number))] for number in range(9)))
    with pytest.raises(Overloaded) as caught:
        Client(script, retry=RetryPolicy(max_attempts=4)).generate(request(request_id="r"))
    assert caught.value.why == "3"
    assert len(script.sent) == len(caught.value.attempts) == 4
    assert caught.value.request_id == "r"
    assert len(pauses) == 3


def waits(policy: RetryPolicy, retries: int, runs: int) -> list[list[float]]:
    """``runs`` x ``retries`` pauses of the policy."""
    made: list[float] = []

    def one() -> None:
        script = Script(*([Overloaded("busy")] for _ in range(retries)))
        Client(script, retry=policy).generate(request(deadline_s=1e6))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client_module, "pause", lambda cancelled, seconds: made.append(seconds))
        for _ in range(runs):
            one()
    return [made[at : at + retries] for at in range(0, len(made), retries)]


def test_full_jitter_is_uniform_from_zero_to_the_bound() -> None:
    random.seed(20261120)
    policy = RetryPolicy(max_attempts=9, base_s=0.1, cap_s=2.0)
    made = waits(policy, retries=7, runs=400)
    bounds = [policy.upper_bound_s(retry) for retry in range(7)]
    assert bounds == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0])
    for bound, column in zip(bounds, zip(*made, strict=True), strict=True):
        quarters = [sum(bound * q / 4 <= pause < bound * (q + 1) / 4 for pause in column) for q in range(4)]
        assert max(column) <= bound
        assert min(quarters) > 70, quarters  # 100 expected, standard deviation 8.7


def test_without_jitter_all_pauses_are_the_bound() -> None:
    policy = RetryPolicy(max_attempts=9, base_s=0.1, cap_s=2.0, jitter=False)
    assert waits(policy, retries=6, runs=2) == [pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 2.0])] * 2


def test_retry_after_is_waited_for_and_jitter_comes_on_top(pauses: list[float]) -> None:
    script = Script([Overloaded("busy", retry_after_s=3.0)], [Overloaded("busy", retry_after_s=3.0)])
    Client(script).generate(request())
    assert 3.0 <= pauses[0] <= 3.1
    assert 3.0 <= pauses[1] <= 3.2
    assert pauses[0] != pauses[1]


def test_a_retry_after_beyond_the_deadline_ends_the_request_at_once(pauses: list[float]) -> None:
    script = Script([Overloaded("busy", retry_after_s=3600.0)])
    with pytest.raises(DeadlineExceeded, match="no time for another attempt") as caught:
        Client(script).generate(request(deadline_s=60))
    assert "busy" in caught.value.why
    assert pauses == []


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("0", 0.0),
        ("120", 120.0),
        ("Fri, 20 Nov 2026 12:00:30 GMT", 30.0),
        ("Fri, 20 Nov 2026 11:00:00 GMT", 0.0),
        ("soon", None),
        ("-3", None),
        ("", None),
        (None, None),
    ],
)
def test_retry_after_is_seconds_or_a_date(header: str | None, seconds: float | None) -> None:
    assert parse_retry_after(header, now=datetime(2026, 11, 20, 12, tzinfo=UTC)) == seconds


def test_an_attempt_gets_no_more_time_than_the_deadline_leaves() -> None:
    script = Script()
    Client(script).generate(request(deadline_s=1.5))
    _, limits, _ = script.sent[0]
    assert limits.connect_s <= 1.5
    assert limits.read_s <= 1.5


def test_a_stream_that_drips_past_the_deadline_is_ended() -> None:
    script = Script(["a", lambda: time.sleep(1.5), "b", "c"])
    with pytest.raises(DeadlineExceeded) as caught:
        Client(script).generate(request(deadline_s=1))
    assert caught.value.pieces == ("a",)
    assert script.closed_early == 1


def test_a_budget_ends_the_retries_of_all_requests_together(pauses: list[float]) -> None:
    budget = RetryBudget(ratio=0.1, burst=3)
    script = Script(*([Overloaded("busy")] for _ in range(100)))
    client = Client(script, budget=budget, retry=RetryPolicy(max_attempts=5))
    for _ in range(20):
        with pytest.raises(Overloaded):
            client.generate(request())
    assert 20 + 3 <= len(script.sent) <= 20 + 3 + 0.1 * 20


def test_good_times_save_no_more_retries_than_the_burst() -> None:
    budget = RetryBudget(ratio=0.5, burst=3)
    for _ in range(100):
        budget.earn()
    assert [budget.spend() for _ in range(4)] == [True, True, True, False]


def test_a_broken_answer_that_begins_again_is_delivered_once(pauses: list[float]) -> None:
    script = Script(["The", " cat", BrokenStream("cut", pieces=["The", " cat"])], ["The c", "at sat", "."])
    answer = Client(script).stream(request(restart=True))
    assert list(answer) == ["The", " cat", " sat", "."]


def test_without_restart_the_pieces_come_with_the_error() -> None:
    script = Script(["The", " cat", BrokenStream("cut", pieces=["The", " cat"])])
    with pytest.raises(BrokenStream) as caught:
        Client(script).generate(request())
    assert caught.value.pieces == ("The", " cat")
    assert len(script.sent) == 1


@pytest.mark.parametrize("second", [["A dog"], ["The c"]], ids=["another", "shorter"])
def test_an_answer_that_begins_again_differently_is_never_mixed(pauses: list[float], second: list[str]) -> None:
    script = Script(["The", " cat", BrokenStream("cut", pieces=["The", " cat"])], second)
    with pytest.raises(Refused, match="another one"):
        Client(script).generate(request(restart=True))
    assert len(script.sent) == 2


def test_leaving_a_stream_closes_the_attempt_and_frees_the_slot() -> None:
    script = Script(["a", "b"], ["c"])
    client = Client(script, max_in_flight=1, max_waiting=0)
    answer = client.stream(request())
    assert next(answer) == "a"
    with pytest.raises(QueueFull, match="client queue is full"):
        client.generate(request())
    answer.close()
    assert script.closed_early == 1
    assert client.generate(request()).text == "c"
    assert len(script.sent) == 2


class Crowd:
    """A transport that counts how many are in it."""

    name = "crowd"

    def __init__(self) -> None:
        self.lock, self.inside, self.most = threading.Lock(), 0, 0

    def send(self, request: TextRequest, wire_id: str, limits: AttemptLimits) -> Pieces:
        with self.lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        time.sleep(0.01)
        with self.lock:
            self.inside -= 1
        yield Piece(request.request_id)

    def redacted(self, text: str) -> str:
        return text

    def close(self) -> None:
        pass


def test_many_threads_never_exceed_the_slots_and_all_are_answered() -> None:
    crowd = Crowd()
    client = Client(crowd, max_in_flight=4, max_waiting=60)
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(client.generate(request()))) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert crowd.most == 4
    assert len(answers) == 40
    assert all(answer.text == answer.request_id for answer in answers)


def test_waiting_for_a_slot_counts_against_the_deadline() -> None:
    script = Script(["a", "b"])
    client = Client(script, max_in_flight=1)
    holds = client.stream(request())
    next(holds)
    with pytest.raises(DeadlineExceeded, match="waited for a slot"):
        client.generate(request(deadline_s=0.05))
    holds.close()


def test_map_keeps_the_order_and_puts_failures_in_their_place(pauses: list[float]) -> None:
    requests = [request(request_id=str(number)) for number in range(20)]

    class Picky(Crowd):
        def send(self, request: TextRequest, wire_id: str, limits: AttemptLimits) -> Pieces:
            if int(request.request_id) % 5 == 3:
                raise Refused("no")
            yield from super().send(request, wire_id, limits)

    outcomes = list(Client(Picky(), max_in_flight=3).map(requests))
    kinds = [type(outcome) for outcome in outcomes]
    assert kinds == [Refused if number % 5 == 3 else TextResult for number in range(20)]
    assert [outcome.request_id for outcome in outcomes] == [str(number) for number in range(20)]


def test_as_completed_gives_each_once_and_takes_no_more_than_it_can_send() -> None:
    taken = []

    def endless() -> Iterator[TextRequest]:
        for number in range(30):
            taken.append(number)
            yield request(request_id=str(number))

    outcomes = Client(Crowd(), max_in_flight=3).as_completed(endless())
    first, _ = next(outcomes)
    assert len(taken) <= 6
    others = [asked.request_id for asked, outcome in outcomes if outcome.request_id == asked.request_id]
    assert sorted([first.request_id, *others], key=int) == [str(number) for number in range(30)]


def test_a_request_on_the_way_is_not_sent_a_second_time() -> None:
    script = Script(["a", "b"])
    client = Client(script)
    twin = request()
    answer = client.stream(twin)
    next(answer)
    with pytest.raises(UsageError, match="on the way already"):
        client.generate(twin)
    answer.close()
    assert len(script.sent) == 1


def test_cancel_ends_a_pause() -> None:
    script = Script([Overloaded("busy", retry_after_s=3600.0)])
    client = Client(script)
    asked = request(deadline_s=1e6)
    threading.Timer(0.1, client.cancel, [asked.request_id]).start()
    with pytest.raises(Cancelled):
        client.generate(asked)
    assert not client.cancel(asked.request_id)


def test_cancel_ends_the_wait_for_a_slot() -> None:
    client = Client(Script(["a", "b"]), max_in_flight=1)
    holds = client.stream(request())
    next(holds)
    asked = request()
    threading.Timer(0.1, client.cancel, [asked.request_id]).start()
    with pytest.raises(Cancelled):
        client.generate(asked)
    holds.close()


def test_closing_cancels_what_is_on_the_way() -> None:
    script = Script(["a", "b"])
    client = Client(script)
    answer = client.stream(request())
    next(answer)
    client.close()
    with pytest.raises(Cancelled):
        next(answer)
    assert script.closed
    with pytest.raises(UsageError, match="closed"):
        client.generate(request())


def test_errors_carry_neither_secrets_nor_the_frames_they_came_through(pauses: list[float]) -> None:
    def leak() -> None:
        token = "planted-55ab"  # a local of a frame below
        raise Refused(f"401 for {token}", why=f"you sent {token}", fix=f"not {token}") from ValueError(token)

    with pytest.raises(Refused) as caught:
        Client(Script([leak], secret="planted-55ab")).generate(request())
    error = caught.value
    assert error.__cause__ is None
    assert error.__context__ is None
    frames = []
    trace = error.__traceback__
    while trace:
        frames.append(trace.tb_frame)
        trace = trace.tb_next
    assert "leak" not in [frame.f_code.co_name for frame in frames]
    assert "planted-55ab" not in f"{error} {error!r} {vars(error)} {pickle.dumps(error)!r}"
    assert "[secret]" in str(error)


@pytest.mark.parametrize(
    "error",
    [Overloaded("x", retry_after_s=2.0), Unreachable("x", sent=True), BrokenStream("x", why="y", pieces=["a"])],
    ids=lambda error: type(error).__name__,
)
def test_errors_survive_pickling(error: BrokenStream | Overloaded | Unreachable) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert vars(again) == vars(error)
