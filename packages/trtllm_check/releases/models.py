"""Reads ``data/models``: which architecture a published model is, and which releases of the engines have it."""

import re
from functools import cache
from pathlib import Path

from pydantic import Field

from serving_base.record import Record
from serving_base.yaml_files import read_yaml
from trtllm_check.releases.load import in_range

DATA_DIR = Path(__file__).parent / "data" / "models"
END = r"(?:[-_.](?!.*\d+b\b).*)?"  # what may follow a name: no second size, as in a merge of two models
NUMBER = re.compile(r"\d+")


class NamedModel(Record):
    """Models by a pattern of their names. ``since``: engine -> its first release with them, if not the class's own."""

    name: str
    architecture: str
    since: dict[str, str] = Field(default={})


class ModelNames(Record):
    """``lmi``: the vLLM of LMI's containers by their version."""

    models: tuple[NamedModel, ...]
    lmi: dict[str, str]


class ReleasesWith(Record):
    """The releases with an architecture. ``engine``: the first that builds an engine of it; ``never``: none has it."""

    since: str = ""
    until: str = ""
    engine: str = ""
    never: bool = False


class Architectures(Record):
    """``versions``: the releases that were read, oldest first; empty where the project's own facts name them."""

    versions: tuple[str, ...] = ()
    architectures: dict[str, ReleasesWith]


class Lack(Record):
    """An engine that does not have a model. ``since``: the first release that has it; ``until``: the last that had."""

    architecture: str
    since: str = ""
    until: str = ""


def named_model(name: str) -> NamedModel | None:
    """The model of ``name``, a repository of Hugging Face or a folder called as one; None for one without facts."""
    whole = name.strip().rstrip("/").lower()
    last = whole.rpartition("/")[2]
    known = next((one for pattern, one in _patterns() if pattern.fullmatch(last)), None)
    architecture = "" if known else _hub().get(whole, "")
    return NamedModel(name=whole, architecture=architecture) if architecture else known


def needs_own_code(name: str) -> bool:
    """True for a repository whose code the engine runs: its model needs no class of the library's."""
    return name.strip().rstrip("/").lower() in _with_code()


def lacks_tensorrt_llm(architecture: str, release: str, *, engine: bool = False) -> Lack | None:
    """That the release of TensorRT-LLM has no such model; with ``engine`` none that it builds an engine of."""
    span = _file("tensorrt_llm").architectures.get(architecture)
    if span is None:
        return None
    since = (span.engine or span.since) if engine else span.since
    if span.never or (since and not in_range(release, since)):
        return Lack(architecture=architecture, since=since)
    return None


def lacks_vllm(model: NamedModel, version: tuple[int, ...]) -> Lack | None:
    """That the version of vLLM has no implementation of its own; None also for a version that was not read."""
    file = _file("vllm")
    span = file.architectures.get(model.architecture)
    if span is None or not version or not parts(file.versions[0]) <= version <= parts(file.versions[-1]):
        return None
    since = model.since.get("vllm") or span.since
    if since and version < parts(since)[: len(version)]:
        return Lack(architecture=model.architecture, since=since)
    if span.until and version > parts(span.until):
        return Lack(architecture=model.architecture, until=span.until)
    return None


def vllm_since(model: NamedModel) -> str:
    """The first release of vLLM that has the model; "" where the first that was read has it, or nobody knows."""
    span = _file("vllm").architectures.get(model.architecture)
    return model.since.get("vllm") or (span.since if span is not None else "")


def vllm_of_lmi(tag: str) -> str:
    """The vLLM in an LMI container of vLLM; "" for one with another engine, and for one that is not known."""
    from trtllm_check.releases.lmi import lmi_facts

    version = tag.partition("-")[0]
    if "tensorrtllm" in tag or "neuron" in tag:
        return ""
    known = next((one.vllm for one in lmi_facts().images if one.vllm and tag.startswith(one.tag)), "")
    return known or _names().lmi.get(version, "")


def parts(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in NUMBER.findall(version))


@cache
def _names() -> ModelNames:
    return ModelNames.model_validate(read_yaml(DATA_DIR / "names.yml"))


@cache
def _hub() -> dict[str, str]:
    """Name of a repository -> its architecture."""
    models = read_yaml(DATA_DIR / "hub.yml")["models"]
    return {name: architecture for architecture, names in models.items() for name in names.split()}


@cache
def _with_code() -> frozenset[str]:
    return frozenset(read_yaml(DATA_DIR / "hub.yml")["remote"].split())


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], NamedModel], ...]:
    return tuple((re.compile(one.name + END), one) for one in _names().models)


@cache
def _file(engine: str) -> Architectures:
    return Architectures.model_validate(read_yaml(DATA_DIR / f"{engine}.yml"))
