"""What one engine step has to compute: the word that the step model and the scheduler share."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Load:
    """The work of one forward pass of one replica (of one micro-batch where the pipeline is split).

    ``decode_sequences`` sequences get one token each and attend to ``decode_context_tokens`` keys in all, their own
    new token included. ``prefill_tokens`` prompt tokens are computed, attending causally to ``prefill_pairs``
    (query, key) pairs in all: a chunk of q tokens after d tokens already cached has q*d + q*(q+1)/2.
    ``prefill_sequences`` prompts end in this step; each makes one row for the output head.
    """

    decode_sequences: int = 0
    decode_context_tokens: int = 0
    prefill_tokens: int = 0
    prefill_pairs: float = 0.0
    prefill_sequences: int = 0
