"""The exercises of the chapter from engines to PyTorch: options translated, a file mended, metrics found again.

A stub is an empty text or mapping; that is reported loudly and stops nothing. Any right solution passes: what a file
does not say counts as the release's default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from course_exercises.exercise import Exercise, Wrong
from course_exercises.verdict import ExerciseVerdict, Solution
from serving_base.errors import NotYaml
from trtllm_check.flows.doors import metric_names
from trtllm_check.flows.options import check_options, effective
from trtllm_check.recipes.lmi import fates, vllm_image

TRANSLATED_FOR = "1.1.0"
ENGINE_FLOW: Mapping[str, str] = {
    "trtllm-build --max_batch_size": "64",
    "trtllm-build --max_num_tokens": "8192",
    "trtllm-build --max_seq_len": "4096",
    "quantize.py --kv_cache_dtype": "fp8",
    "config.pbtxt kv_cache_free_gpu_mem_fraction": "0.85",
    "config.pbtxt enable_chunked_context": "true",
    "launch_triton_server.py --world_size": "2 (TP 2)",
}
"""The setting of an engine shop -> its value; exercise 1 translates them."""
TRANSLATION: Mapping[str, tuple[Any, str]] = {
    "max_batch_size": (64, "the limits keep their names and stand at the top level"),
    "max_num_tokens": (8192, "the limits keep their names and stand at the top level"),
    "max_seq_len": (4096, "the limits keep their names and stand at the top level"),
    "kv_cache_config.dtype": ("fp8", "the file forces the cache's format"),
    "kv_cache_config.free_gpu_memory_fraction": (0.85, "the share of memory is an option of the cache"),
    "enable_chunked_prefill": (True, "chunked context is called chunked prefill, and it is off by default"),
    "tensor_parallel_size": (2, "a unified checkpoint has no ranks: the server splits it"),
}
MENDED_FOR = "1.0.0"
BROKEN = """\
use_cuda_graph: true
cuda_graph_max_batch_size: 64
kv_cache_dtype: fp8
autotuner_enabled: false
enable_chunked_prefill: true
"""
"""A file for the PyTorch backend of 0.21; exercise 2 mends it for 1.0.0."""
MENDED: Mapping[str, tuple[Any, str]] = {
    "cuda_graph_config.max_batch_size": (64, "the four options of CUDA graphs became one mapping"),
    "kv_cache_config.dtype": ("fp8", "the cache's options stand together"),
    "enable_autotuner": (False, "it was renamed, and its default is true"),
    "enable_chunked_prefill": (True, "this one kept its name: it must stay on"),
}


def check_translation(text: str) -> Solution:
    """Exercise 1: the engine shop's settings as a file for the LLM API of 1.1.0."""
    return _judged("the engine's settings for the LLM API", text, TRANSLATED_FOR, TRANSLATION)


def check_mended(text: str) -> Solution:
    """Exercise 2: the file of 0.21, so that 1.0.0 takes it and it means the same."""
    return _judged("a file of 0.21 for 1.0.0", text, MENDED_FOR, MENDED)


def _judged(title: str, text: str, release: str, wanted: Mapping[str, tuple[Any, str]]) -> Solution:
    if not text.strip():
        return Solution(title, problem="the file is still empty")
    try:
        problems = check_options(text, release)
    except NotYaml as error:
        return Solution(title, problem=str(error))
    if problems:
        return Solution(title, problem=f"{release} refuses it: " + "; ".join(map(str, problems)))
    found = effective(text, release)
    verdicts = []
    for place, (expected, why) in wanted.items():
        yours = _at(found, place)
        right = type(yours) is type(expected) and yours == expected
        verdicts.append(ExerciseVerdict(place, _said(yours), _said(expected), why, right))
    return Solution(title, tuple(verdicts))


