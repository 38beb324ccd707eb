"""Follows the tensors of an ensemble through its steps."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from trtllm_check.lint.documents.pbtxt import Message, Scalar

TRUE = ("true", "t", "1")


class Loose(NamedTuple):
    """A place where the steps do not fit together; ``model``: the one that is missing, if it is one."""

    place: Scalar
    problem: str
    model: str = ""


def loose_ends(ensemble: Message, models: Mapping[str, Message]) -> Iterator[Loose]:
    """What does not fit in ``ensemble``. ``models``: the others of its repository, none if they are not known."""
    available = {tensor.text("name"): tensor.text("data_type") for tensor in ensemble.messages("input")}
    for step in (step for part in ensemble.messages("ensemble_scheduling") for step in part.messages("step")):
        name = step.scalar("model_name")
        if name is None:
            continue
        model = models.get(name.text)
        if models and model is None:
            yield Loose(name, f"step {name.text}: the repository has no such model", name.text)
        yield from _inputs(step, name, model, available)
        outputs = (
            {tensor.text("name"): tensor.text("data_type") for tensor in model.messages("output")} if model else {}
        )
        for entry in step.messages("output_map"):
            key = entry.scalar("key")
            if key is not None and model is not None and key.text not in outputs:
                yield Loose(key, f"step {name.text}: the model has no output {key.text}")
            available[entry.text("value")] = outputs.get(entry.text("key"), "")
    for tensor in ensemble.messages("output"):
        output = tensor.scalar("name")
        if output is not None and output.text not in available:
            yield Loose(output, f"output {output.text} is given by no step")


def _inputs(step: Message, name: Scalar, model: Message | None, available: Mapping[str, str]) -> Iterator[Loose]:
    tensors = {tensor.text("name"): tensor for tensor in model.messages("input")} if model else {}
    mapped = set()
    for entry in step.messages("input_map"):
        key, value = entry.scalar("key"), entry.scalar("value")
        if key is None or value is None:
            continue
        mapped.add(key.text)
        if model is not None and key.text not in tensors:
            yield Loose(key, f"step {name.text}: the model has no input {key.text}")
        elif value.text not in available:
            yield Loose(value, f"step {name.text}: input {key.text} reads {value.text}, which no earlier step gives")
        elif model is not None and _differ(tensors[key.text].text("data_type"), available[value.text]):
            wanted = tensors[key.text].text("data_type")
            problem = f"step {name.text}: input {key.text} is {wanted} and reads {value.text}, which is "
            yield Loose(value, problem + available[value.text])
    for tensor_name, tensor in tensors.items():
        if tensor_name not in mapped and tensor.text("optional").lower() not in TRUE:
            yield Loose(name, f"step {name.text}: its required input {tensor_name} is not mapped")


def _differ(one: str, other: str) -> bool:
    return bool(one and other) and "$" not in one + other and one != other
