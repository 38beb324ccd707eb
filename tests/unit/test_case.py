"""The case of the course: what its file says, and what follows from it."""

import pytest
from pydantic import ValidationError

import playbook
from playbook.case import ServiceCase, service_case


def test_a_chapter_reads_the_case_by_the_package() -> None:
    assert playbook.service_case() is service_case()


def test_the_model_of_the_case_is_one_that_the_course_runs() -> None:
    assert service_case().shape.name == service_case().model
    assert service_case().model in playbook.models.model_shapes()


def test_a_request_and_the_load_follow_from_the_figures() -> None:
    made = service_case().model_copy(
        update={"isl_tokens": 90, "osl_tokens": 11, "ttft_ms": 500.0, "tpot_ms": 50.0, "requests_per_minute": 120.0}
    )
    assert made.tokens == 101
    assert made.longest_s == pytest.approx(1.0)  # half a second, and ten tokens at 50 ms
    assert made.requests_per_s == pytest.approx(2.0)
    assert made.at_once(made.requests_per_s) == 2
    assert made.at_once(2.5) == 3  # half a request is one


def test_the_load_grows() -> None:
    case = service_case()
    assert case.grown_requests_per_s > case.requests_per_s


@pytest.mark.parametrize(("key", "value"), [("percentile", 100), ("isl_tokens", 0), ("usd_per_month", -1), ("qps", 1)])
def test_an_impossible_case_is_refused_by_the_name_of_its_key(key: str, value: float) -> None:
    with pytest.raises(ValidationError, match=key):
        ServiceCase(**(service_case().model_dump() | {key: value}))
