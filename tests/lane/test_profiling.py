"""The embedded engine's counters: of the graph that is served, per step, and with what FP8 adds."""

from pathlib import Path

import numpy as np
import pytest

from cpu_serving import profiling
from cpu_serving.profiling import OperationTime, PagedGraph, StepProfile, _profile, profile_engine
from cpu_serving.runtime import EngineLogits
from playbook.lanes.embedded.lane import operation_table, step_tables
from playbook.profile import load_profile
from serving_base.errors import EngineError, MissingArtifact

SMALL = {"batch_size": 4, "prompt_tokens": 32, "decode_steps": 4}


@pytest.fixture(scope="module")
def bf16(bf16_engine: Path) -> dict[str, StepProfile]:
    return profile_engine(bf16_engine, **SMALL)


@pytest.fixture(scope="module")
def fp8(fp8_engine: Path) -> dict[str, StepProfile]:
    return profile_engine(fp8_engine, **SMALL)


@pytest.mark.parametrize("name", ["bf16_engine", "fp8_engine"])
def test_the_profiled_graph_computes_what_the_engine_computes(name: str, request: pytest.FixtureRequest) -> None:
    engine = request.getfixturevalue(name)
    prompts = np.array([[5, 7, 9, 11], [100, 3, 700, 2]])
    graph = PagedGraph(engine, batch_size=2, max_tokens=64, threads=1, pools={})
    together = graph.step(prompts, past_tokens=0).reshape(2, 4, -1)
    later = graph.step(np.array([[13], [17]]), past_tokens=4)
    plain = EngineLogits(engine, threads=1)
    for row, (prompt, token) in enumerate(zip(prompts.tolist(), (13, 17), strict=True)):
        expected = plain([*prompt, token])
        np.testing.assert_allclose(together[row], expected[:4], atol=1e-3)
        np.testing.assert_allclose(later[row], expected[4], atol=1e-3)


# The counters are whole microseconds: in a decode step of a quiet machine a norm takes less than one.
@pytest.mark.parametrize(
    ("phase", "seen"),
    [("prefill", {"gemm", "lm_head", "attention", "norm", "rope"}), ("decode", {"gemm", "lm_head", "attention"})],
)
def test_every_operation_is_classified(
    bf16: dict[str, StepProfile], fp8: dict[str, StepProfile], phase: str, seen: set[str]
) -> None:
    for profile in (bf16[phase], fp8[phase]):
        table = operation_table(profile)
        assert set(table["class"]) >= seen
        assert "unclassified" not in set(table["class"])
        assert (table["class"] == "lm_head").sum() == 1


def test_only_the_fp8_engine_quantizes(bf16: dict[str, StepProfile], fp8: dict[str, StepProfile]) -> None:
    found = [set(operation_table(own["prefill"])["class"]) for own in (bf16, fp8)]
    assert ["quantize" in classes for classes in found] == [False, True]


def test_an_engine_for_smaller_batches_is_refused(bf16_engine: Path, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="takes 4 sequences of 512 tokens"):
        profile_engine(bf16_engine, batch_size=5)
    with pytest.raises(EngineError, match="of 512 tokens"):
        profile_engine(bf16_engine, batch_size=1, prompt_tokens=500, decode_steps=12)
    with pytest.raises(MissingArtifact):
        profile_engine(tmp_path)


class Counting:
    """A graph whose first step takes 100 us and every later one 10; counters are means, as OpenVINO's are."""

    def __init__(self) -> None:
        self.past: list[int] = []

    def step(self, ids: np.ndarray, *, past_tokens: int) -> np.ndarray:
        self.past.append(past_tokens)
        return ids

    def counters(self) -> list[OperationTime]:
        runs = len(self.past)
        late = [OperationTime("Add", "ref", "late", 7.0)] if runs > 1 else []
        return [OperationTime("MatMul", "ref", "m", (100 + 10 * (runs - 1)) / runs), *late]


def test_the_first_run_is_left_out_of_the_mean() -> None:
    graph = Counting()
    (profile,) = _profile([graph], np.zeros((1, 1)), [8, 9, 10, 11, 12])  # type: ignore[list-item]
    assert graph.past == [8, 9, 10, 11, 12]
    times = {row.name: row.real_time_us for row in profile.operations}
    assert times == {"m": pytest.approx(10), "late": 7.0}


def test_engines_are_stepped_in_turn() -> None:
    order: list[tuple[str, int]] = []

    class Named(Counting):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def step(self, ids: np.ndarray, *, past_tokens: int) -> np.ndarray:
            order.append((self.name, past_tokens))
            return super().step(ids, past_tokens=past_tokens)

    _profile([Named("a"), Named("b")], np.zeros((1, 1)), [1, 2, 3])  # type: ignore[list-item]
    assert order == [(name, past) for past in (1, 2, 3) for name in ("a", "b")]


def measured(lm_head_us: float, other_us: float = 5.0) -> dict[str, StepProfile]:
    rows = (OperationTime("FullyConnected", "ref", "lm_head", lm_head_us), OperationTime("Add", "ref", "add", other_us))
    return dict.fromkeys(("prefill", "decode"), StepProfile(rows, 1.0))


def rounds_of(monkeypatch: pytest.MonkeyPatch, *pairs: tuple[float, float]) -> profiling.EngineComparison:
    """What comes of rounds in which lm_head took these microseconds in the two engines."""
    left = iter(pairs)

    def measure(engines: dict[str, Path], **_: int) -> dict[str, dict[str, StepProfile]]:
        return dict(zip(engines, map(measured, next(left)), strict=True))

    monkeypatch.setattr(profiling, "_profile_engines", measure)
    return profiling.compare_engines({"BF16": Path("a"), "FP8": Path("b")}, rounds=len(pairs))


def test_rounds_go_on_until_the_control_is_within_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    found = rounds_of(monkeypatch, (100, 130), (100, 103), (100, 101))
    assert (found.rounds, found.usable) == (2, True) and found.control == pytest.approx(100 / 103)
    assert "as no difference" in profiling.remark(found)


def test_one_lucky_round_is_not_enough_and_the_fastest_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    found = rounds_of(monkeypatch, (100, 100), (80, 100), (80, 79))
    assert found.rounds == 3 and found.control == pytest.approx(80 / 79)


def test_a_run_whose_control_differs_says_that_it_is_not_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    found = rounds_of(monkeypatch, (74, 100), (74, 100))
    assert not found.usable
    text = profiling.remark(found)
    assert "0.74 after 2 rounds" in text and "not usable" in text


def test_tables_of_both_engines_come_with_their_remark(
    bf16_engine: Path, fp8_engine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def small(engines: dict[str, Path]) -> profiling.EngineComparison:
        return compare(engines, rounds=2, **SMALL)

    compare = profiling.compare_engines
    monkeypatch.setattr(profiling, "compare_engines", small)
    engines = {"engine-bf16": bf16_engine, "engine": fp8_engine}
    found = step_tables(engines.__getitem__, profile=load_profile("local"), root=Path())
    assert list(found.tables) == ["prefill", "decode"] and found.own == ("BF16", "FP8")
    assert "BF16/FP8" in found.compare("decode") and "control" in found.remark
    assert all(sum(parts.values()) == pytest.approx(100) for parts in found.shares().values())
