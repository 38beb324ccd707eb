"""Offline checks of a filled model repository: by protobuf, for what is unfilled, for the ensemble's wiring."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tritonclient.grpc.model_config_pb2 import ModelConfig

PLACEHOLDER = re.compile(r"\$\{(\w+)\}")
PARSE_POSITION = re.compile(r"^(\d+):(\d+) : ")
NEEDED_PARAMETERS = frozenset({"tokenizer_dir", "gpt_model_path"})
"""String parameters without a default in the backend: left unfilled they are taken for a path."""


@dataclass(frozen=True)
class Finding:
    """One thing that a check found. An ``error`` stops the server from loading the model; a ``note`` does not."""

    severity: Literal["error", "note"]
    model: str
    message: str
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.severity} in {self.model}: {self.message}" + (f" ({self.fix})" if self.fix else "")


def check_repository(folder: Path) -> list[Finding]:
    """Check every model of ``folder`` and how they fit together; errors first."""
    findings: list[Finding] = []
    configs: dict[str, ModelConfig] = {}
    for path in sorted(folder.glob("*/config.pbtxt")):
        name = path.parent.name
        if not (path.parent / "1").is_dir():
            findings.append(Finding("error", name, "the version folder 1/ is missing", "create it, it may be empty"))
        config, found = check_config(name, path.read_text(encoding="utf-8"))
        findings += found
        if config is not None:
            configs[name] = config
    if not configs and not findings:
        findings.append(Finding("error", str(folder), "holds no model", "write the repository first"))
    findings += check_wiring(configs)
    findings += check_decoupling(configs)
    return sorted(findings, key=lambda finding: finding.severity)


def check_config(name: str, text: str) -> tuple["ModelConfig | None", list[Finding]]:
    """Parse one config.pbtxt as Triton does. The config is None when it does not parse."""
    from google.protobuf import text_format
    from tritonclient.grpc.model_config_pb2 import ModelConfig

    unfilled = [_unfilled(name, number, line) for number, line in enumerate(text.splitlines(), 1) if _bare(line)]
    if unfilled:
        return None, unfilled
    try:
        config = text_format.Parse(text, ModelConfig())
    except text_format.ParseError as error:
        return None, [_parse_finding(name, text, str(error))]
    findings = []
    if config.name != name:
        findings.append(Finding("error", name, f"its name is {config.name!r}", "Triton wants the folder's name"))
    if PLACEHOLDER.search(config.backend):
        findings.append(Finding("error", name, f"backend is still {config.backend!r}", "fill triton_backend"))
    return config, findings + _check_parameters(name, config)


def _bare(line: str) -> bool:
    """A placeholder outside quotes: its field is a number, a boolean or a data type."""
    return bool(PLACEHOLDER.search(re.sub(r'"[^"]*"', "", line)))


def _unfilled(name: str, number: int, line: str) -> Finding:
    variables = ", ".join(PLACEHOLDER.findall(line))
    return Finding("error", name, f"line {number} is not filled: {line.strip()}", f"give a value for {variables}")


def _parse_finding(name: str, text: str, message: str) -> Finding:
    position = PARSE_POSITION.match(message)
    if position is None:
        return Finding("error", name, f"not a model configuration: {message}")
    lines = text.splitlines()
    number = int(position[1])
    line = lines[number - 1].strip() if number <= len(lines) else "(end of file)"
    return Finding("error", name, f"line {number}: {message[position.end() :]}: {line}")


def _check_parameters(name: str, config: "ModelConfig") -> list[Finding]:
    findings = []
    defaulted = []
    for key, parameter in sorted(config.parameters.items()):
        variable = PLACEHOLDER.search(parameter.string_value)
        if parameter.string_value and variable is None:
            continue
        if key in NEEDED_PARAMETERS:
            message = f"parameter {key} is still {parameter.string_value!r}"
            findings.append(Finding("error", name, message, f"fill {variable[1] if variable else 'it'}"))
        else:
            defaulted.append(key)
    if defaulted:
        message = f"{len(defaulted)} parameters are left out: the backend takes its defaults: {', '.join(defaulted)}"
        findings.append(Finding("note", name, message))
    return findings


def check_decoupling(configs: Mapping[str, "ModelConfig"]) -> list[Finding]:
    """The model and its BLS must agree on decoupled mode."""
    flags = {
        name: configs[name].model_transaction_policy.decoupled
        for name in ("tensorrt_llm", "tensorrt_llm_bls")
        if name in configs
    }
    if len(set(flags.values())) < 2:
        return []
    message = "decoupled is " + " and ".join(f"{flag} in {name}" for name, flag in flags.items())
    return [Finding("error", "tensorrt_llm_bls", message, "fill decoupled_mode with one value in both")]


def check_wiring(configs: Mapping[str, "ModelConfig"]) -> list[Finding]:
    """Follow each ensemble's tensors: what protobuf cannot see."""
    return [
        Finding("error", name, message)
        for name, config in configs.items()
        if config.HasField("ensemble_scheduling")
        for message in _follow(config, configs)
    ]


def _follow(ensemble: "ModelConfig", configs: Mapping[str, "ModelConfig"]) -> list[str]:
    problems: list[str] = []
    available = {tensor.name: tensor.data_type for tensor in ensemble.input}
    for step in ensemble.ensemble_scheduling.step:
        model = configs.get(step.model_name)
        if model is None:
            problems.append(f"step {step.model_name}: no such model in the repository, or it does not parse")
            continue
        inputs = {tensor.name: tensor for tensor in model.input}
        outputs = {tensor.name: tensor for tensor in model.output}
        for key, source in sorted(step.input_map.items()):
            if key not in inputs:
                problems.append(f"step {step.model_name}: it has no input {key}")
            elif source not in available:
                problems.append(f"step {step.model_name}: input {key} reads {source}, which no earlier step gives")
            elif available[source] != inputs[key].data_type:
                problems.append(
                    f"step {step.model_name}: input {key} is {_type(inputs[key].data_type)} "
                    f"and reads {source}, which is {_type(available[source])}"
                )
        problems += [
            f"step {step.model_name}: its required input {tensor.name} is not mapped"
            for tensor in model.input
            if not tensor.optional and tensor.name not in step.input_map
        ]
        for key, target in sorted(step.output_map.items()):
            if key not in outputs:
                problems.append(f"step {step.model_name}: it has no output {key}")
            else:
                available[target] = outputs[key].data_type
    problems += [
        f"output {tensor.name} is given by no step" for tensor in ensemble.output if tensor.name not in available
    ]
    return problems


def _type(number: int) -> str:
    from tritonclient.grpc.model_config_pb2 import DataType

    return str(DataType.Name(number))
