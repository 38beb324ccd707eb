"""Containers of servers: what their image starts, where they are asked, what they need and do not get."""

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Any

from trtllm_check.lint.carriers.compose import FOR_BROWSERS
from trtllm_check.lint.carriers.workloads import ClusterService, ServedContainer
from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.programs import DOCKER_VALUED, PYTHON, SHELLS
from trtllm_check.lint.rules.box import FAMILY, Box, boxes
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.shell.words import lines_of

HUB_NAME = re.compile(r"[A-Za-z][\w-]*/[\w.-]+")
FOR_WEIGHTS = re.compile(r"model|cache|weight|hub|hugging", re.IGNORECASE)
OWN_FOLDER = ("/root/.cache", "/root/.cache/huggingface", "/root/.cache/huggingface/hub", "/root", "/data")
ONE_WORD = re.compile(r"(?P<flag>--[a-z][\w-]*)[ ]+(?P<value>[^\s-]\S*)")
OWN_ADDRESS = re.compile(r"(?:https?://)?(?:localhost|127\.0\.0\.1):(?P<port>\d{2,5})(?!\d)")
REPOSITORY = re.compile(r"(?:--model-(?:repository|store)[= ]|--model[= ]|vllm serve |^)(?P<path>/[\w.-]+/\S+|/\S+)")
ROUTED = ("InferenceService", "ServingRuntime", "ClusterServingRuntime")  # whose requests go to containerPort
OF_NVIDIA = re.compile(r"^nvcr\.io/nvidia/(?:tritonserver|tensorrt-llm/release):(?!.*-(?:sdk|min)$)[^$]+$")
TOLD = re.compile(r"\b(?:tty|stdin|stdin_open|command|args|entrypoint|extends)\b|<<|\{\{|\$\{|\.\.\.|…")
QUOTES = "\"'"
NEAR = 0.8  # /model and /models
LEFT_OUT = re.compile(r"(?:\.{3}|…|\[[^\]\n$]*\]|<[^>\n]*>)[ \t]*`*[ \t]*$")  # what a page shortens


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    found = list(boxes(document))
    for box in found:
        yield from _entry(box, release)
        yield from _idle(document, box, release)
        yield from _nim(box, release)
        yield from _cache(box, release)
        yield from _ports(box, release)
        yield from _probes(box, release)
        yield from _near_mount(box, release)
        yield from _discarded(box, release)
        yield from _one_word(box, release)
        yield from _neighbour(box, found, release)
    yield from _one_port(found, release)
    for service in document.services:
        yield from _service(service, found, release)


def _one_port(found: list[Box], release: str) -> Iterator[Draft]:
    """Two servers of one pod that listen on one port: its containers share a network."""
    seen: dict[tuple[str, int, int], Box] = {}
    for box in found:
        if box.workload is None or box.workload.kind != "kubernetes" or box.workload.alone:
            continue
        for port in box.listens()[:1]:
            earlier = seen.setdefault((box.file, box.workload.pod, port), box)
            if earlier is not box:
                known: dict[str, Any] = {"port": port, "line": earlier.place.line}
                yield from drafts(release, "port-twice", box.place, form="pod", file=box.file, **known)


def _entry(box: Box, release: str) -> Iterator[Draft]:
    """Options without a program, and a program behind an entry point."""
    engine = box.engine
    first = box.words[0] if box.words else None
    if first is None or box.replaced or first.text.partition("=")[0] in (*DOCKER_VALUED, "--rm", "-it", "-d"):
        return
    name = PurePosixPath(first.text).name
    is_program = name in (*SHELLS, "nvidia-smi") or PYTHON.fullmatch(name) is not None
    others = rule_data(FAMILY)["entries"]
    other = next((program for image, program in others.items() if re.match(image, box.image)), "")
    if engine is not None and not engine.has_entry and first.text.startswith("-"):
        known: dict[str, Any] = {
            "image": box.image,
            "first": first.text,
            "program": engine.program,
            "known": engine.source,
        }
        yield from drafts(release, "image-starts-nothing", first, file=box.file, **known)
    elif engine is not None and engine.name == "tgi" and (is_program or name == engine.program):
        known = {"image": box.image, "first": first.text, "program": engine.program}
        yield from drafts(release, "behind-the-entry-point", first, file=box.file, **known)
    elif other and is_program:
        known = {"image": box.image, "first": first.text, "program": other}
        yield from drafts(release, "behind-the-entry-point", first, file=box.file, **known)
    elif re.match(rule_data(FAMILY)["own_vllm"], box.image) and (name in SHELLS):
        known = {"image": box.image, "first": first.text}
        yield from drafts(release, "behind-the-entry-point", first, form="own", file=box.file, **known)


