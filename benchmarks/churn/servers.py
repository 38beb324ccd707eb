"""python -m benchmarks.churn.servers (triton | lmi) ENGINE [--requests N]: churn through the embedded lane's servers.

A line of JSON for each way to ask, and whether the server's log tells of leaked blocks.
"""

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import typer

from benchmarks.churn.churn import churn_server
from benchmarks.churn.lanes import Call, lmi_text, triton_ids, triton_text
from cpu_serving.build import BuildOptions
from model_server.text import TextCodec
from model_server.triton.repository import ServingOptions, write_repository
from model_server.triton.server import TritonServer
from serving_base.servers import choose_ports

CHURN_OPTIONS = BuildOptions(max_batch_size=16, max_num_tokens=64, max_input_len=288, max_seq_len=512)
"""Prompts of more than 64 tokens are computed in chunks."""
IMAGE = "x:0.32.0-tensorrtllm0.12.0-cu125"


def main(server: str, engine: Path, requests: int = 500, seed: int = 1) -> None:
    serve = {"triton": serve_triton, "lmi": serve_lmi}[server]
    with tempfile.TemporaryDirectory() as folder:
        with serve(Path(folder), engine) as (calls, log):
            for name, call in calls.items():
                report = churn_server(call, requests, seed=seed)
                figures = {"answered": report.answered, "cancelled": report.cancelled, "wrong": len(report.wrong)}
                examples = [asdict(one) for one in report.wrong[:3]]
                print(json.dumps({"way": name, **figures, "examples": examples}), flush=True)
        print(json.dumps({"leaked": "leaked" in log.read_text(errors="replace")}))


@contextmanager
def serve_triton(folder: Path, engine: Path) -> Iterator[tuple[Mapping[str, Call], Path]]:
    options = ServingOptions(engine_dir=engine, tokenizer_dir=engine / "tokenizer")
    write_repository(folder / "repository", "0.12.0", options.values())
    http, grpc, metrics = choose_ports((0, 0, 0))
    with TritonServer(folder / "repository", http_port=http, grpc_port=grpc, metrics_port=metrics) as running:
        yield triton_calls(running.http_url, running.grpc_url, TextCodec.load(engine / "tokenizer")), running.log_path


def triton_calls(http_url: str, grpc_url: str, codec: TextCodec) -> dict[str, Call]:
    ways = {"whole": False, "streamed": True}
    ids = {f"ids, {way}": triton_ids(grpc_url, codec, streaming=streaming) for way, streaming in ways.items()}
    text = {f"ensemble, {way}": triton_text(http_url, streaming=streaming) for way, streaming in ways.items()}
    return ids | text


@contextmanager
def serve_lmi(folder: Path, engine: Path) -> Iterator[tuple[Mapping[str, Call], Path]]:
    (folder / "serving.properties").write_text("option.model_id=unused\n")
    address, log = folder / "address", folder / "log"
    arguments = ["--model", folder, "--engine", engine, "--image", IMAGE, "--port", "0", "--address-file", address]
    command = [sys.executable, "-m", "model_server.aws.container", *map(str, arguments)]
    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
    try:
        while not address.exists():
            time.sleep(0.1)
        port = int(address.read_text().rpartition(":")[2])
        _wait_until_healthy(port)
        yield {f"lmi, {way}": lmi_text(port, streaming=way == "streamed") for way in ("whole", "streamed")}, log
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def _wait_until_healthy(port: int) -> None:
    import httpx

    while httpx.get(f"http://127.0.0.1:{port}/ping", timeout=60, trust_env=False).status_code != 200:
        time.sleep(0.1)


if __name__ == "__main__":
    typer.run(main)
