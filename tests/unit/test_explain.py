"""What `playbook explain` says of a flag, the data behind it, and the page made from it."""

import re
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest

from each import each
from playbook.profile import load_profile, profile_names
from serving_base.errors import UsageError
from trtllm_check.explain import explain
from trtllm_check.explain.page import releases_page
from trtllm_check.recipes import road, tool_arguments
from trtllm_check.releases import history, known_releases, load_release
from trtllm_check.releases.guide import TEMPLATES, FlagGuide, flag_guides, guide_of, migration, run_modes
from trtllm_check.releases.history import (
    FlagHistory,
    all_flags,
    all_releases,
    default,
    flag_histories,
    flag_history,
    ranges,
    takes,
)
from trtllm_check.releases.load import in_range
from trtllm_check.releases.templates import release_templates, template_releases
from trtllm_check.rules import TOPICS, Severity, all_rules, rule, topic
from trtllm_check.rules.table import sentences

ROOT = Path(__file__).parents[2]
BUILD = "trtllm-build"
RANGED = [ranged for rule in all_rules() for ranged in (*rule.says, *rule.conditions)]
ENTRIES = list(flag_guides().values())
each_entry = each("entry", ENTRIES)


def known_history(tool: str, flag: str) -> FlagHistory:
    found = flag_history(tool, flag)
    assert found is not None, (tool, flag)
    return found


def spans(tool: str, flag: str) -> list[tuple[str, str, str]]:
    """(releases, what it takes, default) of each span."""
    found = flag_history(tool, flag)
    return [(span.releases, takes(span.argument), default(span.argument)) for span in found.spans] if found else []


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        ("--max_output_len", [("0.8.0 to 0.10.0", "a whole number", "1024"), ("0.11.0", "a whole number", "")]),
        ("--use_custom_all_reduce", [("0.8.0 to 0.11.0", "enable | disable", "enable")]),
        (
            "--use_fused_mlp",
            [("0.8.0 to 0.12.0", "a bare switch", "off"), ("0.13.0 to 1.2.1", "enable | disable", "enable")],
        ),
        ("--enable_xqa", [("0.8.0 to 0.15.0", "enable | disable", "enable")]),
        ("--multi_block_mode", [("0.8.0 to 0.11.0", "enable | disable", "disable")]),
        (
            "--tokens_per_block",
            [
                ("0.8.0 to 0.9.0", "a whole number", "128"),
                ("0.10.0 to 0.18.2", "a whole number", "64"),
                ("0.19.0 to 1.2.1", "a whole number", "32"),
            ],
        ),
        (
            "--max_batch_size",
            [
                ("0.8.0 to 0.10.0", "a whole number", "1"),
                ("0.11.0 to 0.13.0", "a whole number", "256"),
                ("0.14.0 to 1.2.1", "a whole number", "2048"),
            ],
        ),
        ("--auto_parallel", [("0.9.0 to 1.1.0", "a whole number", "1")]),
    ],
)
def test_the_life_of_a_flag_of_the_build(flag: str, expected: list[tuple[str, str, str]]) -> None:
    assert spans(BUILD, flag) == expected


def test_a_life_says_since_when_the_flag_is_gone() -> None:
    assert known_history(BUILD, "--auto_parallel").gone_since == "1.2.0"
    assert known_history(BUILD, "--max_seq_len").gone_since == ""  # the tool ends with it


def test_a_gap_in_the_facts_of_a_tool_ends_a_span(monkeypatch: pytest.MonkeyPatch) -> None:
    unread = ("0.20.0", "0.21.0")
    tools = tuple((name, None if name in unread else tool) for name, tool in history.tool_history("trtllm-serve"))
    monkeypatch.setattr(history, "tool_history", lambda _tool: tools)
    found = known_history("trtllm-serve", "--max_seq_len")
    assert [span.releases for span in found.spans] == ["0.18.2 to 0.19.0", f"1.0.0 to {known_releases()[-1]}"]


def test_a_flag_that_came_back_has_two_spans() -> None:
    assert [releases for releases, _, _ in spans("convert_checkpoint.py", "--fp8_kv_cache")] == [
        "0.8.0",
        "0.12.0 to 1.2.1",
    ]


def test_an_alias_lives_where_its_flag_lives() -> None:
    found = known_history("trtllm-serve", "--tp_size")
    assert found.names == ("--tp_size", "--tensor_parallel_size")
    guide = guide_of(found.tool, found.names)
    assert guide is not None and guide.flag == "--tensor_parallel_size"
    assert "takes a whole number; default 1" in explain("tp_size", "1.2.1")


def test_ranges_join_releases_in_a_row() -> None:
    assert ranges(["0.9.0", "0.8.0", "0.10.0", "1.2.1"]) == "0.8.0 to 0.10.0, 1.2.1"


