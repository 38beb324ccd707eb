"""What a user should know before believing a plan."""

from collections.abc import Sequence

from serving_planner.analysis.cost import price_of
from serving_planner.cost_model.laws import stand_in
from serving_planner.resolved import Asked
from serving_planner.simulator.result import Served

UNCERTAIN, NOTABLE = 0.02, 0.1
"""What runtime and activations may be wrong by, of the GPU's memory; the loss of KV cache that is worth a word."""


def warnings_of(asked: Asked, served: Sequence[Served]) -> tuple[str, ...]:
    """Everything that can be planned and may still surprise, the gravest first, each once."""
    each = "in each replica: " if asked.case.replicas > 1 else ""
    found = [
        *(f"{each}{warning}" for one in served for warning in one.warnings),
        *asked.case.warnings,
        *asked.memory.warnings,
        *_little_room(asked),
        *_other_tables(asked),
        *_over_pcie(asked),
        *_prompts_in_pieces(asked),
        *_price(asked),
    ]
    return tuple(dict.fromkeys(found))


def _little_room(asked: Asked) -> list[str]:
    """Where the cache is what a small error in the memory would double or halve."""
    gpu, memory = asked.case.hardware, asked.memory
    lost = UNCERTAIN * memory.gpu_bytes / max(1, memory.kv_cache_bytes)
    if lost < NOTABLE:
        return []
    return [
        f"the KV cache is what is left of {gpu.name}'s memory: an engine that needs {UNCERTAIN:.0%} more of it holds "
        f"{lost:.0%} fewer tokens"
    ]


def _other_tables(asked: Asked) -> list[str]:
    case = asked.case
    if case.hardware.measured:
        return [f"of {case.gpu} only bandwidth and FLOP/s were measured: what its kernels lose is assumed"]
    engine, gpu = stand_in(case.engine, case.hardware)
    if (engine, gpu) == (case.engine, case.gpu):
        return []
    return [
        f"no times of operations are known for {case.engine} on {case.gpu}: those of {engine} on {gpu} stand for them"
    ]


def _over_pcie(asked: Asked) -> list[str]:
    case = asked.case
    if case.tp <= 2 or "PCIe" not in case.hardware.link:
        return []
    return [
        f"TP {case.tp} over {case.hardware.link}: the all-reduces of the tables are slower than published throughput "
        "allows (docs/planner.md); expect better, and measure"
    ]


def _prompts_in_pieces(asked: Asked) -> list[str]:
    case = asked.case
    if case.isl <= case.max_num_tokens:
        return []
    return [
        f"max_num_tokens {case.max_num_tokens} is smaller than a prompt of {case.isl} tokens: chunked prefill "
        f"computes it in {-(-case.isl // case.max_num_tokens)} steps or more"
    ]


def _price(asked: Asked) -> list[str]:
    case = asked.case
    if case.instance is None or price_of(case) is not None:
        return []
    return [f"no price is known for {case.instance}: give usd_per_hour to see costs"]
