"""The embedded engine's counters: of the graph that is served, per step, and with what FP8 adds."""

from pathlib import Path

import numpy as np
import pytest

from playbook.errors import EngineError, MissingArtifact
from playbook.lanes.embedded.logits import EngineLogits
from playbook.lanes.embedded.profiling import OperationTime, PagedGraph, StepProfile, _profile, profile_engine
from playbook.measure import kernels

SMALL = {"batch_size": 4, "prompt_tokens": 32, "decode_steps": 4, "repeats": 1}


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
        table = kernels.kernel_table(profile.sums(), flow="openvino")
        assert set(table["class"]) >= seen
        assert "unclassified" not in set(table["class"])
        assert (table["class"] == "lm_head").sum() == 1


def test_only_the_fp8_engine_quantizes(bf16: dict[str, StepProfile], fp8: dict[str, StepProfile]) -> None:
    spent = {
        name: kernels.by_class(kernels.kernel_table(profile["prefill"].sums(), flow="openvino"))["us_per_step"]
        for name, profile in (("bf16", bf16), ("fp8", fp8))
    }
    assert "quantize" not in spent["bf16"]
    assert spent["fp8"]["quantize"] > 0.01 * spent["fp8"].sum()  # 4 % where conversions are fast, 39 % elsewhere
    gemms = [own["gemm"] for own in spent.values()]
    assert 0.3 < gemms[0] / gemms[1] < 3  # the same 32-bit products


def test_a_prefill_takes_longer_than_a_decode_step(bf16: dict[str, StepProfile]) -> None:
    assert bf16["prefill"].step_ms > 2 * bf16["decode"].step_ms
    for profile in bf16.values():
        inside = sum(row.real_time_us for row in profile.operations) / 1e3
        assert 0.1 * profile.step_ms < inside < 1.5 * profile.step_ms


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
    profile = _profile(graph, np.zeros((1, 1)), [8, 9, 10, 11, 12])  # type: ignore[arg-type]
    assert graph.past == [8, 9, 10, 11, 12]
    times = {row.name: row.real_time_us for row in profile.operations}
    assert times == {"m": pytest.approx(10), "late": 7.0}
