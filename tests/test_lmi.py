"""serving.properties: ours passes every image's rules, the article's meets its known fate, and each rule fires."""

import gzip
import hashlib
import subprocess
import tarfile
from itertools import product
from pathlib import Path

import pytest

from playbook.errors import UsageError
from playbook.profile import Profile, load_profile, profile_names
from playbook.recipes import Paths, commands, lmi, shell
from playbook.releases import load_release
from playbook.releases.lmi import Key, lmi_facts
from playbook.serving_properties import merge_settings

IMAGES = [image.tag for image in lmi.lmi_images()]
TOOLKIT = ["0.32.0-tensorrtllm0.12.0-cu125", "0.30.0-tensorrtllm0.12.0-cu125"]
LLMAPI = "0.33.0-tensorrtllm0.21.0-cu128"
VLLM = "0.36.0-lmi27.0.0-cu130"
RULES = [(image, key) for image in IMAGES for key in lmi_facts().family(lmi.lmi_image(image)).keys]
WRONG = {"count": "many", "fraction": "2.5", "boolean": "yes", "": "no-such-value"}


def severities(line: str, image: str) -> list[str]:
    return [finding.severity for finding in lmi.check_properties(line + "\n", image)]


@pytest.mark.parametrize(("profile", "image", "compiled"), list(product(profile_names(), IMAGES, (True, False))))
def test_our_file_passes_the_image_s_own_rules(profile: str, image: str, compiled: bool) -> None:
    text = lmi.serving_properties(load_profile(profile), image, model_id="s3://bucket/engine/", compiled=compiled)
    assert lmi.check_properties(text, image) == []
    settings = lmi.parse_properties(text)
    assert settings["option.model_id"] == "s3://bucket/engine/"
    assert settings["option.tensor_parallel_degree"] == str(load_profile(profile).tp)


@pytest.mark.parametrize(
    ("image", "key", "value"),
    [
        (TOOLKIT[0], "option.quantize", "fp8"),
        (TOOLKIT[0], "option.use_fp8_context_fmha", "true"),
        (LLMAPI, "option.quant_algo", "fp8"),
        (LLMAPI, "option.kv_cache_quant_algo", "fp8"),
        (LLMAPI, "option.use_fp8_context_fmha", "enable"),
        (VLLM, "option.quantize", "fp8"),
        (VLLM, "option.kv_cache_dtype", "fp8"),
    ],
)
def test_a_checkpoint_is_quantized_to_what_the_profile_says(image: str, key: str, value: str) -> None:
    p5 = load_profile("p5")
    assert lmi.parse_properties(lmi.serving_properties(p5, image, model_id="x", compiled=False))[key] == value
    plain = Profile(**{**p5.model_dump(), "tp": 8, "qformat": "full_prec", "kv_cache_dtype": "auto"})
    assert key not in lmi.parse_properties(lmi.serving_properties(plain, image, model_id="x", compiled=False))


def test_an_engine_is_not_quantized_again() -> None:
    text = lmi.serving_properties(load_profile("p5"), TOOLKIT[0], model_id="x", compiled=True)
    assert "quantize" not in text and "fmha" not in text


def test_a_format_that_an_image_cannot_make_is_refused() -> None:
    profile = Profile(**{**load_profile("p5").model_dump(), "qformat": "int8_sq", "kv_cache_dtype": "int8"})
    with pytest.raises(UsageError, match="makes no int8_sq model"):
        lmi.serving_properties(profile, VLLM, model_id="x", compiled=False)


