"""Whether weights fit into GPUs: the one formula that profiles, recipes, the checker and the planner ask.

Counted is the fullest GPU, against what the driver leaves to programs. Formulas (d hidden, ff MLP width, L layers,
h query and g KV heads of size hd, V words, all divided by TP where a rank holds a share): the linear layers of L/PP
blocks in their format; embedding, ``lm_head`` and norms stay in 16 bits (ModelOpt's default). Embedding and ``lm_head``
are split by words over TP: so do vLLM and SGLang, and ModelOpt's exporter writes ``use_parallel_embedding``. With PP
the first stage has the embedding, the last has ``lm_head`` and the final norm, which makes the last the fullest.
"""

from dataclasses import dataclass

from serving_base.facts.gpus import Gpu
from serving_base.facts.models import ModelShape, element_bytes

BF16 = 2  # bytes
# "more than 210GB" for the 140 GB of a 70B model
CALIBRATION_FACTOR = 1.5
CALIBRATION_SOURCE = "TensorRT-LLM@42a7b092 examples/llama/README.md:670-672"


@dataclass(frozen=True)
class Fit:
    """Bytes that are needed, and bytes that are there. True if they fit."""

    needed: float
    there: float

    def __bool__(self) -> bool:
        return self.needed <= self.there

    @property
    def needed_gb(self) -> float:
        return self.needed / 1e9

    @property
    def there_gb(self) -> float:
        return self.there / 1e9

    @property
    def times(self) -> float:
        """How many times the bytes that are there would be needed."""
        return self.needed / self.there


def fits(shape: ModelShape, gpu: Gpu, qformat: str, *, tp: int = 1, pp: int = 1) -> Fit:
    """Whether the weights of the fullest of TP x PP ranks fit into one ``gpu``; nothing but weights is counted."""
    return Fit(weights_per_gpu(shape, qformat, tp, pp), gpu.visible_bytes)


def calibration_fits(shape: ModelShape, gpu: Gpu, count: int) -> Fit:
    """Whether quantizing fits into ``count`` GPUs together: the 16-bit model and half as much again."""
    return Fit(shape.weight_bytes("full_prec") * CALIBRATION_FACTOR, gpu.visible_bytes * count)


def weights_per_gpu(shape: ModelShape, qformat: str, tp: int, pp: int) -> int:
    """Bytes of weights on the fullest rank, see the formulas above; the scales are neglected (4 bytes a tensor)."""
    layers = -(-shape.num_hidden_layers // pp)
    words = -(-shape.vocab_size // tp) * shape.hidden_size
    # With PP > 1 the last stage is the fullest: lm_head as large as the embedding, and the final norm.
    tables = words if pp > 1 or shape.tie_word_embeddings else 2 * words
    norms = (2 * layers + 1) * shape.hidden_size
    return int(layers * _layer_parameters(shape, tp) * element_bytes(qformat)) + BF16 * (tables + norms)


def _layer_parameters(shape: ModelShape, tp: int) -> float:
    """Weights of one block's linear layers on one rank of ``tp``; K and V are copied where TP exceeds the KV heads."""
    queries = 2 * shape.hidden_size * shape.num_attention_heads * shape.head_dim / tp
    keys = 2 * shape.hidden_size * max(shape.num_key_value_heads / tp, 1) * shape.head_dim
    return queries + keys + 3 * shape.hidden_size * shape.intermediate_size / tp
