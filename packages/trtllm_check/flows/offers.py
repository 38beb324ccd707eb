"""What each release offers: the engine flow, the LLM API and its backends, trtllm-serve."""

from functools import cache
from pathlib import Path
from typing import Any

from serving_base.record import Record
from trtllm_check.releases import load_release
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
