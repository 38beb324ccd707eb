"""What does not fit into the GPUs."""

import math
from collections.abc import Iterator
from typing import NamedTuple

from serving_base.facts.fit import calibration_fits, fits
from serving_base.facts.models import FORMATS, shape_of_size
from trtllm_check.lint.document import Document
from trtllm_check.lint.filling import Filling, fillings
from trtllm_check.lint.finding import Draft, Edit, Platform, Put, drafts, gpu_of, rule_data
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.rules.arguments import is_checked
from trtllm_check.lint.rules.pairs import engine_world, orchestrated
from trtllm_check.lint.shell.words import are_branches

FAMILY = "memory"
LAUNCH = "launch_triton_server.py"
SMALLER = "0.45"
MOST_FRACTION = 0.5
FRACTION, TOKENS = "kv_cache_free_gpu_mem_fraction", "max_tokens_in_paged_kv_cache"


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """Calibration, weights and KV caches against the memory of ``setting``'s machine."""
    for invocation in document.invocations:
        if is_checked(invocation, platform.release):
            if invocation.tool == "quantize.py":
                yield from _calibration(document, platform, invocation)
            elif invocation.tool == "trtllm-build":
                yield from _weights(document, platform, invocation)
    yield from _two_servers(document, platform)


def _calibration(document: Document, platform: Platform, quantize: Invocation) -> Iterator[Draft]:
    """quantize-70b-memory."""
    gpu, model = gpu_of(platform), document.facts_of(quantize).model
    shape, qformat = shape_of_size(model), quantize.value("--qformat") or "full_prec"
    on_cpu = "cpu" in (quantize.value("--device"), quantize.value("--device_map"))
    if gpu is None or platform.gpus is None or shape is None or on_cpu:
        return
    room = calibration_fits(shape, gpu, platform.gpus)
    if room or qformat in rule_data(FAMILY)["without_calibration"]:
        return
    tool = platform.release.tools["quantize.py"]
    edits: tuple[Edit, ...] = (Put("--device", "cpu"),) if tool.accepts("--device", "cpu") else ()
    yield from drafts(
        platform.release.name,
        "quantize-70b-memory",
        quantize.path,
        edits=edits,
        invocation=quantize,
        tool=quantize.tool,
        model=model,
        need=room.needed_gb,
        have=room.there_gb,
        gpu=platform.gpu,
        gpus=platform.gpus,
        least=math.ceil(room.times * platform.gpus),
    )


def _weights(document: Document, platform: Platform, build: Invocation) -> Iterator[Draft]:
    """weights-do-not-fit."""
    gpu, facts = gpu_of(platform), document.facts_of(build)
    shape, world = shape_of_size(facts.model), engine_world(facts, platform.release)
    if gpu is None or shape is None or facts.weights not in FORMATS or not world or build.has("--weight_streaming"):
        return
    room = fits(shape, gpu, facts.weights, tp=facts.tp or 1, pp=facts.pp or 1)
    if room:
        return
    least = 2 ** math.ceil(math.log2(room.times * world))
    yield from drafts(
        platform.release.name,
        "weights-do-not-fit",
        build.path,
        invocation=build,
        model=facts.model,
        weights="16 bit" if facts.weights == "full_prec" else facts.weights,
        need=room.needed_gb,
        have=room.there_gb,
        gpu=platform.gpu,
        world=world,
        least=least,
    )


def _two_servers(document: Document, platform: Platform) -> Iterator[Draft]:
    """kv-cache-takes-90-percent: two servers whose repositories the text fills, on one GPU."""
    filled = [one for one in fillings(document, platform.release) if one.model.startswith("tensorrt_llm") and one.known]
    repositories = _repositories([one for one in filled if not one.model.endswith("bls")])
    before: list[tuple[_Where, Invocation]] = []
    texts = dict(document.texts)
    for launch in document.of(LAUNCH):
        last = repositories.get((launch.value("--model_repo") or "").rstrip("/"))
        if orchestrated(launch) or last is None or _leaves_room(last):
            continue
        if any(word.text == "docker" for word in launch.launcher):
            continue
        where = _Where(launch.image, frozenset(filter(None, launch.env.get("CUDA_VISIBLE_DEVICES", "").split(","))))
        text = texts.get(launch.command.file, "")
        beside = [one for other, one in before if where.shares(other)]
        if any(not are_branches(text, one.path.line, launch.path.line) for one in beside):
            yield from drafts(
                platform.release.name,
                "kv-cache-takes-90-percent",
                launch.path,
                edits=(last.with_values({FRACTION: SMALLER}),),
                invocation=last.invocation,
            )
        before.append((where, launch))


class _Where(NamedTuple):
    """Where a server runs: on the host ("") or in a container of ``image``, on ``devices``, all where none is named."""

    image: str
    devices: frozenset[str]

    def shares(self, other: "_Where") -> bool:
        """True if both run on the host or in one container, and see a GPU in common."""
        common = not self.devices or not other.devices or bool(self.devices & other.devices)
        return self.image == other.image and common


def _repositories(filled: list[Filling]) -> dict[str, Filling]:
    """Every folder above a file that is filled, as written, and the last file filled in it."""
    return {
        one.path[:end].rstrip("/"): one
        for one in filled
        for end in range(1, len(one.path))
        if one.path[end] == "/" and one.path[:end].rstrip("/")
    }


def _leaves_room(filling: Filling) -> bool:
    fraction = filling.values.get(FRACTION, "")
    try:
        small = bool(fraction) and float(fraction) <= MOST_FRACTION
    except ValueError:
        small = True
    return small or bool(filling.values.get(TOKENS))
