"""One engine step: the time of one forward pass of one pipeline stage on one rank, from the laws of its operations.

Tensor parallelism splits qkv and gate_up by their outputs and o and down by their inputs, so each layer ends its two
halves with an all-reduce of T x hidden BF16 values; KV heads are divided, and repeated where there are more ranks; the
output head is split over the vocabulary and its logits gathered. What belongs to a number of tokens is computed once
and kept, so that a simulation asks for a step's time in a few microseconds.

:class:`StepLoad` says what one step has to compute: the word that the step model and the scheduler share.
"""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from serving_base.facts.gpus import Gpu
from serving_base.facts.models import ModelShape
from serving_planner.case import Case
from serving_planner.cost_model.laws import (
    EngineStep,
    all_reduce_law,
    collective,
    decode_law,
    decode_table,
    engine_step,
    gemm_factor,
    gemm_law,
    host_of,
    pipeline,
    prefill_law,
    skew,
    stream_law,
)
from serving_planner.cost_model.operations import Chip, Curve, GemmLaw, Limit, Line, OpTime, PrefillLaw, op_time, total


@dataclass(frozen=True, slots=True)
class StepLoad:
    """The work of one forward pass of one replica (of one micro-batch where the pipeline is split).

    ``decode_sequences`` sequences get one token each and attend to ``decode_context_tokens`` keys in all, their own
    new token included. ``prefill_tokens`` prompt tokens are computed, attending causally to ``prefill_pairs``
    (query, key) pairs in all: a chunk of q tokens after d tokens already cached has q*d + q*(q+1)/2.
    ``prefill_sequences`` prompts end in this step; each makes one row for the output head.
    """

    decode_sequences: int = 0
    decode_context_tokens: int = 0
    prefill_tokens: int = 0
    prefill_pairs: float = 0.0
    prefill_sequences: int = 0


ComputeLaw = TypeVar("ComputeLaw", GemmLaw, PrefillLaw)
WIDTH = {"bf16": 2, "fp8": 1}
GRAIN = 16  # tokens
OPERATIONS = (
    "linear", "attention_prefill", "attention_decode", "all_reduce", "elementwise", "lm_head", "pipeline", "overhead",
)  # fmt: skip


@dataclass(frozen=True)
class Rank:
    """What one rank holds of a model: rows of its tensors, layers of its stage."""

    hidden: int
    ff: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    layers: int

    @property
    def rows(self) -> dict[str, int]:
        """Values of each kind of row on this rank."""
        return {
            "hidden": self.hidden,
            "ff": self.ff,
            "q": self.heads * self.head_dim,
            "kv": self.kv_heads * self.head_dim,
        }

    @property
    def gemms(self) -> tuple[tuple[int, int], ...]:
        """(outputs, inputs) of qkv, o, gate_up and down."""
        q, kv = self.rows["q"], self.rows["kv"]
        return ((q + 2 * kv, self.hidden), (self.hidden, q), (2 * self.ff, self.hidden), (self.hidden, self.ff))


