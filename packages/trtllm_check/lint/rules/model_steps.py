"""One model through all steps: the tokenizer beside its engine, and the script that reads its weights.

Families are told by names: of folders, of the hub's models, of the folders of TensorRT-LLM's examples.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.filling import fillings
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.shell.words import Word, lines_of

RULE = "model-of-another-step"
CONVERTER = "convert_checkpoint.py"
MAKERS = (CONVERTER, "quantize.py", "hf_ptq.py")
RUNS = ("run.py", "summarize.py")
MODEL_FLAGS = ("--model_dir", "--pyt_ckpt_path", "--meta_ckpt_dir", "--hf_model_dir")
TOKENIZER_DIR = re.compile(r"(?<![\w])tokenizer_dir:([^,]+)")
FAMILIES = {
    "Llama 2": r"llama-?_?2|code-?_?llama|tiny-?_?llama|vicuna",
    "Llama 3": r"llama-?_?3",
    "Llama": r"llama(?!-?_?[23])(?<!code)(?<!code[-_])(?<!tiny)(?<!tiny[-_])",
    "Mistral": r"mi[sx]tral",
    "Qwen": r"qwen",
    "Falcon": r"falcon",
    "Gemma": r"gemma",
    "Phi": r"(?<![a-z])phi-?_?[1-4]",
    "BLOOM": r"bloomz?(?![a-z])",
    "ChatGLM": r"chatglm|(?<![a-z])glm-?4",
    "Baichuan": r"baichuan",
    "InternLM": r"internlm",
    "GPT-J": r"gpt-?_?j(?![a-z])",
    "GPT-NeoX": r"gpt-?_?neox|pythia",
    "MPT": r"(?<![a-z])mpt-",
    "OPT": r"(?<![a-z])opt-\d",
    "DeepSeek": r"deepseek",
    "Yi": r"(?<![a-z])yi-\d",
    "another": r"distill|minicpm|janus|llava|vila|gpt2|starcoder|nemotron|(?<![a-z])t5|bart|whisper|mamba|solar|zephyr",
}
# A model that learned from another has the layers of its base.
DISTILLED = {r"distill-?_?qwen": "Qwen", r"distill-?_?llama": "Llama 3"}
HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
CLONED = re.compile(
    r"clone .*?https://huggingface\.co/(?P<name>[\w.-]+/[\w.-]+?)(?:\.git)?/?(?: (?P<folder>[\w./-]+))?$"
)
ABOVE = re.compile(r"^(?:\.{1,2}/)+")
ANY_OF = {"Llama": ("Llama 2", "Llama 3")}
# The folders of the examples whose converter reads models of these families and of no other one here.
READS = {
    "llama": ("Llama", "Llama 2", "Llama 3", "Mistral", "Yi", "DeepSeek", "InternLM"),
    "qwen": ("Qwen",),
    "falcon": ("Falcon",),
    "gemma": ("Gemma",),
    "phi": ("Phi",),
    "bloom": ("BLOOM",),
    "chatglm": ("ChatGLM",),
    "baichuan": ("Baichuan",),
    "internlm": ("InternLM",),
    **dict.fromkeys(("deepseek_v1", "deepseek_v2", "deepseek_v3"), ("DeepSeek",)),
    "gptj": ("GPT-J",),
    "gptneox": ("GPT-NeoX",),
    "mpt": ("MPT",),
    "opt": ("OPT",),
}


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    makers = document.of(*MAKERS)
    texts = {file: lines_of(text) for file, text in document.texts} if makers else {}
    held = dict(downloads(document)) if makers else {}
    for one in makers:
        yield from _script(one, texts.get(one.command.file, ()), held, release)
    told = {name for one in makers for word in one.values(*MODEL_FLAGS) if (name := family(word.text))}
    if len(told) != 1 or any(not family(word.text) for one in makers for word in one.values(*MODEL_FLAGS)):
        return
    model = told.pop()
    for place, file, invocation in _tokenizers(document, platform):
        other = family(place.text)
        if other and not _are_one(model, other) and _is_written(place, texts.get(file, ())):
            known: dict[str, Any] = {"path": place.text, "other": other, "model": model}
            yield from drafts(release, RULE, place, invocation=invocation, file=file, **known)


@lru_cache(maxsize=1024)
def family(path: str) -> str:
    """The family that the name of a folder or a model tells; "" for none, and for several."""
    text = path.lower().rstrip("/")
    if is_open(text):
        return ""
    if distilled := next((name for pattern, name in DISTILLED.items() if re.search(pattern, text)), ""):
        return distilled
    for name in (posixpath.basename(text), text):
        found = [one for one, pattern in FAMILIES.items() if re.search(pattern, name)]
        if found:
            return found[0] if len(found) == 1 and found[0] != "another" else ""
    return ""


def _are_one(first: str, second: str) -> bool:
    return first == second or second in ANY_OF.get(first, ()) or first in ANY_OF.get(second, ())


def _is_written(word: Word, lines: Sequence[str]) -> bool:
    """True where the word stands there as it is: a variable may have another value for each of a page's models."""
    return 0 < word.line <= len(lines) and word.text in lines[word.line - 1]


def downloads(document: Document) -> Iterator[tuple[str, str]]:
    """Folders that a command of the text fills with a model of the hub, from the folder that all steps begin in."""
    for one in document.of("hf", "huggingface-cli"):
        names = [word.text for word in one.positional if HUB_NAME.fullmatch(word.text)]
        folder = one.value("--local-dir")
        if folder and names:
            yield _below(folder), names[0]
    for one in document.of("git"):
        match = CLONED.search(" ".join(word.text for word in one.command.words))
        if match:
            yield _below(match["folder"] or posixpath.basename(match["name"])), match["name"]


def held_model(path: str, held: Mapping[str, str]) -> str:
    """The model that a command has put there; else the path."""
    return held.get(_below(path), path)


def _below(path: str) -> str:
    return ABOVE.sub("", posixpath.normpath(path))


def _script(one: Invocation, lines: Sequence[str], held: Mapping[str, str], release: str) -> Iterator[Draft]:
    """``examples/llama/convert_checkpoint.py --model_dir Qwen-7B``."""
    folder = posixpath.basename(posixpath.dirname(one.path.text)) or one.folder
    if one.tool != CONVERTER or folder not in READS:
        return
    for word in one.values("--model_dir"):
        model = held_model(word.text, held)
        name = family(model)
        if name and name not in READS[folder] and _is_written(word, lines):
            path = f"{word.text} ({model})" if model != word.text else model
            known: dict[str, Any] = {"folder": folder, "model": name, "path": path}
            yield from drafts(release, RULE, word, form="script", invocation=one, **known)


def _tokenizers(document: Document, platform: Platform) -> Iterator[tuple[Word, str, Invocation | None]]:
    for one in document.of(*RUNS):
        for word in one.values("--tokenizer_dir") if one.has("--engine_dir") else ():
            yield word, one.command.file, one
    for filling in fillings(document, platform.release) if document.of("fill_template.py") else ():
        if found := TOKENIZER_DIR.search(filling.word.text):
            yield filling.word.part(found.start(1), found.end(1)), filling.invocation.command.file, None
