"""The settings of an LMI container: serving.properties, and the environment where the file says nothing.

Source: deepjavalibrary/djl-serving docs/configurations_model.md and serving/docker/README.md. Standard library only.
"""

import re
from collections.abc import Mapping

LINE = re.compile(r"\s*(?P<key>[^\s=:#!][^\s=:]*)\s*[=:\s]\s*(?P<value>.*?)\s*")
MODEL_ID = "option.model_id"
ENVIRONMENT_NAMES = {
    "HF_MODEL_ID": MODEL_ID,
    "HF_REVISION": "option.revision",
    "TENSOR_PARALLEL_DEGREE": "option.tensor_parallel_degree",
    "PIPELINE_PARALLEL_DEGREE": "option.pipeline_parallel_degree",
    "OPTION_ENGINE": "engine",  # ModelInfo.java, from 0.27.0 on
    "OPTION_ENTRYPOINT": "option.entryPoint",  # PyModel reads this variable itself, which no lower case would be
}
PREFIXES = {"OPTION_": "option.", "SERVING_": ""}


def parse_properties(text: str) -> dict[str, str]:
    """Keys and values as ``java.util.Properties`` reads them; the last of two equal keys wins."""
    lines = (parse_line(line) for line in text.splitlines())
    return {line["key"]: line["value"] for line in lines if line is not None}


def parse_line(line: str) -> re.Match[str] | None:
    """``key`` and ``value`` of a line; None for a comment and for what Java would not take as a setting."""
    return LINE.fullmatch(line + " ")


def environment_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The settings among environment variables: OPTION_X is option.x, SERVING_Y is y."""
    settings = {}
    for name, value in environment.items():
        if name in ENVIRONMENT_NAMES:
            settings[ENVIRONMENT_NAMES[name]] = value
            continue
        for prefix, key_prefix in PREFIXES.items():
            if name.startswith(prefix):
                settings[key_prefix + name.removeprefix(prefix).lower()] = value
    return settings


def merge_settings(text: str, environment: Mapping[str, str]) -> dict[str, str]:
    """What holds: the file beats the environment."""
    return environment_settings(environment) | parse_properties(text)


def write_properties(settings: Mapping[str, str]) -> str:
    """The settings as a file."""
    return "".join(f"{key}={value}\n" for key, value in settings.items())