def _idle(document: Document, box: Box, release: str) -> Iterator[Draft]:
    """An image that starts a shell by itself, and nobody at its keyboard: the container ends at once."""
    engine = box.engine
    if engine is None or engine.has_entry or box.words or box.replaced or not OF_NVIDIA.search(box.image):
        return
    if box.docker is not None:
        if box.docker.has("-i", "-t", "--interactive", "--tty") or box.docker.positional[0].text != "run":
            return
        lines = lines_of(dict(document.texts).get(box.file, ""))
        if LEFT_OUT.search("\n".join(lines[box.place.line - 1 : box.docker.command.end_line])):
            return
    elif box.workload is not None:
        lines = lines_of(dict(document.texts).get(box.file, ""))[box.workload.first - 1 : box.workload.last]
        is_part = box.workload.kind == "kubernetes" and box.workload.holder != "Pod" and not box.workload.labels
        if is_part or any(TOLD.search(line) for line in lines):
            return
    yield from drafts(
        release, "image-starts-nothing", box.place, form="idle", file=box.file, image=box.image, program=engine.program
    )


def _nim(box: Box, release: str) -> Iterator[Draft]:
    """NIM downloads its model with a key of NGC."""
    if not re.search(rule_data(FAMILY)["nim"], box.image) or box.is_open or "NGC_API_KEY" in box.settings:
        return
    if any("ngc" in name.lower() for name in box.settings) or box.replaced:
        return
    other = next((name for name in box.settings if "API_KEY" in name), "")
    form = "another" if other else ""
    is_copied = not box.image.startswith("nvcr.io/") and any("nim" in mount for mount in box.mounts)  # with its model
    for draft in drafts(release, "nim-without-key", box.place, form=form, file=box.file, image=box.image, other=other):
        yield draft._replace(severity="info") if is_copied else draft


def _cache(box: Box, release: str) -> Iterator[Draft]:
    """A volume for the weights where the engine does not put them."""
    engine = box.serves
    data = rule_data(FAMILY)
    if engine is None or engine.name not in ("vllm", "sglang") or not box.mounts or "--download" in box.text:
        return
    if any(name in box.settings for name in data["caches"]) or box.is_open:
        return
    weights = [mount for mount in box.mounts if FOR_WEIGHTS.search(mount) and mount != "/dev/shm"]
    reached = [mount for mount in box.mounts if mount in OWN_FOLDER or ".cache" in mount or is_open(mount)]
    model = next((word.text for word in box.words if HUB_NAME.fullmatch(word.text)), "")
    if not weights or reached or not model or any(mount in box.text for mount in box.mounts):
        return
    yield from drafts(release, "cache-not-kept", box.place, file=box.file, mount=weights[0], model=model)


def _ports(box: Box, release: str) -> Iterator[Draft]:
    """Published ports of engines whose commands are not read otherwise."""
    engine = box.serves
    if engine is None or box.host_network:
        return
    listens = box.listens()
    holder = box.workload.holder if box.workload is not None else ""
    declared = [port for _, port in box.workload.named_ports] if box.workload is not None else []
    if listens and holder in ROUTED and len(declared) == 1 and declared[0] and declared[0] not in listens:
        routed: dict[str, Any] = {"port": listens[0], "published": declared[0], "holder": holder}
        yield from drafts(release, "server-port-not-published", box.place, form="routed", file=box.file, **routed)
    if engine.name not in ("tgi", "sglang", "triton", "nim", "lmi"):
        return
    if engine.name == "triton" and ("grpc" in box.text or "sagemaker" in box.text or "vertex" in box.text):
        return
    inside = [port for _, port in box.ports]
    if listens and inside and not box.open_ports and not set(listens) & set(inside):
        shown = ", ".join(map(str, dict.fromkeys(inside)))
        known: dict[str, Any] = {"port": listens[0], "published": shown}
        yield from drafts(release, "server-port-not-published", box.place, form="another port", file=box.file, **known)
    if engine.name == "sglang" and inside and "--host" not in box.text and "$" not in box.text:
        yield from drafts(release, "server-on-loopback", box.place, form="sglang", file=box.file)


