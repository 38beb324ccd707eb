"""Facts in spans: what holds for which release, and what a further release costs."""

import difflib
import re
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from playbook.profile import load_profile
from serving_base.errors import PlaybookError, UsageError
from serving_base.yaml_files import read_yaml
from trtllm_check.recipes import commands
from trtllm_check.releases import check_arguments, known_releases, load_release
from trtllm_check.releases.load import ABSENT, DATA_DIR, ENTRIES, RANGE, View

ORDER = ("0.9", "0.10", "1.0", "1.1")
FILES = [path for part in ("tools", "topics", "triton") for path in sorted((DATA_DIR / part).rglob("*.yml"))]
FILES = [path for path in FILES if path.name != "variables.yml"]
READ = [path for path in FILES if "read" in read_yaml(path)]
A_ENDS_AND_C_BEGINS = [{"a": 1, "b": {}}, {"b": {}}, {"b": {}}, {"b": {"c": 2}}]


def over_time(node: Any, key: str = "") -> list[Any]:
    """What ``node`` is for each release, None where it is absent."""
    views = [View(release, ORDER, {"release": release, "commit": f"c{release}"}) for release in ORDER]
    return [None if (found := view.of(node, key)) is ABSENT else found for view in views]


@pytest.mark.parametrize(
    ("node", "seen"),
    [
        ("as ever", ["as ever"] * 4),
        ([1, 2], [[1, 2]] * 4),
        ({"until": "0.10", "is": "old"}, ["old", "old", None, None]),
        ({"since": "0.10", "until": "1.0", "type": "int"}, [None, {"type": "int"}, {"type": "int"}, None]),
        ([{"until": "0.10", "is": 1}, {"until": "1.0", "is": 2}, 3], [1, 1, 2, 3]),
        ([{"until": "0.9", "a": 1}, {"since": "1.0", "a": 2}], [{"a": 1}, None, {"a": 2}, {"a": 2}]),
        ([{"since": "0.10", "until": "0.10", "is": 1}, {"until": "1.0", "is": 2}], [None, 1, 2, None]),
        ([{"until": "0.9", "is": [1]}, [2, 3]], [[1], [2, 3], [2, 3], [2, 3]]),
        ({"a": {"until": "0.9", "is": 1}, "b": {"c": {"since": "1.1", "is": 2}}}, A_ENDS_AND_C_BEGINS),
        ("@{commit} of {release}, ${release}", [f"@c{name} of {name}, ${{release}}" for name in ORDER]),
    ],
)
def test_a_value_over_the_releases(node: Any, seen: list[Any]) -> None:
    assert over_time(node) == seen


def test_the_entries_of_a_list_come_and_go_one_by_one() -> None:
    node = [{"name": "x", "until": "0.10"}, {"name": "y"}, {"name": "x", "since": "1.1"}]
    assert [[entry["name"] for entry in seen] for seen in over_time(node, "inputs")] == [
        ["x", "y"],
        ["x", "y"],
        ["y"],
        ["y", "x"],
    ]


