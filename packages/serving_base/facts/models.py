"""The shapes of the models, what follows from them by arithmetic, and the variants that a plan may name."""

import json
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from serving_base.errors import UsageError, nearest
from serving_base.record import Record
from serving_base.yaml_files import read_yaml

if TYPE_CHECKING:
    import torch


BYTES_PER_ELEMENT: dict[str, float] = {"float32": 4, "bfloat16": 2, "float16": 2, "fp8": 1, "int8": 1, "int4": 0.5}
WEIGHTS: dict[str, str] = {
    **dict.fromkeys(("full_prec", "bf16"), "bfloat16"),
    **dict.fromkeys(("fp8_rowwise", "fp8_pc_pt"), "fp8"),
    **dict.fromkeys(("int8_sq", "int8_wo"), "int8"),
    **dict.fromkeys(("int4_awq", "int4_wo", "int4_gptq", "w4a8_awq", "nvfp4"), "int4"),
}
"""Formats whose name is not that of the elements that they store."""
FORMATS = {*BYTES_PER_ELEMENT, *WEIGHTS}


def element_bytes(name: str) -> float:
    """Bytes of one value in the type or format ``name``; :class:`KeyError` for one that is not known."""
    return BYTES_PER_ELEMENT[WEIGHTS.get(name, name)]


class ModelShape(Record):
    """Architecture of a Llama-3 model, in the field names of its Hugging Face ``config.json``."""

    name: str
    hf_id: str
    source: str
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    vocab_size: int
    max_position_embeddings: int
    rope_theta: float
    rms_norm_eps: float
    tie_word_embeddings: bool = False
    download_gb: float = 0.0

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_attention_heads

    @property
    def linear_parameters(self) -> int:
        """Weights of the linear layers inside the blocks: what FP8 quantizes."""
        kv_width = self.num_key_value_heads * self.head_dim
        attention = self.hidden_size * (2 * self.hidden_size + 2 * kv_width)
        mlp = 3 * self.hidden_size * self.intermediate_size
        return self.num_hidden_layers * (attention + mlp)

    @property
    def embedding_parameters(self) -> int:
        """Token embedding and ``lm_head``: they stay in 16 bits."""
        return (1 if self.tie_word_embeddings else 2) * self.vocab_size * self.hidden_size

    @property
    def norm_parameters(self) -> int:
        return (2 * self.num_hidden_layers + 1) * self.hidden_size

    @property
    def parameters(self) -> int:
        return self.linear_parameters + self.embedding_parameters + self.norm_parameters

    def weight_bytes(self, qformat: str) -> int:
        """Bytes of the checkpoint's weights: linear layers in ``qformat``, the rest in BF16 (scales neglected)."""
        in_16_bits = self.embedding_parameters + self.norm_parameters
        return int(self.linear_parameters * element_bytes(qformat)) + 2 * in_16_bits

    def kv_bytes_per_token(self, dtype: str) -> int:
        """Bytes of keys and values that one token adds: layers x 2 x KV heads x head size x element size."""
        per_layer = 2 * self.num_key_value_heads * self.head_dim * element_bytes(dtype)
        return int(self.num_hidden_layers * per_layer)


@cache
def models_file() -> dict[str, Any]:
    """The content of ``models.yml``."""
    content: dict[str, Any] = read_yaml(Path(__file__).with_name("models.yml"))
    return content


@cache
def known_shape(name: str) -> ModelShape:
    """The shape called ``name`` in ``models.yml``, whoever may use it."""
    return ModelShape(name=name, **models_file()["shapes"][name])


def model_shapes() -> dict[str, ModelShape]:
    """Every model that the course can run, by name."""
    return {name: known_shape(name) for name in models_file()["course"]}


def model_shape(name: str) -> ModelShape:
    """The shape of model ``name``; :class:`UsageError` for one that the course cannot run."""
    if name not in models_file()["course"]:
        raise UsageError(f"unknown model {name!r}", fix=f"use one of: {', '.join(models_file()['course'])}")
    return known_shape(name)


def shape_of_size(model: str) -> ModelShape | None:
    """The shape of a Llama-3 by the size that its name ends in (``llama-3.1-70b``); None for a size not known."""
    name = models_file()["sizes"].get(model.rpartition("-")[2])
    return known_shape(name) if name else None


def model_weight(folder: Path, name: str, *, rows: int = 0) -> "torch.Tensor":
    """One tensor of a Hugging Face model folder, whichever of its safetensors files holds it, as stored.

    ``rows``: read at most so many of its first rows; 0: all of it.
    """
    from safetensors import safe_open

    index = folder / "model.safetensors.index.json"
    known = json.loads(index.read_text(encoding="utf-8"))["weight_map"] if index.is_file() else {}
    with safe_open(folder / known.get(name, "model.safetensors"), "pt") as file:
        if name not in file.keys():  # noqa: SIM118 - safe_open is not a mapping
            raise UsageError(
                f"{folder} has no tensor {name!r}", fix="names look like model.layers.0.mlp.down_proj.weight"
            )
        tensor: torch.Tensor = file.get_slice(name)[:rows] if rows else file.get_tensor(name)
    return tensor


class Variant(Record):
    """A model by the planner's name. ``positions`` and ``trained`` are tokens of prompt and answer together."""

    name: str
    shape: ModelShape
    positions: int
    trained: int
    source: str


@cache
def variants() -> dict[str, Variant]:
    """Every model that the planner knows, by name (``models.yml``)."""
    entries = models_file()["variants"].items()
    return {name: Variant(**{**entry, "name": name, "shape": known_shape(entry["shape"])}) for name, entry in entries}


@cache
def model_name(text: str) -> str:
    """The planner's name of a model, from the ways it is written elsewhere.

    ``meta-llama/Llama-3.1-70B-Instruct``, ``llama-3-8b-instruct`` and ``Llama3.1-70B`` are understood.
    :class:`UsageError` names the nearest for any other.
    """
    plain = text.strip().lower().replace("_", "-").rsplit("/", 1)[-1]
    plain = re.sub(r"-(instruct|chat|hf|fp8|bf16|kv)(?=-|$)", "", plain.removeprefix("meta-"))
    plain = re.sub(r"^llama-?v?([23])\b", r"llama\1", plain)
    if plain in variants():
        return plain
    raise UsageError(
        f"unknown model {text!r}",
        why=f"the planner knows {', '.join(variants())}",
        fix=f"use {nearest(plain, variants())}, the nearest",
    )


def variant(name: str) -> Variant:
    """The variant called ``name`` (see :func:`model_name`); :class:`UsageError` if unknown."""
    return variants()[model_name(name)]