def rank_of(shape: ModelShape, tp: int, pp: int) -> Rank:
    """The fullest rank of the last stage, which has the output head."""
    return Rank(
        hidden=shape.hidden_size,
        ff=-(-shape.intermediate_size // tp),
        heads=shape.num_attention_heads // tp,
        kv_heads=max(1, shape.num_key_value_heads // tp),
        head_dim=shape.head_dim,
        vocabulary=-(-shape.vocab_size // tp),
        layers=-(-shape.num_hidden_layers // pp),
    )


class StepModel:
    """Times of engine steps for one model, GPU, precision, TP x PP and engine; everything else is in the load.

    With a pipeline: of one stage, the last, with the send of its input.
    """

    def __init__(
        self,
        shape: ModelShape,
        gpu: Gpu,
        *,
        weights: str,
        kv: str,
        tp: int,
        pp: int,
        engine: str,
        slowdown: float = 1.0,
    ) -> None:
        """``slowdown``: of compute-bound work under the power limit, see :mod:`serving_planner.cost_model.laws`."""
        self.rank, self.tp, self.pp = rank_of(shape, tp, pp), tp, pp
        self.vocabulary = shape.vocab_size
        self.facts: EngineStep = engine_step(engine)
        self.sizes = self.facts.graph_tokens.sizes
        self._host = host_of(engine, gpu)
        self._weights, self._kv_width = WIDTH[weights], WIDTH[kv]
        flops = gpu.dense_flops
        self._chip = Chip(gpu.bandwidth_bytes_per_s, flops[weights], flops["bf16"], gpu.link_bytes_per_s)
        self._plain = Chip(gpu.bandwidth_bytes_per_s, flops["bf16"], flops["bf16"], gpu.link_bytes_per_s)
        attention_precision = "fp8" if kv == "fp8" and "fp8" in flops else "bf16"
        self._attention_flops = flops[attention_precision]
        law = _slowed(gemm_law(engine, gpu, weights), slowdown)
        self._gemms: list[tuple[int, int, GemmLaw, Curve | None]] = [
            (n, k, law, gemm_factor(engine, gpu, weights, n, k)) for n, k in self.rank.gemms
        ]
        self._head = _slowed(gemm_law(engine, gpu, "bf16"), slowdown)
        self._prefill = _slowed(prefill_law(engine, gpu, weights, kv), slowdown)
        self._decode = decode_law(engine, gpu, kv)
        self._table = decode_table(engine, gpu, kv, self.rank.heads // self.rank.kv_heads, self.rank.head_dim)
        kernels = self.facts.kernels[weights]
        self._streams = [
            (kind, kernel, *stream_law(kind, kv if kernel.law == "kv" else kernel.law, gpu))
            for kind, kernel in kernels.items()
        ]
        reduction = self.facts.all_reduce
        self._fuses = tp > 1 and 0 < self.facts.fuses_norm_above < self.rank.hidden
        self._all_reduce = self._collective("all_reduce", reduction.table, gpu)
        self._all_gather = self._collective("all_gather", "nccl", gpu)
        self._skew, self._pipeline = skew(), pipeline()
        self._layers = self.rank.layers
        self._by_tokens: dict[tuple[int, bool], float] = {}
        self._kept: dict[tuple[int, int, bool], tuple[float, float]] = {}
        self._by_sequences: dict[int, Line] = {}

    def _collective(self, operation: str, table: str, gpu: Gpu) -> Callable[[float], float]:
        """Microseconds of a collective by the bytes of its result."""
        if self.tp == 1:
            return lambda _: 0.0
        measured = collective(operation, table, gpu, self.tp)
        if measured:
            return measured.at
        return partial(all_reduce_law(table, gpu, self.tp).us, chip=self._chip)

    # The hot path

    def seconds(self, load: StepLoad) -> float:
        """The step's time in seconds; 0.0 where there is nothing to compute."""
        decode, prompt = load.decode_sequences, load.prefill_tokens
        if not decode and not prompt:
            return 0.0
        key = (decode + prompt, load.prefill_sequences + decode, prompt > 0)
        kept = self._kept.get(key)
        if kept is None:
            kept = self._kept[key] = self._keep(*key)
        us, busy_us = kept
        if decode:
            us += self._layers * self._decode_us(decode, load.decode_context_tokens, prompt > 0)
        if prompt:
            us += self._layers * self._prefill_us(prompt, load.prefill_pairs)
        return (us if us > busy_us else busy_us) * 1e-6

    def _keep(self, tokens: int, rows: int, with_prompts: bool) -> tuple[float, float]:
        """Microseconds of a step without its attention, and of the host that prepares the next one meanwhile."""
        tokens, captured = self._padded(tokens, with_prompts)
        us = self._by_tokens.get((tokens, captured))
        if us is None:
            us = self._by_tokens[tokens, captured] = self._tokens_us(tokens, captured)
        host = self._host
        us += sum(self._head_us(rows if with_prompts else tokens)) + host.exposed_us + host.exposed_request_us * rows
        return us, host.step_us + host.request_us * rows + (0.0 if captured else host.layer_us * self._layers)

    def _padded(self, tokens: int, with_prompts: bool) -> tuple[int, bool]:
        """Tokens of the step as it runs, and whether it runs as a captured graph.

        A graph is padded to the next captured size; other steps are taken per ``GRAIN`` tokens, less than a tile.
        """
        if tokens > (self.facts.mixed_graph_tokens if with_prompts else self.sizes[-1]):
            return -(-tokens // GRAIN) * GRAIN if tokens > 16 * GRAIN else tokens, False
        return self.sizes[bisect_left(self.sizes, tokens)], True

    def _tokens_us(self, tokens: int, captured: bool) -> float:
        """All that depends on the number of tokens alone, attention and output head left out."""
        compute = self._linear_us(tokens)
        stream, _ = self._stream_us(tokens, captured)
        return self.rank.layers * (compute + stream) + self._reduce_us(tokens, compute + stream) + self._send_us(tokens)

    def _linear_us(self, tokens: int) -> float:
        """The four GEMMs of a layer."""
        us = 0.0
        for n, k, law, factor in self._gemms:
            us += law.us(n, k, tokens, self._weights, self._chip) * (factor.at(tokens) if factor else 1.0)
        return us

    def _stream_us(self, tokens: int, captured: bool) -> tuple[float, float]:
        """The kernels of a layer that only read and write, with the gaps around all of its kernels; and their floor."""
        us = floor = 0.0
        gap = self.facts.kernel_gap_us if captured else self.facts.eager_gap_us
        for kind, kernel, law, moved_by_row in self._streams:
            rows = self.rank.rows
            if kernel.row:
                moved = tokens * rows[kernel.row] * sum(moved_by_row.values())
            else:
                moved = tokens * sum(rows[row] * value for row, value in moved_by_row.items())
            one = law.us(self.rank.hidden, tokens, moved, self._chip) + gap
            if self._fuses and kind in self.facts.fused:
                one -= law.t0_us + gap
            us += kernel.count * one
            floor += kernel.count * moved / self._chip.bandwidth * 1e6
        if not captured:  # the tables and laws of GEMMs, attention and all-reduces are of captured graphs
            others = len(self._gemms) + 1 + (self.facts.all_reduce.per_layer if self.tp > 1 else 0)
            us += others * (gap - self.facts.kernel_gap_us)
        return us, floor

    def _reduce_us(self, tokens: int, layer_us: float) -> float:
        """All-reduces and the embedding's collective of the stage, and the wait for the rank that comes last."""
        if self.tp == 1:
            return 0.0
        reduction, message = self.facts.all_reduce, 2 * tokens * self.rank.hidden
        one = self._all_reduce(message)
        wait = self._skew.share(self.tp, tokens) * layer_us
        start = one if reduction.embedding == "all_reduce" else self._all_gather(message)
        return self.rank.layers * (reduction.per_layer * one + wait) + start / self.pp

    def _send_us(self, tokens: int) -> float:
        if self.pp == 1:
            return 0.0
        wire = 2 * tokens * self.rank.hidden / self.tp / self._chip.link * 1e6
        return self._pipeline.latency_us + wire / self._pipeline.efficiency

    def _decode_us(self, sequences: int, context_tokens: int, with_prompts: bool) -> float:
        """Decode attention of one layer."""
        context = context_tokens / sequences
        if self._table:
            line = self._by_sequences.get(sequences)
            if line is None:
                line = self._by_sequences[sequences] = self._table.line(sequences * self.rank.kv_heads)
            us = line.at(context)
        else:
            us = self._decode.us(sequences * self.rank.kv_heads, context, self._read_us(context_tokens))
        return us - self._decode.t0_us if with_prompts and self.facts.one_attention_call else us

    def _read_us(self, context_tokens: float) -> float:
        """Keys and values of these tokens, one layer, at the peak bandwidth."""
        values = 2 * self.rank.kv_heads * self.rank.head_dim * context_tokens
        return values * self._kv_width / self._chip.bandwidth * 1e6

    def _prefill_us(self, tokens: int, pairs: float) -> float:
        rank = self.rank
        return self._prefill.us(tokens, pairs, rank.heads, rank.kv_heads, rank.head_dim, self._chip)

    def _head_us(self, rows: int) -> tuple[float, float]:
        """Microseconds of the output head with its gather, and of sampling; the head stays in BF16."""
        if not rows:
            return 0.0, 0.0
        us = self._head.us(self.rank.vocabulary, self.rank.hidden, rows, 2, self._plain)
        sampling = self.facts.sampling
        return us + self._all_gather(2 * rows * self.vocabulary), sampling.latency_us + sampling.row_us * rows

    # The same in parts

    def split(self, load: StepLoad) -> dict[str, OpTime]:
        """The step by kind of operation; the seconds add up to :meth:`seconds`.

        ``overhead``: what the host does not hide, and how much longer its own step is than the GPU's.
        """
        decode, prompt, layers = load.decode_sequences, load.prefill_tokens, self.rank.layers
        if not decode and not prompt:
            return {name: OpTime(0.0, 0.0, "overhead") for name in OPERATIONS}
        real = decode + prompt
        tokens, captured = self._padded(real, prompt > 0)
        rows = load.prefill_sequences + decode if prompt else tokens
        linear_us, (stream_us, _) = self._linear_us(tokens), self._stream_us(tokens, captured)
        head_us, sampling_us = self._head_us(rows)
        parts = {
            "linear": self._linear(layers * linear_us, real),
            "attention_prefill": self._attention_prefill(load),
            "attention_decode": self._attention_decode(load),
            "all_reduce": op_time(self._reduce_us(tokens, linear_us + stream_us), self._reduce_floor_us(real), "link"),
            "elementwise": op_time(layers * stream_us, layers * self._stream_us(real, captured)[1], "bandwidth"),
            "lm_head": self._lm_head(head_us + sampling_us, load.prefill_sequences + decode),
            "pipeline": op_time(self._send_us(tokens), self._send_floor_us(real), "link"),
        }
        rest = self.seconds(load) - sum(part.seconds for part in parts.values())
        return {**parts, "overhead": OpTime(max(0.0, rest), 0.0, "overhead")}

    def floor_seconds(self, load: StepLoad) -> float:
        """The rooflines of the same operations, one after the other: every start 0, every efficiency 1, no padding."""
        return sum(part.floor_seconds for part in self.split(load).values())

    def _linear(self, us: float, tokens: int) -> OpTime:
        one = [law.time(n, k, tokens, self._weights, self._chip) for n, k, law, _ in self._gemms]
        floors = total(one, self.rank.layers)
        limit: Limit = (
            "compute" if tokens * 2 * self._chip.bandwidth > self._weights * self._chip.flops else "bandwidth"
        )
        return op_time(us, floors.floor_seconds * 1e6, limit)

    def _attention_prefill(self, load: StepLoad) -> OpTime:
        if not load.prefill_tokens:
            return OpTime(0.0, 0.0, "compute")
        rank = self.rank
        us = rank.layers * self._prefill_us(load.prefill_tokens, load.prefill_pairs)
        flops = 4 * rank.head_dim * rank.heads * load.prefill_pairs
        return op_time(us, rank.layers * flops / self._attention_flops * 1e6, "compute")

    def _attention_decode(self, load: StepLoad) -> OpTime:
        if not load.decode_sequences:
            return OpTime(0.0, 0.0, "bandwidth")
        with_prompts = load.prefill_tokens > 0
        us = self._decode_us(load.decode_sequences, load.decode_context_tokens, with_prompts)
        floor = self._read_us(load.decode_context_tokens)
        return op_time(self.rank.layers * us, self.rank.layers * floor, "bandwidth")

    def _lm_head(self, us: float, rows: int) -> OpTime:
        if not rows:
            return OpTime(0.0, 0.0, "bandwidth")
        memory, compute = self._head.floors(self.rank.vocabulary, self.rank.hidden, rows, 2, self._plain)
        return op_time(us, max(memory, compute), "compute" if compute > memory else "bandwidth")

    def _reduce_floor_us(self, tokens: int) -> float:
        """Every value crosses a GPU's link once, which is what reducing in the switch leaves."""
        if self.tp == 1:
            return 0.0
        message = 2 * tokens * self.rank.hidden
        return self.rank.layers * self.facts.all_reduce.per_layer * message / self._chip.link * 1e6

    def _send_floor_us(self, tokens: int) -> float:
        return 2 * tokens * self.rank.hidden / self.tp / self._chip.link * 1e6 if self.pp > 1 else 0.0


def _slowed(law: ComputeLaw, slowdown: float) -> ComputeLaw:
    return replace(law, compute_efficiency=law.compute_efficiency / slowdown)


def step_model(case: Case, slowdown: float = 1.0) -> StepModel:
    """The step model of what a case asks for; one replica."""
    return StepModel(
        case.shape,
        case.hardware,
        weights=case.weights,
        kv=case.kv,
        tp=case.tp,
        pp=case.pp,
        engine=case.engine,
        slowdown=slowdown,
    )
