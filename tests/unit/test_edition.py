"""Recorded editions: what one is made of, what is taken out, and that those in recorded/ stand beside today's code."""

import base64
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
import yaml
from nbformat import NotebookNode
from nbformat.v4 import new_output
from typer.testing import CliRunner, Result

from checkout import ROOT
from course_runs import edition as editions_module
from course_runs.drift import drift, read_changes, todays_chapters
from course_runs.edition import (
    LIMIT_BYTES,
    editions,
    folder_bytes,
    make_edition,
    read_edition,
    recorded_notebooks,
    smaller_png,
    source_hash,
)
from course_runs.edition_page import readme
from course_runs.scrubbing import Scrubber
from notebook_factory import notebook, write_course
from playbook.cli.app import app
from serving_base.errors import PlaybookError, UsageError

RECORDED = ROOT / "recorded"
LEFT = re.compile(
    r"hf_[A-Za-z0-9]{16}|AKIA[A-Z0-9]{16}|(?i:bearer [a-z0-9]{12})|GPU-[0-9a-f]{8}-"
    r"|(?<![\w.~}])/(?:root|home|Users|tmp|var/tmp|var/folders)\b"
)
"""What no output of an edition holds, said another way than the patterns that take it out."""
INSTALLED = re.compile(r"/[^\s\"]*/site-packages/")
"""So is this one, which is slow: a picture's base64 is one long word with many slashes."""
UUID = "GPU-1f0e2d3c-aaaa-bbbb-cccc-0123456789ab"
WORKSPACE = "/mnt/disk/space"


def outputs_of(book: NotebookNode) -> str:
    """Outputs and what a run put in, as JSON: a chapter's own sources are checked elsewhere."""
    injected = [cell.source for cell in book.cells if "injected-parameters" in cell.metadata.get("tags", [])]
    return json.dumps([[cell.get("outputs", []) for cell in book.cells], injected, book.metadata])


def picture() -> str:
    """A PNG in base64, of 200 by 100 pixels with more colours than a palette has."""
    from PIL import Image

    image = Image.new("RGB", (200, 100))
    image.putdata([(x, y, (x * y) % 256) for y in range(100) for x in range(200)])
    written = io.BytesIO()
    image.save(written, "PNG")
    return base64.b64encode(written.getvalue()).decode()


def chapter(*, first: str = "a = 1", second: str = "print(a)") -> NotebookNode:
    book = notebook(first, second)
    for number, cell in enumerate(book.cells):
        cell.id = f"01-{number:02}"
    return book


def executed(book: NotebookNode) -> NotebookNode:
    """As papermill leaves it, with all that must not stay."""
    done: NotebookNode = nbformat.from_dict(json.loads(json.dumps(book)))  # type: ignore[no-untyped-call]
    injected = nbformat.v4.new_code_cell(  # type: ignore[no-untyped-call]
        f'workspace = "{WORKSPACE}"', metadata={"tags": ["injected-parameters"]}
    )
    done.cells.insert(2, injected)
    done.metadata.papermill = {
        "input_path": "/srv/playbook/notebooks/01-small.ipynb",
        "output_path": "/srv/runs/x/01-small.ipynb",
        "parameters": {"count": 4, "workspace": WORKSPACE},
    }
    done.metadata.widgets = {"state": "much"}
    said = f"✓ it holds\n  ✓ not a check\n✓ so does this\nlog in {WORKSPACE}/p5/log on {UUID}\n"
    widget = {"application/vnd.jupyter.widget-view+json": {"model_id": "x"}, "text/plain": "a bar"}
    done.cells[-1].outputs = [
        new_output("stream", name="stdout", text=said),  # type: ignore[no-untyped-call]
        new_output("display_data", data=widget),  # type: ignore[no-untyped-call]
        new_output("display_data", data={"image/png": picture()}),  # type: ignore[no-untyped-call]
        new_output("error", ename="E", evalue="/home/me/x", traceback=["\x1b[32m/srv/playbook/a.py\x1b[0m"]),  # type: ignore[no-untyped-call]
    ]
    done.cells[-1].metadata.papermill = {"duration": 1.0}
    return done


