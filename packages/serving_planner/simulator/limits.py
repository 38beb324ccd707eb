"""What bounds an engine: pages, tokens of a step, requests in flight; and the load at which it is saturated."""

from collections.abc import Callable
from dataclasses import dataclass

from serving_planner.cost_model.load import Load
from serving_planner.simulator.policy import Policy


@dataclass(frozen=True)
class Limits:
    """The settings of one replica.

    ``kv_capacity_tokens``: tokens that its KV cache holds. ``max_num_tokens``: tokens of one step. ``max_batch_size``:
    requests admitted at once. ``chunked``: whether a prompt may be computed in several steps. ``pp``: pipeline stages.
    """

    kv_capacity_tokens: int
    max_num_tokens: int = 8192
    max_batch_size: int = 2048
    chunked: bool = True
    pp: int = 1


def kv_concurrency(isl: float, osl: float, limits: Limits, policy: Policy) -> int:
    """Requests of those mean lengths (tokens) that the KV cache holds at once; one more has to wait.

    With ``reserve`` each takes the pages of prompt and output from the start. With ``on_demand`` it holds what it has
    so far, on average over its life the prompt and half of the output. Above this number throughput stays as it is
    and every further request in flight waits for somebody's end: TTFT grows by latency / this number for each of
    them, which at twice the number is a whole request's latency.
    """
    held = isl + (osl if policy.admission == "reserve" else osl / 2)
    pages = limits.kv_capacity_tokens // policy.block_tokens
    return int(pages / (held / policy.block_tokens + _rounding(policy)))


def _rounding(policy: Policy) -> float:
    """Pages that rounding up costs a request on average, its last page being filled to a random part."""
    return (policy.block_tokens - 1) / (2 * policy.block_tokens)


def saturation_requests_per_s(
    seconds: Callable[[Load], float], isl: float, osl: float, limits: Limits, policy: Policy
) -> float:
    """Requests/s of one replica that is never out of work: the rate at which an open loop's queue starts to grow.

    A request needs its share of osl - 1 decode steps, which it shares with as many others as memory and
    ``max_batch_size`` allow, and the time by which its prompt prolongs a step. ``seconds`` is the time of one stage;
    with ``pp`` micro-batches in flight every stage is busy, so a stage's time for one request bounds the rate; the
    bubbles between micro-batches that differ, some with prompts and some without, are not in it.
    """
    batch = max(1, min(kv_concurrency(isl, osl, limits, policy), limits.max_batch_size) // limits.pp)
    batch = min(batch, max(1, limits.max_num_tokens - 1))
    if policy.mixed and osl > 1:  # each step computes batch / (osl - 1) prompts beside its decode tokens
        batch = max(1, min(batch, int(limits.max_num_tokens / (1 + isl / (osl - 1)))))
    decode = Load(batch, int(batch * (isl + osl / 2)))
    prompts = (limits.max_num_tokens - (batch if policy.mixed else 0)) / isl
    prompts = float(int(prompts)) if prompts >= 1 else prompts  # a long one gets a step's share of it
    work = int(prompts * isl), prompts * isl * (isl + 1) / 2, int(prompts)
    if policy.mixed:
        both = Load(decode.decode_sequences, decode.decode_context_tokens, *work)
        prompt_s = (seconds(both) - seconds(decode)) / prompts
    else:
        prompt_s = seconds(Load(0, 0, *work)) / prompts
    return 1 / (max(0.0, osl - 1) * seconds(decode) / batch + prompt_s)
