"""What goes into the next step: decoding sequences, prompts, pages; the admission rules of the engines.

The rules are those of TensorRT-LLM's PyTorch flow and of vLLM V1 (``data/policies.yml`` has the sources): the
decoding sequences get their token first, then prompts fill the step up to ``max_num_tokens``, first come first
served. Where prompts have steps of their own (SGLang) they come first and the decoding sequences wait.

:class:`Policy` is that data, :class:`ReplicaLimits` what bounds one engine: pages, tokens of a step, requests in
flight; from both follows the load at which it is saturated.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import Literal

from pydantic import Field

from serving_base.errors import UsageError
from serving_base.record import Record
from serving_base.yaml_files import read_yaml
from serving_planner.cost_model.step import StepLoad
from serving_planner.simulator.arrivals import Workload
from serving_planner.simulator.micro_batch import MicroBatch, Pool, Sequence, blocks

POLICIES_FILE = Path(__file__).parents[1] / "data" / "policies.yml"


class Policy(Record):
    """The scheduler of one engine.

    ``admission``: ``reserve`` takes the pages of the whole request when it is admitted, so nothing is ever evicted
    (TensorRT-LLM's GUARANTEED_NO_EVICT); ``on_demand`` takes pages as tokens come, and when they run out the request
    admitted last gives up its pages and is computed again (vLLM; TensorRT-LLM's MAX_UTILIZATION). ``fits``: what must
    be free for an admission on demand, the first ``chunk`` or the whole ``request``. ``block_tokens``: tokens of a
    page. ``overlap``: a step is decided when the one before it starts. ``mixed``: prompts share steps with decoding.
    """

    admission: Literal["reserve", "on_demand"]
    fits: Literal["chunk", "request"] = "request"
    block_tokens: int = Field(default=16, ge=1)
    overlap: bool = True
    mixed: bool = True
    sources: dict[str, str] = Field(default_factory=dict)


class ClientOverhead(Record):
    """Time outside the engine, in seconds.

    ``send_s`` and ``send_s_per_prompt_token``: from a client's send until the engine's scheduler can see the request
    (HTTP, tokenizer, queue). ``receive_s``: from the end of a step until its token is at the client. ``spacing_s``:
    between two sends of the burst that opens a closed loop.
    """

    send_s: float = Field(default=0.0, ge=0)
    send_s_per_prompt_token: float = Field(default=0.0, ge=0)
    receive_s: float = Field(default=0.0, ge=0)
    spacing_s: float = Field(default=0.0, ge=0)
    sources: dict[str, str] = Field(default_factory=dict)


@cache
def policy(engine: str) -> Policy:
    """The scheduler of ``tensorrt-llm``, ``vllm`` or ``sglang``. :class:`UsageError` for any other name."""
    content = read_yaml(POLICIES_FILE)
    known = [name for name in content if name != "client"]
    if engine not in known:
        raise UsageError(
            f"unknown engine {engine!r}", why=f"the planner knows {', '.join(known)}", fix=f"use {known[0]}"
        )
    return Policy.model_validate(content[engine])


@cache
def client() -> ClientOverhead:
    """The client and the web server that are assumed where nobody measured them."""
    return ClientOverhead.model_validate(read_yaml(POLICIES_FILE)["client"])


@dataclass(frozen=True)
class ReplicaLimits:
    """The settings of one replica.

    ``kv_capacity_tokens``: tokens that its KV cache holds. ``max_num_tokens``: tokens of one step. ``max_batch_size``:
    requests admitted at once. ``chunked``: whether a prompt may be computed in several steps. ``pp``: pipeline stages.
    """

    kv_capacity_tokens: int
    max_num_tokens: int = 8192
    max_batch_size: int = 2048
    chunked: bool = True
    pp: int = 1


def kv_concurrency(isl: float, osl: float, limits: ReplicaLimits, policy: Policy) -> int:
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
    seconds: Callable[[StepLoad], float], isl: float, osl: float, limits: ReplicaLimits, policy: Policy
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
    decode = StepLoad(batch, int(batch * (isl + osl / 2)))
    prompts = (limits.max_num_tokens - (batch if policy.mixed else 0)) / isl
    prompts = float(int(prompts)) if prompts >= 1 else prompts  # a long one gets a step's share of it
    work = int(prompts * isl), prompts * isl * (isl + 1) / 2, int(prompts)
    if policy.mixed:
        both = StepLoad(decode.decode_sequences, decode.decode_context_tokens, *work)
        prompt_s = (seconds(both) - seconds(decode)) / prompts
    else:
        prompt_s = seconds(StepLoad(0, 0, *work)) / prompts
    return 1 / (max(0.0, osl - 1) * seconds(decode) / batch + prompt_s)


def refuse_the_impossible(workload: Workload, limits: ReplicaLimits, policy: Policy) -> None:
    """:class:`UsageError` for a workload with a request that can never run, or with no or two laws of sending."""
    if (workload.concurrency is None) == (workload.send_s is None):
        raise UsageError(
            "a workload is a closed loop or an open one", why="both or neither were given", fix="give one of them"
        )
    pages = limits.kv_capacity_tokens // policy.block_tokens
    for item in workload.lengths:
        if blocks(item.prompt + item.output, policy.block_tokens) > pages:
            raise UsageError(
                f"a request of {item.prompt} + {item.output} tokens does not fit the KV cache",
                why=f"it holds {pages} pages of {policy.block_tokens} tokens",
                fix=f"keep isl + osl at {pages * policy.block_tokens} tokens or fewer, or give the cache more memory",
            )
        if not limits.chunked and item.prompt > limits.max_num_tokens:
            raise UsageError(
                f"a prompt of {item.prompt} tokens never fits a step of {limits.max_num_tokens}",
                why="without chunked prefill a prompt is computed in one step",
                fix=f"set max_num_tokens to {item.prompt} or more, or use chunked prefill",
            )


class StepBatcher:
    """Admits requests, hands out pages and forms steps. It has no clock: the simulation tells it the time."""

    def __init__(self, limits: ReplicaLimits, policy: Policy) -> None:
        self.limits, self.policy = limits, policy
        self.on_demand = policy.admission == "on_demand"
        self.pool = Pool(limits.kv_capacity_tokens, policy.block_tokens)
        self.most_running = min(limits.max_batch_size, limits.max_num_tokens)  # each decodes a token in a step
        self.waiting: deque[Sequence] = deque()
        self.running = 0
        self.preemptions = 0
        self.recomputed_tokens = 0
        self._tickets = count()

    def micro_batch(self) -> MicroBatch:
        """An empty one that uses these pages."""
        return MicroBatch(self.pool, self._tickets, on_demand=self.on_demand)

    def free(self, sequences: Iterable[Sequence]) -> None:
        """Take back the pages and the places of sequences that have ended."""
        for sequence in sequences:
            self.pool.used -= sequence.held
            self.running -= 1

    def compose(self, batch: MicroBatch, now_s: float) -> StepLoad | None:
        """The next step of ``batch``, launched at ``now_s``; None if it has nothing to compute."""
        most, pages, preempted = self.limits.max_num_tokens, 0, self.preemptions
        if self.policy.mixed:
            pages = self.make_room(batch, now_s)
            admit = self.preemptions == preempted or not batch.size
            tokens, pairs, ended = self._prompts(batch, most - batch.count, pages, now_s, admit=admit)
        else:
            tokens, pairs, ended = self._prompts(batch, most, 0, now_s, admit=True)
            if not tokens:
                pages = self.make_room(batch, now_s)
        batch.decoded = batch.count > 0 and (self.policy.mixed or not tokens)
        if not batch.decoded and not tokens:
            return None
        decode = batch.decode_load() if batch.decoded else StepLoad()
        if batch.decoded or self.policy.mixed:
            self.pool.take(pages)
            batch.advance(1)
        for sequence in ended:
            batch.join(sequence)
        if not tokens:
            return decode
        return StepLoad(decode.decode_sequences, decode.decode_context_tokens, tokens, pairs, len(ended))

    def make_room(self, batch: MicroBatch, now_s: float) -> int:
        """Preempt until the decoding sequences have a page for their next token; the pages that they take then."""
        if not self.on_demand:
            return 0
        while (pages := batch.growth(batch.tick + 1, 1)) > self.pool.free:
            self._preempt(batch, now_s)
        return pages

    def _preempt(self, batch: MicroBatch, now_s: float) -> None:
        sequence, lost = batch.preempt_last()
        sequence.queued_s = now_s
        self.waiting.appendleft(sequence)
        self.running -= 1
        self.preemptions += 1
        self.recomputed_tokens += lost

    def _prompts(
        self, batch: MicroBatch, budget: int, promised: int, now_s: float, *, admit: bool
    ) -> tuple[int, float, list[Sequence]]:
        """Prompt tokens of this step, their (query, key) pairs, and the prompts that end in it.

        ``promised``: pages that the decoding sequences take in the same step.
        """
        tokens, pairs = 0, 0.0
        ended: list[Sequence] = []
        while batch.partial and tokens < budget:
            sequence = batch.partial[0]
            chunk = min(sequence.goal - sequence.cached, budget - tokens)
            if self.on_demand:
                more = blocks(sequence.cached + chunk, self.pool.block_tokens) - sequence.held
                if more > self.pool.free - promised:
                    self._preempt(batch, now_s)
                    return tokens, pairs, ended
                self._hold(sequence, more)
            pairs += chunk_pairs(sequence.cached, chunk)
            tokens += chunk
            sequence.cached += chunk
            if sequence.cached < sequence.goal:
                return tokens, pairs, ended
            ended.append(batch.partial.popleft())
        while admit and (chunk := self._next_chunk(batch, budget - tokens, promised, alone=not tokens)):
            sequence = self.waiting.popleft()
            self.running += 1
            self._hold(sequence, self._pages(sequence, chunk)[0])
            sequence.waited_s += max(0.0, now_s - sequence.queued_s)
            pairs += chunk_pairs(0, chunk)
            tokens += chunk
            sequence.cached = chunk
            (ended if chunk == sequence.goal else batch.partial).append(sequence)
        return tokens, pairs, ended

    def admits(self, batch: MicroBatch) -> bool:
        """Whether the next step of ``batch`` takes a prompt that waits, if nobody has to make room in it."""
        most, promised = self.limits.max_num_tokens, 0
        if self.policy.mixed:
            most, promised = most - batch.count, batch.growth(batch.tick + 1, 1) if self.on_demand else 0
        return self._next_chunk(batch, most, promised, alone=True) > 0

    def _next_chunk(self, batch: MicroBatch, room: int, promised: int, *, alone: bool) -> int:
        """Tokens of the first prompt that waits which a step with room for so many takes; 0 if it has to wait on.

        ``alone``: the step has no other prompt.
        """
        if not self.waiting or room <= 0 or self.running >= self.most_running:
            return 0
        sequence = self.waiting[0]
        chunk = min(sequence.goal, room)
        if chunk < sequence.goal and not self.limits.chunked:
            if batch.count or not alone or sequence.goal <= self.limits.max_num_tokens:
                return 0
            chunk = sequence.goal  # has grown beyond a step since it was preempted: it goes alone
        return chunk if self._pages(sequence, chunk)[1] <= self.pool.free - promised else 0

    def _pages(self, sequence: Sequence, chunk: int) -> tuple[int, int]:
        """Pages that an admission takes now, and those that must be free for it."""
        whole = blocks(sequence.prompt + sequence.output, self.pool.block_tokens)
        if not self.on_demand:
            return whole, whole
        now = blocks(chunk, self.pool.block_tokens)
        return now, whole if self.policy.fits == "request" else now

    def _hold(self, sequence: Sequence, pages: int) -> None:
        sequence.held += pages
        self.pool.take(pages)


def chunk_pairs(cached: int, chunk: int) -> float:
    """(query, key) pairs of ``chunk`` tokens that follow ``cached`` ones, causally."""
    return chunk * cached + chunk * (chunk + 1) / 2
