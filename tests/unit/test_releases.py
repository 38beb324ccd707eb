"""Release facts load strictly, and the parsers made from them refuse what the release's tools refuse."""

import builtins
import io
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from playbook.profile import load_profile
from release_data import facts_of, write_release
from serving_base.errors import PlaybookError, UsageError
from trtllm_check.recipes import commands
from trtllm_check.releases import build_parser, check_arguments, known_releases, load, load_release

PYTORCH = "1.3.0rc22"
SHIPPED = (
    *("0.8.0", "0.9.0", "0.10.0", "0.11.0", "0.12.0", "0.13.0", "0.14.0", "0.15.0", "0.16.0", "0.17.0"),
    *("0.18.2", "0.19.0", "0.20.0", "0.21.0", "1.0.0", "1.1.0", "1.2.0", "1.2.1", PYTORCH),
)
ALL = known_releases()
ENGINES = [name for name in ALL if load_release(name).builds_engines]
ENGINE_TOOLS = (
    *("quantize.py", "convert_checkpoint.py", "trtllm-build", "run.py", "summarize.py", "mmlu.py"),
    *("fill_template.py", "launch_triton_server.py"),
)
# What a recipe for the accuracy check needs of examples/summarize.py, whatever the release calls its data type.
SUMMARIZE = (
    *("--engine_dir", "--hf_model_dir", "--tokenizer_dir", "--test_trt_llm", "--test_hf", "--data_type", "--max_ite"),
    *("--check_accuracy", "--tensorrt_llm_rouge1_threshold", "--max_input_length", "--output_len"),
    *("--use_py_session", "--eval_task", "--batch_size"),
)
LOAD_SECONDS = 0.06
BUILD = ["--checkpoint_dir", "checkpoint", "--output_dir", "engine"]
# The build line of 2024's articles; its flags parse on 0.8 to 0.11 only.
CLASSIC = [*BUILD, "--use_custom_all_reduce", "enable", "--enable_xqa", "enable", "--max_output_len", "512"]


def sources(facts: Any) -> Iterator[Any]:
    """Whatever is called ``source``, at any depth; the release's own is a table of commits."""
    entries = facts.values() if isinstance(facts, dict) else facts if isinstance(facts, list) else ()
    if isinstance(facts, dict) and not isinstance(facts.get("source", {}), dict):
        yield facts["source"]
    for entry in entries:
        yield from sources(entry)


def test_all_releases_are_known_oldest_first() -> None:
    assert tuple(name for name in ALL if name in SHIPPED) == SHIPPED
    assert set(SHIPPED) - set(ENGINES) == {PYTORCH}


def test_an_unknown_release_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"0\.99\.0") as caught:
        load_release("0.99.0")
    assert caught.value.exit_code == 2
    assert ", ".join(ALL) in caught.value.fix


@pytest.mark.parametrize("name", ALL)
def test_every_fact_of_a_release_has_a_source(name: str) -> None:
    found = list(sources(facts_of(name)))
    assert all(isinstance(text, str) and len(text) > 8 for text in found)
    release = load_release(name)
    facts = len(release.tools) + len(release.notes) + len(type(release.behaviour).model_fields)
    assert len(found) >= facts + len(release.models) + len(release.checkouts) + 3  # containers, native, download
    assert release.native is not None
    assert len(release.source.commit) >= 7


@pytest.mark.parametrize("name", ENGINES)
def test_each_release_describes_the_whole_flow(name: str) -> None:
    release = load_release(name)
    assert release.builds_engines
    assert release.templates is not None
    for tool in ENGINE_TOOLS:
        assert release.tool(tool).arguments
    assert release.tool("trtllm-build").certain("--checkpoint_dir")
    assert release.tool("quantize.py").certain("--qformat", "fp8")
    assert release.tool("quantize.py").certain("--kv_cache_dtype", "fp8")


def test_the_pytorch_line_has_no_engine_tools() -> None:
    release = load_release(PYTORCH)
    assert not release.builds_engines
    assert release.templates is None
    assert release.llmapi is not None
    assert set(release.tools) == {"hf_ptq.py", "launch_triton_server.py", "trtllm-serve", "trtllm-eval"}
    assert release.image != release.server_image
    served = check_arguments(release, "trtllm-serve", ["/models/llama", "--tp_size", "8", "--no-telemetry"])
    assert (served.model, served.tensor_parallel_size, served.telemetry) == ("/models/llama", 8, False)


