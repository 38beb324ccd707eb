"""A planted fault, and what finds it: two runs of one network compared tensor by tensor."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from serving_base.errors import UsageError


def without_setting(checkpoint: Path, key: str, out: Path) -> Path:
    """A copy of ``checkpoint`` in ``out`` whose ``config.json`` has no ``key``; the weights are linked, not copied."""
    config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    if key not in config:
        raise UsageError(f"{checkpoint}/config.json has no {key}", fix=f"take one of {', '.join(sorted(config))}")
    del config[key]
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(config), encoding="utf-8")
    for weights in checkpoint.glob("*.safetensors"):
        link = out / weights.name
        link.unlink(missing_ok=True)
        link.symlink_to(weights.resolve())
    return out


def differences(right: Mapping[str, np.ndarray], suspect: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Tensor by name -> ``|right - suspect| / |right|`` in the order of the network; 0 where equal bit for bit."""
    found = {}
    for name, values in right.items():
        distance = np.linalg.norm((values - suspect[name]).astype(np.float64))
        size = np.linalg.norm(values.astype(np.float64))
        found[name] = float(distance / size) if distance else 0.0
    return found


def rotary_base(before: np.ndarray, after: np.ndarray, position: int) -> float:
    """The base of RoPE, read back from a tensor before and after it; both (1, heads, tokens, head size).

    RoPE turns pair j of a head at position p by ``p * base ** (-2 j / head_size)``
    (https://arxiv.org/abs/2104.09864, section 3.2.2). The pairs whose angle is well measurable vote; the median wins.
    """
    half = before.shape[-1] // 2

    def pairs(array: np.ndarray) -> np.ndarray:
        return np.asarray(array[0, :, position, :half] + 1j * array[0, :, position, half:])

    angles = np.median(np.angle(pairs(after) / pairs(before)), axis=0)  # [pairs], over the heads
    votes = [
        (angle / position) ** (-half / pair)
        for pair, angle in enumerate(angles)
        if pair and 0.05 < angle < 3 and position * 0.5 > angle
    ]
    return float(np.median(votes))
