"""What an engine thinks of given texts: the log-probability of each token after those before it.

``python -m vllm_serving.score JOB.json RESULT.json`` in vLLM's interpreter. The job: ``model`` and ``args`` of the
engine, ``texts`` (lists of token ids). The result: for every text one natural logarithm per token after the first.
"""

from typing import Any

from vllm_serving.job import answer, asked


def scores(engine: Any, texts: list[list[int]]) -> list[list[float]]:
    """Log-probabilities, one list per text of ``len(text) - 1`` values."""
    from vllm import SamplingParams

    wanted = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=0, detokenize=False)
    answers = engine.generate([{"prompt_token_ids": ids} for ids in texts], wanted, use_tqdm=False)
    return [
        [float(position[token].logprob) for token, position in zip(ids[1:], answer.prompt_logprobs[1:], strict=True)]
        for ids, answer in zip(texts, answers, strict=True)
    ]


def main() -> None:
    from vllm import LLM

    job = asked()
    engine = LLM(model=job["model"], **job["args"])
    answer(scores(engine, job["texts"]))


if __name__ == "__main__":
    main()