def run_folder(folder: Path, book: NotebookNode | None = None, profile: str = "hopper") -> Path:
    """A run of a chapter that failed and of one that did not begin."""
    folder.mkdir(parents=True)
    facts = {
        "started": "2026-11-24T10:00:00+00:00",
        "profile": profile,
        "lane": "vllm",
        "release": "1.2.1",
        "workspace": WORKSPACE,
        "parameters": {"count": "4", "workspace": WORKSPACE},
        "playbook": {"version": "0.2.0", "commit": "0123456789ab"},
        "command": ["run", "--out", "/tmp/out"],
        "environment": {"processor": "P", "cores": "8", "gpus": "NVIDIA H200, 550.1; NVIDIA H200, 550.1"},
    }
    empty: dict[str, Any] = {"key_results": [], "failure": None}
    results = [
        {"chapter": "01-small", "title": "Small", "status": "failed", "seconds": 2.5, "log": "01-small.log",
         "notebook": "01-small.ipynb", **empty, "failure": {"what": "no /root/file at 10.1.2.3"}},
        {"chapter": "02-next", "title": "Next", "status": "not run", "seconds": 0.0, "log": "", "notebook": "",
         **empty},
    ]  # fmt: skip
    (folder / "run.json").write_text(json.dumps(facts))
    (folder / "results.json").write_text(json.dumps(results))
    nbformat.write(executed(book or chapter()), folder / "01-small.ipynb")  # type: ignore[no-untyped-call]
    return folder


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A course of chapter 01, recorded as `here`, and the working directory."""
    root = write_course(tmp_path / "course", c01_small=chapter())
    monkeypatch.chdir(root)
    make_edition([run_folder(tmp_path / "run")], root / "recorded", name="here")
    return root


def verify(*more: str) -> Result:
    return CliRunner().invoke(app, ["recorded", "verify", *more], env={"COLUMNS": "200"})


# --- the editions of this repository


def test_every_edition_stands_beside_todays_code() -> None:
    today = todays_chapters(ROOT / "notebooks")
    for each in editions(RECORDED):
        found = drift(each, today, read_changes(RECORDED / each.name))
        assert [one.unexplained for one in found if one.unexplained] == [], "run: playbook recorded verify"


def left_in(text: str) -> list[str]:
    """What stands in ``text`` although no output of an edition may hold it."""
    return LEFT.findall(text) + (INSTALLED.findall(text) if "/site-packages/" in text else [])


def test_no_edition_says_where_it_was_made() -> None:
    for path in RECORDED.glob("*/**/*"):
        if path.is_file():
            book = path.suffix == ".ipynb"
            text = outputs_of(nbformat.read(path, as_version=4)) if book else path.read_text()  # type: ignore[no-untyped-call]
            assert left_in(text) == [], path


def test_every_edition_is_small() -> None:
    sizes = {each.name: folder_bytes(RECORDED / each.name) for each in editions(RECORDED)}
    assert {name: size for name, size in sizes.items() if size > LIMIT_BYTES} == {}


def test_the_page_is_that_of_the_editions() -> None:
    written = (RECORDED / "README.md").read_text(encoding="utf-8")
    assert written == readme(editions(RECORDED)), "run: playbook recorded verify --write-readme"
    links = re.findall(r"\]\(([^)]+)\)", written)
    assert [link for link in links if not (RECORDED / link).is_file()] == []


def test_only_chapters_that_ended_well_are_shown_elsewhere() -> None:
    wheres = [where for where, _ in recorded_notebooks(RECORDED, "03")]
    machines = ["NVIDIA H100 80GB HBM3"] * 6 + ["NVIDIA H200", "8 x NVIDIA H200"]
    assert [where.split(", ")[0] for where in wheres] == machines
    assert wheres[-1].endswith(", profile p5-vllm, 2026-11-26")
    sixth = [notebook for _, notebook in recorded_notebooks(RECORDED, "06")]
    assert sixth and all(notebook.is_file() and notebook.name.startswith("06-") for notebook in sixth)
    seventh = [where for where, _ in recorded_notebooks(RECORDED, "07")]
    assert seventh and not any(where.startswith("NVIDIA H200") for where in seventh)  # it failed there


# --- making one


def test_an_edition_says_what_was_run_where_and_on_which_code(course: Path) -> None:
    made = read_edition(course / "recorded" / "here")
    (run,) = made.runs
    assert (made.name, made.date, run.folder, run.machine["cores"]) == ("here", "2026-11-24", "hopper", "8")
    assert run.playbook == {"version": "0.2.0", "commit": "0123456789ab"}
    ran, not_run = run.chapters
    assert (ran.status, ran.seconds, ran.checks, ran.notebook) == ("failed", 2.5, 2, "01-small.ipynb")
    assert ran.parameters == {"count": 4, "workspace": "workspace"}
    assert list(ran.cells) == ["01-01", "01-02", "01-03"]
    assert ran.cells["01-02"] == source_hash("a = 1")
    assert (not_run.status, not_run.notebook, not_run.cells) == ("not run", "", {})
    files = sorted(path.name for path in (course / "recorded" / "here" / "hopper").iterdir())
    assert files == ["01-small.ipynb", "results.json", "run.json"]


def test_what_must_not_leave_the_machine_stays_there(course: Path) -> None:
    folder = course / "recorded" / "here" / "hopper"
    book = nbformat.read(folder / "01-small.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    text = outputs_of(book) + (folder / "run.json").read_text() + (folder / "results.json").read_text()
    assert left_in(text) == []
    for gone in ("/mnt/disk", "/srv", UUID, "10.1.2.3", "widget", "papermill", "01-small.log"):
        assert gone not in text, gone
    for stays in ("log in workspace/p5/log on [GPU id]", "a bar", "no ~/file at [address]", "32m./a.py"):
        assert stays in text, stays
    assert [cell.source for cell in book.cells[3:]] == ["a = 1", "print(a)"]


def test_the_search_of_this_file_finds_what_a_run_leaves(tmp_path: Path) -> None:
    book = nbformat.read(run_folder(tmp_path / "run") / "01-small.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    assert {"GPU-1f0e2d3c-", "/home"} <= set(left_in(outputs_of(book)))


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("/home/ubuntu/x.py", "~/x.py"),
        ("\x1b[32m/root/x.py", "\x1b[32m~/x.py"),
        ("a\\n/root", "a\\n~"),
        ("/rootless /opt/ml/model runs/root", "/rootless /opt/ml/model runs/root"),
        ("/home/me/tmp/x ${WHERE}/tmp/x", "~/tmp/x ${WHERE}/tmp/x"),
        ("/w/space/engine /w/space2", "workspace/engine /w/space2"),
        ("file:///w/space", "file://workspace"),
        ("/tmp/ipykernel_1/2.py, /private/var/folders/x", "temp/ipykernel_1/2.py, temp/x"),
        ("/usr/lib/python3/dist-packages/torch", "site-packages/torch"),
        ("/w/.venv/lib/site-packages/torch/a.py:3", "site-packages/torch/a.py:3"),
        ("token hf_ABCDEFGHIJKLMNOPQRSTUV", "token [secret]"),
        ("hf_quant_config.json", "hf_quant_config.json"),
        ("AKIAIOSFODNN7EXAMPLE", "[secret]"),
        ("Authorization: Bearer abcdefghijklmnop", "Authorization: Bearer [secret]"),
        ("a bearer of news", "a bearer of news"),
        (f"{UUID} MIG-1F0E2D3C-aaaa-bbbb-cccc-0123456789ab", "[GPU id] [GPU id]"),
        ("http://10.0.3.4:8000/v2", "http://[address]:8000/v2"),
        ("127.0.0.1 127.0.0.53 0.0.0.0:8000", "127.0.0.1 127.0.0.53 0.0.0.0:8000"),
        ("tensorrt==10.13.3.9, TensorRT 10.13.3.9, cudnn-9.10.2.21, 2026.4.1.0",) * 2,
        ("at ip-10-0-1-2.ec2.internal", "at [host]"),
        ("ssh gpu-box-7:22, gpu-box-77", "ssh [host]:22, gpu-box-77"),
    ],
)
def test_scrubbing(text: str, left: str) -> None:
    scrubber = Scrubber({"/w/space": "workspace", "/": "root", "": "nothing", "space": "no"}, ["gpu-box-7", "ssh"])
    assert scrubber.text(text) == left
    assert scrubber.data({"a": [text, 1, None], "image/png": text}) == {"a": [left, 1, None], "image/png": text}


def test_a_picture_gets_smaller_and_stays_one() -> None:
    from PIL import Image

    before = picture()
    after = smaller_png(before)
    assert len(after) < len(before)
    with Image.open(io.BytesIO(base64.b64decode(after))) as image:
        assert (image.format, image.size) == ("PNG", (200, 100))
    assert smaller_png(after) == after


def test_several_runs_have_a_folder_each(tmp_path: Path) -> None:
    profiles = ("hopper-tiny", "hopper", "hopper")
    runs = [run_folder(tmp_path / str(number), profile=name) for number, name in enumerate(profiles)]
    made = make_edition(runs, tmp_path / "recorded", hide=["P"])
    assert made.name == "h200-20261124"
    assert [run.folder for run in made.runs] == ["hopper-tiny", "hopper", "hopper--2"]
    assert read_edition(tmp_path / "recorded" / made.name) == made


def test_an_edition_is_replaced_only_by_force(course: Path, tmp_path: Path) -> None:
    folder = course / "recorded"
    (folder / "here" / "changes.yml").write_text("[]")
    with pytest.raises(UsageError, match="exists") as told:
        make_edition([tmp_path / "run"], folder, name="here")
    assert "--force" in told.value.fix
    assert (folder / "here" / "changes.yml").exists()
    make_edition([tmp_path / "run"], folder, name="here", force=True)
    assert not (folder / "here" / "changes.yml").exists()


def test_an_edition_above_the_limit_is_refused_and_leaves_nothing(
    course: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = course / "recorded"
    size = folder_bytes(folder / "here")
    monkeypatch.setattr(editions_module, "LIMIT_BYTES", size - 1000)
    with pytest.raises(PlaybookError, match="the limit is"):
        make_edition([tmp_path / "run"], folder, name="again")
    with pytest.raises(PlaybookError, match="the limit is"):
        make_edition([tmp_path / "run"], folder, name="here", force=True)
    assert [path.name for path in folder.iterdir()] == ["here"]
    monkeypatch.setattr(editions_module, "LIMIT_BYTES", size + 1000)
    make_edition([tmp_path / "run"], folder, name="again")


@pytest.mark.parametrize("text", [None, "{"])
def test_a_run_that_lacks_a_notebook_is_refused(tmp_path: Path, text: str | None) -> None:
    run = run_folder(tmp_path / "run")
    (run / "01-small.ipynb").unlink()
    if text:
        (run / "01-small.ipynb").write_text(text)
    with pytest.raises(UsageError, match=r"01-small.ipynb cannot be read"):
        make_edition([run], tmp_path / "recorded")
    assert not list((tmp_path / "recorded").iterdir())


@pytest.mark.parametrize("name", ["../up", "Big", ".hidden", "a/b"])
def test_a_name_is_a_folder_here(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="cannot name an edition"):
        make_edition([run_folder(tmp_path / "run")], tmp_path / "recorded", name=name)


def test_the_command_makes_an_edition_and_its_page(course: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["recorded", "make", str(tmp_path / "run"), "--hide", "NVIDIA"])
    assert done.exit_code == 0, done.output
    assert "hopper: 1 failed, 1 not run" in done.output
    page = (course / "recorded" / "README.md").read_text(encoding="utf-8")
    assert "| [01 Small](h200-20261124/hopper/01-small.ipynb) | failed | 2.5 | 2 |" in page
    assert "| 02 Next | not run | - | 0 |" in page
    assert "GPUs 2 x [host] H200, 550.1; processor P; cores 8" in page
    assert "There is no edition yet" not in page
    assert page == readme(editions(course / "recorded"))


# --- keeping it true


def test_an_edition_of_todays_code_is_current(course: Path) -> None:
    write_course(course, c03_new=chapter())
    done = verify()
    assert done.exit_code == 0, done.output
    assert re.search(r"01-small +current", done.output)
    assert re.search(r"03-new +not recorded", done.output)


@pytest.mark.parametrize("source", ["a = 1  ", "\na = 1\n\n"])
def test_blanks_that_nobody_sees_are_no_change(course: Path, source: str) -> None:
    write_course(course, c01_small=chapter(first=source))
    assert verify().exit_code == 0


def test_prose_is_no_change(course: Path) -> None:
    book = chapter()
    book.cells[0].source = "# 01 · Another title"
    write_course(course, c01_small=book)
    assert verify().exit_code == 0


def removed(book: NotebookNode) -> NotebookNode:
    del book.cells[-1]
    return book


def added(book: NotebookNode) -> NotebookNode:
    book.cells.append(nbformat.v4.new_code_cell("b = 2", id="01-new"))  # type: ignore[no-untyped-call]
    return book


def changed(book: NotebookNode) -> NotebookNode:
    book.cells[-1].source = "print(2 * a)"
    return book


@pytest.mark.parametrize(
    ("change", "words", "sha256"),
    [
        (changed, "changed 01-03", source_hash("print(2 * a)")),
        (added, "added 01-new", source_hash("b = 2")),
        (removed, "removed 01-03", "removed"),
    ],
)
def test_a_change_needs_an_entry_for_todays_source(
    course: Path, change: Callable[[NotebookNode], NotebookNode], words: str, sha256: str
) -> None:
    write_course(course, c01_small=change(chapter()))
    done = verify("here")
    assert done.exit_code == 1
    assert words in done.output and "(explained)" not in done.output
    entries = yaml.safe_load(done.stderr.partition("\n\n")[2])
    assert entries == [{"chapter": "01-small", "cell": words.split()[1], "source_sha256": sha256, "why": ""}]

    path = course / "recorded" / "here" / "changes.yml"
    path.write_text(yaml.safe_dump(entries))
    assert verify().exit_code == 1, "a why that says nothing"
    path.write_text(yaml.safe_dump([{**entries[0], "why": "the same figures"}]))
    done = verify()
    assert done.exit_code == 0, done.output
    assert f"{words} (explained)" in done.output and "note:" not in done.output

    path.write_text(yaml.safe_dump([{**entries[0], "why": "the same figures", "source_sha256": "0" * 64}]))
    done = verify()
    assert done.exit_code == 1
    assert "explains 01-small" in done.output and "not today's source" in done.output


def test_a_chapter_that_is_gone_is_one_change(course: Path) -> None:
    (course / "notebooks" / "01-small.ipynb").unlink()
    write_course(course, c02_other=chapter())
    done = verify()
    assert done.exit_code == 1
    assert "removed all" in done.output


def test_a_parameter_that_is_gone_is_named(course: Path) -> None:
    book = chapter()
    book.cells[1].source = book.cells[1].source.replace("count:", "number:")
    write_course(course, c01_small=book)
    done = verify()
    assert done.exit_code == 1
    assert "changed 01-01; parameter gone: count" in done.output


@pytest.mark.parametrize("text", ["a: 1", "- 1", "- {chapter: 01-small}", "- {chapter: a, cell: b, why: c, sha: d}"])
def test_changes_of_another_shape_are_refused(course: Path, text: str) -> None:
    (course / "recorded" / "here" / "changes.yml").write_text(text)
    done = verify()
    assert done.exit_code == 2
    assert "changes.yml" in done.output


def test_an_unknown_edition_is_refused_and_no_edition_is_none(course: Path) -> None:
    assert verify("nowhere").exit_code == 2
    (course / "recorded" / "here" / "edition.json").unlink()
    done = verify("--write-readme")
    assert done.exit_code == 0
    assert "no editions in recorded/" in done.output
    assert "There is no edition yet" in (course / "recorded" / "README.md").read_text()
