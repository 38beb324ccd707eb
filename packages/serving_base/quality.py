"""Quality of a language model, whatever runs it: perplexity, KL divergence, exact answers.

Every function takes ``logits``, a callable from token ids (list of int, length T) to a float32 array of shape
(T, vocabulary), so that a torch model, a quantized model and a compiled engine are measured by the same code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

Logits = Callable[[Sequence[int]], "np.ndarray"]


def windows(ids: Sequence[int], size: int = 256) -> Iterator[Sequence[int]]:
    """Cut ``ids`` into windows of ``size`` predictions: ``size + 1`` tokens, each window's last token reused."""
    for start in range(0, len(ids) - size, size):
        yield ids[start : start + size + 1]


def log_softmax(x: np.ndarray) -> np.ndarray:
    """Log of the softmax over the last axis, in float64."""
    import numpy as np

    x = x.astype(np.float64)
    x = x - x.max(-1, keepdims=True)
    return np.asarray(x - np.log(np.exp(x).sum(-1, keepdims=True)))


def perplexity(logits: Logits, texts: Iterable[Sequence[int]]) -> float:
    """exp of the mean negative log-likelihood per predicted token over ``texts`` (each a window of ids)."""
    import numpy as np

    losses = []
    for ids in texts:
        scores = log_softmax(logits(ids[:-1]))
        losses.append(-scores[np.arange(len(ids) - 1), np.asarray(ids[1:])])
    return float(np.exp(np.concatenate(losses).mean()))


def kl_divergence(reference: Logits, other: Logits, texts: Iterable[Sequence[int]]) -> float:
    """Mean KL(reference || other) in nats per predicted token, at the positions that :func:`perplexity` scores."""
    import numpy as np

    means = []
    for ids in texts:
        p, q = log_softmax(reference(ids[:-1])), log_softmax(other(ids[:-1]))
        means.append((np.exp(p) * (p - q)).sum(-1).mean())
    return float(np.mean(means))


def unigram_perplexity(train: Sequence[int], held: Sequence[int], vocabulary: int) -> float:
    """Perplexity of ``held`` under token frequencies of ``train`` with add-one smoothing: the baseline."""
    import numpy as np

    counts = Counter(train)
    total = len(train) + vocabulary
    return float(np.exp(-np.mean([np.log((counts[token] + 1) / total) for token in held])))


def torch_logits(model: Any) -> Logits:
    """Adapt a transformers causal language model."""
    import torch

    def logits(ids: Sequence[int]) -> np.ndarray:
        with torch.inference_mode():
            out = model(input_ids=torch.tensor([list(ids)], device=model.device), use_cache=False).logits[0]
        scores: np.ndarray = out.float().cpu().numpy()
        return scores

    return logits


def remembered(logits: Logits) -> Logits:
    """The same logits, each text computed once: for the reference that several models are compared with."""
    known: dict[tuple[int, ...], np.ndarray] = {}

    def look_up(ids: Sequence[int]) -> np.ndarray:
        key = tuple(ids)
        if key not in known:
            known[key] = logits(ids)
        return known[key]

    return look_up