@pytest.mark.parametrize("name", ENGINES)
def test_summarize_surely_has_what_the_accuracy_check_needs(name: str) -> None:
    tool = load_release(name).tool("summarize.py")
    assert [flag for flag in SUMMARIZE if not tool.certain(flag)] == []
    assert tool.has("--dataset_dir") != tool.has("--dataset_path")  # renamed in 0.10


@pytest.mark.parametrize("name", ALL)
def test_each_tool_and_template_can_be_found(name: str) -> None:
    release = load_release(name)
    parts: list[Any] = [*release.tools.values(), release.templates, release.llmapi]
    for part in filter(None, parts):
        assert bool(part.repo) == bool(part.repo_path)  # a script of a clone, or a program on PATH
        assert not part.repo or part.repo in release.checkouts
        assert not part.container_path or part.container_path.startswith("/app/")
    for requirements in release.native.requirements if release.native else ():
        assert requirements.split("/")[0] in {checkout.folder for checkout in release.checkouts.values()}


@pytest.mark.parametrize("name", ENGINES)
def test_a_container_has_all_scripts_or_none(name: str) -> None:
    release = load_release(name)
    found = {bool(tool.container_path) for tool in release.tools.values() if tool.repo}
    assert len(found) == 1
    assert release.templates is not None
    assert bool(release.templates.container_path) in found


def test_llama_3_1_needs_the_release_that_knows_its_rope() -> None:
    assert tuple(name for name in ALL if not load_release(name).models["llama-3.1"].supported) == SHIPPED[:4]


def test_defaults_keep_their_type() -> None:
    build = load_release("0.12.0").tool("trtllm-build")
    assert build.arguments["--max_batch_size"].default == 256
    assert build.arguments["--gemm_plugin"].choices[-1] == "disable"
    assert load_release("1.2.1").tool("trtllm-build").arguments["--max_batch_size"].default == 2048


def test_an_unknown_tool_is_refused() -> None:
    with pytest.raises(UsageError, match="trtllm-bench"):
        load_release("0.12.0").tool("trtllm-bench")


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


def test_what_may_be_missing_parses_but_is_not_certain() -> None:
    release = load_release("1.0.0")
    tool = release.tool("summarize.py")
    assert tool.has("--use_gpu_direct_storage")
    assert not tool.certain("--use_gpu_direct_storage")
    assert check_arguments(release, "summarize.py", ["--use_gpu_direct_storage"]).use_gpu_direct_storage
    assert not tool.certain("--eval_task", "translate")
    assert not tool.certain("--warp_speed")


def test_an_unconfirmed_choice_parses_but_is_not_certain(tmp_path: Path) -> None:
    facts = facts_of("1.2.1")
    facts["tools"]["quantize.py"]["arguments"]["--qformat"] |= {"unconfirmed": ["fp8"]}
    write_release(tmp_path, "9.0.0", facts)
    tool = load_release("9.0.0", tmp_path).tool("quantize.py")
    assert tool.accepts("--qformat", "fp8")
    assert not tool.certain("--qformat", "fp8")
    assert tool.certain("--qformat", "int8_sq")


@pytest.mark.parametrize(
    ("name", "profile", "expected"),
    [
        ("0.16.0", "p5", {"NCCL_P2P_LEVEL": "SYS"}),  # AMD hosts with several GPUs
        ("0.16.0", "p5-8b", {}),
        ("0.16.0", "p5en", {}),  # Intel
        ("0.17.0", "p5", {}),
        ("1.0.0", "p5-tp4pp2", {"TRTLLM_LLAMA_EAGER_FUSION_DISABLED": "1"}),
        ("1.0.0", "p5", {}),
    ],
)
def test_the_environment_that_a_release_needs_depends_on_the_profile(
    name: str, profile: str, expected: dict[str, str]
) -> None:
    assert load_release(name).environment_of(load_profile(profile)) == expected


def test_the_environment_of_16_bit_weights_is_left_alone() -> None:
    stages = SimpleNamespace(pp=2, qformat="full_prec")
    assert load_release("1.0.0").environment_of(stages) == {}


@pytest.mark.parametrize("name", ["0.8.0", "0.11.0"])
def test_the_classic_build_line_parses_where_it_was_written(name: str) -> None:
    assert check_arguments(load_release(name), "trtllm-build", CLASSIC).max_output_len == 512


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
    arguments = ["--max_output_len", "8", "--no-kv_cache_enable_block_reuse", "--stop_words", "a", "b"]
    parsed = check_arguments(load_release("1.2.1"), "run.py", [*arguments, "--multi_block_mode", "no"])
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


