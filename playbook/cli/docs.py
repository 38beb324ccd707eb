"""``playbook docs``: the pages of ``docs/`` that are made from the project itself; tests keep them true."""

from collections.abc import Callable, Iterator
from math import ceil
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

COLUMNS = 100  # of a help text, wherever the page is made

CLI_HEAD = """# The command line

What `playbook COMMAND --help` says, made from the commands by `make docs`; a test keeps the two equal. In a clone the
command is `.venv/bin/playbook`, and `make` calls it. Examples are in the [README](../README.md).
"""
WORDS_A_MINUTE = 150
STEP_MIN = 5
TIMES_HEAD = f"""\
# Times, for whoever teaches

Made from the notebooks, the exercises and the last recording by `make docs`; a test keeps them equal. *Runs* is
measured: seconds on the embedded lane when the chapter was last recorded, alone on that machine. Reading
({WORDS_A_MINUTE} words of prose a minute, up to the next {STEP_MIN} minutes) and exercises are a plan. Discussion comes
on top. [In a classroom](teaching.md) has three ways to cut the course.

| chapter | runs, s | recorded | reading, min | exercises | exercises, min |
|---|---|---|---|---|---|
"""


def generated_pages(app: typer.Typer) -> dict[str, Callable[[], str]]:
    """What makes the text of each generated page, by the page's name in ``docs/``."""
    from course_exercises.glossary import glossary_page
    from course_exercises.page import exercises_page
    from playbook.article_flags import flags_page
    from playbook.claims import claims_page
    from playbook.course.notebooks import chapters
    from trtllm_check.attention import kernels_page
    from trtllm_check.explain.page import releases_page
    from trtllm_check.lint.page import page as checks_page

    return {
        "attention_kernels.md": kernels_page,
        "checks.md": checks_page,
        "claims.md": claims_page,
        "cli.md": lambda: cli_page(app),
        "exercises.md": exercises_page,
        "flags_of_the_articles.md": flags_page,
        "glossary.md": lambda: glossary_page(
            {one.number: (one.title, f"../notebooks/{one.path.name}") for one in chapters()}
        ),
        "releases.md": releases_page,
        "times.md": times_page,
    }


def cli_page(app: typer.Typer) -> str:
    """The help of each command of ``app`` as Markdown: of one width, without colours, whatever the terminal is."""
    known = list(_commands(typer.main.get_command(app)))
    contents = "\n".join(f"- [`{name}`](#{name.replace(' ', '-')}): {sentence}" for name, sentence, _ in known)
    parts = [f"## `{name}`\n\n```text\n{text}\n```" for name, _, text in known]
    return "\n\n".join([CLI_HEAD.rstrip("\n"), contents, *parts]) + "\n"


def _commands(command: Any, path: str = "playbook") -> Iterator[tuple[str, str, str]]:
    """(name, its first sentence, its help) of a command and of those below it, in the order of its help."""
    yield _told(command, path)
    if isinstance(command, TyperGroup):
        for name, below in command.commands.items():
            yield from _commands(below, f"{path} {name}")


def _told(command: Any, name: str) -> tuple[str, str, str]:
    assert isinstance(command, TyperCommand | TyperGroup)
    context = typer.Context(command, info_name=name, terminal_width=COLUMNS, color=False)
    sentence = " ".join((command.help or "").partition("\n\n")[0].split())
    return name, sentence, command.get_help(context)


def times_page() -> str:
    """How long each chapter takes: to run, to read and to solve."""
    from course_exercises.exercise import exercises
    from playbook.course.notebooks import chapters, project_root, read
    from serving_base.yaml_files import read_yaml

    root = project_root()
    recorded = read_yaml(root / "playbook" / "data" / "recorded.yml")["embedded"]
    rows, total = [], [0] * 4
    for chapter in chapters(root / "notebooks"):
        run = recorded[chapter.number]
        words = sum(len(cell.source.split()) for cell in read(chapter.path).cells if cell.cell_type == "markdown")
        asked = [one.minutes for one in exercises().values() if one.chapter == chapter.number]
        each = (run["seconds"], STEP_MIN * ceil(words / WORDS_A_MINUTE / STEP_MIN), len(asked), sum(asked))
        total = [before + now for before, now in zip(total, each, strict=True)]
        name = f"[{chapter.number} {chapter.title}](../notebooks/{chapter.path.name})"
        facts = [name, each[0], f"{run['date']}, {run['cores']} cores", *each[1:]]
        rows.append(f"| {' | '.join(map(str, facts))} |")
    rows.append(f"| all | {total[0]} | | {' | '.join(map(str, total[1:]))} |")
    return TIMES_HEAD + "\n".join(rows) + "\n"
