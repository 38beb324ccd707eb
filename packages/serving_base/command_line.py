"""What the commands of the command line share: errors shown as what, why and fix; tables."""

import errno
import signal
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from importlib.util import find_spec
from typing import NoReturn, ParamSpec

import typer

from serving_base.errors import EnvironmentProblem, PlaybookError

P = ParamSpec("P")
INTERRUPTED = 130


def reporting(command: Callable[P, None]) -> Callable[P, None]:
    """Show a PlaybookError as what, why and fix, without a traceback, and exit with its status."""

    @wraps(command)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> None:
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.default_int_handler)
        try:
            command(*args, **kwargs)
        except PlaybookError as error:
            leave(error)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            leave(EnvironmentProblem(f"the disk is full: {error}", fix="free space, or use --workspace and --out"))
        except ModuleNotFoundError as error:
            leave(not_installed(error))
        except KeyboardInterrupt:
            typer.echo("interrupted; everything that was started has ended", err=True)
            sys.exit(INTERRUPTED)

    return wrapper


def not_installed(error: ModuleNotFoundError) -> EnvironmentProblem:
    """What a command says that needs more than was installed.

    A module that is missing in a package that is there, such as one of ours, is a fault: raised again.
    """
    package = find_spec((error.name or "").partition(".")[0] or __name__)
    if package and package.origin:  # a namespace such as google has none
        raise error
    return EnvironmentProblem(
        f"{error.name} is not installed",
        why="this command belongs to the course, and the installed part answers check, explain, plan and commands",
        fix="pip install 'llama3-fp8-playbook[course]', or make setup in a clone of the project",
    )


def leave(error: PlaybookError) -> NoReturn:
    typer.echo(str(error), err=True)
    sys.exit(error.exit_code)


def show_rows(rows: Sequence[dict[str, str]]) -> None:
    """Print a table, one row per dictionary."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    if rows:
        table = Table(*rows[0], box=None)
        for row in rows:
            table.add_row(*(escape(value) for value in row.values()))
        Console().print(table)
