"""Answer with an ONNX file of chapter 13: ``python rtx_answer.py llama-fp8.onnx [--cpu]``, beside its ``prompt.json``.

On a GPU of NVIDIA's RTX family, from Ampere on (FP8 from Ada on): ``pip install onnxruntime
onnxruntime-ep-nv-tensorrt-rtx-cu13`` first. ``--cpu``: ONNX Runtime alone. This file needs nothing else of the course:
copy it with the ONNX file. Source of the GPU's part: https://nvidia.github.io/TensorRT-RTX-EP-ABI/installation.html
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np


def cpu_session(path: str) -> Any:
    """A session on the processor."""
    import onnxruntime

    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def gpu_session(path: str) -> Any:
    """A session on the GPU. NVIDIA's compiler builds the kernels while it is made."""
    import onnxruntime
    import onnxruntime_ep_nv_tensorrt_rtx as plugin

    onnxruntime.register_execution_provider_library(plugin.get_ep_name(), plugin.get_library_path())
    devices = [device for device in onnxruntime.get_ep_devices() if device.ep_name == plugin.get_ep_name()]
    if not devices:
        raise SystemExit("NVIDIA's execution provider finds no GPU that it takes")
    options = onnxruntime.SessionOptions()
    options.add_provider_for_devices(devices, {})
    return onnxruntime.InferenceSession(path, sess_options=options)


def greedy(session: Any, prompt: list[int], steps: int, stop: int) -> tuple[list[int], list[float]]:
    """At most ``steps`` tokens, each the likeliest, up to ``stop``; and the seconds of each step."""
    past = {
        port.name: np.zeros((1, port.shape[1], 0, port.shape[3]), np.float16)
        for port in session.get_inputs()
        if port.name.endswith("_past")
    }
    names = [port.name for port in session.get_outputs()]
    tokens, place = list(prompt), 0
    answer: list[int] = []
    seconds: list[float] = []
    while len(answer) < steps and (not answer or answer[-1] != stop):
        ids = np.array([tokens], np.int64)
        positions = np.arange(place, place + len(tokens), dtype=np.int64)[None]
        began = time.perf_counter()
        out = dict(zip(names, session.run(names, {"input_ids": ids, "position_ids": positions, **past}), strict=True))
        seconds.append(time.perf_counter() - began)
        past = {name: out[name.removesuffix("past") + "present"] for name in past}
        place += len(tokens)
        tokens = [int(out["logits"][0, -1].argmax())]
        answer += tokens
    return answer, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--cpu", action="store_true")
    asked = parser.parse_args()
    given = json.loads(asked.file.with_name("prompt.json").read_text(encoding="utf-8"))
    session = (cpu_session if asked.cpu else gpu_session)(str(asked.file))
    answer, seconds = greedy(session, given["tokens"], given["steps"], given["stop"])
    print("the same tokens as the course's processor:", answer == given["answer"])
    print(f"median of a token: {1e3 * sorted(seconds[1:])[len(seconds[1:]) // 2]:.2f} ms")


if __name__ == "__main__":
    main()
