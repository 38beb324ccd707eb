"""The course under a GPU profile, with stand-ins for the machine's programs.

The chapters, the lane, the recipes and Triton are the real ones; the tools of TensorRT-LLM and the GPUs are not, and a
tiny engine answers in place of the 70B one (docs/stand-ins.md). All chapters that ask something of the lane run once,
under one profile and release, headless and in order; of the others, what they show of the profile. Other profiles and
releases: test_gpu_roads.py.
"""

import ast
import re
from pathlib import Path

import pytest

from gpu_courses import (
    SAME_EVERYWHERE,
    TOKEN,
    WHOLE,
    Course,
    Road,
    markdown,
    meetings,
    rows_of,
    run_course,
    shared_by_all,
    statements,
)
from playbook.course.notebooks import chapters
from playbook.course.notebooks import read as read_notebook
from playbook.panel import ALREADY, NOT_HERE, YOURS
from road_checks import RoadChecks

LIMIT_S = 1500  # below the faulthandler_timeout of pyproject.toml
"""Of one course: six minutes on a quiet machine."""
pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(LIMIT_S + 60)]
NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
MOST_SILENT = 9
SILENT = {
    "02": {"02-25": "A model of this size is not computed twice in this process."},
    "04": {"04-bf16-b": "On another lane this cell stays silent, because no second engine is built for it there."},
    "07": dict.fromkeys(("07-37", "07-38", "07-58", "07-59"), "On a real account these two cells stay silent"),
    "08": {"08-lb-e": "A release whose backend counts no tokens leaves that check silent."},
    "15": dict.fromkeys(("15-31", "15-34"), "On a paid account this part is skipped"),
}
"""Chapter -> code cell that is silent under a GPU profile -> the sentence of the chapter that says why."""
CHAPTERS = [item.number for item in chapters(NOTEBOOKS) if item.number not in SAME_EVERYWHERE]
ENDS = dict.fromkeys(CHAPTERS, "ok") | {"07": "skipped"}
"""Chapter 07 asks what it may cost, and a headless run has no answer."""
NOTHING_OF_THE_LANE = {"check", "exercise", "guess", "on_close", "result", "say", "turn", "workspace"}


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory, network: None) -> Course:
    profile, release = WHOLE
    done = run_course(tmp_path_factory.mktemp("course"), profile, release, shared_by_all(), limit_s=LIMIT_S)
    print(markdown(f"{profile}, {release}", rows_of(done.results(), done.out)))
    return done


class TestRoad(RoadChecks):
    @pytest.fixture
    def road(self, course: Course) -> Road:
        return course


@pytest.mark.parametrize("number", CHAPTERS)
def test_a_chapter_runs_to_its_end(course: Course, number: str) -> None:
    (result,) = (each for each in course.results() if each["chapter"].startswith(number))
    assert result["status"] == ENDS[number], result["failure"]


@pytest.mark.parametrize("number", SAME_EVERYWHERE)
def test_a_chapter_that_is_the_same_everywhere_shows_the_profile(course: Course, number: str) -> None:
    shown = course.meet(number)
    assert course.profile_name in shown
    assert course.release in shown


@pytest.mark.parametrize("number", SAME_EVERYWHERE)
def test_it_asks_nothing_of_the_lane(number: str) -> None:
    """If this fails, the chapter does, and has to run as a whole: it is no longer one of ``SAME_EVERYWHERE``."""
    met = meetings(number)
    others = [statement for statement in statements(number) if ast.unparse(statement) not in met]
    found = [each for statement in others for each in ast.walk(statement)]
    asked = {each.attr for each in found if isinstance(each, ast.Attribute) and ast.unparse(each.value) == "lab"}
    assert asked <= NOTHING_OF_THE_LANE
    assert {each.id for each in found if isinstance(each, ast.Name)} & {"profile", "release"} == set()
    assert "stages" not in {each.attr for each in found if isinstance(each, ast.Attribute)}


def test_the_course_is_no_failure_when_nobody_consents_to_a_price(course: Course) -> None:
    assert course.status == 0, course.output[-3000:]
    (skipped,) = (each["skipped"] for each in course.results() if each["status"] == "skipped")
    assert re.search(r"\d USD", skipped["what"])
    assert f"skipped: {skipped['what'].splitlines()[0]}" in course.output


def test_the_report_names_the_release_and_not_the_token(course: Course) -> None:
    page = (course.out / "report.html").read_text(encoding="utf-8")
    assert course.release in page
    for path in [*course.out.iterdir(), *(course.folder / "logs").iterdir()]:
        assert TOKEN.encode() not in (path.read_bytes() if path.is_file() else b"")


def test_few_cells_are_silent_and_each_has_its_reason_on_the_page(course: Course) -> None:
    rows = rows_of(course.results(), course.out)
    silent = {(row.chapter[:2], cell) for row in rows for cell in row.silent}
    assert len(silent) <= MOST_SILENT
    assert {key for key in silent if not is_said(*key)} == set()


@pytest.mark.parametrize(("name", "title"), [("00-preflight", YOURS), ("01-llama3-setup", ALREADY)])
def test_a_panel_says_whether_its_commands_ran(course: Course, name: str, title: str) -> None:
    cells = read_notebook(course.out / f"{name}.ipynb").cells
    shown = str([cell.outputs for cell in cells if cell.cell_type == "code"])
    assert title in shown
    assert ({YOURS, ALREADY, NOT_HERE} - {title}) & {
        each for each in (YOURS, ALREADY, NOT_HERE) if each in shown
    } == set()


def test_the_log_of_the_build_is_streamed_into_the_notebook(course: Course) -> None:
    notebook = (course.out / "03-engine-build.ipynb").read_text(encoding="utf-8")
    assert "Serializing engine to" in notebook
    assert "trtllm-build: exit code 0 after" in notebook
    assert "Serializing engine to" in (course.folder / "logs" / "build-0-trtllm-build.log").read_text(encoding="utf-8")


def is_said(number: str, cell: str) -> bool:
    """Whether the reason that the data gives for this silent cell stands on the chapter's page."""
    (chapter,) = (each for each in chapters(NOTEBOOKS) if each.number == number)
    page = " ".join(" ".join(each.source.split()) for each in read_notebook(chapter.path).cells)
    reason = SILENT.get(number, {}).get(cell, "")
    return bool(reason) and reason in page
