"""Task definitions of Amazon ECS in JSON and in CloudFormation's templates."""

from collections.abc import Callable, Iterator
from typing import Any

from trtllm_check.lint.carriers import ecs
from trtllm_check.lint.carriers.script import Carried
from trtllm_check.lint.carriers.settings import from_yaml
from trtllm_check.lint.carriers.workloads import fields_of
from trtllm_check.lint.shell.words import Word

CONTAINERS = "containerdefinitions"
OF_JSON, INSIDE = "containerDefinitions", "taskDefinition"
RESOURCE = "AWS::ECS::TaskDefinition"
DEEPEST = 10


def carried(node: Any, place: Callable[[Any], Word]) -> Carried:
    """What the tasks of one document hold."""
    found = Carried()
    for one, keeps_numbers in _tasks(node):
        found = found.with_(ecs.task(from_yaml(one, place, DEEPEST), keeps_numbers=keeps_numbers))
    return found


def _tasks(node: Any) -> Iterator[tuple[Any, bool]]:
    """Each task, and whether a number in it stays one."""
    top = fields_of(node)
    for one in (node, top.get(INSIDE)):
        if OF_JSON in fields_of(one):
            yield one, True
    for resource in fields_of(top.get("Resources")).values():
        entries = fields_of(resource)
        kind = entries.get("Type")
        if kind is not None and kind.id == "scalar" and kind.value == RESOURCE and "Properties" in entries:
            yield entries["Properties"], False
