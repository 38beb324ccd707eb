"""How the steps of an ensemble fit: with each other, with the ensemble's own tensors and with the models they name.

Read in triton-inference-server/core src/model_config_utils.cc (ValidateEnsembleSchedulingConfig, BuildEnsembleGraph)
and src/ensemble_scheduler/ensemble_utils.cc (ValidateEnsembleConfig). The order of the steps is free there.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from trtllm_check.lint.pbtxt import TRUE, Message, Scalar
from trtllm_check.lint.triton_configs import Objection, is_told
from trtllm_check.releases.templates import release_templates, template_releases

ENSEMBLE = "ensemble"
NOT_FOR_ENSEMBLES = {
    "instance_group": "instance group should not be specified for an ensemble",
    "optimization": "optimization should not be specified for an ensemble",
    "model_warmup": "model_warmup can not be specified for an ensemble",
}
STEP_NEEDS = ("model_name", "input_map", "output_map")
ENGINE_MODEL, OF_THE_ENGINE = "tensorrt_llm", {"input_ids"}
ANY = "-1"
OF_THE_TEMPLATES = ("preprocessing", ENGINE_MODEL, "postprocessing")
SHOWN = 4  # names of tensors in a message
OF_ANOTHER = 2  # inputs that no model of that name has


class Loose(NamedTuple):
    """A place where the steps do not fit together; ``model``: the one that is missing, if it is one."""

    place: Scalar
    problem: str
    model: str = ""


class Tensor(NamedTuple):
    """What is known of a tensor between the steps; ``whole``: its dimensions with the batch."""

    owner: str
    data_type: str
    dims: tuple[str, ...]
    whole: tuple[str, ...]


def ensemble_objections(config: Message, *, is_whole: bool) -> Iterator[Objection]:
    """What the server says of the ensemble alone; ``is_whole``: its inputs and outputs are all that it has."""
    schedules = config.messages("ensemble_scheduling")
    platform, backend = config.scalar("platform"), config.scalar("backend")
    is_ensemble = platform is not None and platform.text == ENSEMBLE
    if not schedules and not is_ensemble:
        return
    for name, problem in NOT_FOR_ENSEMBLES.items():
        if place := _place(config, name):
            yield Objection(place, problem, f"leave {name} out; the models of the steps have their own")
    if is_ensemble and backend is not None and backend.text not in ("", ENSEMBLE):
        problem = "an ensemble must have the platform ensemble and an empty backend"
        yield Objection(backend, problem, "leave the backend out")
    named = platform or backend
    if schedules and not is_ensemble and (is_whole or named is not None) and not _is_open(named):
        place = named or _place(config, "ensemble_scheduling")
        if place is not None and place.text != ENSEMBLE:
            problem = "ensemble scheduling cannot be set for a model whose platform is not ensemble"
            yield Objection(place, problem, 'write platform: "ensemble", and no backend')
    steps = [step for one in schedules for step in one.messages("step")]
    if schedules and not steps and is_whole and (place := _place(config, "ensemble_scheduling")):
        yield Objection(place, "an ensemble must have a step", "add the steps: step [ { model_name: ... } ]")
    yield from _steps(steps)
    if is_whole and steps:
        yield from _unused(config, steps) if config.messages("input") else _without_inputs(config)


def _without_inputs(config: Message) -> Iterator[Objection]:
    lacking = " and ".join(name for name in ("input", "output") if not config.messages(name))
    if place := _place(config, "ensemble_scheduling"):
        problem = f"the ensemble declares no {lacking}: the server reads them from nowhere else"
        yield Objection(place, problem, f"add the {lacking} of the ensemble, with data_type and dims")


def _steps(steps: Sequence[Message]) -> Iterator[Objection]:
    """Steps that lack a field, and tensors that two steps make."""
    made: set[str] = set()
    for number, step in enumerate(steps):
        names = {name for name, _ in step.fields}
        for name in STEP_NEEDS:
            if name not in names:
                problem = f"step {number} of the ensemble must have {name}"
                yield Objection(Scalar("", step.line, step.column), problem, f"add {name}")
        for entry in step.messages("output_map"):
            value = entry.scalar("value")
            if value is not None and value.text in made:
                problem = f"the ensemble's tensor {value.text} can appear in an output_map only once"
                yield Objection(value, problem, "give the second one a name of its own")
            made.add(entry.text("value"))


def _unused(config: Message, steps: Sequence[Message]) -> Iterator[Objection]:
    """Tensors that nobody reads: the server refuses an ensemble with one."""
    read = {entry.text("value") for step in steps for entry in step.messages("input_map")}
    given = {one.text("name") for one in config.messages("output")}
    made = {entry.text("value") for step in steps for entry in step.messages("output_map")}
    if (read | given) - made - {one.text("name") for one in config.messages("input")}:
        return  # one slip of a name is said where the other name is read
    for tensor in config.messages("input"):
        name = tensor.scalar("name")
        if name is not None and name.text not in read | given:
            problem = f"the ensemble's input {name.text} is not used: no step reads it"
            yield Objection(name, problem, f"add an input_map with value: {name.text} to a step, or leave it out")
    for step in steps:
        kept = {entry.text("key"): entry for entry in step.messages("output_map")}
        for entry in kept.values():
            value = entry.scalar("value")
            if value is not None and value.text not in read | given:
                problem = f"the ensemble's tensor {value.text} is unused: it is no output, and no step reads it"
                yield Objection(value, problem, f"leave this output_map out, or declare {value.text} as an output")


def loose_ends(
    ensemble: Message, models: Mapping[str, Message], of_engine: Collection[str] = (), *, is_whole: bool = True
) -> Iterator[Loose]:
    """What does not fit in ``ensemble``. ``models``: the others of its repository, none if they are not known.

    ``of_engine``: the inputs that the engine's model of the release wants, where the repository does not tell;
    ``is_whole``: the ensemble's own inputs are shown.
    """
    steps = [step for part in ensemble.messages("ensemble_scheduling") for step in part.messages("step")]
    tensors = dict(_own(ensemble))
    given = {one.text("name") for one in ensemble.messages("input")}
    given |= {entry.text("value") for step in steps for entry in step.messages("output_map")}
    for step in steps:
        name = step.scalar("model_name")
        if name is None:
            continue
        model = models.get(name.text)
        if models and model is None:
            yield Loose(name, f"step {name.text}: the repository has no such model", name.text)
        if model is None and name.text == ENGINE_MODEL and _mapped(step) >= OF_THE_ENGINE:
            yield from _unmapped(step, name, of_engine)
        yield from _batch(ensemble, name, model)
        yield from _inputs(step, name, model, given if is_whole else None, tensors)
        yield from _outputs(step, name, model, tensors)
    for one in ensemble.messages("output"):
        output = one.scalar("name")
        if output is not None and output.text not in given:
            yield Loose(output, f"output {output.text} is given by no step")


def _own(ensemble: Message) -> Iterator[tuple[str, Tensor]]:
    for one in (*ensemble.messages("input"), *ensemble.messages("output")):
        yield one.text("name"), _tensor("the ensemble", ensemble, one, reshaped=True)


def _tensor(owner: str, model: Message, one: Message, *, reshaped: bool = False) -> Tensor:
    shapes = one.messages("reshape") if reshaped else []
    places = shapes[-1].scalars("shape") if shapes else one.scalars("dims")
    batch = model.text("max_batch_size")
    is_asked = batch in ("", "0") and not is_told(model)  # the server takes what the model's file says
    dims = () if is_asked else tuple(place.text for place in places)
    whole = (ANY, *dims) if batch not in ("", "0") else dims
    return Tensor(owner, one.text("data_type"), dims, whole)


def _batch(ensemble: Message, name: Scalar, model: Message | None) -> Iterator[Loose]:
    allowed = ensemble.text("max_batch_size")
    held = model.text("max_batch_size") if model is not None else ""
    if allowed.isdecimal() and held.isdecimal() and 0 < int(held) < int(allowed):
        yield Loose(
            name,
            f"it allows maximum batch size {allowed}, but it contains model {name.text} "
            f"which only allows maximum batch size to be {held}",
        )


def _inputs(
    step: Message, name: Scalar, model: Message | None, given: set[str] | None, tensors: dict[str, Tensor]
) -> Iterator[Loose]:
    """``given``: what the request and the steps give; None for an ensemble that does not show its own inputs."""
    declared = {one.text("name"): one for one in model.messages("input")} if model else {}
    for entry in step.messages("input_map"):
        key, value = entry.scalar("key"), entry.scalar("value")
        if key is None or value is None:
            continue
        if declared and key.text not in declared:
            yield Loose(key, f"step {name.text}: the model has no input {key.text}")
        elif given is not None and value.text not in given:
            yield Loose(value, f"step {name.text}: input {key.text} reads {value.text}, which no step gives")
        elif model is not None and declared:
            yield from _differ(
                f"input {key.text}", "reads", name, value, tensors, _tensor(name.text, model, declared[key.text])
            )
    wanted = [one for one, tensor in declared.items() if tensor.text("optional").lower() not in TRUE]
    yield from _unmapped(step, name, wanted)


def foreign_keys(ensemble: Message, models: Collection[str]) -> Iterator[Loose]:
    """Keys of a step that the model of the templates has in no release; ``models``: those that the text shows itself.

    One for each map, at its first such key.
    """
    steps = [step for part in ensemble.messages("ensemble_scheduling") for step in part.messages("step")]
    if {step.text("model_name") for step in steps} < set(OF_THE_TEMPLATES):
        return  # somebody else's repository, perhaps
    for step in steps:
        name = step.text("model_name")
        for kind, known in zip(("input", "output"), _of_templates().get(name, ((), ())), strict=True):
            keys = [key for entry in step.messages(f"{kind}_map") if (key := entry.scalar("key")) is not None]
            strange = [key for key in keys if key.text not in known and "$" not in key.text]
            if strange and name not in models:
                names = ", ".join(dict.fromkeys(key.text for key in strange))
                yield Loose(
                    strange[0],
                    f"step {name}: the template's model has no {kind} {names}; "
                    f"its {kind}s are {', '.join(known[:SHOWN])}{' and more' * (len(known) > SHOWN)}",
                )


@cache
def _of_templates() -> Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    """Inputs and outputs of each model of the templates, of all releases; what each release has comes first."""
    found: dict[str, tuple[dict[str, int], dict[str, int]]] = {}
    for release in template_releases():
        for name, model in release_templates(release).models.items():
            for counts, tensors in zip(found.setdefault(name, ({}, {})), (model.inputs, model.outputs), strict=True):
                for one in tensors:
                    counts[one.name] = counts.get(one.name, 0) + 1
    return {
        name: (_by_count(inputs), _by_count(outputs))
        for name, (inputs, outputs) in found.items()
        if name in OF_THE_TEMPLATES
    }


def _by_count(counts: Mapping[str, int]) -> tuple[str, ...]:
    return tuple(sorted(counts, key=lambda name: -counts[name]))


def _mapped(step: Message) -> set[str]:
    return {entry.text("key") for entry in step.messages("input_map")}


def _unmapped(step: Message, name: Scalar, wanted: Collection[str]) -> Iterator[Loose]:
    mapped = _mapped(step)
    known = _of_templates().get(name.text, ((), ()))[0]
    if known and len(mapped - {*known, *wanted}) >= OF_ANOTHER:
        return  # of another model that is called so
    for one in wanted:
        if one not in mapped and "$" not in one:
            yield Loose(name, f"step {name.text}: its required input {one} is not mapped")


def _outputs(step: Message, name: Scalar, model: Message | None, tensors: dict[str, Tensor]) -> Iterator[Loose]:
    declared = {one.text("name"): one for one in model.messages("output")} if model else {}
    for entry in step.messages("output_map"):
        key, value = entry.scalar("key"), entry.scalar("value")
        if key is None or value is None or model is None or not declared:
            continue  # what a model does not declare, its file of weights may tell
        if key.text not in declared:
            yield Loose(key, f"step {name.text}: the model has no output {key.text}")
        else:
            tensor = _tensor(name.text, model, declared[key.text])
            yield from _differ(f"output {key.text}", "is written to", name, value, tensors, tensor)


def _differ(
    what: str, verb: str, name: Scalar, value: Scalar, tensors: dict[str, Tensor], one: Tensor
) -> Iterator[Loose]:
    """``one`` against what an earlier step, or the ensemble, has made of the same tensor."""
    other = tensors.setdefault(value.text, one)
    if any("$" in text for text in (one.data_type, other.data_type, *one.whole, *other.whole)):
        return
    told = f"step {name.text}: {what} is "
    if one.data_type and other.data_type and one.data_type != other.data_type:
        yield Loose(value, f"{told}{one.data_type} and {verb} {value.text}, which is {other.data_type}")
    elif one.dims and other.dims and not (_alike(one.dims, other.dims) or _alike(one.whole, other.whole)):
        shapes = f"of shape [{', '.join(one.whole)}] and {verb} {value.text}, which is [{', '.join(other.whole)}]"
        yield Loose(value, f"{told}{shapes} for {other.owner}")


def _alike(one: Sequence[str], other: Sequence[str]) -> bool:
    """True where each dimension is the other's, or any."""
    return len(one) == len(other) and all(
        left == right or ANY in (left, right) for left, right in zip(one, other, strict=True)
    )


def _is_open(place: Scalar | None) -> bool:
    return place is not None and "$" in place.text


def _place(config: Message, name: str) -> Scalar | None:
    """Where the field stands."""
    for (field, _), (line, column) in zip(config.fields, config.places, strict=True):
        if field == name:
            return Scalar("", line, column)
    return None
