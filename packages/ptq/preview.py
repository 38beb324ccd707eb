"""A small model quantized in this process, to see what a format costs before anything is exported."""

from pathlib import Path
from typing import Any

OUTLIER_CHANNELS = (3, 64, 128, 200)


def preview(model: Path, *, qformat: str, kv_cache_dtype: str, calib_samples: int, outlier_factor: int) -> Any:
    """The quantized model as torch computes it; see :func:`playbook.stages.preview_quantized`."""
    from ptq.numerics import add_outliers
    from ptq.quantize import QuantizeOptions, apply_quantization, calibration_texts, load_model

    options = QuantizeOptions(qformat=qformat, kv_cache_dtype=kv_cache_dtype, calib_samples=calib_samples)
    torch_model = load_model(model)
    add_outliers(torch_model, outlier_factor, OUTLIER_CHANNELS)
    return apply_quantization(torch_model, options, calibration_texts(model, options))
