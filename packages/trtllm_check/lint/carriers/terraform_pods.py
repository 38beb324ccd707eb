"""Pods of Kubernetes in Terraform: what their containers start, and how many GPUs each gets."""

import re
from collections.abc import Callable, Iterator

from trtllm_check.lint.carriers.script import Carried, Script, unknown
from trtllm_check.lint.carriers.settings import Setting
from trtllm_check.lint.carriers.workloads import SHARED, ClusterService, Probe, ServedContainer
from trtllm_check.lint.programs import VLLM_IMAGE
from trtllm_check.lint.shell.words import Word

RESOURCE = re.compile(
    r"^[ \t]*resource\s+\"kubernetes_(?:deployment|stateful_set|daemon_?set|pod|replication_controller)(?:_v1)?\""
    r"\s+\"[^\"]+\"\s*\{",
    re.MULTILINE,
)
SERVICE = re.compile(r"^[ \t]*resource\s+\"kubernetes_service(?:_v1)?\"\s+\"[^\"]+\"\s*\{", re.MULTILINE)
PROBES = {"livenessProbe": "livenessprobe", "startupProbe": "startupprobe", "readinessProbe": "readinessprobe"}
GPUS = ("nvidia.com/gpu", "amd.com/gpu")
ACCELERATOR = re.compile(r"gpu|tpu|neuron|gaudi|mig-|npu", re.IGNORECASE)


def pods(word: Word, read: Callable[[int], Setting]) -> Carried:
    """The containers of all resources. ``read``: the block whose first sign stands behind a position."""
    found = Carried()
    for match in RESOURCE.finditer(word.text) if "kubernetes_" in word.text else ():
        block = read(match.end())
        owner, labels = _inside(block, "metadata", "name"), _inside(block, "spec", "template", "metadata", "labels")
        about = (owner.text if owner is not None else "", _pairs(labels))
        for table in block.tables():
            containers = [one for name, one in table.items if name == "container" and one.kind == "table"]
            for one in containers:
                found = found.with_(_container(one, table, about, alone=len(containers) == 1))
    return found.with_(Carried(workloads=tuple(_services(word, read))))


def _services(word: Word, read: Callable[[int], Setting]) -> Iterator[ClusterService]:
    for match in SERVICE.finditer(word.text) if "kubernetes_service" in word.text else ():
        block = read(match.end())
        name, spec = _inside(block, "metadata", "name"), block.get("spec")
        if name is None or name.kind != "text" or spec is None:
            continue
        ports = [one for field, one in spec.items if field == "port" and one.kind == "table"]
        targets = tuple(one.place for port in ports if (one := port.get("targetport") or port.get("port")) is not None)
        numbers = tuple(one.text for port in ports if (one := port.get("port")) is not None)
        yield ClusterService(name.text, name.place, "", _pairs(spec.get("selector")), targets, numbers)


def _inside(setting: Setting | None, *names: str) -> Setting | None:
    for name in names:
        setting = setting.get(name) if setting is not None else None
    return setting


def _pairs(setting: Setting | None) -> tuple[tuple[str, str], ...]:
    return tuple((value.written, value.text) for _, value in setting.items) if setting is not None else ()


def _probes(one: Setting) -> Iterator[Probe]:
    for name, field in PROBES.items():
        probe = one.get(field)
        if probe is None or probe.kind != "table":
            continue
        delay, period, most = (
            int(value.text) if (value := probe.get(key)) is not None and value.text.isdecimal() else default
            for key, default in (("initialdelayseconds", 0), ("periodseconds", 10), ("failurethreshold", 3))
        )
        asked = probe.get("httpget", "tcpsocket")
        port, path = _inside(asked, "port"), _inside(asked, "path")
        number = int(port.text) if port is not None and port.text.isdecimal() and len(port.text) < 6 else 0
        seconds = delay + period * max(most - 1, 0)
        yield Probe(name, seconds, probe.place, number, path.text if path is not None else "")


