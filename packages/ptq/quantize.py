"""Post-training quantization with nvidia-modelopt, written as a TensorRT-LLM or Hugging Face checkpoint.

The course's own ``quantize.py``, on the device where the model is. Importing modelopt takes seconds, so it is imported
where it is used.
"""

from __future__ import annotations

import copy
import hashlib
import io
import json
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ptq.saving import replaced, written_in_threads
from serving_base.errors import CheckpointError, UsageError
from serving_base.tokenizer_files import copy_tokenizer

if TYPE_CHECKING:
    from trtllm_check.deployment import Deployment

# qformat -> name of modelopt's configuration; None leaves the linear layers alone.
FORMATS: Mapping[str, str | None] = {
    "full_prec": None,
    "fp8": "FP8_DEFAULT_CFG",
    "int8": "INT8_DEFAULT_CFG",
    "int8_sq": "INT8_SMOOTHQUANT_CFG",
    "int8_wo": "INT8_WEIGHT_ONLY_CFG",
    "int4_awq": "INT4_AWQ_CFG",
    "w4a8_awq": "W4A8_AWQ_BETA_CFG",
}
OUTLIER_CHANNELS = (3, 64, 128, 200)
"""Of the tiny model, where :func:`preview` puts outliers."""
NEED_CUDA = ("nvfp4", "nvfp4_awq", "mxfp8", "mxfp4")
KV_CACHE_DTYPES = ("auto", "fp8")
Layout = Literal["tensorrt_llm", "hf"]


@dataclass(frozen=True)
class QuantizeOptions:
    """Settings of a quantization, named as TensorRT-LLM's ``quantize.py`` names them.

    ``qformat`` "full_prec" keeps ``dtype``; "int8" (W8A8, one scale per tensor) is for comparison and has no
    TensorRT-LLM checkpoint. ``kv_cache_dtype`` "auto": as ``dtype``. Lengths in tokens. ``calib_batch_size``: texts in
    one pass, always of one length, so that no padding is calibrated on. A GPU is idle with one at a time.
    """

    qformat: str = "fp8"
    kv_cache_dtype: str = "fp8"
    dtype: str = "bfloat16"
    tp_size: int = 1
    pp_size: int = 1
    calib_samples: int = 64
    calib_max_length: int = 256
    calib_batch_size: int = 1

    @classmethod
    def from_profile(cls, profile: Deployment) -> QuantizeOptions:
        return cls(
            qformat=profile.qformat,
            kv_cache_dtype=profile.kv_cache_dtype,
            dtype=profile.dtype,
            tp_size=profile.tp,
            pp_size=profile.pp,
            calib_samples=profile.calib_samples,
            calib_max_length=profile.calib_max_length,
        )


@dataclass(frozen=True)
class LayerScales:
    """Largest magnitudes that calibration saw at one layer, in real units; None where nothing is quantized."""

    layer: str
    weight_amax: float | None
    input_amax: float | None
    key_amax: float | None = None
    value_amax: float | None = None


@dataclass(frozen=True)
class QuantizeReport:
    """Figures of one quantization. ``seconds``: calibration alone. ``checkpoint_bytes``: all weight files."""

    options: QuantizeOptions
    scales: tuple[LayerScales, ...]
    checkpoint_bytes: int
    seconds: float


def quantize_checkpoint(
    model_dir: Path, out: Path, options: QuantizeOptions, *, layout: Layout = "tensorrt_llm"
) -> QuantizeReport:
    """Quantize the Hugging Face model in ``model_dir`` and write it to ``out`` in one of the two checkpoint layouts.

    Raises :class:`UsageError` for a format or split that cannot work here.
    """
    check_options(options)
    model = load_model(model_dir, options.dtype)
    texts = calibration_texts(model_dir, options)
    started = time.perf_counter()
    apply_quantization(model, options, texts)
    seconds = time.perf_counter() - started
    if layout == "hf":
        export_hf(model, model_dir, out)
    else:
        export_checkpoint(model, model_dir, out, options)
    stored = sum(path.stat().st_size for path in out.glob("*.safetensors"))
    return QuantizeReport(options, tuple(layer_scales(model)), stored, seconds)


def calibration_texts(model_dir: Path, options: QuantizeOptions) -> Sequence[Sequence[int]]:
    """Token ids of the texts shown during calibration: the tiny model's training text in ``model_dir``'s tokens.

    None where ``options`` quantize nothing that has a scale of its own.
    """
    if not needs_calibration(options):
        return ()
    vocabulary = (model_dir / "tokenizer.json").read_bytes()
    return _tokenized(model_dir, hashlib.sha256(vocabulary).digest(), options.calib_samples, options.calib_max_length)


