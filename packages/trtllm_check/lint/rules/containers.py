"""docker run around the tools: GPUs, shared memory, mounts and ports."""

import posixpath
import re
from collections.abc import Iterator
from functools import lru_cache

from trtllm_check.lint.document import Document
from trtllm_check.lint.endpoints import SERVERS, ServerAddress, http_port, published_ports
from trtllm_check.lint.finding import Draft, Platform, Put, drafts, rule_data
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.lookups import once
from trtllm_check.lint.programs import SHELLS
from trtllm_check.lint.rules.container_paths import hidden_paths, image_of
from trtllm_check.lint.rules.hosted_runners import RUNNER
from trtllm_check.lint.rules.image_tags import written_images
from trtllm_check.lint.shell.words import Word, lines_of

FAMILY = "containers"
RANKED = ("run.py", "summarize.py", "trtllm-serve", "launch_triton_server.py", "tritonserver")
OF_RANKS = (
    *("--tp_size", "--pp_size", "--world_size", "--workers", "--tp"),
    *("--tensor-parallel-size", "--tensor_parallel_size"),
)
# On Docker Hub NVIDIA has neither TensorRT-LLM nor Triton.
ON_THE_HUB = re.compile(r"(?:docker\.io/)?nvidia/(?:trt-?llm|tensorrt[-_]?llm|triton-?(?:inference-)?server)(?::|$)")
UNKNOWN_IMAGE = re.compile(r"nvcr\.io/nvidia/(?:trt-?llm|tensorrt_llm|tensorrt-?llm(?=:))[\w-]*(?::|$)")
PLAIN_SERVER = re.compile(r":\d\d\.\d\d-(?!trtllm)|-sdk$")  # Triton without TensorRT-LLM
CLIENTS = re.compile(r"nvidia/tritonserver:.*-(?:client)?sdk$")  # Triton's clients: no server in it

# What tells of a program and starts no model.
ONLY_ASKS = re.compile(r"--help\b|--version\b|__version__|\bpip3? (?:list|show|freeze)\b|^(?:ls|cat|env|find|which)\b")
CLIENT_OF = re.compile(r"bench_serving|benchmark_serving|^bench serve\b|evalscope|lm_eval")  # they ask a server
ABOVE = 8  # lines
HOSTS = ("-H", "-host", "--host", "-hostfile", "--hostfile", "-machinefile", "--machinefile")
PLAIN_TRITON = re.compile(
    r"tritonserver:(?:\d\d\.\d\d|[xyXY]{2}\.[xymXYM]{2}|<[\w.-]+>)(?:-pyt?-python)?-(?:py3|min|py3-min)$"
)  # whose backends run on a CPU too
NEEDS_GPU = re.compile(r"KIND_GPU|tensorrt|\bvllm\b|\.plan\b|trtexec|cuda|nvidia-smi", re.IGNORECASE)
FOR_A_CPU = re.compile(r"\bCPU[- ]only\b|\bon (?:a )?CPU\b|\bwithout (?:a |any )?GPUs?\b|\bno GPUs?\b", re.IGNORECASE)


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    for docker in document.of("docker"):
        if not _runs(docker):
            continue
        inner = document.lookups.started_by(docker.path)
        if not _is_for_a_cpu(document, docker):
            yield from _gpus(document, release, docker, inner)
        yield from _shared_memory(document, release, docker, inner)
        yield from _at_random(document, release, docker)
        yield from hidden_paths(document, platform, docker, inner)
    images = [*document.images, *(word for word, _ in written_images(document))]
    for word in {word.text: word for word in reversed(images)}.values():
        if UNKNOWN_IMAGE.match(word.text):
            instead = next(iter(platform.release.containers.triton), "nvcr.io/nvidia/tensorrt-llm/release")
            yield from drafts(release, "unknown-image", word, image=word.text, instead=instead)
        elif ON_THE_HUB.match(word.text):
            instead = f"nvcr.io/nvidia/{'tritonserver' if 'triton' in word.text else 'tensorrt-llm/release'}"
            yield from drafts(release, "unknown-image", word, form="Docker Hub", image=word.text, instead=instead)
    yield from _ports(document, release)
    yield from _visible(document, release)


def _at_random(document: Document, release: str, docker: Invocation) -> Iterator[Draft]:
    """``-p 8000`` beside a client that asks for this port of the host."""
    for word in docker.values("-p", "--publish"):
        asked = rf"(?:localhost|127\.0\.0\.1|0\.0\.0\.0):{word.text}(?!\d)"
        if word.text.isdecimal() and any(re.search(asked, text) for _, text in document.texts):
            known = {"port": word.text, "asked": word.text}
            edits = (Put("-p", f"{word.text}:{word.text}"),) if len(docker.values("-p", "--publish")) == 1 else ()
            yield from drafts(release, "port-at-random", word, edits=edits, invocation=docker, **known)


def _runs(docker: Invocation) -> bool:
    return len(docker.positional) > 1 and docker.positional[0].text in ("run", "create")


def _is_shell(docker: Invocation) -> bool:
    command = docker.positional[2:]
    return not command or (len(command) == 1 and posixpath.basename(command[0].text) in SHELLS)


def _is_for_a_cpu(document: Document, docker: Invocation) -> bool:
    """True where the lines above say that this one runs without a GPU."""
    text = dict(document.texts).get(docker.command.file, "")
    end = docker.path.line - 1
    return FOR_A_CPU.search("\n".join(lines_of(text)[max(end - ABOVE, 0) : end])) is not None


