"""Whole files that serve models and in which no rule finds anything to speak of: read, and nothing said."""

import json
import re

from trtllm_check.lint.carriers.python_code import parsed
from trtllm_check.lint.carriers.yaml_documents import is_yaml
from trtllm_check.lint.carriers.yaml_faults import OURS

IMPORTS = re.compile(
    r"^[ \t]*(?:import|from)[ \t]+(?:tensorrt_llm|vllm|sagemaker|djl_python|tritonclient|triton_python_backend_utils"
    r"|modelopt|transformers|llmcompressor|sglang)\b|[\"']SM_VLLM_[A-Z_]+[\"']\s*[:,\]]",
    re.MULTILINE,
)
INSTALLS = re.compile(r"\bpip3?\b.{0,40}\binstall\b.{0,200}(?:tensorrt|vllm|sagemaker|sglang|modelopt)", re.DOTALL)
MODEL_FILES = (
    frozenset({"producer", "quantization"}),  # hf_quant_config.json
    frozenset({"architectures", "model_type"}),  # config.json of Hugging Face
    frozenset({"model_type", "vocab_size"}),
    frozenset({"quant_method"}),
    frozenset({"eos_token_id", "transformers_version"}),  # generation_config.json
    frozenset({"peft_type"}),
)


def is_ours(text: str, kind: str) -> bool:
    """True for a file of YAML, JSON or Python that parses and names a server of models or is a model's own."""
    if kind == "yaml":
        return OURS.search(text) is not None and is_yaml(text)
    if kind in ("request", "config.json"):
        return _is_of_a_model(text)
    if kind == "python":
        return (IMPORTS.search(text) or INSTALLS.search(text)) is not None and parsed(text) is not None
    return kind in ("requirements", "dockerfile") and OURS.search(text) is not None


def _is_of_a_model(text: str) -> bool:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return False
    if not isinstance(content, dict):
        return False
    return any(keys <= content.keys() for keys in MODEL_FILES) or OURS.search(text) is not None
