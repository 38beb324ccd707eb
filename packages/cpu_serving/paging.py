"""What a paged KV cache does to requests: prompts in chunks, prefixes computed once, a pool that is too small.

The embedded engine answers with the tiny model, and everything is counted in steps, tokens and blocks: the counts are
the same on every machine, and seconds are not looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from cpu_serving.build import TOKENS_PER_BLOCK, BuildOptions, build_engine
from cpu_serving.engine import Engine
from model_server.protocol import Sampling
from serving_base.errors import EngineError
from tiny_llama import MODEL_DIR

LONGEST_PROMPT = 512
LONGEST = 1024
SLOTS = 8


@dataclass(frozen=True)
class Ask:
    """A request: its prompt, the tokens it wants, and the steps before it arrives (fewer where the engine is idle)."""

    name: str
    prompt_ids: Sequence[int]
    new_tokens: int
    at_step: int = 0


@dataclass(frozen=True)
class Played:
    """What happened. ``first_token``: steps from arrival to the first token, that step included.

    ``token_steps``: in which step each token of a request came. ``waiting``, ``blocks``: requests in the queue and
    blocks in use, after each step.
    """

    steps: int
    first_token: Mapping[str, int]
    token_steps: Mapping[str, tuple[int, ...]]
    answers: Mapping[str, tuple[int, ...]]
    waiting: tuple[int, ...]
    blocks: tuple[int, ...]

    def queue(self) -> tuple[list[int], list[int]]:
        """Steps and how many requests waited after them, where that number begins and ends; for a line."""
        last = len(self.waiting) - 1
        corners = [
            index
            for index, count in enumerate(self.waiting)
            if index in (0, last) or count != self.waiting[index - 1] or count != self.waiting[index + 1]
        ]
        return [index + 1 for index in corners], [self.waiting[index] for index in corners]

    def tokens_between(self, name: str, first: int, last: int) -> int:
        """Tokens that ``name`` got in the steps ``first`` to ``last``, both included."""
        return sum(first <= step <= last for step in self.token_steps[name])

    def paused(self) -> dict[str, int]:
        """Requests that were paused once their answer had begun, and for how many steps in all."""
        gaps = {name: steps[-1] - steps[0] + 1 - len(steps) for name, steps in self.token_steps.items()}
        return {name: steps for name, steps in gaps.items() if steps > 0}


class CacheLaboratory:
    """Engines of the tiny model, built when they are first wanted, in a folder that :meth:`close` removes."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="cache-laboratory-")

    tokens_per_block = TOKENS_PER_BLOCK

    def _engine(self, step_tokens: int, slots: int) -> Path:
        folder = Path(self._folder.name) / f"step-{step_tokens}-slots-{slots}"
        if not folder.exists():
            limits = BuildOptions(
                max_batch_size=slots, max_num_tokens=step_tokens, max_input_len=LONGEST_PROMPT, max_seq_len=LONGEST
            )
            build_engine(MODEL_DIR, folder, limits)
        return folder

    def play(
        self,
        asks: Sequence[Ask],
        *,
        step_tokens: int = LONGEST_PROMPT,
        slots: int = SLOTS,
        blocks: int = 0,
        reuse: bool = False,
        may_pause: bool = False,
    ) -> Played:
        """Answer ``asks`` greedily.

        ``step_tokens``: the most tokens of one step (``max_num_tokens``); a longer prompt is read in chunks.
        ``slots``: the most requests of one step (``max_batch_size``). ``blocks``: of the pool; 0 is enough for all.
        ``reuse``: prompts start from blocks of earlier prompts. ``may_pause``: a request starts though the pool may
        get full; then one is paused.
        """
        folder = self._engine(step_tokens, slots)
        with Engine(folder, threads=1, kv_cache_blocks=blocks, enable_block_reuse=reuse, may_pause=may_pause) as engine:
            return _play(engine, asks)

    def close(self) -> None:
        self._folder.cleanup()


def _play(engine: Engine, asks: Sequence[Ask]) -> Played:
    if len({ask.name for ask in asks}) < len(asks):
        raise EngineError("two requests have one name", fix="give each request a name of its own")
    later = sorted(enumerate(asks), key=lambda item: item[1].at_step)
    token_steps: dict[str, list[int]] = {ask.name: [] for ask in asks}
    answers: dict[str, list[int]] = {ask.name: [] for ask in asks}
    arrived: dict[str, int] = {}
    waiting, blocks, step = [], [], 0
    while later or engine.has_work:
        while later and (later[0][1].at_step <= step or not engine.has_work):
            number, ask = later.pop(0)
            engine.submit(number, ask.prompt_ids, Sampling(ask.new_tokens))
            arrived[ask.name] = step
        step += 1
        for output in engine.step():
            name = asks[output.request_id].name
            token_steps[name] += [step] * len(output.token_ids)
            answers[name] += output.token_ids
        stats = engine.stats()
        waiting.append(stats.waiting)
        blocks.append(stats.kv_blocks_used)
    return Played(
        steps=step,
        first_token={name: token_steps[name][0] - before for name, before in arrived.items()},
        token_steps={name: tuple(steps) for name, steps in token_steps.items()},
        answers={name: tuple(ids) for name, ids in answers.items()},
        waiting=tuple(waiting),
        blocks=tuple(blocks),
    )


def prompt(length: int, seed: int) -> list[int]:
    """Token ids that look like no other ``seed``'s; for counting, not for reading."""
    return [3 + (seed * 131 + place * 17) % 1900 for place in range(length)]
