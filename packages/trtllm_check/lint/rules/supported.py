"""Models that the engine's release does not have: by the names that commands serve, and by config.json."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.rules.lmi_images import image_of
from trtllm_check.lint.rules.python_names import told_version
from trtllm_check.lint.rules.served import LMI, MAKERS, TENSORRT_LLM, VLLM, ServedModel, served
from trtllm_check.lint.rules.vllm_table import release_for
from trtllm_check.lint.shell.words import Word
from trtllm_check.lint.vllm_release import vllm_told
from trtllm_check.releases import known_releases
from trtllm_check.releases.lmi import lmi_images
from trtllm_check.releases.models import (
    Lack,
    NamedModel,
    lacks_tensorrt_llm,
    lacks_vllm,
    named_model,
    needs_own_code,
    parts,
    vllm_of_lmi,
)
from trtllm_check.releases.python_names import python_package

RULE = "model-not-supported"
LMI_IMAGE = "djl-inference"
OTHER_BACKENDS = ("_autodeploy", "autodeploy")
ENGINES = ("tensorrt", "trt")
LIBRARY = "transformers"
LOADS = re.compile(r"\bfrom transformers import|\bimport transformers\b|\btransformers\.(?:Auto|pipeline)")
OF_THE_LIBRARY = re.compile(  # classes whose config.json vLLM reads by transformers alone
    r"(?:Qwen2_5_VL|Qwen2VL|Qwen3|Qwen3Moe|Qwen3VL|Qwen3VLMoe|Gemma\d|Gemma3n|Llama4|GptOss|Mistral3|SmolLM3|Olmo\d|Glm4|Glm4Moe"
    r"|Granite\w*|Cohere2|Phi3|Starcoder2)For\w+"
)
OWN_CODE = re.compile(r"trust[_-]remote[_-]code(?!\s*=\s*False)")
CONTAINER = re.compile(r"\btransformers_version\s*=\s*[\"'](\d+\.\d+(?:\.\d+)?)[\"']")
MODEL_ID = re.compile(r"[\"']HF_MODEL_ID[\"']\s*:\s*[\"']([\w.-]+/[\w.-]+)[\"']")
REGISTERED = re.compile(r"\bModelRegistry\b|\bregister_model\(")
# The value of a key or a variable that a model's name is in.
NAMED = re.compile(
    r"(?:^|[{,\s])[\"']?(?:\w*[Mm]odel\w*|\w*MODEL\w*|repo|repoId|repo_id|id|name|default|uri|source)[\"']?[ \t]*"
    r"[:=][ \t]*[\"']?(?:hf://|huggingface://)?"
    r"(?P<model>[A-Za-z][\w.-]*/[\w.-]*[A-Za-z][\w.-]*)[\"']?[ \t]*(?=[,}\n#]|$)",
    re.MULTILINE,
)
OF_A_CHART = re.compile(
    r"\brepository:[ ]*[\"']?(?:docker\.io/)?vllm/vllm-openai[\"']?[ ]*\n[ ]*(?:pullPolicy:[^\n]*\n[ ]*)?"
    r"tag:[ ]*[\"']?v?(?P<version>\d+\.\d+\.\d+(?:\.post\d+)?)[\"']?[ ]*(?:#[^\n]*)?$",
    re.MULTILINE,
)
SURE = 4  # the weight of an image
OTHER_ENGINE = re.compile(
    r"sglang|text-generation-inference|tritonserver|trtllm|tensorrt|ollama|llama\.cpp", re.IGNORECASE
)
REPOSITORY = re.compile(r"[\"']([\w.-]+/[\w.-]+)[\"']")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family, one for each model."""
    said: set[str] = set()
    yield from _loaded(document, platform)
    yield from _in_a_container(document, platform)
    for one in served(document):
        model = named_model(one.weights) if one.weights else None
        if model is None or one.weights in said:
            continue
        for draft in _served(one, model, document, platform):
            said.add(one.weights)
            yield draft
    if not said:
        yield from _configs(document, platform)
        yield from _named(document, platform)


@lru_cache(maxsize=8)
def _registers(texts: tuple[tuple[str, str], ...]) -> bool:
    """True where the text brings a model's code of its own to vLLM."""
    return any(REGISTERED.search(text) for _, text in texts)


