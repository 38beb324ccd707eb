"""docs/exercises.md: every exercise for whoever teaches, and the wrong answers that come often."""

import inspect
import textwrap
from itertools import groupby
from pprint import pformat
from typing import Any

from course_exercises.exercise import Exercise, exercises

HEAD = """\
# The exercises, for whoever teaches

Made from `packages/course_exercises` by `make docs`; a test keeps the two equal. In a notebook, `lab.solution("04-1")`
prints a solution, and any other right one passes too. `playbook progress` shows what is solved. The minutes are a plan.

Each wrong answer below is tried by the tests: the check refuses it, with the words that stand under it.
"""
KINDS = {
    "compute": "compute it",
    "predict": "predict, then measure",
    "mend": "mend it",
    "choose": "choose; any fitting answer passes",
    "break": "break it, then repair it",
}


def exercises_page() -> str:
    """The page's text."""
    known = list(exercises().values())
    head = ["| | exercise | kind | minutes |", "|---|---|---|---|"]
    rows = [f"| [{one.number}](#{anchor(one)}) | {one.title} | {KINDS[one.kind]} | {one.minutes} |" for one in known]
    total = f"{len(known)} exercises, {sum(one.minutes for one in known)} minutes."
    parts = [HEAD, "\n".join([*head, *rows]), total]
    for chapter, group in groupby(known, key=lambda one: one.chapter):
        parts += [f"## Chapter {chapter}", *(told(one) for one in group)]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def anchor(one: Exercise) -> str:
    """Where GitHub and MyST jump to for the heading of an exercise."""
    kept = (letter for letter in f"{one.number} {one.title}".lower() if letter.isalnum() or letter in " -")
    return "".join(kept).replace(" ", "-")


def told(one: Exercise) -> str:
    """An exercise with the wrong answers that come often, and what its check says to each."""
    broken = [f"Provokes the row `{one.row}` of the chapter's table."] if one.row else []
    wrong = [f"```python\n{text_of(each.answer)}\n```\n\nThe check says: *{each.says}*" for each in one.wrong]
    return "\n\n".join([f"### {one.number} {one.title}", *broken, *wrong])


def text_of(answer: Any) -> str:
    """A function's source, or a value as Python writes it."""
    if inspect.isfunction(answer):
        return textwrap.dedent(inspect.getsource(answer)).strip()
    return answer.strip() if isinstance(answer, str) and "\n" in answer else pformat(answer, width=110)
