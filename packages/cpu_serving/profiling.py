"""Where the embedded engine's time goes, operation by operation: its compiled graph with performance counters on.

The engine's runtime shows no counters, so its graph is compiled here as the runtime does it, with paged attention, and
fed by hand.

OpenVINO renames operations from stage to stage; :data:`GROUPS` puts their kinds together by what they cost.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cpu_serving.config import EngineConfig
from cpu_serving.runtime import openvino
from serving_base.errors import EngineError

GROUPS: Mapping[str, frozenset[str]] = {
    "matrix product": frozenset({"MatMul", "FullyConnected"}),
    "attention": frozenset({"ScaledDotProductAttention", "PagedAttentionExtension", "PagedAttention"}),
    "norm or rotary": frozenset({"RMS", "RoPE"}),
    "conversion": frozenset({"FakeConvert", "FakeQuantize", "Convert", "ConvertLike"}),
    "arithmetic": frozenset(
        (
            "Multiply",
            "Add",
            "Subtract",
            "Divide",
            "Power",
            "Sqrt",
            "ReduceMean",
            "Swish",
            "Sin",
            "Cos",
            "Select",
            "LessEqual",
            "LogicalAnd",
            "Maximum",
            "Minimum",
            "Clamp",
            "Eltwise",
            "Math",
        )
    ),
    "moves data": frozenset(
        ("Gather", "Concat", "Concatenation", "Broadcast", "Transpose", "Reorder", "Range", "Assign", "ReadValue")
    ),
    "shape only": frozenset({"Reshape", "Squeeze", "Unsqueeze", "Slice", "StridedSlice", "ShapeOf"}),
}
"""Most of the last group compute nothing on data: a reshape or a slice is another view of the same bytes."""

OTHER = "other"


def group_operations(counts: Mapping[str, int]) -> dict[str, int]:
    """How many operations of each group; every one is counted once, an unknown kind as "other"."""
    found = dict.fromkeys([*GROUPS, OTHER], 0)
    for kind, count in counts.items():
        found[next((name for name, kinds in GROUPS.items() if kind in kinds), OTHER)] += count
    return found


LM_HEAD = "lm_head"


@dataclass(frozen=True)
class OperationTime:
    """One executed operation of one step: OpenVINO's node type, its implementation, its name, and its real time.

    The node that computes the logits is named ``lm_head``. Counters are whole microseconds: 0 is less than one.
    """

    operation: str
    implementation: str
    name: str
    real_time_us: float


@dataclass(frozen=True)
class StepProfile:
    """A step's operations in the order of their execution, and its milliseconds as seen from outside; both means."""

    operations: tuple[OperationTime, ...]
    step_ms: float

    def rows(self) -> list[dict[str, Any]]:
        """``kernel``, ``calls`` and ``total_us`` of each operation."""
        return [
            {"kernel": f"{row.operation} {row.implementation} {row.name}", "calls": 1, "total_us": row.real_time_us}
            for row in self.operations
        ]


@dataclass(frozen=True)
class EngineComparison:
    """Engines profiled in turn: engine -> phase -> profile, and what says how far to trust it.

    ``control``: the decode time of ``lm_head`` in the first engine over that in the last. Quantization leaves lm_head
    alone, so that both compute the same and it would be 1 without noise. ``rounds``: how often all was measured.
    """

    profiles: Mapping[str, Mapping[str, StepProfile]]
    control: float
    rounds: int
    limit: float

    @property
    def usable(self) -> bool:
        """True if the control is within ``limit`` of 1."""
        return abs(self.control - 1) <= self.limit


def profile_engine(
    engine: Path, *, batch_size: int = 16, prompt_tokens: int = 128, decode_steps: int = 16, threads: int = 1
) -> dict[str, StepProfile]:
    """Profile the prefill of ``batch_size`` prompts, and the mean of ``decode_steps`` steps after it.

    Keys ``"prefill"`` and ``"decode"``. Each runs once before it is measured: the first run of a shape prepares its
    kernels. Unlike the engine's scheduler, this prefill computes the logits of every prompt token.
    :class:`EngineError` when the engine was not built for such a batch.
    """
    sizes = {"batch_size": batch_size, "prompt_tokens": prompt_tokens, "decode_steps": decode_steps}
    return _profile_engines({"": engine}, threads=threads, **sizes)[""]


