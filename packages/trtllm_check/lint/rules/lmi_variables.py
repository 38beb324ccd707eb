"""Variables that stand beside an LMI container's own and that it does not read, in whatever the text is written in.

Python's dicts, CDK, CloudFormation, Terraform, JSON, compose and ``docker run -e`` are read alike: names in the place
of keys, in blocks of lines. A name that the text uses elsewhere, too, is for something else.
"""

import re
from collections.abc import Iterator
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.rules import lmi_keys as written_keys
from trtllm_check.lint.rules.lmi_images import image_of
from trtllm_check.lint.rules.lmi_keys import PREFIX, right_prefix
from trtllm_check.lint.rules.vllm import engine_arguments
from trtllm_check.lint.shell.words import Word
from trtllm_check.lint.supposing import supposed
from trtllm_check.releases.lmi import lmi_facts
from trtllm_check.releases.lmi_keys import lmi_keys
from trtllm_check.releases.vllm import vllm_facts
from trtllm_check.serving_properties import environment_settings

FAMILY, RULE = "lmi_variables", "variable-read-by-nobody"
KEY = re.compile(
    r"\\?(?P<quote>[\"'])(?P<quoted>[A-Z][A-Z0-9_]{3,})\\?(?P=quote)\]?[ \t]*[:=](?![=:])"
    r"|^[ \t]*(?:- |export[ \t]+|ENV[ \t]+)?(?P<plain>[A-Z][A-Z0-9_]{3,})(?:=(?!=)|:(?=\s))"
    r"|(?<=\s)(?:-e|--env)[ =][\"']?(?P<given>[A-Z][A-Z0-9_]{3,})="
    r"|[{,][ \t]*(?P<inside>[A-Z][A-Z0-9_]{3,}):(?=\s)"
    r"|^[ \t]*(?P<terraform>[A-Z][A-Z0-9_]{3,})[ \t]+=[ \t]+(?=[\"'\w])"
    r"|\bname:[ \t]*[\"']?(?P<listed>[A-Z][A-Z0-9_]{3,})[\"']?[ \t]*(?:\n[ \t]*|,[ \t]*)value(?:From)?:",
    re.MULTILINE,
)
OURS, OPTION = "tensorrt_llm", "OPTION_"
MODEL = "HF_MODEL_ID"
LMI = re.compile(
    r"djl-inference|djl-(?:lmi|tensorrtllm|deepspeed)\b|\bDJLModel\b|deepjavalibrary/djl-serving:", re.IGNORECASE
)
TGI = re.compile(r"get_huggingface_llm_image_uri|tgi-inference|text-generation-inference:|huggingface-llm\b")
VLLM = re.compile(r"vllm/vllm-openai|763104351884\.dkr\.ecr\.[\w.-]+/vllm:")
TERRAFORM = re.compile(r"^[ \t]*(?:resource|module|locals|variable)\b[^\n]*\{", re.MULTILINE)
# A handler of one's own, which may read any variable.
OWN = re.compile(
    r"\bentry_point\s*=|entryPoint\s*[=:]\s*[\"']?(?!djl_python)\w|OPTION_ENTRYPOINT\W+(?!djl_python)\w"
    r"|\b(?:model|inference|handler)\.py\b|\bdef handle\("
)
MOST_KEYS, APART = 2_000, 3


class _Key(NamedTuple):
    name: str
    line: int
    start: int
    end: int


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    said = set(_ignored(document, platform)) if document.lmi_environment else set()
    gone = {draft.place.line for draft in written_keys.check(document, platform)} if document.lmi_environment else set()
    for file, text in document.texts:
        if (OPTION not in text and MODEL not in text) or OWN.search(text):
            continue
        is_lmi, is_tgi, is_vllm = (one.search(text) is not None for one in (LMI, TGI, VLLM))
        for block in _blocks(text):
            names = [one.name for one in block]
            options = [one for one in block if one.name.startswith(OPTION)]
            if not is_tgi and not is_vllm and (options or (is_lmi and MODEL in names)):
                for draft in _beside(text, file, block, release):
                    if draft.place.text not in said and draft.place.line not in gone:
                        yield draft
            elif options and not is_lmi and is_tgi != is_vllm and _is_known(options[0].name):
                known: dict[str, Any] = {"name": options[0].name, "what": "TGI" if is_tgi else "vLLM"}
                yield from drafts(release, RULE, _place(text, options[0]), form="of LMI", file=file, **known)


