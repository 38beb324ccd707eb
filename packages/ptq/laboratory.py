"""A bench for number formats: one small model, every format of modelopt, the same held-out windows for all of them.

The model is copied for each format and quantized for real ("fake quantization": values are rounded, products stay in
BF16), so a format's cost is measured without an engine. NVFP4 is the exception: modelopt's own rounding of it runs on
CUDA only, so its packing (:class:`NVFP4QTensor`) packs and unpacks the weights once and each input on its way in.
"""

from __future__ import annotations

import copy
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ptq.metrics import WindowScores, score
from ptq.quantize import (
    QuantizeOptions,
    apply_quantization,
    batches,
    export_checkpoint,
    insert_quantizers,
    load_model,
    quiet,
)
from serving_base.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

BATCH = 8
MAX_LENGTH = 256
GROUP = 128
"""Weights that share a scale in the INT4 formats; as TensorRT-LLM's ``--awq_block_size``."""
NVFP4_BLOCK = 16
FLOAT32 = 4
EXPORTED = ("fp8", "int8_wo", "int8_sq", "int4_awq", "w4a8_awq")
"""Formats that modelopt's TensorRT-LLM exporter writes."""
Texts = Sequence[Sequence[int]]


@dataclass(frozen=True)
class FormatVariant:
    """One way to quantize. ``weights``, ``activations``: bits. ``options``: where :mod:`ptq.quantize` has it.

    ``share``: it is shown the calibration's n-th part. AWQ tries out scales on its texts, which takes long:
    TensorRT-LLM, too, gives it 32 texts at most.
    """

    name: str
    weights: int
    activations: int
    how: str
    options: QuantizeOptions | None = None
    share: int = 1


def _options(qformat: str, kv_cache_dtype: str = "auto") -> QuantizeOptions:
    return QuantizeOptions(qformat=qformat, kv_cache_dtype=kv_cache_dtype, calib_batch_size=BATCH)


VARIANTS: Mapping[str, FormatVariant] = {
    variant.name: variant
    for variant in (
        FormatVariant("FP8", 8, 8, "E4M3, one scale per tensor", _options("fp8")),
        FormatVariant("FP8 + FP8 KV", 8, 8, "the same, and keys and values in E4M3", _options("fp8", "fp8")),
        FormatVariant("INT8 weight-only", 8, 16, "one scale per output channel", _options("int8_wo")),
        FormatVariant("INT8", 8, 8, "one scale per output channel, one for all activations", _options("int8")),
        FormatVariant("INT8 SmoothQuant", 8, 8, "the same after smoothing", _options("int8_sq")),
        FormatVariant(
            "INT4 AWQ", 4, 16, f"a scale for {GROUP} weights, channels scaled first", _options("int4_awq"), 8
        ),
        FormatVariant("W4A8 AWQ", 4, 8, "the same with FP8 activations", _options("w4a8_awq"), 8),
        FormatVariant("INT4 GPTQ", 4, 16, f"a scale for {GROUP} weights, later weights correct earlier ones", share=2),
        FormatVariant("NVFP4", 4, 4, f"E2M1, an E4M3 scale for {NVFP4_BLOCK} values"),
    )
}


@dataclass(frozen=True)
class Measurement:
    """A format on this laboratory's windows, with the model that was quantized. ``seconds``: quantization alone."""

    variant: FormatVariant
    model: Any
    scores: WindowScores
    seconds: float


