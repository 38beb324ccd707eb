"""Chapter 02: values that its checks accept, and values that they refuse."""

import json
from types import SimpleNamespace as Thing
from typing import Any

from chapter_cells import Case

NOISE = {
    "FP8": {"as trained": 31.0, "with outliers": 31.0},
    "INT8": {"as trained": 38.0, "with outliers": 12.0},
}
CURVES = {"full_prec": ((1, 256), (2e-4, 2e-4)), "fp8": ((1, 256), (7e-3, 8e-3)), "int8": ((1, 256), (0.03, 3.0))}
DIVERGENCE = {"BF16": 2e-4, "FP8": 7e-3, "INT8": 0.03}
CHANGE = {"FP8 + FP8 KV cache": 0.006}
COST = {"divergence": DIVERGENCE, "change": CHANGE, "before": 48.0}
AMAX = 0.25
PARTS = ("attention.qkv", "attention.dense", "mlp.fc", "mlp.gate", "mlp.proj")


def noise(form: str, which: str, value: float) -> dict[str, Any]:
    return {"noise": NOISE | {form: NOISE[form] | {which: value}}}


def curve(qformat: str, last: float) -> dict[str, Any]:
    at, (first, _) = CURVES[qformat]
    return {"curves": CURVES | {qformat: (at, (first, last))}}


def divergence(**changed: float) -> dict[str, Any]:
    return {"divergence": DIVERGENCE | changed}


def layer(scale: float = AMAX / 448, dtype: str = "F8_E4M3") -> list[Thing]:
    return [Thing(name="transformer.layers.0.mlp.proj.weight", dtype=dtype, scale=scale)]


class Weights:
    """The package, whose model has one weight of size ``AMAX``."""

    def __init__(self) -> None:
        import torch

        self.models = Thing(model_weight=lambda *given: torch.tensor([AMAX]))


def tensors(*, lacking: str = "") -> list[Thing]:
    """One layer: five FP8 products, each with its input's scale, but ``lacking``."""
    products = [f"transformer.layers.0.{part}" for part in PARTS]
    weights = [Thing(file="rank0.safetensors", name=f"{name}.weight", dtype="F8_E4M3", value=None) for name in products]
    scales = [
        Thing(file="rank0.safetensors", name=f"{name}.activation_scaling_factor", dtype="F32", value=0.5)
        for name in products
        if not name.endswith(lacking or "?")
    ]
    return weights + scales


class Shown:
    """The package with plots that draw nothing, and the tensors of a folder as given."""

    def __init__(self, nbytes: int = 0) -> None:
        self.plots = Thing(lines=lambda *given, **named: None, stacked=lambda *given, **named: None)
        self.checkpoint_tensors = lambda folder: [Thing(dtype="BF16", nbytes=nbytes)]


def formula() -> int:
    from serving_base.facts.models import model_shape

    return model_shape("tiny").weight_bytes("fp8")


def counter() -> Any:
    from collections import Counter

    return Counter


GUESS = Thing(against=lambda actual: None)
MODEL = Thing(path="")
INPUTS = {"playbook": Shown(), "tensors": tensors()}
FP8 = {"formats": {"quant_algo": "FP8"}, "quantized": True}
BYTES = {"playbook": Shown(formula()), "Counter": counter(), "model": MODEL, "checkpoint": MODEL, **FP8}
SCALE = {"first": layer(), "model": MODEL, "name": "", "playbook": Weights(), **FP8}
KEPT = SCALE | {"first": layer(dtype="BF16"), "formats": {"quant_algo": None}}
ROTARY = {"written": {"rotary_base": 500000.0}, "json": json}

CASES = [
    Case(
        "02-07",
        "FP8 is better with outlier channels",
        {"noise": NOISE, "guess": GUESS},
        noise("INT8", "with outliers", 30.0),
    ),
    Case(
        "02-07", "FP8 does not notice the outliers", {"noise": NOISE, "guess": GUESS}, noise("FP8", "as trained", 40.0)
    ),
    Case("02-12", "BF16 does not notice", {"curves": CURVES}, curve("full_prec", 1e-2)),
    Case("02-12", "FP8 hardly notices", {"curves": CURVES}, curve("fp8", 0.1)),
    Case("02-12", "INT8 with one scale per tensor breaks", {"curves": CURVES}, curve("int8", 0.1)),
    Case("02-17", "rotary_base is the model's", ROTARY, {"written": {"rotary_base": 10000.0}}),
    Case("02-20", "the scale is amax / 448", SCALE, {"first": layer(scale=1.0)}),
    Case("02-20", "linear layers are FP8", SCALE, {"first": layer(dtype="BF16")}),
    Case("02-20", "nothing is quantized", KEPT, {"first": layer()}),
    Case("02-20b", "every linear layer has a scale for its input", INPUTS, {"tensors": tensors(lacking="mlp.gate")}),
    Case("02-22", "the tensors are what the formula says", BYTES, {"playbook": Shown(formula() * 2)}),
    Case("02-25", "FP8 costs less than 1.5 % of perplexity", COST, {"change": {"FP8 + FP8 KV cache": 0.2}}),
    Case("02-25", "FP8 moves the distributions more", COST, divergence(FP8=2e-4)),
    Case("02-25", "INT8 with one scale per tensor moves", COST, divergence(INT8=7e-3)),
]