def _probes(box: Box, release: str) -> Iterator[Draft]:
    engine = box.serves
    if engine is None or box.workload is None:
        return
    listens = box.listens()
    for probe in box.workload.probes:
        if engine.name in ("tgi", "sglang"):
            is_deaf = bool(probe.port and listens) and probe.port not in listens
        else:  # Triton's other ports speak gRPC, or have the metrics alone
            is_deaf = probe.path.startswith("/v2") and probe.port in engine.others and listens[:1] == (engine.port,)
        if is_deaf:
            form = "ready" if probe.name == "readinessProbe" else ""
            asked: dict[str, Any] = {"probe": probe.name, "asked": probe.port, "port": listens[0]}
            yield from drafts(release, "probe-of-another-port", probe.place, form=form, file=box.file, **asked)
        if probe.scheme == "HTTPS" and "ssl" not in box.text.lower() and "tls" not in box.text.lower():
            yield from drafts(release, "probe-of-another-kind", probe.place, file=box.file, probe=probe.name)
        path = probe.path.partition("?")[0]
        has_key = "--api-key" in box.text or "VLLM_API_KEY" in box.settings
        if engine.name == "vllm" and path.startswith("/v1/") and has_key and not probe.has_key:
            about: dict[str, Any] = {"probe": probe.name, "path": path}
            yield from drafts(release, "probe-of-another-kind", probe.place, form="key", file=box.file, **about)
        known_path = any(fnmatchcase(path, one) for one in engine.paths)
        if engine.paths and path and not known_path and not is_open(path) and "root-path" not in box.text:
            known: dict[str, Any] = {"probe": probe.name, "path": path, "right": engine.paths[0]}
            yield from drafts(release, "probe-of-another-kind", probe.place, form="path", file=box.file, **known)


def _near_mount(box: Box, release: str) -> Iterator[Draft]:
    """``--model-repository=/models`` beside a volume at /model."""
    given = REPOSITORY.search(box.text)
    if given is None or is_open(given["path"]) or box.docker is not None:  # containers.py says it of docker run
        return
    path, mounts = given["path"].rstrip("/"), [mount.rstrip("/") for mount in box.mounts]
    if any(mount and (f"{path}/".startswith(f"{mount}/") or mount.startswith(f"{path}/")) for mount in mounts):
        return
    begin = next((path[: len(path) - len(rest)] for rest in _rests(path) if _near(path, rest, mounts)), "")
    for mount in get_close_matches(begin, mounts, 1, NEAR) if begin else ():
        known: dict[str, Any] = {"path": path, "mount": mount}
        yield from drafts(release, "path-not-mounted", box.place, form="near", file=box.file, **known)


def _rests(path: str) -> Iterator[str]:
    """What may stand behind a mount: nothing, the last folder, the last two, ..."""
    parts = path.split("/")
    for number in range(len(parts), 1, -1):
        yield "".join(f"/{part}" for part in parts[number:])


def _near(path: str, rest: str, mounts: list[str]) -> bool:
    return bool(get_close_matches(path[: len(path) - len(rest)], mounts, 1, NEAR))


def _discarded(box: Box, release: str) -> Iterator[Draft]:
    """Ports that are published from the host's own network."""
    is_host = box.workload.network == "host" if box.workload is not None else box.host_network
    published = box.docker.values("-p", "--publish") if box.docker else []
    if is_host and (published or box.ports):
        place = published[0] if published else box.place
        told = box.ports or [tuple(word.text.rsplit(":", 2)[-2:]) for word in published if ":" in word.text]
        changes = any(outside != inside for outside, inside in told) or not told
        for draft in drafts(release, "ports-discarded", place, invocation=box.docker, file=box.file):
            yield draft if changes else draft._replace(severity="info")  # the server is found there anyway


