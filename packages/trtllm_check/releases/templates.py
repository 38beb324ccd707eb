"""Names, types and wiring of a release's Triton templates, without their text, as a view of ``data/triton``.

``templates.yml`` says where they were read, ``models`` has a file a model, ``llmapi.yml`` is the LLM-API model; all in
spans (:mod:`trtllm_check.releases.load`). ``variables.yml`` says which variables may be emptied, because the backend
takes "" for unset.
"""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field

from serving_base.errors import NotInRelease, UsageError
from serving_base.record import Record
from serving_base.yaml_files import read_yaml
from trtllm_check.releases.load import DATA_DIR, Raw, checked, known_releases, view

VARIABLE = re.compile(r"\$\{(\w+)\}")
OF_LLMAPI = "all_models/llmapi"  # the folder of the LLM-API model

# What the typed fields of each kind of queue hold; triton_max_batch_size is in every model.
QUEUES: dict[str, tuple[str, ...]] = {
    "": (),
    "plain": (),
    "delayed": ("max_queue_delay_microseconds",),
    "limited": ("max_queue_delay_microseconds", "max_queue_size"),
}


class TensorSpec(Record):
    """One input or output. ``dims`` leaves out the batch dimension; ``scalar``: the model sees [B], not [B, 1]."""

    name: str
    type: str
    dims: tuple[int, ...]
    optional: bool = False
    scalar: bool = False
    ragged: bool = False

    @property
    def data_type(self) -> str:
        """As config.pbtxt writes it; a template variable stands for the whole word."""
        return self.type if self.type.startswith("${") else f"TYPE_{self.type}"


class StepSpec(Record):
    """One step of the ensemble: model tensor -> ensemble tensor."""

    model: str
    inputs: dict[str, str]
    outputs: dict[str, str]


class ModelSpec(Record):
    """What one config.pbtxt of a release declares.

    ``queue``: dynamic batching as Triton does it by itself, with a delay, or with a delay and a limit. ``commented``:
    variables that stand in comments only. ``uncertain``: variables that the release's own file may have or not.
    """

    backend: str = ""
    platform: str = ""
    decoupled: str = ""
    queue: Literal["", "plain", "delayed", "limited"] = ""
    instances: str = ""
    commented: tuple[str, ...] = ()
    uncertain: tuple[str, ...] = ()
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    parameters: dict[str, str] = Field(default_factory=dict)
    steps: tuple[StepSpec, ...] = ()

    @property
    def typed(self) -> tuple[str, ...]:
        """Variables of numbers, booleans and data types: one that is left stops the server's parser."""
        fields = (self.decoupled, self.instances, *(tensor.type for tensor in self.inputs + self.outputs))
        return _unique("triton_max_batch_size", *QUEUES[self.queue], *_variables(*fields))

    @property
    def free(self) -> tuple[str, ...]:
        """Variables inside strings and comments: one that is left reaches the backend as it stands."""
        return _unique(*_variables(self.backend, *self.parameters.values()), *self.commented)

    @property
    def variables(self) -> tuple[str, ...]:
        return self.typed + self.free

    def has_input(self, name: str) -> bool:
        return any(tensor.name == name for tensor in self.inputs)


class ReleaseTemplates(Record):
    """The five models of one release, and where their names and types were read.

    ``unasked_outputs``: what tensorrt_llm sends for log-probabilities and logits that a request did not ask for.
    ``token_histograms``: whether its metrics count the tokens of prompts and answers (``nv_llm_input_token_len`` and
    ``nv_llm_output_token_len``). They came with v0.16.0: git grep over the tags of tensorrtllm_backend finds them in
    ``custom_metrics_reporter.cc`` of v0.16.0 (ad209ced) and later, in none of v0.8.0 to v0.15.0 (8534b1cf); from 0.20
    on they are in TensorRT-LLM's own copy, ``triton_backend/`` (89fd9b74).
    """

    release: str
    source: str
    confidence: Literal["high", "medium", "low"]
    note: str = ""
    unasked_outputs: Literal["absent", "zeros"] = "absent"
    token_histograms: bool = False
    models: dict[str, ModelSpec]


class LlmApiModel(Record):
    """Tensors of Triton's LLM-API model, which loads a checkpoint instead of an engine."""

    release: str
    source: str
    confidence: Literal["high", "medium", "low"]
    note: str = ""
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


