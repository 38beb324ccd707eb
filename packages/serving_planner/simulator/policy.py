"""How an engine admits requests and forms its steps, and what happens outside it: data, with a source for each fact."""

from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field

from serving_base.errors import UsageError
from serving_base.record import Record
from serving_base.yaml_files import read_yaml

POLICIES_FILE = Path(__file__).parents[1] / "data" / "policies.yml"


class Policy(Record):
    """The scheduler of one engine.

    ``admission``: ``reserve`` takes the pages of the whole request when it is admitted, so nothing is ever evicted
    (TensorRT-LLM's GUARANTEED_NO_EVICT); ``on_demand`` takes pages as tokens come, and when they run out the request
    admitted last gives up its pages and is computed again (vLLM; TensorRT-LLM's MAX_UTILIZATION). ``fits``: what must
    be free for an admission on demand, the first ``chunk`` or the whole ``request``. ``block_tokens``: tokens of a
    page. ``overlap``: a step is decided when the one before it starts. ``mixed``: prompts share steps with decoding.
    """

    admission: Literal["reserve", "on_demand"]
    fits: Literal["chunk", "request"] = "request"
    block_tokens: int = Field(default=16, ge=1)
    overlap: bool = True
    mixed: bool = True
    sources: dict[str, str] = Field(default_factory=dict)


class Client(Record):
    """Time outside the engine, in seconds.

    ``send_s`` and ``send_s_per_prompt_token``: from a client's send until the engine's scheduler can see the request
    (HTTP, tokenizer, queue). ``receive_s``: from the end of a step until its token is at the client. ``spacing_s``:
    between two sends of the burst that opens a closed loop.
    """

    send_s: float = Field(default=0.0, ge=0)
    send_s_per_prompt_token: float = Field(default=0.0, ge=0)
    receive_s: float = Field(default=0.0, ge=0)
    spacing_s: float = Field(default=0.0, ge=0)
    sources: dict[str, str] = Field(default_factory=dict)


@cache
def policy(engine: str) -> Policy:
    """The scheduler of ``tensorrt-llm``, ``vllm`` or ``sglang``. :class:`UsageError` for any other name."""
    content = read_yaml(POLICIES_FILE)
    known = [name for name in content if name != "client"]
    if engine not in known:
        raise UsageError(
            f"unknown engine {engine!r}", why=f"the planner knows {', '.join(known)}", fix=f"use {known[0]}"
        )
    return Policy.model_validate(content[engine])


@cache
def client() -> Client:
    """The client and the web server that are assumed where nobody measured them."""
    return Client.model_validate(read_yaml(POLICIES_FILE)["client"])
