"""A Llama-3 of the real architecture with random weights, for machines that cannot reach a hub: speed and bytes only.

``python -m vllm_serving.random_model JOB.json RESULT.json`` in an interpreter with PyTorch and transformers. The job:
``config`` (fields of LlamaConfig), ``out``, ``answerable`` (token ids that it may answer with), ``device``.

Matrices are N(0, 0.02), norms 1. Rows of ``lm_head`` are zero for all tokens but the answerable ones, so that every
answer is text that the tokenizer reads back as the same tokens, and none ends before its limit.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vllm_serving.job import answer, asked

SHARD_BYTES = 2 << 30
STD = 0.02


def answerable_ids(vocabulary: Mapping[str, int], space: str = "\u0120") -> list[int]:
    """Ids of the whole words of a byte-level BPE: a space (written ``space``) and letters, the same when read back."""
    words = {number: token for token, number in vocabulary.items()}
    return sorted(number for number, token in words.items() if token.startswith(space) and token[1:].isalpha())


def random_llama(config: dict[str, Any], answerable: list[int], device: str) -> Any:
    """A LlamaForCausalLM in BF16."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    # a word instead of the type breaks modelopt's export: "Invalid device string: 'bfloat16'"
    settings = LlamaConfig(architectures=["LlamaForCausalLM"], dtype=torch.bfloat16, **config)
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(device):
            model = LlamaForCausalLM(settings).eval()
    finally:
        torch.set_default_dtype(before)
    with torch.no_grad():
        for tensor in model.parameters():
            if tensor.dim() == 2:
                tensor.normal_(0, STD)
        silent = torch.ones(settings.vocab_size, dtype=torch.bool, device=device)
        silent[answerable] = False
        model.lm_head.weight[silent] = 0
    return model


def save(model: Any, folder: Path) -> None:
    """As ``save_pretrained`` does, with the shards written side by side: 16 GB in a third of its time."""
    from concurrent.futures import ThreadPoolExecutor

    from safetensors.torch import save_file

    shards: list[dict[str, Any]] = [{}]
    room = SHARD_BYTES
    for name, tensor in model.state_dict().items():
        if shards[-1] and tensor.nbytes > room:
            shards.append({})
            room = SHARD_BYTES
        shards[-1][name] = tensor
        room -= tensor.nbytes
    names = [f"model-{number:05}-of-{len(shards):05}.safetensors" for number in range(1, len(shards) + 1)]

    def write(file: str, shard: dict[str, Any]) -> None:
        cpu = {name: tensor.cpu().contiguous() for name, tensor in shard.items()}
        save_file(cpu, folder / file, {"format": "pt"})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, names, shards))
    where = {name: file for file, shard in zip(names, shards, strict=True) for name in shard}
    total = sum(tensor.nbytes for tensor in model.state_dict().values())
    index = {"metadata": {"total_size": total}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    model.config.save_pretrained(folder)


def main() -> None:
    job = asked()
    model = random_llama(job["config"], job["answerable"], job["device"])
    save(model, Path(job["out"]))
    answer({"parameters": sum(p.numel() for p in model.parameters())})


if __name__ == "__main__":
    main()