@lru_cache(maxsize=4)
def _tokenized(model_dir: Path, _vocabulary: bytes, samples: int, max_length: int) -> tuple[list[int], ...]:
    """Cached, because a comparison of formats asks for the same texts once for each, and they take seconds."""
    from transformers import AutoTokenizer

    from tiny_llama import data

    return tuple(data.calibration_texts(AutoTokenizer.from_pretrained(model_dir), samples, max_length))


def check_options(options: QuantizeOptions) -> None:
    """Raise :class:`UsageError` for what cannot be made here."""
    if options.qformat in NEED_CUDA:
        raise UsageError(
            f"qformat {options.qformat} cannot be made on a CPU",
            why="modelopt's block-scaled kernels for it exist for CUDA only",
            fix=f"use a profile with a Blackwell GPU, or one of: {', '.join(FORMATS)}",
        )
    if options.qformat not in FORMATS:
        raise UsageError(f"unknown qformat {options.qformat!r}", fix=f"use one of: {', '.join(FORMATS)}")
    if options.kv_cache_dtype not in KV_CACHE_DTYPES:
        raise UsageError(
            f"kv_cache_dtype {options.kv_cache_dtype!r} is not calibrated here",
            fix=f"use one of: {', '.join(KV_CACHE_DTYPES)}",
        )
    if options.dtype not in ("bfloat16", "float16"):
        raise UsageError(f"dtype {options.dtype!r}", fix="use bfloat16 or float16")
    names = ("tp_size", "pp_size", "calib_samples", "calib_max_length", "calib_batch_size")
    sizes = {name: getattr(options, name) for name in names}
    if min(sizes.values()) < 1:
        raise UsageError(", ".join(f"{name} is {size}" for name, size in sizes.items()), fix="use 1 or more")


def needs_calibration(options: QuantizeOptions) -> bool:
    return FORMATS[options.qformat] is not None or options.kv_cache_dtype == "fp8"


def load_model(model_dir: Path, dtype: str = "bfloat16", device_map: str | None = None) -> Any:
    """The Hugging Face causal language model in ``model_dir``, for inference; ``device_map`` None: on the CPU."""
    import torch
    from transformers import AutoModelForCausalLM

    with quiet():
        loaded = AutoModelForCausalLM.from_pretrained(model_dir, dtype=getattr(torch, dtype), device_map=device_map)
        return loaded.eval()


def apply_quantization(model: Any, options: QuantizeOptions, texts: Sequence[Sequence[int]]) -> Any:
    """Insert modelopt's quantizers into ``model`` in place, calibrated on ``texts``, and return it.

    The model then computes with rounded values ("fake quantization"): its logits show what the format costs.
    """
    check_options(options)
    if not needs_calibration(options):
        return model
    with quiet():
        import modelopt.torch.quantization as mtq

        name = FORMATS[options.qformat]
        disable_all: dict[str, Any] = {"quant_cfg": [{"quantizer_name": "*", "enable": False}], "algorithm": "max"}
        config = copy.deepcopy(getattr(mtq, name)) if name else disable_all
        if options.kv_cache_dtype == "fp8":
            config["quant_cfg"] = [*config["quant_cfg"], *copy.deepcopy(mtq.FP8_KV_CFG["quant_cfg"])]

        return insert_quantizers(model, config, texts, options.calib_batch_size)


def insert_quantizers(model: Any, config: dict[str, Any], texts: Sequence[Sequence[int]], batch_size: int = 1) -> Any:
    """modelopt's quantizers of ``config`` in ``model``, in place, calibrated on ``texts``."""
    import torch

    with quiet():
        import modelopt.torch.quantization as mtq

        def show_texts(module: Any) -> None:
            with torch.inference_mode():
                for batch in batches(texts, batch_size):
                    module(input_ids=torch.tensor(batch, device=model.device), use_cache=False)  # [texts, tokens]

        return mtq.quantize(model, config, show_texts)


def batches(texts: Sequence[Sequence[int]], size: int) -> Iterator[list[list[int]]]:
    """The texts, each once, ``size`` at most together and only those of one length."""
    waiting: dict[int, list[list[int]]] = {}
    for ids in texts:
        batch = waiting.setdefault(len(ids), [])
        batch.append(list(ids))
        if len(batch) == size:
            yield waiting.pop(len(ids))
    yield from waiting.values()


def layer_scales(model: Any) -> Iterator[LayerScales]:
    """The calibrated magnitudes of every quantized linear layer and attention block, in the model's order."""
    for name, module in model.named_modules():
        weight, inputs, key, value = (
            _amax(module, f"{part}_quantizer") for part in ("weight", "input", "k_bmm", "v_bmm")
        )
        if any(amax is not None for amax in (weight, inputs, key, value)):
            yield LayerScales(name, weight, inputs, key, value)


