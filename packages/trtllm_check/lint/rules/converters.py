"""Scripts of all models' examples that read a checkpoint: types that no model computes in, half of a quantization, and
a vision encoder that is asked of a model without one.

The converter of Llama has a table of its own (arguments.py); what is said here holds for the scripts of the others too.
"""

import posixpath
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.rules.arguments import is_checked
from trtllm_check.lint.rules.model_steps import downloads, held_model
from trtllm_check.lint.shell.words import ShellCommand, Word

RULE = "example-option"
CONVERTER = "convert_checkpoint.py"
VISUAL = ("build_visual_engine.py", "build_multimodal_engine.py")
TYPED = (CONVERTER, *VISUAL)
QUANTIZED = re.compile(
    r"u?int[48](?:_\w+)?|fp[48](?:_\w+)?|float8\w*|nvfp4|mxfp4|[wW]\d+[aA]\d+\w*|awq|gptq|q\d_\w+", re.ASCII
)
FIRST_WORDS = 12  # of a command, mpirun and its options included
PRECISION, SWITCH = "--weight_only_precision", "--use_weight_only"
WEIGHTS = ("int8", "int4")
MODEL_TYPE, MODEL_PATH = "--model_type", "--model_path"
SEES = re.compile(
    r"vision|vila|llava|[-_]vl|vl[-_]|omni|multimodal|pixtral|phi-?[34][^/]*mm|scout|maverick", re.IGNORECASE
)
TEXT_ONLY = re.compile(
    r"llama-?3\.2-[13]b|llama-?(?:2|3|3\.[13])-(?:7|8|13|70|405)b|qwen(?:1\.5|2|2\.5)?-\d+(?:\.\d+)?b|mistral-7b|mixtral-8x"
    r"|phi-?[23]-(?:mini|medium)|gemma-?[12]?-\d+b|tinyllama|falcon-\d|deepseek-(?:r1|v[23])",
    re.IGNORECASE,
)


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    told = (
        set()
        if platform.earlier
        else {  # arguments.py speaks of these
            id(one.command) for one in document.of(CONVERTER) if is_checked(one, platform.release)
        }
    )
    held: dict[str, str] | None = None
    for command in document.commands:
        at = next((n for n, word in enumerate(command.words[:FIRST_WORDS]) if _name(word) in TYPED), None)
        if at is None or id(command) in told:
            continue
        script, words = _name(command.words[at]), command.words[at + 1 :]
        if not any(
            word.text.startswith(("--output_dir", "--output-model-dir", "--output_model_dir")) for word in words
        ):
            continue  # of another project
        if script == CONVERTER:
            yield from _type(script, words, command, release)
            yield from _half(words, command, release)
        else:
            held = dict(downloads(document)) if held is None else held
            yield from _sees(script, words, command, held, release)


def _name(word: Word) -> str:
    return posixpath.basename(word.text)


def _given(words: Sequence[Word], flag: str) -> Iterator[Word]:
    """The values of a flag, behind it or behind its sign."""
    for one, after in pairwise([*words, Word("", 0, 0)]):
        if one.text == flag and after.text:
            yield after
        elif one.text.startswith(f"{flag}="):
            yield one.part(len(flag) + 1)


def _type(script: str, words: Sequence[Word], command: ShellCommand, release: str) -> Iterator[Draft]:
    for value in _given(words, "--dtype"):
        if QUANTIZED.fullmatch(value.text):
            known: dict[str, Any] = {"script": script, "value": value.text}
            yield from drafts(release, RULE, value, form="quantized type", file=command.file, **known)


def _half(words: Sequence[Word], command: ShellCommand, release: str) -> Iterator[Draft]:
    """``--weight_only_precision int4`` alone."""
    names = {word.text.partition("=")[0] for word in words}
    if SWITCH in names or any("$" in name or name.startswith("@") for name in names):
        return
    for value in _given(words, PRECISION):
        if value.text in WEIGHTS:
            known: dict[str, Any] = {"flag": PRECISION, "value": value.text}
            yield from drafts(release, "half-of-a-quantization", value, form="precision", file=command.file, **known)


def _sees(
    script: str, words: Sequence[Word], command: ShellCommand, held: dict[str, str], release: str
) -> Iterator[Draft]:
    """A model of texts only: it has no vision encoder to build an engine of."""
    kind = next((word.text for word in _given(words, MODEL_TYPE)), "")
    for path in _given(words, MODEL_PATH):
        model = held_model(path.text, held)
        if kind and "$" not in model and TEXT_ONLY.search(model) and not SEES.search(model):
            known: dict[str, Any] = {"script": script, "model": model, "value": kind}
            yield from drafts(release, RULE, path, form="no vision", file=command.file, **known)
