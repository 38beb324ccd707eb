"""The options of tools that load or front a server, by the tools' own releases: ``data/clients.yml``."""

from functools import cache
from pathlib import Path
from typing import Any

from serving_base.yaml_files import read_yaml
from trtllm_check.releases.python_names import PythonPackage

FILE = Path(__file__).parent / "data/clients.yml"
HUB = Path(__file__).parent / "data/hub_commands.yml"
EXAMPLES = Path(__file__).parent / "data/example_options.yml"
BACKEND = Path(__file__).parent / "data/backend_options.yml"
BENCHMARKS = Path(__file__).parent / "data/benchmark_options.yml"


@cache
def client(tool: str) -> PythonPackage | None:
    """The table of one tool, whose options are the keywords of a call of its name; None for one without a table."""
    return _table(tool, FILE)


@cache
def hub_tool(tool: str) -> PythonPackage | None:
    """The same of the commands of huggingface_hub's tools, which are the first words behind them."""
    return _table(tool, HUB)


@cache
def example_script(path: str) -> PythonPackage | None:
    """The same of the options of one of TensorRT-LLM's example scripts, or its backend's, by its path there.

    A benchmark in C++ goes by its name.
    """
    for content in (read_yaml(EXAMPLES), read_yaml(BACKEND), read_yaml(BENCHMARKS)):
        options = content["scripts"].get(path)
        if options is not None:
            return _made(path, {**content, "options": options})
    return None


@cache
def backend_scripts() -> dict[str, str]:
    """The scripts of the backend whose names no other script has -> their paths."""
    paths = read_yaml(BACKEND)["scripts"]
    names = [path.rpartition("/")[2] for path in paths]
    return {path.rpartition("/")[2]: path for path in paths if names.count(path.rpartition("/")[2]) == 1}


@cache
def example_scripts(name: str) -> dict[str, frozenset[str]]:
    """All options that any release has of the example scripts of a file's name, by their paths."""
    scripts = read_yaml(EXAMPLES)["scripts"]
    paths = [path for path in scripts if path.startswith("examples/") and path.endswith(f"/{name}")]
    return {path: frozenset(" ".join(scripts[path].values()).split()) for path in paths}


@cache
def example_words() -> frozenset[str]:
    """All options of all example scripts: what a later release may have given to another one."""
    scripts = read_yaml(EXAMPLES)["scripts"].values()
    return frozenset(word for options in scripts for names in options.values() for word in names.split())


def _table(tool: str, file: Path) -> PythonPackage | None:
    entry: dict[str, Any] | None = read_yaml(file).get(tool)
    return _made(tool, entry) if entry is not None else None


def _made(tool: str, entry: dict[str, Any]) -> PythonPackage:
    nothing: dict[str, Any] = {"modules": {}, "open": {}, "names": {}, "others": "", "moved": {}, "members": {}}
    return PythonPackage({**nothing, **entry, "calls": {tool: entry["options"]}})


def client_options(tool: str) -> frozenset[str]:
    """All options that any release of it has."""
    table = client(tool)
    return frozenset(table.calls[tool]) if table is not None else frozenset()