class Emptied(Record):
    """A variable that may be filled with nothing: what the backend does then, and where that was read."""

    means: str
    source: str


@cache
def template_releases(folder: Path = DATA_DIR) -> tuple[str, ...]:
    """Releases whose templates are known, oldest first."""
    return _read_in("templates.yml", folder)


@cache
def llmapi_releases(folder: Path = DATA_DIR) -> tuple[str, ...]:
    """Releases whose LLM-API model is known, oldest first."""
    return _read_in("llmapi.yml", folder)


@cache
def release_templates(release: str, folder: Path = DATA_DIR) -> ReleaseTemplates:
    """Templates of ``release`` as data. Raises :class:`UsageError` for a release without."""
    if release not in template_releases(folder):
        raise UsageError(
            f"no Triton templates for TensorRT-LLM {release}",
            why="their names and types differ between releases, so another release's are not taken instead",
            fix=f"use one of {', '.join(template_releases(folder))}",
        )
    facts, seen = _seen("templates.yml", release, folder), view(release, folder)
    models = {model: seen.of_file(folder / "triton" / "models" / f"{model}.yml") for model in facts["models"]}
    return checked(ReleaseTemplates, {**facts, "models": models}, f"templates of release {release}", folder / "triton")


@cache
def llmapi_model(release: str, folder: Path = DATA_DIR) -> LlmApiModel:
    """Triton's LLM-API model of ``release`` as data. Raises :class:`NotInRelease` for a release without."""
    if release not in llmapi_releases(folder):
        raise NotInRelease(
            f"there are no facts on Triton's LLM-API model of TensorRT-LLM {release}",
            fix=f"use one of {', '.join(llmapi_releases(folder))}",
        )
    facts = _seen("llmapi.yml", release, folder)
    return checked(LlmApiModel, facts, f"the LLM-API model of release {release}", folder / "triton" / "llmapi.yml")


@cache
def all_variables() -> frozenset[str]:
    """The variables of all releases' templates."""
    models = (model for name in template_releases() for model in release_templates(name).models.values())
    return frozenset(name for model in models for name in (*model.variables, *model.uncertain))


@cache
def emptied_variables(folder: Path = DATA_DIR) -> dict[str, Emptied]:
    """Variables that every release's backend takes for unset when they are empty."""
    facts = read_yaml(folder / "triton" / "variables.yml")
    return {name: Emptied.model_validate(emptied) for name, emptied in facts.items()}


def _read_in(file: str, folder: Path) -> tuple[str, ...]:
    """The releases that ``file`` was read in."""
    return tuple(release for release in known_releases(folder) if "source" in _seen(file, release, folder))


def _seen(file: str, release: str, folder: Path) -> Raw:
    """What ``file`` says of ``release``, and where that was read."""
    facts = view(release, folder).of_file(folder / "triton" / file)
    read = facts.pop("read", {})
    return {**facts, **read, "release": release}


def _variables(*texts: str) -> list[str]:
    return [name for text in texts for name in VARIABLE.findall(text)]


def _unique(*names: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


IN_ORDER = "preserve_ordering: true"
"""In the ``dynamic_batching`` of postprocessing; no release's template has it (tensorrtllm_backend#614)."""


def streams_from_several(values: Mapping[str, str]) -> bool:
    """Whether the pieces of one answer go to several processes that make text of them, and could change places."""
    instances = values.get("postprocessing_instance_count", "")
    return values.get("decoupled_mode", "").lower() == "true" and instances.isdigit() and int(instances) > 1


def queue_rows(folder: Path = DATA_DIR) -> list[dict[str, str]]:
    """For each span of releases: the queue that each model's template declares, in the words of its batching.

    "limited": a delay and ``max_queue_size``, "delayed": a delay alone, "plain": dynamic batching as it is, "none": no
    queue of its own to configure. Priorities and timeouts are in no release's template.
    """
    found: list[dict[str, str]] = []
    for release in template_releases(folder):
        models = release_templates(release, folder).models
        queues = {name: model.queue or "none" for name, model in models.items() if name != "ensemble"}
        if found and {key: value for key, value in found[-1].items() if key != "releases"} == queues:
            found[-1]["releases"] = f"{found[-1]['releases'].split(' to ')[0]} to {release}"
        else:
            found.append({"releases": release, **queues})
    return found
