"""What the worker of the vllm lane sends of one turn of its event loop."""

import asyncio
import sys
from importlib import import_module
from typing import Any

import pytest

from stand_in_vllm import vllm


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setitem(sys.modules, "vllm", vllm)
    return import_module("vllm_serving.worker")


def rows_sent(worker: Any, *rows: list[Any]) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []

    async def turn() -> None:
        serving = worker.Worker(None, sent.append)
        for row in rows:
            serving._put(row)
        await asyncio.sleep(0)

    asyncio.run(turn())
    return [{name: message[name] for name in ("one", "out")} for message in sent]


def test_single_tokens_are_two_numbers_and_all_else_is_a_row(worker: Any) -> None:
    others = [
        [3, 1, [9], [], "", 5],
        [4, 0, [9], [-0.5], "", 5],
        [5, 0, [9], [], "length", 5],
        [6, 0, [9, 8], [], "", 5],
    ]
    found = rows_sent(worker, [1, 0, [7], [], "", 5], *others, [2, 0, [8], [], "", 5])
    assert found == [{"one": [1, 7, 2, 8], "out": others}]


def test_two_steps_of_a_sequence_in_one_turn_are_one_row_in_order(worker: Any) -> None:
    found = rows_sent(worker, [1, 0, [7], [], "", 5], [2, 0, [3], [], "", 5], [1, 0, [8], [], "length", 6])
    assert found == [{"one": [2, 3], "out": [[1, 0, [7, 8], [], "length", 6]]}]


def test_who_wants_the_steps_gets_a_row_for_each(worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker.ITERATIONS, "wanted", True)
    rows = [[1, 0, [7], [], "", 5], [1, 0, [8], [], "", 6]]
    assert rows_sent(worker, *rows) == [{"one": [], "out": rows}]
