"""What does not fit into the GPUs."""

import math
from collections.abc import Iterator
from itertools import combinations

from playbook.check.document import Document, Setting
from playbook.check.drafts import Draft, Edit, Put
from playbook.check.filling import Filling, fillings
from playbook.check.invocations import Invocation
from playbook.check.machines import gpu_of, machine_gb
from playbook.check.rulebook import drafts, rule_data
from playbook.check.rules.arguments import is_checked
from playbook.check.rules.pairs import engine_world, orchestrated
from playbook.models import BYTES_PER_ELEMENT, WEIGHTS, ModelShape, model_shape

FAMILY = "memory"
LAUNCH = "launch_triton_server.py"
CALIBRATION_FACTOR = 1.5
SMALLER = "0.45"
MOST_FRACTION = 0.5
FRACTION, TOKENS = "kv_cache_free_gpu_mem_fraction", "max_tokens_in_paged_kv_cache"


def check(document: Document, setting: Setting) -> Iterator[Draft]:
    """Calibration, weights and KV caches against the memory of ``setting``'s machine."""
    for invocation in document.invocations:
        if is_checked(invocation, setting.release):
            if invocation.tool == "quantize.py":
                yield from _calibration(document, setting, invocation)
            elif invocation.tool == "trtllm-build":
                yield from _weights(document, setting, invocation)
    yield from _two_servers(document, setting)


def _calibration(document: Document, setting: Setting, quantize: Invocation) -> Iterator[Draft]:
    """quantize-70b-memory."""
    have, gpu = machine_gb(setting), gpu_of(setting)
    model, qformat = document.facts_of(quantize).model, quantize.value("--qformat") or "full_prec"
    weights = weight_bytes(model, "full_prec")
    on_cpu = "cpu" in (quantize.value("--device"), quantize.value("--device_map"))
    if have is None or gpu is None or not weights or on_cpu:
        return
    need = weights / 1e9 * CALIBRATION_FACTOR
    if qformat in rule_data(FAMILY)["without_calibration"] or need <= have:
        return
    tool = setting.release.tools["quantize.py"]
    edits: tuple[Edit, ...] = (Put("--device", "cpu"),) if tool.accepts("--device", "cpu") else ()
    yield from drafts(
        setting.release.name,
        "quantize-70b-memory",
        quantize.path,
        edits=edits,
        invocation=quantize,
        tool=quantize.tool,
        model=model,
        need=need,
        have=have,
        gpu=setting.gpu,
        gpus=setting.gpus,
        least=math.ceil(need / (gpu.memory_gib * 2**30 / 1e9)),
    )


def _weights(document: Document, setting: Setting, build: Invocation) -> Iterator[Draft]:
    """weights-do-not-fit."""
    gpu, facts = gpu_of(setting), document.facts_of(build)
    weights = weight_bytes(facts.model, facts.weights)
    world = engine_world(facts, setting.release)
    if gpu is None or not gpu.memory_gib or not weights or not world or build.has("--weight_streaming"):
        return
    need, have = weights / 1e9 / world, gpu.memory_gib * 2**30 / 1e9
    if need <= have:
        return
    least = 2 ** math.ceil(math.log2(need * world / have))
    yield from drafts(
        setting.release.name,
        "weights-do-not-fit",
        build.path,
        invocation=build,
        model=facts.model,
        weights="16 bit" if facts.weights == "full_prec" else facts.weights,
        need=need,
        have=have,
        gpu=setting.gpu,
        world=world,
        least=least,
    )


def _two_servers(document: Document, setting: Setting) -> Iterator[Draft]:
    """two-instances-one-gpu: two servers whose repositories the text fills, on one GPU."""
    filled = [one for one in fillings(document, setting.release) if one.model.startswith("tensorrt_llm") and one.known]
    filled = [one for one in filled if not one.model.endswith("bls")]
    launches = [one for one in document.of(LAUNCH) if not orchestrated(one)]
    for first, second in combinations(launches, 2):
        fills = [_fill(filled, launch) for launch in (first, second)]
        if None in fills or not _share(first, second):
            continue
        if any(one is not None and _leaves_room(one) for one in fills):
            continue
        last = fills[1]
        if last is not None:
            yield from drafts(
                setting.release.name,
                "two-instances-one-gpu",
                second.path,
                edits=(last.with_values({FRACTION: SMALLER}),),
                invocation=last.invocation,
            )


def _fill(filled: list[Filling], launch: Invocation) -> Filling | None:
    """How the text fills the engine's model of the repository that ``launch`` serves."""
    repository = (launch.value("--model_repo") or "").rstrip("/")
    found = [one for one in filled if repository and one.path.startswith(f"{repository}/")]
    return found[-1] if found else None


def _share(first: Invocation, second: Invocation) -> bool:
    """True if both run on the host or in one container, and see a GPU in common."""
    if any(word.text == "docker" for one in (first, second) for word in one.launcher) or first.image != second.image:
        return False
    devices = [one.env.get("CUDA_VISIBLE_DEVICES") for one in (first, second)]
    known = [set(one.split(",")) for one in devices if one]
    return len(known) < 2 or bool(known[0] & known[1])


def _leaves_room(filling: Filling) -> bool:
    fraction = filling.values.get(FRACTION, "")
    try:
        small = bool(fraction) and float(fraction) <= MOST_FRACTION
    except ValueError:
        small = True
    return small or bool(filling.values.get(TOKENS))


def weight_bytes(model: str, qformat: str) -> int | None:
    """Of a Llama's checkpoint, others of the same size are alike; None for a size or format that is not known."""
    found = rule_data(FAMILY)["shapes"].get(model.rpartition("-")[2])
    if not found or WEIGHTS.get(qformat, qformat) not in BYTES_PER_ELEMENT:
        return None
    shape = ModelShape(**found) if isinstance(found, dict) else model_shape(found)
    return shape.weight_bytes(qformat)
