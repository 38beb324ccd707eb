"""The model repository of NVIDIA's own vllm_backend for one of our engines, to serve it the other way and to compare.

That backend has vLLM inside Triton's python process and takes text: one model, no ensemble. It is in NVIDIA's container
``nvcr.io/nvidia/tritonserver:YY.MM-vllm-python-py3`` (https://github.com/triton-inference-server/vllm_backend).
"""

import json
from pathlib import Path

from vllm_serving.engine import EngineFolder

MODEL = "vllm_model"
CONFIG = f"""name: "{MODEL}"
backend: "vllm"
max_batch_size: 0
model_transaction_policy {{ decoupled: true }}
input [
  {{ name: "text_input" data_type: TYPE_STRING dims: [ 1 ] }},
  {{ name: "stream" data_type: TYPE_BOOL dims: [ 1 ] optional: true }},
  {{ name: "sampling_parameters" data_type: TYPE_STRING dims: [ 1 ] optional: true }},
  {{ name: "exclude_input_in_output" data_type: TYPE_BOOL dims: [ 1 ] optional: true }}
]
output [ {{ name: "text_output" data_type: TYPE_STRING dims: [ -1 ] }} ]
instance_group [ {{ count: 1 kind: KIND_MODEL }} ]
"""


def write_official_repository(engine: Path, out: Path, *, gpu_memory: float = 0.0) -> None:
    """Write ``out``/vllm_model with the arguments that ``engine``, a folder of the vllm lane, was built with.

    The backend adds further inputs and outputs by itself. ``gpu_memory``: another share of the GPU's
    memory than the engine's. It reads weights and tokenizer where they are: mount both folders at the same paths.
    """
    held = EngineFolder.read(engine)
    arguments = {**held.args, "model": held.model, "tokenizer": str((engine / "tokenizer").resolve())}
    del arguments["skip_tokenizer_init"]
    if gpu_memory:
        arguments["gpu_memory_utilization"] = gpu_memory
    version = out / MODEL / "1"
    version.mkdir(parents=True, exist_ok=True)
    (version.parent / "config.pbtxt").write_text(CONFIG, encoding="utf-8")
    (version / "model.json").write_text(json.dumps(arguments, indent=2) + "\n", encoding="utf-8")