def _served(one: ServedModel, model: NamedModel, document: Document, platform: Platform) -> Iterator[Draft]:
    release = platform.release.name
    if one.engine == TENSORRT_LLM and one.tool != LMI:
        backend = one.options["backend"].text if "backend" in one.options else ""
        if platform.guessed or backend in OTHER_BACKENDS:
            return
        builds = one.tool in MAKERS or backend in ENGINES
        lack = lacks_tensorrt_llm(model.architecture, release, engine=builds)
        yield from _draft(one, lack, f"TensorRT-LLM {release}", release, builds=builds)
    elif one.engine == VLLM and one.tool != LMI:
        if _registers(document.texts):
            return  # an implementation of the reader's own
        told = release_for(document, one.invocation)
        version = parts(told.written) if told else ()
        lack = lacks_vllm(model, version)
        yield from _draft(one, lack, f"vLLM {'.'.join(map(str, version))}", release)
        if lack is None and OF_THE_LIBRARY.fullmatch(model.architecture) and "trust_remote_code" not in one.options:
            place = one.place("model") if "model" in one.options else _model_place(one)
            yield from _unknown_class(one.weights, model, place, one.file, document, platform)
    elif one.tool == LMI:
        yield from _container(one, model, document, platform)


def _named(document: Document, platform: Platform) -> Iterator[Draft]:
    """The one model of a text whose form no reader knows, beside the one image of vLLM that it names."""
    if any(OTHER_ENGINE.search(text) or "```" in text for _, text in document.texts):
        return  # a page may name an image beside another use of the model
    where = _of_a_chart(document)
    told = vllm_told(document) if where is None else None  # else a supposed one may come first
    if told is not None and told.weight >= SURE:
        where = told.release.written, told.file, told.line
    if where is None:
        return
    if any(one.engine == VLLM and one.tool != LMI and one.weights for one in served(document)) or _registers(
        document.texts
    ):
        return
    found = {
        match["model"]
        for _, text in document.texts
        for match in NAMED.finditer(text)
        if named_model(match["model"]) is not None
    }
    written, file, line = where
    version = parts(written)
    if len(found) != 1:
        return
    (name,) = found
    known = named_model(name)
    lack = lacks_vllm(known, version) if known is not None else None
    if lack is not None and lack.since:
        engine = f"vLLM {'.'.join(map(str, version))}"
        about: dict[str, Any] = {"model": name, "architecture": lack.architecture, "lacks": engine, "project": "vLLM"}
        about |= {"since": lack.since, "until": ""}
        image = dict(document.texts)[file].split("\n")[line - 1]
        place = Word(image.strip(), line, len(image) - len(image.lstrip()) + 1)
        yield from drafts(platform.release.name, RULE, place, file=file, **about)


def _of_a_chart(document: Document) -> tuple[str, str, int] | None:
    """The version, file and line of the one ``repository: vllm/vllm-openai`` with a ``tag`` below it."""
    found = [(file, text, match) for file, text in document.texts for match in OF_A_CHART.finditer(text)]
    if len(found) != 1:
        return None
    ((file, text, match),) = found
    return match["version"], file, text.count("\n", 0, match.start("version")) + 1


def _loaded(document: Document, platform: Platform) -> Iterator[Draft]:
    """Models that code loads with a release of transformers that does not know their class yet."""
    texts = [(file, text) for file, text in document.texts if "transformers" in text and LOADS.search(text)]
    if not texts or any(OWN_CODE.search(text) for _, text in document.texts):
        return
    said: set[str] = set()
    lines = {
        (one.file, number) for one in document.commands for number in range(one.line, one.end_line + 1)
    }  # of tools, which load models in ways of their own
    for file, text in texts:
        for match in REPOSITORY.finditer(text):
            if match[1] not in said:
                said.add(match[1])
                line = text.count("\n", 0, match.start()) + 1
                if (file, line) in lines:
                    continue
                place = Word(match[1], line, match.start(1) - text.rfind("\n", 0, match.start(1)))
                yield from _unknown_class(match[1], named_model(match[1]), place, file, document, platform)


