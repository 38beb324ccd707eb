"""Task definitions of Amazon ECS: as JSON, in CloudFormation, and in Terraform, whose JSON is written as an object.

What their containers start goes to the rules as it does from docker compose: ``command`` follows the image's own entry
point, ``entryPoint`` takes its place. What ECS itself refuses is said here.
Source: AWS, Amazon ECS API reference, RegisterTaskDefinition, ContainerDefinition; developer guide, ecs-gpu.
"""

import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.carriers.faults import FormFault
from trtllm_check.lint.carriers.schema import read_table
from trtllm_check.lint.carriers.script import Carried, Script, unknown
from trtllm_check.lint.carriers.settings import Setting
from trtllm_check.lint.carriers.workloads import ServedContainer
from trtllm_check.lint.programs import SERVER_IMAGE, VLLM_IMAGE
from trtllm_check.lint.shell.words import Word

FILE = "ecs.yml"
RULE = "ecs-task"
FARGATE = "FARGATE"
AWSVPC = "awsvpc"
OTHER_PROCESSORS = re.compile(r"cpu|neuron|tpu|arm64|graviton", re.IGNORECASE)
LOCAL = re.compile(r"https?://(?:localhost|127\.0\.0\.1|0\.0\.0\.0):(?P<port>\d{2,5})(?=[/\s\"']|$)")
OWN_PORT = re.compile(r"--port[= ]+(?P<port>\S+)")
VLLM_PORT = "8000"
LISTS = ("environment", "portmappings", "mountpoints", "secrets", "command", "entrypoint", "resourcerequirements")


def task(settings: Setting, *, keeps_numbers: bool) -> Carried:
    """One task definition. ``keeps_numbers``: a number stays one and is no text, as CloudFormation makes it."""
    definitions = settings.get("containerdefinitions")
    found = Carried(faults=tuple(_size(settings)))
    for one in definitions.parts if definitions is not None else ():
        if one.kind == "table" and one.get("image") is not None:
            found = found.with_(_container(one, settings, keeps_numbers=keeps_numbers))
    return found


def _fault(form: str, at: Setting, **known: Any) -> FormFault:
    return FormFault(RULE, at.place, form, tuple((name, str(value)) for name, value in known.items()))


def _text(setting: Setting | None) -> str:
    return setting.text if setting is not None and setting.kind in ("text", "number") else ""


def _parts(setting: Setting | None) -> tuple[Setting, ...]:
    return setting.parts if setting is not None and setting.kind == "list" else ()


def is_fargate(settings: Setting) -> bool:
    """True for a task that runs on Fargate alone."""
    wanted = _parts(settings.get("requirescompatibilities"))
    return [one.text for one in wanted] == [FARGATE]


def _size(settings: Setting) -> Iterator[FormFault]:
    """CPUs and memory of a task on Fargate, and its network."""
    if not is_fargate(settings):
        return
    sizes: dict[str, list[int]] = read_table(FILE)["fargate"]
    cpu, memory = settings.get("cpu"), settings.get("memory")
    has, wants = _text(cpu), _text(memory)
    if cpu is not None and memory is not None and has.isdecimal() and wants.isdecimal():
        if has not in sizes:
            yield _fault("cpu", cpu, value=has, listed=", ".join(sizes))
        else:
            least, most, step = sizes[has]
            if not least <= int(wants) <= most or (int(wants) - least) % step:
                yield _fault("memory", memory, value=wants, cpu=has, least=least, most=most)
    network = settings.get("networkmode")
    if network is not None and network.kind == "text" and network.text != AWSVPC:
        yield _fault("network", network, value=network.text)


def _container(one: Setting, settings: Setting, *, keeps_numbers: bool) -> Carried:
    image = one.get("image")
    name = _text(image)
    entry, command = one.get("entrypoint"), one.get("command")
    words = tuple(_word(part) for part in (*_parts(entry), *_parts(command)))
    script = Script()
    for variable, value in _variables(one):
        script.variable(variable, value)
    if VLLM_IMAGE.search(name) and entry is None and words:
        place = (words[0].line, words[0].column)
        script.words([*(Word(text, *place, (place,) * len(text)) for text in ("vllm", "serve")), *words])
    elif words and not words[0].text.startswith("-"):
        script.words(words)
    built = script.word()
    at = image.place if image is not None else one.place
    is_told = all(part is None or part.kind == "list" for part in (entry, command))
    box = _workload(one, settings, name, at, words, is_told=is_told)
    return Carried(
        scripts=((built, name),) if built.text.strip() else (),
        images=(at,) if name else (),
        workloads=(box,) if name else (),
        faults=(
            *_hardware(one, settings, name, at),
            *_fields(one, keeps_numbers=keeps_numbers),
            *_bounds(one),
            *(_port(one, name, words) if is_told else ()),
        ),
    )


def _word(part: Setting) -> Word:
    return (
        part.place
        if part.kind in ("text", "number")
        else unknown(part.place.text, (part.place.line, part.place.column))
    )


