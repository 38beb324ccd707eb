"""The tensors of tensorrt_llm: a request read, with what it refuses, and the response built."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

import numpy as np

from model_server.engines import Logits
from model_server.protocol import Output, Sampling
from serving_base.errors import RequestRefused

Tensors = Mapping[str, np.ndarray]
"""Input name -> array with the batch dimension first."""

NO_EFFECT = frozenset(
    {
        "pad_id",
        "decoder_input_ids",  # preprocessing always sends them; a decoder-only model has no use for them
        "decoder_input_lengths",
        "len_penalty",  # the next three steer beam search only
        "early_stopping",
        "beam_search_diversity_rate",
    }
)
READ = frozenset(
    {
        "input_ids",
        "input_lengths",
        "request_output_len",
        "end_id",
        "stop_words_list",
        "bad_words_list",
        "beam_width",
        "temperature",
        "runtime_top_k",
        "runtime_top_p",
        "repetition_penalty",
        "presence_penalty",
        "frequency_penalty",
        "min_length",
        "min_tokens",
        "random_seed",
        "seed",
        "num_return_sequences",
        "return_log_probs",
        "return_context_logits",
        "return_generation_logits",
        "return_kv_cache_reuse_stats",
        "return_perf_metrics",
        "return_num_input_tokens",
        "return_num_output_tokens",
        "exclude_input_in_output",
        "stop",
        "streaming",
    }
)
NEUTRAL = {"runtime_top_p_min": 1e-6, "runtime_top_p_decay": 1.0, "runtime_top_p_reset_ids": -1}
"""Values at which these inputs change nothing; others are refused."""
LORA = ("lora_task_id", "lora_weights", "lora_config")


@dataclass(frozen=True)
class GenerationRequest:
    """What one Triton request asks for. ``prompts`` and ``samplings`` have one entry per row of the batch."""

    prompts: tuple[tuple[int, ...], ...]
    samplings: tuple[Sampling, ...]
    streaming: bool
    exclude_input: bool
    log_probs: bool = False
    context_logits: bool = False
    generation_logits: bool = False
    num_input_tokens: bool = False
    num_output_tokens: bool = False


def is_stop(tensors: Tensors) -> bool:
    """A stop request: ends the running request of the same id. Its other tensors mean nothing."""
    return _flag(tensors, "stop")


def read_request(tensors: Tensors, *, decoupled: bool, exclude_input: bool) -> GenerationRequest:
    """Turn the tensors of one request into a :class:`GenerationRequest`.

    ``exclude_input`` is the model's parameter; the request's own flag beats it. :class:`RequestRefused` says what
    cannot be done, or makes no sense.
    """
    rows = len(tensors["input_ids"])
    streaming = _flag(tensors, "streaming")
    _refuse_unsupported(tensors)
    if streaming and not decoupled:
        raise RequestRefused("Streaming is only supported in decoupled mode.", fix="fill decoupled_mode with true")
    samplings = tuple(_sampling(tensors, row) for row in range(rows))
    answers = rows * max(sampling.num_return_sequences for sampling in samplings)
    if answers > 1 and not decoupled:
        raise RequestRefused(
            f"{rows} prompts and {answers} sequences need one response each, and this model gives one",
            fix="send one prompt and ask for one sequence, or fill decoupled_mode with true",
        )
    return GenerationRequest(
        prompts=tuple(_prompt(tensors, row) for row in range(rows)),
        samplings=samplings,
        streaming=streaming,
        exclude_input=_flag(tensors, "exclude_input_in_output", exclude_input),
        log_probs=_flag(tensors, "return_log_probs"),
        context_logits=_flag(tensors, "return_context_logits"),
        generation_logits=_flag(tensors, "return_generation_logits"),
        num_input_tokens=_flag(tensors, "return_num_input_tokens"),
        num_output_tokens=_flag(tensors, "return_num_output_tokens"),
    )


def _refuse_unsupported(tensors: Tensors) -> None:
    for name, value in tensors.items():
        if name in READ or name in NO_EFFECT or value.size == 0:
            continue
        if name in LORA:
            raise RequestRefused(
                f"the embedded engine has no LoRA adapters, and the request names one by {name}",
                why="its graph has no place where an adapter's product is added",
                fix="leave it out, or serve with trtllm-serve, LMI's vLLM image or vLLM",
            )
        if name not in NEUTRAL:
            raise RequestRefused(f"the embedded engine does not take {name}", fix="leave it out")
        if not np.allclose(value, NEUTRAL[name], rtol=1e-3):
            raise RequestRefused(f"the embedded engine takes {name} only as {NEUTRAL[name]}", fix="leave it out")
    beams = int(np.max(tensors["beam_width"])) if "beam_width" in tensors else 1
    if beams > 1:
        raise RequestRefused(f"beam_width is {beams} and this engine has no beam search", fix="send 1")
    for name in ("return_kv_cache_reuse_stats", "return_perf_metrics"):
        if _flag(tensors, name):
            raise RequestRefused(f"the embedded engine does not measure what {name} asks for", fix="leave it out")
    for name in ("min_length", "min_tokens"):
        if name in tensors and np.max(tensors[name]) > 1:
            raise RequestRefused(f"the embedded engine has no {name} above 1", fix="send end_id -1 for a fixed length")


def _prompt(tensors: Tensors, row: int) -> tuple[int, ...]:
    ids = tensors["input_ids"][row]  # [longest prompt], padded
    length = int(tensors["input_lengths"].reshape(-1)[row])
    if not 1 <= length <= len(ids):
        raise RequestRefused(
            f"input_lengths is {length} and input_ids holds {len(ids)} tokens", fix="send the number of prompt tokens"
        )
    return tuple(ids[:length].tolist())


def _sampling(tensors: Tensors, row: int) -> Sampling:
    def number(name: str, default: float) -> float:
        return float(tensors[name].reshape(-1)[row]) if name in tensors else default

    new_tokens = int(number("request_output_len", 0))
    if new_tokens < 1:
        raise RequestRefused(
            f"request_output_len is {new_tokens}",
            why="a number above 2147483647 wraps around to a negative one on its way through JSON",
            fix="ask for 1 or more new tokens",
        )
    if read_words(tensors.get("bad_words_list"), row):
        raise RequestRefused("the embedded engine has no bad words", fix="leave bad_words out, or empty")
    top_p = number("runtime_top_p", 0.0)
    top_k = int(number("runtime_top_k", 0))
    seed = number("random_seed", number("seed", 0))
    return Sampling(
        max_new_tokens=new_tokens,
        end_id=int(number("end_id", -1)),
        temperature=number("temperature", 1.0),
        # As in TensorRT-LLM: neither top_k nor top_p is greedy, top_k alone takes no account of top_p.
        top_k=1 if top_k == 0 and top_p == 0 else top_k,
        top_p=top_p or 1.0,
        seed=int(seed),
        repetition_penalty=number("repetition_penalty", 1.0),
        presence_penalty=number("presence_penalty", 0.0),
        frequency_penalty=number("frequency_penalty", 0.0),
        num_return_sequences=int(number("num_return_sequences", 1)),
        stop_words=read_words(tensors.get("stop_words_list"), row),
        log_probs=_flag(tensors, "return_log_probs"),
    )


def read_words(words: np.ndarray | None, row: int) -> tuple[tuple[int, ...], ...]:
    """Token sequences of one row of a word list [B, 2, n]: flat ids above, ends of the words below, padded with -1."""
    if words is None or words.size == 0:
        return ()
    ids, ends = words[row]  # each [n]
    bounds = [0, *(int(end) for end in ends if end > 0)]
    return tuple(tuple(ids[start:end].tolist()) for start, end in pairwise(bounds))


def _flag(tensors: Tensors, name: str, default: bool = False) -> bool:
    return bool(tensors[name].reshape(-1)[0]) if name in tensors else default


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
    Shapes have B = 1 and one beam; log-probabilities and generation logits cover new tokens. What is often the same is
    the same object, and not to be changed.
    """
    new = state.token_ids[state.sent :]
    if (request.streaming and not new) or not (request.streaming or state.done):
        return None
    first = state.sent if request.streaming else 0
    shown = new if request.streaming or request.exclude_input else [*state.prompt, *state.token_ids]
    tensors: dict[str, np.ndarray] = {
        "output_ids": np.array(shown, np.int32)[None, None],  # [B, beams, tokens]
        "sequence_length": _number(len(shown)),  # [B, beams]
        "batch_index": _number(state.row),
        "sequence_index": _number(state.index),
    }
    if request.log_probs:
        tensors["cum_log_probs"] = np.array([[sum(state.log_probs)]], np.float32)  # [B, beams]
        tensors["output_log_probs"] = np.array([[state.log_probs[first:]]], np.float32)  # [B, beams, new]
    if request.context_logits:
        tensors["context_logits"] = logits()(state.prompt)[None]  # [B, prompt, V]
    if request.generation_logits:
        # Position i of the graph's output predicts token i + 1.
        ids = [*state.prompt, *state.token_ids][:-1] if state.token_ids else list(state.prompt)
        start = len(state.prompt) - 1 + first
        tensors["generation_logits"] = logits()(ids)[None, None, start : start + len(new)]  # [B, beams, new, V]
    if placeholders:
        # Behind the others: clients take the first output for output_ids.
        for name, zeros in _placeholders(len(state.prompt)).items():
            tensors.setdefault(name, zeros)
    if request.num_input_tokens:
        tensors["num_input_tokens"] = _number(len(state.prompt))
    if request.num_output_tokens:
        tensors["num_output_tokens"] = _number(len(state.token_ids))
    state.sent = len(state.token_ids)
    return tensors


@lru_cache(maxsize=1024)
def _number(value: int) -> np.ndarray:
    """A tensor [1, 1], the same object for the same number."""
    return np.array([[value]], np.int32)


@lru_cache(maxsize=64)
def _placeholders(prompt_tokens: int) -> Tensors:
    """Zeros in the shapes that TensorRT-LLM's backend gave to outputs nobody asked for, up to 0.12."""
    shapes = {
        "cum_log_probs": (1, 1),
        "output_log_probs": (1, 1, prompt_tokens),
        "context_logits": (1, 1, 1),
        "generation_logits": (1, 1, 1, 1),
    }
    return {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