def compare_engines(
    engines: Mapping[str, Path],
    *,
    batch_size: int = 16,
    prompt_tokens: int = 128,
    decode_steps: int = 16,
    threads: int = 1,
    rounds: int = 6,
    limit: float = 0.05,
) -> EngineComparison:
    """Profile engines step by step in turn, so that a change of the clock meets all of them alike.

    Of every operation the fastest of all rounds counts: what else ran on the machine only ever adds time. After two
    rounds or more, at most ``rounds``, it ends when the control (see :class:`EngineComparison`) is within ``limit`` of
    1. Sizes as in :func:`profile_engine`.
    """
    sizes = {"batch_size": batch_size, "prompt_tokens": prompt_tokens, "decode_steps": decode_steps}
    profiles = _profile_engines(engines, threads=threads, **sizes)
    found = EngineComparison(profiles, control_ratio(profiles), 1, limit)
    while found.rounds < 2 or (found.rounds < rounds and not found.usable):
        again = _profile_engines(engines, threads=threads, **sizes)
        profiles = {
            name: {phase: fastest(profile, again[name][phase]) for phase, profile in own.items()}
            for name, own in found.profiles.items()
        }
        found = EngineComparison(profiles, control_ratio(profiles), found.rounds + 1, limit)
    return found


HOW = (
    "Measured by OpenVINO's counters: sixteen prompts of 128 tokens, then sixteen decode steps. The embedded engine "
    "computes FP8 *values* in 32 bits, so FP8 cannot be faster here: see where the time goes, and what FP8 adds. "
)


def remark(found: EngineComparison) -> str:
    """Markdown: how it was measured, and what the control says about the comparison."""
    control = HOW + (
        f"The control: `lm_head` is the same operation in both engines, and its BF16/FP8 is {found.control:.2f} "
        f"after {found.rounds} rounds."
    )
    if found.usable:
        return f"{control} Read a ratio between {1 - found.limit:.2f} and {1 + found.limit:.2f} as no difference."
    return (
        f"{control} That is further from 1 than {found.limit:.2f}: something else used this processor meanwhile. "
        "**The ratios of this run are not usable**; the shares still say where the time goes. Run the cell again when "
        "the machine is idle."
    )


def fastest(one: StepProfile, other: StepProfile) -> StepProfile:
    """Two profiles of the same step: of each operation the shorter time."""
    times = {row.name: row.real_time_us for row in other.operations}
    rows = tuple(
        replace(row, real_time_us=min(row.real_time_us, times.get(row.name, row.real_time_us)))
        for row in one.operations
    )
    return StepProfile(rows, min(one.step_ms, other.step_ms))


def control_ratio(profiles: Mapping[str, Mapping[str, StepProfile]]) -> float:
    """Decode time of ``lm_head`` in the first engine over that in the last."""
    first, *_, last = [
        sum(row.real_time_us for row in profile["decode"].operations if row.name == LM_HEAD)
        for profile in profiles.values()
    ]
    return first / last


