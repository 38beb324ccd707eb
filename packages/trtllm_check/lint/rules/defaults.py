"""Defaults that bite: what a command does not say, and does not mean."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import PurePosixPath

from trtllm_check.lint import finding
from trtllm_check.lint.document import Document
from trtllm_check.lint.facts import QUANTIZES, DocumentFacts
from trtllm_check.lint.finding import Draft, Drop, Edit, Insert, Platform, Put, gpu_of
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.lookups import once
from trtllm_check.lint.programs import PYTHON
from trtllm_check.lint.rewriting import arguments
from trtllm_check.lint.rules.arguments import is_checked, missing
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.rules.pairs import LAUNCHERS, engine_world, orchestrated
from trtllm_check.lint.shell.words import Word, file_name
from trtllm_check.releases import Release, Tool
from trtllm_check.releases.history import tool_history
from trtllm_check.releases.nearest import nearest

CALIBRATED = ("int8", "fp8")  # caches that quantize.py calibrates beside any weights
CALIBRATION_TEXTS = 512
AWQ_TEXTS = 32
LLAMA_3 = re.compile(r"llama-?_?3", re.IGNORECASE)
GPT = re.compile(r"(?<![\w-])gpt-?2(?![\w.])|examples/gpt\b|\bGPT-\d+M\b", re.IGNORECASE)
OF_GPT = re.compile(r"(?:^|[/_-])gpt(?:2|3)?(?:[/_-]|$)", re.IGNORECASE)
CUT = 923
NEAR = 0.75
OPEN_PROMPT = re.compile(r"\$|^\{[^{}]*\}$")  # a variable; other braces may be the prompt's own
MOST_TOKENS = 16384
LLAMA_3_LENGTH = 8192
ANSWER = 1024  # what is added to a prompt's length where nothing says how long answers are
OF_RANKS = ("run.py", "summarize.py")
OF_DATA = (".json", ".jsonl", ".csv", ".parquet", ".txt")
SERVED = re.compile(r"triton|trtllm-(?:serve|bench)|fill_template|curl ", re.IGNORECASE)


@dataclass(frozen=True)
class _Case:
    """One command with what is known around it."""

    document: Document
    platform: Platform
    invocation: Invocation
    tool: Tool

    @property
    def release(self) -> Release:
        return self.platform.release

    @property
    def facts(self) -> DocumentFacts:
        return self.document.facts_of(self.invocation)

    def value(self, flag: str) -> str:
        return self.invocation.value(flag) or ""

    def place(self, *flags: str) -> Word:
        given = self.invocation.find(*flags)
        return given.word if given else self.invocation.path

    def leaves_out(self, *flags: str) -> bool:
        """True if none of ``flags`` is given, in full or abbreviated, nor something that may hold it."""
        given = arguments(self.invocation, self.release)
        names = [one.name for one in given if one.flag]
        unknown = any(not one.flag and is_open(one.word.text) for one in given)
        return not unknown and not any(flag.startswith(name) for flag in flags for name in names)

    def drafts(
        self, rule: str, place: Word | None = None, edits: tuple[Edit, ...] = (), form: str = "", **known: object
    ) -> Iterator[Draft]:
        return finding.drafts(
            self.release.name,
            rule,
            place or self.invocation.path,
            form=form,
            edits=edits,
            invocation=self.invocation,
            file="",
            tool=self.invocation.tool,
            **known,
        )


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All defaults that a command of a known tool leaves as they are."""
    rules: dict[str, Callable[[_Case], Iterator[Draft]]] = {
        "quantize.py": _quantize,
        "trtllm-build": _build,
        "run.py": _run,
        "summarize.py": _world,
        "launch_triton_server.py": _world,
    }
    for invocation in document.invocations:
        release = platform.release
        if invocation.tool in rules and is_checked(invocation, release):
            case = _Case(document, platform, invocation, release.tools[invocation.tool])
            if not missing(invocation, release):
                yield from rules[invocation.tool](case)
            elif invocation.tool in OF_RANKS:
                yield from _world(case, is_whole=False)


