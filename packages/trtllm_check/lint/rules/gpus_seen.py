"""GPUs and shared memory of a server's container (docker run, compose, Kubernetes) against the ranks in it."""

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Any

from trtllm_check.lint.carriers.workloads import ServedContainer
from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Edit, Platform, Put, drafts
from trtllm_check.lint.gpu_words import CLUSTER
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.machines import MachineTold, machine_told
from trtllm_check.lint.programs import SERVER_IMAGE, VLLM_IMAGE
from trtllm_check.lint.reservations import reserved
from trtllm_check.lint.rules.served import MAKERS, RAY, TENSORRT_LLM, VLLM, Around, ServedModel, served
from trtllm_check.lint.shell.pasted import fences, is_of_another_section
from trtllm_check.lint.shell.words import Word, lines_of

WITHOUT_GPU = re.compile(r"(?<![a-z0-9])(?:cpu|arm64|aarch64|graviton|neuron|tpu|xpu|hpu|gaudi)(?![a-z0-9])")
"""In the name of an image: one for other processors."""
ON_A_CPU = re.compile(r"--device[ =]cpu\b")
OF_A_CPU = ("opea/vllm:latest", "${REGISTRY:-opea}/vllm:${TAG:-latest}")
CLIENT = re.compile(
    r"\b(?:genai-perf|aiperf|perf_analyzer|guidellm|locust|curl|vllm bench serve|benchmark_serving|lmcache server"
    r"|dynamo\.(?:frontend|router|planner)|sglang_router|mooncake_master)\b"
)
IDLES = re.compile(r"(?:(?:/bin/)?(?:ba)?sh -l?c )?[\"']?(?:sleep (?:infinity|inf|\d+)|tail -f /dev/null)[\"']?$")
STARTS_A_SERVER = re.compile(r"\bvllm serve\b|api_server|tritonserver\b|trtllm-serve\b|launch_triton_server")
DEVICES = re.compile(r"[\"']*device=(?P<ids>[\w-]+(?:,[\w-]+)*)[\"']*")
OF_CDI = re.compile(r"\bnvidia\.com/gpu=(?:(?P<id>\d+|GPU-[\w-]+)$)?")
UUID = re.compile(r"GPU-[0-9a-f]{8}")
QUOTED = re.compile(r"[\"']")
SET_IN_PYTHON = re.compile(r"CUDA_VISIBLE_DEVICES[\"']?\s*\]?\s*[=,:]\s*[\"']([\d, ]+)[\"']")
HEADING = re.compile(r"(#{2,6})[ ]")
IN_PYTHON = re.compile(r"^(?:import|from) [a-z]", re.MULTILINE)
ONE_SERVER = re.compile(r"tritonserver|djl-(?:serving|inference)")
OF_AN_ACTOR = re.compile(r"\bray_actor_options[\"']?\s*[=:]\s*\{[^{}]*[\"']num_gpus[\"']\s*:\s*(?P<gpus>\d+)(?![\d.])")
SPREAD = re.compile(r"^[\"']?(?:\$\{?[\w@*]+(?:\[@\])?\}?|\$\(.*\)|\{\{.*\}\})[\"']?$")
LISTS = re.compile(r"ARG|OPT|EXTRA|FLAG|@|\*", re.IGNORECASE)
MEBIBYTE = 2**20
MOST_GIGABYTES = 256  # a larger number means megabytes
SHORT, LARGE = 80, 240  # seconds; vllm docs deployment/k8s.md has 60 + 2 x 10
SIMULATOR = re.compile(r"inference-sim|simulator|\bmock", re.IGNORECASE)
OF_HOSTS = ("--hostfile", "-hostfile", "--machinefile", "-machinefile", "--host", "-host", "-H")
LARGE_MODEL = re.compile(r"(?<![\d.])(?:3[0-9]|[4-9]\d|\d{3})b(?![a-z])", re.IGNORECASE)
LAUNCH, TP = "launch_triton_server.py", "tensor_parallel_size"
TAKEN = "vllm"  # a service of this name sets VLLM_PORT


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    around = Around.of(document)
    starts = [one for one in served(document) if one.tool not in MAKERS and not one.is_part]
    machine = machine_told(document) if starts else None
    if len({one.gpus for one in starts}) > 1 and any(fences(text) for _, text in document.texts):
        machine = None  # a page may go on to larger machines
    for docker in document.of("docker"):
        yield from _quotes(docker, dict(document.texts).get(docker.command.file, ""), release)
        yield from _few_bytes(docker, release)
        yield from _none(docker, release)
    for one in starts:
        yield from _ranks(document, around, one, machine, release)
        yield from _ray_for_one(one, release)
        yield from _docker_memory(around, one, release)
    for launch in document.of(LAUNCH):
        yield from _ranks(document, around, _launched(launch), machine, release)
    for workload in document.workloads:
        inside = [one for one in starts if one.file == workload.file and workload.holds(one.at.line)]
        if not SERVER_IMAGE.search(workload.image):
            yield from _probes(workload, inside, release) if inside else ()  # by its command, whatever the image
        else:
            yield from _workload(document, workload, inside, release)


