"""Safetensors files written from threads: safetensors' own writer keeps every other thread of Python waiting.

A checkpoint of 70B is 141 GB in BF16; a file a thread, each copied from its GPU and written, takes all the cores that
there are.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

ALIGNMENT = 8  # of the data in the file: what safetensors' readers map in place
NAMES = {
    "bfloat16": "BF16",
    "float16": "F16",
    "float32": "F32",
    "float64": "F64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "int8": "I8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "uint8": "U8",
    "bool": "BOOL",
}
"""PyTorch's name of a type -> that of the format."""


@dataclass(frozen=True)
class LazyTensor:
    """A tensor of a file before there is one. ``make`` is called when its turn to be written has come."""

    dtype: "torch.dtype"
    shape: tuple[int, ...]
    make: "Callable[[], torch.Tensor]"

    @property
    def nbytes(self) -> int:
        count = self.dtype.itemsize
        for size in self.shape:
            count *= size
        return count


def write_tensors(path: Path, tensors: "Mapping[str, torch.Tensor]", metadata: Mapping[str, str] | None = None) -> None:
    """As ``safetensors.torch.save_file``, from any device, and without keeping other threads from their work."""
    lazy = {name: LazyTensor(one.dtype, tuple(one.shape), partial(_itself, one)) for name, one in tensors.items()}
    write_lazy(path, lazy, metadata)


def _itself(tensor: "torch.Tensor") -> "torch.Tensor":
    return tensor


def write_lazy(path: Path, tensors: Mapping[str, LazyTensor], metadata: Mapping[str, str] | None = None) -> None:
    """The same for tensors that are made one by one, so that no more than one of the file is in memory."""
    import torch

    order = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))  # so each begins at its own size
    staging = torch.empty(max((one.nbytes for one in tensors.values()), default=0), dtype=torch.uint8)
    with path.open("wb") as file, torch.inference_mode():
        file.write(_header([(name, tensors[name]) for name in order], metadata))
        for name in order:
            made = tensors[name].make()
            flat = made.contiguous().reshape(-1).view(torch.uint8)
            held = staging[: flat.numel()].copy_(flat)
            file.write(held.numpy().data)


def _header(tensors: Sequence[tuple[str, LazyTensor]], metadata: Mapping[str, str] | None) -> bytes:
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    begin = 0
    for name, one in tensors:
        kind = NAMES[str(one.dtype).removeprefix("torch.")]
        header[name] = {"dtype": kind, "shape": list(one.shape), "data_offsets": [begin, begin + one.nbytes]}
        begin += one.nbytes
    written = json.dumps(header, separators=(",", ":")).encode()
    written += b" " * (-len(written) % ALIGNMENT)
    return len(written).to_bytes(8, "little") + written