def _variables(one: Setting) -> Iterator[tuple[str, Word]]:
    for pair in _parts(one.get("environment")):
        name, value = pair.get("name"), pair.get("value")
        if name is not None and value is not None and re.fullmatch(r"[A-Za-z_]\w*", name.text):
            yield name.text, _word(value)


def _workload(
    one: Setting, settings: Setting, image: str, at: Word, words: tuple[Word, ...], *, is_told: bool
) -> ServedContainer:
    lines = [line for table in one.tables() for line in _lines(table)]
    asked = [part for part in _parts(one.get("resourcerequirements")) if _text(part.get("type")).upper() == "GPU"]
    value = asked[0].get("value") if asked else None
    number = _text(value)
    gpus: int | None = int(number) if number.isdecimal() and len(number) < 4 else None
    if one.get("resourcerequirements") is None and not is_fargate(settings):
        gpus = 0
    linux = one.get("linuxparameters")
    shared = linux is not None and linux.get("sharedmemorysize", "<<") is not None
    secrets = [pair.get("name") for pair in _parts(one.get("secrets"))]
    mounts = (_text(part.get("containerpath")).rstrip("/") for part in _parts(one.get("mountpoints")))
    others = (one.get("environment"), one.get("secrets"))
    return ServedContainer(
        "ecs",
        image,
        at,
        min(lines),
        max(lines),
        gpus,
        shared or (linux is not None and linux.kind == "open") or settings.get("ipcmode") is not None,
        value.place if value is not None else at,
        variables=tuple(name for name, _ in _variables(one)),
        words=words,
        replaced=one.get("entrypoint") is not None or not is_told,
        settings=(
            *_variables(one),
            *((name.text, Word("", at.line, at.column)) for name in secrets if name is not None),
        ),
        is_open=one.get("environmentfiles", "<<") is not None
        or any(part is not None and part.kind == "open" for part in others),
        mounts=tuple(mounts),
        host_network=_text(settings.get("networkmode")) == "host",
    )


def _lines(table: Setting) -> Iterator[int]:
    yield table.place.line
    for _, value in table.items:
        yield value.place.line
        yield from (part.place.line for part in value.parts)


def _hardware(one: Setting, settings: Setting, image: str, at: Word) -> Iterator[FormFault]:
    """GPUs on Fargate, which has none."""
    if not is_fargate(settings):
        return
    for part in _parts(one.get("resourcerequirements")):
        if _text(part.get("type")).upper() == "GPU":
            yield _fault("gpu on fargate", part)
            return
    if SERVER_IMAGE.search(image) and not OTHER_PROCESSORS.search(image):
        yield FormFault(RULE, at, "image on fargate", (("image", image),))


def _fields(one: Setting, *, keeps_numbers: bool) -> Iterator[FormFault]:
    """Names that a container definition has not, and values of another kind."""
    data = read_table(FILE)
    known = {name.lower() for name in data["container"].split()}
    for name, value in one.items:
        if name in data["instead"]:
            yield _fault("field", value, name=value.written, right=data["instead"][name])
        elif name not in known and name != "<<":
            continue
        elif name in LISTS and value.kind in ("table", "text", "number"):
            yield _fault("list", value, name=value.written, right=data["lists"][name])
    for part in (*_parts(one.get("environment")), *_parts(one.get("resourcerequirements"))) if keeps_numbers else ():
        written = part.get("value")
        if written is not None and written.kind in ("number", "switch"):
            yield _fault("number", written, value=written.text)


def _bounds(one: Setting) -> Iterator[FormFault]:
    """Times of the health check that ECS refuses."""
    check = one.get("healthcheck")
    for name, (least, most) in read_table(FILE)["bounds"].items() if check is not None else ():
        value = check.get(name) if check is not None else None
        if value is not None and _text(value).isdecimal() and not least <= int(value.text) <= most:
            yield _fault("bounds", value, name=value.written, value=value.text, least=least, most=most)


def _port(one: Setting, image: str, words: tuple[Word, ...]) -> Iterator[FormFault]:
    """A health check and a mapping for a port on which vLLM does not listen."""
    whole = " ".join(word.text for word in words)
    if not VLLM_IMAGE.search(image) or one.get("entrypoint") is not None or "--config" in whole:
        return
    given = OWN_PORT.search(whole)
    port = given["port"] if given else VLLM_PORT
    if not port.isdecimal():
        return
    check = one.get("healthcheck")
    test = check.get("command") if check is not None else None
    asked = LOCAL.search(" ".join(part.text for part in _parts(test)))
    if test is not None and asked is not None and asked["port"] != port:
        yield _fault("health port", test, asked=asked["port"], port=port)
    inside = [part.get("containerport") for part in _parts(one.get("portmappings"))]
    told = [part for part in inside if part is not None]
    if told and len(told) == len(inside) and all(part.text.isdecimal() and part.text != port for part in told):
        yield _fault("mapped port", told[0], mapped=told[0].text, port=port)
