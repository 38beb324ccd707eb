"""Reads ``data/lmi``: the LMI images of AWS, and what each of them does with each option."""

import datetime
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from serving_base.errors import PlaybookError, UsageError
from serving_base.record import Record
from serving_base.yaml_files import read_yaml
from trtllm_check.releases.release import Confidence
from trtllm_check.releases.vllm import Changes, vllm_facts

DATA_DIR = Path(__file__).parent / "data" / "lmi"

Reading = Literal["read", "undocumented", "ignored", "refused"]
Settings = dict[str, str]
Raw = dict[str, Any]


class Key(Record):
    """What an image does with one key of ``serving.properties``.

    ``kind`` and ``values`` say what it takes (one of them suffices); without both, anything. ``otherwise``: what it
    does with any other value; ``replaced``: values in whose place it takes another, and which. ``batches``: the values
    of option.rolling_batch that read it, empty for all. ``anyway``: the value that asks for what is done without it.
    """

    reading: Reading = "read"
    batches: tuple[str, ...] = ()
    kind: Literal["", "count", "fraction", "boolean", "pairs"] = ""
    values: tuple[str, ...] = ()
    otherwise: Reading = "refused"
    why: str = ""
    replaced: dict[str, str] = Field(default={})
    anyway: str = ""
    fix: str = ""
    source: str = ""
    note: str = ""


class PassedOn(Record):
    """Names of the engine's own arguments, which an image hands on."""

    names: frozenset[str]
    source: str


class EngineArgs:
    """Fields of vLLM's EngineArgs by its releases: ``data/vllm/options.yml``."""

    @property
    def versions(self) -> tuple[str, ...]:
        return vllm_facts().releases

    @property
    def fields(self) -> tuple[str, ...]:
        """Those of any release, by name."""
        return tuple(sorted(_engine_fields()))

    def of(self, version: str) -> PassedOn:
        """The fields of one release; :class:`PlaybookError` for one that was not read."""
        if version not in self.versions:
            raise PlaybookError(
                f"the EngineArgs of vLLM {version or 'without a version'} are not known",
                why="an image of such a family hands on its own vLLM's arguments",
                fix=f"name one of {', '.join(self.versions[-5:])} or an earlier one as `vllm` in images.yml, "
                "or read the release with benchmarks/checker/vllm_tables.py",
            )
        return _passed_on(version, self.versions.index(version))


@cache
def _passed_on(version: str, place: int) -> PassedOn:
    names = frozenset(name for name, changes in _engine_fields().items() if changes.at(place))
    return PassedOn(names=names, source=f"vllm {version} vllm/engine/arg_utils.py, EngineArgs")


@cache
def _engine_fields() -> dict[str, Changes]:
    facts = vllm_facts()
    options = facts.table("options", "engine")
    return {name.replace("-", "_"): one for name, one in options.items()} | dict(facts.table("options", "fields"))


class UnknownKey(Record):
    """What an image does with a key that its source does not name."""

    reading: Reading
    why: str
    fix: str


class Partition(Record):
    """The script of an image that builds engines ahead of time, and the arguments that it takes."""

    path: str
    arguments: tuple[str, ...]
    source: str


class KvCache(Record):
    """What asks for a KV cache of one type. Empty ``qformats`` and ``architectures``: it goes with all of them."""

    settings: Settings
    qformats: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    why: str = ""
    source: str


class Family(Record):
    """Images with one way to read options. The settings are templates over a profile's fields and ``{model_id}``.

    ``quantization``: formats that the image makes of a plain checkpoint; ``checkpoints``: quantized ones that it loads.
    ``note``: why the confidence is not high. ``engine_args``: it hands on the arguments of the image's own vLLM, which
    :meth:`LmiFacts.family` puts into ``passed_on``; ``batches``: the values of option.rolling_batch that do, empty for
    all.
    """

    source: str
    confidence: Confidence
    note: str = ""
    loads: str
    loads_source: str
    partition: Partition | None = None
    engine_args: bool = False
    batches: tuple[str, ...] = ()
    passed_on: PassedOn | None = None
    unknown: UnknownKey
    settings: Settings
    build_settings: Settings
    quantization: dict[str, Settings]
    checkpoints: dict[str, Settings] = Field(default={})
    kv_cache: dict[str, KvCache]
    keys: dict[str, Key]


