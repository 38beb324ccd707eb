"""What each release offers: the engine flow, the LLM API and its backends, trtllm-serve."""

from functools import cache
from pathlib import Path
from typing import Any

from serving_base.record import Record
from trtllm_check.releases import load_release
from trtllm_check.releases.guide import run_modes
from trtllm_check.releases.load import checked, known_releases, view

FILE = Path(__file__).parent / "offers.yml"
ENGINE_TOOLS = ("quantize.py", "convert_checkpoint.py", "trtllm-build", "run.py")
NONE = "-"


class EngineState(Record):
    """How a release stands to a flow."""

    state: str
    source: str


class ApiBackend(Record):
    """What ``LLM`` computes with where nobody says."""

    backend: str
    source: str


class ServeSince(Record):
    """Where trtllm-serve's first release is named."""

    source: str


class FlowOffer(Record):
    """What one release offers beside its tools."""

    engines: EngineState
    llm_api: ApiBackend | None = None
    pytorch: EngineState | None = None
    trtllm_serve: ServeSince | None = None


@cache
def flow_offer(release: str) -> FlowOffer:
    """What the release offers, each with its source."""
    name = load_release(release).name
    return checked(FlowOffer, view(name).of_file(FILE), f"the flows of {name}", FILE)


def flow_table() -> list[dict[str, Any]]:
    """A row for each release that the facts know, oldest first; "-": it does not have it."""
    return [_row(name) for name in known_releases()]


def _row(name: str) -> dict[str, Any]:
    release, offer = load_release(name), flow_offer(name)
    tools = [tool.removesuffix(".py") for tool in ENGINE_TOOLS if tool in release.tools]
    return {
        "release": name,
        "date": str(release.date),
        "engine tools": ", ".join(tools) or NONE,
        "engines": offer.engines.state,
        "LLM API runs on": offer.llm_api.backend if offer.llm_api else NONE,
        "PyTorch backend": offer.pytorch.state if offer.pytorch else NONE,
        "trtllm-serve": "yes" if offer.trtllm_serve else NONE,
    }


def last_engine_release() -> str:
    """The newest release that builds engines."""
    return [name for name in known_releases() if load_release(name).builds_engines][-1]


def ways_to_run() -> list[dict[str, str]]:
    """The ways to run an engine, each with its releases; the notes are in docs/releases.md."""
    return [{"way": mode.name, "releases": mode.releases, "how": mode.how} for mode in run_modes()]


def llama_coverage() -> list[dict[str, str]]:
    """For each span of releases: which models of the Llama-3 family it takes, "by hand" and the like where it is so."""
    rows: list[dict[str, str]] = []
    for name in known_releases():
        models = load_release(name).models
        row = {model: _support(support.supported, support.note) for model, support in models.items()}
        if rows and {key: value for key, value in rows[-1].items() if key != "releases"} == row:
            rows[-1]["releases"] = f"{rows[-1]['releases'].split(' to ')[0]} to {name}"
        else:
            rows.append({"releases": name, **row})
    return rows


def _support(supported: bool, note: str) -> str:
    return ("yes" if supported else "no") + (f": {note}" if note else "")
