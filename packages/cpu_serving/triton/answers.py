"""Builds the tensors of a tensorrt_llm response."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from cpu_serving.protocol import Output
from cpu_serving.triton.request import GenerationRequest

Logits = Callable[[Sequence[int]], np.ndarray]
"""Token ids -> float32 logits of every position, (T, vocabulary)."""


@dataclass
class SequenceState:
    """One sequence of an answer while it grows."""

    row: int
    index: int
    prompt: tuple[int, ...]
    token_ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    sent: int = 0
    done: bool = False

    def take(self, output: Output) -> None:
        self.token_ids += output.token_ids
        self.log_probs += output.log_probs
        self.done = bool(output.finish_reason)


def next_tensors(
    request: GenerationRequest, state: SequenceState, logits: Callable[[], Logits], *, placeholders: bool = False
) -> dict[str, np.ndarray] | None:
    """What to send now for this sequence; None while there is nothing to send.

    Streaming: the tokens since the last response. Else: once, when it is done, all tokens, behind the prompt unless
    the request excludes it. ``placeholders``: what was not asked for comes as zeros instead of not at all.
    Shapes have B = 1 and one beam; log-probabilities and generation logits cover new tokens.
    """
    new = state.token_ids[state.sent :]
    if (request.streaming and not new) or not (request.streaming or state.done):
        return None
    first = state.sent if request.streaming else 0
    shown = new if request.streaming or request.exclude_input else [*state.prompt, *state.token_ids]
    tensors: dict[str, np.ndarray] = {
        "output_ids": np.array([[shown]], np.int32),
        "sequence_length": np.array([[len(shown)]], np.int32),
        "batch_index": np.array([[state.row]], np.int32),
        "sequence_index": np.array([[state.index]], np.int32),
    }
    if request.log_probs:
        tensors["cum_log_probs"] = np.array([[sum(state.log_probs)]], np.float32)
        tensors["output_log_probs"] = np.array([[state.log_probs[first:]]], np.float32)
    if request.context_logits:
        tensors["context_logits"] = logits()(state.prompt)[None]
    if request.generation_logits:
        # Position i of the graph's output predicts token i + 1.
        ids = [*state.prompt, *state.token_ids][:-1] if state.token_ids else list(state.prompt)
        start = len(state.prompt) - 1 + first
        tensors["generation_logits"] = logits()(ids)[None, None, start : start + len(new)]
    if placeholders:
        # Behind the others: clients take the first output for output_ids.
        tensors |= {name: zeros for name, zeros in _placeholders(len(state.prompt)).items() if name not in tensors}
    if request.num_input_tokens:
        tensors["num_input_tokens"] = np.array([[len(state.prompt)]], np.int32)
    if request.num_output_tokens:
        tensors["num_output_tokens"] = np.array([[len(state.token_ids)]], np.int32)
    state.sent = len(state.token_ids)
    return tensors


def _placeholders(prompt_tokens: int) -> dict[str, np.ndarray]:
    """Zeros in the shapes that TensorRT-LLM's backend gave to outputs nobody asked for, up to 0.12."""
    shapes = {
        "cum_log_probs": (1, 1),
        "output_log_probs": (1, 1, prompt_tokens),
        "context_logits": (1, 1, 1),
        "generation_logits": (1, 1, 1, 1),
    }
    return {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
