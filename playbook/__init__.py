"""Llama-3 in FP8, from a checkpoint to a served endpoint: what a chapter of the course may use.

The names are loaded when they are first used, so ``import playbook`` costs nothing and the Triton backend can
import the engine alone.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import serving_clients as clients
    from cpu_serving.checkpoint import checkpoint_tensors as checkpoint_tensors
    from gpu_measurements import hopper as hopper
    from gpu_measurements import kernels as kernels
    from load_testing import load as load
    from model_server.triton import repository as model_repository
    from playbook import article_flags as article_flags
    from playbook import articles as articles
    from playbook import attention as attention
    from playbook import checker as checker
    from playbook import choices as choices
    from playbook import compiler as compiler
    from playbook import engines as engines
    from playbook import flows as flows
    from playbook import laboratory as laboratory
    from playbook import operations as operations
    from playbook import parallel as parallel
    from playbook import planning as plan
    from playbook import plots as plots
    from playbook.case import service_case as service_case
    from playbook.chapter import start as start
    from playbook.chapter import table as table
    from playbook.cloud import open_cloud as open_cloud
    from playbook.cloud import places as places
    from playbook.preflight import check_machine as check_machine
    from playbook.profile import load_profile as load_profile
    from playbook.stages import build as build
    from playbook.stages import compare_batching as compare_batching
    from playbook.stages import generate as generate
    from playbook.stages import prepare as prepare
    from playbook.stages import preview_quantized as preview_quantized
    from playbook.stages import quantize as quantize
    from playbook.stages import reference as reference
    from playbook.stages import serve as serve
    from playbook.stages import stream as stream
    from playbook.stages import summarize as summarize
    from playbook.stages import write_repository as write_repository
    from ptq import numerics as numerics
    from serving_base import quality as quality
    from serving_base.facts import models as models
    from serving_planner import autoscaling as autoscaling
    from tiny_llama import data as texts
    from tiny_llama import vocabulary as vocabulary
    from trtllm_check import recipes as recipes
    from trtllm_check.lint import check_commands as check_commands

_HOME = {
    "build": "playbook.stages",
    "check_commands": "trtllm_check.lint",
    "compare_batching": "playbook.stages",
    "check_machine": "playbook.preflight",
    "checkpoint_tensors": "cpu_serving.checkpoint",
    "generate": "playbook.stages",
    "load_profile": "playbook.profile",
    "open_cloud": "playbook.cloud",
    "places": "playbook.cloud",
    "prepare": "playbook.stages",
    "preview_quantized": "playbook.stages",
    "quantize": "playbook.stages",
    "reference": "playbook.stages",
    "serve": "playbook.stages",
    "service_case": "playbook.case",
    "start": "playbook.chapter",
    "stream": "playbook.stages",
    "summarize": "playbook.stages",
    "table": "playbook.chapter",
    "write_repository": "playbook.stages",
}
_MODULES = {
    "article_flags": "playbook.article_flags",
    "articles": "playbook.articles",
    "attention": "playbook.attention",
    "autoscaling": "serving_planner.autoscaling",
    "checker": "playbook.checker",
    "choices": "playbook.choices",
    "clients": "serving_clients",
    "compiler": "playbook.compiler",
    "engines": "playbook.engines",
    "flows": "playbook.flows",
    "hopper": "gpu_measurements.hopper",
    "kernels": "gpu_measurements.kernels",
    "laboratory": "playbook.laboratory",
    "load": "load_testing.load",
    "model_repository": "model_server.triton.repository",
    "models": "serving_base.facts.models",
    "numerics": "ptq.numerics",
    "operations": "playbook.operations",
    "parallel": "playbook.parallel",
    "plan": "playbook.planning",
    "plots": "playbook.plots",
    "quality": "serving_base.quality",
    "recipes": "trtllm_check.recipes",
    "texts": "tiny_llama.data",
    "vocabulary": "tiny_llama.vocabulary",
}
__all__ = sorted([*_HOME, *_MODULES])


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'playbook' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
