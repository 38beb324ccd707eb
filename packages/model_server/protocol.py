"""What goes into an engine and what comes out: plain data, standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from serving_base.errors import EngineError
from serving_base.measures import Phase as Phase
from serving_base.measures import StepRecord as StepRecord

Batching = Literal["inflight", "static"]
FinishReason = Literal["", "end_id", "length", "stop_words", "cancelled", "refused"]


class EngineHung(EngineError):
    """What computes brought nothing for too long and was ended: its requests are dropped, and others may come."""


@dataclass(frozen=True)
class Sampling:
    """How one request is decoded; names and meanings as in TensorRT-LLM's ``SamplingConfig``.

    ``end_id`` None or -1: never stop early. ``top_k`` 1 is greedy, 0 is all tokens; ``top_k`` 0 with ``top_p`` 0, or
    ``temperature`` 0, is greedy too. ``seed`` None is 0, TensorRT-LLM's default: equal requests get equal answers.
    ``stop_words`` are sequences of token ids; see :class:`Output` for what is kept.
    """

    max_new_tokens: int
    end_id: int | None = None
    temperature: float = 1.0
    top_k: int = 1
    top_p: float = 1.0
    seed: int | None = None
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    num_return_sequences: int = 1
    stop_words: tuple[tuple[int, ...], ...] = ()
    log_probs: bool = False

    @property
    def greedy(self) -> bool:
        return self.top_k == 1 or self.temperature == 0 or (self.top_k == 0 and self.top_p == 0)

    def check(self) -> None:
        """Raise :class:`EngineError` when a value makes no sense."""
        problems = [
            (self.max_new_tokens < 1, f"max_new_tokens is {self.max_new_tokens}", "ask for at least 1 new token"),
            (self.temperature < 0, f"temperature is {self.temperature}", "use 0 or more"),
            (self.top_k < 0, f"top_k is {self.top_k}", "use 1 for greedy, 0 for all tokens, or more"),
            (not 0 <= self.top_p <= 1, f"top_p is {self.top_p}", "use a probability from 0 to 1"),
            (
                not self.greedy and self.top_p == 0,
                "top_p is 0 with top_k above 1",
                "use top_k 1 for greedy, or top_p above 0",
            ),
            (self.repetition_penalty <= 0, f"repetition_penalty is {self.repetition_penalty}", "use more than 0"),
            (
                not -2 <= self.presence_penalty <= 2 or not -2 <= self.frequency_penalty <= 2,
                f"presence_penalty is {self.presence_penalty}, frequency_penalty is {self.frequency_penalty}",
                "use values from -2 to 2",
            ),
            (self.seed is not None and self.seed < 0, f"seed is {self.seed}", "use 0 or more"),
            (
                self.num_return_sequences < 1,
                f"num_return_sequences is {self.num_return_sequences}",
                "ask for at least 1 sequence",
            ),
            (not all(self.stop_words), "a stop word has no tokens", "leave empty stop words out"),
        ]
        for wrong, what, fix in problems:
            if wrong:
                raise EngineError(f"request refused: {what}", fix=fix)


class Output(NamedTuple):
    """New tokens of one sequence of a request, from one engine step. One for each token: hence a tuple, quickly made.

    ``token_ids`` never holds ``end_id`` and does hold a stop word's own tokens, as TensorRT-LLM answers (its sampling
    kernels do not count the end token: "Seq len should always contain only tokens to be outputted"). So the last
    output of a sequence may be empty. ``log_probs``, if asked for: natural logarithm of each token's probability.
    """

    request_id: int
    sequence_index: int
    token_ids: tuple[int, ...]
    log_probs: tuple[float, ...] = ()
    finish_reason: FinishReason = ""


@dataclass(frozen=True)
class Completion:
    """One whole answer, of the tokens of :class:`Output`."""

    token_ids: tuple[int, ...]
    log_probs: tuple[float, ...]
    finish_reason: FinishReason


@dataclass(frozen=True)
class EngineStats:
    """Where the engine stands. Blocks are KV cache blocks of ``tokens_per_block`` tokens."""

    active: int
    waiting: int
    scheduled: int
    context: int
    generation: int
    max_active: int
    kv_blocks_max: int
    kv_blocks_used: int
    kv_blocks_free: int
    tokens_per_block: int
    steps: int


@dataclass(frozen=True)
class EngineLimits:
    """What an engine can take; lengths in tokens, blocks of ``tokens_per_block`` tokens of the KV cache.

    ``max_num_tokens``: tokens of all requests together in one step. ``max_seq_len``: prompt and answer together.
    """

    max_batch_size: int
    max_num_tokens: int
    max_input_len: int
    max_seq_len: int
    tokens_per_block: int

    def blocks_of(self, prompt_tokens: int, sampling: Sampling) -> int:
        """KV cache blocks that a request fills when every sequence gets all of its tokens, none of them shared."""
        per_sequence = -(-(prompt_tokens + sampling.max_new_tokens) // self.tokens_per_block)
        return sampling.num_return_sequences * per_sequence

    def check_fits(self, prompt_tokens: int, sampling: Sampling, kv_blocks: int) -> None:
        """Raise :class:`EngineError` when a request can never run in this engine with ``kv_blocks`` cache blocks."""
        new, sequences = sampling.max_new_tokens, sampling.num_return_sequences
        blocks = self.blocks_of(prompt_tokens, sampling)
        limits = [
            (prompt_tokens < 1, "the prompt is empty", "send at least one token"),
            (
                prompt_tokens > self.max_input_len,
                f"prompt of {prompt_tokens} tokens exceeds max_input_len {self.max_input_len}",
                "shorten the prompt, or build the engine with a larger max_input_len",
            ),
            (
                prompt_tokens + new > self.max_seq_len,
                f"prompt of {prompt_tokens} tokens and {new} new tokens exceed max_seq_len {self.max_seq_len}",
                "ask for fewer new tokens, or build the engine with a larger max_seq_len",
            ),
            (
                sequences > self.max_batch_size,
                f"{sequences} sequences exceed max_batch_size {self.max_batch_size}",
                "ask for fewer sequences, or build the engine with a larger max_batch_size",
            ),
            (
                blocks > kv_blocks,
                f"{blocks} KV cache blocks are needed, {kv_blocks} exist",
                "ask for fewer tokens, or load the engine with more kv_cache_blocks",
            ),
        ]
        for wrong, what, fix in limits:
            if wrong:
                raise EngineError(f"request refused: {what}", fix=fix)
