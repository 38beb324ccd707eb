"""serving.properties: ours passes every image's rules, the article's meets its known fate, and each rule fires."""

import gzip
import hashlib
import subprocess
import tarfile
from itertools import product
from pathlib import Path
from typing import get_args

import pytest

from each import each
from playbook.articles import quote
from playbook.profile import Profile, load_profile, profile_names
from serving_base.errors import NotInRelease, PlaybookError, UsageError
from trtllm_check.deployment import Qformat, changed
from trtllm_check.lint import check_commands
from trtllm_check.recipes import Command, Paths, lmi, shell
from trtllm_check.recipes.properties import check_properties
from trtllm_check.releases import known_releases, load_release
from trtllm_check.releases.lmi import Key, lmi_facts
from trtllm_check.serving_properties import merge_settings

IMAGES = [image.tag for image in lmi.lmi_images()]
QFORMATS = get_args(Qformat)
KV_TYPES = ("fp8", "int8", "auto")
GPU_PROFILES = [name for name in profile_names() if load_profile(name).lane == "tensorrt_llm"]
TOOLKIT = ["0.32.0-tensorrtllm0.12.0-cu125", "0.30.0-tensorrtllm0.12.0-cu125"]
IMAGE_0_8, IMAGE_0_9, IMAGE_0_11 = (
    "0.27.0-tensorrtllm0.8.0-cu122",
    "0.28.0-tensorrtllm0.9.0-cu122",
    "0.29.0-tensorrtllm0.11.0-cu124",
)
LLMAPI = "0.33.0-tensorrtllm0.21.0-cu128"
VLLM = "0.36.0-lmi27.0.0-cu130"
RULES = [(image, key) for image in IMAGES for key in lmi_facts().family(lmi.lmi_image(image)).keys]
WRONG = {"count": "many", "fraction": "2.5", "boolean": "yes", "pairs": "{}", "": "no-such-value"}


def severities(line: str, image: str) -> list[str]:
    return [finding.severity for finding in lmi.check_properties(line + "\n", image)]


@pytest.mark.parametrize("name", profile_names())
@each(("image", "compiled"), product(IMAGES, (True, False)))
def test_our_file_passes_the_image_s_own_rules(name: str, image: str, compiled: bool) -> None:
    for qformat, kv in product(QFORMATS, KV_TYPES):
        asked = changed(load_profile(name), qformat=qformat, kv_cache_dtype=kv)
        fit = lmi.fitted(asked, lmi.lmi_image(image))
        text = lmi.serving_properties(fit.profile, image, model_id="s3://bucket/engine/", compiled=compiled)
        assert lmi.check_properties(text, image) == []
        settings = lmi.parse_properties(text)
        assert settings["option.model_id"] == "s3://bucket/engine/"
        degrees = settings["option.tensor_parallel_degree"], settings.get("option.pipeline_parallel_degree", "1")
        assert int(degrees[0]) * int(degrees[1]) == asked.world_size
        assert bool(fit.left_out) == (fit.profile != asked)


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
    with pytest.raises(UsageError, match="does not serve what profile p5 asks for") as refused:
        lmi.serving_properties(profile, VLLM, model_id="x", compiled=False)
    assert "no option for int8_sq" in refused.value.why and "KV cache in int8" in refused.value.why


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
        ("option.model_loading_timeout=1800", VLLM, None),
        ("option.model_loading_timeout=1800", LLMAPI, None),
        ("option.quantize=fp8", IMAGE_0_8, "warning"),
        ("option.quantize=awq", IMAGE_0_8, None),
        ("option.quantize=fp8", IMAGE_0_9, None),
        ("option.use_fp8_context_fmha=true", IMAGE_0_8, "warning"),
        ("option.use_fp8_context_fmha=true", IMAGE_0_9, None),
        ("option.use_custom_all_reduce=true", IMAGE_0_11, None),
        ("option.use_custom_all_reduce=true", TOOLKIT[0], "warning"),
        ("option.pipeline_parallel_degree=2", IMAGE_0_8, "warning"),
        ("option.pipeline_parallel_degree=2", IMAGE_0_9, "warning"),
        ("option.pipeline_parallel_degree=2", IMAGE_0_11, None),
        ("option.rolling_batch=vllm", IMAGE_0_8, "error"),
        ("engine=MPI", IMAGE_0_8, None),
    ],
)
def test_the_known_rules_of_each_image(line: str, image: str, severity: str | None) -> None:
    assert severities(line, image) == ([severity] if severity else [])


