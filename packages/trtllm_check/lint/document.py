"""One input with everything in it: commands, configurations, requests, and what they say about the model."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from trtllm_check.lint.carriers.aws_calls import AwsCall
from trtllm_check.lint.carriers.aws_cli import names_a_machine
from trtllm_check.lint.carriers.cluster_objects import ClusterObject
from trtllm_check.lint.carriers.faults import FormFault
from trtllm_check.lint.carriers.python_calls import Call
from trtllm_check.lint.carriers.python_tensors import TensorUse
from trtllm_check.lint.carriers.used_names import UsedName
from trtllm_check.lint.carriers.workloads import ClusterService, ServedContainer
from trtllm_check.lint.engine_json import is_config
from trtllm_check.lint.facts import NOTHING_KNOWN, DocumentFacts, Origins, agreed, config_facts
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.kinds import Kind
from trtllm_check.lint.lookups import Lookups
from trtllm_check.lint.mounts import Mount
from trtllm_check.lint.programs import MODEL_IMAGE, VLLM_IMAGE
from trtllm_check.lint.shell import Place, ShellCommand, Word
from trtllm_check.lint.trees import draws
from trtllm_check.lint.unread import Unread, is_strange
from trtllm_check.lint.written_requests import WrittenRequest, is_request, json_object

OUR_SCRIPT = re.compile(r"(?:^|/)(?:inflight_batcher_llm/client|tools/(?:inflight_batcher_llm|gpt))/[\w-]+\.py$")
# A chart that is installed, and arguments that somebody's own YAML or Ray Serve hands to an engine.
DEPLOYMENT = re.compile(
    r"^[ \t]*(?:\$ )?(?:sudo )?helm (?:install|upgrade|template) |^kind: InferencePool"
    r"|^[ \t]*(?:\$ )?kubectl [^\n]*(?:vllm|trtllm|triton)|^[^\n#]*\bmultinode_ptq\.py[ \t]"
    r"|^[ \t\"'-]*(?:\w+[ =]+[\w.]*completion\()?model[\"']?[ ]*[:=][ ]*[\"']?hosted_vllm/"
    r"|^[ ]*model:[ ]*[\"']?openai/[\w./-]+[\"']?[ ]*\n[ ]*api_base:|^OPENAI_(?:API_)?BASE(?:_URL)?=http://[\w.-]*vllm"
    r"|[ \t]--use_(?:gpt_attention|gemm|rmsnorm|smooth_quant)\w*plugin\b"
    r"|^[^\n#]*\b(?:ray start[ ]+--|(?:apptainer|singularity) (?:run|exec) )"
    r"|^[ \t-]*(?:engine_kwargs|extraArgs|backend_parameters)\b|\bengine_kwargs\s*="
    r"|\brun_cluster\.sh[ \t]+\S|^[ -]*nvidia\.com/gpu:[ \t]*\S|\boption\.(?:\w*rolling_batch|model_id|quantize)"
    r"|/v2/models/[\w${}-]+/(?:versions/\w+/)?(?:infer|generate|generate_stream)\b"
    r"|\b\d{9,14}\.dkr\.ecr\.[a-z\d-]+\.amazonaws\.com[\w.]*/[\w/-]+|\b(?:djl-inference|huggingface-\w+-tgi-inference):\d",
    re.MULTILINE,
)
UNCERTAIN = ("Model", "deploy")  # of any SDK
CONFIG: Kind = "config.pbtxt"


class ConfigFile(NamedTuple):
    """One config.pbtxt or config.json; ``line``: where ``text`` begins in ``path``, else in the pasted text.

    ``places``: of each character, where ``text`` was put together from another; ``is_file``: no piece of a page.
    """

    path: str
    text: str
    model: str
    line: int = 1
    places: tuple[Place, ...] = ()
    is_file: bool = False

    @property
    def fields(self) -> dict[str, Any]:
        """A JSON object; empty for a text that is none."""
        return json_object(self.text) or {}

    def key(self, name: str) -> Word:
        """Where the key ``name`` of JSON stands."""
        index = max(self.text.find(f'"{name}"'), 0)
        before = self.text[:index]
        return Word(name, self.line + before.count("\n"), index - (before.rfind("\n") + 1) + 1)


class PropertiesFile(NamedTuple):
    """One serving.properties, placed as :class:`ConfigFile`; ``lines``: of each line, where they do not follow."""

    path: str
    text: str
    line: int = 1
    lines: tuple[int, ...] = ()

    def line_of(self, number: int) -> int:
        """The line of the input where line ``number`` of the text stands, from 0."""
        return self.lines[number] if self.lines else self.line + number

    def line_at(self, index: int) -> int:
        """The line of the input where the character ``index`` of the text stands."""
        return self.line_of(self.text.count("\n", 0, index))


class VariableList(NamedTuple):
    """Lines of ``template_variable:value`` on a page; ``first`` is the number of their first line."""

    lines: tuple[str, ...]
    first: int
    file: str = ""


# An image of vLLM in a variable of a .env or of Terraform.
PINNED = re.compile(r"^[ \t]*(?:[A-Z][A-Z0-9_]*IMAGE=|default[ \t]*=[ \t]*)[\"']?vllm/vllm-openai:v\d", re.MULTILINE)


@dataclass(frozen=True)
class Document:
    """``facts`` holds for the whole input, :meth:`facts_of` for one invocation and what it reads.

    ``lmi_environment``: settings of an LMI container among environment variables: name -> value, at its place.
    ``said``: what each invocation says by itself of a model.
    ``unread``: lines that say nothing to the checker; ``unreadable``: files that the system does not open;
    ``left_out``: how many files of a folder are beyond what is read.
    ``texts``: file ("" for a single text) and what was read; ``windows``: its shell, where it is one of Windows.
    ``option_files``: YAML that trtllm-serve and its like read the LLM API's options from; ``calls``: of Python APIs.
    ``workloads``: containers of compose and Kubernetes, ``services``: Kubernetes' services; ``aws_calls``: what
    tells SageMaker; ``faults``: what the readers of YAML and Dockerfiles saw; ``names``: of Python packages;
    ``tensors``: that Python names; ``ours``: a file of a server or a model.
    ``commands``: with those of their scripts, of ``bash -c`` and of what is written to a file, each behind its holder.
    """

    commands: tuple[ShellCommand, ...] = ()
    invocations: tuple[Invocation, ...] = ()
    configs: tuple[ConfigFile, ...] = ()
    properties: tuple[PropertiesFile, ...] = ()
    lmi_environment: Mapping[str, Word] = field(default_factory=dict)
    requests: tuple[WrittenRequest, ...] = ()
    images: tuple[Word, ...] = ()
    mounts: tuple[Mount, ...] = ()
    json_configs: tuple[ConfigFile, ...] = ()
    file_facts: tuple[DocumentFacts, ...] = ()
    said: tuple[DocumentFacts, ...] = ()
    variable_lists: tuple[VariableList, ...] = ()
    unread: tuple[Unread, ...] = ()
    unreadable: tuple[str, ...] = ()
    left_out: int = 0
    texts: tuple[tuple[str, str], ...] = field(default=(), repr=False, compare=False)
    windows: str = ""
    option_files: tuple[ConfigFile, ...] = ()
    calls: tuple[Call, ...] = ()
    workloads: tuple[ServedContainer, ...] = ()
    services: tuple[ClusterService, ...] = ()
    objects: tuple[ClusterObject, ...] = ()
    aws_calls: tuple[AwsCall, ...] = ()
    faults: tuple[FormFault, ...] = ()
    names: tuple[UsedName, ...] = ()
    tensors: tuple[TensorUse, ...] = ()
    ours: bool = False

    @property
    def is_understood(self) -> bool:
        """True if there is anything in it that the checker has rules for, or a whole file of what they are about."""
        return self.has_anything or self.ours

    @cached_property
    def has_anything(self) -> bool:
        """True if there is anything in it that the checker has rules for."""
        known = (
            self.configs,
            self.properties,
            self.lmi_environment,
            self.variable_lists,
            self.option_files,
            self.faults,
            self.names,
            [one for one in self.calls if one.api != "openai" or any("//" in word.text for _, word in one.values)],
            [one for one in self.aws_calls if one.name not in UNCERTAIN],
            [one for one in self.commands if names_a_machine(one)],
            [one for one in self.commands if any(VLLM_IMAGE.search(word.text) for word in one.words[3:])],
            [one for one in self.commands if any(OUR_SCRIPT.search(word.text) for word in one.words[:3])],
            [one for one in self.workloads if MODEL_IMAGE.search(one.image)],
            [one for one in self.images if MODEL_IMAGE.search(one.text)],
            [text for _, text in self.texts if PINNED.search(text)],
        )
        return (
            any(known)
            or any(not is_strange(one) or one.command.cuts for one in self.invocations)
            or any(one.url or is_request(one.fields) for one in self.requests)
            or any(DEPLOYMENT.search(text) or draws(text, CONFIG) for _, text in self.texts)
            or any(
                is_config(json_object(one.text)) or config_facts(one.text) != NOTHING_KNOWN for one in self.json_configs
            )
        )

    def of(self, *tools: str) -> tuple[Invocation, ...]:
        """The invocations of any of ``tools``, in order."""
        return self.lookups.of(tools)

    def facts_of(self, invocation: Invocation) -> DocumentFacts:
        """What is known of the checkpoint or engine that ``invocation`` reads or writes."""
        return self._origins.facts_of(invocation)

    @cached_property
    def facts(self) -> DocumentFacts:
        """What all commands and files agree on."""
        return agreed([*self.said, *self.file_facts])

    @cached_property
    def lookups(self) -> Lookups:
        """Who is where in the text."""
        return Lookups(self.commands, self.invocations)

    @cached_property
    def _origins(self) -> Origins:
        return Origins(self.invocations, self.said, self.file_facts)