def _profile_engines(
    engines: Mapping[str, Path], *, batch_size: int, prompt_tokens: int, decode_steps: int, threads: int
) -> dict[str, dict[str, StepProfile]]:
    longest = prompt_tokens + 1 + decode_steps
    for engine in engines.values():
        _refuse_too_small(EngineConfig.read(engine), batch_size, longest)
    prompts = np.full((batch_size, prompt_tokens), min(EngineConfig.read(e).vocab_size for e in engines.values()) // 2)
    phases = {"prefill": (prompts, [0] * 3), "decode": (prompts[:, :1], list(range(prompt_tokens, longest)))}
    pools: dict[str, dict[str, Any]] = {name: {} for name in engines}
    profiles: dict[str, dict[str, StepProfile]] = {name: {} for name in engines}
    for phase, (ids, past_tokens) in phases.items():
        # The counters belong to the compiled graph, whoever asks it: each measurement gets one of its own.
        graphs = [
            PagedGraph(engine, batch_size=batch_size, max_tokens=longest, threads=threads, pools=pools[name])
            for name, engine in engines.items()
        ]
        for name, profile in zip(engines, _profile(graphs, ids, past_tokens), strict=True):
            profiles[name][phase] = profile
    return profiles


def _refuse_too_small(config: EngineConfig, batch_size: int, longest: int) -> None:
    if batch_size > config.max_batch_size or longest > config.max_seq_len:
        raise EngineError(
            f"the engine takes {config.max_batch_size} sequences of {config.max_seq_len} tokens",
            why=f"{batch_size} of {longest} were asked for",
            fix="lower batch_size, prompt_tokens or decode_steps",
        )


def _profile(graphs: Sequence[PagedGraph], ids: np.ndarray, past_tokens: list[int]) -> list[StepProfile]:
    """Each graph's mean of all steps but the first, the graphs in turn within each step."""
    for graph in graphs:
        graph.step(ids, past_tokens=past_tokens[0])
    first = [{row.name: row.real_time_us for row in graph.counters()} for graph in graphs]
    seconds = [0.0] * len(graphs)
    for length in past_tokens[1:]:
        for index, graph in enumerate(graphs):
            started = time.perf_counter()
            graph.step(ids, past_tokens=length)
            seconds[index] += time.perf_counter() - started
    steps = len(past_tokens) - 1
    return [
        StepProfile(_without_first(graph.counters(), before, steps), 1e3 * spent / steps)
        for graph, before, spent in zip(graphs, first, seconds, strict=True)
    ]


def _without_first(
    counters: Sequence[OperationTime], first: Mapping[str, float], steps: int
) -> tuple[OperationTime, ...]:
    """Means over ``steps`` steps out of OpenVINO's counters, which are means over those and the first."""
    later = [row.real_time_us + (row.real_time_us - first.get(row.name, row.real_time_us)) / steps for row in counters]
    return tuple(replace(row, real_time_us=max(0.0, us)) for row, us in zip(counters, later, strict=True))


class PagedGraph:
    """An engine's graph with paged attention; ``pools`` holds the KV cache, by input name, and is filled if empty."""

    def __init__(self, engine: Path, *, batch_size: int, max_tokens: int, threads: int, pools: dict[str, Any]) -> None:
        ov = openvino()
        core = ov.Core()
        model = core.read_model(engine / "openvino_model.xml")
        self._lm_head = model.output("logits").get_node().input_value(0).get_node().get_friendly_name()
        openvino("openvino._offline_transformations").paged_attention_transformation(model)
        properties = {
            "INFERENCE_PRECISION_HINT": "f32",
            "KV_CACHE_PRECISION": "f32",
            "INFERENCE_NUM_THREADS": threads,
            "PERF_COUNT": True,
        }
        compiled = core.compile_model(model, "CPU", properties)
        self._request = compiled.create_infer_request()
        self._blocks = -(-max_tokens // EngineConfig.read(engine).tokens_per_block)
        for port in compiled.inputs:
            if "_cache." in port.any_name:
                block = [dimension.get_length() for dimension in list(port.partial_shape)[1:]]
                shape = (batch_size * self._blocks, *block)
                pool = pools.setdefault(port.any_name, ov.Tensor(np.zeros(shape, dtype=np.float32)))
                self._request.set_tensor(port.any_name, pool)

    def step(self, ids: np.ndarray, *, past_tokens: int) -> np.ndarray:
        """Run one step for all sequences, which have ``past_tokens`` in the cache; ids are (sequences, new tokens).

        Returns the logits, (sequences * new tokens, vocabulary).
        """
        for name, values in self._inputs(ids, past_tokens).items():
            self._request.set_tensor(name, openvino().Tensor(values))
        self._request.infer()
        logits = np.array(self._request.get_tensor("logits").data, dtype=np.float32)
        return logits.reshape(ids.size, -1)

    def counters(self) -> list[OperationTime]:
        """Mean real time of every operation that ran, over all steps so far."""
        return [
            OperationTime(
                operation=info.node_type,
                implementation=info.exec_type,
                name=LM_HEAD if info.node_name == self._lm_head else info.node_name,
                real_time_us=info.real_time.total_seconds() * 1e6,
            )
            for info in self._request.get_profiling_info()
            if info.status.name == "EXECUTED"
        ]

    def _inputs(self, ids: np.ndarray, past_tokens: int) -> Mapping[str, np.ndarray]:
        count, new_tokens = ids.shape
        positions = np.arange(past_tokens, past_tokens + new_tokens, dtype=np.int64)
        return {
            "input_ids": ids.astype(np.int64).ravel(),
            "position_ids": np.tile(positions, count),
            "max_context_len": np.array(past_tokens + new_tokens, dtype=np.int32),
            "past_lens": np.full(count, past_tokens, dtype=np.int32),
            "subsequence_begins": np.arange(count + 1, dtype=np.int32) * new_tokens,
            "block_indices": np.arange(count * self._blocks, dtype=np.int32),
            "block_indices_begins": np.arange(count + 1, dtype=np.int32) * self._blocks,
        }
