"""What each release's flows offer, the LLM API's options over all releases, and the three doors."""

from pathlib import Path

import pytest

from playbook.profile import load_profile
from serving_base.errors import NotInRelease, NotYaml, PlaybookError, UsageError
from trtllm_check.flows.doors import DOORS, differences, field_names, llm_api_file, metric_names, open_door
from trtllm_check.flows.lora import lora_names, lora_sources, lora_table
from trtllm_check.flows.offers import flow_offer, flow_table, last_engine_release
from trtllm_check.flows.options import (
    FILE,
    KINDS,
    check_options,
    effective,
    have,
    llm_options,
    option_counts,
    option_releases,
    options_gone,
)
from trtllm_check.recipes import lmi
from trtllm_check.releases import build_parser, known_releases, load_release
from trtllm_check.releases.lmi import lmi_facts

RELEASES = option_releases()
READ_IN_FULL = {"0.19.0": 52, "0.20.0": 51, "0.21.0": 54, "1.0.0": 60, "1.1.0": 67}
"""Release -> options that its own reference names, counted there."""
P5 = load_profile("p5-8b")
CHECKPOINT = "/workspace/checkpoint"


def test_the_options_are_known_for_every_release_from_019_on() -> None:
    assert known_releases()[known_releases().index("0.19.0") :] == RELEASES
    for row in option_counts():
        if row["release"] in READ_IN_FULL:
            assert row["read there"] == READ_IN_FULL[row["release"]]
        assert row["source"] and row["options"] >= row["read there"]


@pytest.mark.parametrize("release", RELEASES)
def test_every_option_has_a_type_and_a_default_of_it(release: str) -> None:
    known = llm_options(release)
    for options in (known.options, *(nested.options for nested in known.nested.values())):
        for name, option in options.items():
            assert option.type, name
            assert option.default is None or isinstance(option.default, KINDS.get(option.type, (str, bool))), name
            assert option.status in ("", "stable", "beta", "prototype", "deprecated"), name


@pytest.mark.parametrize("release", RELEASES)
def test_what_was_not_read_in_a_release_is_not_certain(release: str) -> None:
    known = llm_options(release)
    assert known.certain("max_seq_len") == (known.read.confidence != "low")
    assert not known.certain("no_such_option") and not known.certain("dtype", "kv_cache_config")


def test_every_new_name_is_an_option_of_some_release() -> None:
    for old, new in llm_options("1.1.0").renamed.items():
        assert have(new.to), old


def test_a_release_before_them_has_none() -> None:
    with pytest.raises(NotInRelease, match="not known here"):
        llm_options("0.12.0")
    with pytest.raises(UsageError, match="no facts on"):
        llm_options("7.0")


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("profile", ["p5", "p5-8b", "p5-tp4pp2"])
def test_the_recipe_of_each_release_is_a_file_that_it_takes(release: str, profile: str) -> None:
    deployment = load_profile(profile)
    made = open_door("trtllm-serve", deployment, CHECKPOINT, release)
    assert check_options(made.text, release) == ()
    said = effective(made.text, release)
    assert said["tensor_parallel_size"] == deployment.tp and said["pipeline_parallel_size"] == deployment.pp
    assert said["max_seq_len"] == deployment.max_seq_len and said["enable_chunked_prefill"] is True
    assert said["kv_cache_config"]["free_gpu_memory_fraction"] == deployment.kv_cache_free_gpu_mem_fraction
    assert made.argv[:2] == ("trtllm-serve", CHECKPOINT) and "EOF" in made.shell
    held = load_release(release)
    if "trtllm-serve" in held.tools:
        build_parser(held, "trtllm-serve").parse_args(list(made.argv[1:]))


@pytest.mark.parametrize("release", RELEASES)
def test_only_releases_with_the_option_get_the_format_of_the_cache(release: str) -> None:
    known = llm_options(release).nested["kv_cache_config"].options
    assert ("dtype: fp8" in llm_api_file(P5, release)) == ("dtype" in known)


def test_a_cache_in_int8_has_no_file() -> None:
    with pytest.raises(NotInRelease, match="no INT8 KV cache"):
        llm_api_file(P5.model_copy(update={"kv_cache_dtype": "int8"}), "1.1.0")


