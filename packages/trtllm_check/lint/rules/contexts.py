"""Sequences longer than the model was made for, in TensorRT-LLM: what an engine is built for, and what a server takes.

vLLM's ``max_model_len`` is :mod:`trtllm_check.lint.rules.vllm_values`' work.
"""

import posixpath
import re
from collections.abc import Iterator

from serving_base.facts.published import PublishedModel, published_model
from trtllm_check.lint.document import Document
from trtllm_check.lint.facts import QUANTIZES
from trtllm_check.lint.finding import Draft, Edit, Platform, Put, drafts
from trtllm_check.lint.rules.arguments import is_checked
from trtllm_check.lint.rules.engine_limits import number_of, written_once
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.rules.served import MAKERS, TENSORRT_LLM, served

RULE = "context-exceeded"
BUILD = "trtllm-build"
FLAG, OPTION = "--max_seq_len", "max_seq_len"
SOURCES = ("--model_dir", "--hf_model_dir", "--pyt_ckpt_path")
# What gives a model a longer context than its configuration, or a window over a longer one.
MEASURED = re.compile(r"create_?dataset|prepare_dataset|gptManagerBenchmark|gptSessionBenchmark|autoBM", re.IGNORECASE)
LONGER = re.compile(r"rope|rotary|yarn|streaming_?llm|ALLOW_LONG_MAX_MODEL_LEN|max_position_embeddings", re.IGNORECASE)
SIZED = re.compile(r"\d+b(?![a-z])")
LONG = re.compile(r"\d(?:k|m)(?![a-z])", re.IGNORECASE)  # as models with a longer context are called
VERSION = re.compile(r"(?<=llama)(?=\d)")  # llama3-8b is llama-3-8b
ENGINE_BACKENDS = ("tensorrt", "trt")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    found = list(_exceeded(document, platform))
    if found and not any(LONGER.search(text) for _, text in document.texts):
        is_measured = any(MEASURED.search(text) for _, text in document.texts)  # with words that mean nothing
        yield from (one._replace(severity="info") if is_measured else one for one in found)


def _exceeded(document: Document, platform: Platform) -> Iterator[Draft]:
    """Lengths beyond the model's own."""
    yield from _builds(document, platform)
    for one in served(document):
        model = _known(one.weights)
        wanted = one.number(OPTION)
        backend = one.options.get("backend")
        is_engine = backend is not None and backend.text in ENGINE_BACKENDS
        if one.engine != TENSORRT_LLM or one.tool in MAKERS or model is None or wanted is None or is_engine:
            continue
        if wanted > model.context:
            known = {"tool": one.tool, "flag": one.flag(OPTION), "wanted": wanted, "model": one.weights}
            edits: tuple[Edit, ...] = (Put(FLAG, str(model.context)),) if one.invocation else ()
            yield from drafts(
                platform.release.name,
                RULE,
                one.place(OPTION),
                form="served",
                edits=edits,
                invocation=one.invocation,
                file=one.file,
                most=model.context,
                where=model.source,
                **known,
            )


def _builds(document: Document, platform: Platform) -> Iterator[Draft]:
    """An engine of a checkpoint whose model a command of the text names."""
    makers = written_once(document.of(*QUANTIZES))
    for build in document.of(BUILD):
        given, wanted = build.find(FLAG), number_of(build.value(FLAG))
        maker = makers.get(posixpath.normpath(build.value("--checkpoint_dir") or ""))
        source = maker.value(*SOURCES) if maker is not None else None
        name, model = source, _known(source or "")
        if model is None and given is not None:
            name, model = _of_folders(source, build.value("--checkpoint_dir"))
        if given is None or wanted is None or model is None or wanted <= model.context:
            continue
        if is_checked(build, platform.release):
            edits = (Put(FLAG, str(model.context)),)
            yield from drafts(
                platform.release.name,
                RULE,
                given.word,
                edits=edits,
                invocation=build,
                wanted=wanted,
                model=name,
                most=model.context,
                where=model.source,
            )


def _of_folders(*paths: str | None) -> tuple[str, PublishedModel | None]:
    """A model that a folder is called as: ``ckpt/llama3_8b_instruct``."""
    for path in paths:
        for part in reversed((path or "").split("/") if not LONG.search(path or "") else []):
            name = part.lower().replace("_", "-")
            for written in (name, VERSION.sub("-", name)):
                model = _known(written) if SIZED.search(written) else None
                if model is not None:
                    return part, model
    return "", None


def _known(name: str) -> PublishedModel | None:
    """The model of a name or a folder, if its context is known."""
    model = published_model(name) if name and not is_open(name) else None
    return model if model is not None and model.context and model.context_read else None
