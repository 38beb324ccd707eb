"""What an exercise says twice is the same: a text in its chapter and its check, a rule and the product's own."""

from collections.abc import Callable

import pytest

import serving_clients as clients
from checkout import ROOT
from course_exercises.client import SITUATIONS, Situation
from course_exercises.exercise import checked, exercise
from course_exercises.lmi import BROKEN_PROPERTIES, ENDING
from course_exercises.triton import BROKEN_CONFIG
from playbook.course.notebooks import chapter, chapters, read

ERRORS: dict[str, Callable[[Situation], clients.ClientError]] = {
    "Refused": lambda one: clients.Refused("no"),
    "Overloaded": lambda one: clients.Overloaded("no room"),
    "Unreachable": lambda one: clients.Unreachable("lost", sent=one.sent),
    "TimedOut": lambda one: clients.TimedOut("silence"),
    "BrokenStream": lambda one: clients.BrokenStream("cut", pieces=["a"] * one.pieces),
    "DeadlineExceeded": lambda one: clients.DeadlineExceeded("time is over"),
}


def sources(number: str) -> str:
    return "\n".join(cell.source for cell in read(chapter(number, chapters(ROOT / "notebooks")).path).cells)


def test_the_broken_files_stand_in_their_chapters() -> None:
    assert BROKEN_CONFIG in sources("05")
    assert BROKEN_PROPERTIES in sources("07")


def test_the_situations_are_the_chapters_list() -> None:
    listed = "\n".join(f"{number}. {one.text}" for number, one in enumerate(SITUATIONS, start=1))
    assert listed in sources("06")


def test_the_calls_that_end_an_endpoint_are_the_chapters_list() -> None:
    assert "\n".join(f"- `{name}` ({ENDING[name]})" for name in sorted(ENDING)) in sources("07")


@pytest.mark.parametrize("one", SITUATIONS, ids=lambda one: one.text)
def test_what_may_be_sent_again_is_what_the_client_sends_again(one: Situation) -> None:
    request = clients.TextRequest("a", 1, idempotent=one.idempotent, restart=one.restart)
    assert one.again is clients.may_repeat(ERRORS[one.error](one), request)


def test_the_client_itself_refuses_to_show_a_secret_and_takes_the_repair() -> None:
    credential = clients.Credential(clients.Secret("TRITON_TOKEN"))

    def connect(url: str) -> None:
        clients.TritonHttp(url, credential=credential).close()

    one = exercise("06-4")
    for answer in (one.solution, *one.also):
        assert checked("06-4", answer, connect=connect).solved
    for wrong in one.wrong:
        assert wrong.says in str(checked("06-4", wrong.answer, connect=connect))
