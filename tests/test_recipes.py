"""Every command that the recipes give parses under its release, and says what the profile says."""

import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path

import pytest
import yaml

from playbook.errors import PlaybookError, UsageError
from playbook.profile import Profile, load_profile
from playbook.recipes import STAGES, Command, Paths, commands, docker_argv, on_host, shell, tool_arguments
from playbook.recipes.triton import template_values
from playbook.releases import Release, check_arguments, known_releases, load_release
from playbook.releases.load import DATA_DIR

PROFILES = ("p5", "p5-8b")
MATRIX = list(product(PROFILES, known_releases()))
matrix = pytest.mark.parametrize(("profile_name", "release_name"), MATRIX)


def setting(profile_name: str, release_name: str, **changes: object) -> tuple[Profile, Release]:
    profile = load_profile(profile_name, release_name)
    return Profile(**{**profile.model_dump(), **changes}), load_release(release_name)


def road(profile: Profile, release: Release) -> Iterator[Command]:
    for stage in STAGES:
        yield from commands(profile, release, stage)


def build_arguments(profile: Profile, release: Release) -> list[str]:
    (command,) = commands(profile, release, "build")
    return tool_arguments(command)


@matrix
@pytest.mark.parametrize("qformat", ["fp8", "full_prec"])
@pytest.mark.parametrize("runner", ["docker", "native"])
def test_every_command_parses_under_its_release(
    profile_name: str, release_name: str, qformat: str, runner: str
) -> None:
    kv_cache_dtype = "fp8" if qformat == "fp8" else "auto"
    profile, release = setting(
        profile_name, release_name, qformat=qformat, kv_cache_dtype=kv_cache_dtype, runner=runner
    )
    checked = set()
    for command in road(profile, release):
        if command.tool in release.tools:
            check_arguments(release, command.tool, tool_arguments(command))
            checked.add(command.tool)
    assert checked == set(release.tools)


@matrix
def test_a_mutated_command_is_refused(profile_name: str, release_name: str) -> None:
    """An unknown flag in every command, and a wrong value after every flag that has choices."""
    profile, release = setting(profile_name, release_name)
    wrong_choices = 0
    for command in road(profile, release):
        if command.tool not in release.tools:
            continue
        arguments = tool_arguments(command)
        with pytest.raises(UsageError):
            check_arguments(release, command.tool, [*arguments, "--not_a_flag", "1"])
        for position, word in enumerate(arguments):
            argument = release.tool(command.tool).argument(word)
            if argument is not None and argument.choices:
                mutated = [*arguments[: position + 1], "not-a-choice", *arguments[position + 2 :]]
                with pytest.raises(UsageError, match=command.tool):
                    check_arguments(release, command.tool, mutated)
                wrong_choices += 1
    assert wrong_choices >= 6


@matrix
def test_the_profile_reaches_the_command_line(profile_name: str, release_name: str) -> None:
    profile, release = setting(profile_name, release_name, max_batch_size=33, max_num_tokens=7777, calib_samples=129)
    (quantize,) = commands(profile, release, "quantize")
    parsed = check_arguments(release, "quantize.py", tool_arguments(quantize))
    assert (parsed.tp_size, parsed.pp_size) == (profile.tp, profile.pp)
    assert (parsed.qformat, parsed.kv_cache_dtype, parsed.calib_size) == ("fp8", "fp8", 129)
    built = check_arguments(release, "trtllm-build", build_arguments(profile, release))
    assert (built.max_batch_size, built.max_num_tokens, built.max_seq_len) == (33, 7777, profile.max_seq_len)
    assert (built.use_paged_context_fmha, built.use_fp8_context_fmha) == ("enable", "enable")
    (launch,) = commands(profile, release, "launch")
    assert check_arguments(release, "launch_triton_server.py", tool_arguments(launch)).world_size == profile.world_size


def test_fused_mlp_is_a_switch_or_a_value() -> None:
    old, new = (build_arguments(*setting("p5", name)) for name in ("0.12.0", "1.2.1"))
    assert old[old.index("--use_fused_mlp") + 1].startswith("--")
    assert new[new.index("--use_fused_mlp") + 1] == "enable"


