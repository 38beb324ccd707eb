"""Which GPU runs which number format, and what it gains there: facts of ``formats.yml``, each with its source."""

from functools import cache
from pathlib import Path
from typing import Any

from pydantic import Field

from serving_base.errors import UsageError
from serving_base.facts.gpus import Gpu, find_gpu
from serving_base.record import Record
from serving_base.yaml_files import read_yaml

SIXTEEN_BITS = 16


class NumberFormat(Record):
    """One way to store weights and activations. ``name`` is TensorRT-LLM's ``--qformat`` where it has one."""

    name: str
    title: str
    weights: int = Field(gt=0, description="bits of a weight")
    activations: int = Field(gt=0, description="bits of an activation")
    arithmetic: str = Field(description="in what the tensor cores multiply: bf16, int8, fp8, fp4")
    since: int = Field(description="first compute capability, 89 for sm89")
    source: str = Field(min_length=1)

    def runs_on(self, gpu: Gpu) -> bool:
        """Whether NVIDIA supports it on this architecture."""
        return int(gpu.architecture.removeprefix("sm")) >= self.since

    @property
    def speeds_arithmetic(self) -> bool:
        """Whether products run in fewer than 16 bits: what prompts and large batches gain from."""
        return self.activations < SIXTEEN_BITS

    def gain(self, gpu: Gpu) -> str:
        """What this format gives on ``gpu``, in words."""
        if not self.runs_on(gpu):
            return "-"
        return f"{SIXTEEN_BITS // self.weights}x fewer bytes" + (
            f", {self.arithmetic.upper()} products" if self.speeds_arithmetic else ""
        )


@cache
def formats() -> dict[str, NumberFormat]:
    """Every format by its name."""
    entries: dict[str, dict[str, Any]] = read_yaml(Path(__file__).with_name("formats.yml"))
    return {name: NumberFormat(name=name, **fields) for name, fields in entries.items()}


def support(*gpus: str) -> list[dict[str, str]]:
    """A row for each format, a column for each GPU."""
    chosen = [known(name) for name in gpus]
    return [{"format": one.title} | {gpu.name: one.gain(gpu) for gpu in chosen} for one in formats().values()]


def known(name: str) -> Gpu:
    found = find_gpu(name)
    if found is None:
        raise UsageError(f"no GPU is known as {name!r}", fix="use a name of serving_base/facts/gpus.yml, such as h100")
    return found


def published_mmlu() -> list[dict[str, Any]]:
    """NVIDIA's MMLU scores before and after quantization, a row for each model and format."""
    scores: dict[str, dict[str, float]] = read_yaml(Path(__file__).with_name("published_mmlu.yml"))
    return [
        {
            "model": model,
            "format": formats()[name].title,
            "FP16": found["fp16"],
            "after": after,
            "loss, %": round(100 * (1 - after / found["fp16"]), 2),
        }
        for model, found in scores.items()
        for name, after in found.items()
        if name != "fp16"
    ]