@each(("image", "key"), RULES)
def test_every_rule_fires_on_a_wrong_value(image: str, key: str) -> None:
    rule: Key = lmi_facts().family(lmi.lmi_image(image)).keys[key]
    found = lmi.check_properties(f"{key}={WRONG[rule.kind]}\n", image)
    if rule.reading != "read":
        assert [finding.severity for finding in found] == ["warning"]
        assert found[0].why and found[0].fix and found[0].source
    elif rule.kind or rule.values:
        severity = "error" if rule.otherwise == "refused" else "warning"
        assert [(finding.severity, finding.key) for finding in found] == [(severity, key)]
        assert found[0].why and found[0].fix and "@" in found[0].source
        assert all(severities(f"{key}={value}", image) == [] for value in rule.values)
    else:
        assert found == []


@pytest.mark.parametrize("family", lmi_facts().families)
def test_every_family_refuses_or_ignores_something_and_some_image_is_of_it(family: str) -> None:
    facts = lmi_facts().families[family]
    wrong = {name: WRONG[rule.kind] for name, rule in facts.keys.items() if rule.reading != "read" or rule.values}
    images = [image.tag for image in lmi_facts().images if image.family == family]
    assert wrong and images
    assert facts.confidence == "high" or facts.note
    assert all(severities(f"{name}={value}", image) for image, (name, value) in product(images, wrong.items()))


def test_a_family_takes_over_what_it_does_not_change() -> None:
    families = lmi_facts().families
    old, new = families["toolkit-0.27"], families["toolkit"]
    assert old.keys["option.tokens_per_block"] == new.keys["option.tokens_per_block"]
    assert "fp8" in new.quantization and "fp8" not in old.quantization
    assert "option.pipeline_parallel_degree" in new.settings
    assert "option.pipeline_parallel_degree" not in old.settings
    assert "option.multi_block_mode" in old.keys and "option.multi_block_mode" not in new.keys


@pytest.mark.parametrize("image", IMAGES)
def test_a_key_that_nobody_reads_is_found_and_a_near_one_named(image: str) -> None:
    (unknown,) = lmi.check_properties("option.zzz=1\n", image)
    assert unknown.severity == "warning" and unknown.key == "option.zzz"
    (misspelt,) = lmi.check_properties("option.tensor_paralell_degree=8\n", image)
    assert misspelt.fix == "did you mean option.tensor_parallel_degree?"


ARTICLE = quote("aws-serving-properties").text
REPAIRED = ARTICLE.replace(" # AWS S3 URI or HF MODEL_ID", "")
STOPS_0_33 = {"engine", "option.rolling_batch", "option.use_fp8_context_fmha"}


def outcomes(text: str, image: str) -> dict[str, str]:
    return {fate.key: fate.outcome for fate in lmi.fates(text, image)}


def keys_that(outcome: str, found: dict[str, str]) -> set[str]:
    return {key for key, value in found.items() if value == outcome}


@pytest.mark.parametrize("image", IMAGES)
def test_the_article_s_file_as_it_is_starts_nowhere_its_comment_is_part_of_the_model_s_name(image: str) -> None:
    assert merge_settings(ARTICLE, {})["option.model_id"].endswith("# AWS S3 URI or HF MODEL_ID")
    (comment,) = [finding for finding in lmi.check_properties(ARTICLE, image) if finding.kind == "syntax"]
    assert (comment.severity, comment.key, comment.line) == ("error", "option.model_id", 2)
    assert not [finding for finding in lmi.check_properties(REPAIRED, image) if finding.kind == "syntax"]


def test_what_became_of_the_seven_lines_of_the_article_s_file() -> None:
    found = {image: outcomes(REPAIRED, image) for image in IMAGES}
    assert all(len(keys) == 7 for keys in found.values())
    assert all(keys_that("works", found[image]) == set(found[image]) for image in TOOLKIT)
    assert keys_that("stops the start", found[LLMAPI]) == STOPS_0_33
    assert keys_that("ignored", found[LLMAPI]) == {"option.quantize"}
    assert keys_that("stops the start", found[VLLM]) == {"engine", "option.rolling_batch"}
    assert keys_that("undocumented", found[IMAGE_0_8]) == {"option.quantize", "option.use_fp8_context_fmha"}
    assert all(fate.instead and fate.source for fate in lmi.fates(REPAIRED, LLMAPI) if fate.outcome != "works")


def test_the_article_s_lines_are_found_as_variables_too() -> None:
    variables = "OPTION_QUANTIZE=fp8\nOPTION_ROLLING_BATCH=trtllm"
    rules = [finding.rule for finding in check_commands(variables, "0.21.0")]
    assert rules == ["lmi-key-ignored", "lmi-value-refused"]


