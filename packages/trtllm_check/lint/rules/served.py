"""Servers and engines that a text starts: the model, and the options under one name, however they are written.

``vllm serve --tensor-parallel-size 4``, ``LLM(tensor_parallel_size=4)`` and LMI's ``OPTION_TENSOR_PARALLEL_DEGREE=4``
say the same; rules on values read them here.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from trtllm_check.lint.carriers.python_calls import Call
from trtllm_check.lint.carriers.settings import Setting
from trtllm_check.lint.carriers.workloads import ServedContainer
from trtllm_check.lint.document import Document
from trtllm_check.lint.held_arguments import SAME_MODEL
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.lookups import once
from trtllm_check.lint.rules.downloads import plain
from trtllm_check.lint.rules.hub_names import as_hub
from trtllm_check.lint.rules.model_folders import model_folders
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.shell.words import Word
from trtllm_check.serving_properties import environment_settings

VLLM, TENSORRT_LLM, LMI = "vllm", "tensorrt_llm", "the LMI container"
AWS_VLLM = "the vLLM container"  # of AWS, whose variables are vLLM's options
OF_AWS = "SM_VLLM_"
RAY = "LLMConfig"  # of Ray Serve, with arguments of vLLM's engine
SHORT = {
    "-tp": "tensor_parallel_size",
    "-pp": "pipeline_parallel_size",
    "-dp": "data_parallel_size",
    "-q": "quantization",
    "-sc": "speculative_config",
    "-cc": "compilation_config",
    "-n": "nnodes",
    "-r": "node_rank",
    "-ep": "enable_expert_parallel",
    "-dcp": "decode_context_parallel_size",
    "-dpl": "data_parallel_size_local",
    "-dpn": "data_parallel_rank",
    "-dpe": "data_parallel_external_lb",
    "-dph": "data_parallel_hybrid_lb",
    "-asc": "api_server_count",
    "-ac": "attention_config",
}
TRUST = "trust_remote_code"
SAME = {
    "tensor_parallel_degree": "tensor_parallel_size",
    "pipeline_parallel_degree": "pipeline_parallel_size",
    "tp_size": "tensor_parallel_size",
    "pp_size": "pipeline_parallel_size",
    "tp": "tensor_parallel_size",
    "pp": "pipeline_parallel_size",
    "model_id": "model",
    "hf_model_id": "model",
    "max_rolling_batch_size": "max_num_seqs",
    "quantize": "quantization",
}
MODEL_SETTINGS = ("HF_MODEL_ID", "OPTION_MODEL_ID")
DJL_MODEL = "DJLModel"  # of SageMaker's SDK
OF_DJL_MODEL = {"modelid": "model", "tensorparalleldegree": "tensor_parallel_size", "dtype": "dtype"}
KIND_OF_IMAGE = re.compile(
    r"(?<![\d.])0\.\d+\.\d+-(lmi|tensorrtllm|deepspeed|neuronx|fastertransformer)"
    r"|\bdjl-(lmi|tensorrtllm|deepspeed|neuronx|fastertransformer)\b"
)
OURS = ("trtllm-serve", "trtllm-bench")
MAKERS = ("convert_checkpoint.py", "quantize.py")
SOURCES = ("--model_dir", "--hf_model_dir", "--model", "-m")


SIZED = re.compile(r"(?<![\w.])[\w.-]*\d+b(?![a-z])[\w.-]*$", re.IGNORECASE)


class Around(NamedTuple):
    """What stands around the starts of a text: each docker by its word, each workload by its file."""

    dockers: Mapping[int, Invocation]
    workloads: Sequence[ServedContainer]

    @classmethod
    def of(cls, document: Document) -> "Around":
        return cls({id(one.path): one for one in document.of("docker")}, document.workloads)

    def docker(self, one: "ServedModel") -> Invocation | None:
        """The docker run that ``one`` starts in."""
        words = one.invocation.launcher if one.invocation else ()
        return next((self.dockers[id(word)] for word in words if id(word) in self.dockers), None)

    def workload(self, one: "ServedModel") -> ServedContainer | None:
        """The container of compose or Kubernetes that ``one`` starts in."""
        inside = (each for each in self.workloads if each.file == one.file and each.holds(one.at.line))
        return next(inside, None)


class ServedModel(NamedTuple):
    """One start. ``options``: snake-case name -> value ("True" for a switch), at its place; ``flags``: as written.

    ``tool``: as people call it; ``engine``: whose options these are, "" for LMI's, whose engine is not told;
    ``invocation``: its command, if it is one; ``at``: where the start itself stands; ``is_open``: options come from
    elsewhere, or have values that the text does not tell. ``weights``: the model as the hub calls it, also where
    ``model`` is the folder that the text downloads it to.
    """

    engine: str
    tool: str
    model: str
    options: Mapping[str, Word]
    flags: Mapping[str, str]
    at: Word
    file: str = ""
    invocation: Invocation | None = None
    is_open: bool = False
    weights: str = ""

    @property
    def is_part(self) -> bool:
        """True for options alone, which are for a server that the text starts elsewhere."""
        return self.invocation is not None and any(word.text == SAME_MODEL for word in self.invocation.arguments)

    def number(self, name: str) -> int | None:
        """The whole number that the option is, None where it is left out or the reader fills it in."""
        word = self.options.get(name)
        text = word.text.replace("_", "") if word is not None else ""
        return int(text) if text.isascii() and text.isdecimal() and len(text) < 9 else None

    def is_on(self, name: str) -> bool:
        word = self.options.get(name)
        return word is not None and word.text.lower() not in ("false", "0", "no")

    def flag(self, name: str) -> str:
        return self.flags.get(name, name)

    def place(self, name: str) -> Word:
        return self.options.get(name) or self.at

    @property
    def gpus(self) -> int:
        """GPUs of all replicas that vLLM starts itself on this machine."""
        replicas = self.number("data_parallel_size_local") or self.number("data_parallel_size") or 1
        return self.ranks * (replicas if self.engine == VLLM else 1)

    @property
    def ranks(self) -> int:
        """GPUs of one replica: tp x pp, 1 where nothing is said."""
        return (self.number("tensor_parallel_size") or 1) * (self.number("pipeline_parallel_size") or 1)


@once
def served(document: Document) -> Iterator[ServedModel]:
    """Every start of vLLM, trtllm-serve, ``LLM(...)``, of an LMI container, and every conversion to ranks."""
    folders = dict(model_folders(document))
    for one in _starts(document):
        yield one._replace(weights=as_hub(folders.get(plain(one.model), one.model) if folders else one.model))


def _starts(document: Document) -> Iterator[ServedModel]:
    for one in document.invocations:
        if one.tool == "vllm" and (not one.positional or one.positional[0].text == "serve"):
            yield _command(one, VLLM, f"{one.tool} serve")
        elif one.tool in (*OURS, *MAKERS):
            yield _command(one, TENSORRT_LLM, one.tool)
    for call in document.calls:
        if call.name in ("LLM", "EngineArgs", "AsyncEngineArgs", RAY):
            yield _call(call)
    yield from _lmi(document)
    yield from _aws_vllm(document)


def _command(one: Invocation, engine: str, tool: str) -> ServedModel:
    options: dict[str, Word] = {}
    flags: dict[str, str] = {}
    for given in one.given:
        if not given.flag.startswith("-"):
            continue
        name = SHORT.get(given.name) or given.name.lstrip("-").replace("-", "_")
        name = SAME.get(name, name)
        options[name] = given.values[0] if given.values else Word("True", given.word.line, given.word.column)
        flags[name] = given.name
    operands = [word.text for word in one.positional if word.text not in ("serve", "throughput", "latency", "build")]
    named = [_folder(word.text) for word in one.values(*SOURCES)]
    operands = [_folder(text) for text in operands[:1]]
    model = "" if any(map(is_open, [*named, *operands])) else (named or operands or [""])[0]
    more = any(is_open(_folder(word.text)) for word in one.arguments)
    return ServedModel(engine, tool, model, options, flags, one.path, one.command.file, one, more)


def _folder(text: str) -> str:
    """A folder or a prefix whose place is unknown by its own name: ``$MODELS/Qwen2.5-7B-Instruct``."""
    last = text.rstrip("/").rpartition("/")[2]
    return f"./{last}" if is_open(text) and SIZED.search(last) and not is_open(last) else text


def _call(call: Call) -> ServedModel:
    options = {SAME.get(name, name): word for name, word in call.values}
    for word in call.arguments:
        if word.text == TRUST:  # a variable may say so
            options.setdefault(TRUST, Word("True", word.line, word.column))
    model = options["model"].text if "model" in options else ""
    flags = {name: name for name in options}
    at = call.arguments[0] if call.arguments else options.get("model", Word(call.name, 1, 1))
    more = call.is_open or any(SAME.get(word.text, word.text) not in options for word in call.arguments)
    return ServedModel(call.api, call.name, model, options, flags, at, call.file, is_open=more)


def _aws_vllm(document: Document) -> Iterator[ServedModel]:
    """``SM_VLLM_TENSOR_PARALLEL_SIZE`` among the variables of a container."""
    for call in document.aws_calls:
        for name, table in ((name, one) for each in call.settings.tables() for name, one in each.items):
            given = [one for _, one in table.items if one.written.startswith(OF_AWS)]
            if name not in ("environment", "env") or not given:
                continue
            known = {one.written.removeprefix(OF_AWS).lower(): one for one in given}
            options = {
                name: Word(one.text, one.place.line, one.place.column)
                for name, one in known.items()
                if one.kind != "open"
            }
            model = options["model"].text if "model" in options and not is_open(options["model"].text) else ""
            flags = {name: one.written for name, one in known.items()}
            more = len(options) < len(known) or any(name == "<<" for name, _ in table.items)
            yield ServedModel(VLLM, AWS_VLLM, model, options, flags, given[0].place, call.file, is_open=more)


def _lmi(document: Document) -> Iterator[ServedModel]:
    """The variables of one LMI container, and each serving.properties."""
    found: dict[str, Word] = {}
    flags: dict[str, str] = {}
    for variable, word in document.lmi_environment.items():
        for key in environment_settings({variable: word.text}):
            name = key.removeprefix("option.").lower()
            found[SAME.get(name, name)] = word
            flags[SAME.get(name, name)] = variable
    for call in document.aws_calls if "model" not in found else ():
        for name, setting in call.settings.items if call.name == DJL_MODEL else ():
            if name in OF_DJL_MODEL and setting.kind in ("text", "number"):
                found.setdefault(OF_DJL_MODEL[name], Word(setting.text, setting.place.line, setting.place.column))
                flags.setdefault(OF_DJL_MODEL[name], setting.written or name)
    for one in _model_settings(document) if found and "model" not in found else ():
        found["model"], flags["model"] = Word(one.text, one.place.line, one.place.column), one.written
    of_vllm = _is_of_vllm(document)
    if found:
        yield _container(found, flags, "", of_vllm=of_vllm)
    for file in document.properties:
        found, flags = {}, {}
        for number, line in enumerate(file.text.split("\n")):
            key, sign, value = line.partition("=")
            if sign and key.strip().startswith("option."):
                name = key.strip().removeprefix("option.").lower()
                found[SAME.get(name, name)] = Word(value.strip(), file.line_of(number), 1)
                flags[SAME.get(name, name)] = key.strip()
        if found:
            yield _container(found, flags, file.path, of_vllm=of_vllm)


def _is_of_vllm(document: Document) -> bool:
    """True where every image that the text names is LMI's own, which starts vLLM where no engine is asked for."""
    kinds = {match[1] or match[2] for _, text in document.texts for match in KIND_OF_IMAGE.finditer(text)}
    return kinds == {"lmi"}


def _model_settings(document: Document) -> Iterator[Setting]:
    """The model among the variables of a call or a resource, where the variables alone do not tell it."""
    for call in document.aws_calls:
        for table in call.settings.tables():
            for _, one in table.items:
                if one.written in MODEL_SETTINGS and one.kind == "text":
                    yield one


def _container(found: dict[str, Word], flags: dict[str, str], file: str, *, of_vllm: bool) -> ServedModel:
    batch = found["rolling_batch"].text if "rolling_batch" in found else ""
    engine = {"vllm": VLLM, "lmi-dist": VLLM, "trtllm": TENSORRT_LLM}.get(batch, "")
    inferred = of_vllm and batch in ("", "auto") and "entrypoint" not in found
    engine = VLLM if inferred else engine  # lmi-dist up to 0.32.0, which is vLLM, too
    model = _folder(found["model"].text) if "model" in found else ""
    model = "" if is_open(model) else model
    return ServedModel(engine, LMI, model, found, flags, next(iter(found.values())), file, is_open=inferred)
