"""Which chapter may start when: what it names in its metadata, and what it reads."""

import re
from collections.abc import Collection
from pathlib import Path

import pytest

from checkout import ROOT
from notebook_factory import notebook, write_course
from plain_chapter import run_without_kernels
from playbook.cli.selection import choose, make_spec
from playbook.course.notebooks import WHOLE, After, Chapter, chapters, read
from playbook.course.progress import LineProgress
from playbook.course.runner import Limits, RunSpec, new_results, next_to_start, run
from serving_base.errors import UsageError

COURSE = chapters(ROOT / "notebooks")
MAKERS = {"model": "01", "checkpoint": "02", "engine": "03", "engine-bf16": "03", "repository": "05"}
"""Artifact -> the chapter that makes it."""


def chapter(number: str, after: tuple[str, ...] | None = (), *, alone: bool = False) -> Chapter:
    named = None if after is None else tuple(After(*word.split("#")) for word in after)
    return Chapter(number, "x", Path(f"{number}-x.ipynb"), "X", named, alone)


def started(waiting: list[Chapter], running: list[Chapter], jobs: int = 2, passed: Collection[str] = ()) -> str:
    found = next_to_start(waiting, dict.fromkeys(running, passed), jobs)
    return found.number if found else ""


def order(course: list[Chapter], jobs: int) -> list[set[str]]:
    """The sets of chapters that run at one time when the first to start is always the first to end."""
    waiting, running, seen = list(course), list[Chapter](), list[set[str]]()
    while waiting or running:
        while found := next_to_start(waiting, dict.fromkeys(running, ()), jobs):
            waiting.remove(found)
            running.append(found)
        seen.append({one.number for one in running})
        running.pop(0)
    return seen


def test_a_chapter_waits_for_those_that_it_names_and_no_others() -> None:
    one, two, three = chapter("01"), chapter("02", ("01",)), chapter("03", ("01",))
    assert started([two, three], [one]) == ""
    assert started([two, three], []) == "02"
    assert started([three], [two]) == "03"
    assert started([three], [two], jobs=1) == ""


def test_one_for_which_others_wait_goes_first_where_two_may_run() -> None:
    four, five, six = chapter("04"), chapter("05"), chapter("06", ("05",))
    assert started([four, five, six], []) == "05"
    assert started([four, five, six], [], jobs=1) == "04"
    assert started([four, six], [five]) == "04"


def test_a_chapter_that_names_a_cell_waits_for_that_cell_only() -> None:
    two, three = chapter("02"), chapter("03", ("02#makes",))
    assert started([two, three], []) == "02"
    assert started([three], [two], passed=["opens"]) == ""
    assert started([three], [two], passed=["opens", "makes"]) == "03"
    assert started([three], []) == "03"


def test_a_cell_that_is_named_is_there() -> None:
    cells = {item.number: {cell.id for cell in read(item.path).cells if cell.cell_type == "code"} for item in COURSE}
    named = [other for item in COURSE for other in item.after or () if other.cell]
    assert named and all(cell in cells[number] for number, cell in named), named


def test_what_is_not_in_the_run_is_not_waited_for() -> None:
    assert started([chapter("03", ("01", "02"))], []) == "03"


def test_a_chapter_that_names_none_waits_for_all_before_it() -> None:
    assert started([chapter("10", None)], [chapter("09")]) == ""
    assert started([chapter("02"), chapter("10", None)], [chapter("11")]) == "02"


def test_a_chapter_that_measures_has_the_machine_alone_and_is_not_passed_over() -> None:
    loud, quiet, later = chapter("04"), chapter("08", alone=True), chapter("09")
    assert started([quiet, later], [loud], jobs=3) == ""
    assert started([later], [quiet], jobs=3) == ""
    assert started([quiet, later], [], jobs=3) == "08"
    assert started([later, quiet], [], jobs=3) == "09"


def test_a_chapter_whose_cells_have_all_run_holds_up_only_who_waits_for_its_end() -> None:
    one, two, ten = chapter("01"), chapter("02", ("01",)), chapter("10", None)
    assert started([two], [one], passed=[WHOLE]) == "02"
    assert started([two], [one], jobs=1, passed=[WHOLE]) == ""
    assert started([ten], [one], passed=[WHOLE]) == ""


def test_one_at_a_time_is_the_courses_own_order() -> None:
    assert order(COURSE, 1) == [{item.number} for item in COURSE]


def test_two_at_a_time_share_the_machine_where_nobody_measures() -> None:
    seen = order(COURSE, 2)
    assert {"04", "05"} in seen
    assert {"06", "07"} in seen
    assert all(len(at_once) == 1 for at_once in seen if at_once & {"08", "09", "10"})


def reachable(number: str) -> set[str]:
    """The chapters that are over when this one starts."""
    (item,) = (item for item in COURSE if item.number == number)
    named = (
        {other.number for other in COURSE if other.number < number}
        if item.after is None
        else {other.number for other in item.after}
    )
    return named.union(*(reachable(other) for other in named))


@pytest.mark.parametrize("item", COURSE, ids=lambda item: item.number)
def test_a_chapter_comes_after_those_whose_artifacts_it_reads(item: Chapter) -> None:
    code = "\n".join(cell.source for cell in read(item.path).cells if cell.cell_type == "code")
    wanted = set(re.findall(r"""require\(["']([\w-]+)["']\)""", code))
    assert {MAKERS[name] for name in wanted} <= reachable(item.number)


def test_a_lane_with_one_engine_on_all_gpus_runs_one_chapter_at_a_time(tmp_path: Path) -> None:
    chosen = choose(["05"])
    spec, _ = make_spec(chosen, {"profile": "p5"}, folder=tmp_path)
    assert spec.jobs == 1
    with pytest.raises(UsageError, match="--jobs 2 is too many for profile p5"):
        make_spec(chosen, {"profile": "p5"}, folder=tmp_path, jobs=2)
    assert make_spec(chosen, {}, folder=tmp_path, jobs=2)[0].jobs == 2


MEETING = """\
import os, time
from pathlib import Path
here = Path(os.environ["PLAYBOOK_WORKSPACE"])
here.mkdir(parents=True, exist_ok=True)
(here / "{own}").touch()
deadline = time.monotonic() + 120
while not (here / "{other}").exists():
    assert time.monotonic() < deadline, "the other did not come"
    time.sleep(0.05)"""


FAILED = """\
while '"failed"' not in Path({results!r}).read_text():
    assert time.monotonic() < deadline, "the other's failure was not noted"
    time.sleep(0.05)"""


def test_two_chapters_that_wait_for_each_other_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And after a failure the third does not start, while those that run go on to their end."""
    run_without_kernels(monkeypatch)
    course = {
        "c01_a": notebook(MEETING.format(own="a", other="b"), "assert False, 'on purpose'"),
        "c02_b": notebook(MEETING.format(own="b", other="a"), FAILED.format(results=str(tmp_path / "results.json"))),
        "c03_c": notebook("x = 1"),
    }
    for content in course.values():
        content.metadata["playbook"] = {"after": []}
    write_course(tmp_path, **course)
    todo = RunSpec(
        chapters(tmp_path / "notebooks"), {}, "embedded", tmp_path / "workspace", tmp_path, Limits(300, 300), jobs=2
    )
    results, lines = new_results(todo), list[str]()
    run(todo, results, LineProgress(lines.append))
    assert [result.status for result in results] == ["failed", "ok", "not run"], results
    assert [line.split()[0] for line in lines[:2]] == ["01-a", "02-b"]
