"""Kernels of whole vLLM steps (``own_kernels.csv``) as samples for the laws of what only reads and writes."""

import re
from dataclasses import dataclass

from benchmarks.planner.tables import rows
from serving_base.facts.models import known_shape

TOKENS = re.compile(r"\.(?:decode|prefill)(\d+)$")
SHAPES = {"8b": known_shape("llama-3-8b-instruct"), "70b": known_shape("llama-3-70b-instruct")}


@dataclass(frozen=True)
class Stream:
    """A kind of kernel: how its name reads, what one of them moves for one token, and what its law may depend on."""

    pattern: str
    per_layer: int
    hidden: dict[str, float]  # bytes for each value of the hidden row, by precision of the weights
    ff: dict[str, float]  # of the MLP's row on this rank
    q: dict[str, float]  # of the query row on this rank
    kv: dict[str, float]  # of the key row on this rank
    precisions: tuple[str, ...] = ("bf16", "fp8")
    by_row: bool = False
    by_token: bool = False
    by_cache: bool = False  # whether the precision is the cache's, not the weights'

    @property
    def bytes_per_value(self) -> dict[str, dict[str, float]]:
        return {"hidden": self.hidden, "ff": self.ff, "q": self.q, "kv": self.kv}


NONE = {"bf16": 0.0, "fp8": 0.0}
STREAMS = {
    # residual and input in, residual and normed row out; FP8: the row goes out quantized
    "norm": Stream("rms_norm", 2, {"bf16": 8, "fp8": 7}, NONE, NONE, NONE, by_row=True),
    "swiglu": Stream("silu", 1, NONE, {"bf16": 6, "fp8": 5}, NONE, NONE),
    # query and key rows in and out; the FP8 graph takes one more kernel for the key
    "rotary": Stream(r"^triton_poi_fused_\d$", 1, NONE, NONE, {"bf16": 4, "fp8": 4}, {"bf16": 4, "fp8": 4}),
    "quantize": Stream("scaled_mm_mul_reciprocal_view", 1, NONE, NONE, {"bf16": 3, "fp8": 3}, NONE, ("fp8",)),
    "cache_write": Stream(
        "reshape_and_cache", 1, NONE, NONE, NONE, {"bf16": 8, "fp8": 6}, by_token=True, by_cache=True
    ),
}


def moved_bytes(stream: Stream, precision: str, hidden: int, ff: int, q: int, kv: int) -> float:
    """Bytes that one kernel of this kind moves for one token; rows in values on this rank."""
    rows_on_rank = {"hidden": hidden, "ff": ff, "q": q, "kv": kv}
    return sum(per_value[precision] * rows_on_rank[row] for row, per_value in stream.bytes_per_value.items())


def stream_samples(kind: str, precision: str) -> list[tuple[float, int, int, float]]:
    """(us of one kernel, values of its row, tokens, bytes it moves), of each step that has the kind."""
    stream, found = STREAMS[kind], []
    steps: dict[tuple[str, str], float] = {}
    for row in rows("own_kernels"):
        if re.search(stream.pattern, row["kernel"]) and int(row["calls"]) >= 30:
            steps[row["step"], row["tp"]] = steps.get((row["step"], row["tp"]), 0.0) + float(row["us"])
    for (step, tp_text), us in steps.items():
        model, tp = step.split("-")[0], int(tp_text)
        cache = "fp8" if "fp8kv" in step else "bf16"
        weights = "fp8" if "fp8" in step else "bf16"
        if precision != (cache if stream.by_cache else weights):
            continue
        match = TOKENS.search(step)
        assert match, step
        shape = SHAPES[model]
        heads = (shape.num_attention_heads, shape.num_key_value_heads)
        rows_on_rank = (shape.hidden_size, shape.intermediate_size // tp, *(shape.head_dim * n // tp for n in heads))
        per_layer = us / shape.num_hidden_layers / stream.per_layer
        moved = moved_bytes(stream, precision, *rows_on_rank) * int(match.group(1))
        found.append((per_layer, shape.hidden_size, int(match.group(1)), moved))
    return found
