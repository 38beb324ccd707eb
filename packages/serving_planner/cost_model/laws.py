"""The planner's constants as laws: which belong to an engine on a GPU, and where another's stand in.

``data/constants.yml`` and the three tables are written by ``benchmarks/planner/fit.py``; ``data/step.yml`` is kept by
hand, with a source for each fact.

The power limit: compute-bound work takes longer on a GPU that is kept busy with it than in the burst of a benchmark.

A GPU at its power limit lowers its clock. Work that waits for memory does not feel it; products of many tokens do.
With the share u of time that a GPU computes at full clock, its mean power would be u P + (1 - u) ``other_w``, where P
follows from the measured ``slowdown`` of a GPU that only computes; what is above ``limit_w`` is paid in time. The limit
works on the mean over tenths of a second, so short steps of either kind share it.

What no roofline explains on a measured machine, from the lightest loads that were measured there.
"""

import csv
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from serving_base.errors import UsageError
from serving_base.facts.gpus import Gpu
from serving_base.record import Record
from serving_base.yaml_files import read_yaml
from serving_planner.cost_model.operations import (
    AllReduceLaw,
    Curve,
    DecodeLaw,
    DecodeTable,
    GemmLaw,
    Line,
    PrefillLaw,
    StreamLaw,
)

DATA = Path(__file__).parents[1] / "data"
Row = Literal["hidden", "ff", "q", "kv"]


class Kernel(Record):
    """How many kernels of a kind a layer has. ``law``: whose constants; ``kv``: by the cache's precision.

    ``row``: what they move, where the kind alone does not say.
    """

    count: int = Field(ge=0)
    law: Literal["bf16", "fp8", "kv"]
    row: Row | None = None


