"""What a chapter may see of the quantization laboratory: bench, formats as facts, statistics."""

from ptq import metrics
from ptq.formats import formats, known, published_mmlu, support
from ptq.laboratory import VARIANTS, open_laboratory

__all__ = [
    "VARIANTS",
    "formats",
    "known",
    "metrics",
    "open_laboratory",
    "published_mmlu",
    "support",
]
