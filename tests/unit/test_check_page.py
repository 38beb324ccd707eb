"""The checker's page without a browser: its answers, its stand-ins, what it is made of, and what it may load."""

import base64
import io
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tree_sitter as real_tree_sitter
import tree_sitter_bash
import yaml12 as real_yaml12

from check_page import archives
from check_page.answer import answer, gpus, releases
from check_page.build import EXAMPLE, page
from check_page.python_files import python_files, python_zip
from check_page.scripts import returning
from check_page.stand_ins import tree_sitter, yaml12
from checkout import ROOT
from each import each
from serving_base.errors import EnvironmentProblem, UsageError
from trtllm_check.cli import LARGEST_TEXT, check_command
from trtllm_check.lint.page import Snippet, snippets

YAML = (
    "a: yes\nb: no\nc: on\nd: true\ne: False\nf: tRue",
    "a: 0o17\nb: 017\nc: 0x1F\nd: 1_000\ne: 12:30:00\nf: +1\ng: -0\nh: 99999999999999999999999",
    "a: .5\nb: 5.\nc: 1e3\nd: 1.5e-3\ne: .inf\nf: -.INF\ng: 1+2",
    "a: 2024-01-01\nb: =\nc: <<",
    "x: &a {b: 1}\ny: {<<: *a, c: 2}",
    "- ~\n- null\n- Null\n- NULL\n-\n- nUll",
    "a: |\n  x\n  y\nb: >\n  x\n  y",
    "1: a\ntrue: b\nnull: c\n1.5: d",
    "---\na\n---\nb",
    "a: !!str 3",
    "",
    "# only",
    "a: 1\na: 2",
)
NO_YAML = ("a: [1, 2", "a: b: c", 'a: "open', "a: *x", "a: @x")
SCRIPTS = (
    "trtllm-build --max_batch_size 8 > log 2>&1 && echo done",
    'if [ -d "$A" ]; then\n  x="${B:-3}"\nfi\nfor i in 1 2; do echo $((i + 1)); done',
    "echo 'open\n",
    'a=(1 2 3)\nf() { cat <<< "$1"; }\n',
    "while true; do )",
    'don\'t do "this"',
    "",
)
PYTHON = archives.Python(version="3.14", abi="cp314", platform="some")
FETCHED = archives.Archive(
    name="one", version="1", registry="npm", file="one-1.tgz", sha256="00", licence="MIT", source="s", members=()
)


def shown() -> str:
    return page({"a.js": b"export default a;"}, {"zips": []})