@pytest.mark.parametrize("name", ALL)
def test_a_parser_can_be_made_of_every_tool(name: str) -> None:
    release = load_release(name)
    for tool in release.tools:
        build_parser(release, tool)


def test_the_road_follows_the_facts_of_a_new_release(tmp_path: Path) -> None:
    facts = facts_of("1.2.1")
    facts["tools"]["trtllm-build"]["arguments"]["--warp_speed"] = {"type": "int", "default": 9, "choices": [8, 9]}
    facts["tools"]["run.py"]["container_path"] = "/app/samples/run.py"
    facts["containers"]["triton"] = ["nvcr.io/nvidia/tritonserver:99.01-trtllm-python-py3"]
    del facts["tools"]["trtllm-build"]["arguments"]["--reduce_fusion"]
    write_release(tmp_path, "9.0.0", facts)
    assert known_releases(tmp_path) == ("9.0.0",)
    release = load_release("9.0.0", tmp_path)
    assert check_arguments(release, "trtllm-build", [*BUILD, "--warp_speed", "8"]).warp_speed == 8
    with pytest.raises(UsageError):
        check_arguments(release, "trtllm-build", [*BUILD, "--warp_speed", "7"])

    profile = load_profile("p5")
    for stage in ("quantize", "convert", "build", "run", "summarize"):
        made = commands(profile, release, stage)
        assert made
        assert {command.where for command in made} == {"nvcr.io/nvidia/tritonserver:99.01-trtllm-python-py3"}
    assert "/app/samples/run.py" in commands(profile, release, "run")[0].argv
    assert "--reduce_fusion" in commands(profile, load_release("1.2.1"), "build")[0].argv
    assert "--reduce_fusion" not in commands(profile, release, "build")[0].argv


@pytest.mark.parametrize(
    ("mistake", "named"),
    [
        ({"containres": {}}, "containres"),
        ({"date": "soon"}, "date"),
        ({"source": {}}, "commit"),
        ({"tools": {"trtllm-build": {"confidence": "sure", "source": "s", "arguments": {}}}}, "confidence"),
        ({"tools": {"run.py": {"confidence": "high", "source": "s", "launcher": "{commit"}}}, "arguments"),
    ],
)
def test_wrong_facts_are_refused(tmp_path: Path, mistake: dict[str, object], named: str) -> None:
    write_release(tmp_path, "9.0.0", facts_of("1.2.1") | mistake)
    with pytest.raises(PlaybookError, match=named):
        dict(load_release("9.0.0", tmp_path).tools)  # each tool is read when it is asked for


def test_a_file_that_is_no_yaml_is_refused(tmp_path: Path) -> None:
    write_release(tmp_path, "9.0.0", facts_of("1.2.1"))
    (tmp_path / "tools" / "run.py.yml").write_text("arguments: {", encoding="utf-8")
    with pytest.raises(PlaybookError, match=r"run\.py\.yml"):
        dict(load_release("9.0.0", tmp_path).tools)


def forget() -> None:
    """As in a new process: nothing is read yet."""
    for cached in (load.load_release, load.load_tool, load.known_releases, load.view, load._listed, load._content):
        cached.cache_clear()


def test_asking_for_one_tool_reads_its_file_only(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def recording(file: Any, *arguments: Any, **options: Any) -> Any:
        read.append(str(file))
        return real_open(file, *arguments, **options)

    real_open = io.open
    monkeypatch.setattr(builtins, "open", recording)
    monkeypatch.setattr(io, "open", recording)
    forget()
    assert [load.load_tool("run.py", name) for name in ALL]
    assert [Path(name).name for name in read] == ["releases.yml", "run.py.yml"]


def test_a_release_loads_in_no_time() -> None:
    seconds = []
    for _ in range(5):
        forget()
        start = time.process_time()
        load_release("1.2.1")
        seconds.append(time.process_time() - start)
    assert min(seconds) < LOAD_SECONDS


def test_loading_facts_imports_nothing_heavy() -> None:
    code = (
        "import sys; from trtllm_check.releases import load_release; load_release('0.12.0'); "
        "sys.exit(bool({'torch', 'transformers', 'httpx', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
