"""trtllm-serve: an engine needs its backend and a tokenizer, and several ranks the LLM API's launcher."""

import posixpath
import re
from collections.abc import Iterator

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Edit, Insert, Platform, Put, drafts
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.rules.arguments import FIRST_SERVE, is_checked
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.shell.words import Word
from trtllm_check.releases import Release

SERVE = "trtllm-serve"
LAUNCH = "trtllm-llmapi-launch"
# What people call the folder of an engine: a path of its own word, such as /srv/engines/llama or ./llama_engine.
ENGINE_NAME = re.compile(r"(?:^|[/_.-])(?:trt_?)?engines?(?:[/_.-]|$)", re.IGNORECASE)
ENGINE_BACKENDS = ("tensorrt", "trt")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    for serve in document.of(SERVE):
        if not is_checked(serve, platform.release):
            continue
        yield from _engine(document, platform.release, serve)
        if (serve.ranks or 1) > 1 and not any(LAUNCH in word.text for word in serve.launcher):
            edits: tuple[Edit, ...] = (Insert(serve.path, (LAUNCH,)),)
            yield from drafts(
                platform.release.name,
                "serve-without-launcher",
                serve.path,
                edits=edits,
                invocation=serve,
                ranks=serve.ranks,
            )


def served_model(serve: Invocation) -> Word | None:
    """The word that says what is served; None where it is not there, or the reader fills it in."""
    operands = [word for word in serve.positional if word.text != FIRST_SERVE]
    return operands[0] if operands and not is_open(operands[0].text) else None


def _engine(document: Document, release: Release, serve: Invocation) -> Iterator[Draft]:
    model = served_model(serve)
    if model is None:
        return
    folder = posixpath.normpath(model.text)
    builds = [posixpath.normpath(one.value("--output_dir") or "engine_output") for one in document.of("trtllm-build")]
    is_built = folder in builds
    is_named = model.text.startswith(("/", "./", "../", "~")) and ENGINE_NAME.search(model.text) is not None
    if not (is_built or is_named):
        return
    form = "" if is_built else "by name"
    tokenizer = _tokenizer(document)
    if not serve.has("--backend") and _default_backend(release) == "pytorch" and release.builds_engines:
        edits: tuple[Edit, ...] = (Put("--backend", _engine_backend(release)),)
        known = {"folder": model.text, "backend": _engine_backend(release)}
        yield from drafts(
            release.name, "serve-engine-backend", model, form=form, edits=edits, invocation=serve, **known
        )
    if not serve.has("--tokenizer"):
        known = {"folder": model.text, "tokenizer": tokenizer}
        edits = (Put("--tokenizer", tokenizer),)
        yield from drafts(release.name, "serve-engine-tokenizer", model, edits=edits, invocation=serve, **known)


def _default_backend(release: Release) -> str:
    argument = release.tools[SERVE].argument("--backend")
    return str(argument.default) if argument and argument.default else ""


def _engine_backend(release: Release) -> str:
    """The name that the release surely has for the engines' backend."""
    argument = release.tools[SERVE].argument("--backend")
    choices = argument.choices if argument else ()
    sure = [
        name for name in ENGINE_BACKENDS if name in choices and name not in (argument.unconfirmed if argument else ())
    ]
    return (sure or list(ENGINE_BACKENDS))[0]


def _tokenizer(document: Document) -> str:
    """The model's folder, if a command of the text names it."""
    for one in document.of("quantize.py", "convert_checkpoint.py", "hf_ptq.py"):
        if folder := one.value("--model_dir", "--pyt_ckpt_path"):
            return folder
    return "/path/to/the/model"
