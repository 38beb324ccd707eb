"""Which waiting request may join the batch, and what keeps its cached blocks its own.

OpenVINO GenAI's prefix cache gives wrong answers in two cases (seen with 2026.4.1, docs/engine-reuse.md):

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
from collections.abc import Iterable, Sequence

from cpu_serving.decoding import Request
from cpu_serving.protocol import EngineConfig

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


def choose_tag(request: Request, present: Iterable[Request]) -> int:
    """A tag that no request in the pipeline has. A repetition penalty needs the ids as they are: no tag."""
    if request.sampling.repetition_penalty != 1:
        return UNTAGGED
    taken = {other.tag for other in present}
    return next(tag for tag in itertools.count(SHARED + 1) if tag not in taken)


def may_join(
    request: Request, present: Sequence[Request], config: EngineConfig, kv_blocks: int, *, reuse: bool
) -> bool:
    """Whether ``request`` can run beside the requests that the pipeline holds. Alone it always can."""
    if not present:
        return True
    if sum(config.blocks_of(len(other.prompt_ids), other.sampling) for other in [*present, request]) > kv_blocks:
        return False
    return not reuse or (_blocks_are_whole(present) and _tag_is_free(request, present))


def _blocks_are_whole(present: Iterable[Request]) -> bool:
    """Blocks are looked up when a request joins: then nobody's prompt may be computed in part."""
    return all(other.prompt_state != "computing" for other in present)


def _tag_is_free(request: Request, present: Iterable[Request]) -> bool:
    """Requests without a tag would find each other's partly filled blocks: one at a time."""
    return request.sampling.repetition_penalty == 1 or all(other.tag != UNTAGGED for other in present)
