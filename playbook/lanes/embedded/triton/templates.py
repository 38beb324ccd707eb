"""Templates of the five models of inflight_batcher_llm, one set per release, rendered from data."""

from functools import cache
from pathlib import Path
from string import Template
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

from playbook.errors import UsageError

DATA = Path(__file__).parents[3] / "releases" / "data" / "triton"
TEMPLATE = Path(__file__).with_name("config.pbtxt.j2")


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TensorSpec(_Strict):
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


class StepSpec(_Strict):
    """One step of the ensemble: model tensor -> ensemble tensor."""

    model: str
    inputs: dict[str, str]
    outputs: dict[str, str]


class ModelSpec(_Strict):
    """What one config.pbtxt of a release declares."""

    backend: str = ""
    platform: str = ""
    decoupled: str = ""
    queue: str = ""
    instances: str = ""
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    parameters: dict[str, str] = Field(default_factory=dict)
    steps: tuple[StepSpec, ...] = ()


class ReleaseTemplates(_Strict):
    """The five models of one release, and where their names and types were read.

    ``unasked_outputs``: what tensorrt_llm sends for log-probabilities and logits that a request did not ask for.
    """

    release: str
    source: str
    unasked_outputs: Literal["absent", "zeros"] = "absent"
    models: dict[str, ModelSpec]


def template_releases() -> list[str]:
    """Releases whose templates are known, oldest first."""
    return sorted((path.stem for path in DATA.glob("*.yml")), key=lambda name: [int(part) for part in name.split(".")])


@cache
def release_templates(release: str) -> ReleaseTemplates:
    """Templates of ``release`` as data. Raises :class:`UsageError` for a release without."""
    path = DATA / f"{release}.yml"
    if not path.is_file():
        raise UsageError(
            f"no Triton templates for TensorRT-LLM {release}",
            why="their names and types differ between releases, so another release's are not taken instead",
            fix=f"use one of {', '.join(template_releases())}",
        )
    return ReleaseTemplates(**yaml.safe_load(path.read_text(encoding="utf-8")))


@cache
def render_templates(release: str) -> dict[str, str]:
    """config.pbtxt of each model, with the ``${...}`` of that release still in it."""
    import jinja2

    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    models = release_templates(release).models
    return {name: template.render(name=name, model=model) for name, model in models.items()}


def template_variables(release: str) -> dict[str, tuple[str, ...]]:
    """Names of the ``${...}`` in each model's template, in order of appearance."""
    texts = render_templates(release)
    return {name: tuple(dict.fromkeys(Template(text).get_identifiers())) for name, text in texts.items()}
