"""The options of tools that load or front a server, by the tools' own releases: ``data/clients.yml``."""

from functools import cache
from pathlib import Path
from typing import Any

from serving_base.yaml_files import read_yaml
from trtllm_check.releases.python_names import PythonPackage

FILE = Path(__file__).parent / "data/clients.yml"


@cache
def client(tool: str) -> PythonPackage | None:
    """The table of one tool, whose options are the keywords of a call of its name; None for one without a table."""
    entry: dict[str, Any] | None = read_yaml(FILE).get(tool)
    if entry is None:
        return None
    nothing: dict[str, Any] = {"modules": {}, "open": {}, "names": {}, "others": "", "moved": {}, "members": {}}
    return PythonPackage({**nothing, **entry, "calls": {tool: entry["options"]}})


def client_options(tool: str) -> frozenset[str]:
    """All options that any release of it has."""
    table = client(tool)
    return frozenset(table.calls[tool]) if table is not None else frozenset()
