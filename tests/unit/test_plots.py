from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from load_testing.results import StreamTimeline, timed_stream
from model_server.protocol import StepRecord
from playbook import plots
from playbook.plots.charts import empty_figure, label_points
from serving_planner.frontier import FrontierPoint
from serving_planner.roofline import Roofline, StepPoint


def texts(figure: Any) -> list[str]:
    import matplotlib.text

    return [item.get_text() for item in figure.findobj(matplotlib.text.Text)]


def test_bars_write_their_values_and_origin(shown: list[tuple[Any, str]]) -> None:
    plots.bars({"BF16": {"8B": 16.06}, "FP8": {"8B": 9.08}}, title="Weights", unit="GB", origin="planned")
    (figure, alt), words = shown[0], texts(shown[0][0])
    assert {"16.1", "9.08", "planned", "Weights", "GB"} <= set(words)
    assert alt == "Weights: BF16: 8B = 16.1; FP8: 8B = 9.08"  # as at the bars, for a screen reader
    assert figure.axes[0].containers[1].patches[0].get_hatch() == "//"  # not by colour alone


def test_a_guess_is_a_line_in_the_bars(shown: list[tuple[Any, str]]) -> None:
    plots.bars({"FP8": {"8B": 9.08}}, title="Weights", unit="GB", guess=8.0)
    ((figure, alt),) = shown
    assert [line.get_xdata()[0] for line in figure.axes[0].lines] == [8.0]
    assert alt.endswith("; guess 8")


def test_lines_show_every_series(shown: list[tuple[Any, str]]) -> None:
    plots.lines({"fp8": ((1, 16), (43, 44)), "int8": ((1, 16), (43, 500))}, title="t", x="x", y="y", x_base=2)
    axis = shown[0][0].axes[0]
    assert [line.get_label() for line in axis.lines] == ["fp8", "int8"]
    assert axis.get_xscale() == "log" and list(axis.lines[1].get_ydata()) == [43, 500]


def test_the_words_of_a_line_say_where_it_begins_and_ends(shown: list[tuple[Any, str]]) -> None:
    plots.lines({"a": ((1, 2, 64), (0.0312, 7, 1308.2))}, title="t", x="streams", y="ms", marks={"the knee": 8})
    assert shown[0][1] == "t: ms against streams: a from 0.0312 at 1 to 1,308 at 64; marked: the knee"


def test_points_that_are_too_close_share_a_label() -> None:
    _, (axis,) = empty_figure()
    axis.set(xlim=(0, 100), ylim=(0, 100))
    label_points(axis, (10, 50, 51, 90), (10, 50, 50, 90), (1, 32, 64, 128), shift=(5, 5))
    assert [(label.get_text(), label.xy) for label in axis.texts] == [
        ("1", (10, 10)),
        ("32, 64", (51, 50)),
        ("128", (90, 90)),
    ]


def test_no_label_of_a_load_stands_on_the_axis(shown: list[tuple[Any, str]]) -> None:
    """The first loads of a sweep answer in a hundredth of what the last one takes."""
    loads: list[Any] = [
        SimpleNamespace(
            output_tokens_per_s=rate,
            load=SimpleNamespace(concurrency=streams),
            ttft_ms=SimpleNamespace(p50=ttft_ms, p90=1.1 * ttft_ms),
            tpot_ms=SimpleNamespace(p50=2.0 * streams, p90=3.0 * streams),
        )
        for rate, streams, ttft_ms in ((300, 1, 12), (600, 4, 30), (700, 64, 1400))
    ]
    plots.throughput_latency(loads, title="A knee")
    figure = shown[0][0]
    for axis in figure.axes:
        assert [label.get_text() for label in axis.texts] == ["1", "4", "64"]
        assert all(label.get_window_extent().y0 > axis.bbox.y0 for label in axis.texts)


def test_rounding_shows_relative_errors(shown: list[tuple[Any, str]]) -> None:
    exact = np.array([1.0, 2.0, 4.0])
    plots.rounding("w", exact, {"FP8": exact * 1.05, "INT8": exact * [1.0, 1.0, 0.0]})
    errors = [axis.collections[0].get_offsets()[:, 1].tolist() for axis in shown[0][0].axes]
    assert errors[0] == pytest.approx([5, 5, 5]) and errors[1] == pytest.approx([0, 0, 100])
    assert [axis.get_title() for axis in shown[0][0].axes] == [
        "FP8: 0% of the weights become zero",
        "INT8: 33% of the weights become zero",
    ]
    assert "INT8: 33% of the weights become zero" in shown[0][1]


