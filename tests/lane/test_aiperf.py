"""AIPerf: the file it is given, the records it gives back, what is said when it fails, and a check of its TTFT."""

import json
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from load_testing import aiperf, load
from load_testing.load import Load, Phase, WorkItem
from serving_base.errors import CommandFailed, EnvironmentProblem, UsageError

ITEMS = [WorkItem(name=f"p000{number}", text=f"text {number}", isl_tokens=9, osl_tokens=5) for number in range(3)]
CLOSED, OPEN = Load(mode="closed", concurrency=4), Load(mode="open", rate_per_s=2.5)
PHASES = [Phase("warm", CLOSED, 4, warmup=True), Phase("c4", CLOSED, 2), Phase("slow", OPEN, 1)]
SECOND = 1_000_000_000


def row(phase: str, item: str, issued_s: float, sent_s: float, **changed: Any) -> dict[str, Any]:
    """A line of profile_export.jsonl, as far as it is read."""
    metrics = {"time_to_first_token": 200.0, "request_latency": 1000.0, "inter_chunk_latency": [200.0] * 4}
    metadata = {
        "conversation_id": item,
        "phase_name": phase,
        "credit_issued_ns": int(issued_s * SECOND),
        "request_start_ns": int(sent_s * SECOND),
        "worker_id": "worker_1",
    }
    return {"metadata": metadata, "metrics": {k: {"value": v, "unit": "ms"} for k, v in metrics.items()}} | changed


# --- the configuration


def test_one_file_runs_all_phases(tmp_path: Path) -> None:
    config = aiperf.configuration(
        "http://127.0.0.1:1", tmp_path / "d.jsonl", tmp_path, PHASES, out=tmp_path / "o", seed=3, workers=2
    )
    benchmark = config["benchmark"]
    assert benchmark["phases"] == [
        {"name": "warm", "kind": "warmup", "requests": 4, "type": "constant", "rate": 1000.0, "concurrency": 4},
        {"name": "c4", "kind": "profiling", "requests": 2, "type": "constant", "rate": 1000.0, "concurrency": 4},
        {"name": "slow", "kind": "profiling", "requests": 1, "type": "poisson", "rate": 2.5},
    ]
    assert config["randomSeed"] == 3
    assert benchmark["tokenizer"]["name"] == str(tmp_path)  # absolute: AIPerf takes no other local folder
    assert benchmark["endpoint"]["path"] == "/v2/models/ensemble/generate_stream"
    assert yaml.safe_load(yaml.safe_dump(config)) == config


def test_the_template_makes_the_body_that_the_plain_client_sends() -> None:
    jinja2 = pytest.importorskip("jinja2")
    item = WorkItem(name="p", text='quotes " and {braces}\nand lines', isl_tokens=1, osl_tokens=7)
    rendered = jinja2.Environment(autoescape=True).from_string(aiperf.BODY).render(text=item.text, max_tokens=7)
    assert json.loads(rendered) == item.body()


def test_an_open_loop_may_be_capped() -> None:
    capped = Phase("p", Load(mode="open", rate_per_s=5, concurrency=2), 9).config()
    assert capped == {
        "name": "p", "kind": "profiling", "requests": 9, "type": "poisson", "rate": 5.0, "concurrency": 2,
    }  # fmt: skip


# --- its records


