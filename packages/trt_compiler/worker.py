"""What runs in NVIDIA's environment: ``python -m trt_compiler.worker JOB.json RESULT.json TENSORS.npz``."""

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from cpu_serving.checkpoint import read_checkpoint
from cpu_serving.llama import LlamaShape
from serving_base.errors import PlaybookError
from trt_compiler import onnx_llama
from trt_compiler.builds import build, known_targets, logger, start
from trt_compiler.formats import compile_format
from trt_compiler.interpreter import NetworkInterpreter, greedy, one_step
from trt_compiler.llama import LlamaNetwork, NetworkOptions, ranges, shape_only
from trt_compiler.steps import Compilation
from trt_compiler.writer import NetworkWriter

Answer = tuple[Any, dict[str, np.ndarray]]


def compile_checkpoint(trt: Any, folder: str, options: Mapping[str, Any], targets: Sequence[str]) -> Answer:
    builder, writer, chosen = _written(trt, folder, options)
    return asdict(build(trt, builder, writer, ranges(writer, chosen), targets)), {}


def compile_shape(trt: Any, shape: Mapping[str, Any], options: Mapping[str, Any], targets: Sequence[str]) -> Answer:
    """A model of which only the sizes are known: its weights stay outside."""
    builder, writer = start(trt, weights_outside=True)
    chosen = NetworkOptions(**{**options, "weights": "outside"})
    LlamaNetwork(writer, shape_only(LlamaShape(**shape)), chosen).write()
    return asdict(build(trt, builder, writer, ranges(writer, chosen), targets)), {}


def compile_formats(trt: Any, names: Sequence[str], targets: Sequence[str]) -> Answer:
    outcomes = {name: {target: _small(compile_format(trt, name, [target])) for target in targets} for name in names}
    return outcomes, {}


def compile_source(
    trt: Any, source: str, name: str, inputs: Mapping[str, Any], targets: Sequence[str], flags: Sequence[str]
) -> Answer:
    """A function of the reader's: it gets a writer and the inputs, and returns the output or several."""
    builder, writer = start(trt)
    tensors: list[Any] = []
    open_sizes: dict[str, tuple[list[int], list[int], list[int]]] = {}
    for title, (dtype, shape) in inputs.items():
        tensors.append(writer.input(title, dtype, shape))
        if -1 in shape:
            small, usual, large = ([count if size == -1 else size for size in shape] for count in (1, 64, 1024))
            open_sizes[title] = small, usual, large
    found = _function(source, name)(writer, *tensors)
    for tensor in found if isinstance(found, list | tuple) else [found]:
        writer.output(tensor)
    return asdict(build(trt, builder, writer, open_sizes, targets, flags)), {}


def limits(trt: Any) -> Answer:
    """What the library says of itself: targets, and the methods that would put a plugin into a network."""
    methods = [name for name in dir(trt.INetworkDefinition) if "plugin" in name]
    return {"targets": known_targets(trt), "plugin methods": methods}, {}


def run_source(trt: Any, source: str, name: str, inputs: Mapping[str, Any], values: Mapping[str, Any]) -> Answer:
    """The tensors of a reader's function, computed layer by layer."""
    _, writer = start(trt)
    tensors = [writer.input(title, dtype, shape) for title, (dtype, shape) in inputs.items()]
    writer.output(_function(source, name)(writer, *tensors), "y")
    interpreter = NetworkInterpreter(trt, writer.net, writer.constants)
    given = {
        title: np.asarray(value).astype(interpreter.types[writer.tensors[title].dtype])
        for title, value in values.items()
    }
    return None, {"y": interpreter.run(given)["y"].astype(np.float32)}


def list_tensors(trt: Any, folder: str, options: Mapping[str, Any], tokens: Sequence[int]) -> Answer:
    """Every tensor of a prompt's step, computed by numpy, in the order of the layers."""
    _, writer, _ = _written(trt, folder, options)
    interpreter = NetworkInterpreter(trt, writer.net, writer.constants)
    values = one_step(interpreter, writer.net, tokens)
    kept = {name: array for name, array in values.items() if name not in writer.constants and not _is_cache(name)}
    return list(kept), {f"t{place}": array.astype(np.float32) for place, array in enumerate(kept.values())}


def answer(trt: Any, folder: str, options: Mapping[str, Any], tokens: Sequence[int], steps: int, stop: int) -> Answer:
    """Greedy tokens of the written network, computed by numpy."""
    _, writer, _ = _written(trt, folder, options)
    interpreter = NetworkInterpreter(trt, writer.net, writer.constants)
    return greedy(interpreter, writer.net, tokens, steps, stop), {}


def write_onnx(trt: Any, folder: str, path: str, max_seq_len: int) -> Answer:  # noqa: ARG001
    """A checkpoint's Llama as an ONNX file; how many nodes there are of each operator."""
    return onnx_llama.write(read_checkpoint(Path(folder)), Path(path), max_seq_len), {}


def answer_onnx(trt: Any, path: str, tokens: Sequence[int], steps: int, stop: int) -> Answer:  # noqa: ARG001
    """Greedy tokens of an ONNX file, by ONNX Runtime on the processor."""
    return onnx_llama.greedy(Path(path), tokens, steps, stop), {}


def compile_onnx(trt: Any, path: str, targets: Sequence[str]) -> Answer:
    """An ONNX file through NVIDIA's parser and compiler."""
    builder, writer = start(trt)
    ranges_of_file = onnx_llama.parse(trt, writer, logger(trt), Path(path))
    return asdict(build(trt, builder, writer, ranges_of_file, targets)), {}


JOBS: dict[str, Callable[..., Answer]] = {
    "answer": answer,
    "answer_onnx": answer_onnx,
    "compile_checkpoint": compile_checkpoint,
    "compile_formats": compile_formats,
    "compile_onnx": compile_onnx,
    "compile_shape": compile_shape,
    "compile_source": compile_source,
    "limits": limits,
    "list_tensors": list_tensors,
    "run_source": run_source,
    "write_onnx": write_onnx,
}


def _written(trt: Any, folder: str, options: Mapping[str, Any]) -> tuple[Any, NetworkWriter, NetworkOptions]:
    chosen = NetworkOptions(**options)
    builder, writer = start(trt)
    LlamaNetwork(writer, read_checkpoint(Path(folder)), chosen).write()
    return builder, writer, chosen


def _function(source: str, name: str) -> Callable[..., Any]:
    names: dict[str, Any] = {"np": np, "Any": Any}
    exec(compile(source, "<the notebook>", "exec"), names)
    found: Callable[..., Any] = names[name]
    return found


def _is_cache(name: str) -> bool:
    return name.endswith(("_cache", "_present"))


def _small(outcome: Compilation) -> dict[str, Any]:
    return asdict(outcome) | {"written": []}


def main() -> None:
    import tensorrt_rtx_bindings as trt

    asked, answered, arrays = (Path(word) for word in sys.argv[1:4])
    job = json.loads(asked.read_text(encoding="utf-8"))
    try:
        result, tensors = JOBS[job["name"]](trt, **job["arguments"])
        told = {"result": result}
        np.savez(arrays, **tensors)  # type: ignore[arg-type]
    except PlaybookError as error:
        told = {"error": [error.what, error.why, error.fix]}
    except Exception as error:  # a reader's own function may raise anything: it is told in the notebook
        told = {"error": [f"{type(error).__name__}: {error}", f"it came up in the job {job['name']}", ""]}
    answered.write_text(json.dumps(told), encoding="utf-8")
    sys.stdout.flush()
    os._exit(0)  # the library's own end may abort


if __name__ == "__main__":
    main()
