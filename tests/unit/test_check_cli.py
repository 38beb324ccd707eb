"""`playbook check`: exit status, JSON, text, and input that cannot be used."""

import json
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import typer
from typer.testing import CliRunner

from serving_base.command_line import not_installed, reporting
from serving_base.errors import UsageError
from trtllm_check.cli import check_command
from trtllm_check.lint import check_commands, reading
from trtllm_check.lint.finding import show
from trtllm_check.lint.page import Snippet, snippets

app = typer.Typer()
app.command()(reporting(check_command))

SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["release", "findings"],
    "properties": {
        "release": {"type": "string"},
        "release_told": {"type": "string", "minLength": 1},
        "findings": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["rule", "severity", "line", "column", "file", "message", "why", "fix", "source"],
                "properties": {
                    "rule": {"type": "string", "pattern": "^[a-z0-9.-]+$"},
                    "severity": {"enum": ["error", "warning", "info"]},
                    "line": {"type": "integer", "minimum": 1},
                    "column": {"type": "integer", "minimum": 1},
                    "file": {"type": "string"},
                    "message": {"type": "string", "minLength": 1},
                    "why": {"type": "string", "minLength": 1},
                    "fix": {
                        "type": "object",
                        "additionalProperties": False,
                        "required": ["kind", "text"],
                        "properties": {
                            "kind": {"enum": ["command", "action"]},
                            "without": {"type": "string"},
                            "text": {"type": "string", "minLength": 1},
                        },
                    },
                    "source": {"type": "string", "minLength": 1},
                },
            },
        },
    },
}
BROKEN = "trtllm-build --checkpoint_dir c --output_dir e --max_batch_size 8 \\\n  --max_output_len 128\n"
GOOD = "trtllm-build --checkpoint_dir c --output_dir e --max_batch_size 8 --max_seq_len 4096\n"
ODD = "quantize.py --model_dir m --output_dir c\n"  # quantizes nothing: a warning
LOG = "step 1\nRuntimeError: CUDA out of memory. Tried to allocate 2 GiB\n"


def invoke(*words: str | Path, text: str | bytes = "") -> tuple[int, str, str]:
    done = CliRunner().invoke(app, [str(word) for word in words], input=text)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


def findings(*words: str | Path, text: str | bytes = "") -> list[dict[str, Any]]:
    code, out, _ = invoke(*words, "--json", text=text)
    answer = json.loads(out)
    jsonschema.validate(answer, SCHEMA)
    assert code == int(any(one["severity"] == "error" for one in answer["findings"]))
    return list(answer["findings"])


def named(start: str) -> Snippet:
    (snippet,) = [one for one in snippets() if one.name.startswith(start)]
    return snippet


@pytest.mark.parametrize(("text", "code"), [(BROKEN, 1), (GOOD, 0), (ODD, 0)])
def test_only_an_error_makes_the_status_1(text: str, code: int, tmp_path: Path) -> None:
    path = tmp_path / "build.sh"
    path.write_text(text)
    assert invoke("--release", "0.12.0", path)[0] == code
    assert invoke("--release", "0.12.0", path, "--json")[0] == code
    assert invoke("--release", "0.12.0", "-", text=text)[0] == code


def test_json_holds_what_the_library_finds(tmp_path: Path) -> None:
    path = tmp_path / "build.sh"
    path.write_text(BROKEN)
    (one,) = findings("--release", "0.12.0", path)
    (same,) = check_commands(path, "0.12.0")
    assert one == {**same._asdict(), "fix": same.fix._asdict(), "file": str(path)}
    assert (one["rule"], one["line"], one["column"]) == ("flag-removed", 2, 3)
    assert list(one) == ["rule", "severity", "line", "column", "file", "message", "why", "fix", "source"]
    assert json.loads(invoke("--release", "0.12.0", path, "--json")[1])["release"] == "0.12.0"


def test_standard_input_and_a_file_give_the_same(tmp_path: Path) -> None:
    for snippet in snippets()[::7]:
        if snippet.files or not snippet.document().is_understood:
            continue
        machine = ["--gpu", snippet.gpu] if snippet.gpu else []
        machine += ["--gpus", str(snippet.gpus)] if snippet.gpus else []
        from_file = findings("--release", snippet.release, *machine, snippet.write(tmp_path))
        piped = findings("--release", snippet.release, *machine, "-", text=snippet.text)
        if snippet.kind == "config.pbtxt":  # a file has no more fields than it shows, and a paste may have
            told = {(one["rule"], one["line"]) for one in from_file}
            assert {(one["rule"], one["line"]) for one in piped} <= told
        else:
            assert [{**one, "file": ""} for one in from_file] == piped


