"""Load tests: the results file, what is computed from it, the laws, and the plain client against a small SSE server."""

import json
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest
from pydantic import ValidationError

from load_testing import load
from load_testing.load import LatencyTarget, Load, RequestRecord, WorkItem
from serving_base.errors import UsageError
from serving_base.machine import move_to_cores

TTFT_S, GAP_S = 0.04, 0.01
CLOSED = Load(mode="closed", concurrency=2)


def record(sent_s: float, e2e_s: float = 1.0, **changed: Any) -> RequestRecord:
    """Five tokens; the first after a fifth of the time."""
    step_s = e2e_s / 5
    values: dict[str, Any] = {
        "run": "r",
        "tool": "t",
        "load": CLOSED,
        "began_unix_s": 1000.0,
        "prompt": "p",
        "scheduled_s": sent_s,
        "sent_s": sent_s,
        "first_token_s": sent_s + step_s,
        "last_token_s": sent_s + e2e_s,
        "isl_tokens": 7,
        "osl_tokens": 5,
        "gaps_ms": (1000 * step_s,) * 4,
    }
    return RequestRecord(**values | changed)


FAILED: dict[str, Any] = {"first_token_s": None, "last_token_s": None, "osl_tokens": 0, "gaps_ms": (), "error": "503"}


# --- records


def test_times_of_a_request() -> None:
    late = record(2.0, scheduled_s=1.5)
    assert late.ttft_ms == pytest.approx(700)  # the half second in the client counts
    assert late.ttft_from_sending_ms == pytest.approx(200)
    assert late.e2e_ms == pytest.approx(1500)
    assert late.tpot_ms == pytest.approx(200)
    assert late.e2e_ms == pytest.approx(late.ttft_ms + 4 * late.tpot_ms)
    assert load.unexplained_ms(late) == pytest.approx(0, abs=1e-6)


def test_a_failed_request_has_no_times_and_a_single_token_no_tpot() -> None:
    failed = record(0.0, **FAILED)
    assert not failed.ok
    assert math.isnan(failed.ttft_ms) and math.isnan(failed.e2e_ms)
    assert math.isnan(record(0.0, osl_tokens=1).tpot_ms)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"scheduled_s": 3.0}, "times run backwards"),
        ({"last_token_s": 0.1}, "times run backwards"),
        ({"first_token_s": None}, "has a first and a last token"),
        ({"osl_tokens": 0}, "has a first and a last token"),
        ({"ttft_ms": 3}, "Extra inputs"),
        ({"isl_tokens": -1}, "greater than or equal to 0"),
        ({"first_token_s": float("nan")}, "greater than or equal to 0|finite number|times run"),
        ({"gaps_ms": (-1.0,)}, "greater than or equal to 0"),
    ],
)
def test_an_impossible_record_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        record(1.0, **changed)


@pytest.mark.parametrize(
    "values", [{"mode": "closed"}, {"mode": "open"}, {"mode": "closed", "concurrency": 1, "rate_per_s": 2.0}]
)
def test_a_load_without_its_number_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="a closed loop has a concurrency"):
        Load(**values)


def test_the_results_file_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    runs = {"b": [record(1.0, run="b"), record(0.0, run="b", **FAILED)], "a": [record(0.5, run="a")]}
    path = tmp_path / "new" / "results.jsonl"
    load.write_results(runs, path)
    again = load.by_run(load.read_results(path))
    assert again == {"a": runs["a"], "b": runs["b"][::-1]}  # in the order of sending
    assert len(path.read_text().splitlines()) == 3


def test_a_broken_line_of_the_results_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    load.write_results({"r": [record(0.0)]}, path)
    path.write_text(path.read_text() + '{"run": "r"}\n')
    with pytest.raises(UsageError, match=r"results\.jsonl:2 is not a request record"):
        load.read_results(path)


def test_every_run_gets_a_folder_of_its_own(tmp_path: Path) -> None:
    folders = [load.new_run(tmp_path), load.new_run(tmp_path)]
    assert folders[0] != folders[1]
    assert sorted(tmp_path.iterdir()) == sorted(folders)


def test_records_of_the_same_seconds() -> None:
    others = [record(2.0, began_unix_s=1001.0), record(4.0, began_unix_s=1001.0)]  # sent at 1003 and 1005
    mine = [record(at, began_unix_s=1000.0) for at in (2.9, 3.0, 4.0, 5.1)]
    assert load.at_the_same_time(mine, others) == mine[1:3]


# --- figures


def test_percentiles_interpolate_as_numpy_does() -> None:
    np = pytest.importorskip("numpy")
    values = [5.0, 1.0, 9.0, 2.0, float("nan")]
    found = load.Percentiles.of(values)
    assert [found.p50, found.p90, found.p99] == pytest.approx(list(np.nanpercentile(values, [50, 90, 99])))