def _quantize(case: _Case) -> Iterator[Draft]:
    qformat, cache = case.value("--qformat"), case.value("--kv_cache_dtype")
    formats = ("--qformat", "--autoq_format", "--auto_quantize_bits", "--weight_compression")
    if case.leaves_out(*formats) and cache not in CALIBRATED and not _is_of_others(case):
        gpu = gpu_of(case.platform)
        best = "int8_sq" if gpu and not gpu.fp8 else "fp8"
        yield from case.drafts("quantizes-nothing", edits=(Put("--qformat", best),))
    if qformat == "fp8" and case.leaves_out("--kv_cache_dtype"):
        yield from case.drafts("kv-cache-stays-16-bit", case.place("--qformat"), (Put("--kv_cache_dtype", "fp8"),))
    size = _number(case.value("--calib_size"))
    if qformat.endswith("awq") and size is not None and size > AWQ_TEXTS:
        edits = (Put("--calib_size", str(AWQ_TEXTS)),)
        yield from case.drafts("awq-calib-capped", case.place("--calib_size"), edits, size=size, qformat=qformat)
    dataset = case.value("--calib_dataset") if case.tool.has("--calib_dataset") else ""
    yield from _dataset(case, dataset)
    if cache == "fp8":
        flag = "--calib_size" if size is not None and size > CALIBRATION_TEXTS else ""
        if dataset and "cnn_dailymail" not in dataset and not is_open(dataset):
            flag = "--calib_dataset"
        if flag:
            yield from case.drafts("fp8-kv-scale-is-one", case.place(flag), flag=flag, value=case.value(flag))


def _is_of_others(case: _Case) -> bool:
    """True for an option that no release's script has, nor one like it: of another project's quantize.py."""
    flags = [one.flag for one in case.invocation.given if one.flag and not is_open(one.flag)]
    known = frozenset(name for _, tool in tool_history("quantize.py") if tool for name in tool.arguments)
    return any(not any(name.startswith(flag) for name in known) and not nearest(flag, known, NEAR) for flag in flags)


def _dataset(case: _Case, dataset: str) -> Iterator[Draft]:
    if not dataset or is_open(dataset) or dataset == "pileval":
        return
    edits: tuple[Edit, ...] = (Put("--calib_dataset", "abisee/cnn_dailymail"),)
    form = "name"
    if dataset == "cnn_dailymail":
        form = "bare"
    elif "cnn_dailymail" in dataset:
        return
    elif "/" in dataset or dataset.startswith(("~", ".")):
        form, edits = "file" if PurePosixPath(dataset).suffix in OF_DATA else "path", ()
    yield from case.drafts("calibration-dataset", case.place("--calib_dataset"), edits, form, dataset=dataset)


@once
def _of_servers(document: Document) -> Iterator[bool]:
    yield any(SERVED.search(text) for _, text in document.texts)


def _build(case: _Case) -> Iterator[Draft]:
    batch = case.tool.argument("--max_batch_size")
    if batch is not None and batch.default == 1 and case.leaves_out("--max_batch_size"):
        is_tried = bool(case.document.of("run.py")) and not any(_of_servers(case.document))
        for draft in case.drafts("batch-of-one", edits=(Put("--max_batch_size", "8"),)):
            yield draft._replace(severity="info") if is_tried else draft
    if not case.tool.has("--max_seq_len"):
        return
    prompt = case.value("--max_input_len")
    answer = case.tool.has("--max_output_len") and case.invocation.has("--max_output_len")
    padded = "disable" in (case.value("--context_fmha"), case.value("--remove_input_padding"))
    padded = padded or PurePosixPath(case.value("--checkpoint_dir") or "").name == "encoder"  # takes its length from it
    if prompt and not answer and not padded and case.leaves_out("--max_seq_len", "--max_decoder_seq_len"):
        number = _number(prompt)
        total = f"$(({prompt} + {ANSWER}))" if number is None else str(number + ANSWER)
        edits = (Put("--max_seq_len", total),) if number is not None or is_open(prompt) else ()
        yield from case.drafts("max-input-len-ignored", case.place("--max_input_len"), edits, value=prompt)
    tokens = _number(case.value("--max_num_tokens"))
    if tokens is not None and tokens > MOST_TOKENS:
        edits = (Put("--max_num_tokens", str(MOST_TOKENS)),)
        yield from case.drafts("max-num-tokens-large", case.place("--max_num_tokens"), edits, value=tokens)


