"""What ``trtllm-bench throughput`` sets by itself, and how its run goes: all requests are queued at once.

The settings follow ``finetune_setting`` of NVIDIA/TensorRT-LLM ``tensorrt_llm/bench/build/tuning.py`` (@04cba882,
Apache-2.0; in 1.x ``tensorrt_llm/bench/tuning/heuristics.py``): from the requests of the given lengths that the KV
cache could hold, without activations and runtime, it chooses ``max_batch_size`` and ``max_num_tokens``.
"""

import math
from dataclasses import dataclass

from serving_planner.case import Case
from serving_planner.cost_model.memory import memory
from serving_planner.simulator.arrivals import closed_loop
from serving_planner.simulator.batching import ReplicaLimits, policy
from serving_planner.simulator.result import Served
from serving_planner.simulator.scheduler import simulate

BYTES = {"bf16": 2, "fp8": 1}
KV_FRACTION_ASSUMED = 0.95
MOST_REQUESTS, MOST_TOKENS = 4096, 32768
LEAST_BATCH, LEAST_TOKENS = 64, 2048


@dataclass(frozen=True)
class Settings:
    """Requests and tokens of one engine step."""

    max_batch_size: int
    max_num_tokens: int


def settings(case: Case) -> Settings:
    """What the benchmark chooses for the lengths of ``case``; its own ``max_batch_size`` and so on are not read.

    The weights count with all parameters in the precision of the linear layers, the memory with all that the driver
    shows: optimistic on purpose, since an engine admits by the pages that are truly free. Without chunked prefill a
    step has room for a whole prompt beside a full batch (``tensorrt_llm/bench/benchmark/utils/general.py``).
    """
    shape = case.shape
    heads = max(case.tp, shape.num_key_value_heads)
    per_token = 2 * shape.num_hidden_layers * heads * shape.head_dim * BYTES[case.kv]
    free = case.hardware.visible_bytes * case.world_size - shape.parameters * BYTES[case.weights]
    held = max(0.0, KV_FRACTION_ASSUMED * free / (per_token * (case.isl + case.osl)))
    batch = min(held, MOST_REQUESTS) / case.pp
    tokens = min(batch * (1 + case.isl / case.osl), MOST_TOKENS)
    batch_size = max(LEAST_BATCH, _up(batch, 32 if batch < 256 else 128 if batch < 1024 else 256))
    num_tokens = max(LEAST_TOKENS, _up(tokens, 256 if tokens < 4096 else 512 if tokens < 8192 else 1024))
    whole = 0 if case.chunked else case.isl + batch_size
    return Settings(max_batch_size=batch_size, max_num_tokens=max(num_tokens, whole))


def _up(value: float, step: int) -> int:
    return step * math.ceil(value / step)


def run(case: Case, requests: int) -> Served:
    """Serve ``requests`` of the nominal lengths as the benchmark does, ramp and drain included, shared by the replicas.

    What plans is imported here: the settings above are of use without it.
    """
    from serving_planner.replicas import resolve

    share = math.ceil(requests / case.replicas)
    limits = ReplicaLimits(
        kv_capacity_tokens=memory(case).kv_capacity_tokens,
        max_num_tokens=case.max_num_tokens,
        max_batch_size=case.max_batch_size,
        chunked=case.chunked,
        pp=case.pp,
    )
    load = closed_loop(share, case.isl, case.osl, ratio=case.length_ratio, seed=case.seed, requests=share)
    return simulate(resolve(case).model.seconds, load, limits, policy(case.engine))
