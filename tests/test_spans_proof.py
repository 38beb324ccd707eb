"""The views of the new data equal the old files, release by release. Goes with the old files, in the next commit."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from playbook.errors import UsageError
from playbook.releases import Release, load, templates

OLD = "c268842"  # the last commit with one file a release only
ROOT = Path(__file__).parents[1]
DUMP = """
import json, sys
from playbook.releases.load import known_releases, load_release
from playbook.releases.templates import release_templates, template_releases, llmapi_model, DATA_DIR
from playbook.releases.history import all_flags, all_names, all_tools, lives
try:
    from playbook.check.elsewhere import names
except ImportError:
    names = lambda release, tool: load_release(release).tools[tool].names if tool in load_release(release).tools else ()
from playbook.errors import UsageError
def llmapi(name):
    try: return llmapi_model(name).model_dump(mode="json")
    except UsageError: return None
print(json.dumps({
    "known": known_releases(), "templated": template_releases(),
    "releases": {n: load_release(n).model_dump(mode="json", by_alias=True) for n in known_releases()},
    "in_container": {n: load_release(n).in_container.model_dump(mode="json") for n in known_releases()},
    "templates": {n: release_templates(n).model_dump(mode="json") for n in template_releases()},
    "llmapi": {n: llmapi(n) for n in known_releases()},
    "tools": all_tools(), "names": all_names(), "flags": {flag: list(tools) for flag, tools in all_flags().items()},
    "lives": {flag: [repr(life) for life in lives(flag)] for flag in all_flags()},
    "elsewhere": {n: {t: sorted(names(n, t)) for t in all_tools()} for n in known_releases()},
}))
"""


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("old")
    archive = subprocess.run(["git", "archive", OLD, "playbook"], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)
    return folder


def dumped(folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-c", DUMP]
    run = subprocess.run(command, cwd=folder, env={"PYTHONPATH": str(folder)}, check=True, capture_output=True)
    found = json.loads(run.stdout)
    assert isinstance(found, dict)
    return found


@pytest.fixture(scope="module")
def both(old: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    return dumped(old), dumped(ROOT)


@pytest.mark.parametrize("part", ["known", "templated", "tools", "llmapi", "names", "flags", "lives", "elsewhere"])
def test_what_is_asked_of_all_releases_is_the_same(both: tuple[dict[str, Any], dict[str, Any]], part: str) -> None:
    before, after = both
    assert after[part] == before[part]


@pytest.mark.parametrize("name", load.known_releases())
@pytest.mark.parametrize("part", ["releases", "in_container"])
def test_each_release_is_the_same(both: tuple[dict[str, Any], dict[str, Any]], part: str, name: str) -> None:
    before, after = both[0][part][name], both[1][part][name]
    assert set(before) == set(after)
    for key, value in before.items():
        assert after[key] == value, key


@pytest.mark.parametrize("name", load.known_releases())
def test_its_tables_keep_their_order(both: tuple[dict[str, Any], dict[str, Any]], name: str) -> None:
    before, after = both[0]["releases"][name], both[1]["releases"][name]
    for key in ("tools", "models", "checkouts"):
        assert list(after[key]) == list(before[key]), key


@pytest.mark.parametrize("name", templates.template_releases())
def test_its_templates_are_the_same(both: tuple[dict[str, Any], dict[str, Any]], name: str) -> None:
    before, after = both[0]["templates"][name], both[1]["templates"][name]
    assert after == before
    assert list(after["models"]) == list(before["models"])


@pytest.mark.parametrize("name", load.known_releases())
def test_the_objects_are_equal_too(old: Path, name: str) -> None:
    data = old / "playbook" / "releases" / "data"
    from playbook.yaml_files import read_yaml

    assert load.load_release(name) == Release.model_validate(read_yaml(data / f"{name}.yml"))
    if (data / "triton" / f"{name}.yml").is_file():
        was = templates.ReleaseTemplates.model_validate(read_yaml(data / "triton" / f"{name}.yml"))
        assert templates.release_templates(name) == was
    else:
        with pytest.raises(UsageError):
            templates.release_templates(name)


def test_the_page_is_the_same_byte_for_byte() -> None:
    page = subprocess.run(["git", "show", f"{OLD}:docs/releases.md"], cwd=ROOT, check=True, capture_output=True).stdout
    made = subprocess.run([sys.executable, "-m", "playbook.explain"], cwd=ROOT, check=True, capture_output=True).stdout
    assert made == page