def _ignored(document: Document, platform: Platform) -> Iterator[str]:
    """What the image of the text is known to ignore, and the rule on its options says."""
    from trtllm_check.recipes.properties import check_properties

    told = image_of(document, platform)
    if told.tag and (told.said or not (platform.guessed or supposed(OURS))):
        for name, value in document.lmi_environment.items():
            for key, text in environment_settings({name: value.text}).items():
                if any(one.kind != "undocumented" for one in check_properties(f"{key}={text}", told.tag)):
                    yield name


def _blocks(text: str) -> Iterator[list[_Key]]:
    """Keys on lines that follow each other, in one pair of braces."""
    block: list[_Key] = []
    is_terraform = TERRAFORM.search(text) is not None
    line = position = 0
    for match in islice(KEY.finditer(text), MOST_KEYS):
        group = match.lastgroup or ""
        if group == "terraform" and not is_terraform:
            continue
        name = match[group]
        start = match.start(group)
        line += text.count("\n", position, start)
        if block:
            between = text[block[-1].end : start]
            if line - block[-1].line > APART or re.search(r"^[ \t]*[})\]]|\}[ \t]*\)", between, re.MULTILINE):
                yield block
                block = []
        position = start
        block.append(_Key(name, line, start, match.end(group)))
    if block:
        yield block


def _beside(text: str, file: str, block: list[_Key], release: str) -> Iterator[Draft]:
    data = rule_data(FAMILY)
    names = {one.name for one in block}
    for one in block:
        near = data["instead"].get(one.name) or (f"{OPTION}{one.name}" if one.name in _options() else "")
        other = data["tgi"].get(one.name, "")
        known: dict[str, Any] = {"name": one.name}
        slip = "" if one.name.startswith(OPTION) else right_prefix(one.name).removeprefix(PREFIX)
        if slip and _is_known(slip) and _is_nothing_else(text, one.name):
            known["near"] = f"{OPTION}{slip.upper()}"
            yield from drafts(release, RULE, _place(text, one), form="another form", file=file, **known)
        elif one.name.startswith(OPTION) and not _is_known(one.name):
            yield from drafts(release, RULE, _place(text, one), form="no key", file=file, **known)
        elif (near or other) and near not in names and _is_nothing_else(text, one.name):
            form = "another form" if near else "of TGI"
            known["near"] = near or other
            yield from drafts(release, RULE, _place(text, one), form=form, file=file, **known)


@cache
def _options() -> frozenset[str]:
    return frozenset(rule_data(FAMILY)["options"].split())


@cache
def _keys() -> frozenset[str]:
    """Every key of LMI, of vLLM and of TensorRT-LLM that an image of some version may hand on, in lower case."""
    facts = lmi_facts()
    documented = {key.removeprefix("option.") for family in facts.families.values() for key in family.keys}
    names = {*documented, *lmi_keys().keys, *facts.engine_args.fields, *engine_arguments()}
    names |= {name.replace("-", "_") for name in vllm_facts().table("options", "frontend")}
    return frozenset(name.lower() for name in names)


def _is_known(name: str) -> bool:
    """True also for a part of a known key, and for one that differs by a slip, of which another rule speaks."""
    key = name.removeprefix(OPTION).lower()
    return key in _keys()


def _is_nothing_else(text: str, name: str) -> bool:
    """True where the name stands in the place of a key and nowhere else."""
    as_key = sum(match[match.lastgroup or 0] == name for match in islice(KEY.finditer(text), MOST_KEYS))
    return bool(as_key == len(re.findall(rf"(?<!\w){name}(?!\w)", text)))


def _place(text: str, one: _Key) -> Word:
    return Word(one.name, one.line + 1, one.start - text.rfind("\n", 0, one.start))