def test_a_question_that_is_a_command_is_answered_once(tmp_path: Path) -> None:
    (tmp_path / "one.sh").write_text("vllm serve meta-llama/Meta-Llama-3-8B-Instruct --tensor-parallel-size 3\n")
    found = [one["rule"] for one in findings(tmp_path / "one.sh")]
    assert found.count("heads-not-divided") == 1


def test_a_folder(tmp_path: Path) -> None:
    snippet = named("149-")
    snippet.write(tmp_path)
    (one,) = findings("--release", snippet.release, tmp_path)
    assert one["file"] == "ensemble/config.pbtxt"


def test_the_machine_is_heeded(tmp_path: Path) -> None:
    text = "trtllm-build --checkpoint_dir c --output_dir e --max_batch_size 8 --max_seq_len 4096\n"
    text = "quantize.py --model_dir m --qformat fp8 --kv_cache_dtype fp8 --output_dir c\n" + text
    assert findings("--release", "0.12.0", "--gpu", "h100", "-", text=text) == []
    assert {one["rule"] for one in findings("--release", "0.12.0", "--gpu", "a100", "-", text=text)} >= {
        "fp8-needs-hopper-or-ada"
    }


def test_a_log() -> None:
    (one,) = findings("--log", "-", text=LOG)
    assert (one["rule"], one["line"], one["fix"]["kind"]) == ("gpu-memory", 2, "action")
    code, out, _ = invoke("--log", "-", text=LOG)
    assert code == 1
    assert "gpu-memory" in out and "Tried to allocate 2 GiB" in out
    assert invoke("--log", "-", text="[TRT-LLM] [I] all went well\n")[:2] == (0, "nothing found\n")


def test_a_text_that_is_no_log_is_said(tmp_path: Path) -> None:
    code, out, err = invoke("--log", "-", text="all went well\n")
    assert (code, out) == (3, "") and "is no log" in err


def test_a_log_is_seen_without_being_called_one(tmp_path: Path) -> None:
    code, out, err = invoke("-", text=LOG)
    assert code == 1 and "gpu-memory" in out and "read as a log" in err
    path = tmp_path / "server.log"
    path.write_text(LOG, encoding="utf-8")
    code, out, _ = invoke(str(path))
    assert code == 1 and "gpu-memory" in out


@pytest.mark.parametrize(("prompt", "known"), [("$ ", True), ("(base) me@box:~/code$ ", True), ("+ ", False)])
def test_the_commands_of_a_terminal_are_read_with_what_they_print(tmp_path: Path, prompt: str, known: bool) -> None:
    path = tmp_path / "terminal.log"
    typed = f"[TRT-LLM] [I] ready\n{prompt}trtllm-build --checkpoint_dir c --enable_fp8 x\n[TRT-LLM] version: 0.12.0\n"
    path.write_text(typed, encoding="utf-8")
    code, out, _ = invoke(str(path), "--release", "0.12.0")
    assert (code == 1, "--enable_fp8" in out) == (known, known)
    path.write_text(typed.replace("[TRT-LLM] [I] ready", "hello"), encoding="utf-8")  # nothing that makes it a log
    assert ("--enable_fp8" in invoke(str(path), "--release", "0.12.0")[1]) == known
    path.write_text(typed + "#" * 20_000, encoding="utf-8")  # longer than what somebody copies
    assert "--enable_fp8" not in invoke(str(path), "--release", "0.12.0")[1]


def test_the_page_of_one_finding_is_shown() -> None:
    code, out, _ = invoke("--about", "flag-removed")
    assert code == 0 and out.startswith("### `flag-removed`") and "Example" in out and "### `flag-renamed`" not in out
    code, out, _ = invoke("--about", "gpu-memory")
    assert code == 0 and "in a log" in out and "Fix: " in out


def test_a_finding_that_there_is_not_is_named_with_those_nearby() -> None:
    code, out, err = invoke("--about", "flag-remove")
    assert (code, out) == (2, "") and "flag-removed" in err
    assert invoke("--about", "flag-removed", "serve.sh")[0] == 2


def test_an_error_without_an_explanation_is_shown() -> None:
    text = "[TRT-LLM] [I] loading\n[TRT-LLM] [E] the flux capacitor is empty\n"
    code, out, _ = invoke("--log", "-", text=text)
    assert code == 1
    assert "no explanation" in out and "flux capacitor" in out