def test_batching_draws_a_row_per_request(shown: list[tuple[Any, str]]) -> None:
    steps = [
        StepRecord(1, 0.1, {7: "context", 8: "context"}, {}),
        StepRecord(2, 0.1, {7: "generation", 8: "padding"}, {}),
    ]
    plots.batching({"static": steps, "inflight": steps[:1]})
    static, inflight = (axis.images[0].get_array().tolist() for axis in shown[0][0].axes)
    assert static == [[1, 2], [1, 3]]
    assert inflight == [[1, 0], [1, 0]]
    assert shown[0][1].startswith("inflight: 1 steps, where static takes 2: ")  # the finding first
    assert shown[0][0].get_suptitle() == "inflight: 1 steps, where static takes 2"


def test_a_guess_is_a_line_in_the_panel_of_the_fewest_steps(shown: list[tuple[Any, str]]) -> None:
    steps = [StepRecord(number, 0.1, {7: "generation"}, {}) for number in range(3)]
    plots.batching({"static": steps, "inflight": steps[:1]}, guess=2)
    static, inflight = ([line.get_xdata()[0] for line in axis.lines] for axis in shown[0][0].axes)
    assert static == [2.5]
    assert inflight == [0.5, 2]


def test_requests_are_drawn_in_the_order_of_sending(shown: list[tuple[Any, str]]) -> None:
    plots.requests(
        [StreamTimeline(1.0, (1.5, 2.0), ("a", "b")), StreamTimeline(0.5, (0.75, 1.5), ("c", "d"))], title="r"
    )
    bars = [(bar.get_x(), bar.get_width()) for bar in shown[0][0].axes[0].patches]
    assert bars == [(0, 0.25), (0.25, 0.75), (0.5, 0.5), (1.0, 0.5)]
    assert shown[0][0].axes[0].get_xlim()[0] > -0.2


def test_timed_stream_keeps_order_and_times() -> None:
    timeline = timed_stream(iter(["a", "b", "c"]))
    assert timeline.text == "abc"
    assert 0 <= timeline.ttft_ms <= timeline.e2e_ms
    assert list(timeline.arrived_s) == sorted(timeline.arrived_s)


def test_stacked_writes_sums_and_keeps_a_parts_colour(shown: list[tuple[Any, str]]) -> None:
    series = {"BF16": {"gemm": 18.0, "comm": 0.0, "norm": 2.0}, "FP8": {"gemm": 11.0, "comm": 0.0, "norm": 3.0}}
    plots.stacked(series, title="Step", unit="us", origin="measured on a GPU")
    plots.stacked({"TP2": {"gemm": 9.0, "comm": 5.0, "norm": 1.0}}, title="Step", unit="us", origin="o")
    (one, alt), (two, _) = shown
    assert {" 20", " 14", "18", "11", "measured on a GPU"} <= set(texts(one)) and "comm" not in texts(one)
    colors = [{bar.get_label(): bar.patches[0].get_facecolor() for bar in f.axes[0].containers} for f in (one, two)]
    assert colors[0]["norm"] == colors[1]["norm"] != colors[1]["comm"]
    assert alt == "Step: BF16: gemm = 18, norm = 2; FP8: gemm = 11, norm = 3"


def test_stacked_draws_the_limit_that_no_bar_passes(shown: list[tuple[Any, str]]) -> None:
    plots.stacked({"FP8": {"weights": 8.0, "left": 72.0}}, title="t", unit="GiB", origin="o", limit=(80.0, "the card"))
    ((figure, alt),) = shown
    (line,) = figure.axes[0].lines
    assert set(line.get_xdata()) == {80.0}
    assert "the card" in texts(figure)
    assert alt.endswith("; the card at 80 GiB")


def test_arrivals_share_their_scales_and_mark_the_servers_return(shown: list[tuple[Any, str]]) -> None:
    plots.arrivals({"a": [0.01, 0.02, 0.9], "b": [0.01, 0.2, 0.4]}, {"a": 0.5}, title="Retries")
    ((figure, alt),) = shown
    left, right = figure.axes
    assert [bar.get_height() for bar in left.patches][:2] == [2, 0]
    assert left.get_ylim() == right.get_ylim()
    assert left.get_title() == "a: at most 2 at once"
    assert " the server is back" in texts(figure) and len(left.lines) == 1 and not right.lines
    assert "a peaks at 2" in alt and "b peaks at 1" in alt


