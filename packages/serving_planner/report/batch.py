"""Many cases, one JSON object per line, each answered in one line; what is wrong with one stops no other."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from serving_base.errors import PlaybookError, UsageError
from serving_planner.case import parse_case
from serving_planner.predict import plan


def answers(lines: Iterable[bytes]) -> Iterator[str]:
    """The plan of each line as JSON, or ``{"error", "why", "fix"}``, in the same order. Empty lines have none."""
    for line in lines:
        if line.strip():
            yield json.dumps(_answer(line))


def _answer(line: bytes) -> dict[str, Any]:
    try:
        return plan(parse_case(_object(line))).model_dump(mode="json")
    except PlaybookError as error:
        return {"error": error.what, "why": error.why, "fix": error.fix}
    except Exception as error:  # a fault of the planner must not cost the other cases their plans
        why = f"{type(error).__name__}: {error}"
        return {"error": "the planner failed on this case", "why": why, "fix": "report it with this line"}


def _object(line: bytes) -> dict[str, Any]:
    try:
        given = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise UsageError(
            "a line that is no JSON",
            why=str(error),
            fix='write one object per line, such as {"model": "llama3-8b", ...}',
        ) from error
    if not isinstance(given, dict):
        raise UsageError(
            f"a line that is no object but {type(given).__name__}",
            why="a case is an object with the flags of playbook plan as keys",
            fix='write it as {"model": "llama3-8b", "gpu": "h100-sxm", "isl": 1024, "osl": 256}',
        )
    return given
