"""The pages of ``docs/`` that are made from the project itself: ``playbook docs`` writes them, tests keep them true."""

from collections.abc import Callable, Iterator
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

COLUMNS = 100  # of a help text, wherever the page is made

HEAD = """# The command line

What `playbook COMMAND --help` says, made from the commands by `make docs`; a test keeps the two equal. In a clone the
command is `.venv/bin/playbook`, and `make` calls it. Examples are in the [README](../README.md).
"""


def generated_pages(app: typer.Typer) -> dict[str, Callable[[], str]]:
    """What makes the text of each generated page, by the page's name in ``docs/``."""
    from trtllm_check.explain.page import releases_page
    from trtllm_check.lint.page import page as checks_page

    return {"checks.md": checks_page, "cli.md": lambda: cli_page(app), "releases.md": releases_page}


def cli_page(app: typer.Typer) -> str:
    """The help of each command of ``app`` as Markdown: of one width, without colours, whatever the terminal is."""
    known = list(_commands(typer.main.get_command(app)))
    contents = "\n".join(f"- [`{name}`](#{name.replace(' ', '-')}): {sentence}" for name, sentence, _ in known)
    parts = [f"## `{name}`\n\n```text\n{text}\n```" for name, _, text in known]
    return "\n\n".join([HEAD.rstrip("\n"), contents, *parts]) + "\n"


def _commands(command: Any) -> Iterator[tuple[str, str, str]]:
    """(name, its first sentence, its help) of a command and of those below it, in the order of its help."""
    yield _told(command, "playbook")
    if isinstance(command, TyperGroup):
        for name, below in command.commands.items():
            yield _told(below, f"playbook {name}")


def _told(command: Any, name: str) -> tuple[str, str, str]:
    assert isinstance(command, TyperCommand | TyperGroup)
    context = typer.Context(command, info_name=name, terminal_width=COLUMNS, color=False)
    sentence = " ".join((command.help or "").partition("\n\n")[0].split())
    return name, sentence, command.get_help(context)
