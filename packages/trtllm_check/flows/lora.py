"""Many LoRA adapters on one base model: names at each door, looked up in the releases' own data."""

from functools import cache
from pathlib import Path
from typing import Any

from serving_base.yaml_files import read_yaml
from trtllm_check.flows.offers import last_engine_release
from trtllm_check.flows.options import llm_options, option_releases
from trtllm_check.recipes.lmi import vllm_image
from trtllm_check.releases import load_release
from trtllm_check.releases.lmi import lmi_facts

FILE = Path(__file__).with_name("lora.yml")
TRITON_MODEL = Path(__file__).parents[1] / "releases" / "data" / "triton" / "models" / "tensorrt_llm.yml"


def lora_table() -> list[dict[str, str]]:
    """A row for each door: what switches adapters on, what a request says, and what happens."""
    return [{name: text for name, text in row.items() if name != "read"} for row in _facts()["doors"]]


def lora_sources() -> dict[str, str]:
    """Door -> where its row was read."""
    return {row["door"]: row["read"] for row in _facts()["doors"]}


def lora_names() -> dict[str, bool]:
    """Each name of the table that this project's data of the releases can confirm, and whether it does.

    Flags in the last release with engines, options of the LLM API in the newest one that is known, inputs of Triton's
    template, and engine arguments of LMI's vLLM image.
    """
    names = _facts()["looked_up"]
    build = load_release(last_engine_release()).tool("trtllm-build")
    newest = llm_options(option_releases()[-1]).options
    inputs = {one["name"] for one in read_yaml(TRITON_MODEL)["inputs"]}
    vllm = lmi_facts().family(vllm_image()).passed_on
    passed_on = vllm.names if vllm else frozenset[str]()
    return (
        {flag: build.has(flag) for flag in names["build"]}
        | {f"LLM API {name}": name in newest for name in names["llm_api"]}
        | {f"input {name}": name in inputs for name in names["inputs"]}
        | {f"--{name.replace('_', '-')}": name in passed_on for name in names["vllm"]}
    )


@cache
def _facts() -> dict[str, Any]:
    content: dict[str, Any] = read_yaml(FILE)
    return content
