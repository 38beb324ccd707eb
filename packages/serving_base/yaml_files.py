"""Reading the YAML files of the package and of users."""

from pathlib import Path
from typing import Any

import yaml12

from serving_base.errors import NotYaml


def read_yaml(path: Path) -> Any:
    """The file's content, by the rules of YAML 1.2, as plain Python values; :class:`NotYaml` for anything else."""
    try:
        documents = yaml12.parse_yaml(path.read_text(encoding="utf-8"), multi=True)
    except ValueError as error:
        raise NotYaml(f"{path} is not valid YAML", why=str(error), fix="mend the line it names") from error
    if len(documents) > 1:
        raise NotYaml(f"{path} holds {len(documents)} documents", fix="keep one, and take out the lines of ---")
    return documents[0] if documents else None