def test_all_flags_names_the_tools_of_a_flag() -> None:
    assert set(all_flags()["--max_output_len"]) == {BUILD, "run.py"}


def test_a_flag_that_is_gone_names_what_to_write() -> None:
    text = explain("--max_output_len", "0.12.0")
    assert "in 0.12.0  trtllm-build refuses it. Instead: --max_seq_len" in text
    assert "from 0.12.0: gone" in text
    assert "--max_output_len of run.py" in text  # which still has it
    assert "prompt-cut-at-923" not in text and "tokenizer of gpt2" not in text


def test_a_flag_that_is_not_there_yet_names_what_came_before() -> None:
    assert "in 0.9.0  trtllm-build refuses it. Instead: --max_output_len" in explain("max_seq_len", "0.9.0")


def test_a_flag_that_became_a_value_is_told_per_release() -> None:
    assert "in 0.12.0  takes a bare switch; default off" in explain("use_fused_mlp", "0.12.0")
    text = explain("use_fused_mlp", "0.13.0")
    assert "in 0.13.0  takes enable | disable; default enable" in text
    assert "write `--use_fused_mlp enable` from 0.13 on, the bare flag before" in " ".join(text.split())


def test_what_is_left_out_is_told_as_such() -> None:
    assert "refuses it. Instead: leave it out" in explain("use_custom_all_reduce", "0.16.0")
    assert "in 0.16.0  trtllm-build refuses it. Instead: leave it out" in explain("enable_xqa", "0.16.0")


def test_a_flag_that_moved_to_another_tool() -> None:
    text = explain("multi_block_mode", "0.13.0")
    assert "--multi_block_mode of run.py" in text and "takes a number" not in text
    assert "takes yes or no; default True" in text
    assert "Instead: --multi_block_mode of run.py" in text
    assert "multi_block_mode of config.pbtxt" in text  # without dashes it is a template variable, too
    assert "config.pbtxt, a variable" not in explain("--multi_block_mode", "0.13.0")


def test_the_deprecated_name_of_the_paged_cache() -> None:
    assert "instead    --kv_cache_type (`--kv_cache_type paged`" in explain("paged_kv_cache", "0.13.0")
    assert [found.spans[0].first for found in flag_histories("--kv_cache_type")] == ["0.13.0"]


def test_the_default_that_quantizes_nothing() -> None:
    assert [value for _, _, value in spans("quantize.py", "--qformat")] == ["full_prec"] * len(
        spans("quantize.py", "--qformat")
    )
    text = explain("qformat", "0.12.0")
    assert "default full_prec" in text and "quantizes-nothing" in text and "no message says so" in text


def test_what_is_not_certain_is_shown_as_such() -> None:
    text = explain("prompt_lookup_config", "0.20.0")
    assert "Not certain: renamed to --ngram_config between 2025-05 and 1.0" in text.replace("\n             ", " ")
    assert "low confidence" in text
    assert "Instead: --ngram_config" in explain("prompt_lookup_config", "1.2.1")


def test_a_choice_that_is_not_certain_has_a_question_mark() -> None:
    assert "nvfp4? | fp8 | fp8_pc_pt?" in explain("--qformat", "0.17.0")


def test_a_release_without_the_engine_flow_points_to_pytorch() -> None:
    text = explain("tokens_per_block", "1.3.0rc22")
    assert "this release has no trtllm-build" in text and "YAML kv_cache_config.tokens_per_block" in text


def test_a_template_variable_and_its_rules() -> None:
    text = explain("max_queue_size", "0.12.0")
    assert "a variable of tensorrt_llm" in text and "unfilled-variable" in text
    assert "no model has it" in explain("max_queue_size", "0.11.0")


def test_an_option_of_lmi_is_told_image_by_image() -> None:
    text = explain("option.quantize")
    assert re.search(r"0\.33\.0\s+\(TensorRT-LLM 0\.21\.0\) ignored", text)
    assert re.search(r"0\.32\.0\s+\(TensorRT-LLM 0\.12\.0\) read, fp8", text)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            "gpt_model_type",
            "required: without it the model stops with `Cannot find parameter with name: gpt_model_type`",
        ),
        ("gpt_model_path", "filled by  engine_dir (fill_template.py)"),
        ("multiBlockMode", "0.12.0 to 0.14.0: takes true or false; default true"),
        ("option.max_lora_rank", "(vLLM) handed on to the engine as it is"),
        ("OPTION_MAX_ROLLING_BATCH_SIZE", "option.max_rolling_batch_size of serving.properties, by LMI image"),
        ("HF_MODEL_ID", "option.model_id of serving.properties"),
        ("use_inflight_batching", "gone since 0.8.0"),
        ("--use_inflight_batching", "batching_strategy:inflight_fused_batching"),
        ("extra_llm_api_options", f"0.19.0 to {known_releases()[-1]}: a text"),
        ("max_queue_size", "fill_template.py fills in 0, no limit, by itself"),
    ],
)
def test_what_is_no_flag_of_a_tool_is_explained_too(name: str, told: str) -> None:
    assert told in re.sub(r"\n +", " ", explain(name))


