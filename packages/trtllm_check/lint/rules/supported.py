"""Models that the engine's release does not have: by the names that commands serve, and by config.json."""

from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.rules.served import LMI, MAKERS, TENSORRT_LLM, VLLM, ServedModel, served
from trtllm_check.lint.rules.vllm_table import release_for
from trtllm_check.lint.shell.words import Word
from trtllm_check.releases.models import (
    Lack,
    NamedModel,
    lacks_tensorrt_llm,
    lacks_vllm,
    named_model,
    parts,
    vllm_of_lmi,
)

RULE = "model-not-supported"
LMI_IMAGE = "djl-inference"
OTHER_BACKENDS = ("_autodeploy", "autodeploy")
ENGINES = ("tensorrt", "trt")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family, one for each model."""
    said: set[str] = set()
    for one in served(document):
        model = named_model(one.model) if one.model else None
        if model is None or one.model in said:
            continue
        for draft in _served(one, model, document, platform):
            said.add(one.model)
            yield draft
    if not said:
        yield from _configs(document, platform)


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
        told = release_for(document, one.invocation)
        version = parts(told.written) if told else ()
        yield from _draft(one, lacks_vllm(model, version), f"vLLM {'.'.join(map(str, version))}", release)
    elif one.tool == LMI:
        yield from _container(one, model, document, release)


def _container(one: ServedModel, model: NamedModel, document: Document, release: str) -> Iterator[Draft]:
    """A model in the only LMI container that the text names."""
    tags = {word.text.rpartition(":")[2] for word in document.images if LMI_IMAGE in word.text}
    version = vllm_of_lmi(tags.pop()) if len(tags) == 1 else ""
    if version and one.engine != TENSORRT_LLM:
        yield from _draft(one, lacks_vllm(model, parts(version)), f"the container's vLLM {version}", release)


def _draft(one: ServedModel, lack: Lack | None, engine: str, release: str, *, builds: bool = False) -> Iterator[Draft]:
    if lack is None:
        return
    form = ("no engine" if builds else "") if lack.since else "gone" if lack.until else "never"
    place = one.place("model") if "model" in one.options else _model_place(one)
    known: dict[str, Any] = {"model": one.model, "architecture": lack.architecture, "lacks": engine}
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
