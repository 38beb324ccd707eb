"""One request inside the engine: its state, its settings for OpenVINO GenAI, and where its answers end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from cpu_serving.protocol import Completion, FinishReason, Output, Phase, Sampling


@dataclass
class Answer:
    """One returned sequence so far."""

    token_ids: list[int] = field(default_factory=list)
    finish_reason: FinishReason = ""


@dataclass
class Request:
    """A request that waits or runs; an answer for each returned sequence, and as many slots of the batch."""

    request_id: int
    prompt_ids: list[int]
    sampling: Sampling
    answers: list[Answer]
    handle: Any = None  # dropping it cancels the request in the pipeline
    tag: int = 0  # see admission.py
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


def take_tokens(request: Request, index: int, generated: Any) -> list[Output]:
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


def end_answers(request: Request, reason: FinishReason) -> list[Output]:
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


def join_outputs(outputs: Sequence[Output]) -> Completion:
    """All outputs of one sequence as one answer."""
    return Completion(
        tuple(token for output in outputs for token in output.token_ids),
        tuple(value for output in outputs for value in output.log_probs),
        outputs[-1].finish_reason,
    )