def _launched(launch: Invocation) -> ServedModel:
    """The start of Triton by its script, with as many ranks as it is told."""
    words = launch.values("--world_size", "--world-size")
    options = {TP: words[0]} if words else {}
    return ServedModel(
        TENSORRT_LLM, LAUNCH, "", options, {TP: "--world_size"}, launch.path, launch.command.file, launch
    )


def _quotes(docker: Invocation, text: str, release: str) -> Iterator[Draft]:
    """``--gpus device=0,1``: docker reads its value as comma-separated fields."""
    lines = lines_of(text)
    for word in docker.values("--gpus"):
        match = DEVICES.fullmatch(word.text)
        if match and "," in match["ids"] and not QUOTED.search(word.text):
            edits: tuple[Edit, ...] = ()
            before = lines[word.line - 1][: word.column - 1] if 0 < word.line <= len(lines) else ""
            is_literal = before.count("'") % 2 == 1  # of a program, whose own quotes these would end
            instead = f'--gpus \\\\"{word.text}\\\\"' if is_literal else f"--gpus '\"{word.text}\"'"
            known = {"value": word.text, "instead": instead}
            yield from drafts(release, "gpu-list-unquoted", word, edits=edits, invocation=docker, **known)


def _none(docker: Invocation, release: str) -> Iterator[Draft]:
    """``--gpus 0``: a number of GPUs, and none of them."""
    for word in docker.values("--gpus"):
        if word.text == "0":
            edits: tuple[Edit, ...] = (Put("--gpus", "device=0"),)
            known = {"value": word.text, "instead": "--gpus device=0"}
            yield from drafts(release, "gpu-list-unquoted", word, form="none", edits=edits, invocation=docker, **known)


def _few_bytes(docker: Invocation, release: str) -> Iterator[Draft]:
    """``--shm-size 64``: without a unit it is a number of bytes."""
    for word in docker.values("--shm-size"):
        if word.text.isascii() and word.text.isdecimal() and 0 < int(word.text) < MEBIBYTE:
            unit = "g" if int(word.text) <= MOST_GIGABYTES else "m"
            edits = (Put("--shm-size", f"{word.text}{unit}"),)
            known = {"value": word.text, "instead": f"{word.text}{unit}"}
            yield from drafts(
                release, "small-shared-memory", word, form="bytes", edits=edits, invocation=docker, **known
            )


def _is_of_a_section(text: str, told: int, started: int) -> bool:
    """True for a machine in the heading of a section that ends before the server starts."""
    lines = lines_of(text)
    heading = HEADING.match(lines[told - 1]) if 0 < told <= len(lines) else None
    if heading is None or told >= started:
        return False
    levels = (len(match[1]) for line in lines[told : started - 1] if (match := HEADING.match(line)))
    return any(level <= len(heading[1]) for level in levels)


def _ranks(
    document: Document, around: Around, one: ServedModel, machine: MachineTold | None, release: str
) -> Iterator[Draft]:
    """More ranks than GPUs."""
    spread = one.options.get("distributed_executor_backend")
    if (
        one.gpus < 2
        or (spread is not None and spread.text == "ray")
        or {"nnodes", "node_rank", "data_parallel_address", "headless", "gpus_per_node"} & set(one.options)
    ):
        return
    if one.tool == RAY:
        return  # of a cluster
    yield from _of_an_actor(document, one, release)
    for number, place, how in seen(document, around, one, machine):
        text = dict(document.texts).get(one.file, "")
        if 0 < number < one.gpus and not _is_of_a_section(text, place.line, one.at.line):
            yield from drafts(
                release,
                "gpus-fewer-than-ranks",
                one.place("tensor_parallel_size"),
                invocation=one.invocation,
                file=one.file,
                tool=one.tool,
                ranks=one.gpus,
                seen=number,
                how=how,
                line=place.line,
            )
            return