def test_a_guess_of_arrivals_is_a_line_in_its_panel(shown: list[tuple[Any, str]]) -> None:
    plots.arrivals({"a": [0.01, 0.02], "b": [0.2]}, {}, title="Retries", guesses={"a": 3})
    left, right = shown[0][0].axes
    assert [list(line.get_ydata()) for line in left.lines] == [[3, 3]]
    assert not right.lines


def way(tp: int, concurrency: int, per_user: float, per_gpu: float, *, on_front: bool, weights: str = "fp8") -> Any:
    return FrontierPoint(
        tp=tp, pp=1, replicas=8 // tp, weights=weights, kv=weights, concurrency=concurrency, on_front=on_front,
        tokens_per_s_per_user=per_user, output_tokens_per_s_per_gpu=per_gpu,
    )  # fmt: skip


def test_the_frontier_emphasises_the_front_and_greys_what_never_leads(shown: list[tuple[Any, str]]) -> None:
    fast = [way(8, 1, 150, 19, on_front=True), way(8, 2, 140, 35, on_front=True)]
    many = [way(2, 4, 60, 30, on_front=False), way(2, 512, 30, 1900, on_front=True)]
    slow = [way(8, 1, 90, 11, on_front=False, weights="bf16"), way(4, 2, 80, 20, on_front=False, weights="bf16")]
    plots.frontier([*fast, *many, *slow], title="Eight GPUs", promise_ms=30)
    ((figure, alt),) = shown
    axis = figure.axes[0]
    front, *others = axis.lines
    assert list(front.get_xdata()) == [30, 140, 150] and list(front.get_ydata()) == [1900, 35, 19]
    labels = [line.get_label() for line in others]
    assert labels[:3] == ["1 x TP 8, fp8", "4 x TP 2, fp8", "other ways, bf16"] and labels[3].startswith("_")
    assert len({(line.get_color(), line.get_linestyle()) for line in others[:3]}) == 3
    assert list(others[-1].get_xdata()) == pytest.approx([1000 / 30] * 2)
    assert {"1", "2", "512", "planned", " 30 ms per token"} <= set(texts(figure)) and "4" not in texts(figure)
    assert "4 x TP 2, fp8 with 512 in flight" in alt and "1 x TP 8, fp8 with 1 in flight" in alt


def test_the_roofline_draws_both_roofs_and_names_every_step(shown: list[tuple[Any, str]]) -> None:
    steps = (
        StepPoint(kind="decode", tokens=1, step_ms=6.4, flops_per_byte=2, flops_per_s_per_gpu=2.8e12),
        StepPoint(kind="prefill", tokens=8192, step_ms=256, flops_per_byte=16000, flops_per_s_per_gpu=5.5e14),
    )
    peaks = {"bf16": 1e15, "fp8": 2e15}
    plots.roofline(Roofline(gpu="g", bandwidth_bytes_per_s=4e12, peaks_flops_per_s=peaks, points=steps), title="Roofs")
    ((figure, alt),) = shown
    axis = figure.axes[0]
    assert axis.get_xscale() == axis.get_yscale() == "log"
    assert [list(line.get_ydata()) for line in axis.lines[:2]] == [[4, 1000, 1000], [4, 2000, 2000]]
    assert [line.get_xdata()[1] for line in axis.lines[:2]] == [250, 500]
    assert {"decode, batch 1: 6.4 ms", "prefill, 8192 tokens: 256 ms", "memory: 4 TB/s", "planned"} <= set(
        texts(figure)
    )
    assert "decode, batch 1 at 2 FLOP/byte and 2.8 TFLOP/s" in alt


def test_equal_peaks_are_one_roof(shown: list[tuple[Any, str]]) -> None:
    step = StepPoint(kind="decode", tokens=1, step_ms=6.4, flops_per_byte=2, flops_per_s_per_gpu=1e10)
    peaks = {"bf16": 1e11, "fp8": 1e11}
    plots.roofline(Roofline(gpu="cpu", bandwidth_bytes_per_s=1e10, peaks_flops_per_s=peaks, points=(step,)), title="t")
    assert sum("BF16 AND FP8 peak" in text for text in texts(shown[0][0])) == 1


