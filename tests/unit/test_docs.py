"""The pages outside the notebooks: their links lead somewhere, and their aws commands exist."""

import ast
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from aws_commands import problems
from playbook.cli.app import app
from playbook.cli.commands import cli_page, generated_pages
from serving_base.facts.prices import prices

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
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


def test_a_page_that_says_it_is_made_is_made() -> None:
    """The tests of the two others compare their text."""
    made = {page.name for page in PAGES if "by `make docs`" in page.read_text()}
    assert made == set(generated_pages(app)) == {"checks.md", "cli.md", "releases.md"}


def names_in(body: list[ast.stmt], before: str = "") -> Iterator[str]:
    """``f``, ``C`` and ``C.m`` of what a module defines."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield before + node.name
        if isinstance(node, ast.ClassDef):
            yield from names_in(node.body, f"{node.name}.")


def missing(text: str) -> list[str]:
    """Files named in ``text`` that do not exist, and those that do not hold the name behind the colon."""
    found = set(re.findall(r"`((?:playbook|packages|tests|notebooks)/[\w./-]*\w)(?::([\w.]+))?`", text))
    gone = [file for file, _ in found if not (ROOT / file).exists()]
    named = [(file, name) for file, name in found if name and file not in gone]
    return gone + [f"{file}:{name}" for file, name in named if name not in defined(file)]


def defined(file: str) -> set[str]:
    return set(names_in(ast.parse((ROOT / file).read_text()).body))


@each_page
def test_files_and_names_in_them_that_a_page_names_exist(page: Path) -> None:
    assert missing(page.read_text()) == []


def test_a_name_that_is_gone_is_found() -> None:
    text = (
        "`playbook/profile.py:load_profile` `playbook/profile.py:Profile.gone` `playbook/gone.py:load` `tests/gone.py`"
    )
    assert sorted(missing(text)) == ["playbook/gone.py", "playbook/profile.py:Profile.gone", "tests/gone.py"]


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
