"""What a chapter may see of an engine: the embedded lane's graph, logits and times, TensorRT-LLM's folder and log,
and the kernels of its steps.
"""

from typing import TYPE_CHECKING

from cpu_serving.build import describe_compiled
from cpu_serving.profiling import group_operations, profile_engine
from cpu_serving.runtime import EngineLogits
from gpu_serving.inference import describe_built
from playbook.lanes.base import lane_of
from playbook.stages import require

if TYPE_CHECKING:
    from playbook.measure.kernels import StepTables
    from playbook.stages import Workspace

__all__ = [
    "EngineLogits",
    "describe_built",
    "describe_compiled",
    "group_operations",
    "profile_engine",
    "step_tables",
]


def step_tables(workspace: "Workspace") -> "StepTables":
    """Where the time of the workspace's engines goes, kernel by kernel, measured now as the profile's lane can."""
    return lane_of(workspace.profile.lane).step_tables(
        lambda name: require(workspace, name).path, profile=workspace.profile, root=workspace.root
    )
