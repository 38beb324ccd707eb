"""Ranks of a model against the GPUs that Kubernetes gives it: LeaderWorkerSet, KServe's predictor, RayService."""

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
RAY_TENSOR = re.compile(r"\btensor_parallel_size[\"']?:[ ]*[\"']?(?P<number>\d+)")
RAY_PIPELINE = re.compile(r"\bpipeline_parallel_size[\"']?:[ ]*[\"']?(\d+)")
ENGINE = re.compile(r"vllm|huggingface", re.IGNORECASE)


def faults(node: Any, place: Place) -> Iterator[FormFault]:
    """The faults of one document."""
    top = from_yaml(node, place, DEEPEST)
    kind = _text(top.at("kind"))
    if kind == "LeaderWorkerSet":
        yield from _group(top.at("spec", "leaderWorkerTemplate"))
    elif kind == "InferenceService":
        yield from _predictor(top.at("spec", "predictor"))
    elif kind == "RayService":
        yield from _ray(top.at("spec", "serveConfigV2"), top.at("spec", "rayClusterConfig"))


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


def _ray(config: Setting | None, cluster: Setting | None) -> Iterator[FormFault]:
    """One model of Ray Serve, and all GPUs that the cluster grows to."""
    tensor = list(RAY_TENSOR.finditer(config.text)) if config is not None and config.kind == "text" else []
    if cluster is None or config is None or len(tensor) != 1:
        return
    pipeline = RAY_PIPELINE.findall(config.text)
    ranks = int(tensor[0]["number"]) * (int(pipeline[0]) if len(pipeline) == 1 else 1)
    have = 0
    for group in (cluster.at("headGroupSpec"), *_parts(cluster.at("workerGroupSpecs"))):
        container = _container(group.at("template", "spec")) if group is not None else None
        if group is None or container is None:
            return
        counts = [_number(group.at(name)) for name in ("replicas", "maxReplicas") if group.at(name) is not None]
        gpu = container.at("resources", "limits", GPU) or container.at("resources", "requests", GPU)
        number = _number(gpu) if gpu is not None else 0
        hosts = _number(group.at("numOfHosts")) if group.at("numOfHosts") is not None else 1
        if number is None or hosts is None or None in counts or group.at("rayStartParams", "num-gpus") is not None:
            if number != 0:
                return
            continue
        have += number * hosts * max((one for one in counts if one is not None), default=1)
    if 0 < have < ranks:
        place = config.place.part(*tensor[0].span())
        known = (
            ("tool", "the model"),
            ("ranks", str(ranks)),
            ("seen", str(have)),
            ("how", "all groups together ask for"),
        )
        yield FormFault("gpus-fewer-than-ranks", place, "", (*known, ("line", str(cluster.place.line))))


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
