import json
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

import playbook
from checkout import ROOT
from playbook.chapter import RESULT_MIME, Lab, recorded_runs, recorded_time
from playbook.course.record import record_times, write_time
from serving_base.errors import CheckFailed, MissingArtifact, ProfileError, UsageError
from trtllm_check.releases import load_release


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return playbook.start("02", profile="local", workspace=str(tmp_path))


def test_card_has_seven_lines_and_says_where(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    lab.card()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 7
    assert "no GPU" in lines[2] and str(lab.workspace.root) in lines[5]


def test_a_card_links_the_same_chapter_on_other_machines(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT / "notebooks")
    said: list[str] = []
    monkeypatch.setattr(lab, "say", lambda sentence, **figures: said.append(sentence.format(**figures)))
    lab.card()
    (link,) = [text for text in said if "h200-20261124" in text]
    assert "NVIDIA H200" in link
    assert Path(link.partition("](")[2].rstrip(")")).is_file()
    monkeypatch.chdir(tmp_path)
    shown = len(said)
    lab.card()
    assert len(said) == shown > 0


def test_check_counts_and_a_false_claim_stops(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    lab.check("two is two", 2 == 2, "2")
    assert capsys.readouterr().out == "✓ two is two (2)\n"
    with pytest.raises(CheckFailed, match="check failed: two is three") as error:
        lab.check("two is three", False, "it is 2")
    assert error.value.why == "it is 2"
    lab.close()
    assert "checks passed: 1" in capsys.readouterr().out


def test_result_is_readable_and_machine_readable(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[dict[str, object]] = []
    monkeypatch.setattr("IPython.display.display", lambda data, raw: shown.append(data))
    lab.result("perplexity", 43.2)
    assert shown[0]["text/plain"] == "perplexity = 43.2 [measured here]"
    assert shown[0][RESULT_MIME] == {"name": "perplexity", "value": 43.2, "unit": "", "origin": "measured here"}


def test_require_names_the_chapter(lab: Lab) -> None:
    with pytest.raises(MissingArtifact, match="run chapter 03"):
        lab.require("engine")
    with pytest.raises(UsageError, match="no stage makes 'cake'"):
        lab.require("cake")


def test_close_ends_in_reverse_order_and_once(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    ended: list[str] = []
    lab.on_close("server", lambda: ended.append("server"))
    lab.on_close("client", lambda: ended.append("client"))
    lab.close()
    lab.close()
    out = capsys.readouterr().out
    assert ended == ["client", "server"]
    assert "ended: client, server" in out and "ended: nothing was running" in out


def test_one_closer_that_fails_does_not_keep_the_others(lab: Lab) -> None:
    ended: list[str] = []

    def fail() -> None:
        raise OSError("cannot stop")

    lab.on_close("server", lambda: ended.append("server"))
    lab.on_close("client", fail)
    with pytest.raises(OSError, match="cannot stop"):
        lab.close()
    assert ended == ["server"]


def test_the_kernels_exit_closes_too(tmp_path: Path) -> None:
    code = (
        "import playbook\n"
        f"lab = playbook.start('05', profile='local', workspace={str(tmp_path)!r})\n"
        "lab.on_close('server', lambda: print('stopped'))\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out == "stopped\n"


def test_workspace_precedence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAYBOOK_WORKSPACE", str(tmp_path / "env"))
    assert playbook.start("00", profile="local").workspace.root == tmp_path / "env"
    assert playbook.start("00", profile="local", workspace=str(tmp_path / "arg")).workspace.root == tmp_path / "arg"
    monkeypatch.delenv("PLAYBOOK_WORKSPACE")
    monkeypatch.chdir(tmp_path)
    assert playbook.start("00", profile="local").workspace.root == tmp_path / "workspace"


def test_notebooks_folder_uses_the_workspace_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path / "notebooks")
    monkeypatch.delenv("PLAYBOOK_WORKSPACE", raising=False)
    assert playbook.start("00", profile="local").workspace.root == tmp_path / "workspace"


def test_unknown_profile_and_release_are_refused() -> None:
    with pytest.raises(ProfileError, match="no profile 'p6'"):
        playbook.start("00", profile="p6")
    with pytest.raises(UsageError, match=r"9\.9\.9"):
        playbook.start("00", profile="local", release="9.9.9")


def test_panel_shows_the_p5_commands_of_the_release(lab: Lab) -> None:
    from playbook.panel import panel_markdown

    old = panel_markdown(playbook.load_profile("p5", "0.12.0"), ["build"])
    new = panel_markdown(playbook.load_profile("p5", "1.2.1"), ["build"])
    assert "--use_fused_mlp \\" in old and "--use_fused_mlp enable" in new
    assert "not run here" in old and "docker run" in old


def test_a_panel_shows_the_commands_of_other_settings(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr("IPython.display.display", lambda what: shown.append(what.data))
    lab.panel("quantize")
    lab.panel("quantize", qformat="int4_awq", kv_cache_dtype="auto")
    assert ["--qformat int4_awq" in text for text in shown] == [False, True]
    assert ["--kv_cache_dtype" in text.partition("quantize.py")[2] for text in shown] == [True, False]
    assert lab.profile.qformat == "fp8"


def test_a_panel_on_the_machine_itself_tells_what_ran_from_what_is_left_to_do(tmp_path: Path) -> None:
    from playbook.panel import ALREADY, NOT_HERE, YOURS, panel_markdown
    from trtllm_check.recipes import Paths, commands, on_host

    profile = playbook.load_profile("p5", "0.12.0")
    untouched = panel_markdown(profile, ["build", "run"], workspace=tmp_path)
    assert (ALREADY in untouched, YOURS in untouched, NOT_HERE in untouched) == (False, True, False)
    paths = Paths.under(str(tmp_path), "p5")
    (build,) = commands(profile, load_release("0.12.0"), "build", paths)
    argv = [word.replace("/p5/engine", "/p5/.making/engine") for word in on_host(build, paths).argv]
    record = tmp_path / "p5" / "logs" / "commands.jsonl"
    record.parent.mkdir(parents=True)
    record.write_text(json.dumps({"argv": argv, "exit_code": 0}) + "\n")
    ran, left = panel_markdown(profile, ["build", "run"], workspace=tmp_path).split(f"**{YOURS}**")
    assert ran.startswith(f"**{ALREADY}**")
    assert "trtllm-build" in ran and "run.py" not in ran
    assert "run.py" in left and "trtllm-build" not in left
    record.write_text(json.dumps({"argv": [w.replace("8192", "4096") for w in argv], "exit_code": 0}) + "\n")
    assert ALREADY not in panel_markdown(profile, ["build"], workspace=tmp_path)  # other limits: another command


def test_a_notebook_shows_the_fix_and_not_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell()  # type: ignore[no-untyped-call]
    shown: list[str] = []
    monkeypatch.setattr(shell, "_showtraceback", lambda kind, value, lines: shown.extend(lines))
    shell.run_cell("import playbook\nplaybook.start('00', profile='p6')")  # type: ignore[no-untyped-call]
    assert shown[0].startswith("ProfileError: no profile 'p6'")
    assert "fix: use one of" in shown[0] and "Traceback" not in "".join(shown)


def test_an_ability_is_asked_for_by_name(lab: Lab, tmp_path: Path) -> None:
    assert lab.can("stream")
    assert not playbook.start("02", profile="p5", workspace=str(tmp_path)).can("stream")
    with pytest.raises(UsageError, match="no ability is called 'strem'") as error:
        lab.can("strem")
    assert "stream" in error.value.fix


def test_a_sentence_takes_its_figures_from_the_run(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr("IPython.display.display", lambda sentence: shown.append(sentence.data))
    lab.say("It took {steps} steps, **{ratio:.1f}** times fewer.", steps=120, ratio=1.8)
    assert shown == ["It took 120 steps, **1.8** times fewer."]
    with pytest.raises(KeyError):
        lab.say("{forgotten} steps")


def test_the_time_of_a_chapter_is_that_of_its_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "recorded.yml"
    record_times("embedded", {"02": 41.7}, cores=2, day=date(2026, 11, 22), path=path)
    record_times("embedded", {"09": 20.1}, cores=4, day=date(2026, 11, 23), path=path)
    monkeypatch.setattr("playbook.chapter.recorded_runs", lambda: recorded_runs(path))
    assert recorded_time("02", "local", "embedded") == "42 s when it was recorded (2026-11-22, 2 cores)"
    assert recorded_time("09", "local", "embedded") == "20 s when it was recorded (2026-11-23, 4 cores)"
    assert recorded_time("02", "p5", "tensorrt_llm") == "not measured yet on this lane"


def test_a_profile_s_own_time_goes_before_its_lane_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = {
        "vllm": {"02": {"seconds": 9, "cores": 2, "date": "2026-11-22"}},
        "hopper": {"02": {"seconds": 292, "machine": "one GPU", "date": "2026-11-23"}},
    }
    monkeypatch.setattr("playbook.chapter.recorded_runs", lambda: runs)
    assert recorded_time("02", "hopper", "vllm") == "292 s when it was recorded (2026-11-23, one GPU)"
    assert recorded_time("02", "l4", "vllm") == "9 s when it was recorded (2026-11-22, 2 cores)"
    assert recorded_time("03", "hopper", "vllm") == "not measured yet on this lane"


def test_a_recorded_card_shows_the_time_of_its_own_run() -> None:
    card = "workspace  workspace\ntime       not measured yet on this lane\n"
    cell = new_code_cell("lab.card()", outputs=[new_output("stream", text=card)])  # type: ignore[no-untyped-call]
    notebook = new_notebook(cells=[cell])  # type: ignore[no-untyped-call]
    write_time(notebook, "42 s when it was recorded")
    assert notebook.cells[0].outputs[0].text == "workspace  workspace\ntime       42 s when it was recorded\n"
