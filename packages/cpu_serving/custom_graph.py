"""The tiny Llama's graph with parts replaced by operations of our own, beside transformers, which says what is right.

The graph is the one that the embedded engine is built from. A pattern of it is found by OpenVINO's matcher, a node of
our own is put in its place, and the whole is compiled, run, or written into an engine folder.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from cpu_serving.build import BuildOptions, build_engine
from cpu_serving.checkpoint import read_checkpoint
from cpu_serving.custom_operations import (
    FLOAT32,
    INT8_MAX,
    SMOOTH_QUANT_GEMM,
    Operation,
    int8_weight,
    python_type,
    smoothing_factors,
)
from cpu_serving.engine import Engine, Sampling
from cpu_serving.graph import build_graph
from cpu_serving.llama import LlamaWeights
from cpu_serving.runtime import openvino
from tiny_llama import MODEL_DIR

Texts = Sequence[Sequence[int]]


@dataclass(frozen=True)
class NormActivation:
    """What one RMSNorm of transformers' model got and gave for a text: float32 [tokens, hidden]; gain [hidden]."""

    name: str
    given: np.ndarray
    gain: np.ndarray
    epsilon: float
    result: np.ndarray


@dataclass(frozen=True)
class GemmCase:
    """One layer's INT8 product: x [tokens, in], smoothing [in], weight int8 [out, in], scale [out], and exact x W^T."""

    x: np.ndarray
    smoothing: np.ndarray
    weight: np.ndarray
    weight_scale: np.ndarray
    exact: np.ndarray

    @property
    def inputs(self) -> tuple[np.ndarray, ...]:
        return self.x, self.smoothing, self.weight, self.weight_scale

    @property
    def input_scale(self) -> float:
        """The one scale of all tokens: the largest smoothed value over 127."""
        return float(np.abs(self.x / self.smoothing).max()) / INT8_MAX


@dataclass(frozen=True)
class NormComparison:
    """Largest differences from transformers, as shares: of each norm's output in the order of the layers, and of the
    logits. ``same_tokens``: the share of positions where the largest logit is the same one."""

    norms: Mapping[str, float]
    logits: float
    same_tokens: float


class OperationBench:
    """The tiny model twice: transformers' in float32, and the graph's weights. :meth:`close` removes its folder.

    ``outliers``: every norm inside a layer gets its gain times this power of two in some channels, and the weights
    behind it are divided by it. That changes no answer, and it is what large models do by themselves.
    """

    OUTLIER_CHANNELS = (7, 100, 201)

    def __init__(self, outliers: int = 1) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        from ptq.numerics import add_outliers

        self._folder = TemporaryDirectory(prefix="custom-operation-")
        self.folder = Path(self._folder.name)
        self.model: Any = AutoModelForCausalLM.from_pretrained(MODEL_DIR, dtype=torch.float32).eval()
        add_outliers(self.model, outliers, self.OUTLIER_CHANNELS)
        self.weights: LlamaWeights = read_checkpoint(MODEL_DIR)
        if outliers > 1:
            self.model.save_pretrained(self.folder / "model")
            self.weights = read_checkpoint(self.folder / "model")

    def close(self) -> None:
        self._folder.cleanup()

    def graph(self) -> Any:
        """The graph as the engine has it, as yet without an operation of ours."""
        return build_graph(self.weights, fp8_kv_cache=False, tagged_prompts=True)

    def texts(self, count: int, length: int) -> list[list[int]]:
        """Held-out texts of ``length`` tokens each, for what is compared."""
        from tiny_llama.data import evaluation_texts

        return [ids[:length] for ids in evaluation_texts(self._tokenizer(), count, length)]

    def calibration(self, count: int, length: int) -> list[list[int]]:
        """Texts of at most ``length`` tokens, none of them held out, for what is calibrated."""
        from tiny_llama.data import calibration_texts

        return calibration_texts(self._tokenizer(), count, length)

    def _tokenizer(self) -> Any:
        from transformers import PreTrainedTokenizerFast

        return PreTrainedTokenizerFast.from_pretrained(MODEL_DIR)

    def expected(self, ids: Sequence[int]) -> np.ndarray:
        """transformers' logits, float32 [tokens, vocabulary]."""
        import torch

        with torch.inference_mode():
            found: np.ndarray = self.model(input_ids=torch.tensor([list(ids)]), use_cache=False).logits[0].numpy()
        return found

    def norms(self, ids: Sequence[int]) -> list[NormActivation]:
        """Every RMSNorm of transformers' model in the order of its layers, with what it got and gave."""
        seen: list[NormActivation] = []

        def keep(name: str) -> Any:
            def hook(module: Any, inputs: Any, output: Any) -> None:
                arrays = (
                    inputs[0][0].numpy(),
                    module.weight.detach().numpy(),
                    module.variance_epsilon,
                    output[0].numpy(),
                )
                seen.append(NormActivation(name, *arrays))

            return hook

        named = [(name, module) for name, module in self.model.named_modules() if name.endswith("norm")]
        hooks = [module.register_forward_hook(keep(name)) for name, module in named]
        try:
            self.expected(ids)
        finally:
            for hook in hooks:
                hook.remove()
        return seen

    def gemm(self, layer: str, ids: Sequence[int], alpha: float | None) -> GemmCase:
        """One linear layer, named as transformers names it, with what it is fed for ``ids``, in INT8."""
        from ptq.numerics import layer_input

        x = layer_input(self.model, layer, ids).numpy()
        weight = self.model.get_submodule(layer).weight.detach().numpy()
        activation = np.abs(x).max(axis=0)
        factors = np.ones(len(activation), np.float32)
        if alpha is not None:
            factors = smoothing_factors(activation, weight, alpha)
        return GemmCase(x, factors, *int8_weight(weight, factors), x @ weight.T)

    def compare_norms(self, operation: Operation, ids: Sequence[int]) -> NormComparison:
        """Put ``operation`` in place of every RMSNorm and compare each of them, and the logits, with transformers."""
        graph = self.graph()
        replace_norms(graph, operation)
        nodes = [node for node in graph.get_ordered_ops() if node.get_type_name() == operation.name]
        outputs = graph.add_outputs([node.output(0) for node in nodes])
        running = RunningGraph(graph, [operation])
        found, expected = running(ids), self.expected(ids)
        pairs = zip(self.norms(ids), outputs, strict=True)
        norms = {norm.name: difference(running.request.get_tensor(out).data[0], norm.result) for norm, out in pairs}
        return NormComparison(norms, difference(found, expected), same_tokens(found, expected))

    def engine(self, graph: Any, name: str) -> Path:
        """An engine folder with ``graph`` in it: built as every engine, and then its file of operations exchanged."""
        out = self.folder / name
        build_engine(MODEL_DIR, out, BuildOptions(max_batch_size=2, max_input_len=256, max_seq_len=512))
        openvino().save_model(graph, out / "openvino_model.xml", compress_to_fp16=False)
        return out