def test_a_parameter_that_a_release_does_not_read_is_said_to_be_none() -> None:
    assert "in 0.9.0  the backend does not read it" in re.sub(r" {3,}", "  ", explain("multiBlockMode", "0.9.0"))


def test_images_of_lmi_stand_in_the_order_of_their_versions() -> None:
    images = re.findall(r"^  (0\.\d+\.\d+) ", explain("OPTION_MAX_ROLLING_BATCH_SIZE"), re.MULTILINE)
    assert images == sorted(images) and len(images) >= 5


def test_a_long_explanation_begins_with_a_summary_and_a_short_one_does_not() -> None:
    long = explain("kv_cache_dtype")
    assert long.startswith("In short\n  Precision of the KV cache.\n  --kv_cache_dtype of quantize.py\n")
    assert "rules: fp8-fmha-without-fp8-checkpoint" in long.split("\n\n")[0]
    assert not explain("--calib_tp_size", "0.12.0").startswith("In short")


@pytest.mark.parametrize(
    ("flag", "near"),
    [
        ("option.max_rolling_batch", "option.max_rolling_batch_size"),
        ("--max_ouput_len", "--max_output_len"),
        ("use_fp8_context", "--use_fp8_context_fmha"),
        ("maxqueue", "max_queue_size"),
    ],
)
def test_an_unknown_name_suggests_near_ones(flag: str, near: str) -> None:
    with pytest.raises(UsageError) as failure:
        explain(flag)
    assert near in failure.value.fix and flag in failure.value.what


def test_an_unknown_release_is_refused() -> None:
    with pytest.raises(UsageError, match=r"0\.99\.0"):
        explain("max_seq_len", "0.99.0")


def test_lines_fit_a_terminal() -> None:
    assert [line for line in explain("use_paged_context_fmha").splitlines() if len(line) > 100] == []


@each_entry
def test_a_flag_guide_is_about_a_flag_that_exists_and_has_a_source(entry: FlagGuide) -> None:
    if entry.tool == TEMPLATES:
        models = [release_templates(name).models.values() for name in template_releases()]
        assert any(entry.flag in spec.variables for specs in models for spec in specs)
    else:
        assert flag_history(entry.tool, entry.flag)
    assert entry.source and all(" " in source or "#" in source for source in entry.source)  # no key that is not named
    assert {change.release for change in entry.changed} <= set(known_releases())


@each_entry
def test_a_successor_exists_beside_or_after_the_flag_that_it_replaces(entry: FlagGuide) -> None:
    for successor in entry.instead:
        assert bool(successor.flag) != bool(successor.setting)
        if successor.flag:
            new, old = (
                known_history(successor.tool or entry.tool, successor.flag),
                known_history(entry.tool, entry.flag),
            )
            order = known_releases().index
            assert order(new.spans[-1].last) >= order(old.spans[-1].last)
            assert not old.gone_since or order(new.spans[-1].last) >= order(old.gone_since)


@cache
def printed_flags() -> set[tuple[str, str]]:
    """(tool, flag) of every command that a shipped profile prints on any release."""
    found = set()
    for release in all_releases():
        for name in profile_names():
            profile = load_profile(name, release.name)
            if profile.lane != "tensorrt_llm":
                continue
            for command in road(profile, release).commands:
                if tool := release.tools.get(command.tool):
                    found |= {(command.tool, word) for word in tool_arguments(command) if tool.has(word)}
    return found


def test_every_flag_that_a_recipe_prints_is_explained() -> None:
    printed = printed_flags()
    assert len(printed) > 50
    assert [pair for pair in sorted(printed) if guide_of(pair[0], known_history(*pair).names) is None] == []


def test_rules_have_their_own_ids_and_releases_that_exist() -> None:
    assert len({rule.id for rule in all_rules()}) == len(all_rules()) > 90
    assert {entry.severity for rule in all_rules() for entry in rule.says} == set(get_args(Severity))
    spanned: list[Any] = [*RANGED, *run_modes()]
    named = {name for one in spanned for name in (one.since, one.until)}
    assert named - {""} <= set(known_releases())


