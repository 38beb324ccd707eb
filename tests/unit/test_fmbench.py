"""FMBench's files: what its loader makes of them, what the check finds, and that they are the same each time."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from load_testing.workload import WorkItem
from playbook.profile import load_profile
from trtllm_check.recipes import fmbench

ITEMS = [
    WorkItem(name="p0", text='braces {like} these, "quotes"\nand lines', isl_tokens=9, osl_tokens=16),
    WorkItem(name="p1", text="mehr als ASCII: é", isl_tokens=5, osl_tokens=48),
]
VALUES = {name: f"the-{name}" for name in fmbench.PLACEHOLDERS}


def loaded(text: str) -> dict[str, Any]:
    """As FMBench's load_config does: str.format first, YAML afterwards."""
    config: dict[str, Any] = yaml.safe_load(text.format(**VALUES))
    return config


@pytest.fixture(params=["p5", "p5-8b"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    written = fmbench.write(tmp_path, ITEMS, load_profile(request.param), endpoint="mine-{blue}")
    return {path.relative_to(tmp_path).as_posix(): path.read_text() for path in written}


LMI, ENDPOINT = "configs/config-lmi-p5.yml", "configs/config-byo-endpoint.yml"


def test_both_configurations_pass_the_check(files: dict[str, str]) -> None:
    assert fmbench.check(files[LMI]) == []
    assert fmbench.check(files[ENDPOINT]) == []


def test_the_files_are_the_same_each_time(tmp_path: Path) -> None:
    profile = load_profile("p5")
    twice = [fmbench.write(tmp_path / name, ITEMS, profile, endpoint="e") for name in "ab"]
    assert [path.read_bytes() for path in twice[0]] == [path.read_bytes() for path in twice[1]]


def test_lmi_is_deployed_on_the_profiles_instance_with_its_image(files: dict[str, str]) -> None:
    (experiment,) = loaded(files[LMI])["experiments"]
    assert experiment["instance_type"] == "ml.p5.48xlarge"
    assert experiment["image_uri"].startswith("763104351884.dkr.ecr.the-region.amazonaws.com/djl-inference:")
    assert "tensorrtllm" in experiment["image_uri"]
    assert experiment["deploy"] is True
    properties = experiment["serving.properties"].format(write_bucket="b")  # deploy_w_djl_serving.py does it again
    assert "option.model_id=s3://the-write_bucket/" in properties
    assert loaded(files[LMI])["run_steps"]["6_cleanup.ipynb"] is True


def test_an_endpoint_of_ones_own_is_neither_made_nor_deleted(files: dict[str, str]) -> None:
    config = loaded(files[ENDPOINT])
    (experiment,) = config["experiments"]
    assert experiment["ep_name"] == "mine-{blue}"
    assert experiment["deploy"] is False
    assert config["run_steps"]["6_cleanup.ipynb"] is False


def test_streaming_is_on_because_fmbench_has_no_ttft_without(files: dict[str, str]) -> None:
    for name in (LMI, ENDPOINT):
        assert loaded(files[name])["experiments"][0]["inference_spec"]["stream"] is True


def test_a_row_of_the_data_fills_the_template(files: dict[str, str]) -> None:
    import json

    rows = [json.loads(line) for line in files["source_data/playbook.jsonl"].splitlines()]
    template = files["prompt_template/prompt_template_playbook.txt"].strip()
    (key,) = loaded(files[LMI])["datasets"]["prompt_template_keys"]
    prompts = [template.format(**{key: row[key]}) for row in rows]
    assert [row["language"] for row in rows] == ["en", "en"]
    assert prompts[0].startswith("<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nbraces {like} these")
    assert ITEMS[1].text in prompts[1]


@pytest.mark.parametrize(
    ("right", "wrong", "found"),
    [
        ("env: null", 'env: {"A": 1}', "is no value of FMBench's"),
        ("env: null", "env: {}", "str.format refuses"),
        ("env: null", "env: {unknown}", "{unknown} is no value"),
        ("env: null", "env: [", "not YAML"),
        ("report:", "reports:", "section report is missing"),
        ("3_run_inference", "3_run_inferences", "there is no step 3_run_inferences.ipynb"),
        ("0_setup.ipynb: true", "0_setup.ipynb: 'please'", "must be yes or no"),
        ("payload_files:\n  - payload_en", "payload_files:\n  - payload_de", "no filter writes payload_de_1-"),
        ("dataset_of_interest: en", "dataset_of_interest: de", "no filter writes payload_de_1-"),
        ("min_length_in_tokens: 1", "min_length_in_tokens: 99999", "its range of tokens is empty"),
        ("inference_script: sagemaker", "inference_script: sagemakers", "no script sagemakers_predictor.py"),
        ("parameter_set: sagemaker", "parameter_set: bedrock", "no inference_parameters bedrock"),
        ("concurrency_levels:\n  - 1", "concurrency_levels:\n  - many", "must be counts"),
        ("  ep_name:", "  endpoint_name:", "ep_name is missing"),
        ("engine=Python", "engine={{Python}}", "write literal braces four times"),
    ],
)
def test_mistakes_are_found(right: str, wrong: str, found: str, files: dict[str, str]) -> None:
    assert right in files[LMI]
    findings = fmbench.check(files[LMI].replace(right, wrong, 1))
    assert any(found in finding for finding in findings), findings


def test_a_file_that_is_no_mapping_is_found() -> None:
    assert fmbench.check("- a list") == ["not a mapping of sections"]
