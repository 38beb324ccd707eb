"""Several instances of postprocessing, one of them slow: the pieces of a stream keep their order."""

from pathlib import Path

import pytest

from model_server.triton.server import TritonServer
from serving import END_ID, PROMPTS, build_tiny_engine, write_tiny_repository
from serving_base.servers import choose_ports
from serving_clients import Client, SamplingOptions, TextRequest, TritonGrpc

SLOW_FIRST = """

import time


class TritonPythonModel(TritonPythonModel):
    def initialize(self, args):
        super().initialize(args)
        self._pause_s = 0.03 if args["model_instance_name"].endswith("_0_0") else 0.0

    def execute(self, requests):
        time.sleep(self._pause_s)
        return super().execute(requests)
"""


@pytest.mark.parametrize("release", ["0.12.0", "0.16.0"])  # without and with dynamic batching of its own
def test_a_slow_instance_of_postprocessing_changes_no_order(tmp_path: Path, release: str) -> None:
    engine = build_tiny_engine(tmp_path / "engine")
    folder = write_tiny_repository(tmp_path / "repository", engine, release, postprocessing_instances=2)
    code = folder / "postprocessing" / "1" / "model.py"
    code.write_text(code.read_text(encoding="utf-8") + SLOW_FIRST, encoding="utf-8")
    http, grpc, metrics = choose_ports((0, 0, 0))
    request = TextRequest(PROMPTS[0], max_tokens=24, sampling=SamplingOptions(end_id=END_ID), deadline_s=60)
    with TritonServer(folder, http_port=http, grpc_port=grpc, metrics_port=metrics) as server:
        with Client(TritonGrpc(server.grpc_url, mode="whole")) as client:
            whole = client.generate(request).text
        with Client(TritonGrpc(server.grpc_url)) as client:
            streamed = client.generate(request)
    assert len(streamed.pieces) > 4
    assert streamed.text == whole
