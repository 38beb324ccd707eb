"""What a chapter may see of an engine of the embedded lane: its compiled graph, its logits, its time by operation."""

from playbook.lanes.embedded.build import describe_compiled
from playbook.lanes.embedded.logits import EngineLogits
from playbook.lanes.embedded.profiling import profile_engine

__all__ = ["EngineLogits", "describe_compiled", "profile_engine"]
