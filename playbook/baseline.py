"""The 16-bit model's own answers and perplexity: what every quantized engine of the course is compared with."""

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from playbook.artifact import Artifact, make
from playbook.lanes.base import lane_of
from playbook.stages import Workspace


@dataclass(frozen=True)
class Reference:
    """``answers``: token ids without the prompts; ``mean_nll``: nats per token over ``tokens`` predicted ones."""

    answers: list[list[int]]
    mean_nll: float
    tokens: int
    device: str
    artifact: Artifact

    @property
    def perplexity(self) -> float:
        """The number of tokens among which the model hesitates on average: exp of ``mean_nll``."""
        return math.exp(self.mean_nll)


def reference(
    workspace: Workspace,
    model: Artifact,
    *,
    prompts: Sequence[Sequence[int]],
    texts: Sequence[Sequence[int]],
    max_new_tokens: int = 64,
) -> Reference:
    """Answer ``prompts`` greedily and score ``texts`` (lists of token ids) with the unquantized model.

    By transformers in this environment's CPU PyTorch, or on the GPU lane in the release's container over all GPUs. The
    artifact ``reference`` keeps the result, so that a second run loads no model.
    """
    profile = workspace.profile
    asked = {"prompts": [list(ids) for ids in prompts], "texts": [list(ids) for ids in texts]}
    job: dict[str, Any] = {"model": str(model.path), **asked, "max_new_tokens": max_new_tokens}
    origin = workspace.origin(
        "reference",
        f"{profile.lane}.reference",
        spec={"asked": hashlib.sha256(json.dumps(asked).encode()).hexdigest(), "max_new_tokens": max_new_tokens},
        inputs={"model": model},
    )
    lane = lane_of(profile.lane)
    made = make(
        workspace.folder("reference"), origin, lambda out: lane.reference(profile, job, out, root=workspace.root)
    )
    found = json.loads((made.path / "result.json").read_text(encoding="utf-8"))
    return Reference(found["answers"], found["mean_nll"], found["tokens"], found["device"], made)
