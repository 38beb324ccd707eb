"""What a Triton server has counted by itself: the other side of a load generator's claims."""

from collections.abc import Mapping

from playbook.releases.templates import release_templates

TEXT_MODEL = "ensemble"
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