@pytest.mark.parametrize(
    ("line", "image", "severity"),
    [
        ("engine=MPI", TOOLKIT[0], None),
        ("engine=MPI", LLMAPI, "error"),
        ("engine=MPI", VLLM, "error"),
        ("engine=Python", LLMAPI, None),
        ("option.use_fp8_context_fmha=true", TOOLKIT[0], None),
        ("option.use_fp8_context_fmha=true", LLMAPI, "error"),
        ("option.use_fp8_context_fmha=enable", LLMAPI, None),
        ("option.use_fp8_context_fmha=true", VLLM, "warning"),
        ("option.use_paged_context_fmha=true", TOOLKIT[0], "warning"),
        ("option.use_paged_context_fmha=true", LLMAPI, "error"),
        ("option.use_paged_context_fmha=disable", LLMAPI, None),
        ("option.quantize=fp8", TOOLKIT[0], None),
        ("option.quantize=fp8", LLMAPI, "warning"),
        ("option.quantize=fp8", VLLM, None),
        ("option.quantize=fp4", TOOLKIT[0], "error"),
        ("option.quant_algo=FP8", LLMAPI, None),
        ("option.quant_algo=fp7", LLMAPI, "error"),
        ("option.rolling_batch=trtllm", TOOLKIT[0], None),
        ("option.rolling_batch=auto", TOOLKIT[0], None),
        ("option.rolling_batch=disable", TOOLKIT[0], None),
        ("option.rolling_batch=vllm", TOOLKIT[0], "error"),
        ("option.rolling_batch=trtllm", LLMAPI, "error"),
        ("option.rolling_batch=trtllm", VLLM, "error"),
        ("option.rolling_batch=vllm", VLLM, None),
        ("option.pipeline_parallel_degree=2", LLMAPI, None),
        ("option.pipeline_parallel_degree=2", VLLM, "error"),
        ("option.tensor_parallel_degree=max", VLLM, None),
        ("option.tensor_parallel_degree=max", LLMAPI, None),
        ("option.max_num_tokens=50000", VLLM, "warning"),
        ("option.max_model_len=4096", VLLM, None),
        ("job_queue_size=100", VLLM, None),
    ],
)
def test_the_known_rules_of_each_image(line: str, image: str, severity: str | None) -> None:
    assert severities(line, image) == ([severity] if severity else [])


@pytest.mark.parametrize(("image", "key"), RULES)
def test_every_rule_fires_on_a_wrong_value(image: str, key: str) -> None:
    rule: Key = lmi_facts().family(lmi.lmi_image(image)).keys[key]
    found = lmi.check_properties(f"{key}={WRONG[rule.kind]}\n", image)
    if rule.reading != "read":
        assert [finding.severity for finding in found] == ["warning"]
        assert found[0].why and found[0].fix and found[0].source
    elif rule.kind or rule.values:
        assert [(finding.severity, finding.key) for finding in found] == [("error", key)]
        assert found[0].why and found[0].fix and "@" in found[0].source
        assert all(severities(f"{key}={value}", image) == [] for value in rule.values)
    else:
        assert found == []


@pytest.mark.parametrize("image", IMAGES)
def test_a_key_that_nobody_reads_is_found_and_a_near_one_named(image: str) -> None:
    (unknown,) = lmi.check_properties("option.zzz=1\n", image)
    assert unknown.severity == "warning" and unknown.key == "option.zzz"
    (misspelt,) = lmi.check_properties("option.tensor_paralell_degree=8\n", image)
    assert misspelt.fix == "did you mean option.tensor_parallel_degree?"