def _of_an_actor(document: Document, one: ServedModel, release: str) -> Iterator[Draft]:
    """An engine on several GPUs in an actor of Ray that holds fewer, and no placement group for its workers."""
    text = dict(document.texts).get(one.file, "") if one.invocation is None else ""
    held = _actors(text)
    if len(held) == 1 and "placement_group" not in text and 0 < int(held[0]["gpus"]) < one.gpus:
        line = text.count("\n", 0, held[0].start()) + 1
        known: dict[str, Any] = {"tool": one.tool, "ranks": one.gpus, "seen": held[0]["gpus"], "line": line}
        yield from drafts(
            release, "gpus-fewer-than-ranks", one.place("tensor_parallel_size"), form="actor", file=one.file, **known
        )


@lru_cache(maxsize=8)
def _actors(text: str) -> tuple[re.Match[str], ...]:
    found = OF_AN_ACTOR.finditer(text)
    return tuple(one for one in found if "#" not in text[text.rfind("\n", 0, one.start()) + 1 : one.start()])


def _ray_for_one(one: ServedModel, release: str) -> Iterator[Draft]:
    """``--distributed-executor-backend ray`` and no size: the server takes one GPU of the cluster."""
    spread = one.options.get("distributed_executor_backend")
    sized = any(name.endswith("parallel_size") or name in ("config", "nnodes") for name in one.options)
    if one.engine != VLLM or spread is None or spread.text != "ray" or sized or one.invocation is None:
        return
    for before, word in pairwise(one.invocation.arguments):
        is_value = before.text == "serve" or (before.text.startswith("-") and "=" not in before.text)
        if SPREAD.search(word.text) and (not is_value or LISTS.search(word.text)):
            return  # further options may come from what nobody knows
    yield from drafts(release, "gpus-fewer-than-ranks", spread, form="ray", file=one.file, tool=one.tool)


def _spreads(one: Invocation) -> bool:
    """True behind an mpirun that starts ranks on several machines, each with its own GPUs."""
    return any(word.text.partition("=")[0] in OF_HOSTS for word in one.launcher)


def seen(
    document: Document, around: Around, one: ServedModel, machine: MachineTold | None
) -> Iterator[tuple[int, Word, str]]:
    """How many GPUs a start sees, by what the text says around it."""
    if one.invocation is not None and not _spreads(one.invocation):
        for name in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"):
            ids = [part for part in one.invocation.env.get(name, "").split(",") if part.strip()]
            if ids and all(part.strip().isdecimal() or UUID.match(part.strip()) for part in ids):
                text = dict(document.texts).get(one.file, "")
                above = [place for place in _exports(text, name) if place.line <= one.at.line]
                place = above[-1] if above else one.at
                if not is_of_another_section(text, place.line, one.at.line):
                    yield len(ids), place, f"{name} names"
    docker = around.docker(one) if one.invocation is not None else _only_docker(around)
    for word in docker.values("--gpus") if docker else ():
        match = DEVICES.fullmatch(word.text)
        count = len(match["ids"].split(",")) if match else int(word.text) if word.text.isdecimal() else 0
        if count:
            yield count, word, "docker gives"
    devices = [(word, OF_CDI.search(word.text)) for word in docker.values("--device")] if docker else []
    named = [(word, match) for word, match in devices if match is not None]
    if named and all(match["id"] for _, match in named):
        yield len(named), named[0][0], "docker gives"
    if one.invocation is None or not one.invocation.env.get("CUDA_VISIBLE_DEVICES"):
        told = _told_in_python(dict(document.texts).get(one.file, ""), is_call=one.invocation is None)
        if told is not None:
            yield *told, "CUDA_VISIBLE_DEVICES names"
    workload = around.workload(one)
    if workload is not None and workload.gpus:
        yield workload.gpus, workload.gpus_place, "the container gets"
    if asked := reserved(dict(document.texts).get(one.file, "")):
        yield asked.number, Word("", asked.line, 1), asked.by
    if machine is not None and machine.line and machine.gpus:
        yield machine.gpus, Word("", machine.line, 1), "the text tells of"
    elif machine is not None and machine.instance and machine.gpus and not _is_an_endpoints(document, machine.instance):
        line = _names(dict(document.texts).get(one.file, ""), machine.instance)
        if line:
            yield machine.gpus, Word("", line, 1), f"{machine.instance} has"


def _only_docker(around: Around) -> Invocation | None:
    """The one docker run of a text that starts Triton or LMI, for an engine whose options a file or variables tell."""
    runs = [one for one in around.dockers.values() if [word.text for word in one.positional[:1]] == ["run"]]
    image = runs[0].positional[1].text if len(runs) == 1 and len(runs[0].positional) > 1 else ""
    return runs[0] if ONE_SERVER.search(image) else None


