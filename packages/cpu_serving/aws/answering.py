"""Turns the engine's outputs for one request into the tokens of an :class:`Answer`."""

from collections.abc import Iterator

from cpu_serving.aws.lmi import Answer, Token
from cpu_serving.protocol import Output
from cpu_serving.text import Detokenizer, TextCodec

ERROR_TOKEN = Token(-1, "", -1.0)


class AnswerBuilder:
    """Collects one answer. ``stop``: texts that end it; they stay in it, as TensorRT-LLM leaves them in."""

    def __init__(self, tokenizer: TextCodec, prompt_tokens: int, stop: tuple[str, ...] = ()) -> None:
        self.answer = Answer(prompt_tokens)
        self._end_ids = tokenizer.end_ids
        self._detokenizer = Detokenizer(tokenizer)
        self._stop = stop

    def take(self, output: Output) -> Iterator[Token]:
        """The new tokens, one by one; before the last one comes, the answer has its finish reason.

        Nothing comes after a stop sequence: whoever reads has to cancel the request.
        """
        if output.finish_reason in ("refused", "cancelled"):
            yield self.fail(f"the engine gave the request up: {output.finish_reason}")
        elif output.finish_reason and not output.token_ids:
            yield self.fail(f"the engine ended the answer without a token: {output.finish_reason}")
        for number, (token_id, log_prob) in enumerate(zip(output.token_ids, output.log_probs, strict=True), start=1):
            ends = token_id in self._end_ids
            final = bool(output.finish_reason) and number == len(output.token_ids)
            token = Token(token_id, self._detokenizer.add(token_id, last=final), log_prob)
            self.answer.tokens.append(token)
            if final:
                self.answer.finish_reason = "eos_token" if ends else "length"
            elif self._stop and any(word in self.answer.text for word in self._stop):
                self.answer.finish_reason = "stop_sequence"
            yield token
            if self.answer.finish_reason:
                return

    def fail(self, reason: str) -> Token:
        """End the answer with an error; returns what stands for its last token."""
        self.answer.finish_reason, self.answer.error = "error", reason
        return ERROR_TOKEN
