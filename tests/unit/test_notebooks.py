"""Chapters, their parameters, and the checker of committed notebooks: it is shown what it must refuse."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output

import playbook.course.source
from notebook_factory import notebook, write_course
from playbook.course.notebook_checks import static_problems
from playbook.course.notebooks import (
    Chapter,
    Parameter,
    chapter,
    chapters,
    check_value,
    parameters,
    parse_assignments,
    parse_parameters,
    project_root,
    read,
    values_per_chapter,
)
from serving_base.errors import UsageError

FIXTURES = Path(__file__).parents[1] / "fixtures" / "notebooks"
COURSE = chapters(Path(__file__).parents[2] / "notebooks")


@pytest.fixture
def clean() -> NotebookNode:
    return read(FIXTURES / "clean.ipynb")


# The committed course.


def test_the_course_is_numbered_without_gaps() -> None:
    assert [item.number for item in COURSE] == [f"{number:02}" for number in range(len(COURSE))]
    assert len(COURSE) >= 6


@pytest.mark.parametrize("item", COURSE, ids=lambda item: item.name)
def test_a_committed_chapter_has_no_static_problem(item: Chapter) -> None:
    assert static_problems(read(item.path)) == []


@pytest.mark.parametrize("item", COURSE, ids=lambda item: item.name)
def test_every_chapter_takes_the_three_common_parameters(item: Chapter) -> None:
    declared = {parameter.name: parameter for parameter in parameters(read(item.path))}
    assert {"profile", "workspace", "release"} <= declared.keys()
    assert (declared["profile"].default, declared["workspace"].default) == ("local", "")


# Finding chapters.


def test_a_diff_shows_sources_and_no_outputs(tmp_path: Path) -> None:
    cell = {"cell_type": "code", "metadata": {"tags": ["timing"]}, "source": ["a = 1\n", "a"], "outputs": [{"x": 9}]}
    prose = {"cell_type": "markdown", "metadata": {}, "source": ["# Title\n", "\n", "words"]}
    path = tmp_path / "a.ipynb"
    path.write_text(json.dumps({"cells": [prose, cell]}))
    done = subprocess.run(
        [sys.executable, "-S", playbook.course.source.__file__, path], capture_output=True, text=True, check=True
    )
    assert done.stdout == '# %% [markdown]\n# # Title\n#\n# words\n\n# %% tags=["timing"]\na = 1\na\n'


def test_chapters_are_found_in_order_and_by_any_of_their_names(tmp_path: Path) -> None:
    write_course(
        tmp_path, c02_b=notebook(title="# 02 · Second"), c01_a=notebook(title="# 01 · First"), notes=notebook()
    )
    known = chapters(tmp_path / "notebooks")
    assert [(item.number, item.slug, item.title) for item in known] == [("01", "a", "First"), ("02", "b", "Second")]
    for name in ("02", "2", "b", "02-b", "02-b.ipynb", "notebooks/02-b.ipynb"):
        assert chapter(name, known) == known[1]


def test_a_wrong_chapter_name_lists_the_chapters(tmp_path: Path) -> None:
    write_course(tmp_path, c01_a=notebook())
    with pytest.raises(UsageError, match="no chapter '7'") as caught:
        chapter("7", chapters(tmp_path / "notebooks"))
    assert "01-a" in caught.value.why


def test_the_working_directory_decides_which_course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_course(tmp_path / "other", c01_a=notebook())
    monkeypatch.chdir(tmp_path / "other" / "notebooks")
    assert project_root() == tmp_path / "other"
    monkeypatch.chdir(tmp_path)
    assert project_root() == Path(__file__).parents[2]


def test_a_file_that_is_no_notebook_is_named(tmp_path: Path) -> None:
    (tmp_path / "01-a.ipynb").write_text("hello")
    with pytest.raises(UsageError, match=r"01-a\.ipynb is not a notebook"):
        read(tmp_path / "01-a.ipynb")


# Parameters.


def test_parameters_are_read_with_type_default_and_help() -> None:
    source = 'name: str = "a # b"  # what it is called\nsizes: list[int] = [\n    1,\n    -2,\n]  # two of them\n'
    assert parse_parameters(source) == [
        Parameter("name", "str", "a # b", "what it is called"),
        Parameter("sizes", "list[int]", [1, -2], "two of them"),
    ]


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("count = 3", "line 1 of the parameters cell"),
        ("count: int = 3\nimport os", "line 2 of the parameters cell"),
        ("count: int", "line 1 of the parameters cell"),
        ("where: Path = 3", "has the type Path"),
    ],
)
def test_other_lines_in_a_parameters_cell_are_refused(source: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        parse_parameters(source)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("str", "007", "007"),
        ("str", "a=b", "a=b"),
        ("int", "-7", -7),
        ("float", "1e-3", 0.001),
        ("float", "2", 2.0),
        ("bool", "True", True),
        ("bool", "false", False),
        ("list[int]", "[1, 2]", [1, 2]),
        ("list[str]", '["a"]', ["a"]),
    ],
)
def test_values_get_their_declared_type(kind: str, text: str, value: object) -> None:
    found = check_value(Parameter("p", kind, None, ""), text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("int", "3.0"),
        ("int", "three"),
        ("int", "true"),
        ("int", ""),
        ("float", "nan"),
        ("float", "1,5"),
        ("bool", "1"),
        ("list[int]", "1,2"),
        ("list[int]", '["1"]'),
    ],
)
def test_mistyped_values_are_refused(kind: str, text: str) -> None:
    with pytest.raises(UsageError, match=r"parameter p: .* is not of type"):
        check_value(Parameter("p", kind, 1, ""), text)


@pytest.mark.parametrize("text", ["count", "=3", "co unt=3", ""])
def test_what_is_not_name_and_value_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not name=value"):
        parse_assignments([text])


def test_a_name_given_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="count is given twice"):
        parse_assignments(["count=1", "count=2"])


def test_a_value_goes_only_to_the_chapters_that_declare_it(tmp_path: Path) -> None:
    write_course(tmp_path, c01_a=notebook(), c02_b=notebook(parameters="other: int = 1  # another"))
    known = chapters(tmp_path / "notebooks")
    assert values_per_chapter(known, {"count": "5"}) == {"01": {"count": 5}, "02": {}}


def test_a_value_that_no_chapter_declares_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    write_course(tmp_path, c01_a=notebook())
    with pytest.raises(UsageError, match="did you mean 'count'"):
        values_per_chapter(chapters(tmp_path / "notebooks"), {"cuont": "5"})


# The checker.


def test_a_clean_notebook_passes(clean: NotebookNode) -> None:
    assert static_problems(clean) == []


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("out_of_order", "was run as number 5, not 2"),
        ("un_run", "has not been run"),
        ("un_run_with_outputs", "has outputs but no execution count"),
        ("early_exit", "leaves early with SystemExit"),
    ],
)
def test_a_bad_fixture_is_caught(name: str, complaint: str) -> None:
    problems = static_problems(read(FIXTURES / f"{name}.ipynb"))
    assert len(problems) == 1
    assert complaint in problems[0]


def break_kernel(notebook: NotebookNode) -> None:
    notebook.metadata.kernelspec.name = "my-conda-env"


def break_ids(notebook: NotebookNode) -> None:
    notebook.cells[0].id = notebook.cells[1].id


def store_error(notebook: NotebookNode) -> None:
    notebook.cells[3].outputs = [new_output("error", ename="ValueError", evalue="no", traceback=[])]  # type: ignore[no-untyped-call]


def second_parameters_cell(notebook: NotebookNode) -> None:
    notebook.cells[3].metadata.tags = ["parameters"]


def untyped_parameter(notebook: NotebookNode) -> None:
    notebook.cells[1].source = "count = 3  # how many"


def unexplained_parameter(notebook: NotebookNode) -> None:
    notebook.cells[1].source = "count: int = 3"


def wrong_default(notebook: NotebookNode) -> None:
    notebook.cells[1].source = 'count: int = "3"  # how many'


def thirteen_parameters(notebook: NotebookNode) -> None:
    notebook.cells[1].source = "\n".join(f"p{number}: int = 1  # one" for number in range(13))


def source(text: str) -> Callable[[NotebookNode], None]:
    def change(notebook: NotebookNode) -> None:
        notebook.cells[3].source = text

    return change


def output_with_home(notebook: NotebookNode) -> None:
    notebook.cells[3].outputs[0].text = "read /home/jane/model\n"


def many_long_cells(notebook: NotebookNode) -> None:
    for cell in notebook.cells[3:]:
        if cell.cell_type == "code":
            cell.source = "x = 1\n" * 21


def little_prose(notebook: NotebookNode) -> None:
    notebook.cells[2].source = notebook.cells[5].source = ""


def much_prose(notebook: NotebookNode) -> None:
    notebook.cells[2].source = "word " * 300


def without(text: str) -> Callable[[NotebookNode], None]:
    def change(notebook: NotebookNode) -> None:
        for cell in notebook.cells:
            cell.source = cell.source.replace(text, "")

    return change


def cleanup_not_last(notebook: NotebookNode) -> None:
    notebook.cells += [new_markdown_cell("more " * 60), new_code_cell("print(1)", execution_count=5)]  # type: ignore[no-untyped-call]


def papermill_metadata(notebook: NotebookNode) -> None:
    notebook.cells[3].metadata.papermill = {"status": "completed"}


def injected_cell(notebook: NotebookNode) -> None:
    notebook.cells[3].metadata.tags = ["injected-parameters"]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (break_kernel, "not 'python3'"),
        (break_ids, "cell ids"),
        (store_error, "holds an error"),
        (second_parameters_cell, "2 cells are tagged 'parameters'"),
        (untyped_parameter, "cannot be read"),
        (unexplained_parameter, "no comment"),
        (wrong_default, "not of type int"),
        (thirteen_parameters, "13 parameters"),
        (source("!ls"), "not plain Python"),
        (source("%%bash\nls"), "not plain Python"),
        (source("%timeit 1"), "not plain Python"),
        (source("get_ipython().system('ls')"), "get_ipython"),
        (source("import sys\nsys.exit()"), "leaves early with sys.exit"),
        (source("exit()"), "leaves early with exit"),
        (source("playbook.table(rows)\nprint(1)"), "a table that nobody sees"),
        (source("if rows:\n    playbook.table(rows)"), "a table that nobody sees"),
        (source("path = '/home/jane/x'"), "path of one machine"),
        (source(f"path = '{project_root()}'"), "path of one machine"),
        (output_with_home, "path of one machine"),
        (source("x = 1\n" * 31), "31 lines"),
        (many_long_cells, "one code cell in ten"),
        (little_prose, "words of prose per code cell"),
        (much_prose, "words of prose per code cell"),
        (without("ou will"), "You will"),
        (without("**Needs**"), "Needs"),
        (without("**Time**"), "Time"),
        (without("**Cost**"), "Cost"),
        (without("|---|---|---|"), "If it went wrong"),
        (cleanup_not_last, "not tagged 'cleanup'"),
        (papermill_metadata, "papermill's metadata"),
        (injected_cell, "injected parameters"),
        (source("from playbook.lanes import embedded"), "playbook.lanes.embedded"),
        (source("import playbook.stages"), "playbook.stages"),
        (source("import playbook\nplaybook.hidden()"), "playbook.hidden"),
        (source("from playbook import hidden"), "playbook.hidden"),
    ],
)
def test_one_fault_in_a_clean_notebook_is_found(
    clean: NotebookNode, change: Callable[[NotebookNode], None], complaint: str
) -> None:
    change(clean)
    problems = static_problems(clean, public_names={"start"})
    assert any(complaint in problem for problem in problems), problems


def test_public_names_may_be_used(clean: NotebookNode) -> None:
    clean.cells[3].source = "import playbook\nlab = playbook.start('00')"
    assert static_problems(clean, public_names={"start"}) == []
