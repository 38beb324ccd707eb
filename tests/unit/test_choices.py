import fcntl
import itertools
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError
from typer.testing import CliRunner, Result

from aws_commands import problems
from load_testing.results import Load, RequestRecord, new_run, write_results
from playbook import artifact, choices
from playbook.artifact import ASIDE, Origin, make
from playbook.choices.cleanup import Leftover, commands, markdown_table
from playbook.choices.options import OPTIONS_FILE, Cell, OptionsFile, sources
from playbook.cli.app import app
from playbook.profile import load_profile
from playbook.stages import Workspace
from serving_base.errors import ForeignArtifact, PlaybookError, UsageError
from serving_base.processes import start_guarded

NEEDS = tuple(choices.questions())

# --- the table


def test_every_fact_has_a_dated_source_and_every_source_is_used() -> None:
    used = {cell.source for option in choices.options().values() for cell in option.cells.values()} - {""}
    assert used == set(sources())
    assert all(source.seen <= date.today() for source in sources().values())


@pytest.mark.parametrize("cell", [{"text": "a"}, {"text": "a", "source": "b", "judgement": True}, {"text": ""}])
def test_a_cell_is_a_fact_or_a_judgement(cell: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Cell(**cell)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("options", "nim", "gives"), ["free_lunch"], "gives what no question asks: free_lunch"),
        (("options", "nim", "cells", "idle"), {"text": "a", "source": "hearsay"}, "unknown sources: hearsay"),
        (("options", "nim", "cells"), {}, "other topics than the table"),
        (("sources", "nim-terms", "url"), "a colleague", "pattern"),
        (("questions", "quick_start", "contradicts"), "patience", "no question can contradict patience"),
    ],
)
def test_a_table_that_contradicts_itself_is_refused(place: tuple[str, ...], value: object, message: str) -> None:
    content = yaml.safe_load(OPTIONS_FILE.read_text())
    *parents, last = place
    entry = content
    for key in parents:
        entry = entry[key]
    entry[last] = value
    with pytest.raises(ValidationError, match=message):
        OptionsFile(**content)


def test_compare_shows_the_topics_asked_for() -> None:
    rows = choices.compare("billing_unit", "idle")
    assert len(rows) == len(choices.options()) and list(rows[0]) == ["option", "billing unit", "bills when idle"]
    assert len(choices.compare()[0]) == 12
    tuning = choices.compare("tuning")
    there = [row["option"] for row in tuning if not row["your own training"].startswith("elsewhere")]
    assert there == ["SageMaker JumpStart", "Amazon Bedrock"]
    assert choices.compare("choose")[0]["choose it when"].endswith("°"), "judgements are marked"
    number, url = re.fullmatch(r".+ \[\[(\d+)\]\]\((https://.+)\)", rows[0]["billing unit"]).groups()  # type: ignore[union-attr]
    assert list(sources().values())[int(number) - 1].url == url, "facts carry the number of their source"
    with pytest.raises(UsageError, match="no topic colour"):
        choices.compare("colour")


# --- the rule


@pytest.mark.parametrize(
    ("needs", "first"),
    [
        (["own_weights", "engine_control", "steady_load"], "triton-ec2"),
        (["own_weights", "steady_load", "newest_models"], "pytorch-ec2"),
        (["own_weights", "aws_operates", "newest_models"], "lmi-sagemaker"),
        (["own_weights", "vendor_support"], "nim"),
        (["steady_load", "aws_operates", "quick_start"], "jumpstart"),
        (["pay_per_token", "no_idle_bill"], "bedrock"),
        (["own_weights", "no_idle_bill", "aws_operates"], "bedrock-import"),
    ],
)
def test_the_rule_ranks(needs: list[str], first: str) -> None:
    assert choices.recommend(needs)[0].option == first


def test_what_is_needed_excludes_and_is_named() -> None:
    ranked = {entry.option: entry for entry in choices.recommend(["own_weights", "pay_per_token"])}
    assert len(ranked) == len(choices.options())
    assert ranked["bedrock"].excluded_by == ("own_weights",) and ranked["bedrock"].gives == ("pay_per_token",)
    assert [entry.option for entry in ranked.values()][-2:] == ["bedrock", "jumpstart"], "excluded ones come last"
    assert ranked["bedrock"].row()["score"] == "out: own_weights"