def test_a_summary_counts_failures_but_measures_successes() -> None:
    summary = load.summarize([record(0.0), record(1.0), record(1.5, **FAILED)])
    assert (summary.requests, summary.failed, summary.isl_tokens, summary.osl_tokens) == (3, 1, 14, 10)
    assert summary.seconds == pytest.approx(2.0)
    assert summary.output_tokens_per_s == pytest.approx(5.0)
    assert summary.requests_per_s == pytest.approx(1.0)
    assert summary.ttft_ms.p99 == pytest.approx(200)
    with pytest.raises(UsageError, match="no request of this run succeeded"):
        load.summarize([record(0.0, **FAILED)])


def test_goodput_counts_what_meets_both_limits() -> None:
    records = [record(0.0), record(0.0, e2e_s=2.0), record(0.0, **FAILED)]  # TTFT 200 and 400, TPOT 200 and 400
    assert load.goodput_per_s(records, LatencyTarget(ttft_ms=300, tpot_ms=300)) == pytest.approx(0.5)
    assert load.goodput_per_s(records, LatencyTarget(ttft_ms=500, tpot_ms=300)) == pytest.approx(0.5)
    assert load.goodput_per_s(records, LatencyTarget(ttft_ms=500, tpot_ms=500)) == pytest.approx(1.0)
    assert load.goodput_per_s(records, LatencyTarget(ttft_ms=100, tpot_ms=500)) == 0


def test_the_knee_is_the_lowest_load_near_the_best_throughput() -> None:
    def summary(streams: int, seconds: float) -> load.Summary:
        closed = Load(mode="closed", concurrency=streams)
        return load.summarize([record(0.0, e2e_s=seconds, load=closed) for _ in range(10)])

    points = [summary(1, 4.0), summary(2, 2.0), summary(4, 1.05), summary(8, 1.0)]
    assert load.knee(points).load.concurrency == 4
    assert load.knee(points, share=0.99).load.concurrency == 8


def test_requests_in_flight() -> None:
    at_s, counts = load.in_flight([record(0.0, 2.0), record(1.0, 2.0), record(5.0, **FAILED)])
    assert (at_s, counts) == ([0.0, 1.0, 2.0, 3.0], [1, 2, 1, 0])


# --- Little's law


def steady(streams: int, requests: int) -> list[RequestRecord]:
    """Each stream sends at once when its answer ends; answers take 0.5 to 1.5 s."""
    found = []
    for stream in range(streams):
        now_s = 0.0
        for number in range(requests):
            e2e_s = 0.5 + ((7 * stream + 3 * number) % 11) / 10
            found.append(record(now_s, e2e_s, load=Load(mode="closed", concurrency=streams)))
            now_s += e2e_s
    return found


def test_littles_law_holds_in_a_closed_loop() -> None:
    law = load.littles_law(steady(4, 40))
    assert law.in_flight == pytest.approx(4, rel=0.02)
    assert abs(law.error) < 0.05


def test_littles_law_breaks_when_records_are_lost_or_clocks_are_wrong() -> None:
    whole = steady(4, 40)
    slow_clock = [one.model_copy(update={"last_token_s": one.sent_s + 0.5}) for one in whole[::2]] + whole[1::2]
    assert load.littles_law(slow_clock).in_flight < 3.6
    with pytest.raises(UsageError, match="too few requests"):
        load.littles_law(steady(4, 1))


def test_gaps_that_do_not_add_up_are_seen() -> None:
    wrong = record(0.0, gaps_ms=(200.0, 200.0, 200.0))
    assert load.largest_gap([record(0.0), wrong], load.unexplained_ms) == pytest.approx(200)


# --- the workload


class Words:
    """A tokenizer whose tokens are words."""

    def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
        return " ".join(map(str, ids))

    def encode(self, text: str, add_special_tokens: bool) -> list[str]:
        return text.split()


def test_a_workload_has_the_lengths_asked_for_and_is_the_same_each_time(tmp_path: Path) -> None:
    texts = [list(range(start, start + 100)) for start in range(50)]
    items = load.make_workload(Words(), texts, isl=(10, 20), osl=(3, 5), seed=1)
    assert items == load.make_workload(Words(), texts, isl=(10, 20), osl=(3, 5), seed=1)
    assert items != load.make_workload(Words(), texts, isl=(10, 20), osl=(3, 5), seed=2)
    beside = load.make_workload(Words(), texts, isl=(10, 20), osl=(3, 5), seed=1, name="q")
    assert [item.osl_tokens for item in beside] != [item.osl_tokens for item in items]  # they do not march in step
    assert {item.isl_tokens for item in items} == set(range(10, 21))
    assert {item.osl_tokens for item in items} == {3, 4, 5}
    load.write_dataset(items, tmp_path / "dataset.jsonl")
    row = json.loads((tmp_path / "dataset.jsonl").read_text().splitlines()[1])
    assert row == {"session_id": "p0001", "text": items[1].text, "output_length": items[1].osl_tokens}