def test_records_by_phase_without_the_warm_up() -> None:
    rows = [
        row("warm", "p0000", 1, 1),
        row("c4", "p0001", 10.0, 10.5),
        row("c4", "p0000", 11.0, 11.0),
        row("slow", "p0002", 20.0, 20.25),
    ]
    found = aiperf.parse_records(rows, {"c4": CLOSED, "slow": OPEN}, {item.name: item for item in ITEMS})
    assert list(found) == ["c4", "slow"]
    first, second = found["c4"]
    assert (first.began_unix_s, first.sent_s, first.scheduled_s) == (10.0, 0.5, 0.5)  # a closed loop is never late
    assert second.prompt == "p0000"
    assert (first.isl_tokens, first.osl_tokens, first.tool) == (9, 5, "AIPerf")
    assert first.ttft_ms == pytest.approx(200)
    assert first.tpot_ms == pytest.approx(200)
    assert load.unexplained_ms(first) == pytest.approx(0, abs=1e-6)
    (late,) = found["slow"]
    assert (late.scheduled_s, late.sent_s) == (0.0, 0.25)
    assert late.ttft_ms == pytest.approx(450)


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        (
            {"error": {"code": 503, "type": "HTTPError", "message": "queue full"}, "metrics": {}},
            "HTTPError: queue full",
        ),
        ({"metrics": {"request_latency": {"value": 3.0, "unit": "ms"}}}, "the answer held no text"),
    ],
)
def test_a_request_that_failed_is_a_failed_record(changed: dict[str, Any], error: str) -> None:
    rows = [row("c4", "p0001", 1, 1, **changed)]
    (found,) = aiperf.parse_records(rows, {"c4": CLOSED}, {item.name: item for item in ITEMS})["c4"]
    assert (found.error, found.osl_tokens, found.first_token_s) == (error, 0, None)


# --- how it is run


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "env" / "bin"
    folder.mkdir(parents=True)
    monkeypatch.setenv("PLAYBOOK_AIPERF_ENV", str(folder.parent))
    return folder


def program(folder: Path, body: str) -> None:
    (folder / "aiperf").write_text(f"#!/bin/sh\n{body}\n")
    (folder / "aiperf").chmod(0o755)


def profile(out: Path) -> dict[str, list[load.RequestRecord]]:
    return load.profile("http://127.0.0.1:1", ITEMS, [Phase("c4", CLOSED, 2)], tokenizer=out.parent, out=out)


def test_without_its_environment_the_fix_is_named(environment: Path, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="no AIPerf in") as missing:
        profile(tmp_path / "out")
    assert "make setup" in str(missing.value)


def test_a_failing_aiperf_says_its_last_words(environment: Path, tmp_path: Path) -> None:
    program(environment, "echo 'Failed to load tokenizer'; exit 1")
    with pytest.raises(CommandFailed, match="ended with exit status 1") as failed:
        profile(tmp_path / "out")
    assert "Failed to load tokenizer" in str(failed.value)
    assert str(tmp_path / "out" / "aiperf.log") in str(failed.value)


def test_lost_records_are_an_error(environment: Path, tmp_path: Path) -> None:
    export = tmp_path / "out" / "export"
    line = json.dumps(row("c4", "p0001", 1, 1))
    program(environment, f"mkdir -p {export}; echo '{line}' > {export}/profile_export.jsonl")
    with pytest.raises(CommandFailed, match=r"lacks records \(c4: 1\)"):
        profile(tmp_path / "out")


def test_the_phases_are_told_as_they_begin_and_end(environment: Path, tmp_path: Path) -> None:
    log = "10:16:28.105 NOTICE   Phase c4 (profiling) {} | phase_index=0 | ... (runner.py:660)"
    words = ("started", "sending complete", "complete")
    program(environment, "\n".join(f"echo '{log.format(word)}'" for word in words) + "\nexit 1")
    told: list[tuple[str, str]] = []
    with pytest.raises(CommandFailed):
        load.profile(
            "http://127.0.0.1:1", ITEMS, [Phase("c4", CLOSED, 2)], tokenizer=tmp_path, out=tmp_path / "out",
            on_phase=lambda *event: told.append(event),
        )  # fmt: skip
    assert told == [("c4", "started"), ("c4", "complete")]


def test_two_prompts_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"two prompts are called {ITEMS[0].name}"):
        load.profile(
            "http://127.0.0.1:1", [*ITEMS, ITEMS[0]], [Phase("c4", CLOSED, 2)], tokenizer=tmp_path,
            out=tmp_path / "out",
        )  # fmt: skip


def test_a_second_client_beside_a_phase_that_never_began_says_so() -> None:
    beside = load.Beside("http://127.0.0.1:1", ITEMS, phase="alone", cores=load.split_cores().generator)
    beside("c4", "started")
    beside.end()
    with pytest.raises(UsageError, match="not begun its phase alone"):
        beside.agreement([])


