"""FMBench 2.1.6: the AWS article's benchmark tool. Its data set, prompt template and configurations from our workload.

Its rules are those of aws-samples/foundation-model-benchmarking-tool@39ce6b9c, folder fmbench: utils.py (load_config,
process_item), main.py (run_steps), 1_generate_data.ipynb (filters), scripts/deploy_w_djl_serving.py.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import yaml

from serving_base.errors import UsageError
from trtllm_check.deployment import Deployment
from trtllm_check.recipes import lmi
from trtllm_check.recipes.run import chat_prompt

VERSION = "2.1.6"
PLACEHOLDERS = ("region", "role_arn", "read_tmpdir", "write_tmpdir", "write_bucket", "read_bucket")
STEPS = (
    "setup.ipynb",
    "generate_data.ipynb",
    "deploy_model.ipynb",
    "run_inference.ipynb",
    "get_evaluations.ipynb",
    "model_metric_analysis.ipynb",
    "cleanup.ipynb",
)
SCRIPTS = (
    "bedrock_predictor.py",
    "bedrock_predictor_converseAPI.py",
    "custom_rest_predictor.py",
    "deploy_w_djl_serving.py",
    "deploy_w_hf_tgi.py",
    "ec2_deploy.py",
    "ec2_predictor.py",
    "eks_deploy.py",
    "eks_predictor.py",
    "jumpstart.py",
    "neuron_deploy.py",
    "ollama_predictor.py",
    "rest_predictor.py",
    "sagemaker_deploy.py",
    "sagemaker_predictor.py",
)
SECTIONS = (
    "general",
    "aws",
    "dir_paths",
    "s3_read_data",
    "run_steps",
    "datasets",
    "metrics",
    "pricing",
    "inference_parameters",
    "experiments",
    "report",
)
TEXT_KEY = "text"
DATASET = "playbook.jsonl"
TEMPLATE = "prompt_template_playbook.txt"
CONCURRENCY = (1, 2, 4, 8, 16, 32, 64)
REGION = "us-east-1"  # replaced by FMBench with the caller's


class Prompt(Protocol):
    """A prompt of a workload, and how many tokens are to answer it."""

    @property
    def text(self) -> str: ...

    @property
    def osl_tokens(self) -> int: ...


def dataset_lines(items: Sequence[Prompt]) -> str:
    """The data set: one JSON object per line; ``language`` is what the filters select by."""
    rows = ({TEXT_KEY: item.text, "language": "en"} for item in items)
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def prompt_template() -> str:
    """Llama-3's chat format around ``{text}``; FMBench strips what is white at its ends."""
    return chat_prompt("{" + TEXT_KEY + "}")


def lmi_config(profile: Deployment, *, max_new_tokens: int) -> str:
    """FMBench deploys the LMI image of the profile's release on the profile's instance, measures, and deletes it."""
    image = lmi.recommended_image(profile.release).tag
    properties = lmi.serving_properties(profile, image, model_id=f"s3://{{write_bucket}}/{profile.model}/engine/")
    return _config(
        f"{profile.model}-lmi",
        profile,
        max_new_tokens,
        {
            "model_id": profile.shape.hf_id,
            "ep_name": f"{profile.model}-lmi",
            "image_uri": lmi.image_uri(image, REGION).replace(REGION, "{region}"),
            "deploy": True,
            "deployment_script": "deploy_w_djl_serving.py",
            "serving.properties": properties,
        },
    )


def endpoint_config(profile: Deployment, endpoint: str, *, max_new_tokens: int) -> str:
    """FMBench measures an endpoint that exists (bring your own) and leaves it as it is: it goes on billing."""
    return _config(
        f"{profile.model}-byo-endpoint",
        profile,
        max_new_tokens,
        {
            "model_id": profile.shape.hf_id,
            "ep_name": _literal(endpoint),
            "production_variant_name": "AllTraffic",
            "image_uri": "",
            "deploy": False,
            "deployment_script": "jumpstart.py",  # required and, without deploy, not used
        },
    )


