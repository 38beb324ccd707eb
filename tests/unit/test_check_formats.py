"""`playbook check --format`, `--hints` and ignore comments: what editors, code scanning and GitHub are told."""

import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import typer
import yaml
from typer.testing import CliRunner

from serving_base.command_line import reporting
from trtllm_check.cli import check_command
from trtllm_check.lint import formats
from trtllm_check.lint.finding import Finding, Fix
from trtllm_check.lint.formats import FORMATS, as_gcc, as_github, as_sarif
from trtllm_check.lint.ignoring import read_ignores, without_ignored
from trtllm_check.lint.logs import signs
from trtllm_check.lint.page import snippets
from trtllm_check.rules import all_rules

app = typer.Typer()
app.command()(reporting(check_command))
ROOT = Path(__file__).parents[2]
BROKEN = "trtllm-build --checkpoint_dir c --output_dir e --max_batch_size 8 \\\n  --max_output_len 128\n"
IGNORE = "# playbook: ignore=flag-removed"
# Of SARIF 2.1.0 (OASIS, sarif-schema-2.1.0.json) what is said of the properties that we write, and no others.
TEXT = {
    "type": "object",
    "required": ["text"],
    "additionalProperties": False,
    "properties": {"text": {"type": "string"}},
}
SHORT = TEXT | {"properties": {"text": {"type": "string", "minLength": 1, "maxLength": 1024}}}  # GitHub's limit
LEVEL = {"enum": ["none", "note", "warning", "error"]}
COUNT = {"type": "integer", "minimum": 1}


def record(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required, "additionalProperties": False, "properties": properties}


def many(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


PLACE = record(
    ["artifactLocation"],
    artifactLocation=record(
        ["uri"], uri={"type": "string", "pattern": r"^(file:///)?[A-Za-z0-9._~%/-]+$"}, uriBaseId={"const": "%SRCROOT%"}
    ),
    region=record([], startLine=COUNT, startColumn=COUNT),
)
RESULT = record(
    ["message", "locations"],
    ruleId={"type": "string"},
    ruleIndex={"type": "integer", "minimum": 0},
    level=LEVEL,
    message=record(["text", "markdown"], text={"type": "string"}, markdown={"type": "string"}),
    locations=many(record([], physicalLocation=PLACE)),
)
DESCRIBED = record(
    ["id", "shortDescription", "fullDescription", "help"],  # what GitHub's code scanning requires
    id={"type": "string", "maxLength": 255},
    help=TEXT,
    shortDescription=SHORT,
    fullDescription=SHORT,
    defaultConfiguration=record([], level=LEVEL),
)
RUN = record(
    ["tool"],
    tool=record(
        ["driver"],
        driver=record(["name", "version"], name={"type": "string"}, version={"type": "string"}, rules=many(DESCRIBED)),
    ),
    columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
    properties={"type": "object"},
    results=many(RESULT),
)
SARIF = record(["version", "runs"], **{"$schema": {"type": "string"}, "version": {"const": "2.1.0"}, "runs": many(RUN)})


@cache
def sarif_validator() -> Any:
    """Of a schema that is checked once: jsonschema.validate would check it again for every log."""
    validator = jsonschema.validators.validator_for(SARIF)
    validator.check_schema(SARIF)
    return validator(SARIF)


def finding(**changes: Any) -> Finding:
    given = Finding(
        "a-rule", "error", 3, 7, "it stops: 100%, really", "because", Fix("action", "do: that"), "source", "a b.sh"
    )
    return given._replace(**changes)


def invoke(*words: str | Path, text: str = "") -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["--release", "0.12.0", *map(str, words)], input=text)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


def test_sarif_of_every_real_command_is_valid() -> None:
    for snippet in snippets():
        log = json.loads(as_sarif(snippet.check(), snippet.release))
        sarif_validator().validate(log)
        (run,) = log["runs"]
        ids = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
        assert len(set(ids)) == len(ids)
        assert all(ids[result["ruleIndex"]] == result["ruleId"] for result in run["results"])


