"""Llama-3 in FP8, from a checkpoint to a served endpoint: what a chapter of the course may use.

The names are loaded when they are first used, so ``import playbook`` costs nothing and the Triton backend can
import the engine alone.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playbook import plots as plots
    from playbook.chapter import start as start
    from playbook.chapter import table as table
    from playbook.clients import triton as triton
    from playbook.lanes.embedded import numerics as numerics
    from playbook.lanes.embedded.build import describe_compiled as describe_compiled
    from playbook.lanes.embedded.checkpoint import checkpoint_tensors as checkpoint_tensors
    from playbook.lanes.embedded.logits import EngineLogits as EngineLogits
    from playbook.lanes.embedded.protocol import Sampling as Sampling
    from playbook.lanes.embedded.triton.check import check_config as check_config
    from playbook.lanes.embedded.triton.check import check_repository as check_repository
    from playbook.lanes.embedded.triton.templates import render_templates as render_templates
    from playbook.measure.quality import kl_divergence as kl_divergence
    from playbook.measure.quality import perplexity as perplexity
    from playbook.measure.quality import torch_logits as torch_logits
    from playbook.measure.streams import timed_stream as timed_stream
    from playbook.models import model_shape as model_shape
    from playbook.models import model_weight as model_weight
    from playbook.preflight import check_machine as check_machine
    from playbook.profile import load_profile as load_profile
    from playbook.stages import build as build
    from playbook.stages import generate as generate
    from playbook.stages import open_engine as open_engine
    from playbook.stages import prepare as prepare
    from playbook.stages import preview_quantized as preview_quantized
    from playbook.stages import quantize as quantize
    from playbook.stages import serve as serve
    from playbook.stages import write_repository as write_repository
    from playbook.tiny.data import evaluation_texts as evaluation_texts
    from playbook.tiny.data import unigram_baseline as unigram_baseline

_HOME = {
    "EngineLogits": "playbook.lanes.embedded.logits",
    "Sampling": "playbook.lanes.embedded.protocol",
    "build": "playbook.stages",
    "check_config": "playbook.lanes.embedded.triton.check",
    "check_machine": "playbook.preflight",
    "check_repository": "playbook.lanes.embedded.triton.check",
    "checkpoint_tensors": "playbook.lanes.embedded.checkpoint",
    "describe_compiled": "playbook.lanes.embedded.build",
    "evaluation_texts": "playbook.tiny.data",
    "generate": "playbook.stages",
    "kl_divergence": "playbook.measure.quality",
    "load_profile": "playbook.profile",
    "model_shape": "playbook.models",
    "model_weight": "playbook.models",
    "numerics": "playbook.lanes.embedded.numerics",
    "open_engine": "playbook.stages",
    "perplexity": "playbook.measure.quality",
    "plots": "playbook.plots",
    "prepare": "playbook.stages",
    "preview_quantized": "playbook.stages",
    "quantize": "playbook.stages",
    "render_templates": "playbook.lanes.embedded.triton.templates",
    "serve": "playbook.stages",
    "start": "playbook.chapter",
    "table": "playbook.chapter",
    "timed_stream": "playbook.measure.streams",
    "torch_logits": "playbook.measure.quality",
    "triton": "playbook.clients.triton",
    "unigram_baseline": "playbook.tiny.data",
    "write_repository": "playbook.stages",
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'playbook' has no attribute {name!r}")
    module = import_module(_HOME[name])
    return module if _HOME[name].endswith(f".{name}") else getattr(module, name)


def __dir__() -> list[str]:
    return __all__
