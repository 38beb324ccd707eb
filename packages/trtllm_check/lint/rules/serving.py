"""trtllm-serve: an engine needs its backend and a tokenizer, several ranks the launcher, and its file known options."""

import posixpath
import re
from collections.abc import Iterator

from serving_base.errors import NotYaml
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
OPTION_FLAGS = ("--extra_llm_api_options", "--config")
ENGINE_BACKENDS = ("tensorrt", "trt")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    for serve in document.of(SERVE):
        if not is_checked(serve, platform.release):
            continue
        yield from _engine(document, platform.release, serve)
        yield from _options(document, platform.release.name, serve)
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
    is_built = bool(document.lookups.writers("trtllm-build", model.text))
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


def _options(document: Document, release: str, serve: Invocation) -> Iterator[Draft]:
    """The file of options, if a command of the text writes it: what the LLM API of the release does not take.

    A file that the reader knew for one is :mod:`trtllm_check.lint.rules.llm_options`' work.
    """
    from trtllm_check.flows.options import check_options, option_releases
    from trtllm_check.lint.rules.llm_options import draft_options

    if document.option_files or serve.value("--backend") in ENGINE_BACKENDS:  # an engine has another class of options
        return
    given = serve.value(*OPTION_FLAGS)
    body = _written(document, given) if given and release in option_releases() else None
    if body is None:
        return
    try:
        problems = check_options(_unescaped(body.text), release)
    except NotYaml:
        return
    for problem in problems:
        yield from draft_options(problem, release, _line_of(problem.option, body), serve.command.file)


def _written(document: Document, path: str) -> Word | None:
    """What ``cat > PATH <<EOF``, ``tee PATH <<EOF`` or ``echo -e "..." > PATH`` of the text puts into the file."""
    wanted = posixpath.normpath(path)
    for command in document.commands:
        tool = command.words[0].text if command.words else ""
        targets = [one.target.text for one in command.redirects if one.operator in (">", ">>")]
        targets += [word.text for word in command.words[1:]] if tool == "tee" else []
        if wanted not in map(posixpath.normpath, targets):
            continue
        bodies = [one.target for one in command.redirects if one.operator in ("<<", "<<-", "<<<")]
        if tool in ("echo", "printf"):
            bodies = [word for word in command.words[1:] if not word.text.startswith("-")][:1]
        if bodies and not is_open(bodies[0].text):
            return bodies[0]
    return None


def _unescaped(text: str) -> str:
    """``echo -e`` writes a line's end as a backslash and an n."""
    return text if "\n" in text else text.replace("\\n", "\n")


def _line_of(option: str, body: Word) -> Word:
    """The line of ``body`` that sets the option, else its beginning."""
    name = option.rpartition(".")[2]
    for number, line in enumerate(body.text.split("\n")):
        if re.match(rf"\s*[\"']?{re.escape(name)}[\"']?\s*:", line):
            return Word(line.strip(), body.line + number, len(line) - len(line.lstrip()) + 1 if number else body.column)
    return body


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