def _in_a_container(document: Document, platform: Platform) -> Iterator[Draft]:
    """``HuggingFaceModel(transformers_version="4.37", env={"HF_MODEL_ID": ...})``: the container has that release."""
    package = python_package(LIBRARY)
    for file, text in document.texts if package is not None else ():
        versions = set(CONTAINER.findall(text)) if "HuggingFaceModel(" in text else set()
        if package is None or len(versions) != 1 or "image_uri" in text:
            continue
        version = versions.pop()
        for match in MODEL_ID.finditer(text):
            model = None if needs_own_code(match[1]) else named_model(match[1])
            lack = package.judge(f"{LIBRARY}.{model.architecture}", version) if model is not None else None
            if model is None or lack is None or lack.kind != "later":
                continue
            line = text.count("\n", 0, match.start()) + 1
            place = Word(match[1], line, match.start(1) - text.rfind("\n", 0, match.start(1)))
            known: dict[str, Any] = {"model": match[1], "architecture": model.architecture, "since": lack.since}
            known |= {"lacks": f"{LIBRARY} {version}", "project": LIBRARY, "until": ""}
            yield from drafts(platform.release.name, RULE, place, form="library", file=file, **known)


def _unknown_class(
    name: str, model: NamedModel | None, place: Word, file: str, document: Document, platform: Platform
) -> Iterator[Draft]:
    """A model whose class came after the release of transformers that the text tells."""
    package = python_package(LIBRARY)
    if package is None or model is None or needs_own_code(name):
        return
    told = told_version(document, LIBRARY, package, platform)
    if told.many or not package.near_releases(told.version):
        return
    lack = package.judge(f"{LIBRARY}.{model.architecture}", told.version)
    if lack is None or lack.kind != "later":
        return
    known: dict[str, Any] = {"model": name, "architecture": model.architecture, "since": lack.since}
    known |= {"lacks": f"{LIBRARY} {told.version}", "project": LIBRARY, "until": ""}
    yield from drafts(platform.release.name, RULE, place, form="library", file=file, **known)


def _container(one: ServedModel, model: NamedModel, document: Document, platform: Platform) -> Iterator[Draft]:
    """A model in the only LMI container that the text names, by its tag or by what SageMaker's SDK looks up."""
    release, said = platform.release.name, image_of(document, platform)
    tags = {word.text.rpartition(":")[2] for word in document.images if LMI_IMAGE in word.text}
    tags = tags or ({said.tag or said.said} if said.said and not said.others else set())
    tag = tags.pop() if len(tags) == 1 else ""
    holds = next((each.engine_release for each in lmi_images() if each.engine_release and tag == each.tag), "")
    version = vllm_of_lmi(tag) if tag else ""
    if holds and one.engine in ("", TENSORRT_LLM) and holds in known_releases():
        lack = lacks_tensorrt_llm(model.architecture, holds, engine=True)
        yield from _draft(one, lack, f"the container's TensorRT-LLM {holds}", release)
    elif version and one.engine != TENSORRT_LLM:
        yield from _draft(one, lacks_vllm(model, parts(version)), f"the container's vLLM {version}", release)


def _draft(one: ServedModel, lack: Lack | None, engine: str, release: str, *, builds: bool = False) -> Iterator[Draft]:
    if lack is None:
        return
    form = ("no engine" if builds else "") if lack.since else "gone" if lack.until else "never"
    place = one.place("model") if "model" in one.options else _model_place(one)
    known: dict[str, Any] = {"model": one.weights, "architecture": lack.architecture, "lacks": engine}
    project = engine.rpartition(" ")[0].removeprefix("the container's ")
    yield from drafts(
        release,
        RULE,
        place,
        form=form,
        invocation=None,
        file=one.file,
        project=project,
        since=lack.since,
        until=lack.until,
        **known,
    )


def _model_place(one: ServedModel) -> Word:
    words = one.invocation.arguments if one.invocation else ()
    return next((word for word in words if word.text == one.model), one.at)


def _configs(document: Document, platform: Platform) -> Iterator[Draft]:
    """config.json of a model that is to be served by the release that somebody names."""
    if platform.guessed:
        return
    release = platform.release.name
    for config in document.json_configs:
        classes = config.fields.get("architectures")
        for name in classes[:1] if isinstance(classes, list) else ():
            lack = lacks_tensorrt_llm(name, release) if isinstance(name, str) else None
            if lack is not None:
                known: dict[str, Any] = {
                    "model": name,
                    "architecture": name,
                    "lacks": f"TensorRT-LLM {release}",
                    "since": lack.since,
                }
                form = "" if lack.since else "never"
                known |= {"project": "TensorRT-LLM", "until": ""}
                yield from drafts(release, RULE, config.key("architectures"), form=form, file=config.path, **known)
