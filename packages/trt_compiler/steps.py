"""What the compiler made: the list of steps that the builder logs at the end of a build. No GPU is needed.

It is the list that ``EngineInspector`` prints for the same engine, one line a step, when the builder's
``profiling_verbosity`` is DETAILED. Whatever a written layer carries as ``metadata`` follows it into the step.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

QUIET = frozenset({"signal", "wait", "shape_call", "copy", "allocate", "deallocate"})
"""Kinds of step that move or order data and compute nothing."""
_STEP = re.compile(
    r"^Name: (?P<name>.*?), LayerType: (?P<kind>[^,]*), Inputs: \[(?P<inputs>.*?)\], "
    r"Constants: \[(?P<constants>.*?)\], Outputs: \[(?P<outputs>.*?)\], TacticName: .*?Metadata: (?P<metadata>.*)$"
)
_SHORT = {
    "BFloat16": "BF16",
    "Half": "FP16",
    "Float": "FP32",
    "FP4E2M1": "FP4",
    "Int8": "INT8",
    "Int32": "INT32",
    "Int64": "INT64",
}
_TENSOR = re.compile(r"\{ Name: (.*?), Dimensions: \[([^\]]*)\].*?Datatype: (\w+)")


@dataclass(frozen=True)
class StepTensor:
    """A tensor that a step reads or writes; ``dtype`` is BF16, FP8, FP32 or another word of the course."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class CompiledStep:
    """One step of an engine. ``kind``: gemm, kgen (a generated kernel), runtime_fusion, or one of :data:`QUIET`.

    ``written``: the layers of the network that ended up in it, by the names that their author gave them.
    """

    name: str
    kind: str
    inputs: tuple[StepTensor, ...]
    constants: tuple[StepTensor, ...]
    outputs: tuple[StepTensor, ...]
    written: tuple[str, ...]

    @property
    def computes(self) -> bool:
        return self.kind not in QUIET

    @property
    def reads(self) -> str:
        """The number formats of the matrices that it reads: ``FP8`` or ``BF16+FP8``."""
        return "+".join(dict.fromkeys(tensor.dtype for tensor in self.inputs + self.constants if len(tensor.shape) > 1))

    @property
    def writes(self) -> str:
        return "+".join(dict.fromkeys(tensor.dtype for tensor in self.outputs))


@dataclass(frozen=True)
class Compilation:
    """What one build gave. ``engine_bytes`` 0: the compiler refused, and ``refusal`` is its sentence."""

    written: tuple[str, ...]
    steps: tuple[CompiledStep, ...]
    engine_bytes: int
    weight_bytes: int
    seconds: float
    refusal: str

    @property
    def kernels(self) -> list[CompiledStep]:
        """The steps that compute something."""
        return [step for step in self.steps if step.computes]


def read_steps(log: Iterable[str]) -> list[CompiledStep]:
    """The steps in the builder's messages. :class:`ValueError` at a step in another form than the tested version's."""
    found = []
    for text in log:
        if not text.startswith("Layers:"):
            continue
        for line in text.splitlines():
            match = _STEP.match(line)
            if match:
                inputs, constants, outputs = (_tensors(match[part]) for part in ("inputs", "constants", "outputs"))
                written = tuple(part for part in match["metadata"].split("\x1f") if part)
                found.append(CompiledStep(match["name"], match["kind"], inputs, constants, outputs, written))
            elif line.startswith("Name: ") and "LayerType" in line:
                raise ValueError(f"a step in an unknown form: {line[:200]}")
    return found


def _tensors(text: str) -> tuple[StepTensor, ...]:
    return tuple(
        StepTensor(name, tuple(int(size) for size in sizes.split(",") if size), _SHORT.get(dtype, dtype))
        for name, sizes, dtype in _TENSOR.findall(text)
    )


def pack(step: CompiledStep) -> dict[str, Any]:
    """The step as JSON can hold it."""
    return asdict(step)


def unpack(packed: Mapping[str, Any]) -> CompiledStep:
    """The step that :func:`pack` packed."""

    def tensors(name: str) -> tuple[StepTensor, ...]:
        return tuple(StepTensor(one["name"], tuple(one["shape"]), one["dtype"]) for one in packed[name])

    inputs, constants, outputs = (tensors(name) for name in ("inputs", "constants", "outputs"))
    return CompiledStep(packed["name"], packed["kind"], inputs, constants, outputs, tuple(packed["written"]))