class GraphTokens(Record):
    """Sizes of captured steps: powers of two to ``powers_to``, multiples of ``step`` to ``to``, then a list."""

    powers_to: int
    step: int = Field(ge=1)
    to: int
    then: tuple[int, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        powers = [2**n for n in range(self.powers_to.bit_length())]
        return (*powers, *range(self.step, self.to + 1, self.step), *self.then)


class Host(Record):
    """Microseconds of a step on the host: see the head of ``data/step.yml``."""

    step_us: float = Field(ge=0)
    request_us: float = Field(ge=0)
    layer_us: float = Field(ge=0)
    exposed_us: float = Field(ge=0)
    exposed_request_us: float = Field(ge=0)


class SamplingLaw(Record):
    latency_us: float = Field(ge=0)
    row_us: float = Field(ge=0)


class Reduction(Record):
    """Whose all-reduce an engine runs, how many a layer has, and how the embedding is put together."""

    table: Literal["tensorrt-llm", "vllm", "sglang", "nccl"]
    per_layer: int = Field(ge=0)
    embedding: Literal["all_reduce", "all_gather"]


class EngineStep(Record):
    """What a step of an engine consists of besides its GEMMs and attention."""

    prefill_attention: dict[str, dict[str, str]]  # weights, cache: kind of kernel
    one_attention_call: bool
    kernels: dict[str, dict[str, Kernel]]
    fused: tuple[str, ...]
    fuses_norm_above: int
    all_reduce: Reduction
    graph_tokens: GraphTokens
    mixed_graph_tokens: int
    kernel_gap_us: float = Field(ge=0)
    eager_gap_us: float = Field(ge=0)
    host: Host
    sampling: SamplingLaw
    sources: dict[str, str]


class Skew(Record):
    """How much later than the mean the last rank reaches an all-reduce, as a share of the time since the last one."""

    decode: float
    prefill: float
    prefill_tokens: int
    largest: dict[int, float]
    source: str

    def share(self, ranks: int, tokens: int) -> float:
        deviation = self.decode + (self.prefill - self.decode) * min(1.0, tokens / self.prefill_tokens)
        known = [count for count in self.largest if count <= ranks]
        return deviation * self.largest[max(known)]


class Pipeline(Record):
    latency_us: float
    efficiency: float = Field(gt=0, le=1)
    source: str


@cache
def _constants() -> dict[str, Any]:
    found: dict[str, Any] = read_yaml(DATA / "constants.yml")
    return found


@cache
def _facts() -> dict[str, Any]:
    found: dict[str, Any] = read_yaml(DATA / "step.yml")
    return found


@cache
def engine_step(engine: str) -> EngineStep:
    """The facts of ``tensorrt-llm``, ``vllm`` or ``sglang``."""
    return EngineStep.model_validate(_facts()[engine])


def host_of(engine: str, gpu: Gpu) -> Host:
    """The host's part of a step. A measured machine has no second processor that could hide it."""
    if gpu.measured:
        exposed = {"exposed_us": gpu.step_overhead_us, "exposed_request_us": gpu.token_overhead_us}
        return Host(step_us=0, request_us=0, layer_us=0, **exposed)
    return engine_step(engine).host


@cache
def skew() -> Skew:
    return Skew.model_validate(_facts()["skew"])


@cache
def pipeline() -> Pipeline:
    return Pipeline.model_validate(_facts()["pipeline"])


def _stand_in(section: str, engine: str, gpu: Gpu) -> tuple[str, str]:
    """(engine, GPU) whose constants to take: its own; those of its relative; another engine's on that GPU."""
    known = _constants()[section]
    relative = gpu.name if any(gpu.name in gpus for gpus in known.values()) else _relative(gpu.architecture)
    engines = [engine, *(other for other in known if other != engine)]
    return next((other, relative) for other in engines if relative in known[other])


def _relative(architecture: str) -> str:
    """The measured GPU of ``sm86`` or of the next older architecture; of the oldest, for one that is older still."""
    relatives: dict[str, str] = _facts()["relatives"]
    known = sorted(relatives, key=_generation)
    older = [name for name in known if _generation(name) <= _generation(architecture)]
    return relatives[older[-1] if older else known[0]]


def _generation(architecture: str) -> int:
    return int(architecture.removeprefix("sm"))


def stand_in(engine: str, gpu: Gpu) -> tuple[str, str]:
    """(engine, GPU) whose operation tables stand for these two; themselves where they have their own."""
    return (engine, gpu.name) if gpu.measured else _stand_in("attention_decode", engine, gpu)


def gemm_law(engine: str, gpu: Gpu, precision: str) -> GemmLaw:
    if gpu.measured:
        return GemmLaw(**_facts()["measured"]["gemm"])
    other, relative = _stand_in("gemm", engine, gpu)
    return GemmLaw(**_constants()["gemm"][other][relative][precision])


def decode_law(engine: str, gpu: Gpu, kv: str) -> DecodeLaw:
    if gpu.measured:
        return DecodeLaw(**_facts()["measured"]["attention_decode"])
    other, relative = _stand_in("attention_decode", engine, gpu)
    return DecodeLaw(**_constants()["attention_decode"][other][relative][kv])


def prefill_law(engine: str, gpu: Gpu, weights: str, kv: str) -> PrefillLaw:
    if gpu.measured:
        return PrefillLaw(**_facts()["measured"]["attention_prefill"])
    other, relative = _stand_in("attention_prefill", engine, gpu)
    laws = _constants()["attention_prefill"][other][relative]
    kind = engine_step(engine).prefill_attention[weights][kv]
    return PrefillLaw(**(laws[kind] if kind in laws else next(iter(laws.values()))))


def all_reduce_law(table: str, gpu: Gpu, gpus: int) -> AllReduceLaw:
    """Of the nearest number of GPUs that was measured, with this one's."""
    if gpu.measured:
        return AllReduceLaw(gpus=gpus, **_facts()["measured"]["all_reduce"])
    other, relative = _stand_in("all_reduce", table, gpu)
    laws = _constants()["all_reduce"][other][relative]
    nearest = min(laws, key=lambda count: abs(count - gpus))
    return AllReduceLaw(**{**laws[nearest], "gpus": gpus})


def stream_law(kind: str, precision: str, gpu: Gpu) -> tuple[StreamLaw, dict[str, float]]:
    """The law of a kernel that only reads and writes, and the bytes it moves for each value of a row."""
    entry = _constants()["stream"][kind][precision]
    law = _facts()["measured"]["stream"] if gpu.measured else entry["law"]
    return StreamLaw(**law), entry["bytes"]


@cache
def _gemm_factors() -> dict[tuple[str, str, str], dict[tuple[int, int], Curve]]:
    found: dict[tuple[str, str, str], dict[tuple[int, int], Curve]] = {}
    with (DATA / "gemm_factors.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            tokens = {int(key[1:]): float(value) for key, value in row.items() if key[0] == "m"}
            shapes = found.setdefault((row["gpu"], row["engine"], row["precision"]), {})
            shapes[int(row["n"]), int(row["k"])] = Curve(tuple(tokens), tuple(tokens.values()))
    return found


def gemm_factor(engine: str, gpu: Gpu, precision: str, n: int, k: int) -> Curve | None:
    """Measured over law by tokens, where this shape was measured on this GPU; else None."""
    return _gemm_factors().get((gpu.name, engine, precision), {}).get((n, k))


@cache
def _decode_tables() -> dict[tuple[str, str, str, int], DecodeTable]:
    found: dict[tuple[str, str, str, int], dict[int, tuple[float, ...]]] = {}
    contexts: tuple[float, ...] = ()
    with (DATA / "decode_attention.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            times = {int(key[1:]): float(value) for key, value in row.items() if key[0] == "s"}
            contexts = tuple(times)
            key = (row["gpu"], row["engine"], row["kv"], int(row["group"]))
            found.setdefault(key, {})[int(row["rows"])] = tuple(times.values())
    return {key: DecodeTable(tuple(table), contexts, tuple(table.values())) for key, table in found.items()}


def decode_table(engine: str, gpu: Gpu, kv: str, group: int, head_dim: int) -> DecodeTable | None:
    """Measured decode attention of ``group`` query heads a KV head; None where it was not measured."""
    return _decode_tables().get((gpu.name, engine, kv, group)) if head_dim == 128 else None


@cache
def _collectives() -> dict[tuple[str, str, str, int], Line]:
    found: dict[tuple[str, str, str, int], dict[int, float]] = {}
    with (DATA / "all_reduce.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            key = (row["gpu"], row["engine"], row["operation"], int(row["gpus"]))
            found.setdefault(key, {})[int(row["bytes"])] = float(row["us"])
    return {key: Line(tuple(times), tuple(times.values())) for key, times in found.items()}


def collective(operation: str, table: str, gpu: Gpu, gpus: int) -> Line | None:
    """A measured ``all_reduce`` or ``all_gather`` by bytes of the result; None where it was not measured."""
    return _collectives().get((gpu.name, table, operation, gpus))


POWER_FILE = Path(__file__).parents[1] / "data" / "power.yml"


class PowerLimit(Record):
    """What ``data/power.yml`` says of a GPU."""

    limit_w: float = Field(gt=0)
    slowdown: float = Field(ge=1, description="time of compute-bound work, sustained over burst")
    other_w: float = Field(gt=0, description="power while it waits for memory")
    time_per_watt: float = Field(gt=0, description="exponent: time goes with wanted over given power")
    source: str

    def at(self, compute_share: float) -> float:
        """Slowdown of compute-bound work that takes ``compute_share`` of the time at full clock; 1: none."""
        given = self.limit_w - (1 - compute_share) * self.other_w
        wanted = compute_share * self.limit_w * self.slowdown ** (1 / self.time_per_watt)
        time = math.exp(self.time_per_watt * math.log(wanted / given)) if wanted else 1.0
        return min(self.slowdown, max(1.0, time))


@cache
def _limits() -> dict[str, PowerLimit]:
    return {name: PowerLimit(**entry) for name, entry in read_yaml(POWER_FILE)["gpus"].items()}


def slowdown(gpu: Gpu, compute_share: float) -> float:
    """As :meth:`PowerLimit.at`; 1 for a GPU of which no sustained times are known."""
    limit = _limits().get(gpu.name)
    return limit.at(compute_share) if limit else 1.0


def overheads(measured_tpot_ms: Mapping[int, float], planned_tpot_ms: Mapping[int, float]) -> dict[str, float]:
    """``step_overhead_us`` and ``token_overhead_us`` for :func:`serving_planner.hardware.local_machine`.

    Both by streams of a closed loop; ``planned_tpot_ms`` without overheads. What is measured beyond the plan is taken
    as a straight line in the number of streams, step + streams x token, through the two lightest loads (all of it the
    step's if there is one only); neither is below 0. :class:`UsageError` for a load that was not planned.
    """
    if not measured_tpot_ms or measured_tpot_ms.keys() - planned_tpot_ms.keys():
        raise UsageError("a load was measured and not planned, or none was measured", fix="plan the same loads")
    light = sorted(measured_tpot_ms)[:2]
    beyond = [1e3 * (measured_tpot_ms[streams] - planned_tpot_ms[streams]) for streams in light]
    token = max(0.0, (beyond[-1] - beyond[0]) / (light[1] - light[0])) if len(light) > 1 else 0.0
    return {"step_overhead_us": max(0.0, beyond[0] - light[0] * token), "token_overhead_us": token}
