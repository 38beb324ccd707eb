"""Read safetensors files without torch: memory-mapped numpy arrays, bfloat16 and float8 included.

Format: 8 bytes little-endian header length, a JSON header of name -> dtype, shape, data_offsets, then the data
(https://github.com/huggingface/safetensors#format).
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import ml_dtypes
import numpy as np

from serving_base.errors import CheckpointError

DTYPES: dict[str, np.dtype] = {
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "I8": np.dtype(np.int8),
    "U8": np.dtype(np.uint8),
    "I32": np.dtype(np.int32),
    "I64": np.dtype(np.int64),
}


def dtype_name(array: np.ndarray) -> str:
    """The safetensors name of an array's dtype."""
    return next(name for name, dtype in DTYPES.items() if dtype == array.dtype)


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """Map every tensor of ``path``, in the file's order. :class:`CheckpointError` when the file is not whole."""

    def broken(why: str) -> CheckpointError:
        return CheckpointError(f"{path} cannot be read", why=why, fix="make the checkpoint again")

    if not path.is_file():
        raise broken("there is no such file")
    data = np.memmap(path, dtype=np.uint8, mode="r") if path.stat().st_size else np.empty(0, np.uint8)
    header_bytes = int.from_bytes(bytes(data[:8]), "little")
    if len(data) < 8 or 8 + header_bytes > len(data):
        raise broken("the file is cut short inside its header")
    try:
        header = json.loads(bytes(data[8 : 8 + header_bytes]))
    except ValueError as error:
        raise broken(f"its header is not JSON: {error}") from error
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        dtype = DTYPES.get(entry["dtype"])
        if dtype is None:
            raise broken(f"{name} has dtype {entry['dtype']}, which this reader does not know")
        begin, end = (8 + header_bytes + offset for offset in entry["data_offsets"])
        if end > len(data):
            raise broken(f"the file is cut short inside {name}")
        if end - begin != math.prod(entry["shape"]) * dtype.itemsize:
            raise broken(f"{name} has {end - begin} bytes, its shape {entry['shape']} needs another number")
        tensors[name] = data[begin:end].view(dtype).reshape(entry["shape"])
    return tensors