def test_the_text_has_everything_and_each_correction_once() -> None:
    snippet = named("002-")
    code, out, err = invoke("--hints", "--release", snippet.release, "-", text=snippet.text)
    assert (code, err) == (1, "")
    found = snippet.check()
    assert len(found) == 3
    for one in found:
        assert all(part in out for part in (one.rule, one.message, one.why, one.source, f"{one.line}:{one.column}"))
    assert len({one.fix.text for one in found}) == 1
    assert out.count("--max_seq_len 5120") == 1
    assert out.endswith("2 errors, 1 hint for TensorRT-LLM 0.12.0\n")


def test_colours_for_people_only(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    found = check_commands(BROKEN, "0.12.0")
    show(found, "0.12.0")
    plain = capsys.readouterr().out
    assert "\x1b" not in plain
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    show(found, "0.12.0")
    coloured = capsys.readouterr().out
    assert "\x1b[1;31merror" in coloured
    assert len(coloured) > len(plain)


def test_nothing_of_the_input_reaches_the_terminal_as_a_control_character() -> None:
    code, out, _ = invoke("--release", "0.12.0", "-", text=GOOD.strip() + " --\x1b[31mred 1\n")
    assert code == 1
    assert "\x1b" not in out
    assert "\\x1b" in out


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--release", "0.12.0"], "one thing at a time"),
        (["--release", "0.12.0", "--log", "x", "-"], "one thing at a time"),
        (["/dev/zero"], "is a device"),
        (["--release", "7.1", "-"], "7.1"),
        (["--release", "0.12.0", "--gpu", "b300", "-"], "h100"),
        (["--release", "0.12.0", "--gpus", "0", "-"], "gpus"),
        (["--release", "0.12.0", "nowhere.sh"], "nowhere.sh"),
        (["--log", "nowhere.log"], "nowhere.log"),
        (["--log", "."], "cannot read"),
    ],
)
def test_input_that_cannot_be_used_has_status_2(words: list[str], complaint: str) -> None:
    code, out, err = invoke(*words, text=GOOD)
    assert (code, out) == (2, "")
    assert complaint in err