def test_removed_flags_do_not_occur() -> None:
    for name in known_releases():
        arguments = build_arguments(*setting("p5", name))
        assert not {"--use_custom_all_reduce", "--max_output_len", "--enable_xqa"} & set(arguments)


def test_an_older_vocabulary_gets_the_older_flags(tmp_path: Path) -> None:
    """A release that still has the classic flags gets them from the same recipe."""
    facts = yaml.safe_load((DATA_DIR / "0.12.0.yml").read_text(encoding="utf-8"))
    arguments = facts["tools"]["trtllm-build"]["arguments"]
    del arguments["--max_seq_len"]
    arguments["--max_output_len"] = {"type": "int", "default": 1024}
    arguments["--use_custom_all_reduce"] = {"default": "enable", "choices": ["enable", "disable"]}
    arguments["--gpt_attention_plugin"] = {"default": "float16", "choices": ["float16", "bfloat16"]}
    (tmp_path / "0.10.9.yml").write_text(yaml.safe_dump({**facts, "release": "0.10.9"}), encoding="utf-8")
    release = load_release("0.10.9", tmp_path)
    built = check_arguments(release, "trtllm-build", build_arguments(load_profile("p5"), release))
    assert (built.max_input_len, built.max_output_len) == (2048, 2048)
    assert (built.use_custom_all_reduce, built.gpt_attention_plugin) == ("enable", "bfloat16")


def test_a_flag_that_the_road_needs_and_a_release_lacks_is_named(tmp_path: Path) -> None:
    facts = yaml.safe_load((DATA_DIR / "0.12.0.yml").read_text(encoding="utf-8"))
    del facts["tools"]["quantize.py"]["arguments"]["--kv_cache_dtype"]
    (tmp_path / "0.1.0.yml").write_text(yaml.safe_dump({**facts, "release": "0.1.0"}), encoding="utf-8")
    with pytest.raises(UsageError, match="--kv_cache_dtype"):
        commands(load_profile("p5"), load_release("0.1.0", tmp_path), "quantize")


@pytest.mark.parametrize("name", known_releases())
def test_sixteen_bits_take_the_gemm_plugin_and_no_fp8_attention(name: str) -> None:
    profile, release = setting("p5", name, qformat="full_prec", kv_cache_dtype="auto")
    built = check_arguments(release, "trtllm-build", build_arguments(profile, release))
    assert (built.gemm_plugin, built.use_fp8_context_fmha, built.use_paged_context_fmha) == (
        "bfloat16",
        "disable",
        "enable",
    )


@pytest.mark.parametrize("name", known_releases())
def test_an_int8_cache_turns_paged_attention_and_reuse_off(name: str) -> None:
    profile, release = setting("p5", name, qformat="int8_sq", kv_cache_dtype="int8")
    built = check_arguments(release, "trtllm-build", build_arguments(profile, release))
    assert (built.use_paged_context_fmha, built.use_fp8_context_fmha) == ("disable", "disable")
    filled = template_values(profile, release, Paths.default(profile))["tensorrt_llm"]
    assert (filled["enable_kv_cache_reuse"], filled["enable_chunked_context"]) == ("false", "false")


def test_one_gpu_needs_neither_mpirun_nor_reduce_fusion() -> None:
    profile, release = setting("p5-8b", "0.12.0")
    assert not {"--reduce_fusion", "--workers"} & set(build_arguments(profile, release))
    (run,) = commands(profile, release, "run")
    assert run.argv[0] == "python3"
    (run,) = commands(*setting("p5", "0.12.0"), "run")
    assert run.argv[:4] == ("mpirun", "--allow-run-as-root", "-n", "8")


