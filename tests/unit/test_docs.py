"""The pages outside the notebooks: their links lead somewhere, and their aws commands exist."""

import ast
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from aws_commands import problems
from playbook.cli.app import app
from playbook.cli.docs import cli_page, generated_pages, times_page
from playbook.course.notebooks import chapters
from playbook.profile import profile_names
from serving_base.facts.prices import prices
from trtllm_check.releases import known_releases, load_release

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
MADE = {
    "attention_kernels.md",
    "checks.md",
    "claims.md",
    "cli.md",
    "exercises.md",
    "flags_of_the_articles.md",
    "glossary.md",
    "releases.md",
    "times.md",
}
WRITTEN = [page for page in PAGES if page.name not in MADE]  # by hand
PACKAGES = sorted(ROOT.glob("packages/*/__init__.py"))
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def aws_commands(text: str) -> list[list[str]]:
    """Every line of a bash block that calls aws."""
    blocks = re.findall(r"^```bash\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("aws ")]
    return [shlex.split(line, comments=True) for line in lines]


@each_page
def test_links_lead_to_files_that_exist(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_readme_lists_every_page() -> None:
    listed = re.findall(r"^\| \[docs/(\S+\.md)\]", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(page.name for page in (ROOT / "docs").glob("*.md"))


@each_page
def test_aws_commands_exist_with_their_flags(page: Path) -> None:
    assert [problem for argv in aws_commands(page.read_text()) for problem in problems(argv)] == []


@each_page
def test_prices_on_a_page_are_those_of_the_price_list(page: Path) -> None:
    known = {entry.usd_per_hour for entry in prices()}
    assert {float(usd) for usd in re.findall(r"(\d+\.\d+) USD/h", page.read_text())} <= known


def test_the_page_of_the_command_line_is_what_the_commands_say(monkeypatch: pytest.MonkeyPatch) -> None:
    for columns in ("40", "200"):
        monkeypatch.setenv("COLUMNS", columns)
        assert (ROOT / "docs" / "cli.md").read_text() == cli_page(app), "run: make docs"


def test_the_page_of_times_is_what_notebooks_exercises_and_recording_say() -> None:
    text = (ROOT / "docs" / "times.md").read_text()
    assert text == times_page(), "run: make docs"
    *rows, total = [[int(cell or 0) for cell in row] for row in TIMES.findall(text)]
    assert (
        len(rows) == len(chapters(ROOT / "notebooks")) and [sum(column) for column in zip(*rows, strict=True)] == total
    )


TIMES = re.compile(r"^\|[^|]+\| (\d+) \|[^|]+\| (\d+) \| (\d+) \| (\d+) \|$", re.MULTILINE)


def test_a_page_that_says_it_is_made_is_made() -> None:
    """The tests of the others compare their text."""
    made = {page.name for page in PAGES if "by `make docs`" in page.read_text()}
    assert made == set(generated_pages(app)) == MADE


FILE = re.compile(
    r"(?<![\w./-])((?:playbook|packages|tests|notebooks|benchmarks|docs)/[\w./*-]*\w)(?::([A-Za-z_][\w.]*))?"
)
OURS = "|".join(["playbook", *(path.parent.name for path in PACKAGES)])
MODULE = re.compile(rf"(?<![\w./@-])((?:{OURS})(?:\.\w+)+)")
SCRIPT = re.compile(r"(?<![\w./-])\w+\.py\b")
TARGET = re.compile(r"(?:^|`)make (\w+)", re.MULTILINE)
COMMAND = re.compile(r"(?:^|`)(?:\.venv/bin/)?playbook ([a-z][^`\n#]*)", re.MULTILINE)


def names_in(body: list[ast.stmt], before: str = "") -> Iterator[str]:
    """``f``, ``C`` and ``C.m`` of what a module defines."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield before + node.name
        if isinstance(node, ast.ClassDef):
            yield from names_in(node.body, f"{node.name}.")


def defined(file: str) -> set[str]:
    return set(names_in(ast.parse((ROOT / file).read_text()).body))


def missing(text: str) -> list[str]:
    """What a page names and the project has not; the lines that a diff adds may name what is not there yet."""
    kept = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("+"))
    return sorted({*missing_files(kept), *missing_names(kept), *missing_commands(kept)})


def missing_files(text: str) -> Iterator[str]:
    """Files and folders that do not exist, and those that do not hold the name behind the colon; scripts by name."""
    for file, name in FILE.findall(text):
        if not any(ROOT.glob(file)):
            yield file
        elif name and name not in defined(file):
            yield f"{file}:{name}"
    tools = {tool for release in known_releases() for tool in load_release(release).tools}
    yield from set(SCRIPT.findall(text)) - tools - {path.name for path in ROOT.glob("[bpt]*/**/*.py")}


def missing_names(text: str) -> Iterator[str]:
    """Modules of ours, and names in them, that cannot be imported."""
    for name in MODULE.findall(text):
        try:
            resolve_name(name)
        except (ImportError, AttributeError):
            yield name


def missing_commands(text: str) -> Iterator[str]:
    """Targets of make, commands of playbook and their options."""
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    yield from (f"make {target}" for target in TARGET.findall(text) if target not in targets)
    for name, *words in (line.split() for line in COMMAND.findall(text)):
        known = options(name)
        yield from () if known else (name,)
        given = {word.partition("=")[0] for word in words if word.startswith("-")}
        yield from (f"{name} {word}" for word in given if known and word not in known)


def options(name: str) -> set[str]:
    """Those of ``playbook <name>`` and of the commands below it; none at all where there is no such command."""
    group = get_command(app)
    command = group.commands.get(name) if isinstance(group, TyperGroup) else None
    below = [command, *command.commands.values()] if isinstance(command, TyperGroup) else [command]
    words = [[*param.opts, *param.secondary_opts] for each in below if each for param in each.params]
    return {word for each in words for word in each} | ({"--help"} if command else set())


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.name)
def test_what_a_page_names_exists(page: Path) -> None:
    assert missing(page.read_text()) == []


def test_a_name_that_is_gone_is_found() -> None:
    text = """
`playbook/profile.py:load_profile` `playbook/profile.py:Profile.gone` `pytest tests/unit/gone.py tests/toy_lane.py`
`playbook.serve(...)` `playbook.clients.gone.generate(x)` `playbook.clients.triton.gone` `quantize.py` `gone.py`
`make test` `make gone` `playbook plan --gpu x --gone` `.venv/bin/playbook gone` `packages/*/gone.py`
+++ tests/added.py
"""
    assert missing(text) == [
        "gone",
        "gone.py",
        "make gone",
        "packages/*/gone.py",
        "plan --gone",
        "playbook.clients.gone.generate",
        "playbook.clients.triton.gone",
        "playbook/profile.py:Profile.gone",
        "tests/unit/gone.py",
    ]


def test_the_readme_names_every_profile_and_the_releases() -> None:
    text = (ROOT / "README.md").read_text()
    assert [name for name in profile_names() if f"`{name}`" not in text] == []
    builds = [name for name in known_releases() if load_release(name).builds_engines]
    assert f"from {builds[0]} to {builds[-1]} and" in text


def test_the_table_of_the_packages_is_true() -> None:
    """Nearly: a module or some hundred lines more are no lie yet."""
    rows = re.findall(
        r"^\| (\S+) \| (\d+) \| ([\d,]+) \|$", (ROOT / "docs" / "architecture.md").read_text(), re.MULTILINE
    )
    assert {name for name, _, _ in rows} == {"playbook", *(f"packages/{path.parent.name}" for path in PACKAGES)}
    for name, modules, lines in rows:
        files = list((ROOT / name).rglob("*.py"))
        assert len(files) == pytest.approx(int(modules), rel=0.05, abs=1), name
        written = sum(len(file.read_text().splitlines()) for file in files)
        assert written == pytest.approx(int(lines.replace(",", "")), rel=0.05, abs=100), name


def test_the_picture_of_the_rooms_is_the_layers_that_are_checked() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract.get("containers") == ["playbook"]]
    text = (ROOT / "docs" / "architecture.md").read_text()
    _, packages, rooms = [part.partition("```")[0] for part in text.split("```mermaid")]
    assert re.findall(r'\["([^"]+)"\]', rooms) == [layer.replace(" | ", ", ") for layer in layers]
    (layers,) = [contract["layers"] for contract in contracts if "containers" not in contract and "layers" in contract]
    drawn = re.findall(r'\["(\w+)<br/>', packages)
    assert sorted(drawn) == sorted(name for layer in layers for name in layer.split(" | "))


def test_the_first_hour_has_its_commands() -> None:
    found = [argv[1:3] for argv in aws_commands((ROOT / "docs" / "first-hour-on-a-p5.md").read_text())]
    assert ["ec2", "run-instances"] in found and ["ec2", "terminate-instances"] in found and len(found) >= 9


def test_a_wrong_command_on_a_page_is_found() -> None:
    page = "```bash\naws ec2 run-instances --image-id ami --number 1  # a comment\n```\n"
    assert [problem for argv in aws_commands(page) for problem in problems(argv)] == [
        "run-instances has no --number",
    ]
