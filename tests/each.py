"""Loops inside a test: one id in place of hundreds, and a failure still names every value that fails."""

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import pytest

Test = Callable[..., None]


def each(names: str | tuple[str, ...], values: Iterable[Any]) -> Callable[[Test], Test]:
    """Run a test for every value (for several ``names``: every tuple); as ``pytest.mark.parametrize``, with one id.

    All values are tried, each with a ``tmp_path`` of its own. Other fixtures are made once for all of them, so a test
    that changes one takes parametrize.
    """
    cases: list[dict[str, Any]] = [
        {names: value} if isinstance(names, str) else dict(zip(names, value, strict=True)) for value in values
    ]
    assert cases, f"no value for {names}"

    def decorate(test: Test) -> Test:
        @wraps(test)
        def loop(**fixtures: Any) -> None:
            own = [_own_folder(fixtures, number) | case for number, case in enumerate(cases)]
            failures = [failure for case in own if (failure := _failure(test, fixtures | case, case))]
            if failures:
                raise BaseExceptionGroup(f"{len(failures)} of {len(cases)} fail: {test.__name__}", failures)

        wanted = inspect.signature(test).parameters.values()
        kept = [one for one in wanted if one.name not in cases[0]]
        loop.__signature__ = inspect.Signature(kept)  # type: ignore[attr-defined]
        return loop

    return decorate


def _own_folder(fixtures: dict[str, Any], number: int) -> dict[str, Any]:
    """A ``tmp_path`` for this value alone."""
    if "tmp_path" not in fixtures:
        return {}
    folder = fixtures["tmp_path"] / str(number)
    folder.mkdir()
    return {"tmp_path": folder}


def _failure(test: Test, arguments: dict[str, Any], case: dict[str, Any]) -> BaseException | None:
    try:
        test(**arguments)
    except (Exception, pytest.fail.Exception) as error:
        error.add_note("with " + ", ".join(f"{name} = {value!r}" for name, value in case.items()))
        return error
    return None