@lru_cache(maxsize=8)
def _told_in_python(text: str, *, is_call: bool) -> tuple[int, Word] | None:
    """How many GPUs a program in Python leaves to itself, or to what it starts, in the one place that says so."""
    found = list(SET_IN_PYTHON.finditer(text)) if is_call or IN_PYTHON.search(text) else []
    if len(found) != 1:
        return None
    line = text.count("\n", 0, found[0].start()) + 1
    return len(found[0][1].split(",")), Word(found[0][0], line, 1)


def _is_an_endpoints(document: Document, instance: str) -> bool:
    """True for a machine of SageMaker, whose rules speak of its ranks."""
    return any(f"ml.{instance}" in text for _, text in document.texts)


@lru_cache(maxsize=8)
def _names(text: str, instance: str) -> int:
    """The line on which a text for one machine names it; 0 where there may be others."""
    start = text.lower().find(instance.lower())
    return text.count("\n", 0, start) + 1 if start >= 0 and not CLUSTER.search(text) and not fences(text) else 0


@lru_cache(maxsize=8)
def _exports(text: str, name: str) -> tuple[Word, ...]:
    """Where a text sets a variable for what comes behind."""
    start = re.compile(rf"[ \t]*(?:export|ENV)[ \t]+{name}=")
    return tuple(Word(name, number, 1) for number, line in enumerate(lines_of(text), 1) if start.match(line))


def _docker_memory(around: Around, one: ServedModel, release: str) -> Iterator[Draft]:
    """docker run of vLLM with several ranks and 64 MB of shared memory."""
    docker = around.docker(one) if one.ranks > 1 else None
    if docker is None:
        return
    operands = docker.positional
    image = operands[1].text if len(operands) > 1 and operands[0].text == "run" else ""
    if VLLM_IMAGE.search(image) and not docker.has("--shm-size", "--ipc"):
        edits = (Put("--ipc", "host"),)
        yield from drafts(release, "small-shared-memory", docker.path, edits=edits, invocation=docker)


def _needs_none(workload: ServedContainer) -> bool:
    """True for an image for other processors, and for a container that asks a server elsewhere."""
    words = " ".join(word.text for word in workload.words)
    asks = CLIENT.search(words) is not None and STARTS_A_SERVER.search(words) is None
    idles = workload.replaced and IDLES.match(words) is not None
    return (
        asks
        or idles
        or ON_A_CPU.search(words) is not None
        or WITHOUT_GPU.search(workload.image.rpartition("/")[2]) is not None
        or workload.image in OF_A_CPU
    )


def _workload(
    document: Document, workload: ServedContainer, inside: list[ServedModel], release: str
) -> Iterator[Draft]:
    file = workload.file
    for device in workload.devices:
        if "capabilities" not in device.keys:
            yield from drafts(release, "compose-devices", device.place, form="capabilities", file=file)
        if {"count", "device_ids"} <= set(device.keys):
            yield from drafts(release, "compose-devices", device.place, form="both", file=file)
    if workload.gpus == 0 and not _needs_none(workload):
        yield from drafts(release, "no-gpus", workload.gpus_place, form=workload.kind, file=file, image=workload.image)
    if workload.requests_only:
        yield from drafts(release, "no-gpus", workload.gpus_place, form="requests only", file=file)
    if not workload.shared_memory and any(one.ranks > 1 for one in inside):
        yield from drafts(release, "small-shared-memory", workload.place, form=workload.kind, file=file)
    yield from _probes(workload, inside, release)
    if VLLM_IMAGE.search(workload.image) and workload.service_links and "VLLM_PORT" not in workload.variables:
        for service in document.services:
            if service.name == TAKEN and service.file == file and workload.kind == "kubernetes":
                yield from drafts(release, "service-takes-variable", service.place, file=file, name=service.name)


def _probes(workload: ServedContainer, inside: list[ServedModel], release: str) -> Iterator[Draft]:
    """A container that is restarted before its model is loaded."""
    if SIMULATOR.search(workload.image):
        return  # which loads no model
    named = {probe.name: probe for probe in workload.probes}
    probe = named.get("startupProbe") or named.get("livenessProbe")
    is_large = any(LARGE_MODEL.search(one.model) for one in inside)
    if probe is not None and probe.seconds < (LARGE if is_large else SHORT):
        yield from drafts(
            release,
            "restarted-while-loading",
            probe.place,
            file=workload.file,
            probe=probe.name,
            seconds=probe.seconds,
        )
