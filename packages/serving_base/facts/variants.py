"""The models that a plan may name: variants of a shape, by the length they hold."""

import re
from functools import cache

from serving_base.errors import UsageError
from serving_base.facts.models import ModelShape, known_shape, models_file
from serving_base.facts.names import nearest
from serving_base.record import Record


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