class LmiImage(Record):
    """One image. ``engine_release``: the TensorRT-LLM release whose engines it loads, empty for vLLM.

    ``answers``: the shape of its JSON lines, from a rolling batch or from the asynchronous handler. ``vllm``: the
    version whose arguments stand for those of its engine.
    ``engines_differ``: why it and the ``triton`` container may refuse each other's engines. ``removed``: since when
    it is not among AWS's available images. ``judged_only``: people's files are judged for it, and none is written.
    """

    tag: str
    family: str
    engine_release: str = ""
    triton: str = ""
    answers: Literal["rolling", "async"]
    vllm: str = ""
    judged_only: bool = False
    engines_differ: str = ""
    removed: datetime.date | None = None
    note: str = ""
    source: str

    @property
    def inside(self) -> str:
        """The engine, as a reader knows it."""
        if self.engine_release:
            return f"TensorRT-LLM {self.engine_release}"
        return "DeepSpeed, vLLM and lmi-dist" if "deepspeed" in self.tag else "vLLM"


class ServerKeys(Record):
    names: tuple[str, ...]
    source: str


class LmiFacts(Record):
    """``images.yml`` and the files of the families beside it."""

    accounts: dict[str, tuple[str, ...]]
    dns_suffixes: dict[str, str]
    server_keys: ServerKeys
    images: tuple[LmiImage, ...]
    families: dict[str, Family]

    @property
    def engine_args(self) -> EngineArgs:
        return EngineArgs()

    def family(self, image: LmiImage) -> Family:
        """What the image does, with the names that its own engine takes."""
        family = self.families[image.family]
        if not family.engine_args:
            return family
        return family.model_copy(update={"passed_on": self.engine_args.of(image.vllm)})


@cache
def lmi_facts() -> LmiFacts:
    families = {path.stem: read_yaml(path) for path in (DATA_DIR / "families").glob("*.yml")}
    whole = {name: _whole(families, name) for name in families}
    return LmiFacts.model_validate(
        {
            **read_yaml(DATA_DIR / "images.yml"),
            "families": whole,
        }
    )


def _whole(families: dict[str, Raw], name: str) -> Raw:
    """The family with what it takes over from the one that it extends; null takes a line away."""
    own = dict(families[name])
    base = _whole(families, own.pop("extends")) if "extends" in own else {}
    merged = {key: {**base.get(key, {}), **value} if isinstance(value, dict) else value for key, value in own.items()}
    return {key: _without_null(value) for key, value in {**base, **merged}.items()}


def _without_null(value: Any) -> Any:
    return {key: entry for key, entry in value.items() if entry is not None} if isinstance(value, dict) else value


def lmi_images(release: str = "") -> list[LmiImage]:
    """The images to write files for; with ``release`` those that load its engines, the recommended one first."""
    images = [image for image in lmi_facts().images if not image.judged_only]
    return [image for image in images if release in ("", image.engine_release)]


def _without_suffix(tag: str) -> str:
    """``0.36.0-lmi20.0.0`` of ``0.36.0-lmi20.0.0-cu128-v1.0``: AWS adds its own build numbers."""
    return tag.partition("-cu")[0]


def lmi_image(name: str) -> LmiImage:
    """The image with this tag, or whose URI ends with it; :class:`UsageError` names the known ones."""
    tag = name.rpartition(":")[2]
    for image in lmi_facts().images:
        if _without_suffix(image.tag) == _without_suffix(tag):
            return image
    known = ", ".join(image.tag for image in lmi_facts().images)
    raise UsageError(f"no facts on LMI image {name!r}", fix=f"use one of: {known}")
