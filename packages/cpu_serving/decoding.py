"""One request inside the engine: its state, its settings for OpenVINO GenAI, and where its answers end.

Also which waiting request may join the batch, and what keeps its cached blocks its own: OpenVINO GenAI's prefix cache
gives wrong answers in two cases (seen with 2026.4.1, docs/engine-reuse.md):

1. Two prompts that start from the same *partly filled* block both write their next tokens into it.
2. A block counts as filled from when it is allocated, so a prompt that is still being computed in chunks, or was
   dropped before its end, is read as if it were whole.

Against the first, token ids carry a tag that is part of the block's hash and that the graph takes off again: whole
blocks of prompts carry ``SHARED``, the rest of a prompt its own request's tag, generated tokens none. So only whole
blocks of prompts are ever found. Against the second, no request joins while a prompt is computed in part, nothing is
dropped before its prompt is computed, and a request joins only when the pool has blocks for all of its tokens, as in
TensorRT-LLM's GUARANTEED_NO_EVICT, so that none is preempted.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from cpu_serving.config import EngineConfig
from model_server.protocol import FinishReason, Output, Phase, Sampling


@dataclass
class ReturnedSequence:
    """One returned sequence so far."""

    token_ids: list[int] = field(default_factory=list)
    finish_reason: FinishReason = ""


@dataclass
class EngineRequest:
    """A request that waits or runs; an answer for each returned sequence, and as many slots of the batch."""

    request_id: int
    prompt_ids: list[int]
    sampling: Sampling
    answers: list[ReturnedSequence]
    handle: Any = None  # dropping it cancels the request in the pipeline
    tag: int = 0  # see tag_prompt
    prompt_state: Literal["new", "computing", "computed"] = "new"  # how much of it is in the KV cache

    @property
    def slots(self) -> int:
        return len(self.answers)

    @property
    def finished(self) -> bool:
        return all(answer.finish_reason for answer in self.answers)

    @property
    def phase(self) -> Phase:
        if self.finished:
            return "padding"
        return "generation" if any(answer.token_ids for answer in self.answers) else "context"


def generation_config(genai: Any, sampling: Sampling) -> Any:
    """``sampling`` as OpenVINO GenAI's ``GenerationConfig``. Stop words are not in it: they are token ids."""
    config = genai.GenerationConfig()
    config.max_new_tokens = sampling.max_new_tokens
    # OpenVINO GenAI wants some end token even when it must not stop at one.
    never_stop = sampling.end_id is None or sampling.end_id < 0
    config.ignore_eos = never_stop
    config.set_eos_token_id(0 if never_stop else sampling.end_id)
    config.logprobs = int(sampling.log_probs)
    config.repetition_penalty = sampling.repetition_penalty
    config.presence_penalty = sampling.presence_penalty
    config.frequency_penalty = sampling.frequency_penalty
    config.do_sample = not sampling.greedy
    if config.do_sample:
        config.num_return_sequences = sampling.num_return_sequences
        config.temperature = sampling.temperature
        config.top_p = sampling.top_p
        config.rng_seed = sampling.seed or 0
        config.top_k = sampling.top_k
    return config


def take_tokens(request: EngineRequest, index: int, generated: Any) -> list[Output]:
    """Move newly generated tokens into a sequence, up to its end token or stop word."""
    answer, sampling = request.answers[index], request.sampling
    if answer.finish_reason:
        return []
    kept: list[int] = []
    for token in generated.generated_ids:
        if token == sampling.end_id:
            answer.finish_reason = "end_id"
            break
        kept.append(token)
        answer.token_ids.append(token)
        if any(tuple(answer.token_ids[-len(word) :]) == word for word in sampling.stop_words):
            answer.finish_reason = "stop_words"
            break
    if not answer.finish_reason and generated.finish_reason.name == "LENGTH":
        answer.finish_reason = "length"
    log_probs = tuple(generated.generated_log_probs[: len(kept)]) if sampling.log_probs else ()
    return [Output(request.request_id, index, tuple(kept), log_probs, answer.finish_reason)]


def end_answers(request: EngineRequest, reason: FinishReason) -> list[Output]:
    """Finish every answer of a request that is still open; one empty output for each."""
    outputs = []
    for index, answer in enumerate(request.answers):
        if not answer.finish_reason:
            answer.finish_reason = reason
            outputs.append(Output(request.request_id, index, (), (), reason))
    return outputs


def count_tokens(outputs: Sequence[Output]) -> Mapping[int, int]:
    """New tokens of each request."""
    counts: dict[int, int] = {}
    for output in outputs:
        counts[output.request_id] = counts.get(output.request_id, 0) + len(output.token_ids)
    return counts


UNTAGGED = 0
SHARED = 1


def tag_prompt(prompt_ids: Sequence[int], tag: int, config: EngineConfig) -> list[int]:
    """Token ids with their tags: :data:`SHARED` on whole blocks, ``tag`` behind them.

    The last token is always behind them: it has to be computed, and never into a block that others read.
    """
    if tag == UNTAGGED:
        return list(prompt_ids)
    whole = (len(prompt_ids) - 1) // config.tokens_per_block * config.tokens_per_block
    tags = itertools.chain(itertools.repeat(SHARED, whole), itertools.repeat(tag))
    return [token + config.vocab_size * tag for token, tag in zip(prompt_ids, tags, strict=False)]


def choose_tag(request: EngineRequest, present: Iterable[EngineRequest]) -> int:
    """A tag that no request in the pipeline has. A repetition penalty needs the ids as they are: no tag."""
    if request.sampling.repetition_penalty != 1:
        return UNTAGGED
    taken = {other.tag for other in present}
    return next(tag for tag in itertools.count(SHARED + 1) if tag not in taken)


def may_join(
    request: EngineRequest, present: Sequence[EngineRequest], config: EngineConfig, kv_blocks: int, *, reuse: bool
) -> bool:
    """Whether ``request`` can run beside the requests that the pipeline holds. Alone it always can."""
    if not present:
        return True
    if sum(config.blocks_of(len(other.prompt_ids), other.sampling) for other in [*present, request]) > kv_blocks:
        return False
    return not reuse or (_blocks_are_whole(present) and _tag_is_free(request, present))


def _blocks_are_whole(present: Iterable[EngineRequest]) -> bool:
    """Blocks are looked up when a request joins: then nobody's prompt may be computed in part."""
    return all(other.prompt_state != "computing" for other in present)


def _tag_is_free(request: EngineRequest, present: Iterable[EngineRequest]) -> bool:
    """Requests without a tag would find each other's partly filled blocks: one at a time."""
    return request.sampling.repetition_penalty == 1 or all(other.tag != UNTAGGED for other in present)
