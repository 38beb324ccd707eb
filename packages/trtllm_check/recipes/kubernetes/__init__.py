"""One engine over several machines under Kubernetes: manifests rendered from a profile and checked, not applied."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from serving_base.errors import UsageError
from serving_base.yaml_files import read_yaml
from trtllm_check.recipes.kubernetes.group import (
    WHY_ONE_INSTANCE,
    WHY_SOURCE,
    NodeGroup,
    SageMakerInstance,
    node_group,
    sagemaker_instances,
)
from trtllm_check.recipes.kubernetes.schemas import manifest_problems

__all__ = [
    "WHY_ONE_INSTANCE",
    "WHY_SOURCE",
    "NodeGroup",
    "SageMakerInstance",
    "engines",
    "manifest_problems",
    "manifests",
    "node_group",
    "parsed",
    "rendered",
    "sagemaker_instances",
]

HERE = Path(__file__).parent
NAMESPACE, CLAIM = "llm", "models"


def engines() -> dict[str, dict[str, Any]]:
    """How each engine starts over several pods, with its source."""
    found: dict[str, dict[str, Any]] = read_yaml(HERE / "engines.yml")
    return found


def rendered(group: NodeGroup, engine: str = "vllm") -> str:
    """The manifests of ``group`` as YAML text: LeaderWorkerSet and Service, with Triton also its service account.

    :class:`UsageError` for an unknown engine.
    """
    import jinja2

    known = engines()
    if engine not in known:
        raise UsageError(f"no engine {engine!r} over several nodes", fix=f"use one of {', '.join(known)}")
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    efa = read_yaml(HERE / "instances.yml")["efa"].get(group.machine.name, 0)
    values = {
        **{name: getattr(group, name) for name in ("name", "tp", "pp", "nodes", "replicas", "triton")},
        **{name: getattr(group, name) for name in ("max_seq_len", "max_batch_size")},
        **{name: known[engine][name] for name in ("port", "ready", "models", "service_account")},
        "fp8_cache": group.kv_cache_dtype == "fp8",
        "instance": group.machine.name,
        "gpus": group.machine.gpus,
        "efa": efa,
        "namespace": NAMESPACE,
        "claim": CLAIM,
    }
    written = {key: environment.from_string(known[engine][key]).render(values) for key in ("image", "leader", "worker")}
    template = environment.from_string((HERE / "templates" / "group.yaml.j2").read_text(encoding="utf-8"))
    return template.render(values | written)


def parsed(text: str) -> list[dict[str, Any]]:
    """The documents of a YAML text. :class:`UsageError` if it is none."""
    import yaml

    try:
        return [document for document in yaml.safe_load_all(text) if document is not None]
    except yaml.YAMLError as error:
        raise UsageError("the manifests are no YAML", why=str(error), fix="mend the line that is named") from error


def manifests(group: NodeGroup, engine: str = "vllm") -> list[dict[str, Any]]:
    """The manifests of ``group``, parsed."""
    return parsed(rendered(group, engine))
