"""Operations of our own in the tiny Llama's graph: equal to transformers, really there, and stored with the file."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cpu_serving.custom_graph import (
    OperationBench,
    RunningGraph,
    difference,
    largest_inputs,
    linear_layers,
    nodes_of,
    open_bench,
    paged_tokens,
    read_graph,
    replace_linears,
    replace_norms,
    replace_squares,
    same_tokens,
)
from cpu_serving.custom_mistakes import GEMM_MISTAKES, NORM_MISTAKES
from cpu_serving.custom_operations import (
    RMS_NORM,
    SMOOTH_QUANT_GEMM,
    SQUARE,
    int8_weight,
    quantize_per_token,
    run_operation,
    smoothing_factors,
)
from serving_base.errors import EngineError, UsageError

TOLERANCE = 1e-5  # float32, and sums in another order
LAYER = "model.layers.1.self_attn.q_proj"
OUTLIERS = 64


@pytest.fixture(scope="module")
def bench() -> Iterator[OperationBench]:
    made = open_bench()
    yield made
    made.close()


@pytest.fixture(scope="module")
def wide() -> Iterator[OperationBench]:
    made = open_bench(OUTLIERS)
    yield made
    made.close()


@pytest.fixture(scope="module")
def ids(bench: OperationBench) -> list[int]:
    return bench.texts(1, 48)[0]


@pytest.fixture(scope="module")
def norm_graph(bench: OperationBench) -> Any:
    graph = bench.graph()
    assert replace_norms(graph, RMS_NORM) == 9
    return graph


@pytest.fixture(scope="module")
def folder(bench: OperationBench, norm_graph: Any) -> Path:
    return bench.engine(norm_graph, "own")


def test_each_norm_of_the_model_is_computed_as_transformers_does(bench: OperationBench, ids: list[int]) -> None:
    norms = bench.norms(ids)
    assert len(norms) == 9
    for norm in norms:
        found = run_operation(RMS_NORM, norm.given[None], norm.gain, epsilon=norm.epsilon)[0]
        assert difference(found, norm.result) < TOLERANCE, norm.name


def test_the_logits_with_the_node_are_transformers(bench: OperationBench, norm_graph: Any, ids: list[int]) -> None:
    running = RunningGraph(norm_graph, [RMS_NORM])
    assert difference(running(ids), bench.expected(ids)) < TOLERANCE
    assert (running.executed()["Reference"], running.executed()["RMS"]) == (9, 0)
    assert all(node["epsilon"] == pytest.approx(1e-5) for node in nodes_of(norm_graph, RMS_NORM))


def test_a_file_asks_for_its_operation_and_brings_its_parameters(folder: Path) -> None:
    with pytest.raises(RuntimeError, match="Cannot create RmsNorm"):
        read_graph(folder)
    again = nodes_of(read_graph(folder, [RMS_NORM]), RMS_NORM)
    assert [node["epsilon"] for node in again] == pytest.approx([1e-5] * 9)


def test_a_parameter_that_is_not_stored_becomes_the_default(bench: OperationBench, ids: list[int]) -> None:
    forgetful = replace(RMS_NORM, stored=False)
    graph = bench.graph()
    replace_norms(graph, forgetful)
    again = read_graph(bench.engine(graph, "forgetful"), [forgetful])
    assert difference(RunningGraph(graph, [forgetful])(ids), bench.expected(ids)) < TOLERANCE
    assert difference(RunningGraph(again, [forgetful])(ids), bench.expected(ids)) > 100 * TOLERANCE


def test_the_paged_engine_runs_it(bench: OperationBench, folder: Path, ids: list[int]) -> None:
    plain = paged_tokens(bench.engine(bench.graph(), "plain"), ids, 8)
    assert paged_tokens(folder, ids, 8, [RMS_NORM]) == plain


def test_a_wall_inside_the_pattern_costs_the_fused_kernel(bench: OperationBench) -> None:
    graph = bench.graph()
    assert replace_squares(graph, SQUARE) == 9
    found, before = RunningGraph(graph, [SQUARE]).executed(), RunningGraph(bench.graph()).executed()
    assert (before["RMS"], found["RMS"], found["Reference"]) == (9, 0, 9)
    assert sum(found.values()) > sum(before.values()) + 9


@pytest.mark.parametrize("fault", NORM_MISTAKES)
def test_a_comparison_of_the_norms_finds_each_fault(bench: OperationBench, ids: list[int], fault: str) -> None:
    found = bench.compare_norms(replace(RMS_NORM, kernel=NORM_MISTAKES[fault]), ids)
    assert max(found.norms.values()) > 100 * TOLERANCE
    assert list(found.norms) == [norm.name for norm in bench.norms(ids)]


def test_the_same_comparison_passes_the_right_kernel(bench: OperationBench, ids: list[int]) -> None:
    found = bench.compare_norms(RMS_NORM, ids)
    assert max(*found.norms.values(), found.logits) < TOLERANCE and found.same_tokens == 1


def test_outliers_are_planted_without_a_change_of_the_logits(
    bench: OperationBench, wide: OperationBench, ids: list[int]
) -> None:
    assert difference(wide.expected(ids), bench.expected(ids)) < TOLERANCE
    assert difference(RunningGraph(wide.graph())(ids), bench.expected(ids)) < TOLERANCE


@pytest.mark.parametrize("per_token", [True, False])
def test_the_product_is_that_of_the_dequantized_factors(wide: OperationBench, ids: list[int], per_token: bool) -> None:
    """Against float64 and its own scales: the rounding is in the factors, and none comes after it."""
    case = wide.gemm(LAYER, ids, 0.5)
    found = run_operation(SMOOTH_QUANT_GEMM, *case.inputs, per_token=per_token, input_scale=case.input_scale)
    smoothed = case.x / case.smoothing
    scale = np.abs(smoothed).max(-1, keepdims=True) / 127 if per_token else case.input_scale
    rounded = np.clip(np.rint(smoothed / np.float32(scale)), -127, 127) * scale
    exact = rounded.astype(np.float64) @ (case.weight * case.weight_scale[:, None].astype(np.float64)).T
    assert difference(found, exact) < 1e-6


def test_smoothing_lowers_the_error(wide: OperationBench, ids: list[int]) -> None:
    def error(alpha: float | None, per_token: bool) -> float:
        case = wide.gemm(LAYER, ids, alpha)
        scale = {"per_token": per_token, "input_scale": case.input_scale}
        return difference(run_operation(SMOOTH_QUANT_GEMM, *case.inputs, **scale), case.exact)

    assert error(0.5, True) < error(None, True) / 2
    assert error(0.5, False) < error(None, False) / 2


@pytest.mark.parametrize("fault", GEMM_MISTAKES)
def test_a_fault_in_the_scales_is_no_small_error(wide: OperationBench, ids: list[int], fault: str) -> None:
    case = wide.gemm(LAYER, ids, 0.5)
    wrong = replace(SMOOTH_QUANT_GEMM, kernel=GEMM_MISTAKES[fault])
    assert difference(run_operation(wrong, *case.inputs), case.exact) > 1


def test_every_linear_layer_but_the_last_becomes_a_node(wide: OperationBench, ids: list[int]) -> None:
    largest = largest_inputs(wide.graph(), wide.calibration(4, 48))
    graph = wide.graph()
    assert len(linear_layers(graph)) == replace_linears(graph, largest, alpha=0.5, per_token=True) == 28
    running = RunningGraph(graph, [SMOOTH_QUANT_GEMM])
    assert (running.executed()["Reference"], running.executed()["FullyConnected"]) == (28, 1)
    assert same_tokens(running(ids), wide.expected(ids)) > 0.9
    plain = wide.graph()
    replace_linears(plain, largest, alpha=None, per_token=False)
    assert same_tokens(RunningGraph(plain, [SMOOTH_QUANT_GEMM])(ids), wide.expected(ids)) < 0.8


def test_quantized_rows_are_off_by_half_a_step() -> None:
    x = np.array([[0.0, 0.0], [1.0, -0.2], [300.0, 7.0]], np.float32)
    values, scales = quantize_per_token(x)
    assert values.dtype == np.int8 and scales.shape == (3, 1)
    assert (np.abs(values * scales - x) <= 0.501 * scales).all()
    weight, scale = int8_weight(x, np.array([2.0, 1.0], np.float32))
    np.testing.assert_allclose(weight * scale[:, None], x * [2, 1], atol=600 / 254 + 1e-3)


def test_alpha_shares_the_range_out() -> None:
    activation, weight = np.array([64.0, 1.0]), np.array([[0.5, 0.5]])
    np.testing.assert_allclose(smoothing_factors(activation, weight, 1), activation)
    np.testing.assert_allclose(smoothing_factors(activation, weight, 0), [2, 2])
    with pytest.raises(UsageError, match=r"alpha 1\.5"):
        smoothing_factors(activation, weight, 1.5)


@pytest.mark.parametrize("kernel", [lambda x, gain, epsilon: 1 / 0, lambda x, gain, epsilon: np.ones(3, np.float32)])
def test_a_kernel_that_fails_inside_the_graph_is_told(kernel: Callable[..., Any]) -> None:
    with pytest.raises(EngineError, match="RmsNorm did not run"):
        run_operation(replace(RMS_NORM, kernel=kernel), np.ones((1, 2, 4), np.float32), np.ones(4, np.float32))


def test_difference_is_infinite_where_a_value_is_none() -> None:
    assert difference(np.array([np.nan]), np.ones(1)) == difference(np.ones(2), np.ones(1)) == float("inf")
