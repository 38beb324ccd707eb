"""A folder of release data with one release of a test's own."""

from pathlib import Path
from typing import Any

import yaml

from trtllm_check.releases import load_release

READ = ("confidence", "source", "note")


def facts_of(name: str) -> dict[str, Any]:
    """What the data says of a release, to change."""
    facts = load_release(name).model_dump(mode="json", by_alias=True, exclude_unset=True)
    assert isinstance(facts, dict)
    return facts


def write_release(folder: Path, name: str, facts: dict[str, Any]) -> None:
    """A folder that holds release ``name`` only, with these facts."""
    own = {key: value for key, value in facts.items() if key not in ("release", "tools")}
    write(folder / "releases.yml", {"tools": list(facts["tools"]), "releases": {name: own}})
    for tool, of_tool in facts["tools"].items():
        read = {key: of_tool[key] for key in READ if key in of_tool}
        rest = {key: value for key, value in of_tool.items() if key not in READ}
        write(folder / "tools" / f"{tool}.yml", {**rest, "read": read})


def write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