def _container(one: Setting, pod: Setting, about: tuple[str, tuple[tuple[str, str], ...]], *, alone: bool) -> Carried:
    image = one.get("image")
    name = image.text if image is not None and image.kind == "text" else ""
    command, args = one.get("command"), one.get("args")
    words = tuple(_word(part) for part in (*_parts(command), *_parts(args)))
    script = Script()
    for variable, value in _settings(one):
        if value.text and re.fullmatch(r"[A-Za-z_]\w*", variable):
            script.variable(variable, value)
    if VLLM_IMAGE.search(name) and command is None and words:
        place = (words[0].line, words[0].column)
        script.words([*(Word(text, *place, (place,) * len(text)) for text in ("vllm", "serve")), *words])
    elif words and not words[0].text.startswith("-"):
        script.words(words)
    built = script.word()
    box = _workload(one, pod, image, words, alone=alone) if image is not None and name else None
    box = box._replace(owner=about[0], labels=about[1]) if box is not None else None
    return Carried(
        scripts=((built, name),) if built.text.strip() else (),
        images=(image.place,) if image is not None and name else (),
        workloads=(box,) if box is not None else (),
    )


def _parts(setting: Setting | None) -> tuple[Setting, ...]:
    return setting.parts if setting is not None and setting.kind == "list" else ()


def _word(part: Setting) -> Word:
    at = part.place
    return at if part.kind in ("text", "number") else unknown(at.text, (at.line, at.column))


def _settings(one: Setting) -> Iterator[tuple[str, Word]]:
    """Variables; of a value from elsewhere the text is empty."""
    for name, pair in one.items:
        called, value = pair.get("name"), pair.get("value")
        if name == "env" and called is not None and called.kind == "text":
            known = value is not None and value.kind in ("text", "number")
            yield called.text, value.place if known and value is not None else Word("", pair.place.line, 1)


def _workload(one: Setting, pod: Setting, image: Setting, words: tuple[Word, ...], *, alone: bool) -> ServedContainer:
    lines = [line for table in one.tables() for line in _lines(table)]
    resources = one.get("resources")
    limits = resources.get("limits") if resources is not None else None
    named = [value for _, value in limits.items if ACCELERATOR.search(value.written)] if limits is not None else []
    asked = next((value for value in named if value.written in GPUS), None)
    gpus: int | None = 0 if not named and (limits is None or limits.kind == "table") else None
    if asked is not None and asked.text.isdecimal() and len(asked.text) < 4:
        gpus = int(asked.text)
    mounts = [value.get("mountpath") for name, value in one.items if name == "volumemount"]
    folders = tuple(mount.text.rstrip("/") for mount in mounts if mount is not None and mount.kind == "text")
    is_open = any(name in ("envfrom", "dynamic") for name, _ in one.items)
    told = all(part is None or part.kind == "list" for part in (one.get("command"), one.get("args")))
    return ServedContainer(
        "kubernetes",
        image.text,
        image.place,
        min(lines),
        max(lines),
        None if "runtimeclassname" in {name for name, _ in pod.items} and gpus == 0 else gpus,
        SHARED in folders or len(folders) < len(mounts) or is_open,
        asked.place if asked is not None else image.place,
        variables=tuple(name for name, _ in _settings(one)),
        words=words,
        replaced=one.get("command") is not None or not told,
        settings=tuple(_settings(one)),
        is_open=is_open,
        mounts=folders,
        alone=alone,
        probes=tuple(_probes(one)),
        named_ports=tuple(_ports(one)),
    )


def _ports(one: Setting) -> Iterator[tuple[str, int]]:
    for field, port in one.items:
        number, name = port.get("containerport"), port.get("name")
        if field == "port" and number is not None and number.text.isdecimal() and len(number.text) < 6:
            yield name.text if name is not None else "", int(number.text)


def _lines(table: Setting) -> Iterator[int]:
    yield table.place.line
    for _, value in table.items:
        yield value.place.line
        yield from (part.place.line for part in value.parts)
