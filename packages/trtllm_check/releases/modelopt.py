"""Reads ``data/modelopt``: which options Model Optimizer's scripts take, by release of nvidia-modelopt."""

from functools import cache
from pathlib import Path
from typing import NamedTuple

from packaging.version import InvalidVersion, Version

from serving_base.record import Record
from serving_base.yaml_files import read_yaml

DATA_DIR = Path(__file__).parent / "data" / "modelopt"


class ModeloptFacts(Record):
    """``releases``: those that were read, oldest first; ``scripts``: script -> option -> first and last release."""

    releases: tuple[str, ...]
    scripts: dict[str, dict[str, tuple[str, str]]]


class Missing(NamedTuple):
    """Why a release lacks an option: ``since`` and ``until`` are the first and the last that have it."""

    gone: bool
    since: str
    until: str


@cache
def modelopt_facts() -> ModeloptFacts:
    content = read_yaml(DATA_DIR / "scripts.yml")
    return ModeloptFacts.model_validate(
        {
            "releases": [str(one) for one in content["releases"]],
            "scripts": {
                script: {option: [str(one) for one in span] for option, span in options.items()}
                for script, options in content["scripts"].items()
            },
        }
    )


def absent(script: str, option: str, version: str) -> Missing | None:
    """Why the release ``version``, the newest with the script where it is "", lacks an option that some release has."""
    facts = modelopt_facts()
    span = facts.scripts[script].get(option)
    if span is None:
        return None
    since, until = span
    newest = max((last for _, last in facts.scripts[script].values()), key=Version)
    asked = Version(version or newest)
    if asked > Version(newest) and newest != facts.releases[-1]:
        return None  # the script itself is gone
    if Version(since) > asked:
        return Missing(gone=False, since=since, until=until) if since != facts.releases[0] else None
    if Version(until) < asked and until != newest:
        return Missing(gone=True, since=since, until=until)
    return None


def known_version(written: str) -> str:
    """The version, "" for one before those that were read or for none."""
    try:
        version = Version(written)
    except InvalidVersion:
        return ""
    return written if Version(modelopt_facts().releases[0]) <= version else ""
