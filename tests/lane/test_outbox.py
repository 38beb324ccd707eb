"""The thread that tells Triton: what goes first, what is told once, and what a rest holds back."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from model_server.triton import outbox
from model_server.triton.outbox import Outbox
from waiting import until


class Told:
    """Actions that note their name; the first one waits until it may go on."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.may_go_on = threading.Event()

    def action(self, name: str) -> Callable[[], None]:
        return lambda: self.names.append(name)

    def blocking(self) -> None:
        self.names.append("blocking")
        assert self.may_go_on.wait(60)


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def made() -> Iterator[Outbox]:
    opened = Outbox()
    yield opened
    opened.close()


def test_what_comes_during_a_round_waits_for_the_next_in_order(made: Outbox, told: Told) -> None:
    made.put("first", told.blocking)
    until(lambda: told.names, "the first one runs")
    for name in ("a", "b", "c"):
        made.put(name, told.action(name))
    told.may_go_on.set()
    made.close()
    assert told.names == ["blocking", "a", "b", "c"]


def test_a_key_is_told_once_by_its_last_action(made: Outbox, told: Told) -> None:
    made.put("first", told.blocking)
    until(lambda: told.names, "the first one runs")
    made.put("figures", told.action("old"))
    made.put("other", told.action("other"))
    made.put("figures", told.action("new"))
    told.may_go_on.set()
    made.close()
    assert told.names == ["blocking", "new", "other"]


def test_what_is_urgent_goes_first_and_stays_urgent(made: Outbox, told: Told) -> None:
    made.put("first", told.blocking)
    until(lambda: told.names, "the first one runs")
    made.put("a", told.action("a"))
    made.put("b", told.action("b"), urgent=True)
    made.put("b", told.action("b, more"))
    made.put("a", told.action("a, last"), urgent=True)
    told.may_go_on.set()
    made.close()
    assert told.names == ["blocking", "b, more", "a, last"]


def test_what_was_put_with_more_goes_in_one_round_when_all_is_there(made: Outbox, told: Told) -> None:
    until(lambda: made._wake._waiters, "it waits")  # type: ignore[attr-defined] # threading's own
    made.put("a", told.blocking, more=True)
    time.sleep(0.05)
    assert told.names == []
    made.put("b", told.action("b"), more=True)
    made.put("b", told.action("b, more"), more=True)
    made.wake()
    until(lambda: told.names, "the round begins")
    made.put("b", told.action("b, next round"), more=True)
    told.may_go_on.set()
    made.wake()
    until(lambda: len(told.names) == 3, "both rounds")
    assert told.names == ["blocking", "b, more", "b, next round"]


def test_an_outbox_without_rests_goes_on_at_once(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "REST", 1e12)
    monkeypatch.setattr(outbox, "HOLD_S", 1e3)
    restless = Outbox(rests=False)
    for name in ("a", "b", "c"):
        restless.put(name, told.action(name))
        until(lambda expected=name: told.names[-1:] == [expected], name)  # type: ignore[misc]
    restless.close()


def test_after_a_round_only_what_is_urgent_disturbs_the_rest(
    made: Outbox, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "REST", 1e12)
    monkeypatch.setattr(outbox, "HOLD_S", 1e3)
    made.put("round", told.action("round"))
    until(lambda: told.names, "a round")
    made.put("usual", told.action("usual"))
    made.put("urgent", told.action("urgent"), urgent=True)
    until(lambda: len(told.names) > 1, "what is urgent")
    assert told.names == ["round", "urgent"]
    made.close()
    assert told.names == ["round", "urgent", "usual"]


def test_a_round_longer_than_the_hold_is_followed_by_no_rest(
    made: Outbox, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "REST", 1e12)
    monkeypatch.setattr(outbox, "HOLD_S", 0.0)
    for name in ("a", "b", "c"):
        made.put(name, told.action(name))
        until(lambda expected=name: told.names[-1:] == [expected], name)  # type: ignore[misc]


def test_an_action_that_raises_ends_nothing(made: Outbox, told: Told, capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> None:
        raise ValueError("nobody takes it")

    made.put("broken", broken)
    made.put("next", told.action("next"))
    made.close()
    assert told.names == ["next"]
    assert "nobody takes it" in capsys.readouterr().err


@pytest.mark.parametrize(("cores", "expected"), [(1, 1), (2, 1), (7, 1), (8, 2), (16, 4), (192, 4)])
def test_more_cores_get_more_senders_up_to_four(cores: int, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(cores)))
    assert outbox.senders_here() == expected
