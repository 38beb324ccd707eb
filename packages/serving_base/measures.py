"""What measurements of an engine are: the record of a step. Standard library only: servers import it, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Phase = Literal["context", "generation", "padding"]


@dataclass(frozen=True)
class StepRecord:
    """What one engine step did: the phase of every request that held a slot, and the tokens that it gave.

    A slot in phase ``padding`` belongs to a request of a static batch that has finished before its neighbours.
    """

    step: int
    seconds: float
    phases: Mapping[int, Phase]
    new_tokens: Mapping[int, int]