@lru_cache(maxsize=8)
def _is_hosted(text: str) -> bool:
    """True for a job on a machine of GitHub's own, which has no GPU to give."""
    return RUNNER.search(text) is not None


@lru_cache(maxsize=8)
def _needs_gpu(text: str) -> bool:
    return NEEDS_GPU.search(text) is not None


def _gpus(document: Document, release: str, docker: Invocation, inner: list[Invocation]) -> Iterator[Draft]:
    image = image_of(docker)
    if CLIENTS.search(image) or not any(part in image for part in rule_data(FAMILY)["gpu_images"]):
        return
    given = docker.has("--gpus", "--device") or docker.value("--runtime") == "nvidia" or "nvidia" in docker.path.text
    text = dict(document.texts).get(docker.command.file, "")
    if _is_hosted(text) or (PLAIN_TRITON.search(image) and not _needs_gpu(text)):
        return
    if ONLY_ASKS.search(" ".join(word.text for word in docker.positional[2:])):
        return
    without = rule_data(FAMILY)["without_gpu"]
    inner = [one for one in inner if not CLIENT_OF.search(" ".join(word.text for word in one.arguments[:3]))]
    works = [one for one in inner if one.tool not in without and posixpath.basename(_script(one)) not in without]
    if docker.has("--entrypoint") and works and all(one.tool == "python" for one in works):
        return  # a script of the reader's own, in place of the image's server
    if not given and (works or _is_shell(docker)):
        yield from drafts(release, "no-gpus", docker.path, edits=(Put("--gpus", "all"),), invocation=docker)


def _script(one: Invocation) -> str:
    """The script of the reader's own that Python runs."""
    return one.arguments[0].text if one.tool == "python" and one.arguments else ""


def _shared_memory(document: Document, release: str, docker: Invocation, inner: list[Invocation]) -> Iterator[Draft]:
    image = image_of(docker)
    if not any(part in image for part in rule_data(FAMILY)["server_images"]) or PLAIN_SERVER.search(image):
        return
    if docker.has("--shm-size", "--ipc") or not (_is_shell(docker) or any(one.tool in SERVERS for one in inner)):
        return
    edits = (Put("--shm-size", "20g"),)
    for draft in drafts(release, "small-shared-memory", docker.path, edits=edits, invocation=docker):
        yield draft if _with_ranks(document) else draft._replace(severity="info")


@once
def _with_ranks(document: Document) -> Iterator[Invocation]:
    """The commands that show more than one rank, which exchange data in shared memory."""
    for one in document.invocations:
        numbers = [int(word.text) for word in one.values(*OF_RANKS) if word.text.isdecimal()]
        if max([one.ranks or 1, *numbers]) > 1:
            yield one


def _ports(document: Document, release: str) -> Iterator[Draft]:
    """A server in a container's own network against the clients on the host."""
    servers = []
    for docker in document.of("docker"):
        server = next((one for one in document.lookups.started_by(docker.path) if one.tool in SERVERS), None)
        if _runs(docker) and server is not None:
            servers.append((docker, server))
    # Which server a request means is not known: a port that any of them publishes is fine, else the first one has to.
    clients = [request for request in document.requests if _is_outside(document, request.place)]
    targets = [target for request in clients if (target := ServerAddress.of(request.url)).is_triton and target.is_local]
    for port in dict.fromkeys(target.port for target in targets):
        if port is None or not servers or any(_reaches(docker, server, port) for docker, server in servers):
            continue
        docker, server = servers[0]
        inside = http_port(server)
        flag = next((flag for flag in ("-p", "--publish") if not docker.has(flag)), "")
        edits = (Put(flag, f"{port}:{inside}"),) if flag and inside is not None else ()
        yield from drafts(
            release,
            "server-port-not-published",
            docker.path,
            edits=edits,
            invocation=docker,
            port=port,
            inside=inside,
        )


def _is_outside(document: Document, place: Word) -> bool:
    """True for a request of the host."""
    curl = document.lookups.sender(place)
    return curl is None or not curl.image


def _reaches(docker: Invocation, server: Invocation, port: int) -> bool:
    """True also where it is not known."""
    network = docker.value("--net", "--network")
    inside = http_port(server)
    if docker.has("-P", "--publish-all") or inside is None or (network or "").startswith("container:"):
        return True
    if network == "host":
        return True
    published = docker.values("-p", "--publish")
    return (port, inside) in published_ports(docker) or any("$" in word.text for word in published)


def _visible(document: Document, release: str) -> Iterator[Draft]:
    for one in document.of(*RANKED):
        if one.has("--multi-model", "--disable-spawn-processes"):  # there the world has an orchestrator
            continue
        devices = one.env.get("CUDA_VISIBLE_DEVICES", "")
        ranks = one.ranks or _world(one)
        if not devices or "$" in devices or ranks is None:
            continue
        if any(word.text in HOSTS for word in one.launcher):
            continue  # each machine has so many of its own
        visible = len([device for device in devices.split(",") if device.strip()])
        if visible < ranks:
            word = one.launcher[0] if one.launcher else one.path
            yield from drafts(release, "limited-visible-devices", word, invocation=one, ranks=ranks, visible=visible)


def _world(invocation: Invocation) -> int | None:
    value = invocation.value("--world_size") if invocation.tool == "launch_triton_server.py" else None
    return int(value) if value and value.isascii() and value.isdecimal() and len(value) < 6 else None
