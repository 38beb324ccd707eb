"""Arguments of vLLM's server in a part of a file, whose image stands in another: overrides of compose, patches.

Nobody says which program gets them. Two names that no other server has tell it.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from trtllm_check.lint.carriers.faults import FormFault
from trtllm_check.lint.carriers.script import Script, unknown, unknown_arguments
from trtllm_check.lint.carriers.settings import Place
from trtllm_check.lint.carriers.workloads import fields_of
from trtllm_check.lint.shell import Word
from trtllm_check.releases.vllm import options_of

ARGUMENTS = ("command", "args", "value")
# What tells the program, or stands where another reads the arguments.
TOLD = frozenset(
    {"image", "build", "entrypoint", "containers", "extends", "<<", "modelFormat", "runtime", "storageUri", "script"}
)
PATCH = re.compile(r".*/(?:args|command)")  # of JSON Patch
MODEL = re.compile(r"[\w.-]+/[\w.-]+|/[\w./-]+|\$\{?\w.*")
OPTION = re.compile(r"--(?P<name>[A-Za-z][\w-]*)(?:[.=].*)?", re.DOTALL)
WORD = re.compile(r"\S+")
SPECIAL = re.compile(r"[|;&<>`]|\$\(|\{\{")
# Options of vLLM's server that others have not: SGLang 0.5, TGI 3, llama.cpp, LMDeploy 0.10, TensorRT-LLM 1.2.
ALONE = frozenset(
    {
        *("gpu-memory-utilization", "max-model-len", "max-num-seqs", "max-num-batched-tokens", "enforce-eager"),
        *("enable-prefix-caching", "no-enable-prefix-caching", "enable-chunked-prefill", "enable-auto-tool-choice"),
        *("limit-mm-per-prompt", "swap-space", "max-cpu-loras", "disable-log-requests", "kv-transfer-config"),
        *("enable-expert-parallel", "async-scheduling", "compilation-config", "guided-decoding-backend", "max-loras"),
    }
)
ENOUGH = 2  # options of its own
FOREIGN = 4  # of so many options one may be no option of vLLM
DEEPEST = 40
COMMENT = re.compile(r"(?:^|(?<=\s))#(?:\s?--?[a-z]\S*|[ \t]+\S+)")
"""What a folded text hands on as words, and somebody meant as a comment."""
REMARK = re.compile(r"(?:^|(?<=\s))#(?:(?!\s--[a-z])[^\n])*")
MODEL_OF_ARGUMENTS = "THE_SAME_MODEL"


def scripts(node: Any, argument: Callable[[Any], Word]) -> Iterator[Word]:
    """``vllm serve ... OPTIONS ...`` of each such list and text."""
    for value, least in _values(node, "", 0):
        if value.id == "sequence":
            words = [argument(one) for one in value.value]
        else:
            whole = _on_one_line(argument(value))
            words = [whole.part(*match.span()) for match in WORD.finditer(whole.text)]
        if not words or not _are_of_vllm([word.text for word in words], least):
            continue
        at = (words[0].line, words[0].column)
        start = [Word(text, *at, (at,) * len(text)) for text in ("vllm", "serve")]
        named = [unknown(MODEL_OF_ARGUMENTS, at)] if words[0].text.startswith("-") else []
        script = Script()
        if value.id == "sequence":
            script.words([*start, *named, *words, unknown_arguments(at)])
        else:
            script.add(" ".join(["", *(word.text for word in (*start, *named)), ""]).lstrip(), at)
            script.take(whole)
            script.add(f" {unknown('more', at).text}", at)
            script.end()
        yield script.word()


def faults(node: Any, place: Place) -> Iterator[FormFault]:
    """Comments in a folded text of such arguments."""
    for value, least in _values(node, "", 0):
        text = str(value.value) if value.id == "scalar" and value.style == ">" else ""
        match = COMMENT.search(text)
        if match is not None and _are_of_vllm(WORD.findall(REMARK.sub(" ", text)), least):
            word = place(value).part(match.start(), match.end())
            yield FormFault("compose-together", word, "comment", (("comment", match[0].strip()),))


def _on_one_line(word: Word) -> Word:
    """The text without the ends of its lines, and without what was meant as a comment."""
    text = REMARK.sub(lambda match: " " * len(match[0]), word.text.replace("\\\n", "  ").replace("\n", " "))
    return Word(text, word.line, word.column, word.places)


def _values(node: Any, owner: str, depth: int) -> Iterator[tuple[Any, int]]:
    """Each list and each text of arguments beside which nothing tells the program, and how many names have to."""
    if node is None or node.id == "scalar" or depth > DEEPEST:
        return
    entries = fields_of(node)
    named = [name for name in ARGUMENTS if name in entries]
    if len(named) == 1 and not TOLD & set(entries) and _may_hold(named[0], entries):
        value = entries[named[0]]
        is_list = value.id == "sequence" and all(one.id == "scalar" for one in value.value)
        if is_list or (value.id == "scalar" and not SPECIAL.search(str(value.value))):
            called = str(entries["name"].value) if "name" in entries else owner
            yield value, 1 if "vllm" in called.lower() else ENOUGH
    parts = entries.items() if node.id == "mapping" else [(owner, one) for one in node.value]
    for name, one in parts:
        yield from _values(one, name, depth + 1)


def _may_hold(name: str, entries: Mapping[str, Any]) -> bool:
    """True for a command of compose, the arguments of a container by its name, and the value of a patch."""
    if name == "value":
        return "path" in entries and PATCH.fullmatch(str(entries["path"].value)) is not None
    return name == "command" or "name" in entries


def _are_of_vllm(words: list[str], least: int) -> bool:
    if not words or not (words[0].startswith("--") or (MODEL.fullmatch(words[0]) and len(words) > 1)):
        return False
    if not words[0].startswith("-") and not words[1].startswith("-"):
        return False  # a program, and what it does
    names = [match["name"].replace("_", "-") for one in words if (match := OPTION.fullmatch(one))]
    known = [one for one in names if one.removeprefix("no-") in options_of("serve") or one in options_of("serve")]
    return len(ALONE.intersection(names)) >= least and len(names) - len(known) <= max(1, len(names) // FOREIGN)