@matrix
def test_all_typed_template_variables_are_filled_and_no_unknown_one(profile_name: str, release_name: str) -> None:
    profile, release = setting(profile_name, release_name)
    fills = [command for command in commands(profile, release, "fill") if command.tool == "fill_template.py"]
    assert len(fills) == 5
    for command in fills:
        parsed = check_arguments(release, "fill_template.py", tool_arguments(command))
        template = release.templates.models[Path(parsed.file_path).parent.name]
        given = dict(pair.split(":") for pair in parsed.substitutions.split(","))
        assert set(template.typed) <= set(given) <= set(template.variables)
        assert all(given.values())


def test_the_model_behind_bls_is_always_named() -> None:
    for name in known_releases():
        profile, release = setting("p5", name)
        filled = template_values(profile, release, Paths.default(profile))["tensorrt_llm_bls"]
        assert filled["tensorrt_llm_model_name"] == "tensorrt_llm"


def test_own_variables_override_and_unknown_ones_are_refused() -> None:
    profile, release = setting("p5", "0.12.0")
    paths = Paths.default(profile)
    own = {"skip_special_tokens": False, "max_queue_size": 7, "decoding_mode": "top_k"}
    filled = template_values(profile, release, paths, own)
    assert filled["postprocessing"]["skip_special_tokens"] == "false"
    assert (filled["tensorrt_llm"]["max_queue_size"], filled["tensorrt_llm"]["decoding_mode"]) == ("7", "top_k")
    with pytest.raises(UsageError, match="logits_datatype") as caught:  # of later releases
        template_values(profile, release, paths, {"logits_datatype": "TYPE_FP32"})
    assert "max_queue_size" in caught.value.fix


def test_a_typed_variable_without_a_value_is_an_error(tmp_path: Path) -> None:
    facts = yaml.safe_load((DATA_DIR / "1.2.1.yml").read_text(encoding="utf-8"))
    facts["templates"]["models"]["ensemble"]["typed"].append("new_typed_variable")
    (tmp_path / "9.0.0.yml").write_text(yaml.safe_dump({**facts, "release": "9.0.0"}), encoding="utf-8")
    with pytest.raises(PlaybookError, match="new_typed_variable"):
        commands(load_profile("p5"), load_release("9.0.0", tmp_path), "fill")


def test_a_path_with_a_colon_is_escaped_or_refused() -> None:
    paths = Paths.under("/data:1,x", "p5")
    profile, old = setting("p5", "0.12.0")
    with pytest.raises(UsageError, match=r"0\.12\.0"):
        commands(profile, old, "fill", paths)
    profile, new = setting("p5", "1.2.1")
    substitutions = commands(profile, new, "fill", paths)[1].argv[-1]
    pairs = [split(pair, ":") for pair in split(substitutions, ",")]
    assert dict(pairs)["tokenizer_dir"] == "/data:1,x/p5/model"


def split(text: str, delimiter: str) -> list[str]:
    """As TensorRT-LLM@2a9abd95 triton_backend/tools/fill_template.py splits: a backslash keeps what follows it."""
    parts, escaped = [""], False
    for character in text:
        if not escaped and character == delimiter:
            parts.append("")
        elif not escaped and character == "\\":
            escaped = True
            continue
        else:
            parts[-1] += character
        escaped = False
    return parts


@matrix
def test_shell_text_is_what_is_executed(profile_name: str, release_name: str) -> None:
    """Bash reads the printed text, line ends included, as exactly the command's words."""
    profile, release = setting(profile_name, release_name)
    paths = Paths.default(profile)
    for command in road(profile, release):
        for shown in (command, on_host(command, paths)):
            text = shell(replace(shown, env={}))
            words = subprocess.run(
                ["bash", "-c", f"printf '%s\\0' {text}"], capture_output=True, text=True, check=True
            ).stdout.split("\0")[:-1]
            assert tuple(words) == shown.argv
            assert tuple(shlex.split(text.replace("\\\n", ""))) == shown.argv


def test_long_commands_have_one_flag_per_line() -> None:
    text = shell(commands(*setting("p5", "0.12.0"), "build")[0])
    assert "\n  --max_seq_len 4096 \\\n" in text
    assert all(line.count("--") <= 1 for line in text.splitlines())


