"""Parts of docker compose's files, as pages show them: one service or several without ``services`` above."""

from collections.abc import Iterable
from typing import Any

from trtllm_check.lint.carriers.schema import read_types

# Fields that services of compose have; the second ones nothing else that has an image.
FIELDS = frozenset(
    [
        *("command", "entrypoint", "ports", "volumes", "environment", "build", "working_dir", "healthcheck", "expose"),
        *(
            "stdin_open",
            "tty",
            "cap_add",
            "devices",
            "profiles",
            "logging",
            "labels",
            "user",
            "hostname",
            "extra_hosts",
        ),
    ]
)
OWN = frozenset(
    [
        *("ipc", "shm_size", "container_name", "restart", "runtime", "gpus", "env_file", "depends_on", "ulimits"),
        *("networks", "network_mode", "deploy"),
    ]
)
# Fields of containers of Kubernetes, of CI and of others that have an image, too.
OTHERS = frozenset(
    [
        *("args", "name", "resources", "volumeMounts", "env", "script", "stage", "kind", "apiVersion", "steps", "spec"),
        *("services", "repository", "replicaCount", "metadata", "jobs", "containers", "tag", "variables", "rules"),
    ]
)
LEAST = 3  # fields: a page that shows fewer shows what changes
INCLUDE, SERVICES, NAME = "include", "services", "service"


def is_of_another(names: Iterable[str]) -> bool:
    """True for the part of a file with a key, in small letters, that no service has: a launcher's own."""
    known = read_types("compose.yml")["Service"].fields
    return any("_" in name and name not in known and not name.startswith("x_") for name in names)


def whole(node: Any) -> Any:
    """``node`` below ``services``, where it is such a part; ``include`` says that there is more of it elsewhere."""
    if node is None or node.id != "mapping" or not node.value:
        return node
    if _is_service(node):
        node = _mapping(node, [(NAME, node)])
    elif not all(_is_service(value) for _, value in node.value):
        return node
    return _mapping(node, [(INCLUDE, _nothing(node)), (SERVICES, node)])


def _is_service(node: Any) -> bool:
    if node.id != "mapping":
        return False
    names = {str(key.value) for key, _ in node.value if key.id == "scalar"}
    images = [value for key, value in node.value if key.value == "image"]
    is_image = bool(images) and images[0].id == "scalar"
    return is_image and not names & OTHERS and bool(names & OWN) and len(names & (OWN | FIELDS)) >= LEAST


def _mapping(node: Any, entries: list[tuple[str, Any]]) -> Any:
    import yaml

    value = [
        (yaml.ScalarNode("tag:yaml.org,2002:str", name, node.start_mark, node.start_mark), one) for name, one in entries
    ]
    return yaml.MappingNode("tag:yaml.org,2002:map", value, node.start_mark, node.end_mark)


def _nothing(node: Any) -> Any:
    import yaml

    return yaml.SequenceNode("tag:yaml.org,2002:seq", [], node.start_mark, node.start_mark)