@lru_cache(maxsize=8)
def _names_llama3(texts: tuple[tuple[str, str], ...]) -> bool:
    return any(LLAMA_3.search(text) for _, text in texts)


def _run(case: _Case) -> Iterator[Draft]:
    yield from _world(case)
    tokenizer = case.tool.argument("--tokenizer_dir")
    names = ("--tokenizer_dir", "--vocab_file", "--model_dir")
    folder = case.invocation.value("--engine_dir")
    of_gpt = OF_GPT.search(folder) is not None if folder else _is_of_gpt(case.document.texts)  # whose tokenizer that is
    of_llama3 = _names_llama3(case.document.texts)
    is_wrong = tokenizer is not None and (tokenizer.default == "gpt2" or (tokenizer.default is None and of_llama3))
    if is_wrong and not of_gpt and case.leaves_out(*names):
        folders = (folder for one in reversed(case.document.of(*QUANTIZES)) if (folder := one.value("--model_dir")))
        edits = tuple(Put("--tokenizer_dir", folder) for folder in islice(folders, 1))
        yield from case.drafts("gpt2-tokenizer", edits=edits)
    length = case.tool.argument("--max_input_length")
    if length is not None and length.default == CUT and case.leaves_out("--max_input_length") and _may_be_long(case):
        yield from case.drafts("prompt-cut-at-923", edits=(Put("--max_input_length", _longest_prompt(case)),))
    reuse = "--kv_cache_enable_block_reuse"
    if case.invocation.has(reuse) and case.facts.kv_cache == "fp8":
        yield from case.drafts("kv-reuse-wrong-answers", case.place(reuse), (Drop(reuse),), flag=reuse)


@lru_cache(maxsize=8)
def _is_of_gpt(texts: tuple[tuple[str, str], ...]) -> bool:
    return any(GPT.search(text) for _, text in texts) and not any("llama" in text.lower() for _, text in texts)


def _may_be_long(case: _Case) -> bool:
    built = [build.value("--max_input_len") or "" for build in case.document.of("trtllm-build")]
    if any(one.isdecimal() and int(one) <= CUT + 1 for one in built):
        return False  # the engine takes no longer ones
    texts = case.invocation.values("--input_text")
    return case.invocation.has("--input_file") or any(
        OPEN_PROMPT.search(word.text) or _tokens(word.text) > CUT for word in texts
    )


def _tokens(text: str) -> int:
    """About as many as a prompt has, or a few more: a letter of English is a third of one at most."""
    of_english = sum(letter.isascii() for letter in text)
    return len(text) - of_english + of_english // 3


def _longest_prompt(case: _Case) -> str:
    """The engine's limit, as far as the text says it."""
    tool = case.release.tools.get("trtllm-build")
    builds = case.document.of("trtllm-build")
    flag = "--max_seq_len" if tool and tool.has("--max_seq_len") else "--max_input_len"
    values = [value for build in builds if (value := build.value(flag))]
    default = tool.argument(flag) if tool else None
    return values[-1] if values else str(default.default if default and default.default else LLAMA_3_LENGTH)


def _world(case: _Case, *, is_whole: bool = True) -> Iterator[Draft]:
    """ranks-not-tp-pp: the number of ranks is left out. Of a command that lacks more, no correction is written."""
    invocation, facts = case.invocation, case.facts
    world = engine_world(facts, case.release)
    names = [file_name(word.text) for word in invocation.launcher]
    if world is None or world < 2 or invocation.ranks is not None or set(names) & {*LAUNCHERS, "torchrun"}:
        return
    edits: tuple[Edit, ...]
    left_out = ""
    if invocation.tool == "launch_triton_server.py":
        if orchestrated(invocation) or not case.leaves_out("--world_size"):
            return
        edits, left_out = (Put("--world_size", str(world)),), "; --world_size is left out"
    else:
        words = [*invocation.launcher, invocation.path]
        first = next((word for word in words if PYTHON.fullmatch(PurePosixPath(word.text).name)), invocation.path)
        edits = (Insert(first, ("mpirun", "-n", str(world), "--allow-run-as-root")),)
    ranks = {"world": world, "tp": facts.tp, "pp": facts.pp}
    edits = edits if is_whole else ()
    yield from case.drafts("ranks-not-tp-pp", None, edits, "one rank", **ranks, left_out=left_out)


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 9 else None
