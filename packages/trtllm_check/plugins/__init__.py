"""What a plugin of TensorRT-LLM consists of, beside an operation of OpenVINO: facts of ``road.yml`` with sources."""

from functools import cache
from pathlib import Path
from typing import Self

from pydantic import model_validator

from serving_base.record import Record
from serving_base.yaml_files import read_yaml

ROAD_FILE = Path(__file__).with_name("road.yml")


class PluginSource(Record):
    """What was read, with its commit or version, and where it stands."""

    read: str
    url: str


class PluginPart(Record):
    """One part of an operation: what does it in OpenVINO (``here``) and in TensorRT-LLM's plugin."""

    part: str
    here: str
    plugin: str
    source: str


class PluginGenerator(Record):
    """TensorRT-LLM's PluginGen: what one gives it, and the files that it makes."""

    takes: str
    gives: tuple[str, ...]
    source: str


class PytorchOperation(Record):
    """The same in today's flow: what declares the kernel and what the rule for the shape."""

    kernel: str
    shape: str
    source: str


class _Road(Record):
    sources: dict[str, PluginSource]
    parts: tuple[PluginPart, ...]
    generator: PluginGenerator
    today: PytorchOperation

    @model_validator(mode="after")
    def _each_source_is_there(self) -> Self:
        named = {part.source for part in self.parts} | {self.generator.source, self.today.source}
        if missing := named - set(self.sources):
            raise ValueError(f"no source is called {', '.join(sorted(missing))}")
        return self


@cache
def _road() -> _Road:
    return _Road.model_validate(read_yaml(ROAD_FILE))


def plugin_parts() -> tuple[PluginPart, ...]:
    return _road().parts


def plugin_sources() -> dict[str, PluginSource]:
    return dict(_road().sources)


def plugin_generator() -> PluginGenerator:
    return _road().generator


def pytorch_operation() -> PytorchOperation:
    return _road().today
