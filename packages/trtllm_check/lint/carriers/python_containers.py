"""Containers that Python describes: what each starts, where the program and its arguments stand apart.

``client.containers.run(IMAGE, [...])`` of docker's SDK, ``V1Container(command=[...], args=[...])`` of Kubernetes',
operators of workflows, definitions of ECS tasks. A list that is a whole command is read without its container.
"""

import ast
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from trtllm_check.lint.carriers.python_words import PythonWords, called_name, split
from trtllm_check.lint.carriers.workloads import ServedContainer
from trtllm_check.lint.programs import TOOLS, VLLM_IMAGE
from trtllm_check.lint.shell import Word
from trtllm_check.lint.shell.words import file_name

IMAGES = ("image", "Image", "image_name", "image_uri", "serving_container_image_uri")
# Each pair: what replaces the image's entry point, and what is put behind it.
PAIRS = (
    ("command", "args"),
    ("serving_container_command", "serving_container_args"),
    ("cmds", "arguments"),
    ("entrypoint", "command"),
    ("entryPoint", "command"),
)
ALONE = (
    "args",
    "arguments",
    "command",
    "docker_args",
    "dockerArgs",
    "serving_container_args",
)  # behind the entry point of the image
OF_DOCKER = ("run", "create")  # of client.containers: the image and its command without names


class ContainerCommand(NamedTuple):
    """The ``words`` that a container of ``image`` starts with, and the nodes that they stand in."""

    words: tuple[Word, ...]
    image: str
    nodes: tuple[ast.expr, ...]


def container_commands(code: PythonWords) -> Iterator[ContainerCommand]:
    """The commands of containers that no list holds whole."""
    for node in ast.walk(code.tree):
        fields = _fields(node)
        image = next((text for name in IMAGES if (text := _image(code, fields.get(name)))), "")
        if not image:
            continue
        for first, behind in PAIRS:
            if first in fields and behind in fields:
                words = [*_words(code, fields[first]), *_words(code, fields[behind])]
                if words and _words(code, fields[first]) and _words(code, fields[behind]):
                    yield ContainerCommand(tuple(words), image, (fields[first], fields[behind]))
                break
        else:
            yield from _behind_the_entry(code, fields, image)


def docker_workloads(code: PythonWords) -> Iterator[ServedContainer]:
    """What ``client.containers.run(IMAGE, ports={"8000/tcp": 8000})`` starts; of GPUs and memory nothing is told."""
    for node in ast.walk(code.tree):
        owner = node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
        if not isinstance(node, ast.Call) or called_name(node) not in OF_DOCKER:
            continue
        if not isinstance(owner, ast.Attribute) or owner.attr != "containers":
            continue
        fields = _fields(node)
        image = code.value(fields["image"]) if "image" in fields else None
        network = code.value(fields["network_mode"]) if "network_mode" in fields else None
        if image is None or any(one.arg is None for one in node.keywords):
            continue
        first, column = code.place(node)
        place = Word(image.text, first, column)
        yield ServedContainer(
            "compose",
            image.text,
            place,
            first,
            first + (node.end_lineno or node.lineno) - node.lineno,
            None,
            True,
            place,
            ports=tuple(_ports(fields.get("ports"))),
            host_network=network is not None and network.text == "host",
            network=network.text if network is not None else "",
            words=tuple(_words(code, fields["command"])) if "command" in fields else (),
            replaced="entrypoint" in fields,
            is_open=any(name in fields for name in ("environment", "network")),
        )


def _ports(node: ast.expr | None) -> Iterator[tuple[int, int]]:
    """Host's port and port inside; 0 for one that the program works out."""
    for key, value in zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ():
        inside = str(key.value).partition("/")[0] if isinstance(key, ast.Constant) else ""
        value = value.elts[-1] if isinstance(value, ast.Tuple) and value.elts else value
        host = str(value.value) if isinstance(value, ast.Constant) else ""
        if inside.isdecimal() and len(inside) < 6:
            yield int(host) if host.isdecimal() and len(host) < 6 else 0, int(inside)


def _behind_the_entry(code: PythonWords, fields: Mapping[str, ast.expr], image: str) -> Iterator[ContainerCommand]:
    """Arguments for vLLM's image, which starts the server itself."""
    if not VLLM_IMAGE.search(image) or any(first in fields for first in ("entrypoint", "entryPoint", "cmds")):
        return
    for name in ALONE:
        words = _words(code, fields[name]) if name in fields else []
        if words and words[0].text.startswith("--") and not any(file_name(one.text) in TOOLS for one in words):
            line, column = words[0].line, words[0].column
            program = [Word(text, line, column, ((line, column),) * len(text)) for text in ("vllm", "serve")]
            yield ContainerCommand((*program, *words), image, (fields[name],))
            return


def _fields(node: ast.AST) -> dict[str, ast.expr]:
    if isinstance(node, ast.Dict):
        keys = zip(node.keys, node.values, strict=True)
        return {str(key.value): value for key, value in keys if isinstance(key, ast.Constant)}
    if not isinstance(node, ast.Call):
        return {}
    fields = {one.arg: one.value for one in node.keywords if one.arg is not None}
    owner = node.func.value if isinstance(node.func, ast.Attribute) else None
    if called_name(node) in OF_DOCKER and isinstance(owner, ast.Attribute) and owner.attr == "containers":
        fields = {**dict(zip(("image", "command"), node.args, strict=False)), **fields}
    return fields


def _image(code: PythonWords, node: ast.expr | None) -> str:
    """The image's name; also where a call makes an image of it: ``ContainerImage.from_registry(...)``."""
    if isinstance(node, ast.Call) and node.args:
        node = node.args[0]
    value = code.value(node) if node is not None else None
    return value.text if value is not None else ""


def _words(code: PythonWords, node: ast.expr) -> list[Word]:
    words = code.listed(node)
    if words:
        return words
    value = code.value(node)
    return split(value) if value is not None and value.text.strip() else []
