"""The 16-bit model's answers and its perplexity: ``python3 reference_run.py JOB.json RESULT.json``.

It imports nothing of the playbook, so that the same file runs in this environment and, copied beside its job, in a
container of TensorRT-LLM, which has CUDA's PyTorch, transformers and accelerate. The job: ``model`` (folder),
``device_map`` (null: this process's CPU; "auto": over all GPUs), ``prompts`` and ``texts`` (lists of token ids) and
``max_new_tokens``. The result: ``answers`` (token ids without the prompt), ``mean_nll`` (nats per predicted token over
all texts), ``tokens`` (how many were predicted), ``bytes`` of the parameters, ``device``, ``torch``, ``transformers``.
"""

import json
import sys
from pathlib import Path
from typing import Any

WHY = (
    "transformers loads the 16-bit model over all GPUs (device_map=auto, which accelerate does), answers and scores: "
    "what quantized engines are compared with."
)


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Load the model once, answer every prompt greedily and score every text."""
    import torch
    import transformers

    version = tuple(int(part) for part in transformers.__version__.split(".")[:2])
    dtype = "dtype" if version >= (4, 56) else "torch_dtype"  # the old name is deprecated from 4.56 on
    options = {dtype: torch.bfloat16, "device_map": job["device_map"]}
    model = transformers.AutoModelForCausalLM.from_pretrained(job["model"], **options).eval()
    nll = [negative_log_likelihood(model, text) for text in job["texts"]]
    tokens = sum(len(text) - 1 for text in job["texts"])
    return {
        "answers": [answer(model, prompt, job["max_new_tokens"]) for prompt in job["prompts"]],
        "mean_nll": sum(nll) / tokens if tokens else None,
        "tokens": tokens,
        "bytes": sum(parameter.nbytes for parameter in model.parameters()),
        "device": str(model.device),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def answer(model: Any, prompt: list[int], max_new_tokens: int) -> list[int]:
    """The most probable token each time, up to the end token."""
    import torch

    ids = torch.tensor([prompt], device=model.device)
    out = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=max_new_tokens, do_sample=False, **NO_SAMPLING
    )
    return [int(token) for token in out[0, len(prompt) :]]


NO_SAMPLING: dict[str, Any] = {"temperature": None, "top_p": None}
"""Llama-3's generation_config.json sets both; greedy decoding would warn about them."""


def negative_log_likelihood(model: Any, ids: list[int]) -> float:
    """Sum over the text's tokens after the first of -log p(token | those before it), in nats."""
    import torch

    row = torch.tensor([ids], device=model.device)
    with torch.inference_mode():
        scores = model(input_ids=row[:, :-1], use_cache=False).logits[0].double().log_softmax(-1)
    targets = row[0, 1:].to(scores.device)
    return float(-scores.gather(1, targets[:, None]).sum())


def main() -> None:
    job, result = (Path(word) for word in sys.argv[1:3])
    found = run(json.loads(job.read_text(encoding="utf-8")))
    result.write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
