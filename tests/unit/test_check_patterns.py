"""No pattern of the checker tries the same text again and again: what repeats does not hold it up."""

import faulthandler
import importlib
import os
import pkgutil
import re
import re._constants as codes  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import serving_base
import trtllm_check
from checkout import PYTHON_PATH, ROOT
from trtllm_check.lint.logs import families, signs

REPEATED = 400  # characters: a pattern that doubles its work with each never ends, one with a power of 4 takes minutes
MOST_SECONDS = 60.0  # where all other patterns need milliseconds; on any machine that is held up, not slow
FEWEST = 2_000
ALL = "all"
MOST_LENGTH = 20
CATEGORIES = {"CATEGORY_SPACE": " ", "CATEGORY_DIGIT": "1", "CATEGORY_WORD": "a"}


@cache
def patterns() -> dict[str, re.Pattern[str]]:
    """The patterns of all modules, by where they stand, and those of the log's signs."""
    found: dict[tuple[str, int], tuple[str, re.Pattern[str]]] = {}
    for package in (trtllm_check, serving_base):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            for name, value in vars(importlib.import_module(module.name)).items():
                for pattern in _held(value):
                    found.setdefault((pattern.pattern, pattern.flags), (f"{module.name}.{name}", pattern))
    for sign in (*signs(), *families()):
        found.setdefault((sign.pattern, 0), (sign.pattern, re.compile(sign.pattern)))
    return {f"{name}: {pattern.pattern[:60]}": pattern for name, pattern in found.values()}


def _held(value: Any) -> Iterator[re.Pattern[str]]:
    if isinstance(value, re.Pattern) and isinstance(value.pattern, str):
        yield value
    elif isinstance(value, dict):
        yield from _held(tuple(value.values()))
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _held(one)


def example(items: Iterable[Any]) -> str:
    """A text that these parts of a pattern match, or nearly."""
    found = ""
    for code, value in items:
        if code is codes.LITERAL:
            found += chr(value)
        elif code is codes.IN:
            first, what = value[0]
            found += chr(what) if first is codes.LITERAL else chr(what[0]) if first is codes.RANGE else "x"
            found = found[:-1] + CATEGORIES[str(what)] if str(what) in CATEGORIES else found
        elif code is codes.ANY:
            found += "x"
        elif code in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
            found += example(value[2]) * max(1, min(value[0], 3))
        elif code is codes.SUBPATTERN:
            found += example(value[3])
        elif code is codes.BRANCH:
            found += example(value[1][0])
        elif code is codes.ATOMIC_GROUP:
            found += example(value)
    return found


def repeated(items: Iterable[Any]) -> Iterator[str]:
    """Examples of what a pattern lets come again without end."""
    for code, value in items:
        if code in (codes.MAX_REPEAT, codes.MIN_REPEAT) and value[1] is codes.MAXREPEAT:
            yield example(value[2])[:MOST_LENGTH]
            for inner, branches in value[2]:
                if inner is codes.BRANCH:
                    yield from (example(one)[:MOST_LENGTH] for one in branches[1])
        for inner in _parts(code, value):
            yield from repeated(inner)


def _parts(code: Any, value: Any) -> Iterable[Any]:
    if code in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
        return (value[2],)
    if code is codes.SUBPATTERN:
        return (value[3],)
    if code is codes.BRANCH:
        return tuple(value[1])
    if code in (codes.ASSERT, codes.ASSERT_NOT):
        return (value[1],)
    return (value,) if code is codes.ATOMIC_GROUP else ()


def tries(pattern: re.Pattern[str]) -> Iterator[str]:
    """Texts of each part that a pattern repeats, alone and behind its own beginning."""
    tree = parser.parse(pattern.pattern, pattern.flags)
    whole = example(tree)
    for part in dict.fromkeys(one for one in repeated(tree) if one):
        heads = {"", whole.partition(part)[0][:MOST_LENGTH] if part in whole else ""}
        yield from (f"{head}{part * (REPEATED // len(part))}\x01" for head in heads)


def search_all(first: int, seconds: float, given: Sequence[str]) -> None:
    """In a process of its own, which faulthandler ends where one pattern takes longer.

    An alarm would do, but a worker of the tests has died without a word while one was set here.
    """
    known = {one: re.compile(one) for one in given} or patterns()
    for number, name in enumerate(sorted(known)[first:], first):
        print(number, flush=True)
        faulthandler.dump_traceback_later(seconds, exit=True)
        for text in tries(known[name]):
            known[name].search(text)
        faulthandler.cancel_dump_traceback_later()
    print(ALL, flush=True)


def held_up(*given: str, seconds: float = MOST_SECONDS) -> list[str]:
    """The names of the patterns that do not end."""
    names = sorted(given or patterns())
    found: list[str] = []
    path = os.pathsep.join([PYTHON_PATH, str(ROOT / "tests"), str(ROOT / "tests" / "unit")])
    first = 0
    while True:
        done = subprocess.run(
            [sys.executable, __file__, str(first), str(seconds), *given],
            env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        last = done.stdout.split()[-1:]
        if last == [ALL]:
            return found
        assert last and "Timeout" in done.stderr, done.stderr
        found.append(names[int(last[0])])
        first = int(last[0]) + 1


def test_every_pattern_ends() -> None:
    assert len(patterns()) > FEWEST
    assert held_up() == []


def test_one_that_does_not_is_seen() -> None:
    bad, good = r"^[ >]*(?:#+|//|-)*[ ]*x", r"^[ >]*(?:[#-]|//)*+[ ]*x"
    assert held_up(bad, good, seconds=2.0) == [bad]


if __name__ == "__main__":
    search_all(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:])