@pytest.mark.parametrize(
    ("text", "release", "option", "nearest", "has"),
    [
        ("max_bach_size: 3", "1.0.0", "max_bach_size", "max_batch_size", ()),
        ("use_cuda_graph: true", "1.0.0", "use_cuda_graph", "cuda_graph_config", ("0.21.0",)),
        ("autotuner_enabled: true", "1.1.0", "autotuner_enabled", "enable_autotuner", ("0.21.0",)),
        ("auto_parallel: true", "1.1.0", "auto_parallel", "", ("0.19.0",)),
        ("enable_autotuner: true", "0.21.0", "enable_autotuner", "autotuner_enabled", RELEASES[3:]),
        ("tp_size: 2", "1.2.1", "tp_size", "tensor_parallel_size", ()),
        ("free_gpu_memory_fraction: 0.9", "1.1.0", "free_gpu_memory_fraction", "kv_cache_config", ()),
        (
            "kv_cache_config: {free_gpu_mem_fraction: 0.9}",
            "1.1.0",
            "kv_cache_config.free_gpu_mem_fraction",
            "kv_cache_config.free_gpu_memory_fraction",
            (),
        ),
        ("kv_cache_config: {dtype: fp8}", "0.20.0", "kv_cache_config.dtype", "", RELEASES[3:]),
    ],
)
def test_an_unknown_option_is_refused_by_name(
    text: str, release: str, option: str, nearest: str, has: tuple[str, ...]
) -> None:
    (found,) = check_options(text, release)
    assert (found.option, found.nearest, found.has) == (option, nearest, has)
    assert option in str(found) and found.certain == ("." not in option)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("max_batch_size: '4'", "takes int, not '4'"),
        ("max_batch_size: true", "takes int, not True"),
        ("enable_chunked_prefill: 1", "takes bool, not 1"),
        ("kv_cache_config: {free_gpu_memory_fraction: much}", "takes float, not 'much'"),
    ],
)
def test_a_value_of_another_type_is_refused(text: str, says: str) -> None:
    (found,) = check_options(text, "1.1.0")
    assert found.message == says


def test_a_release_that_was_not_read_says_so() -> None:
    (found,) = check_options("max_bach_size: 3", "1.3.0rc22")
    assert not found.certain and "look before you trust" in str(found)


def test_nothing_is_wrong_with_defaults_and_nothing() -> None:
    assert check_options("", "1.1.0") == () == check_options("max_seq_len: null\ncuda_graph_config: {}\n", "1.1.0")


@pytest.mark.parametrize("text", ["- a list", "one word", "a: [1", "a: 1\na: : 2"])
def test_what_is_no_mapping_is_refused(text: str) -> None:
    with pytest.raises(NotYaml):
        check_options(text, "1.1.0")


def test_what_left_and_what_it_became() -> None:
    gone = options_gone("0.21.0", "1.0.0")
    assert gone["calib_config"] is None
    renamed = gone["kv_cache_dtype"]
    assert renamed is not None and renamed.how == "kv_cache_config.dtype"
    assert not set(gone) & set(llm_options("1.0.0").options)


def test_the_flows_of_every_release() -> None:
    table = {row["release"]: row for row in flow_table()}
    assert tuple(table) == known_releases()
    for name, row in table.items():
        release = load_release(name)
        assert (row["engines"] == "removed") == (not release.builds_engines)
        if "trtllm-serve" in release.tools:
            assert row["trtllm-serve"] == "yes"
    assert last_engine_release() == "1.2.1"
    assert table["0.10.0"]["LLM API runs on"] == "-" and table["0.16.0"]["PyTorch backend"] == "-"
    assert flow_offer("1.0.0").pytorch == flow_offer("1.2.1").pytorch != flow_offer("0.17.0").pytorch


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("profile", ["p5", "p5-8b"])
def test_every_field_reaches_every_door(door: str, profile: str) -> None:
    made = open_door(door, load_profile(profile), CHECKPOINT, "1.1.0")
    for row in field_names():
        assert row[door].split(".")[-1] in f"{made.text} {' '.join(made.argv)}", row
    assert made.source and made.shell
    if made.file_name == "serving.properties":
        assert lmi.check_properties(made.text, lmi.vllm_image().tag) == []


def test_there_are_three_doors() -> None:
    with pytest.raises(UsageError, match="no door 'tgi'"):
        open_door("tgi", P5, CHECKPOINT, "1.1.0")
    for row in differences():
        assert set(row) == {"about", *DOORS} and all(row.values())
    assert len({row["vllm"] for row in metric_names()}) == len(metric_names())


def test_the_flags_of_vllm_are_its_engine_arguments() -> None:
    passed_on = lmi_facts().family(lmi.vllm_image()).passed_on
    names = passed_on.names if passed_on else frozenset()
    for row in field_names():
        assert row["vllm"].removeprefix("--").replace("-", "_") in names


def test_a_file_of_options_that_is_not_complete_is_told_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "options.yml"
    broken.write_text(FILE.read_text().replace("holds: LLM on PyTorch", "holds: [1]"))
    monkeypatch.setattr("trtllm_check.flows.options.FILE", broken)
    llm_options.cache_clear()
    option_releases.cache_clear()
    try:
        with pytest.raises(PlaybookError, match="not valid"):
            llm_options("1.1.0")
    finally:
        llm_options.cache_clear()
        option_releases.cache_clear()


def test_every_name_of_the_adapters_is_in_the_releases_own_data() -> None:
    assert all(lora_names().values()) and len(lora_names()) == 11


def test_a_name_that_no_release_has_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {"looked_up": {"build": ["--lora_plugins"], "llm_api": ["lora"], "inputs": ["lora"], "vllm": ["lora"]}}
    monkeypatch.setattr("trtllm_check.flows.lora._facts", lambda: wrong)
    assert not any(lora_names().values())


def test_each_door_to_adapters_says_where_it_was_read() -> None:
    doors = [row["door"] for row in lora_table()]
    assert list(lora_sources()) == doors and all(lora_sources().values())
    assert all(all(row.values()) for row in lora_table())