def test_settings_are_shown_in_front() -> None:
    text = shell(commands(*setting("p5", "0.12.0"), "quantize")[0])
    assert text.startswith("HF_HOME=/workspace/.cache/huggingface python3 ")


def test_docker_gets_gpus_limits_memory_and_mounts() -> None:
    profile, release = setting("p5", "0.12.0")
    (command,) = commands(profile, release, "build")
    argv = docker_argv(command, {"/data/workspace": "/workspace", "models": "/models"})
    pairs = list(pairwise(argv))
    for pair in [
        ("--gpus", "all"),
        ("--shm-size", "20g"),
        ("--ulimit", "memlock=-1"),
        ("--ulimit", "stack=67108864"),
        ("--volume", "/data/workspace:/workspace"),
        ("--volume", "./models:/models"),
    ]:
        assert pair in pairs
    assert argv[:3] == ("docker", "run", "--rm")
    assert argv[argv.index(release.image) + 1 :] == command.argv


def test_a_launch_in_the_foreground_outlives_its_script() -> None:
    profile, release = setting("p5", "0.12.0")
    (command,) = commands(profile, release, "launch")
    inside = on_host(command, Paths.default(profile)).argv
    assert inside[inside.index(release.image) + 1] == "bash"
    assert inside[-len(command.argv) :] == command.argv
    natively = on_host(replace(command, where="host"), Paths.default(profile))
    assert natively.argv[:2] == ("bash", "-c")


def test_the_token_is_named_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_verysecret")
    for name in PROFILES:
        profile, release = setting(name, "0.12.0")
        everything = [repr(c) + shell(c) + shell(on_host(c, Paths.default(profile))) for c in road(profile, release)]
        assert not any("hf_verysecret" in text for text in everything)
    (fetch,) = commands(profile, release, "fetch")
    assert ("--env", "HF_TOKEN") in list(pairwise(docker_argv(fetch, {})))


def test_only_what_the_container_lacks_is_cloned() -> None:
    old = [command.tool for command in commands(*setting("p5", "0.12.0"), "install")]
    new = [command.tool for command in commands(*setting("p5", "1.2.1"), "install")]
    assert old == ["docker", "nvidia-smi", "python3", "git", "git"]
    assert new == ["docker", "nvidia-smi", "python3"]
    native = [command.tool for command in commands(*setting("p5", "1.2.1", runner="native"), "install")]
    assert native == ["nvidia-smi", "python3"]


def test_streaming_is_asked_for_in_decoupled_mode_only() -> None:
    assert len(commands(*setting("p5", "0.12.0"), "request")) == 2
    (whole,) = commands(*setting("p5", "0.12.0", decoupled=False), "request")
    assert "generate_stream" not in shell(whole)


def test_every_command_of_the_tools_says_why() -> None:
    for name in known_releases():
        profile, release = setting("p5", name)
        for stage in ("install", "fetch", "quantize", "convert", "build", "run", "launch", "request"):
            assert all(command.why for command in commands(profile, release, stage))


def test_nothing_is_given_that_the_release_would_refuse(tmp_path: Path) -> None:
    """The recipe follows facts that contradict themselves: the parser made from them notices."""
    facts = yaml.safe_load((DATA_DIR / "0.12.0.yml").read_text(encoding="utf-8"))
    facts["tools"]["quantize.py"]["arguments"]["--dtype"]["choices"] = ["float16"]
    (tmp_path / "0.1.1.yml").write_text(yaml.safe_dump({**facts, "release": "0.1.1"}), encoding="utf-8")
    with pytest.raises(UsageError, match=r"quantize\.py") as caught:
        commands(load_profile("p5"), load_release("0.1.1", tmp_path), "quantize")
    assert "invalid choice: 'bfloat16'" in caught.value.why


def test_wrong_stage_and_wrong_lane_are_refused() -> None:
    profile, release = setting("p5", "0.12.0")
    with pytest.raises(UsageError, match="there is no stage 'deploy'") as caught:
        commands(profile, release, "deploy")
    assert "quantize" in caught.value.fix
    with pytest.raises(UsageError, match="local"):
        commands(load_profile("local"), release, "build")
