"""The times of tokens that a measurement asks for, and how late the pieces of a stream came by them."""

from pathlib import Path

import pytest

from benchmarks.streaming.client import Pieces
from benchmarks.streaming.lateness import late_ms
from model_server.protocol import Output
from model_server.triton.token_times import TokenTimes, read_token_times

TOKENS = [(10.000, 5), (10.010, 6), (10.020, 7), (10.030, 8)]


def test_each_token_is_written_with_its_request_and_can_be_read_at_an_answers_end(tmp_path: Path) -> None:
    times = TokenTimes(str(tmp_path / "times"))
    times.note("a", Output(0, 0, (1, 2)))
    times.note("b", Output(1, 0, (3,)))
    times.note("a", Output(0, 0, (4,), finish_reason="length"))
    found = read_token_times(tmp_path / "times")
    times.close()
    assert {name: [token for _, token in tokens] for name, tokens in found.items()} == {"a": [1, 2, 4], "b": [3]}
    assert found["a"][0][0] == found["a"][1][0] <= found["b"][0][0] <= found["a"][2][0]


def test_without_a_name_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    times = TokenTimes("")
    times.note("a", Output(0, 0, (1,), finish_reason="length"))
    times.close()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("at_s", "sizes", "expected"),
    [
        ([10.001, 10.012, 10.023, 10.034], [1, 1, 1, 1], [1, 2, 3, 4]),
        ([10.001, 10.034], [1, 3], [1, 24]),  # of the second the first token waited for two more
    ],
)
def test_a_piece_is_as_late_as_its_first_token(at_s: list[float], sizes: list[int], expected: list[float]) -> None:
    assert late_ms(Pieces("a", 9.0, at_s, sizes), TOKENS, len) == pytest.approx(expected)


def test_of_text_the_bytes_tell_which_tokens_a_piece_holds() -> None:
    bytes_of = {5: 2, 6: 0, 7: 3, 8: 1}
    found = late_ms(Pieces("a", 9.0, [10.001, 10.034], [2, 4]), TOKENS, lambda ids: sum(bytes_of[each] for each in ids))
    assert found == pytest.approx([1, 24])


def test_a_stream_that_the_engine_did_not_give_is_no_measurement() -> None:
    with pytest.raises(ValueError, match="not made of the engine's tokens"):
        late_ms(Pieces("a", 9.0, [10.0], [5]), TOKENS, len)
