"""Values for the Helm chart of vLLM's production-stack against the names that its files have: ``helm_values.yml``."""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any

from trtllm_check.lint.carriers.faults import FormFault
from trtllm_check.lint.carriers.schema import TEMPLATE, read_table
from trtllm_check.lint.carriers.settings import Place, Setting, from_yaml

RANKS = re.compile(r"--tensor[-_]parallel[-_]size(?:=.*)?|-tp")
FILE, CHOICES = "helm_values.yml", "helm_choices.yml"
TOP = "servingEngineSpec"
DEEPEST = 12
NEAR = 0.8
SHARES = (
    "requestGPUMem",
    "requestGPUMemPercentage",
    "requestGPUCores",
    "requestGPUType",
    "resources",
    "runtimeClassName",
)
FOR_GPUS = re.compile(r"(?:^|/)vllm-openai\b")
OTHER_PROCESSORS = re.compile(r"(?<![a-z0-9])(?:cpu|arm64|neuron|tpu|xpu|hpu|gaudi)(?![a-z0-9])")
PARALLEL = re.compile(r"parallel|(?:^|\s)-(?:tp|pp|dp)\b|--config\b|\$")


def faults(node: Any, place: Place) -> Iterator[FormFault]:
    """What no release of the chart reads, in one document of values."""
    top = from_yaml(node, place, DEEPEST)
    if top.at(TOP) is None or top.at("kind") is not None:
        return
    for part, known in _parts().items():
        for table in _tables(top, part.split(".")):
            for _, value in table.items:
                yield from _fault(value, part, known)
    for model in _tables(top, [TOP, "modelSpec"]):
        yield from _ranks(model)
        yield from _shared_memory(model)
        yield from _secret(model)
        arguments = model.at("vllmConfig", "extraArgs")
        if arguments is not None and arguments.kind == "text" and arguments.text:
            yield FormFault("helm-value", arguments.place, "list", (("value", arguments.text),), source=_source())
    for part, fields in read_table(CHOICES)["choices"].items():
        for table in _tables(top, part.split(".")):
            yield from _choices(table, part, fields)
    yield from _session(top.at("routerSpec"))


def _choices(table: Setting, part: str, fields: Mapping[str, str]) -> Iterator[FormFault]:
    """A value that the chart's schema or the router's argparse refuses."""
    for name, listed in fields.items():
        value, names = table.at(name), listed.split()
        if value is None or value.kind != "text" or value.text in ("", *names) or TEMPLATE.search(value.text):
            continue
        close = get_close_matches(value.text, names, 1, NEAR)
        about = (("part", part), ("name", name), ("value", value.text), ("listed", ", ".join(names)))
        right = (("right", close[0] if close else "one of them"),)
        yield FormFault("helm-value", value.place, "choice", (*about, *right), source=_source())


def _secret(model: Setting) -> Iterator[FormFault]:
    """``imagePullSecret: IfNotPresent``."""
    value = model.at("imagePullSecret")
    if value is not None and value.text in read_table(CHOICES)["policies"].split():
        yield FormFault("helm-value", value.place, "secret", (("value", value.text),), source=_source())


def _session(router: Setting | None) -> Iterator[FormFault]:
    """Routing by session without the name of the header that tells it."""
    logic = router.at("routingLogic") if router is not None else None
    if router is None or logic is None or logic.text != "session" or router.at("sessionKey") is not None:
        return
    arguments = router.at("extraArgs")
    if arguments is None or not any("session-key" in one.text for one in arguments.parts):
        yield FormFault("helm-value", logic.place, "session", (), source=_source())


def _source() -> str:
    return str(read_table(CHOICES)["source"])


def _shared_memory(model: Setting) -> Iterator[FormFault]:
    """``shmSize``, or ranks by ``extraArgs``, without the value that makes the chart mount /dev/shm."""
    if model.at("vllmConfig", "tensorParallelSize") is not None or model.at("raySpec") is not None:
        return
    size, parts, mounts = model.at("shmSize"), model.at("vllmConfig", "extraArgs"), model.at("extraVolumeMounts")
    if mounts is not None or (model.at("vllmConfig") is None and size is None):
        return
    words = parts.parts if parts is not None and parts.kind == "list" else ()
    texts = [one.text for one in words] + [""]
    at = next((number for number, text in enumerate(texts) if RANKS.fullmatch(text)), None)
    told = "" if at is None else texts[at].partition("=")[2] or texts[at + 1]
    if size is not None:
        yield FormFault("helm-value", size.place, "shm", (), source=_source())
    elif at is not None and told not in ("", "1"):
        yield FormFault("helm-value", words[at].place, "shm default", (), source=_source())


def _ranks(model: Setting) -> Iterator[FormFault]:
    """More ranks than the pod asks GPUs for, fewer, and an image for GPUs that gets none."""
    ranks, gpus = model.at("vllmConfig", "tensorParallelSize"), model.at("requestGPU")
    if gpus is None or not gpus.text.isdecimal() or model.at("raySpec") is not None:
        return
    source = read_table(FILE)["source"]
    image = " ".join(one.text for name in ("repository", "tag") if (one := model.at(name)) is not None)
    parts = model.at("vllmConfig", "extraArgs")
    more = " ".join([one.text for one in parts.parts] if parts is not None else ())
    shares = [value for name in SHARES if (value := model.at(name)) is not None]
    if gpus.text == "0" and FOR_GPUS.search(image) and not OTHER_PROCESSORS.search(f"{image} {more}") and not shares:
        yield FormFault("helm-value", gpus.place, "no GPU", (("image", image.replace(" ", ":")),), source=source)
    is_told = FOR_GPUS.search(image) is not None and (parts is None or parts.kind == "list")
    if int(gpus.text) > 1 and (ranks is None or ranks.text == "1") and is_told and not PARALLEL.search(more):
        yield FormFault("helm-value", gpus.place, "unused", (("gpus", gpus.text),), source=source)
    if ranks is None:
        return
    if ranks.text.isdecimal() and gpus.text.isdecimal() and int(ranks.text) > int(gpus.text) > 0:
        about = (("ranks", ranks.text), ("gpus", gpus.text))
        yield FormFault("helm-value", ranks.place, "ranks", about, source=read_table(FILE)["source"])


def _fault(value: Setting, part: str, known: frozenset[str]) -> Iterator[FormFault]:
    name = value.written
    if name in _parts() and "." not in name and value.kind == "table":
        place = (("part", part), ("name", name))
        yield FormFault("helm-value", value.place, "outermost", place, source=read_table(FILE)["source"])
        return
    if name in known or name in _words() or TEMPLATE.search(name):
        return
    close = get_close_matches(name, known, 1, NEAR)
    others = [other for other, names in _parts().items() if name in names]
    form = "near" if close else "elsewhere" if others else ""
    about = (
        ("part", part),
        ("name", name),
        ("near", close[0] if close else ""),
        ("other", others[0] if others else ""),
    )
    yield FormFault("helm-value", value.place, form, about, source=read_table(FILE)["source"])


def _tables(setting: Setting, names: list[str]) -> Iterator[Setting]:
    """The tables at a path, through lists."""
    if setting.kind == "list":
        for one in setting.parts:
            yield from _tables(one, names)
    elif not names:
        yield from [setting] if setting.kind == "table" else []
    elif (inside := setting.at(names[0])) is not None:
        yield from _tables(inside, names[1:])


@cache
def _parts() -> Mapping[str, frozenset[str]]:
    return {part: frozenset(names.split()) for part, names in read_table(FILE)["parts"].items()}


@cache
def _words() -> frozenset[str]:
    return frozenset(read_table(FILE)["words"].split())