def _at(found: Any, place: str) -> Any:
    for name in place.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _said(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def check_dropped(answer: Mapping[str, str]) -> Solution:
    """Exercise 4: properties with a line that today's image drops in silence, and a line that does what was meant."""
    title = "a line without effect"
    for word in ("broken", "mended"):
        if "=" not in answer.get(word, ""):
            return Solution(title, problem=f"{word} has no line yet")
    image = vllm_image().tag
    found = {word: fates(answer[word], image) for word in ("broken", "mended")}
    told = {word: "; ".join(f"{one.key} {one.outcome}" for one in rows) for word, rows in found.items()}
    dropped = [one.value for one in found["broken"] if one.outcome == "ignored"]
    clean = all(one.outcome == "works" for one in found["mended"])
    lost = [value for value in dropped if value not in [one.value for one in found["mended"]]]
    broken = bool(dropped) and not any(one.outcome == "stops the start" for one in found["broken"])
    why = f"{image} starts, and vLLM has no argument of that name"
    return Solution(
        title,
        (
            ExerciseVerdict("broken", told["broken"], "a line that the image drops", why, broken),
            ExerciseVerdict("mended", told["mended"], "works", "every line has an effect", clean),
            ExerciseVerdict(
                "the value",
                f"without {', '.join(lost)}" if lost else "kept",
                "kept",
                "the line says the same, in vLLM's word",
                not lost,
            ),
        ),
    )


def check_metrics(chosen: Mapping[str, str]) -> Solution:
    """Exercise 3: for each figure of a dashboard on ``trtllm-serve`` the name that vLLM has for it."""
    title = "a dashboard moved to vLLM"
    verdicts = []
    for row in metric_names():
        yours = chosen.get(row["trtllm-serve"], "").strip()
        if not yours:
            return Solution(title, problem=f"{row['trtllm-serve']} has no name at vLLM yet")
        why = f"it is the {row['about']}"
        verdicts.append(ExerciseVerdict(row["trtllm-serve"], yours, row["vllm"], why, yours == row["vllm"]))
    return Solution(title, tuple(verdicts))


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
REPAIRED = """\
cuda_graph_config:
  max_batch_size: 64
kv_cache_config: {dtype: fp8}
enable_autotuner: false
enable_chunked_prefill: true
"""
DROPPED = {"broken": "option.kv_cache_free_gpu_mem_fraction=0.85", "mended": "option.gpu_memory_utilization=0.85"}
DASHBOARD = {row["trtllm-serve"]: row["vllm"] for row in metric_names()}
EXERCISES = (
    Exercise(
        number="15-1",
        title="From an engine's settings to options",
        kind="compute",
        minutes=10,
        check=check_translation,
        solution=TRANSLATED,
        also=(TRANSLATED + "pipeline_parallel_size: 1\n", TRANSLATED + "stream_interval: 1\n"),
        wrong=(
            Wrong("  \n", "the file is still empty"),
            Wrong(TRANSLATED.replace("enable_chunked_prefill: true\n", ""), "off by default"),
            Wrong(TRANSLATED.replace("chunked_prefill", "chunked_context"), "use enable_chunked_prefill"),
            Wrong(TRANSLATED.replace("tensor_parallel_size: 2\n", ""), "expected 2"),
            Wrong(TRANSLATED.replace("tensor_parallel_size", "world_size"), "world_size: no option"),
            Wrong(TRANSLATED.replace("4096", "2048"), "expected 4096"),
            Wrong(TRANSLATED.replace("  dtype: fp8\n", ""), "expected fp8"),
            Wrong(
                TRANSLATED.replace("free_gpu_memory_fraction", "kv_cache_free_gpu_mem_fraction"),
                "no option of kv_cache_config",
            ),
            Wrong(TRANSLATED.replace("  free_gpu_memory_fraction: 0.85\n", ""), "expected 0.85"),
            Wrong(TRANSLATED.replace("kv_cache_config:\n", ""), "YAML"),
        ),
    ),
    Exercise(
        number="15-3",
        title="Mend a file",
        kind="mend",
        minutes=10,
        check=check_mended,
        solution=REPAIRED,
        also=(REPAIRED.replace("{dtype: fp8}", "\n  dtype: 'fp8'"),),
        wrong=(
            Wrong("", "the file is still empty"),
            Wrong(BROKEN, "use_cuda_graph"),
            Wrong("enable_chunked_prefill: true\n", "expected 64"),
            Wrong(REPAIRED.replace("enable_autotuner: false\n", ""), "expected false"),
            Wrong(REPAIRED.replace("autotuner: false", "autotuner: 'false'"), "takes bool"),
            Wrong(REPAIRED.replace("kv_cache_config: {dtype: fp8}\n", ""), "expected fp8"),
            Wrong(REPAIRED.replace("\n  max_batch_size: 64", " {}"), "expected 64"),
            Wrong(REPAIRED.replace("cuda_graph_config:\n  ", ""), "expected 64"),
            Wrong(REPAIRED.replace("enable_chunked_prefill: true\n", ""), "it must stay on"),
        ),
    ),
    Exercise(
        number="15-4",
        title="Move a dashboard to vLLM",
        kind="compute",
        minutes=5,
        check=check_metrics,
        solution=DASHBOARD,
        wrong=(
            Wrong(dict.fromkeys(DASHBOARD, ""), "has no name at vLLM yet"),
            Wrong({name: name.replace("trtllm_", "vllm:") for name in DASHBOARD}, "expected vllm:"),
            Wrong(DASHBOARD | {"trtllm_kv_cache_utilization": "vllm:gpu_cache_usage_perc"}, "expected vllm:"),
            Wrong(
                DASHBOARD | {"trtllm_time_to_first_token_seconds": "vllm:e2e_request_latency_seconds"},
                "expected vllm:time_to_first_token",
            ),
            Wrong(DASHBOARD | {"trtllm_request_queue_time_seconds": "vllm:num_requests_waiting"}, "expected vllm:"),
        ),
    ),
    Exercise(
        number="15-2",
        title="A line without effect",
        kind="break",
        minutes=5,
        check=check_dropped,
        solution=DROPPED,
        also=(
            {"broken": "option.max_num_tokens=8192", "mended": "option.max_num_batched_tokens=8192"},
            {"broken": DROPPED["broken"] + "\noption.async_mode=true", "mended": DROPPED["mended"]},
        ),
        wrong=(
            Wrong({"broken": "", "mended": ""}, "broken has no line yet"),
            Wrong(DROPPED | {"broken": DROPPED["mended"]}, "expected a line that the image drops"),
            Wrong(DROPPED | {"broken": "option.dtype=int7"}, "expected a line that the image drops"),
            Wrong(DROPPED | {"mended": DROPPED["broken"]}, "every line has an effect"),
            Wrong(DROPPED | {"mended": "option.max_num_seqs=64"}, "without 0.85"),
        ),
        row="`option.… ` has no effect in LMI",
    ),
)
