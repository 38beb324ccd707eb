"""Environments that make the libraries compute as on an older processor.

    env $(python tests/processor_settings.py avx2) make test     # or: make test PROCESSOR=avx2

Where a processor has no more than that, a setting changes nothing.
"""

import sys

# Who reads them:
# ONEDNN_MAX_CPU_ISA: oneDNN, inside torch and inside OpenVINO's CPU plugin alike (oneDNN: "CPU Dispatcher Control").
#     OpenVINO has none of its own: a variable OV_CPU_MAX_ISA changes nothing.
# ATEN_CPU_CAPABILITY: torch's own kernels (aten/src/ATen/native/DispatchStub.cpp).
# MKL_ENABLE_INSTRUCTIONS: MKL, torch's BLAS (oneMKL developer guide).
# NPY_DISABLE_CPU_FEATURES: numpy, by the names of numpy 2 and of 1.26, which is in Triton's environment; it warns
#     (ImportWarning) of names that it does not know.
# OPENBLAS_CORETYPE: OpenBLAS, the BLAS of numpy and scipy.
SETTINGS: dict[str, dict[str, str]] = {
    "avx2": {
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "NPY_DISABLE_CPU_FEATURES": "X86_V4,AVX512F,AVX512CD,AVX512_KNL,AVX512_KNM,AVX512_SKX,AVX512_CLX,AVX512_CNL,"
        "AVX512_ICL,AVX512_SPR",
        "OPENBLAS_CORETYPE": "Haswell",
    },
    "default": {},
}

if __name__ == "__main__":
    print(*(f"{name}={value}" for name, value in SETTINGS[sys.argv[1]].items()))
