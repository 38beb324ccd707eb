"""What a kernel's name tells: the ordered patterns of ``kernel_patterns.yml``, and the first that matches."""

import re
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from serving_base.errors import UsageError
from serving_base.record import Record
from serving_base.yaml_files import read_yaml

PATTERNS_PATH = Path(__file__).with_name("kernel_patterns.yml")
UNCLASSIFIED = "unclassified"

Flow = Literal["cuda", "openvino"]


class KernelClass(Record):
    """One row of the tables: its label, the coarse group that it belongs to, and the only phase that it runs in."""

    label: str
    group: str
    phase: Literal["", "prefill", "decode"] = ""


class Pattern(Record):
    """Names that match ``regex`` are kernels of this class.

    ``precision``: only where the name tells it, and ``precision_of`` what has it; ``fused``: classes whose work the
    same kernel does; ``evidence``: where such a name was read.
    """

    kernel_class: str = Field(alias="class")
    regex: re.Pattern[str]
    precision: Literal["", "fp8", "bf16", "fp16"] = ""
    precision_of: Literal["operands", "KV cache"] = "operands"
    fused: str = ""
    evidence: str


class Nameless(Record):
    """Generated kernels whose names tell nothing: right before a kernel of class ``before`` they are ``class``."""

    regex: re.Pattern[str]
    before: str
    kernel_class: str = Field(alias="class")


class Patterns(Record):
    """All patterns, in order; the first match decides."""

    classes: dict[str, KernelClass]
    groups: dict[str, str]
    nameless: Nameless
    cuda: tuple[Pattern, ...]
    openvino: tuple[Pattern, ...]

    @model_validator(mode="after")
    def refuse_unknown_names(self) -> "Patterns":
        used = {pattern.kernel_class for pattern in (*self.cuda, *self.openvino)}
        fused = {name for pattern in self.cuda for name in pattern.fused.split(", ") if name}
        unknown = (used | fused | {self.nameless.kernel_class, self.nameless.before}) - set(self.classes)
        unknown |= {entry.group for entry in self.classes.values()} - set(self.groups)
        if unknown:
            raise ValueError(f"classes or groups that are not declared: {', '.join(sorted(unknown))}")
        return self


NO_MATCH = Pattern.model_validate({"class": UNCLASSIFIED, "regex": "", "evidence": "no pattern matches"})


@cache
def patterns() -> Patterns:
    """The patterns of the package."""
    return Patterns.model_validate(read_yaml(PATTERNS_PATH))


@cache
def classify(kernel: str, flow: Flow = "cuda") -> Pattern:
    """The first pattern that matches the kernel's name; ``unclassified`` when none does."""
    ordered = {"cuda": patterns().cuda, "openvino": patterns().openvino}
    if flow not in ordered:
        raise UsageError(f"unknown flow {flow!r}", fix=f"use one of: {', '.join(ordered)}")
    return next((pattern for pattern in ordered[flow] if pattern.regex.search(kernel)), NO_MATCH)


def reading(kernel: str) -> dict[str, str]:
    """What a kernel's name tells, for a table: class, phase, precision and of what, and what is in FP8."""
    found = classify(kernel)
    phase = patterns().classes[found.kernel_class].phase
    return {
        "class": found.kernel_class,
        "phase": phase or "both",
        "precision": f"{found.precision} {found.precision_of}" if found.precision else "the name does not tell",
        "in FP8": found.precision_of if found.precision == "fp8" else "nothing" if found.precision else "?",
    }
