"""Ranks of a model against the GPUs that Kubernetes gives it: a group of LeaderWorkerSet, KServe's predictor."""

import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.carriers.faults import FormFault
from trtllm_check.lint.carriers.settings import Place, Setting, from_yaml

DEEPEST = 16
GPU = "nvidia.com/gpu"
OPTION = r"--{name}(?:[= ]|\\?\n\s*)\s*[\"']?(?P<number>\d+)(?=[\s\"';&|]|$)"
TENSOR = re.compile(OPTION.format(name="(?:tensor[-_]parallel[-_]size|tp)"))
PIPELINE = re.compile(OPTION.format(name="(?:pipeline[-_]parallel[-_]size|pp)"))
OTHER = re.compile(r"--data[-_]parallel|--config[ =]|\$\{?(?:TP|PP|\w*PARALLEL)")
ENGINE = re.compile(r"vllm|huggingface", re.IGNORECASE)


def faults(node: Any, place: Place) -> Iterator[FormFault]:
    """The faults of one document."""
    top = from_yaml(node, place, DEEPEST)
    kind = _text(top.at("kind"))
    if kind == "LeaderWorkerSet":
        yield from _group(top.at("spec", "leaderWorkerTemplate"))
    elif kind == "InferenceService":
        yield from _predictor(top.at("spec", "predictor"))


def _group(template: Setting | None) -> Iterator[FormFault]:
    """One leader and ``size`` - 1 workers hold one model."""
    if template is None:
        return
    size, worker = _number(template.at("size")), _container(template.at("workerTemplate", "spec"))
    leader = _container(template.at("leaderTemplate", "spec")) or worker
    of_worker, of_leader = _gpus(worker), _gpus(leader)
    if size is None or leader is None or of_worker is None or of_leader is None:
        return
    have = of_leader + (size - 1) * of_worker
    yield from _fewer(leader, have, f"the group has {size} pods, which name")


def _predictor(predictor: Setting | None) -> Iterator[FormFault]:
    """KServe's own server of models: one pod, unless it has workers."""
    model = predictor.at("model") if predictor is not None else None
    if predictor is None or model is None or predictor.at("workerSpec") is not None:
        return
    have = _gpus(model)
    if have is not None and ENGINE.search(_text(model.at("modelFormat", "name")) + _text(model.at("runtime"))):
        yield from _fewer(model, have, "the limits name")


def _fewer(container: Setting, have: int, how: str) -> Iterator[FormFault]:
    words = [one for part in ("command", "args") for one in _parts(container.at(part))]
    text = " ".join(one.text for one in words)
    if not have or OTHER.search(text):
        return
    tensor, pipeline = TENSOR.search(text), PIPELINE.search(text)
    ranks = int(tensor["number"]) * (int(pipeline["number"]) if pipeline else 1) if tensor else 0
    if ranks > have:
        place = next(one.place for one in words if "tensor" in one.text or "-tp" in one.text)
        known = (("tool", "the server"), ("ranks", str(ranks)), ("seen", str(have)), ("how", how))
        yield FormFault("gpus-fewer-than-ranks", place, "", (*known, ("line", str(place.line))))


def _container(spec: Setting | None) -> Setting | None:
    """The one container of a pod; None for several, of which each may hold a part."""
    containers = spec.at("containers") if spec is not None else None
    return containers.parts[0] if containers is not None and len(containers.parts) == 1 else None


def _gpus(container: Setting | None) -> int | None:
    if container is None:
        return None
    return _number(container.at("resources", "limits", GPU) or container.at("resources", "requests", GPU))


def _number(setting: Setting | None) -> int | None:
    text = _text(setting)
    return int(text) if text.isdecimal() and len(text) < 5 else None


def _text(setting: Setting | None) -> str:
    return setting.text if setting is not None and setting.kind in ("text", "number") else ""


def _parts(setting: Setting | None) -> tuple[Setting, ...]:
    if setting is None:
        return ()
    return setting.parts if setting.kind == "list" else (setting,)