def write(folder: Path, items: Sequence[Prompt], profile: Deployment, *, endpoint: str) -> list[Path]:
    """Write all four files where FMBench's local mode looks for them (``<tmp dir>/fmbench-read``)."""
    max_new_tokens = max(item.osl_tokens for item in items)
    files = {
        f"source_data/{DATASET}": dataset_lines(items),
        f"prompt_template/{TEMPLATE}": prompt_template(),
        "configs/config-lmi-p5.yml": lmi_config(profile, max_new_tokens=max_new_tokens),
        "configs/config-byo-endpoint.yml": endpoint_config(profile, endpoint, max_new_tokens=max_new_tokens),
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in files]


@dataclass(frozen=True)
class Throughput:
    """FMBench's figures of one burst: requests that go out together, and the seconds until the last one is answered."""

    prompt_token_throughput: float
    completion_token_throughput: float
    transactions_per_minute: float


def throughput(prompt_tokens: Sequence[int], completion_tokens: Sequence[int], elapsed_s: float) -> Throughput:
    """The sums of tokens over ``elapsed_s``, as calculate_metrics of 3_run_inference.ipynb has them.

    One number per request. A request without ``completion_tokens`` (0) failed: its prompt counts, and it is no
    transaction. FMBench counts tokens with its own tokenizer, of the template with its prompt.
    """
    if len(prompt_tokens) != len(completion_tokens) or not prompt_tokens or elapsed_s <= 0:
        raise UsageError("a burst has a prompt and an answer per request, and takes time", fix="give both, and seconds")
    answered = sum(1 for tokens in completion_tokens if tokens)
    return Throughput(
        prompt_token_throughput=round(sum(prompt_tokens) / elapsed_s, 2),
        completion_token_throughput=round(sum(completion_tokens) / elapsed_s, 2),
        transactions_per_minute=round(answered / elapsed_s, 2) * 60,
    )


def check(text: str) -> list[str]:
    """What FMBench would trip over in a configuration; nothing when it loads and its parts fit together."""
    values = {name: f"some-{name.replace('_', '-')}" for name in PLACEHOLDERS}
    try:
        config = yaml.safe_load(text.format(**values))
    except KeyError as error:
        return [f"{{{error.args[0]}}} is no value of FMBench's: write literal braces twice"]
    except (ValueError, IndexError, AttributeError) as error:
        return [f"str.format refuses the file ({error}): write literal braces twice"]
    except yaml.YAMLError as error:
        return [f"not YAML: {error}"]
    if not isinstance(config, dict):
        return ["not a mapping of sections"]
    missing = [f"section {name} is missing" for name in SECTIONS if name not in config]
    return missing or [*_check_steps(config), *_check_data(config), *_check_experiments(config)]


def _check_steps(config: Mapping[str, Any]) -> list[str]:
    found = [
        f"run_steps: {name} must be yes or no" for name, on in config["run_steps"].items() if on not in (True, False)
    ]
    known = {f"_{step}" for step in STEPS}
    return found + [f"run_steps: there is no step {name}" for name in config["run_steps"] if name[1:] not in known]


def _check_data(config: Mapping[str, Any]) -> list[str]:
    filters = config["datasets"]["filters"]
    found = [
        f"filter of {one['payload_file']}: its range of tokens is empty"
        for one in filters
        if not 0 <= one["min_length_in_tokens"] < one["max_length_in_tokens"]
    ]
    wanted = config["metrics"]["dataset_of_interest"]
    if f"payload_{wanted}.jsonl" not in _payload_files(config):
        found.append(f"dataset_of_interest {wanted}: no filter writes payload_{wanted}.jsonl")
    return found


def _check_experiments(config: Mapping[str, Any]) -> list[str]:
    found = []
    for one in config["experiments"]:
        name = one.get("name", "without a name")
        lacking = [key for key in ("name", "ep_name", "instance_type", "instance_count", "deploy") if key not in one]
        found += [f"experiment {name}: {key} is missing" for key in lacking]
        unwritten = set(one["payload_files"]) - _payload_files(config)
        found += [f"experiment {name}: no filter writes {file}" for file in sorted(unwritten)]
        scripts = (one["deployment_script"], one["inference_script"])
        found += [f"experiment {name}: FMBench has no script {file}" for file in scripts if file not in SCRIPTS]
        if one["inference_spec"]["parameter_set"] not in config["inference_parameters"]:
            found.append(f"experiment {name}: no inference_parameters {one['inference_spec']['parameter_set']}")
        if not all(isinstance(level, int) and level > 0 for level in one["concurrency_levels"]):
            found.append(f"experiment {name}: concurrency_levels must be counts")
        if re.search(r"[{}]", one.get("serving.properties", "")):
            found.append(f"experiment {name}: serving.properties is formatted twice: write literal braces four times")
    return found