@pytest.mark.parametrize("image", [TOOLKIT[0], LLMAPI, VLLM])
@pytest.mark.parametrize("name", ["local", "p5", "p5-8b", "p5-tp4pp2"])
def test_an_endpoint_s_model_is_known_before_anything_is_built_or_paid(name: str, image: str, tmp_path: Path) -> None:
    profile, chosen = load_profile(name), lmi.lmi_image(image)
    (tmp_path / "engine").mkdir()
    local = name == "local"
    model = lmi.endpoint_model(profile, chosen, tmp_path, same_build=local)
    assert (model.source.name, model.compiled) == (("engine", True) if local else ("model", False))
    assert model.startup_timeout_s == (3600 if chosen.engine_release and not local else 1800)
    assert lmi.check_properties(file_of(model, image), image) == []
    (tmp_path / "lmi-engine").mkdir()
    if chosen.engine_release and not local:
        ahead = lmi.endpoint_model(profile, chosen, tmp_path)
        assert (ahead.source.name, ahead.compiled, ahead.startup_timeout_s) == ("lmi-engine", True, 1800)
        assert "quant" not in file_of(ahead, image)


def file_of(model: lmi.EndpointModel, image: str) -> str:
    options = {"compiled": model.compiled, "quantized": model.quantized}
    return lmi.serving_properties(model.profile, image, model_id="s3://bucket/model/", **options)


def test_vllm_s_image_gets_the_checkpoint_that_the_pytorch_flow_makes(tmp_path: Path) -> None:
    model = lmi.endpoint_model(load_profile("p5", "1.3.0rc22"), lmi.lmi_image(VLLM), tmp_path)
    assert (model.source.name, model.quantized) == ("checkpoint", True)


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
    pairs = lmi.parse_properties(text).items()
    lowered = {key if key == "option.entryPoint" else key.lower(): value for key, value in pairs}
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
        ("djl-tensorrtllm", "0.27.0", IMAGE_0_8),
        ("djl-tensorrtllm", "0.28.0", IMAGE_0_9),
        ("djl-tensorrtllm", "0.29.0", IMAGE_0_11),
        ("djl-tensorrtllm", "0.30.0", TOOLKIT[1]),
        ("djl-tensorrtllm", "0.32.0", TOOLKIT[0]),
        ("djl-tensorrtllm", "0.33.0", LLMAPI),
        ("djl-lmi", "0.36.0", VLLM),
    ],
)
def test_image_addresses_are_the_sdk_s(framework: str, version: str, image: str) -> None:
    from sagemaker.core import image_uris

    known = sorted(region for found in lmi_facts().accounts.values() for region in found)
    assert len(known) == 36
    for region in known if image in (LLMAPI, VLLM) else ("us-east-1", "cn-north-1", "ap-east-1"):
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
    assert {image.engine_release for image in lmi.lmi_images()} == {"0.8.0", "0.9.0", "0.11.0", "0.12.0", "0.21.0", ""}
    engines = [image for image in lmi.lmi_images() if image.engine_release]
    assert all(image.tag in load_release(image.engine_release).containers.lmi for image in engines)


def test_without_engines_the_newest_image_is_recommended(monkeypatch: pytest.MonkeyPatch) -> None:
    further = lmi.lmi_image(VLLM).model_copy(update={"tag": "9.0.0-lmi99.0.0-cu999"})
    facts = lmi_facts().model_copy(update={"images": (*lmi_facts().images, further)})
    monkeypatch.setattr(lmi, "lmi_facts", lambda: facts)
    assert lmi.recommended_image("1.2.1") == further
    assert lmi.recommended_image("0.12.0").tag == TOOLKIT[0]


def ahead(profile: Profile, release: str) -> list[Command]:
    return lmi.compile_ahead(profile, load_release(release), Paths.default(profile))


def written(command: Command) -> str:
    return "\n".join(command.argv[4:])


@pytest.mark.parametrize("name", GPU_PROFILES)
@each("release", known_releases())
def test_each_file_of_the_stage_holds_only_what_its_image_takes(name: str, release: str) -> None:
    image = lmi.recommended_image(release)
    script = lmi_facts().family(image).partition
    for qformat in QFORMATS:
        todo = ahead(changed(load_profile(name, release), qformat=qformat), release)
        files = [command for command in todo if "serving.properties" in command.argv[2]]
        assert len(files) == (2 if image.engine_release else 1)
        assert [lmi.check_properties(written(command), image.tag) for command in files] == [[]] * len(files)
        assert lmi.parse_properties(written(files[-1]))["option.model_id"] == f"s3://your-bucket/{name}/model/"
        assert [command.tool for command in todo[-4:]] == ["bash", "tar", "aws", "aws"]
        builds = [command for command in todo if command.tool == "docker"]
        assert (
            [word for word in builds[0].argv if word.startswith("--")][-len(script.arguments) :]
            == list(script.arguments)
            if script
            else not builds
        )


