"""What a chapter may see of an engine: the embedded lane's graph, logits and times, TensorRT-LLM's folder and log,
and the kernels of its steps.
"""

from typing import TYPE_CHECKING

from playbook.lanes.embedded.build import describe_compiled
from playbook.lanes.embedded.logits import EngineLogits
from playbook.lanes.embedded.profiling import compare_engines, profile_engine
from playbook.lanes.tensorrt_llm.anatomy import describe_built

if TYPE_CHECKING:
    from playbook.artifact import Artifact
    from playbook.lanes.tensorrt_llm.profiling import Recording
    from playbook.stages import Workspace

__all__ = [
    "EngineLogits",
    "compare_engines",
    "describe_built",
    "describe_compiled",
    "profile_engine",
    "record_kernels",
]


def record_kernels(workspace: "Workspace", engine: "Artifact") -> "Recording":
    """Record a prefill and ten decode steps of ``engine`` under Nsight Systems, in the release's container."""
    from playbook.lanes.tensorrt_llm import profiling

    return profiling.record_kernels(workspace.profile, engine.path, root=workspace.root)