@pytest.mark.parametrize(
    ("name", "data"),
    [("engine.bin", b"\x7fELF\0\0"), ("huge.sh", b"x" * 1_000_001)],
)
def test_a_file_that_is_no_text_of_ours_has_status_2(name: str, data: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    code, out, err = invoke("--release", "0.12.0", tmp_path / name)
    assert (code, out) == (2, "")
    assert name in err and "fix: " in err


NOT_UNDERSTOOD = {
    "empty.sh": "",
    "harmless.sh": "echo hello\n",
    "messages.sh": '#!/bin/bash\nerr() { echo "[$(date \'+%H:%M:%S\')] ERROR: $*"; }\nlog() { echo "INFO: $*"; }\n',
    "client.py": "import json\n\nprint(json.dumps({}))\n",
    "chart.yml": "replicas: 2\nimage: registry/own:1\n",
    "broken.json": '{"text_input": ',
    "other.json": '{"name": "chart"}',
    "deep.json": "[" * 100_000,
    "config.json": '{"a": 1}',
    "to-tick.md": "## Testing (CRITICAL)\n\n- [ ] **Tool calling**: it handles tool calls, no tokens unexpectedly.\n",
    "manual.md": "# Troubleshooting\n\n```\ndocker: Cannot connect to the Docker daemon.\n```\n\n**Solution:**\n\nA\n",
    "print.py": 'import re\n\nprint("ERROR: no parser found valid <tool_call> tags")\n',
    "prose.md": "Nothing here but words.\n",
    "a.ipynb": '{"cells": []}',
    "Dockerfile": "FROM scratch\nCOPY . .\n",
    "Makefile": "all:\n\techo done\n",
}


@pytest.mark.parametrize("name", NOT_UNDERSTOOD)
def test_what_is_not_understood_has_status_3(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(NOT_UNDERSTOOD[name])
    code, out, err = invoke("--release", "0.12.0", tmp_path / name)
    assert (code, out) == (3, "")
    assert "that the checker knows" in err and "why: " in err


def test_a_folder_with_nothing_to_check_has_status_3(tmp_path: Path) -> None:
    assert invoke("--release", "0.12.0", tmp_path)[:2] == (3, "")


def test_what_tools_put_into_a_folder_is_not_read(tmp_path: Path) -> None:
    for folder in ("node_modules/a", "venv/lib/python3.11/site-packages/b", ".git", "env/bin", "wandb/run-1/files"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "broken.sh").write_text(BROKEN)
    (tmp_path / "env/pyvenv.cfg").write_text("home = /usr/bin\n")
    (tmp_path / "run.sh").write_text(GOOD)
    assert invoke("--release", "0.12.0", tmp_path)[0] == 0
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts/broken.sh").write_text(BROKEN)
    assert "scripts/broken.sh" in invoke("--release", "0.12.0", tmp_path)[1]


def test_files_beyond_the_limit_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST_FILES", 2)
    for number in range(4):
        (tmp_path / f"{number}.sh").write_text(GOOD)
    (tmp_path / "large.sh").write_text("#" * (reading.LARGEST_FILE + 1))
    code, _, err = invoke("--release", "0.12.0", tmp_path)
    assert code == 0 and "not read: 2 files beyond the first 2; check its parts apart" in err
    assert "large.sh (too large)" in err


def test_a_folder_that_is_not_opened_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the system says it to a user without permission; root may read everything."""
    (tmp_path / "closed.sh").write_text(BROKEN)

    def refuse(path: Path, *_: Any, **__: Any) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_text", refuse)
    code, out, err = invoke("--release", "0.12.0", tmp_path)
    assert (code, out) == (2, "")
    assert "closed.sh" in err


def test_lines_that_were_not_read_are_named() -> None:
    code, out, err = invoke("--release", "0.12.0", "-", text=f"A page with words.\n\n{BROKEN}\nmore words\n")
    assert code == 1 and "flag-removed" in out
    assert "not read: lines 1, 6\n" in err
    assert invoke("--release", "0.12.0", "-", text=GOOD)[2] == ""


def test_text_that_goes_into_a_command_is_read_with_the_word_that_ends_it() -> None:
    python = "python3 - <<EOF\nfrom vllm import LLM\nllm = LLM(model='a/b')\nEOF\n"
    assert invoke("--release", "0.12.0", "-", text=f"cat > a.txt <<EOF\nwords\nEOF\n{python}")[2] == ""
    assert "not read: lines 5\n" in invoke("--release", "0.12.0", "-", text=f"{python}more words\n")[2]


def test_a_stray_fence_hides_nothing() -> None:
    page = f"Build it:\n\n{BROKEN}\nA template:\n\n```\n{{context}}\n```\n"
    assert [one["rule"] for one in findings("--release", "0.12.0", "-", text=page)] == ["flag-removed"]


def test_text_that_is_not_utf_8_is_read(tmp_path: Path) -> None:
    assert [one["rule"] for one in findings("--release", "0.12.0", "-", text=b"# \xff\xfe\n" + BROKEN.encode())] == [
        "flag-removed"
    ]


def test_the_library_refuses_what_it_does_not_know() -> None:
    with pytest.raises(UsageError, match="b300"):
        check_commands(GOOD, "0.12.0", gpu="b300")
    with pytest.raises(UsageError, match=r"0\.7\.1"):
        check_commands(GOOD, "0.7.1")


@pytest.mark.parametrize("name", ["papermill_of_nobody", "papermill_of_nobody.engines"])
def test_what_another_installation_brings_is_named(name: str) -> None:
    assert "[course]" in not_installed(ModuleNotFoundError(name=name)).fix


@pytest.mark.parametrize("name", ["course_runs.nowhere", "load_testing.nowhere", "typer.nowhere", None])
def test_a_missing_part_of_what_is_there_is_a_fault(name: str | None) -> None:
    with pytest.raises(ModuleNotFoundError):
        not_installed(ModuleNotFoundError(name=name))


def test_a_file_of_that_name_is_a_whole_configuration(tmp_path: Path) -> None:
    step = (
        'model_name: "tensorrt_llm"\n input_map { key: "input_ids" value: "_IDS" }\n output_map { key: "a" value: "b" }'
    )
    text = f'name: "e"\nplatform: "ensemble"\nmax_batch_size: 4\nensemble_scheduling {{\n step [ {{ {step} }} ]\n}}\n'
    path = tmp_path / "config.pbtxt"
    path.write_text(text, encoding="utf-8")
    assert "error ensemble-wiring" in invoke("--release", "0.12.0", path)[1]
    assert "error ensemble-wiring" not in invoke("--release", "0.12.0", "-", text=text)[1]
