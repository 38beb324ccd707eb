"""Reading the YAML files of the package and of users."""

from pathlib import Path
from typing import Any

import yaml

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's parser, ten times faster, if there


def read_yaml(path: Path) -> Any:
    """The file's content as plain Python values; :class:`yaml.YAMLError` for what is no YAML."""
    return yaml.load(path.read_text(encoding="utf-8"), Loader=LOADER)