def test_number_lines_mark_the_step_and_both_ends(shown: list[tuple[Any, str]]) -> None:
    plots.number_lines({"A": [0, 0.5, 1.0, 1.25, 1.5, 3.0]}, title="finding", near=(1, 2))
    (figure, alt), words = shown[0], texts(shown[0][0])
    assert {"step 0.25", "0.5", "3", "finding"} <= set(words)
    assert "A 6 values up to 3" in alt
    close, every = (axis.collections[0].get_segments() for axis in figure.axes)
    assert (len(close), len(every)) == (3, 5)


def test_intervals_draw_a_bar_from_low_to_high(shown: list[tuple[Any, str]]) -> None:
    plots.intervals({"x": (2.0, 1.0, 4.0), "y": (5.0, 4.5, 5.5)}, title="t", unit="u", mark=(3.0, "limit"))
    axis = shown[0][0].axes[0]
    assert list(axis.lines[0].get_xdata()) == [1.0, 4.0]
    assert [label.get_text() for label in axis.get_yticklabels()] == ["x", "y"]
    assert " limit" in texts(shown[0][0])
    assert "x 2 (1 to 4)" in shown[0][1]


def test_channels_share_one_scale_and_mark_the_largest(shown: list[tuple[Any, str]]) -> None:
    plots.channels({"activations": [1.0, 46.0]}, {"activations": [1.0, 1.5]}, title="t")
    before, after = shown[0][0].axes
    assert before.get_ylim() == after.get_ylim()
    assert {"46", "1.5"} <= set(texts(shown[0][0]))


def test_heads_draw_a_line_from_each_query_to_the_keys_that_it_shares(shown: list[tuple[Any, str]]) -> None:
    plots.heads({"MHA": (4, 4), "GQA": (4, 2)}, title="finding")
    (figure, alt), words = shown[0], texts(shown[0][0])
    alone, shared = figure.axes
    assert [list(line.get_xdata()) for line in alone.lines] == [[query, query] for query in range(4)]
    assert [list(line.get_xdata()) for line in shared.lines] == [[0, 0.5], [1, 0.5], [2, 2.5], [3, 2.5]]
    assert "finding" in words and "GQA 4 query heads, 2 KV heads" in alt


def test_kernels_draw_a_bar_as_long_as_the_layers_in_each(shown: list[tuple[Any, str]]) -> None:
    norm: dict[str, str | int] = {"kernel": "RMSNorm", "writes": "FP8+BF16", "written layers in it": 11}
    gemm: dict[str, str | int] = {"kernel": "GEMM qkv", "writes": "BF16", "written layers in it": 5}
    rounding: dict[str, str | int] = {"kernel": "SwiGLU", "writes": "FP8", "written layers in it": 4}
    plots.kernels({"FP8": [norm, gemm, rounding], "BF16": [gemm]}, title="finding")
    (figure, alt), words = shown[0], texts(shown[0][0])
    assert [bar.get_width() for bar in figure.axes[0].patches] == [11, 5, 4]
    assert len({bar.get_facecolor() for bar in figure.axes[0].patches}) == 3
    assert {"FP8: 20 layers in 3 kernels", "BF16: 5 layers in 1 kernels", "finding"} <= set(words)
    assert "RMSNorm took 11" in alt


def test_cuts_draw_both_ranks_parts(shown: list[tuple[Any, str]]) -> None:
    plots.cuts(title="finding")
    (figure, alt), words = shown[0], texts(shown[0][0])
    column, row = figure.axes
    assert [len(axis.patches) for axis in (column, row)] == [5, 6]
    assert "finding" in words and "a row cut divides" in alt


def test_a_schedule_shows_who_works_on_what_and_what_is_idle(shown: list[tuple[Any, str]]) -> None:
    plots.schedule({"two": [[(0, 0), (1, 1)], [(1, 0), (2, 1)]]}, title="finding")
    (figure, alt), words = shown[0], texts(shown[0][0])
    assert "two: 2 of 6 idle" in words and "two: 3 steps, 2 of 6 idle" in alt
    assert [patch.get_xy() for patch in figure.axes[0].patches if patch.get_width() == 1] == [
        (0, 0),
        (1, 0),
        (1, 1),
        (2, 1),
    ]