class Laboratory:
    """One model with its reference: log-probabilities of the BF16 model on ``windows`` held-out windows."""

    def __init__(self, model_dir: Path, *, windows: int = 24, calib_samples: int = 16) -> None:
        from transformers import AutoTokenizer

        from tiny_llama import data

        with quiet():
            import modelopt.torch.quantization  # noqa: F401 (takes seconds, which are not the first format's)
        self.model_dir = model_dir
        self.tokenizer = AutoTokenizer.from_pretrained(model_dir)
        self.texts = data.evaluation_texts(self.tokenizer, count=windows)
        self.calib_samples = calib_samples
        self.exact = load_model(model_dir)
        self._calibration: list[list[int]] = []

    @cached_property
    def reference(self) -> Tensor:
        """BF16's log-probabilities, (windows, tokens, vocabulary) in float32; computed once."""
        return self._log_probabilities(self.exact, self.texts)

    def calibration(self, samples: int = 0) -> list[list[int]]:
        """The first ``samples`` texts of the calibration set (0: as many as this laboratory uses)."""
        from tiny_llama import data

        wanted = samples or self.calib_samples
        if len(self._calibration) < wanted:  # kept, because the tokenizer takes longer than a quantization
            self._calibration = data.calibration_texts(self.tokenizer, wanted, MAX_LENGTH)
        return self._calibration[:wanted]

    def random_texts(self, samples: int, seed: int = 0) -> list[list[int]]:
        """Texts that are none: tokens drawn evenly from the vocabulary."""
        import numpy as np

        drawn = np.random.default_rng(seed).integers(0, len(self.tokenizer), (samples, MAX_LENGTH))
        return [[int(token) for token in row] for row in drawn]

    def repeated_text(self, token: int) -> list[int]:
        """A text of one token, over and over: a log line gone wrong, an empty form, a padding that was not masked."""
        return [token] * MAX_LENGTH

    def quantized(self, name: str, texts: Texts | None = None) -> Any:
        """A copy of the model in the format ``name``, calibrated on ``texts`` (None: the laboratory's own)."""
        variant = find(name)
        own = max(1, self.calib_samples // variant.share)
        chosen = self.calibration(own) if texts is None else texts
        model = copy.deepcopy(self.exact)
        if variant.options is not None:
            return apply_quantization(model, variant.options, chosen)
        return SPECIAL[name](model, chosen)

    def scores(self, model: Any, windows: int = 0) -> WindowScores:
        """``model`` against the BF16 model on the first ``windows`` windows; 0: all."""
        import torch

        texts = self.texts[: windows or len(self.texts)]
        targets = torch.tensor([text[1:] for text in texts])
        return score(self.reference[: len(texts)], self._log_probabilities(model, texts), targets)

    def measure(self, name: str, texts: Texts | None = None, windows: int = 0) -> Measurement:
        """Quantize, take the time, and score."""
        started = time.perf_counter()
        model = self.quantized(name, texts)
        seconds = time.perf_counter() - started
        return Measurement(find(name), model, self.scores(model, windows), seconds)

    def weight_bytes(self, measured: Measurement) -> int:
        """Bytes of a checkpoint's tensors: of a real export, or by the format's definition where none is written."""
        variant = measured.variant
        if variant.options is None or variant.options.qformat not in EXPORTED:
            return self._defined_bytes(variant)
        from safetensors import safe_open

        with tempfile.TemporaryDirectory() as folder:
            export_checkpoint(measured.model, self.model_dir, Path(folder), variant.options)
            with safe_open(Path(folder) / "rank0.safetensors", framework="pt") as stored:
                tensors = (stored.get_tensor(key) for key in stored.keys())  # noqa: SIM118 (not a dictionary)
                return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    @property
    def exact_bytes(self) -> int:
        """Bytes of the model as it was downloaded, in BF16."""
        return sum(int(one.numel()) * int(one.element_size()) for one in self.exact.parameters())

    def _defined_bytes(self, variant: FormatVariant) -> int:
        """The linear layers' values and scales, and the rest in 16 bits."""
        shapes = self._linear_shapes()
        values = sum(rows * columns for rows, columns in shapes)
        scales = {
            "INT8": sum(FLOAT32 * rows + FLOAT32 for rows, _ in shapes),  # an output channel's, and the input's
            "INT4 GPTQ": sum(FLOAT32 * rows * (columns // GROUP) for rows, columns in shapes),
            "NVFP4": sum(rows * columns // NVFP4_BLOCK + 2 * FLOAT32 for rows, columns in shapes),
        }
        return self.exact_bytes - 2 * values + values * variant.weights // 8 + scales[variant.name]

    def _linear_shapes(self) -> list[tuple[int, int]]:
        return [tuple(layer.weight.shape) for layer in linear_layers(self.exact).values()]

    def switched(self, model: Any, places: Sequence[Sequence[str]], windows: int = 0) -> WindowScores:
        """WindowScores of a quantized model in which few quantizers round; all do again afterwards.

        ``places``: a quantizer stays on whose name holds one word of *each* list, ``[["layers.0."], ["down_proj"]]``.
        """
        working = quantizers(model)
        kept = {name for name in working if all(any(word in name for word in words) for words in places)}
        if not kept:
            raise UsageError(
                f"no quantizer is called like {places}", fix=f"there are: {', '.join(list(working)[:8])} ..."
            )
        for name in working.keys() - kept:
            working[name].disable()
        try:
            return self.scores(model, windows)
        finally:
            for quantizer in working.values():
                quantizer.enable()

    def smoothing(self, layer: str, smoothed: Any) -> Smoothing:
        """What SmoothQuant did to one layer of ``smoothed``; ``layer`` as in ``model.layers.0.mlp.down_proj``."""
        before = _input_amax(self.exact, layer, self.calibration())
        factor = 1 / smoothed.get_submodule(layer).input_quantizer.pre_quant_scale.detach().float().cpu().flatten()
        weight = self.exact.get_submodule(layer).weight.detach().float().abs().amax(0)
        values = (before, weight, factor)
        return Smoothing(layer, *(tuple(value.tolist()) for value in values))

    def _log_probabilities(self, model: Any, texts: Texts) -> Tensor:
        import torch

        found = []
        with torch.inference_mode():
            for start in range(0, len(texts), BATCH):
                ids = torch.tensor([text[:-1] for text in texts[start : start + BATCH]])
                found.append(torch.log_softmax(model(input_ids=ids, use_cache=False).logits.float(), -1))
        return torch.cat(found)


@dataclass(frozen=True)
class Smoothing:
    """One layer's input channels: largest activation, largest weight, and modelopt's smoothing factor s of each."""

    layer: str
    activation: tuple[float, ...]
    weight: tuple[float, ...]
    factor: tuple[float, ...]

    @property
    def smoothed(self) -> tuple[float, ...]:
        """Largest activation of each channel after its division by s."""
        return tuple(x / s for x, s in zip(self.activation, self.factor, strict=True))

    def formula(self, alpha: float) -> tuple[float, ...]:
        """s_j = max|X_j|^alpha / max|W_j|^(1 - alpha), equation 4 of Xiao et al., arXiv 2211.10438."""
        pairs = zip(self.activation, self.weight, strict=True)
        return tuple(x**alpha / w ** (1 - alpha) for x, w in pairs)


def find(name: str) -> FormatVariant:
    if name not in VARIANTS:
        raise UsageError(f"no format is called {name!r}", fix=f"use one of: {', '.join(VARIANTS)}")
    return VARIANTS[name]


def quantizers(model: Any) -> dict[str, Any]:
    """Name -> quantizer, of those of modelopt's in ``model`` that round."""
    return {
        name: module
        for name, module in model.named_modules()
        if name.endswith("_quantizer") and getattr(module, "is_enabled", False)
    }


def linear_layers(model: Any) -> dict[str, Any]:
    """Name -> linear layer of the decoder blocks: what is quantized. ``lm_head`` is not."""
    import torch

    return {
        f"model.layers.{name}": module
        for name, module in model.model.layers.named_modules()
        if isinstance(module, torch.nn.Linear)
    }


def _gptq(model: Any, texts: Texts) -> Any:
    """modelopt's own GPTQ: INT4 in groups, columns corrected by the inverse Hessian of the calibration inputs."""
    import modelopt.torch.quantization as mtq

    config = copy.deepcopy(mtq.INT4_BLOCKWISE_WEIGHT_ONLY_CFG)
    config["algorithm"] = {"method": "gptq"}
    return insert_quantizers(model, config, texts, BATCH)


def _nvfp4(model: Any, _texts: Texts) -> Any:
    """Weights rounded once, inputs at each call with the scale of that call. modelopt calibrates that scale instead."""
    import torch

    for layer in linear_layers(model).values():
        with torch.no_grad():
            layer.weight.copy_(round_nvfp4(layer.weight))
        layer.register_forward_pre_hook(lambda _, inputs: (round_nvfp4(inputs[0]), *inputs[1:]))
    return model


SPECIAL: Mapping[str, Callable[[Any, Texts], Any]] = {"INT4 GPTQ": _gptq, "NVFP4": _nvfp4}


def round_nvfp4(x: Tensor) -> Tensor:
    """``x`` through modelopt's NVFP4 packing and back: E2M1 values, blocks of 16, E4M3 scales, one FP32 scale."""
    from modelopt.torch.quantization.qtensor import NVFP4QTensor

    packed, scale, double_scale = NVFP4QTensor.quantize(x.clone(), NVFP4_BLOCK)
    rounded: Tensor = packed.dequantize(
        dtype=x.dtype, scale=scale, double_scale=double_scale, block_sizes={-1: NVFP4_BLOCK}
    )
    return rounded


def _input_amax(model: Any, layer: str, texts: Texts) -> Tensor:
    """Largest magnitude of each input channel of ``layer`` over ``texts``; (channels,) in float32."""
    import torch

    seen: list[Tensor] = []
    hook = model.get_submodule(layer).register_forward_pre_hook(
        lambda _, inputs: seen.append(inputs[0].float().abs().flatten(0, -2).amax(0))
    )
    try:
        with torch.inference_mode():
            for batch in batches(texts, BATCH):
                model(input_ids=torch.tensor(batch), use_cache=False)
    finally:
        hook.remove()
    return torch.stack(seen).amax(0)


def open_laboratory(*, windows: int = 24, calib_samples: int = 16) -> Laboratory:
    """The laboratory on the tiny model that ships with the course: no download, on any machine's processor."""
    from tiny_llama import MODEL_DIR

    return Laboratory(MODEL_DIR, windows=windows, calib_samples=calib_samples)
