"""Planted secrets: whatever fails, and whoever prints it, none of their values is written anywhere."""

import base64
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

import pytest

from checkout import PYTHON_PATH
from notebook_factory import notebook, write_course

NAMES = (
    "HF_TOKEN",
    "NGC_API_KEY",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "CLIENT_TOKEN",
)

CLIENT_FAILS = """\
import logging, pickle, traceback
from rich.console import Console
from rich.traceback import Traceback
from serving_clients import Client, Credential, RetryPolicy, Secret, TextRequest, Timeouts, TritonGrpc, TritonHttp

logging.basicConfig(level=logging.DEBUG)
credential = Credential(Secret("CLIENT_TOKEN"))
key = Credential(Secret("CLIENT_TOKEN"), header="X-Api-Key", scheme="")
dead = "127.0.0.1:9"
transports = [TritonGrpc(dead, credential=credential), TritonHttp(f"http://{dead}", credential=credential)]
for kind in ("repeat", "cut", "half", "busy", "hang", "garbage"):
    for stream in (False, True):
        transports += [TritonHttp("{url}/" + kind, stream=stream, credential=c) for c in (credential, key)]
seen = []
for transport in transports:
    client = Client(transport, retry=RetryPolicy(max_attempts=2, base_s=0.01), timeouts=Timeouts(0.5, 0.2))
    try:
        client.generate(TextRequest("Hi", max_tokens=3))
    except Exception as error:
        seen.append(type(error).__name__)
        print(error, repr(error), vars(error), error.attempts, pickle.dumps(error))
        print("".join(traceback.TracebackException.from_exception(error, capture_locals=True).format()))
        rich_trace = Traceback.from_exception(type(error), error, error.__traceback__, show_locals=True)
        Console(width=200).print(rich_trace)
    print(credential, repr(client), vars(client), vars(transport), pickle.dumps(credential))
print("failures:", len(seen), sorted(set(seen)))"""

SAGEMAKER_FAILS = """\
import boto3
from serving_clients import ONCE, SageMakerEndpoint
from serving_clients.sagemaker_endpoint import one_attempt

logging.getLogger("botocore").setLevel(logging.INFO)  # botocore's own DEBUG shows the headers it signs
runtime = boto3.client("sagemaker-runtime", region_name="us-east-1", endpoint_url="{url}/repeat", config=one_attempt())
for stream in (False, True):
    try:
        Client(SageMakerEndpoint(runtime, "llama", stream=stream), retry=ONCE).generate(TextRequest("Hi", max_tokens=3))
    except Exception as error:
        print("SageMaker:", type(error).__name__, error, vars(error))
        print("".join(traceback.TracebackException.from_exception(error, capture_locals=True).format()))"""

RECIPES = """\
from playbook.panel import panel_markdown
from playbook.profile import load_profile
from trtllm_check.recipes import STAGES

for name in ("p5", "p5-8b"):
    print(panel_markdown(load_profile(name), list(STAGES)))"""

PROCESSES = """\
import sys
from pathlib import Path
from serving_base.errors import CommandFailed
from serving_base.processes import stream_command

try:
    secret_env = {name: __import__("os").environ[name] for name in ("HF_TOKEN", "NGC_API_KEY")}
    stream_command([sys.executable, "-c", "raise SystemExit(3)"], env=secret_env, log_path=Path("{log}"))
except CommandFailed as error:
    print(error)"""

ENDS = """\
Client(TritonHttp("{url}/repeat", credential=credential), retry=ONCE).generate(TextRequest("Hi", max_tokens=3))"""

CUT = {"cut": b"\r\n{", "half": b'Content-Type: text/event-stream\r\n\r\ndata: {"text_output": "a"}\n\n'}


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    values = {name: f"planted-{secrets.token_hex(12)}" for name in NAMES}
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    return values


