"""What a YAML file is read as: YAML 1.2's values, one document, or an error that names the line."""

import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from each import each
from serving_base.errors import NotYaml
from serving_base.yaml_files import read_yaml

ROOT = Path(__file__).parents[2]
SHIPPED = sorted(path for name in ("playbook", "packages") for path in (ROOT / name).rglob("*.y*ml"))


def with_dates_as_text(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: with_dates_as_text(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [with_dates_as_text(entry) for entry in value]
    return str(value) if isinstance(value, datetime.date) else value


@each("path", SHIPPED)
def test_shipped_files_mean_the_same_to_every_parser(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert read_yaml(path) == with_dates_as_text(yaml.load(text, Loader=yaml.CSafeLoader))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("model: tiny\n", {"model": "tiny"}),
        ("country: no\nmode: 0644\n", {"country": "no", "mode": 644}),
        ("---\n- 1\n- 2.5\n", [1, 2.5]),
    ],
)
def test_values(tmp_path: Path, text: str, value: Any) -> None:
    file = tmp_path / "some.yml"
    file.write_text(text, encoding="utf-8")
    assert read_yaml(file) == value


@pytest.mark.parametrize(
    ("text", "named"),
    [("a: 1\nb: [1, 2\n", "line"), ("a: b: c\n", "line 1"), ("a: 1\n---\nb: 2\n", "2 documents")],
)
def test_what_is_not_one_document_is_refused(tmp_path: Path, text: str, named: str) -> None:
    file = tmp_path / "some.yml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(NotYaml, match=r"some\.yml") as caught:
        read_yaml(file)
    assert named in str(caught.value)
    assert caught.value.fix