def test_scores_are_sums_of_weights_for_every_pair_of_needs() -> None:
    weights = {name: question.weight for name, question in choices.questions().items()}
    clash = {frozenset((name, q.contradicts)) for name, q in choices.questions().items() if q.contradicts}
    for pair in itertools.combinations(NEEDS, 2):
        if frozenset(pair) in clash:
            continue
        ranked = choices.recommend(pair)
        kept = [entry for entry in ranked if not entry.excluded_by]
        assert ranked[: len(kept)] == kept and [e.score for e in kept] == sorted((e.score for e in kept), reverse=True)
        for entry in ranked:
            counted = [weight for need in entry.gives if isinstance(weight := weights[need], int)]
            assert entry.score == sum(counted) and set(entry.gives) | set(entry.lacks) == set(pair)


def test_answers_by_yes_and_no_equal_the_list_of_needs() -> None:
    answers = {name: name in ("aws_operates", "quick_start") for name in NEEDS}
    assert choices.recommend(answers) == choices.recommend(["aws_operates", "quick_start"])
    assert [entry.option for entry in choices.recommend([])] == list(choices.options()), "no need, no ranking"


def test_contradictions_and_unknown_needs_are_refused() -> None:
    with pytest.raises(UsageError, match="pay_per_token and steady_load contradict"):
        choices.recommend(["steady_load", "pay_per_token"])
    with pytest.raises(UsageError, match="no question cheapness"):
        choices.recommend(["cheapness"])


# --- the cost


def test_the_formulas() -> None:
    assert choices.usd_per_million_tokens(36.0, 1000) == pytest.approx(10.0)
    assert choices.usd_per_million_tokens(36.0, 1000, 0.25) == pytest.approx(40.0)
    assert choices.break_even_tokens_per_s(36.0, 10.0) == pytest.approx(1000)
    assert choices.break_even_utilisation(36.0, 4000, 10.0) == pytest.approx(0.25)
    assert choices.idle_usd(36.0, 24, 0.25) == pytest.approx(648.0)
    assert choices.time_to_live_usd(36.0, 90) == pytest.approx(54.0)
    per_token = choices.usd_per_million_output_at_token_price(0.5, 2.0, input_tokens=1000, output_tokens=250)
    assert per_token == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("strategy", "instances", "extra"), [("blue/green", 4, 4), ("rolling", 4, 2), ("rolling", 1, 1)]
)
def test_an_update_pays_for_the_instances_that_stand_twice(strategy: Any, instances: int, extra: int) -> None:
    assert choices.update_usd(60.0, instances, 30, strategy) == pytest.approx(30.0 * extra)


def test_at_break_even_both_cost_the_same() -> None:
    share = choices.break_even_utilisation(55.04, 16820, 1.44)
    assert choices.usd_per_million_tokens(55.04, 16820, share) == pytest.approx(1.44)


@pytest.mark.parametrize("arguments", [(0, 100), (55, 0), (55, -1), (55, 100, 0), (55, 100, 1.2)])
def test_impossible_inputs_are_refused(arguments: tuple[float, ...]) -> None:
    with pytest.raises(UsageError):
        choices.usd_per_million_tokens(*arguments)


def test_published_throughput_is_replicas_times_one() -> None:
    published = choices.published_throughputs()[0]
    assert (published.instance, published.tokens_per_s) == ("p5.48xlarge", 4 * 4205)
    assert published.source.startswith("https://github.com/NVIDIA/")


def test_the_most_trustworthy_rate_comes_first_and_each_says_what_it_is() -> None:
    published = {"published, latency not looked at": 16820.0}
    assert choices.known_rates("p5.48xlarge") == published
    planned = choices.known_rates("p5.48xlarge", planned=12204.0)
    assert list(planned.items()) == [("planned, keeps the promise", 12204.0), *published.items()]
    assert next(iter(choices.known_rates("g6.xlarge", measured=5.0, planned=4.0).items())) == ("measured by you", 5.0)
    with pytest.raises(UsageError, match="no throughput is known for g6"):
        choices.known_rates("g6.xlarge")


def test_the_newest_results_of_chapter_08_are_found_where_it_writes_them(tmp_path: Path) -> None:
    space = Workspace(tmp_path, load_profile("local"))
    assert choices.measured_tokens_per_s(space) == 0.0
    for seconds in (0.1, 0.5):  # the second is newer and slower
        runs = {"c1": [answered("c1", 1, seconds=1.0, tokens=10)]}
        runs["c2"] = [answered("c2", 2, seconds=seconds, tokens=10)] * 2
        write_results(runs, new_run(space.folder("benchmark")) / "results.jsonl")
    assert choices.measured_tokens_per_s(space) == pytest.approx(40.0)


