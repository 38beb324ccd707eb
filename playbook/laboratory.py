"""What a chapter may see of the quantization laboratory: bench, formats as facts, statistics."""

from ptq import metrics as metrics
from ptq.formats import formats as formats
from ptq.formats import known as known
from ptq.formats import published_mmlu as published_mmlu
from ptq.formats import support as support
from ptq.laboratory import VARIANTS as VARIANTS
from ptq.laboratory import open_laboratory as open_laboratory
