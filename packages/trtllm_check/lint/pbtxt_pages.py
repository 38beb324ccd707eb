"""Pieces of config.pbtxt among a page's prose, and the model of the repository that a page shows a piece of."""

import re
from collections.abc import Collection, Iterator
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from trtllm_check.lint.passages import Lines
from trtllm_check.lint.pbtxt import ConfigError, ConfigToken, read_config, tokens_of
from trtllm_check.lint.pbtxt_mending import CLOSERS, OPENERS, OUTERMOST, mended_config
from trtllm_check.lint.pbtxt_schema import is_field, is_piece

BEGINS = re.compile(
    r"[ \t>]*(?:input|output|parameters|instance_group|ensemble_scheduling|dynamic_batching|model_transaction_policy)"
    r"[ \t]*:?[ \t]*[\[{]"
)
FIELD = re.compile(r"[ \t>]*(?:name|platform|backend|max_batch_size)[ \t]*:[ \t]*\S+[ \t]*$")
BRACKET = re.compile(r"\"[^\"\n]*\"|[\[{]|[\]}]")
LONGEST = 400  # lines of one piece
# Models of tensorrtllm_backend's repositories; the engine's is the one that logs as [TensorRT-LLM] does.
MODELS = ("tensorrt_llm", "preprocessing", "postprocessing", "ensemble", "tensorrt_llm_bls")
MODEL = re.compile(rf"(?<![\w-])(?P<name>{'|'.join(MODELS[1:])}|tensorrt_llm(?:_bls)?)(?![\w.-])")
FILE = re.compile(r"(?P<name>[\w.-]+)/config\.pbtxt")
OF_THE_ENGINE = re.compile(r"\[TensorRT-LLM\]|tensorrtllm_backend|triton_model_repo/tensorrt_llm/")
THE_BACKEND = re.compile(
    r"TensorRT[- ]?LLM(?:'s)?[ ](?:\w+[ ]){0,2}backend|tensorrtllm\b|trtllm[ ]backend", re.IGNORECASE
)
COMMENT = re.compile(r"#[^\n]*")
OF_ITS_OWN = re.compile(
    r"\bkey[ \t]*:[ \t]*\"(?:batch_scheduler_policy|gpt_model_type|gpt_model_path|decoding_mode"
    r"|kv_cache_free_gpu_mem_fraction|max_tokens_in_paged_kv_cache|enable_kv_cache_reuse|enable_chunked_context|max_beam_width"
    r"|exclude_input_in_output)\""
)
OPENS = re.compile(r"[ \t>]*`{3,}[^\n`]*\n?\Z")
BEFORE = 600
BEHIND_A_NAME = (":", *OPENERS)


def config_runs(text: str, taken: Collection[int]) -> Iterator[Lines]:
    """Lines that are nothing but fields of a configuration, brackets closed, outside of the lines ``taken``."""
    if "{" not in text:
        return
    lines = text.split("\n")
    number = 0
    while number < len(lines):
        begins = number + 1 not in taken and (BEGINS.match(lines[number]) or FIELD.match(lines[number]))
        end = _end(lines, number) if begins else number
        if end == number:
            number += 1
            continue
        inside = "\n".join(lines[number:end])
        if any(map(BEGINS.match, lines[number:end])) and is_piece(inside):
            yield Lines(number + 1, end, inside)
        number = end


def _end(lines: list[str], start: int) -> int:
    """The line behind the fields that begin at ``start``; ``start`` itself where a bracket stays open."""
    depth, end = 0, start
    for number in range(start, min(len(lines), start + LONGEST)):
        line = lines[number]
        if not depth and not (BEGINS.match(line) or FIELD.match(line)):
            if line.strip():
                break
            continue
        for match in BRACKET.finditer(line.partition("#")[0]):
            depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(match[0], 0)
        if not depth:
            end = number + 1
    return end


def knows_a_field(text: str) -> bool:
    """True where one of the outermost fields is a configuration's."""
    try:
        message = read_config(text)
    except ConfigError:
        message = mended_config(text)
    return any(name in (*OUTERMOST, "name") for name, _ in message.fields)


def from_the_first_whole_field(text: str) -> str:
    """A piece that begins inside of a block, from where that block ends; blanks stand for what is before.

    A bracket too many behind whole fields is a fault, and stays.
    """
    depth, ends, is_inside, is_outside = 0, None, False, False
    tokens = tokens_of(text)
    for token, following in pairwise(tokens):
        if token.kind == "sign" and token.text in OPENERS:
            is_inside = is_inside or token is tokens[0]  # an entry of a list
            depth += 1
        elif token.kind == "sign" and token.text in CLOSERS and depth:
            depth -= 1
        elif token.kind == "sign" and token.text in CLOSERS:
            if is_outside or not (ends or is_inside or token is tokens[0]):
                break
            ends = token
        elif token.kind == "word" and not depth and following.text in BEHIND_A_NAME:
            is_outside = is_outside or token.text in OUTERMOST
            is_inside = is_inside or (ends is None and not is_field(token.text))
    if ends is None:
        words = {token.text for token in tokens if token.kind == "word"}
        is_flat = "{" not in text and words.isdisjoint(("backend", "platform"))  # lines without the block they are of
        return "" if is_inside and (is_flat or (not is_outside and "name" in words)) else text
    return _behind(text, ends)


def _behind(text: str, token: ConfigToken) -> str:
    """The rest of ``text`` at its place."""
    lines = text.split("\n")
    rest = lines[token.line - 1][token.column :].removeprefix(",")
    width = len(lines[token.line - 1])
    return "\n".join([""] * (token.line - 1) + [rest.rjust(width), *lines[token.line :]])


def model_told(text: str, start: int) -> str:
    """The model that the piece at ``start`` is of; empty where the page does not tell."""
    before = OPENS.sub("", text[max(start - BEFORE, 0) : start]).rpartition("```")[2]
    files = [match["name"] for match in FILE.finditer(before)]
    if files:
        return files[-1]
    named = {match["name"] for match in MODEL.finditer(before)}
    if len(named) == 1:
        return named.pop()
    return "" if named else _only_model(text)


@lru_cache(maxsize=4)
def _only_model(text: str) -> str:
    """The engine's model, where the page has its log and names no other model."""
    others = {match["name"] for match in MODEL.finditer(text)} - {MODELS[0]}
    return MODELS[0] if not others and OF_THE_ENGINE.search(text) else ""


def _of_the_backend(page: str, piece: str, start: int) -> str:
    """The engine's model, where the words around a piece name its backend and the piece has a parameter of its own."""
    before = OPENS.sub("", page[max(start - BEFORE, 0) : start]).rpartition("```")[2]
    is_told = THE_BACKEND.search(before) or any(map(THE_BACKEND.search, COMMENT.findall(piece)))
    return MODELS[0] if is_told and OF_ITS_OWN.search(piece) else ""


def model_of(path: str, text: str) -> str:
    """A model is called as its folder; a pasted one as it calls itself."""
    parent = Path(path).parent.name
    return parent or mended_config(text).text("name") if text else parent


def piece_name(page: str, piece: str, start: int) -> str:
    """The file that a page shows a piece of; empty where it calls itself, or nothing tells."""
    model = "" if model_of("", piece) else model_told(page, start) or _of_the_backend(page, piece, start)
    return model and f"{model}/piece"
