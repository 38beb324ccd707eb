"""The exercises of chapter 15: right answers pass in more than one form, typical wrong ones do not."""

import pytest

from course_exercises.flows import BROKEN, check_mended, check_metrics, check_translation
from trtllm_check.flows.doors import metric_names

TRANSLATED = """\
max_batch_size: 64
max_num_tokens: 8192
max_seq_len: 4096
tensor_parallel_size: 2
enable_chunked_prefill: true
kv_cache_config:
  free_gpu_memory_fraction: 0.85
  dtype: fp8
"""
MENDED = """\
cuda_graph_config:
  max_batch_size: 64
kv_cache_config: {dtype: fp8}
enable_autotuner: false
enable_chunked_prefill: true
"""
METRICS = {row["trtllm-serve"]: row["vllm"] for row in metric_names()}


@pytest.mark.parametrize("more", ["", "pipeline_parallel_size: 1\n", "stream_interval: 1\n"])
def test_a_right_translation_passes(more: str) -> None:
    assert check_translation(TRANSLATED + more).solved


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("enable_chunked_prefill: true\n", "", "off by default"),
        ("enable_chunked_prefill", "enable_chunked_context", "use enable_chunked_prefill"),
        ("tensor_parallel_size: 2\n", "", "expected 2"),
        ("tensor_parallel_size", "world_size", "world_size: no option"),
        ("max_seq_len: 4096", "max_seq_len: 2048", "expected 4096"),
        ("  dtype: fp8\n", "", "expected fp8"),
        ("free_gpu_memory_fraction: 0.85", "kv_cache_free_gpu_mem_fraction: 0.85", "no option of kv_cache_config"),
        ("  free_gpu_memory_fraction: 0.85\n", "", "expected 0.85"),
        ("kv_cache_config:\n", "", "NotYaml|no option|not valid"),
    ],
)
def test_a_wrong_translation_does_not(old: str, new: str, says: str) -> None:
    assert old in TRANSLATED
    solution = check_translation(TRANSLATED.replace(old, new))
    assert not solution.solved and any(word in str(solution) for word in says.split("|")), str(solution)


def test_a_mended_file_passes_in_either_form() -> None:
    assert check_mended(MENDED).solved
    assert check_mended(MENDED.replace("{dtype: fp8}", "\n  dtype: 'fp8'")).solved


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("enable_autotuner: false\n", "", "expected false"),
        ("enable_autotuner: false", "enable_autotuner: 'false'", "takes bool"),
        ("kv_cache_config: {dtype: fp8}\n", "", "expected fp8"),
        ("cuda_graph_config:\n  max_batch_size: 64\n", "cuda_graph_config: {}\n", "expected 64"),
        ("cuda_graph_config:\n  max_batch_size: 64\n", "max_batch_size: 64\n", "expected 64"),
        ("enable_chunked_prefill: true\n", "", "it must stay on"),
    ],
)
def test_a_file_that_only_starts_does_not(old: str, new: str, says: str) -> None:
    assert old in MENDED
    solution = check_mended(MENDED.replace(old, new))
    assert not solution.solved and says in str(solution), str(solution)


def test_the_broken_file_is_refused_as_it_is() -> None:
    assert "use_cuda_graph" in check_mended(BROKEN).problem
    kept = "\n".join(line for line in BROKEN.splitlines() if "chunked" in line)
    assert not check_mended(kept).solved  # deleting lines makes it start


def test_the_dashboard() -> None:
    assert check_metrics(METRICS).solved


@pytest.mark.parametrize(
    "wrong",
    [
        {name: name.replace("trtllm_", "vllm:") for name in METRICS},
        METRICS | {"trtllm_kv_cache_utilization": "vllm:gpu_cache_usage_perc"},
        METRICS | {"trtllm_time_to_first_token_seconds": "vllm:e2e_request_latency_seconds"},
        METRICS | {"trtllm_request_queue_time_seconds": "vllm:num_requests_waiting"},
    ],
)
def test_a_wrong_dashboard_is_told_where(wrong: dict[str, str]) -> None:
    solution = check_metrics(wrong)
    assert not solution.solved and "expected vllm:" in str(solution)


@pytest.mark.parametrize("solution", [check_translation(""), check_mended("  \n"), check_metrics({})])
def test_an_empty_answer_is_told_loudly(solution: object) -> None:
    assert "NOT SOLVED" in str(solution)
