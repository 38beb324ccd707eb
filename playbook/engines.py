"""What a chapter may see of an engine: the embedded lane's graph, logits and times, TensorRT-LLM's folder and log,
vLLM's starts and scores, and the kernels of its steps.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from course_exercises.batching import scheduled
from cpu_serving.build import describe_compiled
from cpu_serving.profiling import group_operations, profile_engine
from cpu_serving.runtime import EngineLogits
from gpu_serving.inference import describe_built
from playbook.artifact import Artifact
from playbook.lanes.base import ability, lane_of
from playbook.stages import require
from vllm_serving.build import read_report as describe_starts
from vllm_serving.engine import EngineFolder

if TYPE_CHECKING:
    from gpu_measurements.tables import StepTables
    from playbook.stages import Workspace

__all__ = [
    "EngineLogits",
    "describe_built",
    "describe_compiled",
    "describe_starts",
    "group_operations",
    "held_weights",
    "perplexity",
    "profile_engine",
    "scheduled",
    "step_tables",
]


def step_tables(workspace: "Workspace") -> "StepTables":
    """Where the time of the workspace's engines goes, kernel by kernel, measured now as the profile's lane can."""
    return lane_of(workspace.profile.lane).step_tables(
        lambda name: require(workspace, name).path, profile=workspace.profile, root=workspace.root
    )


WEIGHT_FILES = ("rank*.engine", "openvino_model.bin")


def held_weights(engine: Path) -> tuple[int, int]:
    """Files and bytes of an engine's weights; of vLLM's, which holds none, the checkpoint's that it loads."""
    files = [path for pattern in WEIGHT_FILES for path in engine.glob(pattern)]
    files = files or list(Path(EngineFolder.read(engine).model).glob("*.safetensors"))
    return len(files), sum(path.stat().st_size for path in files)


def perplexity(workspace: "Workspace", engine: Artifact, texts: Sequence[Sequence[int]]) -> float:
    """exp of the mean negative log-probability that the engine gives the tokens of ``texts``, each text's first apart.

    Where ``lab.can("token_scores")``.
    """
    profile = workspace.profile
    scores = ability(profile.lane, "token_scores")(profile, engine.path, texts, root=workspace.root)
    flat = [score for text in scores for score in text]
    return math.exp(-sum(flat) / len(flat))