def open_bench(outliers: int = 1) -> OperationBench:
    return OperationBench(outliers)


def replace_norms(graph: Any, operation: Operation) -> int:
    """Put a node of ``operation`` (x, gain; epsilon) in place of every RMSNorm that is written out. How many."""
    ov, passes = openvino(), openvino("openvino.passes")
    made, wrap = python_type(operation), passes.WrapType
    x, epsilon, gain = passes.AnyInput(), wrap("opset13.Constant"), wrap("opset13.Constant")
    square = wrap("opset13.Power", [x.output(0), wrap("opset13.Constant").output(0)])
    mean = wrap("opset13.ReduceMean", [square.output(0), wrap("opset13.Constant").output(0)])
    root = wrap("opset13.Sqrt", [wrap("opset13.Add", [mean.output(0), epsilon.output(0)]).output(0)])
    inverse = wrap("opset13.Divide", [wrap("opset13.Constant").output(0), root.output(0)])
    scaled = wrap("opset13.Multiply", [x.output(0), inverse.output(0)])
    whole = wrap("opset13.Multiply", [gain.output(0), scaled.output(0)])
    found: list[Any] = []

    matcher_pass: Any = passes.MatcherPass

    class _Replace(matcher_pass):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.register_matcher(passes.Matcher(whole, operation.name), self.put)

        def put(self, matcher: Any) -> bool:
            values = matcher.get_pattern_value_map()
            stored = ov.opset13.constant(values[gain].get_node().data.reshape(-1))
            size = float(values[epsilon].get_node().data)
            node = made([values[x], stored.output(0)], epsilon=size)
            node.set_friendly_name(f"{operation.name}.{len(found)}")
            ov.utils.replace_node(matcher.get_match_root(), node)
            found.append(node)
            return True

    manager = passes.Manager()
    manager.register_pass(_Replace())
    manager.run_passes(graph)
    return len(found)


def replace_squares(graph: Any, operation: Operation) -> int:
    """Put a node of ``operation`` in place of every square, and leave the rest of each RMSNorm as it is. How many."""
    ov, made = openvino(), python_type(operation)
    found = [node for node in graph.get_ordered_ops() if node.get_type_name() == "Power"]
    for node in found:
        ov.utils.replace_node(node, made([node.input_value(0)]))
    return len(found)


def linear_layers(graph: Any) -> list[Any]:
    """The products with a stored weight, in the order of the graph, without the last one, ``lm_head``."""
    found = [node for node in graph.get_ordered_ops() if node.get_type_name() == "MatMul" and _weight(node) is not None]
    return found[:-1]


def largest_inputs(graph: Any, texts: Texts) -> list[np.ndarray]:
    """The largest magnitude of each input channel of each linear layer over ``texts``, float32 [in] each.

    The inputs become outputs of a copy of the graph: what TensorRT-LLM calls registering a network output.
    """
    looked = graph.clone()
    outputs = looked.add_outputs([node.input_value(0) for node in linear_layers(looked)])
    running = RunningGraph(looked)
    largest: list[np.ndarray] = []
    for ids in texts:
        running(ids)
        found = [np.abs(running.request.get_tensor(output).data[0]).max(axis=0) for output in outputs]
        largest = [np.maximum(*pair) for pair in zip(largest, found, strict=True)] if largest else found
    return largest


