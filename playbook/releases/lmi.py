"""Reads ``data/lmi/images.yml``: the LMI images of AWS, and what each of them does with each option."""

from functools import cache
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict

from playbook.errors import UsageError

IMAGES_FILE = Path(__file__).parent / "data" / "lmi" / "images.yml"

Reading = Literal["read", "undocumented", "ignored", "refused"]
Settings = dict[str, str]


class _Facts(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Key(_Facts):
    """What an image does with one key of ``serving.properties``.

    ``kind`` and ``values`` say what it takes (one of them suffices); without both, anything.
    """

    reading: Reading = "read"
    kind: Literal["", "count", "fraction", "boolean"] = ""
    values: tuple[str, ...] = ()
    why: str = ""
    fix: str = ""
    source: str = ""
    note: str = ""


class UnknownKey(_Facts):
    """What an image does with a key that its source does not name."""

    reading: Reading
    why: str
    fix: str


class Family(_Facts):
    """Images with one way to read options. The settings are templates over a profile's fields and ``{model_id}``."""

    source: str
    loads: str
    loads_source: str
    partition: str = ""
    unknown: UnknownKey
    settings: Settings
    build_settings: Settings
    quantization: dict[str, Settings]
    kv_cache: dict[str, Settings]
    keys: dict[str, Key]


class LmiImage(_Facts):
    """One image. ``engine_release``: the TensorRT-LLM release whose engines it loads, empty for vLLM.

    ``answers``: the shape of its JSON lines, from a rolling batch or from the asynchronous handler.
    """

    tag: str
    family: str
    engine_release: str
    triton: str
    answers: Literal["rolling", "async"]
    note: str = ""
    source: str


class ServerKeys(_Facts):
    names: tuple[str, ...]
    source: str


class ArticleFile(_Facts):
    settings: Settings
    source: str


class LmiFacts(_Facts):
    """The whole of ``images.yml``."""

    accounts: dict[str, tuple[str, ...]]
    dns_suffixes: dict[str, str]
    server_keys: ServerKeys
    article: ArticleFile
    families: dict[str, Family]
    images: tuple[LmiImage, ...]

    def family(self, image: LmiImage) -> Family:
        return self.families[image.family]


@cache
def lmi_facts() -> LmiFacts:
    return LmiFacts(**yaml.safe_load(IMAGES_FILE.read_text(encoding="utf-8")))


def lmi_images(release: str = "") -> list[LmiImage]:
    """The images; with ``release`` those that load engines of that TensorRT-LLM release, the recommended one first."""
    return [image for image in lmi_facts().images if release in ("", image.engine_release)]


def lmi_image(name: str) -> LmiImage:
    """The image with this tag, or whose URI ends with it; :class:`UsageError` names the known ones."""
    tag = name.rpartition(":")[2]
    for image in lmi_facts().images:
        if image.tag == tag:
            return image
    known = ", ".join(image.tag for image in lmi_facts().images)
    raise UsageError(f"no facts on LMI image {name!r}", fix=f"use one of: {known}")
