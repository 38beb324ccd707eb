"""A Llama-3 of the real architecture with random weights, for machines that cannot reach a hub: speed and bytes only.

``python -m vllm_serving.random_model JOB.json RESULT.json`` in an interpreter with PyTorch and transformers. The job:
``config`` (fields of LlamaConfig), ``out``, ``answerable`` (token ids that it may answer with), ``device``.

Matrices are N(0, 0.02), norms 1. Rows of ``lm_head`` are zero for all tokens but the answerable ones, so that every
answer is text that the tokenizer reads back as the same tokens, and none ends before its limit.

The model is never whole in memory: each file of it is made tensor by tensor, the files in turn on all GPUs, several
side by side. So 70B, which is larger than a GPU, is made as 8B is.
"""

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from math import prod
from pathlib import Path
from typing import Any

from serving_base.tensor_files import LazyTensor, write_lazy
from vllm_serving.job import answer, asked

SHARD_BYTES = 2 << 30
BF16_BYTES = 2
WRITERS = 32
"""Files that are made at once; each has its largest tensor twice, on a GPU and in the machine's memory."""
STD = 0.02
HEAD = "lm_head.weight"


def answerable_ids(vocabulary: Mapping[str, int], space: str = "\u0120") -> list[int]:
    """Ids of the whole words of a byte-level BPE: a space (written ``space``) and letters, the same when read back."""
    words = {number: token for token, number in vocabulary.items()}
    return sorted(number for number, token in words.items() if token.startswith(space) and token[1:].isalpha())


def llama_config(fields: Mapping[str, Any]) -> Any:
    import torch
    from transformers import LlamaConfig

    # a word instead of the type breaks modelopt's export: "Invalid device string: 'bfloat16'"
    return LlamaConfig(architectures=["LlamaForCausalLM"], dtype=torch.bfloat16, **fields)


def tensor_shapes(config: Any) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the weights, in the model's order; nothing of their size is made."""
    import torch
    from transformers import LlamaForCausalLM

    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}


def shards_of(shapes: Mapping[str, tuple[int, ...]], shard_bytes: int = SHARD_BYTES) -> dict[str, list[str]]:
    """File -> names, filled in order up to ``shard_bytes``; a larger tensor has a file of its own."""
    shards: list[list[str]] = [[]]
    room = shard_bytes
    for name, shape in shapes.items():
        size = BF16_BYTES * prod(shape)
        if shards[-1] and size > room:
            shards.append([])
            room = shard_bytes
        shards[-1].append(name)
        room -= size
    return {f"model-{number:05}-of-{len(shards):05}.safetensors": names for number, names in enumerate(shards, 1)}


def random_tensor(name: str, shape: tuple[int, ...], seed: int, answerable: Sequence[int], device: str) -> Any:
    """One weight in BF16, the same for the same ``seed`` on every GPU of a kind."""
    import torch

    if len(shape) == 1:
        return torch.ones(shape, dtype=torch.bfloat16, device=device)
    chance = torch.Generator(device).manual_seed(seed)
    tensor = torch.empty(shape, dtype=torch.bfloat16, device=device).normal_(0, STD, generator=chance)
    if name == HEAD:
        silent = torch.ones(shape[0], dtype=torch.bool, device=device)
        silent[list(answerable)] = False
        tensor[silent] = 0
    return tensor


def write_random_llama(
    fields: Mapping[str, Any],
    answerable: Sequence[int],
    out: Path,
    devices: Sequence[str],
    *,
    shard_bytes: int = SHARD_BYTES,
) -> int:
    """Write ``config.json``, the shards and their index into ``out``; returns the number of parameters."""
    import torch

    config = llama_config(fields)
    shapes = tensor_shapes(config)
    seeds = {name: seed for seed, name in enumerate(shapes)}
    shards = shards_of(shapes, shard_bytes)

    def write(file: str, names: list[str], device: str) -> None:
        def lazy(name: str) -> LazyTensor:
            return LazyTensor(
                torch.bfloat16,
                shapes[name],
                lambda: random_tensor(name, shapes[name], seeds[name], answerable, device),
            )

        write_lazy(out / file, {name: lazy(name) for name in names}, {"format": "pt"})

    out.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(write, shards, shards.values(), cycle(devices)))
    total = sum(BF16_BYTES * prod(shape) for shape in shapes.values())
    where = {name: file for file, names in shards.items() for name in names}
    index = {"metadata": {"total_size": total}, "weight_map": where}
    (out / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    config.save_pretrained(out)
    return total // BF16_BYTES


def devices_of(kind: str) -> list[str]:
    """All that this process sees of a kind."""
    import torch

    return [f"cuda:{number}" for number in range(torch.cuda.device_count())] if kind == "cuda" else [kind]


def main() -> None:
    job = asked()
    parameters = write_random_llama(job["config"], job["answerable"], Path(job["out"]), devices_of(job["device"]))
    answer({"parameters": parameters})


if __name__ == "__main__":
    main()
