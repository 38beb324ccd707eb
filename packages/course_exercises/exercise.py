"""An exercise as data: what is asked, how an answer is checked, one solution, and typical wrong answers.

The solution is the single source: the student's stub is made from it, :func:`shown` prints it, and a test holds that
the check accepts it and refuses every wrong answer with the words that belong to it.
"""

import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from pprint import pformat
from typing import Any, Literal

from course_exercises.verdict import Solution
from serving_base.errors import UsageError

Kind = Literal["compute", "predict", "mend", "choose", "break"]


@dataclass(frozen=True)
class Wrong:
    """A typical wrong answer, and words that the check's text about it must hold."""

    answer: Any
    says: str


@dataclass(frozen=True, kw_only=True)
class Exercise:
    """``number`` is chapter and place, such as ``06-1``.

    ``check`` takes the answer and whatever the chapter passes by name. ``solution`` is a function or a value;
    ``also`` are other right answers. ``row``: for the kind ``break``, the beginning of the symptom that it provokes,
    as the chapter's table has it.
    """

    number: str
    title: str
    kind: Kind
    minutes: int
    check: Callable[..., Solution]
    solution: Any
    wrong: tuple[Wrong, ...]
    also: tuple[Any, ...] = ()
    row: str = ""
    context: Callable[[], Mapping[str, Any]] = field(default=dict)
    """What a test passes by name where a chapter passes what it has.

    What only the course itself can make, such as a refusal, stands in ``tests/exercise_contexts.py``.
    """
    needs: str = ""
    """What only a test of the lane has: the compiler, a laboratory. It gives the check that, and judges the answers."""

    @property
    def chapter(self) -> str:
        return self.number.split("-")[0]


@cache
def exercises() -> dict[str, Exercise]:
    """Every exercise by its number: the ``EXERCISES`` of the modules beside this one."""
    modules = [import_module(f"course_exercises.{found.name}") for found in iter_modules([str(Path(__file__).parent)])]
    found = [one for module in modules for one in getattr(module, "EXERCISES", ())]
    return {one.number: one for one in sorted(found, key=lambda one: one.number)}


def exercise(number: str) -> Exercise:
    """The exercise of that number; :class:`UsageError` lists those of its chapter."""
    known = exercises()
    if number not in known:
        same = [one for one in known if one.startswith(number.split("-")[0])] or list(known)
        raise UsageError(f"there is no exercise {number!r}", fix=f"take one of {', '.join(same)}")
    return known[number]


def checked(number: str, answer: object, **context: object) -> Solution:
    """The verdict on ``answer``. A stub, an exception or a wrong type in the answer is told, never raised."""
    one = exercise(number)
    try:
        return one.check(answer, **context)
    except NotImplementedError as error:
        return Solution(one.title, problem=str(error) or "the stub is still there")
    except Exception as error:  # whatever a learner's code may raise
        return Solution(one.title, problem=f"your answer raised {type(error).__name__}: {error}")


def stub(function: Callable[..., Any]) -> str:
    """The student's copy of a function: its first lines, and a body that says what is to be done."""
    lines = textwrap.dedent(inspect.getsource(function)).splitlines()
    head = lines[: next(place for place, line in enumerate(lines) if line.endswith(":")) + 1]
    todo = f'    raise NotImplementedError("write {function.__name__}, then run this cell and the next")'
    return "\n".join([*head, todo])


def shown(number: str) -> str:
    """Our solution as text: one of those that pass."""
    solution = exercise(number).solution
    return textwrap.dedent(inspect.getsource(solution)) if inspect.isfunction(solution) else pformat(solution)