# --- cores


def test_generator_and_server_get_disjoint_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    for usable, generator in (({0, 1}, {1}), ({4, 5, 6, 7}, {7}), (set(range(16)), {12, 13, 14, 15}), ({3}, {3})):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, usable=usable: usable)
        cores = load.split_cores()
        assert cores.generator == generator
        assert cores.server == (usable - generator or usable)


def test_what_is_started_on_cores_stays_there_and_we_return() -> None:
    before = os.sched_getaffinity(0)
    seen: list[set[int]] = []
    with load.on_cores(frozenset({min(before)})):
        thread = threading.Thread(target=lambda: seen.append(os.sched_getaffinity(0)))
        thread.start()
        thread.join()
    assert seen == [{min(before)}]
    assert os.sched_getaffinity(0) == before


THREADS = """import threading, time
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
print(flush=True)
time.sleep(600)"""


def test_only_the_named_program_is_moved_with_all_its_threads(tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    started = []
    for name in ("moved", "moved-not"):
        (tmp_path / name).write_text(THREADS)
        started.append(subprocess.Popen([sys.executable, tmp_path / name, "moved"], stdout=subprocess.PIPE))
    try:
        for process in started:
            assert process.stdout is not None and process.stdout.readline()
        move_to_cores("moved", frozenset({min(before)}))
        cores = [
            {frozenset(os.sched_getaffinity(thread.id)) for thread in psutil.Process(process.pid).threads()}
            for process in started
        ]
        assert cores == [{frozenset({min(before)})}, {frozenset(before)}]
    finally:
        for process in started:
            process.kill()
            process.communicate()


# --- the plain client


class Streams(BaseHTTPRequestHandler):
    """Answers as Triton's generate_stream does: an empty piece, then a piece per token at fixed times."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        refused = "refuse" in body["text_input"]
        self.send_response(400 if refused else 200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if refused:
            self.chunk(b'data: {"error":"too long"}\n\n')
        else:
            self.chunk(b'data: {"text_output":""}\n\n')
            for number in range(body["max_tokens"]):
                time.sleep(GAP_S if number else TTFT_S)
                self.chunk(b'data: {"text_output":" a"}\n\n')
        self.chunk(b"")

    def chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Streams)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


ITEMS = [WorkItem(name=f"p{number}", text="hello", isl_tokens=1, osl_tokens=3 + number) for number in range(4)]


def test_the_first_token_is_the_first_piece_that_holds_text(url: str) -> None:
    records = load.closed_loop(url, ITEMS, concurrency=2, requests=8)
    assert [one.error for one in records] == [""] * 8
    assert sorted(one.prompt for one in records) == sorted(2 * [item.name for item in ITEMS])
    for one in records:
        assert one.ttft_ms >= 1000 * TTFT_S  # the empty piece came at once
        assert len(one.gaps_ms) == one.osl_tokens - 1
        assert min(one.gaps_ms) >= 0
        assert abs(load.unexplained_ms(one)) < 0.01
    assert max(load.in_flight(records)[1]) == 2


def test_a_closed_loop_ends_when_it_is_stopped(url: str) -> None:
    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()
    records = load.closed_loop(url, ITEMS, concurrency=2, stop=stop)
    assert 2 <= len(records) < 20
    assert all(one.ok for one in records)


def test_a_refusal_is_a_record_and_the_connection_goes_on(url: str) -> None:
    bad = WorkItem(name="bad", text="refuse", isl_tokens=1, osl_tokens=3)
    records = load.closed_loop(url, [bad, ITEMS[0]], concurrency=1, requests=4)
    assert [one.ok for one in records] == [False, True, False, True]
    assert "too long" in str(records[0].error)
    assert load.summarize(records).failed == 2


def test_a_server_that_is_not_there_is_a_record() -> None:
    records = load.closed_loop("http://127.0.0.1:9", ITEMS, concurrency=1, requests=2)
    assert [one.ok for one in records] == [False, False]
    assert "refused" in records[0].error


def test_arrivals_are_reproducible_and_waiting_in_the_client_counts(url: str) -> None:
    """Requests of about 60 ms each on one connection, asked for at 100 per second."""
    runs = [
        load.open_loop(url, ITEMS, rate_per_s=100, requests=8, connections=1, seed=seed, run="o") for seed in (1, 1, 2)
    ]
    due = [[one.scheduled_s for one in records] for records in runs]
    assert due[0] == due[1] != due[2]
    last = runs[0][-1]
    assert last.ttft_from_sending_ms < 1000 * TTFT_S + 60
    assert last.ttft_ms > last.ttft_from_sending_ms + 100
    assert all(one.sent_s >= one.scheduled_s for one in runs[0])


def test_every_field_of_the_results_file_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "benchmark-results.md").read_text()
    rows = {line.split("`")[1] for line in page.splitlines() if line.startswith("| `")}
    assert rows == set(RequestRecord.model_fields)


# --- two tools side by side


def test_two_tools_with_the_same_figures_do_not_agree_when_requests_failed() -> None:
    figures = load.summarize([record(0.0)])
    assert load.Agreement(figures, figures, (record(0.0),)).holds
    broken = load.Agreement(figures, figures, (record(0.0), record(1.0, **FAILED)))
    assert broken.errors == {"503"}
    assert not broken.holds


# --- what the other side counted, and what was promised

METRICS = {
    'nv_inference_request_success{model="ensemble",version="1"}': 7.0,
    'nv_inference_request_success{model="postprocessing",version="1"}': 90.0,
    'nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="active",version="1"}': 3.0,
}
HISTOGRAMS = {
    'nv_llm_input_token_len_sum{model="tensorrt_llm",response_metric_type="total_input_tokens",version="1"}': 70.0,
    'nv_llm_output_token_len_sum{model="tensorrt_llm",response_metric_type="total_output_tokens",version="1"}': 35.0,
    'nv_llm_output_token_len_count{model="tensorrt_llm",response_metric_type="total_output_tokens",version="1"}': 7.0,
}


def test_a_server_counts_requests_and_where_it_can_tokens() -> None:
    assert load.server_counts(METRICS) == {"requests": 7}
    assert load.server_counts(METRICS | HISTOGRAMS) == {"requests": 7, "isl_tokens": 70, "osl_tokens": 35}


def test_a_count_that_comes_late_is_waited_for_and_one_that_never_comes_is_shown() -> None:
    readings = iter([{"requests": 1}, {"requests": 3}, *[{"requests": 4}] * 2])
    assert load.counted_when(lambda: next(readings), 4) == {"requests": 4}
    assert load.counted_when(lambda: {"requests": 3}, 4, limit_s=0.3) == {"requests": 3}


def test_tokens_that_the_backend_counts_later_are_waited_for() -> None:
    readings = iter([{"requests": 4, "isl_tokens": 70}, *[{"requests": 4, "isl_tokens": 90}] * 2])
    assert load.counted_when(lambda: next(readings), 4) == {"requests": 4, "isl_tokens": 90}


@pytest.mark.parametrize(
    ("release", "tokens"), [("0.8.0", False), ("0.12.0", False), ("0.15.0", False), ("0.16.0", True), ("1.2.1", True)]
)
def test_the_backend_counts_tokens_from_0_16_on(release: str, tokens: bool) -> None:
    assert load.counted_kinds(release) == {"requests"} | ({"isl_tokens", "osl_tokens"} if tokens else set())


def test_no_two_prompts_begin_alike() -> None:
    ids = list(range(1000))
    found = [next_text for next_text, _ in zip(load.distinct_texts(ids, 100), range(950), strict=False)]
    assert {len(text) for text in found} == {100}
    assert len({tuple(text[:64]) for text in found}) == len(found)


def test_lost_requests_and_resting_streams_show_against_the_number_of_streams() -> None:
    whole = [record(0.5 * number) for number in range(20)]  # two streams that never rest
    law = load.littles_law(whole)
    assert law.implied_in_flight == pytest.approx(2, rel=0.15)
    lost = load.littles_law(whole[::2])
    assert lost.implied_in_flight < 1.7
    assert abs(lost.error) < 0.15  # the records alone do not tell


def open_runs(*shares: float) -> list[list[RequestRecord]]:
    """Runs at 1, 2, ... requests/s, of which these shares meet a target of 500 ms to the first token."""
    return [
        [
            record(float(n), 1.0 if n < share * 20 else 5.0, load=Load(mode="open", rate_per_s=float(rate)))
            for n in range(20)
        ]
        for rate, share in enumerate(shares, start=1)
    ]


def test_the_highest_good_rate_is_the_highest_at_which_nine_in_ten_are_good() -> None:
    target = LatencyTarget(ttft_ms=500, tpot_ms=500)
    assert [load.good_share(run, target) for run in open_runs(1.0, 0.9, 0.5)] == [1.0, 0.9, 0.5]
    assert load.highest_good_rate(open_runs(1.0, 0.9, 0.5), target) == 2.0
    assert load.highest_good_rate(open_runs(0.5), target) is None


def test_failed_requests_are_not_good() -> None:
    run = [record(0.0), record(1.0, **FAILED)]
    assert load.good_share(run, LatencyTarget(ttft_ms=500, tpot_ms=500)) == 0.5
