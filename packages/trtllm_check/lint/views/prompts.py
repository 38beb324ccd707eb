"""Prompts and streams against what the templates say of them: decoupled mode, special tokens."""

from collections.abc import Iterator, Sequence

from trtllm_check.lint.documents.document import Document, Setting
from trtllm_check.lint.report.drafts import Draft, Put
from trtllm_check.lint.rulebook import drafts, rule_data
from trtllm_check.lint.views.filling import Filling
from trtllm_check.releases.templates import release_templates, template_releases

FAMILY = "templates"
ENGINE_MODEL = "tensorrt_llm"
BEGIN_OF_TEXT = "<|begin_of_text|>"
NO_SPECIAL_TOKENS = "--no_add_special_tokens"
TRUE = ("true", "True", "TRUE")
FALSE = ("false", "False", "FALSE")


def prompt_drafts(document: Document, setting: Setting, commands: Sequence[Filling]) -> Iterator[Draft]:
    """The drafts of all requests, and of run.py's prompts. ``commands``: the fill_template.py of ``document``."""
    yield from _streams(document, setting, commands)
    yield from _begin_of_text(document, setting, commands)
    tool = setting.release.tools.get("run.py")
    for run in document.of("run.py") if tool and tool.has(NO_SPECIAL_TOKENS) else []:
        texts = [word for word in run.values("--input_text") if word.text.startswith(BEGIN_OF_TEXT)]
        if texts and not run.has(NO_SPECIAL_TOKENS):
            yield from drafts(
                setting.release.name,
                "bos-twice",
                texts[0],
                edits=(Put(NO_SPECIAL_TOKENS),),
                invocation=run,
                adds="run.py",
                instead=f"add {NO_SPECIAL_TOKENS}",
            )


def _streams(document: Document, setting: Setting, commands: Sequence[Filling]) -> Iterator[Draft]:
    filling = next((one for one in commands if one.model == ENGINE_MODEL and "decoupled_mode" in one.values), None)
    refused = filling is not None and filling.values["decoupled_mode"] in FALSE
    if not refused and not _answers_once(document):
        return
    for request in document.requests:
        if (request.fields or {}).get("stream") is not True or "/v1/" in request.url:
            continue
        edits = (filling.with_values({"decoupled_mode": "true"}),) if filling and refused else ()
        yield from drafts(
            setting.release.name,
            "decoupled-needed",
            request.at("stream"),
            edits=edits,
            invocation=filling.invocation if filling and refused else None,
            file=request.file,
        )


def _answers_once(document: Document) -> bool:
    """True if a config.pbtxt says so of the engine's model."""
    if not document.configs:
        return False
    from trtllm_check.lint.views.config_files import answers_once

    return answers_once(document)


def _begin_of_text(document: Document, setting: Setting, commands: Sequence[Filling]) -> Iterator[Draft]:
    """A prompt in chat format for a tokenizer that adds special tokens."""
    filling = next((one for one in commands if one.model == "preprocessing"), None)
    if filling is None or not filling.known or setting.release.name not in template_releases():
        return
    spec = release_templates(setting.release.name).models.get("preprocessing")
    releases = template_releases()
    default = releases.index(setting.release.name) >= releases.index(rule_data(FAMILY)["adds_special_tokens_since"])
    value = filling.values.get("add_special_tokens", "")
    if spec is None or "add_special_tokens" not in spec.free or value in FALSE or not (default or value in TRUE):
        return
    for request in document.requests:
        prompt = (request.fields or {}).get("text_input")
        if isinstance(prompt, str) and prompt.startswith(BEGIN_OF_TEXT):
            yield from drafts(
                setting.release.name,
                "bos-twice",
                request.at("text_input"),
                edits=(filling.with_values({"add_special_tokens": "false"}),),
                invocation=filling.invocation,
                file=request.file,
                adds="preprocessing (add_special_tokens)",
                instead="fill add_special_tokens:false in preprocessing",
            )