def _payload_files(config: Mapping[str, Any]) -> set[str]:
    return {one["payload_file"] for one in config["datasets"]["filters"]}


def _config(name: str, profile: Deployment, max_new_tokens: int, experiment: Mapping[str, Any]) -> str:
    dataset = f"en_1-{profile.max_input_len}"
    skipped = ("get_evaluations.ipynb",) if experiment["deploy"] else ("get_evaluations.ipynb", "cleanup.ipynb")
    config = {
        "general": {"name": name, "model_name": profile.model},
        "aws": {
            "region": "{region}",
            "sagemaker_execution_role": "{role_arn}",
            "s3_and_or_local_file_system": "local",
            "local_file_system_path": "{write_tmpdir}",
            "bucket": "{write_bucket}",
        },
        "dir_paths": {
            "data_prefix": "data",
            "prompts_prefix": "prompts",
            "all_prompts_file": "all_prompts.csv",
            "metrics_dir": "metrics",
            "models_dir": "models",
            "metadata_dir": "metadata",
        },
        "s3_read_data": {
            "s3_or_local_file_system": "local",
            "local_file_system_path": "{read_tmpdir}",
            "read_bucket": "{read_bucket}",
            "scripts_prefix": "scripts",
            "script_files": ["hf_token.txt"],
            "configs_prefix": "configs",
            "config_files": ["pricing.yml"],
            "source_data_prefix": "source_data",
            "source_data_files": [DATASET],
            "tokenizer_prefix": "tokenizer",
            "prompt_template_dir": "prompt_template",
            "prompt_template_file": TEMPLATE,
        },
        "run_steps": {f"{number}_{step}": step not in skipped for number, step in enumerate(STEPS)},
        "datasets": {
            "prompt_template_keys": [TEXT_KEY],
            "filters": [
                {
                    "language": "en",
                    "min_length_in_tokens": 1,
                    "max_length_in_tokens": profile.max_input_len,
                    "payload_file": f"payload_{dataset}.jsonl",
                }
            ],
        },
        "metrics": {"dataset_of_interest": dataset},
        "pricing": "pricing.yml",
        "inference_parameters": {"sagemaker": {"do_sample": False, "max_new_tokens": max_new_tokens}},
        "experiments": [
            {
                "name": name,
                "model_version": "*",
                "model_name": profile.model,
                "instance_type": f"ml.{profile.instance}",
                "instance_count": 1,
                "inference_script": "sagemaker_predictor.py",
                # without stream there is no TTFT in FMBench's report
                "inference_spec": {"parameter_set": "sagemaker", "stream": True, "stop_token": "<|eot_id|>"},
                "payload_files": [f"payload_{dataset}.jsonl"],
                "concurrency_levels": [level for level in CONCURRENCY if level <= profile.max_batch_size],
                "accept_eula": True,
                "env": None,  # "{}" would be a placeholder without a name
                **experiment,
            }
        ],
        "report": {
            "latency_budget": 5,
            "cost_per_10k_txn_budget": 200,
            "error_rate_budget": 0,
            "per_inference_request_file": "per_inference_request_results.csv",
            "all_metrics_file": "all_metrics.csv",
            "txn_count_for_showing_cost": 10000,
            "v_shift_w_single_instance": 0.025,
            "v_shift_w_gt_one_instance": 0.025,
        },
    }
    head = f"# FMBench {VERSION}: fmbench --config-file <this file> --local-mode yes --write-bucket your-bucket\n"
    return head + yaml.dump(config, Dumper=_Dumper, sort_keys=False, width=110)


def _literal(text: str) -> str:
    """Braces that survive ``str.format``."""
    return text.replace("{", "{{").replace("}", "}}")


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, so that they can be read and edited."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)
