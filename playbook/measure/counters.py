"""What a Triton server has counted by itself: the other side of a load generator's claims."""

import time
from collections.abc import Callable, Mapping

from serving_base.servers import TEXT_MODEL
from trtllm_check.releases.templates import release_templates

PAUSE_S = 0.1
REQUESTS = f'nv_inference_request_success{{model="{TEXT_MODEL}"'
TOKENS = {"isl_tokens": "nv_llm_input_token_len_sum", "osl_tokens": "nv_llm_output_token_len_sum"}
"""Lengths as the backend's histograms add them up; TensorRT-LLM's backend has them from 0.16.0 on."""


def server_counts(metrics: Mapping[str, float]) -> dict[str, int]:
    """Requests that the ensemble has answered and, where the backend counts them, tokens of prompts and answers.

    ``metrics``: the samples of ``/metrics`` by name and labels. A release without the histograms has no token keys.
    """
    counts = {"requests": sum(int(value) for name, value in metrics.items() if name.startswith(REQUESTS))}
    for kind, histogram in TOKENS.items():
        sums = [int(value) for name, value in metrics.items() if name.startswith(histogram)]
        if sums:
            counts[kind] = sum(sums)
    return counts


def counted_kinds(release: str) -> set[str]:
    """The keys that :func:`server_counts` has with the tensorrtllm backend of ``release``."""
    return {"requests", *(TOKENS if release_templates(release).token_histograms else ())}


def counted_when(read: Callable[[], dict[str, int]], requests: int, *, limit_s: float = 60.0) -> dict[str, int]:
    """What ``read`` gives once the server has counted ``requests``, or what it gives after ``limit_s``.

    A server counts a request when it lets go of it, a moment after its client has the last piece.
    """
    ends_at = time.monotonic() + limit_s
    while (counts := read())["requests"] < requests and time.monotonic() < ends_at:
        time.sleep(PAUSE_S)
    return counts