def test_what_explain_and_the_page_tell_has_a_source_and_something_to_do() -> None:
    """All but what the checker's code says in its own words."""
    told = [rule.id for rule in all_rules() if not {"arguments", "continuations", "lmi"} & set(rule.checked_by)]
    for name in told:
        assert all(entry.message and entry.fix and entry.source for entry in rule(name).says), name


def test_a_rule_that_nothing_checks_is_about_something() -> None:
    """Else nobody would ever see it."""
    assert [rule.id for rule in all_rules() if not rule.is_checked and not rule.about] == []


@pytest.mark.parametrize(
    ("release", "inside"), [("0.9.0", False), ("0.10.0", True), ("0.10.9", True), ("1.3.0rc22", True), ("1.3.0", False)]
)
def test_a_range_takes_releases_without_facts_too(release: str, inside: bool) -> None:
    assert in_range(release, "0.10.0", "1.3.0rc22") == inside


def test_the_ranges_follow_the_order_of_the_releases() -> None:
    names = known_releases()
    assert all(in_range(later, since=name) for name in names for later in names[names.index(name) :])
    assert not any(in_range(earlier, since=name) for name in names for earlier in names[: names.index(name)])


def test_every_entry_of_a_rule_can_be_reached() -> None:
    for one in all_rules():
        for entry in one.says:
            assert any(one.entry(release, entry.form) is entry for release in known_releases()), one.id


def test_every_topic_has_its_file_and_its_rules() -> None:
    folder = ROOT / "packages" / "trtllm_check" / "rules"
    assert {path.stem for path in folder.glob("*.yml")} == set(TOPICS)
    assert {one.topic for name in TOPICS for one in topic(name)} == set(TOPICS)


def test_flags_of_rules_exist_in_some_release() -> None:
    docker = {"--shm-size", "--ipc", "--ulimit", "--gpus", "--name", "--network", "--publish", "-p", "--volume"}
    routers = {"--static-backends", "--worker-urls"}
    flags = {name for rule in all_rules() for name in rule.about if name.startswith("-")}
    assert [flag for flag in sorted(flags - docker - routers) if not flag_histories(flag)] == []


@pytest.mark.parametrize(
    ("rule_id", "release", "applies"),
    [
        ("gemm-swiglu-needs", "0.10.0", False),
        ("gemm-swiglu-needs", "0.11.0", True),
        ("multiple-profiles-with-opt-num-tokens", "0.8.0", False),
        ("multiple-profiles-with-opt-num-tokens", "0.9.0", True),
        ("fmha-off", "1.2.1", True),
        ("xqa-conditions", "1.3.0rc22", False),  # in range, and none of its flags is there
        ("hf-ptq-defaults-changed", "1.3.0rc22", True),
        ("lmi-image-of-another-release", "0.12.0", True),
    ],
)
def test_a_rule_applies_in_its_releases(rule_id: str, release: str, applies: bool) -> None:
    assert bool(rule(rule_id).entries(load_release(release))) == applies


def test_a_rule_says_what_it_is_about_without_a_command() -> None:
    wrong = rule("fp8-fmha-without-fp8-checkpoint")
    assert "over a 16-bit KV cache" in " ".join(sentences(wrong, wrong.says[0]))
    said = " ".join(text for one in all_rules() for entry in one.says for text in sentences(one, entry))
    assert re.findall(r"(?<!\{)\{\w[^}]*\}", said) == []  # {{ and }} are Helm's
    assert "--use_fp8_context_fmha" in next(sentences(wrong, wrong.says[0]))


def test_the_migration_starts_from_flags_that_exist() -> None:
    steps = migration()
    assert {step.step for step in steps} == {"quantize", "convert", "build", "run", "serve", "lmi"}
    assert [(step.tool, flag) for step in steps for flag in step.flags if not flag_history(step.tool, flag)] == []
    assert [step for step in steps if not step.source or not (step.old or step.flags)] == []


def test_the_migration_ends_at_flags_of_a_release_without_engines() -> None:
    tools = next(release for release in reversed(all_releases()) if not release.builds_engines).tools
    for step in migration():
        tool = next((name for name in ("trtllm-serve", "hf_ptq.py") if step.new.startswith(name)), "")
        new_flags = re.findall(r"--[a-z_]+", step.new) if tool else []
        same = step.flags if "under the same name" in step.new else ()
        assert [flag for flag in (*new_flags, *same) if not tools[tool].has(flag)] == []


def test_the_page_is_the_one_that_the_data_makes() -> None:
    assert (ROOT / "docs" / "releases.md").read_text() == releases_page(), "run: make docs"


def test_every_table_of_the_page_is_whole() -> None:
    for table in re.findall(r"(?:^\|.*\|\n)+", releases_page(), re.MULTILINE):
        columns = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(columns) == 1, table[:200]