@each("snippet", snippets()[::2])
def test_an_answer_is_what_the_command_line_prints(
    snippet: Snippet, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = snippet.text or snippet.files[0][1]
    path = tmp_path / "text"
    path.write_text(text, encoding="utf-8")
    got = answer(text, snippet.release, snippet.gpu, snippet.gpus)
    if "refused" in got:  # only the name of its file says what it is, or there is nothing to check in it
        with pytest.raises(UsageError, match=re.escape(got["refused"]["what"].partition(" ")[0])):
            printed(path, snippet, capsys)
        return
    assert got["findings"] == printed(path, snippet, capsys)


def printed(path: Path, snippet: Snippet, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    with suppress(SystemExit):
        check_command(str(path), release=snippet.release, gpu=snippet.gpu, gpus=snippet.gpus, hints=True, as_json=True)
    return [one | {"file": ""} for one in json.loads(capsys.readouterr().out)["findings"]]


def test_the_release_is_told_with_its_evidence_and_the_summary_counts() -> None:
    got = answer(EXAMPLE)
    assert got["release"] == "0.12.0" and "24.08" in got["release_told"]
    assert "error" in got["summary"] and got["remarks"] == []
    assert {"error", "warning"} <= {one["severity"] for one in got["findings"]}


def test_a_text_that_is_not_understood_says_so_and_one_with_lost_lines_names_them() -> None:
    assert "nothing in the text" in answer("Dear aunt, thank you.")["refused"]["what"]
    assert answer("x" * (LARGEST_TEXT + 1))["refused"]["fix"] == "give the part that matters"
    assert "no facts" in answer("trtllm-build", "0.12.0", "no-such-gpu")["refused"]["what"]
    assert answer("trtllm-build --checkpoint_dir a\n./tensorrt_llm/thing --odd %% (\n")["remarks"] == [
        "not read: lines 2"
    ]


def test_a_log_is_read_as_one() -> None:
    got = answer("RuntimeError: CUDA out of memory. Tried to allocate 2 GiB", log=True)
    assert [one["severity"] for one in got["findings"]] == ["error"] and got["release"] == ""


OUT_OF_MEMORY = "RuntimeError: CUDA out of memory. Tried to allocate 2 GiB"


def test_a_pasted_log_needs_no_choice() -> None:
    got = answer(f"[TensorRT-LLM][INFO] Loading\n{OUT_OF_MEMORY}\n")
    assert got["findings"] == answer(f"[TensorRT-LLM][INFO] Loading\n{OUT_OF_MEMORY}\n", log=True)["findings"] != []
    assert got["remarks"] == ["read as a log"]


def test_a_pasted_report_is_read_with_its_commands_and_the_failure_in_its_log() -> None:
    ran = "```bash\ntrtllm-build --checkpoint_dir a --no_such_flag 1\n```\n"
    report = f"### Describe the bug\n{ran}It stops with:\n```\n{OUT_OF_MEMORY}\n```\n"
    found = {one["line"]: one["severity"] for one in answer(report, "0.12.0")["findings"]}
    assert found[3] == "error" and found[7] == "error"
    no_command = answer(report.replace(ran, ""))
    assert [one["line"] for one in no_command["findings"]] == [4] and no_command["release"] == ""


OURS = [path.read_text(encoding="utf-8") for path in (ROOT / "packages" / "trtllm_check").rglob("*.yml")]


@each("text", [*YAML, *OURS])
def test_the_stand_in_for_yaml12_reads_what_the_real_one_reads(text: str) -> None:
    assert repr(yaml12.parse_yaml(text, multi=True)) == repr(real_yaml12.parse_yaml(text, multi=True))


@each("text", YAML)
def test_the_stand_in_for_yaml12_takes_one_document_of_several_as_the_real_one_does(text: str) -> None:
    assert repr(yaml12.parse_yaml(text)) == repr(real_yaml12.parse_yaml(text))


@each("text", NO_YAML)
def test_the_stand_in_for_yaml12_refuses_what_the_real_one_refuses(text: str) -> None:
    for parse in (real_yaml12.parse_yaml, yaml12.parse_yaml):
        with pytest.raises(ValueError):  # noqa: PT011 -- the two word it differently
            parse(text)


def spelled(text: str) -> Any:
    """As the page's JavaScript spells a tree."""
    numbers: list[int] = []
    types: list[str] = []
    fields: list[str] = []

    def place(known: list[str], word: str) -> int:
        if word not in known:
            known.append(word)
        return known.index(word)

    def walk(node: Any, parent: int, field: str) -> None:
        at = len(numbers) // tree_sitter.NUMBERS
        flags = node.is_named + 2 * node.has_error + 4 * node.is_missing
        numbers.extend((place(types, node.type), flags, node.start_byte, node.end_byte, parent, place(fields, field)))
        for index, child in enumerate(node.children):
            walk(child, at, node.field_name_for_child(index) or "")

    walk(real().parse(text.encode()).root_node, -1, "")
    return SimpleNamespace(
        numbers=SimpleNamespace(
            to_py=lambda: memoryview(b"".join(n.to_bytes(4, sys.byteorder, signed=True) for n in numbers)).cast("i")
        ),
        types=SimpleNamespace(to_py=lambda: types),
        fields=SimpleNamespace(to_py=lambda: fields),
    )


def real() -> real_tree_sitter.Parser:
    return real_tree_sitter.Parser(real_tree_sitter.Language(tree_sitter_bash.language()))


def facts(node: Any) -> Any:
    names = ("type", "text", "start_byte", "end_byte", "is_named", "has_error", "is_missing")
    fields = ("name", "value", "body", "variable", "operator", "redirect", "argument")
    below = [facts(child) for child in node.children]
    first = [one.start_byte if (one := node.child_by_field_name(name)) else None for name in fields]
    every = [[one.start_byte for one in node.children_by_field_name(name)] for name in fields]
    return [*(getattr(node, name) for name in names), node.parent.type if node.parent else "", first, every, below]


@each("text", SCRIPTS)
def test_the_stand_in_for_tree_sitter_has_the_real_ones_trees(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bash_grammar", SimpleNamespace(parse=spelled))
    language = tree_sitter.Language("bash")
    root = tree_sitter.Parser(language).parse(text.encode()).root_node
    other = real().parse(text.encode()).root_node
    assert facts(root) == facts(other)
    pattern = "[(string) (raw_string)] @quote"
    theirs = real_tree_sitter.Query(real_tree_sitter.Language(tree_sitter_bash.language()), pattern)
    quotes = tree_sitter.QueryCursor(tree_sitter.Query(language, pattern)).captures(root)
    wanted = real_tree_sitter.QueryCursor(theirs).captures(other)
    assert {key: sorted(one.start_byte for one in found) for key, found in quotes.items()} == {
        key: sorted(one.start_byte for one in found) for key, found in wanted.items()
    }


def test_the_page_carries_the_checker_and_no_file_that_is_compiled_or_of_the_corpus() -> None:
    files = python_files()
    wanted = {
        "trtllm_check/lint/__init__.py",
        "trtllm_check/lint/logs.yml",
        "serving_base/facts/gpus.yml",
        "check_page/answer.py",
        "pydantic/main.py",
        "google/protobuf/text_format.py",
        "tritonclient/grpc/model_config_pb2.py",
        "tree_sitter.py",
        "tree_sitter_bash.py",
        "yaml12.py",
    }
    assert wanted - files.keys() == set()
    assert [name for name in files if name.endswith((".so", ".pyc")) or "/corpus/" in name] == []
    packed = python_zip()
    assert packed == python_zip()
    assert set(zipfile.ZipFile(io.BytesIO(packed)).namelist()) == files.keys()


def test_the_page_may_run_its_own_script_and_reach_no_network() -> None:
    text = shown()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', text)
    directives = {name: words for name, *words in (one.split() for one in policy.split("; "))}
    assert directives["default-src"] == directives["connect-src"] == ["'none'"]
    assert not [word for words in directives.values() for word in words if word in ("*", "'unsafe-inline'", "data:")]
    for tag, directive in (("script", "script-src"), ("style", "style-src")):
        (inside,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        sum_ = base64.b64encode(sha256(inside.encode()).digest()).decode()
        assert f"'sha256-{sum_}'" in directives[directive]
    assert re.findall(r"""(?:src|href)\s*=\s*["']""", text) == []


def test_the_page_offers_every_release_and_gpu_that_there_are_facts_on() -> None:
    text = shown()
    assert releases()[0] != "0.12.0" and "0.12.0" in releases() and "h200" in gpus()
    assert [name for name in [*releases(), *gpus()] if f"<option>{name}</option>" not in text] == []


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ("let a = 1;\nexport default a;\n", "let a = 1;\n\nreturn { default: a };"),
        ("let a;export{a as b,c};\n//# map\n", "let a;\nreturn { b: a, c: c };"),
        ("export async function f() {}\n", "async function f() {}\n\nreturn { f };"),
        ("x(import.meta.url);\nexport default x;", 'x("u");\n\nreturn { default: x };'),
    ],
)
def test_a_module_becomes_a_function_that_returns_what_it_exports(text: str, body: str) -> None:
    assert returning(text, "u") == body


def test_a_module_whose_exports_are_not_seen_is_refused() -> None:
    with pytest.raises(ValueError, match="exports nothing"):
        returning("let a = 1;", "u")


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        (
            lambda argv, **_: SimpleNamespace(
                returncode=1, stderr="x\nnpm error no network\nnpm error see the log\n", stdout=""
            ),
            "npm error no network",
        ),
        (lambda argv, **_: SimpleNamespace(returncode=0, stderr="", stdout=""), "another file"),
        (lambda argv, **_: (_ for _ in ()).throw(subprocess.TimeoutExpired(argv, 1)), "no answer"),
    ],
)
def test_an_archive_that_cannot_be_fetched_is_named(
    ends: Callable[..., Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("check_page.archives.shutil.which", lambda name: name)
    monkeypatch.setattr("check_page.archives.subprocess.run", ends)
    known = archives.Archives(python=PYTHON, lock_info={}, archives=(FETCHED,))
    with pytest.raises(archives.NotFetched) as caught:
        archives.carried(tmp_path / "new", known)
    assert "one-1.tgz" in caught.value.what and said in caught.value.why


def test_without_npm_the_page_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("check_page.archives.shutil.which", lambda name: None)
    with pytest.raises(archives.NotFetched, match="npm is not installed"):
        archives.carried(tmp_path, archives.Archives(python=PYTHON, lock_info={}, archives=(FETCHED,)))


def test_an_archive_of_another_content_is_refused_with_its_sum(tmp_path: Path) -> None:
    (tmp_path / FETCHED.file).write_bytes(b"another")
    with pytest.raises(EnvironmentProblem) as caught:
        archives.carried(tmp_path, archives.Archives(python=PYTHON, lock_info={}, archives=(FETCHED,)))
    assert sha256(b"another").hexdigest() in caught.value.why and not isinstance(caught.value, archives.NotFetched)


def test_the_compiled_half_of_pydantic_has_to_be_of_its_version(tmp_path: Path) -> None:
    other = FETCHED.model_copy(update={"name": "pydantic-core", "registry": "pypi"})
    with pytest.raises(EnvironmentProblem, match="pydantic-core"):
        archives.carried(tmp_path, archives.Archives(python=PYTHON, lock_info={}, archives=(other,)))


def test_pip_is_asked_for_one_wheel_of_the_pages_python() -> None:
    other = FETCHED.model_copy(update={"registry": "pypi"})
    argv = archives.fetch_command(other, PYTHON, Path("to"))
    assert argv[argv.index("--platform") + 1] == "some" and argv[-1] == "one==1" and "--no-deps" in argv


def test_the_list_goes_with_what_is_installed() -> None:
    """Of the wheel the version, of the grammar that of the package: the page reads shell as the command line does."""
    from importlib import metadata

    known = {one.name: one for one in archives.listed().archives}
    for name in ("pydantic-core", "tree-sitter-bash"):
        assert known[name].version == metadata.version(name)
    for one in known.values():
        assert one.version in one.file and re.fullmatch("[0-9a-f]{64}", one.sha256)