def test_chapter_08_writes_where_chapter_10_looks() -> None:
    source = (Path(__file__).parents[2] / "notebooks" / "08-benchmark.ipynb").read_text(encoding="utf-8")
    assert 'load.new_run(lab.workspace.folder(\\"benchmark\\"))' in source
    assert 'out / \\"results.jsonl\\"' in source


@pytest.mark.parametrize("name", ["bedrock-quotas", "nim-licensing"])
def test_a_source_is_the_service_s_own_page(name: str) -> None:
    own = {"bedrock-quotas": "https://docs.aws.amazon.com/bedrock/", "nim-licensing": "https://docs.nvidia.com/"}
    assert sources()[name].url.startswith(own[name])


def answered(run: str, concurrency: int, *, seconds: float, tokens: int) -> RequestRecord:
    times: dict[str, Any] = {
        "scheduled_s": 0,
        "sent_s": 0,
        "first_token_s": seconds / 2,
        "last_token_s": seconds,
        "began_unix_s": 0,
    }
    load = Load(mode="closed", concurrency=concurrency)
    return RequestRecord(run=run, tool="test", load=load, prompt="p", isl_tokens=5, osl_tokens=tokens, **times)


# --- what still bills


@pytest.mark.parametrize("leftover", choices.leftovers(), ids=lambda leftover: leftover.resource)
def test_the_commands_exist_with_these_flags_and_fields(leftover: Leftover) -> None:
    for argv in leftover.commands():
        assert list(problems(argv)) == []


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("aws ec2 stop-instance --instance-ids i", "has no stop-instance"),
        ("aws ec2 stop-instances", "needs --instance-ids"),
        ("aws ec2 stop-instances --instance-ids i --now", "has no --now"),
        ('aws ec2 describe-volumes --query "Volumes[].[Cost]"', "returns no Cost"),
        ("aws s3 rm s3://b --recurse", "has no --recurse"),
    ],
)
def test_a_wrong_command_is_noticed(line: str, problem: str) -> None:
    assert [found for found in problems(shlex.split(line)) if problem in found]


def test_leftovers_begin_with_the_dearest_and_name_their_end() -> None:
    rows = choices.leftovers()
    assert [row.resource for row in rows][:2] == ["SageMaker endpoint", "EC2 instance (P5)"]
    assert [row.resource for row in rows if not row.end] == ["Capacity Block"]
    assert len({row.resource for row in rows}) == len(rows) >= 9
    assert set(rows[0].row()) == {"resource", "bills", "until", "note"}


def test_tables_are_markdown_that_a_cell_cannot_break() -> None:
    assert markdown_table([{"a": "x|y", "b": 1}, {"a": "two\nlines", "b": 2}]).splitlines() == [
        "| a | b |",
        "| --- | --- |",
        "| x\\|y | 1 |",
        "| two lines | 2 |",
    ]
    assert markdown_table([]) == ""


def test_the_commands_are_shown_with_what_ends_each() -> None:
    text = commands(choices.leftovers())
    assert text.count("\n\n") == len(choices.leftovers()) - 1
    assert "# Capacity Block\naws ec2 describe-capacity-reservations" in text
    assert "# nothing ends it before its time" in text
    assert "aws ec2 stop-instances --instance-ids INSTANCE\n# or: aws ec2 terminate-instances" in text


# --- clean-up


def put(workspace: Workspace, name: str, kind: str, inputs: dict[str, str]) -> artifact.Artifact:
    origin = Origin(
        kind=kind, made_by="test", release="0.12.0", gpu_arch="cpu", world_size=1, spec={"name": name}, inputs=inputs
    )
    return make(workspace.folder(name), origin, lambda out: (out / "data").write_bytes(b"x" * 2000) and None)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A model, a checkpoint of it, a stranger's folder and the leavings of a killed run."""
    space = Workspace(tmp_path, load_profile("local"))
    model = put(space, "model", "model", {})
    put(space, "checkpoint", "checkpoint", {"model": model.manifest.digest})
    (space.folder("mine")).mkdir()
    (space.folder("mine") / "notes.txt").write_text("keep me")
    (space.folder(ASIDE) / "engine").mkdir()
    return space


def test_artifacts_say_what_may_go(workspace: Workspace) -> None:
    workspace.folder("elsewhere").symlink_to(workspace.folder("model"))
    rows = {row.name: row for row in choices.artifacts(workspace)}
    assert rows.pop("elsewhere").row()["may be removed"] == "no: it is a link to another folder"
    assert {name: row.state for name, row in rows.items()} == {
        "checkpoint": "finished",
        "model": "finished",
        "mine": "foreign",
        "engine": "unfinished",
    }
    assert rows["model"].needed_by == ("checkpoint",) and rows["model"].megabytes == pytest.approx(0.002)
    assert rows["mine"].row()["may be removed"] == "no: it has no manifest of the playbook"
    assert rows["checkpoint"].row()["needed by"] == "nothing"