def export_checkpoint(model: Any, model_dir: Path, out: Path, options: QuantizeOptions) -> None:
    """Write ``model`` as a TensorRT-LLM checkpoint: ``config.json``, ``rank*.safetensors``, ``tokenizer/``."""
    import torch

    if options.qformat == "int8":
        raise UsageError("int8 with one scale per tensor has no TensorRT-LLM checkpoint", fix="export int8_sq instead")
    heads = model.config.num_attention_heads
    if heads % options.tp_size:
        raise UsageError(f"tp_size {options.tp_size} does not divide {heads} attention heads", fix="use a divisor")
    model = copy.deepcopy(model)  # the export folds scales into the weights
    theta = model.config.rope_parameters["rope_theta"]
    # transformers 5 moved rope_theta; without it modelopt writes no rotary_base and readers assume 10000.
    model.config.rope_theta = theta
    with quiet(), torch.inference_mode():
        from modelopt.torch.export import export_tensorrt_llm_checkpoint, model_config_export

        finish = model_config_export.postprocess_tensors

        def finish_in_place(weights: Any, dtype: Any, **settings: Any) -> None:
            """The writers bring each rank's tensors from the GPUs; modelopt would, one rank after the other."""
            finish(weights, dtype, **{**settings, "force_cpu": False})

        with (
            replaced(model_config_export, "postprocess_tensors", finish_in_place),
            written_in_threads(model_config_export, "save_file"),
        ):
            export_tensorrt_llm_checkpoint(
                model,
                "llama",
                getattr(torch, options.dtype),
                export_dir=out,
                inference_tensor_parallel=options.tp_size,
                inference_pipeline_parallel=options.pp_size,
            )
    written = json.loads((out / "config.json").read_text(encoding="utf-8")).get("rotary_base")
    if written != theta:
        raise CheckpointError(
            f"modelopt wrote rotary_base {written} for a model with {theta}",
            why="an engine built from it would answer nonsense",
            fix="use the locked versions of nvidia-modelopt and transformers",
        )
    copy_tokenizer(model_dir, out)


def export_hf(model: Any, model_dir: Path, out: Path) -> None:
    """Write ``model`` as a unified Hugging Face checkpoint, which vLLM, SGLang and TensorRT-LLM's PyTorch backend read.

    ``transformers.from_pretrained`` loads it without complaint and ignores its scales: the answers are nonsense
    (perplexity 5352 instead of 43, measured with transformers 5.14 and modelopt 0.47). ``build_engine`` reads it right.
    """
    import torch

    with quiet(), torch.inference_mode():
        from modelopt.torch.export import export_hf_checkpoint
        from transformers import modeling_utils

        with written_in_threads(modeling_utils, "safe_save_file"):
            export_hf_checkpoint(copy.deepcopy(model), export_dir=out)
    copy_tokenizer(model_dir, out)


@contextmanager
def quiet() -> Iterator[None]:
    """Hide progress bars, prints and the known harmless warnings of transformers and modelopt; errors pass."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with redirect_stdout(io.StringIO()), warnings.catch_warnings():
            for message in _HARMLESS:
                warnings.filterwarnings("ignore", message=message)
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


_HARMLESS = (
    "Enable lm_head quantization",
    "Cannot export tensorrt_llm checkpoint config",
    "To copy construct from a tensor",
    "transformers version",
    "lm_head is not calibrated",
    "`torch.jit.script",
)


def _amax(module: Any, quantizer: str) -> float | None:
    found = getattr(module, quantizer, None)
    amax = getattr(found, "amax", None) if getattr(found, "is_enabled", False) else None
    return None if amax is None else float(amax.max())


def preview(model: Path, *, qformat: str, kv_cache_dtype: str, calib_samples: int, outlier_factor: int) -> Any:
    """A small model quantized here, as torch computes it; see :func:`playbook.stages.preview_quantized`."""
    from ptq.numerics import add_outliers

    options = QuantizeOptions(qformat=qformat, kv_cache_dtype=kv_cache_dtype, calib_samples=calib_samples)
    torch_model = load_model(model)
    add_outliers(torch_model, outlier_factor, OUTLIER_CHANNELS)
    if not needs_calibration(options):
        return torch_model
    quantized = apply_quantization(torch_model, options, calibration_texts(model, options))
    with quiet():
        import modelopt.torch.quantization as mtq

        mtq.fold_weight(quantized)  # rounded now, and not at each of its calls again: the same logits
    return quantized
