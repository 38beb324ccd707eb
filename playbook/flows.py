"""What a chapter may see of the way from engines to PyTorch: flows and options by release, three doors, exercises."""

from course_exercises.flows import BROKEN, ENGINE_FLOW
from trtllm_check.flows.doors import DOORS, differences, field_names, metric_names, open_door
from trtllm_check.flows.lora import lora_names, lora_sources, lora_table
from trtllm_check.flows.offers import flow_table, last_engine_release, llama_coverage, ways_to_run
from trtllm_check.flows.options import check_options, llm_options, option_counts, option_releases, options_gone

__all__ = [
    "BROKEN",
    "DOORS",
    "ENGINE_FLOW",
    "check_options",
    "differences",
    "field_names",
    "flow_table",
    "last_engine_release",
    "llama_coverage",
    "llm_options",
    "lora_names",
    "lora_sources",
    "lora_table",
    "metric_names",
    "open_door",
    "option_counts",
    "option_releases",
    "options_gone",
    "ways_to_run",
]
