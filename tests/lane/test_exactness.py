"""benchmarks/exactness: transformers' answers, the engine's own and Triton's, on the embedded engine in bfloat16."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.exactness.run import Asked, Torch, ask_ids, ask_texts, counted, engine_answers, same_text, served
from model_server.triton.server import TritonServer
from tiny_llama import MODEL_DIR

RELEASE, STREAMS = "0.12.0", 2


@pytest.fixture(scope="module")
def asked(bf16_engine: Path) -> Asked:
    return Asked.of(bf16_engine, 3, 12)


@pytest.fixture(scope="module")
def alone(bf16_engine: Path, asked: Asked) -> list[tuple[int, ...]]:
    one_by_one, together = engine_answers(bf16_engine, asked)
    assert one_by_one == together
    return one_by_one


def test_the_engines_answers_are_transformers(
    bf16_engine: Path, asked: Asked, alone: list[tuple[int, ...]], capfd: pytest.CaptureFixture[str]
) -> None:
    torch = Torch.of(bf16_engine)
    expected, device = torch.answers(MODEL_DIR, asked)
    assert (expected, device.split(",")[0]) == (alone, "cpu")
    assert not list(torch.explain(MODEL_DIR, asked, expected, {"engine": alone}))
    wrong = [*alone[:2], (alone[2][0], alone[2][1] + 1, *alone[2][2:])]
    (told,) = torch.explain(MODEL_DIR, asked, expected, {"engine": wrong, "Triton": wrong})
    assert f"question 2 parts at token 1: {alone[2][1]} and {alone[2][1] + 1}; " in told
    assert told.endswith("in: engine, Triton")
    assert "steps of bfloat16" in told


@pytest.fixture(scope="module")
def running(bf16_engine: Path) -> Iterator[TritonServer]:
    with served(bf16_engine, RELEASE, STREAMS) as running:
        yield running


@pytest.mark.server
@pytest.mark.parametrize("streaming", [True, False])
def test_through_triton_ids_and_text_are_the_engines(
    running: TritonServer, asked: Asked, alone: list[tuple[int, ...]], streaming: bool
) -> None:
    assert ask_ids(running, asked, STREAMS, streaming=streaming) == alone
    texts = ask_texts(running, asked, STREAMS, streaming=streaming)
    assert same_text(asked, alone, {"text": texts})
    assert not same_text(asked, alone, {"text": [*texts[:2], texts[2] + "."]})


def test_the_table_counts_answers_and_texts(asked: Asked, alone: list[tuple[int, ...]]) -> None:
    texts = [asked.codec.decode(ids) for ids in alone]
    wrong = [*alone[:2], alone[2][:-1]]
    table = counted(asked, alone, alone, {"ids": wrong}, {"text": texts}, "cpu")
    assert [list(column.cells) for column in table.columns] == [["ids", "text"], ["2 / 3", "3 / 3"], ["2 / 3", "3 / 3"]]
