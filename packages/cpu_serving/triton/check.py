"""Offline checks of a filled model repository: by protobuf, for what is unfilled, for the ensemble's wiring.

The files are read and the ensemble's tensors followed by the checker's own code, :mod:`trtllm_check.lint.pbtxt`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trtllm_check.lint.pbtxt import PLACEHOLDER, TRUE, ConfigError, Message, loose_ends, read_config, refusal

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
    configs: dict[str, Message | None] = {}
    for path in sorted(folder.glob("*/config.pbtxt")):
        name = path.parent.name
        if not (path.parent / "1").is_dir():
            findings.append(Finding("error", name, "the version folder 1/ is missing", "create it, it may be empty"))
        configs[name], found = check_config(name, path.read_text(encoding="utf-8"))
        findings += found
    if not configs:
        findings.append(Finding("error", str(folder), "holds no model", "write the repository first"))
    findings += check_wiring(configs)
    findings += check_decoupling(configs)
    return sorted(findings, key=lambda finding: finding.severity)


def check_config(name: str, text: str) -> tuple[Message | None, list[Finding]]:
    """Read one config.pbtxt as Triton does. The message is None when Triton would not read it."""
    try:
        config = read_config(text)
    except ConfigError as error:
        return None, [_parse_finding(name, text, refusal(text) or error)]
    if unfilled := _unfilled(name, text, config):
        return None, unfilled
    if refused := refusal(text):
        return None, [_parse_finding(name, text, refused)]
    findings = []
    if config.text("name") != name:
        findings.append(
            Finding("error", name, f"its name is {config.text('name')!r}", "Triton wants the folder's name")
        )
    if PLACEHOLDER.search(config.text("backend")):
        message = f"backend is still {config.text('backend')!r}"
        findings.append(Finding("error", name, message, "fill triton_backend"))
    return config, findings + _check_parameters(name, config)


def _unfilled(name: str, text: str, config: Message) -> list[Finding]:
    """Placeholders outside quotes: their fields are numbers, booleans or data types."""
    bare = (value for _, value in config.all_scalars() if not value.quoted and PLACEHOLDER.search(value.text))
    lines = text.splitlines()
    return [
        Finding(
            "error",
            name,
            f"line {number} is not filled: {lines[number - 1].strip()}",
            f"give a value for {', '.join(PLACEHOLDER.findall(lines[number - 1]))}",
        )
        for number in sorted({value.line for value in bare})
    ]


def _parse_finding(name: str, text: str, error: ConfigError) -> Finding:
    lines = text.splitlines()
    line = lines[error.line - 1].strip() if error.line <= len(lines) else "(end of file)"
    return Finding("error", name, f"line {error.line}: {error.message}: {line}")


def _check_parameters(name: str, config: Message) -> list[Finding]:
    findings = []
    defaulted = []
    parameters = {entry.text("key"): entry.messages("value") for entry in config.messages("parameters")}
    for key, values in sorted(parameters.items()):
        value = values[-1].text("string_value") if values else ""
        variable = PLACEHOLDER.search(value)
        if value and variable is None:
            continue
        if key in NEEDED_PARAMETERS:
            fix = f"fill {variable[1] if variable else 'it'}"
            findings.append(Finding("error", name, f"parameter {key} is still {value!r}", fix))
        else:
            defaulted.append(key)
    if defaulted:
        message = f"{len(defaulted)} parameters are left out: the backend takes its defaults: {', '.join(defaulted)}"
        findings.append(Finding("note", name, message))
    return findings


def check_decoupling(configs: Mapping[str, Message | None]) -> list[Finding]:
    """The model and its BLS must agree on decoupled mode."""
    pair = {name: configs.get(name) for name in ("tensorrt_llm", "tensorrt_llm_bls")}
    flags = {name: _is_decoupled(config) for name, config in pair.items() if config is not None}
    if len(set(flags.values())) < 2:
        return []
    message = "decoupled is " + " and ".join(f"{flag} in {name}" for name, flag in flags.items())
    return [Finding("error", "tensorrt_llm_bls", message, "fill decoupled_mode with one value in both")]


def _is_decoupled(config: Message) -> bool:
    policies = config.messages("model_transaction_policy")
    return bool(policies) and policies[-1].text("decoupled").lower() in TRUE


def check_wiring(configs: Mapping[str, Message | None]) -> list[Finding]:
    """Follow each ensemble's tensors: what protobuf cannot see. None: a model that does not parse."""
    read = {name: config for name, config in configs.items() if config is not None}
    return [
        Finding("error", name, loose.problem)
        for name, config in read.items()
        if config.messages("ensemble_scheduling")
        for loose in loose_ends(config, read)
        if loose.model not in configs
    ]