def _one_word(box: Box, release: str) -> Iterator[Draft]:
    """An option and its value as one item, of servers whose commands are not read otherwise."""
    engine = box.serves
    if engine is None or engine.name not in ("tgi", "sglang") or box.workload is None:
        return
    for word in box.words:
        if match := ONE_WORD.fullmatch(word.text):
            known: dict[str, Any] = {"flag": match["flag"], "value": match["value"], "tool": engine.program}
            yield from drafts(release, "option-in-one-word", word, file=box.file, **known)


def _neighbour(box: Box, found: list[Box], release: str) -> Iterator[Draft]:
    """``http://localhost:8000`` in one service of compose, where another one listens."""
    if box.workload is None or box.workload.kind != "compose" or box.host_network:
        return
    others = [one for one in found if one is not box and one.file == box.file and not one.host_network]
    for name, word in box.settings.items():
        match = None if FOR_BROWSERS.search(name) else OWN_ADDRESS.match(word.text.strip(QUOTES))
        port = int(match["port"]) if match else 0
        inside = {each for _, each in box.ports} | set(box.listens())
        if match and port not in inside and any(port in one.listens() for one in others):
            known: dict[str, Any] = {"name": name, "address": match[0], "port": port}
            yield from drafts(
                release, "address-of-the-container-itself", word, form="neighbour", file=box.file, **known
            )


def _service(service: ClusterService, found: list[Box], release: str) -> Iterator[Draft]:
    """A service that sends to a port that its pods do not listen on."""
    selector = set(service.selector)
    behind = [
        box
        for box in found
        if box.workload is not None and box.file == service.file and selector and selector <= set(box.workload.labels)
    ]
    if not behind:
        yield from _no_pods(service, [box for box in found if box.file == service.file], release)
    if len(behind) != 1 or behind[0].workload is None or not behind[0].workload.alone:
        return
    workload = behind[0].workload
    names = {name for name, _ in workload.named_ports}
    listens = behind[0].listens()
    for target in service.targets:
        text = target.text
        if text.isdecimal():
            declared = {port for _, port in workload.named_ports}
            if listens and int(text) not in listens and len(service.targets) == 1:
                known: dict[str, Any] = {"service": service.name, "target": text, "port": listens[0]}
                yield from drafts(release, "service-of-another-port", target, file=service.file, **known)
            elif not listens and declared and int(text) not in declared and behind[0].engine is not None:
                known = {"service": service.name, "target": text, "port": min(declared)}
                yield from drafts(
                    release, "service-of-another-port", target, form="declared", file=service.file, **known
                )
        elif text in names:
            yield from _named(service, workload, text, listens, release)
        elif text and not is_open(text) and not text.isupper() and workload.named_ports:
            known = {"service": service.name, "target": text, "names": ", ".join(sorted(filter(None, names))) or "none"}
            yield from drafts(release, "service-of-another-port", target, form="name", file=service.file, **known)


def _named(
    service: ClusterService, workload: ServedContainer, target: str, listens: Sequence[int], release: str
) -> Iterator[Draft]:
    """``targetPort: http`` of a containerPort of this name, where the server listens on another."""
    for (name, port), place in zip(workload.named_ports, workload.port_places, strict=False):
        if name == target and port and listens and port not in listens and len(service.targets) == 1:
            known: dict[str, Any] = {"service": service.name, "target": name, "declared": port, "port": listens[0]}
            yield from drafts(release, "service-of-another-port", place, form="named", file=workload.file, **known)


def _no_pods(service: ClusterService, found: list[Box], release: str) -> Iterator[Draft]:
    """A service that looks for other labels than those of the only pods of the text."""
    pods = [box.workload for box in found if box.workload is not None and box.workload.labels]
    if len(pods) != 1 or len(pods) != len(found) or any(is_open(text) for pair in service.selector for text in pair):
        return
    labels = dict(pods[0].labels)
    unlike = [name for name, value in service.selector if labels.get(name, value) != value]
    if unlike and not any(map(is_open, labels.values())):
        name = unlike[0]
        known: dict[str, Any] = {"service": service.name, "wanted": f"{name}: {dict(service.selector)[name]}"}
        known["has"] = f"{name}: {labels[name]}"
        yield from drafts(release, "service-without-pods", service.place, file=service.file, **known)
