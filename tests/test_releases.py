"""Release facts load strictly, and the parsers made from them refuse what the release's tools refuse."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from playbook.errors import PlaybookError, UsageError
from playbook.releases import build_parser, check_arguments, known_releases, load_release
from playbook.releases.load import DATA_DIR

BUILD = ["--checkpoint_dir", "checkpoint", "--output_dir", "engine"]
# The build line of 2024's articles; its flags parse on 0.8 to 0.11 only.
CLASSIC = [*BUILD, "--use_custom_all_reduce", "enable", "--enable_xqa", "enable", "--max_output_len", "512"]


def test_both_releases_are_known_oldest_first() -> None:
    assert known_releases() == ["0.12.0", "1.2.1"]


def test_an_unknown_release_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"0\.99\.0") as caught:
        load_release("0.99.0")
    assert caught.value.exit_code == 2
    assert "0.12.0, 1.2.1" in caught.value.fix


@pytest.mark.parametrize("name", ["0.12.0", "1.2.1"])
def test_every_fact_of_a_release_has_a_source(name: str) -> None:
    release = load_release(name)
    sources = [tool.source for tool in release.tools.values()]
    sources += [note.source for note in release.notes]
    sources += [fact["source"] for fact in release.behaviour.model_dump().values()]
    sources += [support.source for support in release.models.values()]
    sources += [release.containers.source, release.templates.source, release.download.source]
    assert all(sources)
    assert len(sources) > 15


@pytest.mark.parametrize("name", ["0.12.0", "1.2.1"])
@pytest.mark.parametrize(
    "tool",
    ["quantize.py", "convert_checkpoint.py", "trtllm-build", "run.py", "fill_template.py", "launch_triton_server.py"],
)
def test_each_release_describes_the_whole_flow(name: str, tool: str) -> None:
    assert load_release(name).tool(tool).arguments


def test_an_unknown_tool_is_refused() -> None:
    with pytest.raises(UsageError, match="trtllm-bench"):
        load_release("0.12.0").tool("trtllm-bench")


def test_defaults_keep_their_type() -> None:
    build = load_release("0.12.0").tool("trtllm-build")
    assert build.arguments["--max_batch_size"].default == 256
    assert build.arguments["--gemm_plugin"].choices[-1] == "disable"
    assert load_release("1.2.1").tool("trtllm-build").arguments["--max_batch_size"].default == 2048


def test_vocabularies_differ_where_the_releases_differ() -> None:
    old, new = (load_release(name).tool("trtllm-build") for name in ("0.12.0", "1.2.1"))
    assert old.arguments["--use_fused_mlp"].is_switch
    assert not new.arguments["--use_fused_mlp"].is_switch
    assert old.has("--enable_xqa")
    assert not new.has("--enable_xqa")
    assert new.accepts("--gemm_plugin", "nvfp4")
    assert not old.accepts("--gemm_plugin", "nvfp4")
    for removed in ("--use_custom_all_reduce", "--max_output_len"):
        assert not old.has(removed)
    assert old.has("--max_multimodal_len")  # an alias


def test_the_classic_build_line_is_refused_by_0_12_0() -> None:
    with pytest.raises(UsageError) as caught:
        check_arguments(load_release("0.12.0"), "trtllm-build", CLASSIC)
    assert "--use_custom_all_reduce" in caught.value.why
    assert "--max_output_len" in caught.value.why
    assert "--enable_xqa" not in caught.value.why  # 0.12.0 still has it


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--max_batch_sise", "8"], "unrecognized arguments: --max_batch_sise"),
        (["--max_batch", "8"], "unrecognized arguments: --max_batch"),
        (["--max_batch_size", "eight"], "invalid int value: 'eight'"),
        (["--max_batch_size"], "expected one argument"),
        (["--gemm_plugin", "fp4"], "invalid choice: 'fp4'"),
        (["--use_fused_mlp", "enable"], "unrecognized arguments: enable"),
        (["--use_paged_context_fmha"], "expected one argument"),
    ],
)
def test_the_parser_is_strict(arguments: list[str], reason: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_arguments(load_release("0.12.0"), "trtllm-build", [*BUILD, *arguments])
    assert reason in caught.value.why


def test_the_parser_reads_values_as_the_tool_does() -> None:
    parsed = check_arguments(
        load_release("1.2.1"),
        "run.py",
        [
            "--max_output_len",
            "8",
            "--no-kv_cache_enable_block_reuse",
            "--stop_words",
            "a",
            "b",
            "--multi_block_mode",
            "no",
        ],
    )
    assert parsed.max_output_len == 8
    assert parsed.kv_cache_enable_block_reuse is False
    assert parsed.stop_words == [["a", "b"]]
    assert parsed.multi_block_mode is False


def test_a_required_argument_is_required() -> None:
    with pytest.raises(UsageError, match=r"run\.py") as caught:
        check_arguments(load_release("0.12.0"), "run.py", ["--engine_dir", "engine"])
    assert "--max_output_len" in caught.value.why


def test_abbreviations_parse_only_when_asked_for() -> None:
    parser = build_parser(load_release("0.12.0"), "trtllm-build", abbreviations=True)
    assert parser.parse_args(["--max_batch", "8"]).max_batch_size == 8


def test_a_new_release_is_a_new_file(tmp_path: Path) -> None:
    facts = yaml.safe_load((DATA_DIR / "1.2.1.yml").read_text(encoding="utf-8"))
    facts["release"] = "9.0.0"
    facts["tools"]["trtllm-build"]["arguments"]["--warp_speed"] = {"type": "int", "default": 9, "choices": [8, 9]}
    (tmp_path / "9.0.0.yml").write_text(yaml.safe_dump(facts), encoding="utf-8")
    release = load_release("9.0.0", tmp_path)
    assert check_arguments(release, "trtllm-build", [*BUILD, "--warp_speed", "8"]).warp_speed == 8
    with pytest.raises(UsageError):
        check_arguments(release, "trtllm-build", [*BUILD, "--warp_speed", "7"])


@pytest.mark.parametrize(
    ("mistake", "named"),
    [
        ({"containres": {}}, "containres"),
        ({"date": "soon"}, "date"),
        (
            {"tools": {"trtllm-build": {"path": "x", "confidence": "sure", "source": "s", "arguments": {}}}},
            "confidence",
        ),
        ({"release": "9.0.1"}, "9.0.1"),
    ],
)
def test_a_wrong_release_file_is_refused(tmp_path: Path, mistake: dict[str, object], named: str) -> None:
    facts = yaml.safe_load((DATA_DIR / "1.2.1.yml").read_text(encoding="utf-8")) | {"release": "9.0.0"} | mistake
    (tmp_path / "9.0.0.yml").write_text(yaml.safe_dump(facts), encoding="utf-8")
    with pytest.raises(PlaybookError, match=named):
        load_release("9.0.0", tmp_path)


def test_loading_facts_imports_nothing_heavy() -> None:
    code = (
        "import sys; from playbook.releases import load_release; load_release('0.12.0'); "
        "sys.exit(bool({'torch', 'transformers', 'httpx', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