def test_an_empty_workspace_has_no_artifacts(tmp_path: Path) -> None:
    assert choices.artifacts(Workspace(tmp_path / "new", load_profile("local"))) == []


def test_remove_takes_what_it_was_told(workspace: Workspace) -> None:
    assert [row.name for row in choices.remove(workspace, ["checkpoint", "checkpoint"])] == ["checkpoint"]
    assert not workspace.folder("checkpoint").exists() and workspace.folder("model").exists()
    put(workspace, "checkpoint", "checkpoint", {})  # can be made again
    assert len(choices.remove(workspace, ["model", "checkpoint"])) == 2


def reset(workspace: Workspace, *words: str, answer: str = "") -> Result:
    return CliRunner().invoke(app, ["reset", *words, "--workspace", str(workspace.root)], input=answer)


def test_reset_takes_what_a_chapter_made_and_what_came_from_it(workspace: Workspace) -> None:
    asked = reset(workspace, "01", answer="n\n")
    assert asked.exit_code != 0 and "checkpoint" in asked.output
    assert len(choices.artifacts(workspace)) == 4
    done = reset(workspace, "01", "--yes")
    assert done.exit_code == 0 and "removed 2" in done.output, done.output
    assert {row.name for row in choices.artifacts(workspace)} == {"mine", "engine"}
    assert "has nothing in" in reset(workspace, "01", "--yes").output


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mine", "mine is not removed"),
        ("engine", "no artifact 'engine'"),
        ("../local/model", "no artifact"),
        ("/", "no artifact"),
        (ASIDE, "no artifact"),
        ("model", "model is not removed"),
    ],
)
def test_remove_refuses_and_removes_nothing(workspace: Workspace, name: str, words: str) -> None:
    before = sorted(workspace.root.rglob("*"))
    with pytest.raises(UsageError, match=words):
        choices.remove(workspace, ["checkpoint", name] if name != "model" else [name])
    assert sorted(workspace.root.rglob("*")) == before


def test_remove_refuses_a_link_out_of_the_workspace(workspace: Workspace, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    workspace.folder("checkpoint").rename(elsewhere)
    workspace.folder("checkpoint").symlink_to(elsewhere)
    with pytest.raises(UsageError, match="checkpoint is not removed"):
        choices.remove(workspace, ["checkpoint"])
    with pytest.raises(ForeignArtifact, match="is a link"):
        artifact.remove(workspace.folder("checkpoint"))
    assert (elsewhere / "data").exists()


def test_remove_refuses_what_another_run_is_making(workspace: Workspace) -> None:
    with (workspace.folder(ASIDE) / "checkpoint.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(PlaybookError, match="another run is making"):
            choices.remove(workspace, ["checkpoint"])
    assert workspace.folder("checkpoint").exists()


def test_a_killed_removal_leaves_no_half_of_an_artifact(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(path: Path, ignore_errors: bool = False) -> None:
        if not ignore_errors:
            raise KeyboardInterrupt

    monkeypatch.setattr("playbook.artifact.shutil.rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        choices.remove(workspace, ["checkpoint"])
    assert not workspace.folder("checkpoint").exists()
    monkeypatch.undo()
    assert put(workspace, "checkpoint", "checkpoint", {}).up_to_date is False


def test_running_finds_what_still_uses_the_workspace(workspace: Workspace) -> None:
    assert choices.running(workspace) == []
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    with (
        start_guarded([*sleep, f"--model-repository={workspace.folder('repository')}"]),
        start_guarded([*sleep, f"{workspace.root}-other/engine"]),
        subprocess.Popen([*sleep, str(workspace.root / "the user's own")]) as users,
    ):
        assert wait_for(lambda: choices.running(workspace))
        assert all("pid" in line for line in choices.running(workspace))
        assert f"(pid {users.pid})" not in " ".join(choices.running(workspace))
        users.kill()
        neighbour = Workspace(Path(f"{workspace.root}-other"), workspace.profile)
        assert wait_for(lambda: choices.running(neighbour))
        assert not set(choices.running(neighbour)) & set(choices.running(workspace))
    assert choices.running(workspace) == []


def wait_for(condition: Callable[[], object], timeout_s: float = 10.0) -> bool:
    """True as soon as the condition holds, False after the time."""
    until = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True
