"""OpenVINO and OpenVINO GenAI, imported in one place and without their telemetry."""

import importlib
import os
from typing import Any


def openvino(name: str = "openvino") -> Any:
    """The ``openvino`` module, or another one of the family by its full name.

    On import it looks up an analytics host unless ``CI`` is ``true`` (``openvino_telemetry`` 2025.2,
    ``utils/opt_in_checker.py``; ``OPENVINO_TELEMETRY=0`` has no effect), so the variable is set for the import only.
    """
    before = os.environ.get("CI")
    os.environ["CI"] = "true"
    try:
        return importlib.import_module(name)
    finally:
        if before is None:
            del os.environ["CI"]
        else:
            os.environ["CI"] = before


def openvino_genai() -> Any:
    """The ``openvino_genai`` module; see :func:`openvino`."""
    return openvino("openvino_genai")