def replace_linears(
    graph: Any,
    largest: Sequence[np.ndarray],
    *,
    alpha: float | None,
    per_token: bool,
    operation: Operation = SMOOTH_QUANT_GEMM,
) -> int:
    """Put an INT8 node in place of each linear layer but ``lm_head``. How many.

    ``largest``: of :func:`largest_inputs`. ``alpha`` None: no smoothing. ``per_token`` False: one scale from
    ``largest`` for all tokens of a layer.
    """
    ov = openvino()
    made, constant = python_type(operation), ov.opset13.constant
    nodes = linear_layers(graph)
    for number, (node, activation) in enumerate(zip(nodes, largest, strict=True)):
        weight = _weight(node)
        assert weight is not None
        factors = np.ones(len(activation), np.float32)
        if alpha is not None:
            factors = smoothing_factors(activation, weight, alpha)
        values, scales = int8_weight(weight, factors)
        stored = [constant(array).output(0) for array in (factors, values, scales)]
        scale = float((activation / factors).max()) / INT8_MAX
        new = made([node.input_value(0), *stored], per_token=per_token, input_scale=scale)
        new.set_friendly_name(f"{operation.name}.{number}")
        ov.utils.replace_node(node, new)
    return len(nodes)


class RunningGraph:
    """A compiled graph: ``RunningGraph(graph, operations)(ids)`` gives logits, float32 [tokens, vocabulary]."""

    def __init__(self, graph: Any, operations: Sequence[Operation] = ()) -> None:
        core = openvino().Core()
        for operation in operations:
            core.add_extension(python_type(operation))
        self._compiled = core.compile_model(graph, "CPU", FLOAT32)
        self.request = self._compiled.create_infer_request()

    def __call__(self, ids: Sequence[int]) -> np.ndarray:
        row = np.asarray([list(ids)], np.int64)  # [1, tokens]
        self.request.reset_state()
        self.request.infer(
            {
                "input_ids": row,
                "attention_mask": np.ones_like(row),
                "position_ids": np.arange(row.shape[1], dtype=np.int64)[None],
                "beam_idx": np.zeros(1, np.int32),
            }
        )
        return np.array(self.request.get_tensor("logits").data[0], np.float32)

    def executed(self) -> Mapping[str, int]:
        """How many steps of each kind the processor runs; a node of ours is a ``Reference``."""
        kinds = (node.get_rt_info()["layerType"].value for node in self._compiled.get_runtime_model().get_ops())
        return Counter(kinds)

    def milliseconds(self, ids: Sequence[int], rounds: int = 5) -> float:
        """The shortest of ``rounds`` passes over ``ids``."""
        self(ids)
        found = []
        for _ in range(rounds):
            started = time.perf_counter()
            self(ids)
            found.append(time.perf_counter() - started)
        return 1e3 * min(found)


def read_graph(folder: Path, operations: Sequence[Operation] = ()) -> Any:
    """The graph of an engine folder. Without its operations OpenVINO refuses the file."""
    core = openvino().Core()
    for operation in operations:
        core.add_extension(python_type(operation))
    return core.read_model(folder / "openvino_model.xml")


def nodes_of(graph: Any, operation: Operation) -> list[dict[str, Any]]:
    """The nodes of ``operation`` in ``graph``: their names, shapes and attributes."""
    return [
        {"name": node.get_friendly_name(), "shape": str(node.get_output_partial_shape(0)), **node.get_attributes()}
        for node in graph.get_ordered_ops()
        if node.get_type_name() == operation.name
    ]


def difference(found: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference, as a share of the largest expected value; infinite where a value is none."""
    if found.shape != expected.shape or not np.isfinite(found).all():
        return float("inf")
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def same_tokens(found: np.ndarray, expected: np.ndarray) -> float:
    """The share of positions whose largest logit is the same one."""
    return float((found.argmax(-1) == expected.argmax(-1)).mean())


def paged_tokens(folder: Path, ids: Sequence[int], new_tokens: int, operations: Sequence[Operation] = ()) -> list[int]:
    """Greedy tokens of an engine folder in the embedded engine, with its paged cache. ``operations`` of its graph."""
    with Engine(folder, threads=1, extensions=[python_type(one) for one in operations]) as engine:
        return list(engine.generate([list(ids)], Sampling(new_tokens))[0].token_ids)


def _weight(node: Any) -> np.ndarray | None:
    """The stored weight [out, in] of a product, float32, or None."""
    source = node.input_value(1).get_node()
    if source.get_type_name() == "Convert":
        source = source.input_value(0).get_node()
    if source.get_type_name() != "Constant":
        return None
    return _float32(source)


def _float32(constant: Any) -> np.ndarray:
    import ml_dtypes

    bf16 = constant.get_element_type() == openvino().Type.bf16
    data = constant.data.view(ml_dtypes.bfloat16) if bf16 else constant.data
    found: np.ndarray = data.astype(np.float32)
    return found