def test_sarif_names_the_place_and_all_that_is_known() -> None:
    (run,) = json.loads(as_sarif([finding(), finding(severity="info", file="")], "0.12.0"))["runs"]
    first, second = run["results"]
    place = first["locations"][0]["physicalLocation"]
    artifact = {"uri": "a%20b.sh", "uriBaseId": "%SRCROOT%"}
    assert place == {"artifactLocation": artifact, "region": {"startLine": 3, "startColumn": 7}}
    assert first["message"]["text"] == "it stops: 100%, really.\nWhy: because.\nDo: do: that\nSource: source"
    assert (first["level"], second["level"], run["properties"]) == ("error", "note", {"release": "0.12.0"})
    assert second["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "-"


def test_sarif_describes_every_rule_and_every_sign_of_a_log_as_code_scanning_requires() -> None:
    for number, id_ in enumerate([*(one.id for one in all_rules()), *(sign.rule for sign in signs())]):
        log = json.loads(as_sarif([finding(rule=id_, line=number + 1)], ""))
        sarif_validator().validate(log)
        (described,) = log["runs"][0]["tool"]["driver"]["rules"]
        assert described["fullDescription"]["text"].endswith(".")
        assert "security-severity" not in described.get("properties", {})


@pytest.mark.parametrize(
    ("fix", "shown"),
    [
        (Fix("action", "set max_a *here*"), r"set max\_a \*here\*"),
        (Fix("command", "run --max_a 1"), "`run --max_a 1`"),
        (Fix("command", "run `a`"), "`` run `a` ``"),
        (Fix("command", "run \\\n  --a"), "\n\n    run \\\n      --a"),
    ],
)
def test_sarif_shows_a_fix_letter_by_letter_in_markdown(fix: Fix, shown: str) -> None:
    (run,) = json.loads(as_sarif([finding(fix=fix)], ""))["runs"]
    message = run["results"][0]["message"]["markdown"]
    assert message == f"it stops: 100%, really.\n\n**Why:** because.\n\n**Do:** {shown}\n\n**Source:** source"


def test_sarif_names_files_relative_to_the_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files = (str(tmp_path / "a" / "b.sh"), "./c.sh", "/elsewhere/d e.sh")
    (run,) = json.loads(as_sarif([finding(file=file) for file in files], ""))["runs"]
    places = [one["locations"][0]["physicalLocation"]["artifactLocation"] for one in run["results"]]
    assert [one["uri"] for one in places] == ["a/b.sh", "c.sh", "file:///elsewhere/d%20e.sh"]
    assert ["uriBaseId" in one for one in places] == [True, True, False]


def test_sarif_leaves_out_what_is_too_much_for_code_scanning_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(formats, "MOST_RESULTS", 1)
    (run,) = json.loads(as_sarif([finding(severity="info"), finding(rule="grave")], ""))["runs"]
    assert [one["ruleId"] for one in run["results"]] == ["grave"]
    assert "1 findings left out" in capsys.readouterr().err


def test_a_workflow_command_keeps_its_text_in_one_line() -> None:
    line = as_github([finding(file="a,b:c.sh", severity="info")], "0.12.0")
    assert line == (
        "::notice file=a%2Cb%3Ac.sh,line=3,col=7,title=a-rule (0.12.0)"
        "::it stops: 100%25, really%0Awhy: because%0Afix: do: that"
    )


def test_a_line_of_gcc() -> None:
    assert as_gcc([finding(), finding(file="", severity="warning")], "") == (
        "a b.sh:3:7: error: it stops: 100%, really [a-rule]\n-:3:7: warning: it stops: 100%, really [a-rule]"
    )


@pytest.mark.parametrize("output", FORMATS)
def test_the_command_writes_each_format_and_its_exit_status_stays(output: str) -> None:
    code, out, _ = invoke("--format", output, "-", text=BROKEN)
    assert code == 1 and "flag-removed" in out
    assert (
        invoke("--format", output, "-", text="trtllm-build --checkpoint_dir c --output_dir e --max_seq_len 9\n")[0] == 0
    )


def test_json_is_the_format_of_the_old_option() -> None:
    assert invoke("--json", "-", text=BROKEN)[1] == invoke("--format", "json", "-", text=BROKEN)[1]


def test_a_format_that_does_not_exist_is_refused() -> None:
    code, _, err = invoke("--format", "xml", "-", text=BROKEN)
    assert code == 2 and "text, json, sarif, github, gcc" in err


def test_hints_are_shown_when_asked_for() -> None:
    fill = "python3 tools/fill_template.py -i t/preprocessing/config.pbtxt tokenizer_dir:/t,triton_max_batch_size:8"
    text = f"{fill},preprocessing_instance_count:1\n"
    code, out, err = invoke("-", text=text)
    assert (code, "queue-instances" in out, err) == (0, False, "1 hint not shown: --hints\n")
    code, out, err = invoke("--hints", "-", text=text)
    assert (code, "queue-instances" in out, err) == (0, True, "")


@pytest.mark.parametrize(
    "text",
    [
        f"{IGNORE} the release is patched\n{BROKEN}",
        BROKEN.rstrip() + f" {IGNORE} the release is patched\n",
        f"# playbook: ignore=other-rule, flag-removed -- the release is patched\n{BROKEN}",
    ],
)
def test_a_comment_with_a_reason_takes_a_finding_away(text: str) -> None:
    code, out, _ = invoke("--format", "gcc", "-", text=text)
    assert (code, out) == (0, "")


@pytest.mark.parametrize("text", [f"{IGNORE}\n{BROKEN}", f"# playbook: ignore everything\n{BROKEN}"])
def test_a_comment_without_a_rule_or_a_reason_takes_nothing_away(text: str) -> None:
    code, out, _ = invoke("--format", "gcc", "-", text=text)
    assert code == 1
    assert re.findall(r"\[([\w-]+)\]$", out, re.MULTILINE) == ["ignore-comment", "flag-removed"]


def test_a_comment_holds_for_its_command_and_rule_only() -> None:
    (ignore,), wrong = read_ignores(f"{IGNORE} patched\na \\\n b\nc\n")
    assert (ignore.rules, ignore.lines, wrong) == (("flag-removed",), (2, 3), [])
    texts = {"f": f"{IGNORE} patched\na \\\n b\nc\n"}
    given = [finding(rule="flag-removed", file="f", line=line) for line in (2, 3, 4)]
    assert [one.line for one in without_ignored([*given, finding(file="f", line=2)], texts)] == [2, 4]


def test_comments_of_a_folders_files_hold(tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text(f"{IGNORE} patched\n{BROKEN}")
    (tmp_path / "b.sh").write_text(BROKEN)
    _, out, _ = invoke("--format", "gcc", tmp_path)
    assert [line.partition(":")[0] for line in out.splitlines()] == ["b.sh"]


GOOD = "trtllm-build --checkpoint_dir c --output_dir e --max_batch_size 8 --max_seq_len 4096\n"


def test_several_files_are_checked_in_one_call_and_what_is_none_of_ours_is_named(tmp_path: Path) -> None:
    for name, text in {"a.sh": BROKEN, "b.sh": "make all\n", "c/d.sh": BROKEN}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    code, out, err = invoke("--format", "gcc", *(tmp_path / name for name in ("a.sh", "b.sh", "c")))
    assert code == 1
    assert [line.partition(":")[0] for line in out.splitlines()] == [
        str(tmp_path / "a.sh"),
        str(tmp_path / "c" / "d.sh"),
    ]
    assert f"nothing in {tmp_path / 'b.sh'} is a command" in err


def test_the_hook_of_pre_commit_starts_the_command_with_options_that_it_has(tmp_path: Path) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    playbook, check, *options = hook["entry"].split()
    assert (playbook, check, hook["language"]) == ("playbook", "check", "python")
    (tmp_path / "a.sh").write_text(BROKEN)
    (tmp_path / "b.md").write_text(GOOD)
    code, out, _ = invoke(*options, tmp_path / "a.sh", tmp_path / "b.md")
    assert code == 1 and out.count("[flag-removed]") == 1
    takes = re.compile(hook["files"])
    assert all(map(takes.search, ("x/a.sh", "m/config.pbtxt", "lmi/serving.properties"))) and not takes.search("a.py")


@pytest.mark.parametrize(("text", "code"), [(GOOD, 0), (BROKEN, 1)])
def test_the_step_of_the_action_annotates_and_writes_sarif(tmp_path: Path, text: str, code: int) -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    (step,) = [one for one in action["runs"]["steps"] if one.get("id") == "check"]
    inputs = {name: str(given.get("default", "")) for name, given in action["inputs"].items()}
    inputs |= {"files": "scripts/*.sh", "release": "0.12.0", "gpu": "h100", "sarif": "out.sarif"}
    given = {name: inputs[re.sub(r"\W|inputs", "", value)] for name, value in step["env"].items()}
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "a.sh").write_text(text)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", step["run"]],
        cwd=tmp_path,
        env={**os.environ, **given, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert done.stdout.startswith("::error file=scripts/a.sh,line=2,") == bool(code)
    log = json.loads((tmp_path / "out.sarif").read_text())
    sarif_validator().validate(log)
    assert bool(log["runs"][0]["results"]) == bool(code)


def test_the_actions_own_workflow_gives_it_inputs_that_it_has() -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "action.yml").read_text(encoding="utf-8"))
    uses = [step for step in workflow["jobs"]["check"]["steps"] if step.get("uses") == "./"]
    required = {name for name, given in action["inputs"].items() if given.get("required")}
    assert len(uses) == 2
    assert all(required <= set(step["with"]) <= set(action["inputs"]) for step in uses)