@pytest.mark.parametrize(
    ("release", "image"),
    [("0.8.0", IMAGE_0_8), ("0.9.0", IMAGE_0_9), ("0.11.0", IMAGE_0_11), ("0.12.0", TOOLKIT[0]), ("0.21.0", LLMAPI)],
)
def test_the_printed_build_runs_in_the_image_that_serves(release: str, image: str) -> None:
    write, login, build, endpoint, _, model, archive = ahead(load_profile("p5", release), release)
    uri = lmi.image_uri(image, "us-east-1")
    assert uri in build.argv and login.argv[-1] == uri.partition("/")[0]
    assert ("--pipeline_parallel_degree" in build.argv) == (image not in (IMAGE_0_8, IMAGE_0_9))
    read = "workspace/p5/lmi", "/workspace/p5/lmi"
    assert write.argv[3] == read[0] and build.argv[build.argv.index("--properties_dir") + 1] == read[1]
    made = build.argv[build.argv.index("--trt_llm_model_repo") + 1]
    assert model.argv == ("aws", "s3", "cp", "--recursive", made.lstrip("/"), "s3://your-bucket/p5/model/")
    assert archive.argv[-1] == "s3://your-bucket/p5/model.tar.gz"
    assert "dtype" in written(write) and "dtype" not in written(endpoint)


def test_the_reader_learns_what_is_known_of_the_image() -> None:
    oldest, newest = ahead(load_profile("p5", "0.8.0"), "0.8.0"), ahead(load_profile("p5", "0.21.0"), "0.21.0")
    assert "2026-03-18" in oldest[1].why and "2026-03-18" not in newest[1].why
    assert "0.21.0rc1" in newest[2].why and "25.08" in newest[2].why
    assert "confidence medium: " in oldest[0].why and "confidence medium: " in newest[0].why
    assert "No LMI image runs TensorRT-LLM 1.2.1" in ahead(load_profile("p5", "1.2.1"), "1.2.1")[0].why


@pytest.mark.parametrize(
    ("name", "release", "settings", "said"),
    [
        ("p5", "0.12.0", {}, []),
        ("p5", "0.21.0", {}, []),
        ("p5", "1.2.1", {}, []),
        ("p5-tp4pp2", "0.21.0", {}, []),
        ("p5", "0.8.0", {}, ["no option for fp8", "KV cache in fp8"]),
        ("p5", "0.9.0", {}, ["KV cache in fp8"]),
        ("p5-tp4pp2", "1.2.1", {}, ["one pipeline stage: tensor parallelism over 8 GPUs instead of 4 x 2"]),
        ("p5-tp4pp2", "0.9.0", {}, ["one pipeline stage", "KV cache in fp8"]),
        ("g6", "0.12.0", {}, ["use_fp8_context_fmha is left out"]),
        ("g6", "0.21.0", {}, []),
        ("p5", "0.12.0", {"qformat": "int4_awq"}, ["use_fp8_context_fmha is left out"]),
        ("p5", "0.12.0", {"qformat": "w4a8_awq", "kv_cache_dtype": "auto"}, ["no option for w4a8_awq"]),
        ("p5", "0.21.0", {"qformat": "w4a8_awq"}, []),
        ("p5", "0.21.0", {"qformat": "int8_wo"}, ["option.kv_cache_quant_algo"]),
        ("p5", "0.21.0", {"qformat": "int4_gptq"}, ["no option for int4_gptq"]),
        ("p5", "1.0.0", {"qformat": "int8_sq"}, ["no option for int8_sq"]),
    ],
)
def test_what_an_image_cannot_do_is_said(name: str, release: str, settings: dict[str, str], said: list[str]) -> None:
    todo = ahead(changed(load_profile(name, release), **settings), release)
    left_out = [sentence for command in todo for sentence in command.left_out]
    assert len(left_out) == len(said)
    assert all(part in sentence for part, sentence in zip(said, left_out, strict=True))


def test_what_no_longer_fits_the_gpus_is_refused() -> None:
    tight = changed(load_profile("p5", "1.2.1"), qformat="int4_awq", tp=1)
    with pytest.raises(NotInRelease, match="cannot serve profile p5") as refused:
        ahead(tight, "1.2.1")
    assert "GiB" in refused.value.why