def test_what_became_of_the_article_s_file() -> None:
    fates = {image: {fate.key: fate.outcome for fate in lmi.fate(image)} for image in (*TOOLKIT, LLMAPI, VLLM)}
    assert fates[TOOLKIT[0]] == fates[TOOLKIT[1]]
    assert {key for key, outcome in fates[TOOLKIT[0]].items() if outcome != "works"} == {
        "option.use_paged_context_fmha"
    }
    assert fates[LLMAPI] == {
        "engine": "stops the start",
        "option.model_id": "works",
        "option.tensor_parallel_degree": "works",
        "option.rolling_batch": "stops the start",
        "option.max_num_tokens": "works",
        "option.quantize": "ignored",
        "option.use_fp8_context_fmha": "stops the start",
        "option.use_paged_context_fmha": "stops the start",
    }
    assert fates[VLLM]["engine"] == fates[VLLM]["option.rolling_batch"] == "stops the start"
    assert all(fate.instead and fate.source for fate in lmi.fate(LLMAPI) if fate.outcome != "works")


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("a=b", {"a": "b"}),
        ("  a = b  ", {"a": "b"}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("option.model_id=s3://x/y/", {"option.model_id": "s3://x/y/"}),
        ("a=x=y", {"a": "x=y"}),
        ("# a=b\n! c=d\n\n", {}),
        ("a=1\na=2", {"a": "2"}),
        ("a=", {"a": ""}),
        ("a=b # no comment", {"a": "b # no comment"}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, pairs: dict[str, str]) -> None:
    assert lmi.parse_properties(text) == pairs


@pytest.mark.parametrize(
    ("line", "severity", "message"),
    [
        ("engine", "error", "sets nothing"),
        ("engine=", "error", "sets nothing"),
        ("engine=Python\nengine=Python", "warning", "set twice"),
        ("option.dtype=auto # bf16", "error", "comment in its value"),
    ],
)
def test_traps_of_the_format_are_found(line: str, severity: str, message: str) -> None:
    found = lmi.check_properties(line + "\n", LLMAPI)[0]
    assert found.severity == severity and message in found.message


@pytest.mark.parametrize("image", IMAGES)
def test_the_environment_means_the_same_to_the_container(image: str) -> None:
    text = lmi.serving_properties(load_profile("local"), image, model_id="s3://bucket/engine/")
    lowered = {key.lower(): value for key, value in lmi.parse_properties(text).items()}
    assert merge_settings("", lmi.environment(text)) == lowered


def test_the_archive_holds_the_file_at_its_root_and_equal_text_gives_equal_bytes(tmp_path: Path) -> None:
    first, second = (
        lmi.pack("engine=Python\n", tmp_path / "a.tar.gz"),
        lmi.pack("engine=Python\n", tmp_path / "b.tar.gz"),
    )
    assert hashlib.sha256(first.read_bytes()).digest() == hashlib.sha256(second.read_bytes()).digest()
    with tarfile.open(first) as archive:
        (member,) = archive.getmembers()
        content = archive.extractfile(member)
        assert member.name == "serving.properties" and member.isreg() and content is not None
        assert content.read() == b"engine=Python\n"
    other = lmi.pack("engine=MPI\n", tmp_path / "c.tar.gz")
    assert gzip.decompress(other.read_bytes()) != gzip.decompress(first.read_bytes())


@pytest.mark.parametrize(
    ("framework", "version", "image"),
    [
        ("djl-tensorrtllm", "0.30.0", TOOLKIT[1]),
        ("djl-tensorrtllm", "0.32.0", TOOLKIT[0]),
        ("djl-tensorrtllm", "0.33.0", LLMAPI),
        ("djl-lmi", "0.36.0", VLLM),
    ],
)
def test_image_addresses_are_the_sdk_s(framework: str, version: str, image: str) -> None:
    from sagemaker.core import image_uris

    regions = sorted(region for found in lmi_facts().accounts.values() for region in found)
    assert len(regions) == 36
    for region in regions:
        assert lmi.image_uri(image, region) == image_uris.retrieve(framework, region=region, version=version)


def test_an_unknown_image_or_region_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="no facts on LMI image") as refused:
        lmi.check_properties("engine=Python", "0.99.0-lmi99.0.0-cu999")
    assert LLMAPI in refused.value.fix
    with pytest.raises(UsageError, match="mars-north-1") as refused:
        lmi.image_uri(LLMAPI, "mars-north-1")
    assert "us-east-1" in refused.value.fix
    assert lmi.lmi_image(lmi.image_uri(VLLM, "eu-west-1")).tag == VLLM


def test_the_recommended_image_loads_the_release_s_engines() -> None:
    assert lmi.recommended_image("0.12.0").tag == TOOLKIT[0]
    assert lmi.recommended_image("0.21.0").tag == LLMAPI
    assert lmi.recommended_image("1.2.1").engine_release == ""


def test_the_printed_build_runs_in_the_image_that_serves() -> None:
    write, build, upload = commands(load_profile("p5", "0.12.0"), load_release("0.12.0"), "lmi")
    assert (
        lmi.image_uri(TOOLKIT[0], "us-east-1") in build.argv and "/opt/djl/partition/trt_llm_partition.py" in build.argv
    )
    options = write.argv[write.argv.index("workspace/p5/lmi") + 1 :]
    assert lmi.check_properties("\n".join(options), TOOLKIT[0]) == []
    assert upload.argv[:4] == ("aws", "s3", "cp", "--recursive") and "workspace/p5/lmi-engine" in upload.argv
    assert "serving.properties" in shell(write)
    (only,) = commands(load_profile("p5", "1.2.1"), load_release("1.2.1"), "lmi")
    assert "No LMI image loads engines" in only.why and "workspace/p5/model" in only.argv


def test_the_printed_line_writes_the_file(tmp_path: Path) -> None:
    profile = load_profile("p5", "0.12.0")
    write, *_ = lmi.compile_ahead(profile, load_release("0.12.0"), Paths.under("/x", "p5", host_root=str(tmp_path)))
    subprocess.run(shell(write), shell=True, check=True)
    text = (tmp_path / "p5" / "lmi" / "serving.properties").read_text()
    assert text == lmi.serving_properties(profile, TOOLKIT[0], model_id="/workspace/p5/model", compiled=False)
