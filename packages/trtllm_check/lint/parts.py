"""What the texts of a document hold, as their readers find it."""

import re
from dataclasses import dataclass, field

from trtllm_check.lint.carriers.aws_calls import AwsCall
from trtllm_check.lint.carriers.cluster_objects import ClusterObject
from trtllm_check.lint.carriers.faults import FormFault
from trtllm_check.lint.carriers.python_calls import Call
from trtllm_check.lint.carriers.python_tensors import TensorUse
from trtllm_check.lint.carriers.used_names import UsedName
from trtllm_check.lint.carriers.workloads import ClusterService, ServedContainer
from trtllm_check.lint.document import ConfigFile, PropertiesFile, VariableList
from trtllm_check.lint.facts import DocumentFacts
from trtllm_check.lint.shell import ShellCommand, Word
from trtllm_check.lint.written_requests import WrittenRequest, json_object
from trtllm_check.serving_properties import ENVIRONMENT_NAMES, PREFIXES


@dataclass
class Parts:
    """By kind, in the order of the texts; the names as in :class:`~trtllm_check.lint.document.Document`."""

    is_named: bool = False  # the only text is a file whose name tells its kind
    unreadable: list[str] = field(default_factory=list)
    left_out: int = 0
    sources: list[tuple[str, str]] = field(default_factory=list)
    variable_lists: list[VariableList] = field(default_factory=list)
    texts: list[tuple[str, list[ShellCommand], set[int], str]] = field(
        default_factory=list
    )  # with the lines that are read already
    commands: list[ShellCommand] = field(default_factory=list)
    configs: list[ConfigFile] = field(default_factory=list)
    properties: list[PropertiesFile] = field(default_factory=list)
    requests: list[WrittenRequest] = field(default_factory=list)
    environment: dict[str, Word] = field(default_factory=dict)
    json_configs: list[ConfigFile] = field(default_factory=list)
    file_facts: list[DocumentFacts] = field(default_factory=list)
    images: list[Word] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    of_triton: list[Call] = field(default_factory=list)  # model.json, which a model in Python reads as it likes
    workloads: list[ServedContainer | ClusterService | ClusterObject] = field(default_factory=list)
    aws_calls: list[AwsCall] = field(default_factory=list)
    faults: list[FormFault] = field(default_factory=list)
    names: list[UsedName] = field(default_factory=list)
    tensors: list[TensorUse] = field(default_factory=list)
    windows: str = ""
    ours: bool = False
    yaml: list[ConfigFile] = field(default_factory=list)
    depth: int = 0
    dotenv: dict[str, str] = field(default_factory=dict)

    def add_environment(self, whole: Word) -> None:
        """Lines of NAME=value, or a JSON object."""
        content = json_object(whole.text)
        if content is not None:
            for key, value in content.items():
                at = whole.part(max(whole.text.find(f'"{key}"'), 0))
                self.add_value(key, Word(str(value), at.line, at.column))
            return
        position = 0
        for line in whole.text.split("\n"):
            match = re.match(r"\s*(?:export\s+|-e\s+)?(?=[A-Za-z_]\w*=)", line)
            if match:
                self.add_variable(whole.part(position + match.end(), position + len(line.rstrip())))
            position += len(line) + 1

    def add_variable(self, word: Word) -> None:
        name, sign, value = word.text.partition("=")
        if sign:
            self.add_value(name, word.part(len(name) + 1) if value else Word("", word.line, word.column))

    def add_value(self, name: str, value: Word) -> None:
        if name in ENVIRONMENT_NAMES or name.startswith(tuple(PREFIXES)):
            self.environment[name] = value
