"""The times of tokens that a measurement asks for, and how late the pieces of a stream came by them."""

from pathlib import Path

import pytest
from rich.table import Table

from benchmarks.streaming.client import Pieces
from benchmarks.streaming.tables import Figures, breakdown, compared, late_ms, shares, token_late_ms
from model_server.protocol import Output
from model_server.triton.token_times import TokenTime, TokenTimes, read_token_times


def test_outputs_and_responses_are_written_with_their_request_and_can_be_read_at_an_answers_end(tmp_path: Path) -> None:
    times = TokenTimes(str(tmp_path / "times"))
    times.came("a", Output(0, 0, (1, 2)))
    times.came("b", Output(1, 0, (3,)))
    times.sent("a", 2, final=False)
    times.came("a", Output(0, 0, (4,), finish_reason="length"))
    times.sent("a", 1, final=True)
    found = read_token_times(tmp_path / "times")
    times.close()
    assert {name: (len(one.came_s), one.sent) for name, one in found.items()} == {"a": (3, [2, 1]), "b": (1, [])}
    first, second, third = found["a"].came_s
    assert first == second <= found["b"].came_s[0] <= third


def test_without_a_name_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    times = TokenTimes("")
    times.came("a", Output(0, 0, (1,), finish_reason="length"))
    times.sent("a", 1, final=True)
    times.close()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("at_s", "sent", "expected"),
    [
        ([10.001, 10.012, 10.023, 10.034], [1, 1, 1, 1], [1, 2, 3, 4]),
        ([10.001, 10.034], [1, 3], [1, 24]),  # of the second the first token waited for two more
        ([10.001, 10.034, 10.035], [1, 3, 0], [1, 24, 5]),  # the last one brings the end alone
    ],
)
def test_a_piece_is_as_late_as_its_first_token(at_s: list[float], sent: list[int], expected: list[float]) -> None:
    time = TokenTime([10.000, 10.010, 10.020, 10.030], sent)
    assert late_ms(Pieces("a", 9.0, at_s, sent), time) == pytest.approx(expected)


def test_a_token_is_as_late_as_its_piece() -> None:
    time = TokenTime([10.000, 10.010, 10.020, 10.030], [1, 3, 0])
    assert token_late_ms(Pieces("a", 9.0, [10.001, 10.034, 10.035], [1, 3, 0]), time) == pytest.approx([1, 24, 14, 4])


def figures(rate: float, late: tuple[float, ...], pieces: int, **cpu_ms: float) -> Figures:
    return Figures(100, rate, 5.0, late, late, pieces, cpu_ms)


def cells(table: Table) -> list[list[str]]:
    return [list(row) for row in zip(*(map(str, column.cells) for column in table.columns), strict=True)]


def test_the_tables_of_a_measurement() -> None:
    shared = {"text, streamed": [figures(80.0, (4.0, 24.0), 50, client=10.0, idle=0.1), figures(90.0, (4.0,), 50)]}
    shown = cells(shares([100.0, 100.0], shared, 16))
    assert shown == [["text, streamed", "85", "0.85", "0.80..0.90", "2.0", "5", "4", "24"]]
    spent = cells(breakdown([140.0], {"text, streamed": shared["text, streamed"][:1]}))
    assert spent == [["client", "10 / 20"], ["all", "10 / 20"]]


def test_how_late_tokens_came_is_compared_by_the_middle_of_the_rounds() -> None:
    shared = [(4.0, 24.0), (2.0, 26.0), (3.0, 91.0)]  # 91 is of one round alone
    each = {"text, streamed": [figures(50.0, (1.0, 3.0), 100)]}
    assert cells(compared({"text, streamed": [figures(90.0, late, 50) for late in shared]}, each, 16)) == [
        ["text, streamed", "14 (14..47)", "26 (24..90)", "26 (24..91)", "26 (24..91)"],
        ["  one response a token", "2", "3", "3", "3"],
        ["  the difference", "+12", "+23", "+23", "+23"],
    ]


def test_a_stream_of_which_something_did_not_come_is_no_measurement() -> None:
    with pytest.raises(ValueError, match="2 responses were sent for a, and 1 came"):
        late_ms(Pieces("a", 9.0, [10.0], [2]), TokenTime([10.0, 10.0], [1, 1]))
