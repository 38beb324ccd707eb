"""Chapter 08 once reported a plan's TPOT as measured: a loop two cells above had taken the name of the measurement."""

import pytest

from playbook.course.notebook_checks import overwritten_names

MEASURED = ("a", "one = measure()")
PLAN = ("b", "for users in loads:\n    one = plan(users)\n    print(one)")


@pytest.mark.parametrize(
    ("cells", "found"),
    [
        (
            [MEASURED, PLAN, ("c", "result(one)")],
            "cell c reads `one`: cell a assigned it, and a loop of",
        ),
        (
            [MEASURED, ("b", "for one in loads:\n    1"), ("c", "def f():\n    return one")],
            "cell c reads `one`",
        ),
        ([MEASURED, PLAN, ("c", "print([one for one in loads])")], ""),
        ([MEASURED, PLAN, ("c", "one = measure()"), ("d", "result(one)")], ""),
        ([MEASURED, ("b", "for users in loads:\n    planned = plan(users)"), ("c", "result(one)")], ""),
        ([("a", "loads = [1]"), PLAN, ("c", "result(one)")], ""),
        ([("a", "one = 1"), ("b", "total = sum(one for one in loads)"), ("c", "result(one)")], ""),
    ],
)
def test_a_name_that_a_loop_took_is_found_where_it_is_read(cells: list[tuple[str, str]], found: str) -> None:
    told = "; ".join(overwritten_names(cells))
    assert told.startswith(found) and bool(told) == bool(found)