@pytest.fixture
def mirror() -> Iterator[str]:
    """A server that repeats the headers it was sent in its errors, as careless proxies do."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            pass

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            kind = self.path.split("/")[1]
            if kind in CUT:
                self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n" + CUT[kind])
                return
            if kind == "hang":
                threading.Event().wait(0.4)
            said = f"you sent {self.headers}".encode() if kind != "garbage" else b"<html>"
            with suppress(BrokenPipeError):  # it was asked to hang, and the client has left
                self.send_response({"repeat": 401, "busy": 503}.get(kind, 200))
                self.send_header("Content-Length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def leaks(planted: dict[str, str], written: dict[str, bytes]) -> list[tuple[str, str]]:
    """(secret's name, where) of each value found as it is, in base64, or as in a URL. ``written``: name -> bytes."""
    found = []
    for name, value in planted.items():
        forms = {value.encode(), base64.b64encode(value.encode()).rstrip(b"="), quote(value, safe="").encode()}
        # base64 of a longer text shifts the alphabet by the bytes before
        forms |= {base64.b64encode(b"x" * shift + value.encode())[4:-4] for shift in (1, 2)}
        found += [(name, where) for where, content in written.items() if any(form in content for form in forms)]
    return found


def run(folder: Path, *sources: str) -> tuple[int, dict[str, bytes]]:
    """`playbook run` of a course of these cells; everything that it wrote, by name."""
    write_course(folder, c01_small=notebook(*sources))
    done = subprocess.run(
        [sys.executable, "-m", "playbook", "run", "--out", "out"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": PYTHON_PATH, "COLUMNS": "200"},
        capture_output=True,
        check=False,
    )
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return done.returncode, {"stdout": done.stdout, "stderr": done.stderr} | files


def test_a_course_that_fails_in_every_way_writes_no_secret(
    tmp_path: Path, planted: dict[str, str], mirror: str
) -> None:
    cells = (CLIENT_FAILS, SAGEMAKER_FAILS, RECIPES, PROCESSES, "%xmode Verbose\n" + ENDS)
    log = str(tmp_path / "workspace" / "command.log")
    status, written = run(tmp_path, *(cell.replace("{url}", mirror).replace("{log}", log) for cell in cells))
    shown = written["out/01-small.ipynb"].decode()
    # What was meant to fail did, and was shown: else nothing was searched.
    assert status == 1
    assert "failures: 26 [" in shown
    for kind in ("Refused", "Unreachable", "BrokenStream", "Overloaded", "TimedOut"):
        assert f"'{kind}'" in shown, kind
    assert "SageMaker: Refused" in shown
    assert "[secret]" in shown
    assert "--env HF_TOKEN" in shown
    assert "ended with exit status 3" in shown
    assert {"out/report.html", "out/results.json", "workspace/command.log"} <= set(written)
    assert leaks(planted, written) == []


def test_the_search_finds_what_a_course_leaks(tmp_path: Path, planted: dict[str, str]) -> None:
    _, written = run(
        tmp_path,
        "import os; print(os.environ['CLIENT_TOKEN'])",
        "open('workspace.log', 'w').write(os.environ['AWS_SECRET_ACCESS_KEY'])",
        "raise ValueError(os.environ['HF_TOKEN'])",
    )
    found = set(leaks(planted, written))
    assert {("CLIENT_TOKEN", "out/01-small.ipynb"), ("HF_TOKEN", "stderr"), ("HF_TOKEN", "out/report.html")} <= found
    assert "AWS_SECRET_ACCESS_KEY" in {name for name, where in found if where.endswith("workspace.log")}
    assert {name for name, _ in found} == {"CLIENT_TOKEN", "AWS_SECRET_ACCESS_KEY", "HF_TOKEN"}


@pytest.mark.parametrize(
    "disguise",
    [
        lambda value: value,
        lambda value: base64.b64encode(f"user:{value}".encode()).decode(),
        lambda value: base64.b64encode(f"user2:{value}!".encode()).decode(),
        lambda value: base64.b64encode(f"user22:{value}!!".encode()).decode(),
    ],
)
def test_the_search_finds_a_secret_in_disguise(disguise: Callable[[str], str]) -> None:
    planted = {"A_TOKEN": "planted-0123456789abcdef"}
    assert leaks(planted, {"file": b"x" + disguise(planted["A_TOKEN"]).encode()}) == [("A_TOKEN", "file")]
    assert leaks(planted, {"file": b"planted-other"}) == []