def test_offline_variables_are_removed_and_the_folder_must_be_new(
    environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    export = tmp_path / "out" / "export"
    lines = "\n".join(json.dumps(row("c4", "p0001", 1, 1)) for _ in range(2))
    refuse = 'test -z "$HF_HUB_OFFLINE" || exit 1'
    program(environment, f"{refuse}\nmkdir -p {export}\ncat > {export}/profile_export.jsonl <<END\n{lines}\nEND")
    assert len(profile(tmp_path / "out")["c4"]) == 2
    assert aiperf.command_line(tmp_path / "out").startswith("env -u HF_HUB_OFFLINE")
    with pytest.raises(UsageError, match="holds another run"):
        profile(tmp_path / "out")


# --- both clients at once

IMITATION = """\
import json, sys, time, urllib.request, yaml
from pathlib import Path

config = yaml.safe_load(Path(sys.argv[3]).read_text())["benchmark"]
(phase,) = config["phases"]
late = 500.0 if phase["name"].endswith("_1") else 0.0
line = f"10:16:28.105 NOTICE   Phase {phase['name']} (profiling) %s | phase_index=0 | ... (runner.py:660)"
print(line % "started", flush=True)
rows = []
for item in [json.loads(line) for line in Path(config["dataset"]["path"]).open()][: phase["requests"]]:
    sent = time.time_ns()
    body = json.dumps({"text_input": item["text"]}).encode()
    urllib.request.urlopen(config["endpoint"]["url"] + config["endpoint"]["path"], body).read()
    took = (time.time_ns() - sent) / 1e6
    metrics = {"time_to_first_token": took + late, "request_latency": took + late, "inter_chunk_latency": []}
    metadata = {"conversation_id": item["session_id"], "phase_name": phase["name"], "credit_issued_ns": sent}
    metadata |= {"request_start_ns": sent, "worker_id": "worker_1"}
    rows.append({"metadata": metadata, "metrics": {k: {"value": v, "unit": "ms"} for k, v in metrics.items()}})
print(line % "complete", flush=True)
out = Path(config["artifacts"]["dir"])
out.mkdir(parents=True)
(out / "profile_export.jsonl").write_text("\\n".join(map(json.dumps, rows)))
"""
"""An AIPerf that asks as its file says; what it measures in its first run is half a second too late."""


@pytest.fixture
def asked() -> Iterator[tuple[str, list[str]]]:
    """A server's address, and the prompts that it was asked, in order."""
    texts: list[str] = []

    class Answering(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            texts.append(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["text_input"])
            time.sleep(0.02)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'data: {"text_output": "one"}\n\n')

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", texts
        server.shutdown()


def test_two_clients_are_compared_until_they_agree(
    environment: Path, tmp_path: Path, asked: tuple[str, list[str]]
) -> None:
    """Chapter 08's own checks judge the real AIPerf beside the plain client: in CI in each run of the course."""
    url, texts = asked
    (environment / "aiperf.py").write_text(IMITATION, encoding="utf-8")
    program(environment, f'exec {sys.executable} {environment / "aiperf.py"} "$@"')
    items = [WorkItem(name=f"p{number}", text=f"text {number}", isl_tokens=9, osl_tokens=1) for number in range(40)]
    tries = load.compare(
        url, items, requests=16, tokenizer=tmp_path, out=tmp_path / "compare", tries=9,
        cores=load.split_cores().generator,
    )  # fmt: skip
    assert [one.holds for one in tries[:-1]] == [False] * len(tries[:-1]) and len(tries) > 1
    assert tries[-1].holds or len(tries) == 9
    assert tries[0].difference_ms > 400 and not tries[0].errors
    for number, one in enumerate(tries, 1):
        assert one.aiperf.requests == 16 and one.plain.requests > 0
        assert {record.run for record in one.records} == {f"aiperf_{number}", f"plain, aiperf_{number}"}
    theirs = {record.prompt for one in tries for record in one.records if record.run.startswith("aiperf")}
    ours = {record.prompt for one in tries for record in one.records if record.run.startswith("plain")}
    assert theirs == {item.name for item in items[1::2]} - {f"p{number}" for number in range(33, 40)}
    assert ours and ours <= {item.name for item in items[::2]}
    assert set(texts) >= {"text 1", "text 31", "text 0"}