@pytest.mark.parametrize(
    ("qformat", "folder", "says"),
    [("fp8", "checkpoint", []), ("int4_awq", "model", ["int4_awq"]), ("full_prec", "model", [])],
)
def test_the_pytorch_line_uploads_the_checkpoint_that_vllm_loads(qformat: str, folder: str, says: list[str]) -> None:
    engines = load_release("1.2.1")
    tools = {name: tool for name, tool in engines.tools.items() if name != "trtllm-build"}
    release = engines.model_copy(update={"name": "9.9.9", "tools": tools})
    profile = changed(load_profile("p5"), qformat=qformat)
    endpoint, _, model, _ = lmi.compile_ahead(profile, release, Paths.default(profile))
    assert model.argv[-2] == f"workspace/p5/{folder}"
    settings = lmi.parse_properties(written(endpoint))
    assert "option.quantize" not in settings and settings["option.kv_cache_dtype"] == "fp8"
    assert len(endpoint.left_out) == len(says) and all(part in endpoint.left_out[0] for part in says)


def test_the_printed_lines_write_the_files_and_the_archive(tmp_path: Path) -> None:
    profile = load_profile("p5", "0.12.0")
    todo = lmi.compile_ahead(profile, load_release("0.12.0"), Paths.under("/x", "p5", host_root=str(tmp_path)))
    write, _, _, endpoint, tar, *_ = todo
    for command in (write, endpoint, tar):
        subprocess.run(shell(command), shell=True, check=True)
    text = (tmp_path / "p5" / "lmi" / "serving.properties").read_text()
    assert text == lmi.serving_properties(profile, TOOLKIT[0], model_id="/workspace/p5/model", compiled=False)
    with tarfile.open(tmp_path / "p5" / "lmi-endpoint" / "model.tar.gz") as archive:
        content = archive.extractfile("serving.properties")
        assert archive.getnames() == ["serving.properties"] and content is not None
        place = "s3://your-bucket/p5/model/"
        assert content.read().decode() == lmi.serving_properties(profile, TOOLKIT[0], model_id=place)


@pytest.mark.parametrize(
    ("image", "argument", "handed_on"),
    [
        ("0.34.0-lmi16.0.0-cu128", "max_seq_len_to_capture", True),  # of vLLM 0.10.2, gone in 0.11
        ("0.35.0-lmi17.0.0-cu128", "max_seq_len_to_capture", False),
        ("0.36.0-lmi22.0.0-cu129", "swap_space", True),
        ("0.36.0-lmi23.0.0-cu129", "swap_space", False),
        ("0.36.0-lmi18.0.0-cu128", "attention_backend", False),
        ("0.36.0-lmi19.0.0-cu128", "attention_backend", True),
        ("0.36.0-lmi27.0.0-cu130", "performance_mode", True),
        ("0.36.0-lmi27.0.0-cu130", "guided_decoding_backend", False),
    ],
)
def test_an_image_hands_on_the_arguments_of_its_own_vllm(image: str, argument: str, handed_on: bool) -> None:
    passed_on = lmi_facts().family(lmi.lmi_image(image)).passed_on
    assert passed_on is not None and (argument in passed_on.names) == handed_on
    problems = check_properties(f"option.{argument}=1", image)
    assert ("ignored" in {problem.kind for problem in problems}) != handed_on


def test_a_build_number_behind_the_tag_is_the_same_image() -> None:
    assert lmi.lmi_image("0.36.0-lmi20.0.0-cu128-v1.0").tag == "0.36.0-lmi20.0.0-cu128"


def test_an_image_whose_vllm_was_not_read_is_refused() -> None:
    facts = lmi_facts()
    image = lmi.lmi_image(VLLM).model_copy(update={"vllm": "0.99.0"})
    with pytest.raises(PlaybookError, match=r"EngineArgs of vLLM 0\.99\.0 are not known"):
        facts.family(image)


def test_what_is_new_in_a_version_of_vllm_was_not_there_before_and_what_is_gone_was() -> None:
    facts = lmi_facts().engine_args
    assert len(facts.fields) > 250
    for earlier, later, new, gone in (
        ("0.10.2", "0.11.1", "stream_interval", "rope_scaling"),
        ("0.12.0", "0.14.0", "attention_backend", "task"),
        ("0.17.1", "0.18.0", "shutdown_timeout", "swap_space"),
    ):
        before, after = facts.of(earlier).names, facts.of(later).names
        assert new in after - before and gone in before - after
        assert before | after <= set(facts.fields)
