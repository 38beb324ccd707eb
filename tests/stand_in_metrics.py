"""The figures that a release's tensorrtllm backend shows on /metrics, and a server that shows no others.

The embedded backend shows those of the newest release. `shown` takes away what an older one lacks, so that a chapter
which reads such a figure fails under the stand-ins as it would on the machine.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import httpx
from packaging.version import Version

ALWAYS = "0.8.0"
# inflight_batcher_llm/src/custom_metrics_reporter/custom_metrics_reporter.cc of tensorrtllm_backend, read at the tags
# v0.8.0 to v0.19.0: the release that first has each value of a family's label.
FIRST_IN = {
    "nv_trt_llm_request_metrics": {
        **dict.fromkeys(("active", "max", "scheduled", "context"), ALWAYS),
        "waiting": "0.18.2",
    },
    "nv_trt_llm_runtime_memory_metrics": dict.fromkeys(("cpu", "gpu", "pinned"), ALWAYS),
    "nv_trt_llm_kv_cache_block_metrics": {
        **dict.fromkeys(("max", "free", "used", "tokens_per"), ALWAYS),
        "reused": "0.13.0",
        "fraction": "0.18.2",
    },
    "nv_trt_llm_disaggregated_serving_metrics": dict.fromkeys(("kv_cache_transfer_ms", "request_count"), "0.15.0"),
    "nv_trt_llm_inflight_batcher_metrics": {
        **dict.fromkeys(("total_context_tokens", "generation_requests", "micro_batch_id"), ALWAYS),
        "paused_requests": "0.9.0",
    },
    "nv_trt_llm_general_metrics": dict.fromkeys(("timestamp", "iteration_counter"), ALWAYS),
    "nv_llm_input_token_len": {"total_input_tokens": "0.16.0"},
    "nv_llm_output_token_len": {"total_output_tokens": "0.16.0"},
}
SAMPLE = re.compile(r"(?P<name>\w+)\{(?P<labels>[^}]*)\}")
HISTOGRAM_PART = re.compile(r"_(bucket|sum|count)$")


def figures_of(release: str) -> dict[str, set[str]]:
    """Family -> values of its own label, as that release's backend shows them."""
    at = Version(release)
    found = {
        family: {value for value, first in values.items() if Version(first) <= at}
        for family, values in FIRST_IN.items()
    }
    return {family: values for family, values in found.items() if values}


def shown(page: str, release: str) -> str:
    """The page without the backend's figures that the release lacks; Triton's own stay."""
    known = figures_of(release)
    return "\n".join(line for line in page.split("\n") if is_shown(line, known))


def is_shown(line: str, known: dict[str, set[str]]) -> bool:
    if line.startswith("#"):
        _, _, name, *_ = line.split(" ")
        return name not in FIRST_IN or name in known
    sample = SAMPLE.match(line)
    family = HISTOGRAM_PART.sub("", sample["name"]) if sample else ""
    if sample is None or family not in FIRST_IN:
        return True
    return any(f'="{value}"' in sample["labels"] for value in known.get(family, ()))


@contextmanager
def metrics_server(port: int, source_url: str, release: str) -> Iterator[None]:
    """Serve on ``port`` what the release's backend would show of ``source_url``."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = httpx.get(f"{source_url}{self.path}", trust_env=False)
            content = shown(answer.text, release).encode()
            self.send_response(answer.status_code)
            self.send_header("Content-Type", answer.headers.get("Content-Type", "text/plain"))
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
