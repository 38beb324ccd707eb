"""Bits of one weight of a checkpoint, by what its name and the method of its quantization tell."""

import re

from serving_base.facts.published import PublishedModel
from trtllm_check.lint.rules.served import ServedModel

# The first that fits counts; no more bits than there are.
BITS = (
    (re.compile(r"awq|gptq|int4|fp4|nf4|w4a|4-?bits?|bnb|bitsandbytes|marlin|quant", re.IGNORECASE), 4),
    (re.compile(r"fp8|int8|w8a|8-?bits?|modelopt|compressed", re.IGNORECASE), 8),
)


def bits_of(one: ServedModel, model: PublishedModel) -> int:
    """Bits of a weight, as published or by the names of the checkpoint and the method, no more than there are."""
    method = one.options["quantization"].text if "quantization" in one.options else ""
    named = [bits for pattern, bits in BITS if pattern.search(f"{one.weights} {method}")]
    return min([*named, model.bits])