@pytest.mark.parametrize(
    ("text", "named"),
    [("python: [{until: 0.7.5, is: '3.9'}, '3.10']", "0.7.5"), ("note: 'at {comit}'", "comit")],
)
def test_a_release_or_a_word_that_nobody_knows_is_refused(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "install.yml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(PlaybookError, match=rf"install\.yml names '{named}'"):
        View("1.0", ORDER, {"commit": "c"}).of_file(path)


def lists(node: Any, key: str = "") -> Iterator[tuple[str, list[Any]]]:
    """Every list of spans or of entries that have ranges, with the name that it has."""
    if isinstance(node, list) and any(isinstance(entry, dict) and not RANGE.isdisjoint(entry) for entry in node):
        yield key, node
    for name, value in node.items() if isinstance(node, dict) else [(key, entry) for entry in _entries(node)]:
        yield from lists(value, str(name))


def _entries(node: Any) -> list[Any]:
    return node if isinstance(node, list) else []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_spans_follow_each_other(path: Path) -> None:
    """No gap that is not said, no overlap, and no two neighbours that could be one."""
    position = known_releases().index
    for name, spans in lists(read_yaml(path)):
        if name in ENTRIES:
            continue
        assert len(spans) > 1 or name == "read", (name, "a single span needs no list")
        for before, after in pairwise(spans):
            assert "until" in before, (name, "only the last span is open")
            first, last = (after.get(key) if isinstance(after, dict) else None for key in ("since", "until"))
            assert not first or position(first) > position(before["until"]) + 1, (name, after)
            assert not last or position(last) > position(before["until"]), (name, after)
            assert first or _value(before) != _value(after), (name, after)


def _value(span: Any) -> Any:
    if not isinstance(span, dict):
        return span
    return span["is"] if "is" in span else {key: value for key, value in span.items() if key not in RANGE}


@pytest.mark.parametrize("path", READ, ids=lambda path: path.name)
def test_no_release_takes_over_that_a_file_was_read(path: Path) -> None:
    """A release that is added has a tool only when its file says where it was read in that release."""
    assert all("until" in span and span["source"] and span["confidence"] for span in read_yaml(path)["read"])


def test_every_tool_and_every_template_says_where_it_was_read() -> None:
    tools = {f"{tool}.yml" for tool in read_yaml(DATA_DIR / "releases.yml")["tools"]}
    assert {path.name for path in READ} == {*tools, "templates.yml", "llmapi.yml", "backend.yml"}
    assert {path.name for path in (DATA_DIR / "tools").iterdir()} == tools


def test_releases_are_in_the_order_of_their_dates() -> None:
    dates = [load_release(name).date for name in known_releases()]
    assert dates == sorted(dates)


NEW, NEWEST = "9.0.0", known_releases()[-1]
ENTRY = """\
  9.0.0:
    date: 2026-11-20
    branch: release/9.0
    source: {commit: 0123456789abcdef0123456789abcdef01234567, backend_commit: 76543210fedcba9876543210fedcba9876543210}
    containers:
      triton: [nvcr.io/nvidia/tritonserver:26.11-trtllm-python-py3]
      tensorrt_llm: ['nvcr.io/nvidia/tensorrt-llm/release:9.0.0']
      source: triton-inference-server/server docs/introduction/compatibility.md
    pins: {nvidia-modelopt: 0.50.0}
"""
WAS_READ = f"  - {{until: {NEW}, confidence: high, source: 'TensorRT-LLM@{{commit}} its own files'}}"
# What the release changes: a pattern of one place in a file, and what is there instead.
CHANGES = [
    *[(f"tools/{tool}.yml", r"^arguments:$", f"{WAS_READ}\narguments:") for tool in load_release(NEWEST).tools],
    ("tools/trtllm-serve.yml", r"^arguments:$", f"arguments:\n  --warp: {{since: {NEW}, type: int}}"),
    (
        "tools/trtllm-serve.yml",
        r"^(  --max_batch_size:\n(?:    - .*\n)*)    - \{type: (.*)\}$",
        rf"\1    - {{until: {NEWEST}, type: \2}}\n    - {{type: int, default: 1}}",
    ),
    ("topics/install.yml", r"^  - '(3\.\d+)'$", rf"  - {{until: {NEWEST}, is: '\1'}}\n  - '3.99'"),
]


def changed_lines(before: Path, after: Path) -> int:
    """Lines of the diff of two folders, added and taken away."""
    names = sorted(path.relative_to(before) for path in before.rglob("*.yml"))
    texts = [[(folder / name).read_text().splitlines() for folder in (before, after)] for name in names]
    lines = (line for old, new in texts for line in difflib.unified_diff(old, new, n=0, lineterm=""))
    return sum(line[0] in "+-" and line[:3] not in ("+++", "---") for line in lines)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The data with a further release, which differs in a few facts."""
    shutil.copytree(DATA_DIR, tmp_path, dirs_exist_ok=True)
    (tmp_path / "releases.yml").write_text((DATA_DIR / "releases.yml").read_text() + ENTRY)
    for name, old, new in CHANGES:
        text, found = re.subn(old, new, (tmp_path / name).read_text(), flags=re.MULTILINE)
        assert found == 1, (name, old)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_further_release_is_a_diff_that_can_be_read(folder: Path) -> None:
    assert 10 < changed_lines(DATA_DIR, folder) < 50
    new, before = load_release(NEW, folder), load_release(NEWEST, folder)
    assert known_releases(folder) == (*known_releases(), NEW)
    assert list(new.tools) == list(before.tools)
    assert new.python == "3.99" != before.python
    assert new.tool("trtllm-serve").source == "TensorRT-LLM@01234567 its own files"
    assert new.checkouts["tensorrt_llm"].tag == "v9.0.0"
    served, was = new.tool("trtllm-serve").arguments, before.tool("trtllm-serve").arguments
    assert (served.keys() - was.keys(), was.keys() - served.keys()) == ({"--warp"}, set())
    assert [flag for flag in served.keys() & was.keys() if served[flag] != was[flag]] == ["--max_batch_size"]
    assert check_arguments(new, "trtllm-serve", ["model", "--warp", "8"]).warp == 8
    assert commands(load_profile("p5"), new, "serve")


def test_a_further_release_changes_no_other(folder: Path) -> None:
    assert [load_release(name, folder) for name in known_releases()] == [
        load_release(name) for name in known_releases()
    ]


def values(node: Any) -> Iterator[str]:
    """Every text but those that say where a fact comes from, and why it matters."""
    if isinstance(node, str):
        yield node
    for key, value in node.items() if isinstance(node, dict) else enumerate(node if isinstance(node, list) else []):
        if key not in {"source", "note", "notes", "why"}:
            yield from values(value)


def test_what_a_further_release_installs_is_of_its_own_version(folder: Path) -> None:
    """A version that stands in a value instead of ``{release}`` or the name of a pin would be taken over."""
    new, before = (
        load_release(name, where).model_dump(mode="json") for name, where in ((NEW, folder), (NEWEST, DATA_DIR))
    )
    earlier = {NEWEST, *before["pins"].values()}
    assert len([text for text in values(before) if any(version in text for version in earlier)]) > 5
    assert [text for text in values(new) if any(version in text for version in earlier)] == []


def test_what_was_not_read_in_a_release_it_does_not_have(folder: Path) -> None:
    assert "run.py" not in load_release(NEW, folder).tools
    with pytest.raises(UsageError):
        load_release(NEW, folder).tool("run.py")
