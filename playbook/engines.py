"""What a chapter may see of an engine: the embedded lane's graph, logits and times, TensorRT-LLM's folder and log."""

from playbook.lanes.embedded.build import describe_compiled
from playbook.lanes.embedded.logits import EngineLogits
from playbook.lanes.embedded.operation_groups import group_operations
from playbook.lanes.embedded.profiling import profile_engine
from playbook.lanes.tensorrt_llm.anatomy import describe_built

__all__ = ["EngineLogits", "describe_built", "describe_compiled", "group_operations", "profile_engine"]
