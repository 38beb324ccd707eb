"""What a chapter may see of the way from engines to PyTorch: flows and options by release, three doors, exercises."""

from course_exercises.flows import BROKEN as BROKEN
from course_exercises.flows import ENGINE_FLOW as ENGINE_FLOW
from trtllm_check.flows.doors import DOORS as DOORS
from trtllm_check.flows.doors import differences as differences
from trtllm_check.flows.doors import field_names as field_names
from trtllm_check.flows.doors import metric_names as metric_names
from trtllm_check.flows.doors import open_door as open_door
from trtllm_check.flows.lora import lora_names as lora_names
from trtllm_check.flows.lora import lora_sources as lora_sources
from trtllm_check.flows.lora import lora_table as lora_table
from trtllm_check.flows.offers import flow_table as flow_table
from trtllm_check.flows.offers import last_engine_release as last_engine_release
from trtllm_check.flows.offers import llama_coverage as llama_coverage
from trtllm_check.flows.offers import ways_to_run as ways_to_run
from trtllm_check.flows.options import check_options as check_options
from trtllm_check.flows.options import llm_options as llm_options
from trtllm_check.flows.options import option_counts as option_counts
from trtllm_check.flows.options import option_releases as option_releases
from trtllm_check.flows.options import options_gone as options_gone
