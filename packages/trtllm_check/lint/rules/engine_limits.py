"""What an engine is built for against what it is asked for: lengths, beams, batches, packed input, types."""

import posixpath
import re
from collections.abc import Iterator, Sequence
from typing import Any

from trtllm_check.lint.document import ConfigFile, Document
from trtllm_check.lint.endpoints import ServerAddress
from trtllm_check.lint.facts import QUANTIZES, output
from trtllm_check.lint.filling import TRUE, Filling, fillings
from trtllm_check.lint.finding import Draft, Edit, Platform, Put, drafts
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.rules.arguments import is_checked
from trtllm_check.lint.rules.serving import served_model
from trtllm_check.lint.shell.words import Word
from trtllm_check.releases import Release

BUILD, SERVE = "trtllm-build", "trtllm-serve"
RULE = "engine-limit"
OFF = ("disable", "False", "false", "0")
PACKED = {"--remove_input_padding": OFF, "--paged_kv_cache": OFF, "--kv_cache_type": ("disabled", "continuous")}
TYPED = ("--gpt_attention_plugin", "--gemm_plugin", "--bert_attention_plugin", "--lookup_plugin", "--lora_plugin")
TYPES = ("float16", "bfloat16", "float32")
SHARES = ("--kv_cache_free_gpu_memory_fraction", "--kv_cache_free_gpu_mem_fraction", "--free_gpu_memory_fraction")
SHARE = "kv_cache_free_gpu_mem_fraction"
SHARE_IN = re.compile(rf"key\s*:\s*\"{SHARE}\"\s*,?\s*value\s*:?\s*\{{\s*string_value\s*:\s*\"(?P<value>[^\"\n]+)\"")
# Models that answer with no text of their own, or whose decoder has lengths of its own.
NO_ANSWERS = re.compile(
    r"bert|enc(?:oder)?\b|embed|rerank|reward|classif|whisper|t5\b|bart|vision|score", re.IGNORECASE
)
CACHE = "max_tokens_in_paged_kv_cache"
BY_DEFAULT = "1"  # beams of an engine where nothing is said
RUNS = ("run.py", "summarize.py")
ENSEMBLE, ENGINE_MODEL = "ensemble", "tensorrt_llm"
REFUSES_DECOUPLED = re.compile(
    r"doesn't support models with decoupled transaction policy|ModelInfer RPC doesn't support models with decoupled"
)
INFLIGHT = "inflight_fused_batching"


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release
    builds = [one for one in document.of(BUILD) if is_checked(one, release)]
    made = written_once(builds)
    filled = fillings(document, release) if document.of("fill_template.py") else []
    makers = written_once(document.of(*QUANTIZES))
    for build in builds:
        yield from _lengths(build, release)
        maker = makers.get(posixpath.normpath(build.value("--checkpoint_dir") or ""))
        if maker is not None:
            yield from _types(build, maker, release)
    for one in filled:
        yield from _share_of(one, release)
        engine = one.values.get("engine_dir") or one.values.get("gpt_model_path") or ""
        built = made.get(posixpath.normpath(engine)) if engine else None
        if built is None and len(builds) == 1 and one.model == ENGINE_MODEL:
            built = builds[0]  # which is copied or mounted there
        if built is not None:
            yield from _filled(one, built, release)
        yield from _decoupled(document, one, release)
    for config in document.configs:
        yield from _share_in(config, release)
        if made:
            yield from _configured(config, made, release)
    for call in document.calls:
        for name, word in call.values:
            if f"--{name}" in SHARES and _is_no_share(word.text):
                known: dict[str, Any] = {"name": name, "value": word.text}
                yield from drafts(release.name, RULE, word, form="share", file=call.file, **known)
    for invocation in document.invocations:
        yield from _share(invocation, release)
    for run in document.of(*RUNS):
        folder = run.value("--engine_dir")
        built = made.get(posixpath.normpath(folder)) if folder else None
        if built is not None:
            yield from _run(run, built, release)
    for serve in document.of(SERVE):
        engine_word = served_model(serve)
        built = made.get(posixpath.normpath(engine_word.text)) if engine_word is not None else None
        if built is not None:
            yield from _more_beams(serve, "--max_beam_width", built, release)
    if len(builds) == 1 and not filled:
        yield from _asked(document, builds[0], release)


def written_once(commands: Sequence[Invocation]) -> dict[str, Invocation]:
    """Folder -> the command that writes it; none that several write, which are alternatives of one page."""
    writers: dict[str, list[Invocation]] = {}
    for one in commands:
        writers.setdefault(output(one), []).append(one)
    return {folder: found[0] for folder, found in writers.items() if len(found) == 1}


def _say(
    form: str, place: Word, invocation: Invocation, release: Release, edits: tuple[Edit, ...], **known: Any
) -> Iterator[Draft]:
    yield from drafts(release.name, RULE, place, form=form, edits=edits, invocation=invocation, **known)


def number_of(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 9 else None


def _lengths(build: Invocation, release: Release) -> Iterator[Draft]:
    """A prompt that is longer than the whole sequence, or than a step takes."""
    prompt, whole = (number_of(build.value(flag)) for flag in ("--max_input_len", "--max_seq_len"))
    given = build.find("--max_input_len")
    if given and prompt and whole and prompt > whole and release.tools[BUILD].has("--max_seq_len"):
        edits = (Put("--max_seq_len", str(prompt + 1024)),)
        yield from _say("sequence", given.word, build, release, edits, input=prompt, longest=whole)
    written, length = number_of(build.value("--max_seq_len")), build.find("--max_seq_len")
    if length and prompt and prompt == written and not any(NO_ANSWERS.search(word.text) for word in build.arguments):
        edits = (Put("--max_seq_len", str(prompt + 1024)),)
        yield from _say("no answer", length.word, build, release, edits, input=prompt, longest=prompt)

    step, chunks = number_of(build.value("--max_num_tokens")), build.value("--use_paged_context_fmha")
    tokens = build.find("--max_num_tokens")
    if tokens and step and prompt and prompt > step and chunks in ("disable", None) and not _is_paged(release):
        yield from _say("step", tokens.word, build, release, (), step=step, input=prompt)


def _is_paged(release: Release) -> bool:
    """True where a build has paged context FMHA, and with it chunked context, where nothing is said."""
    argument = release.tools[BUILD].argument("--use_paged_context_fmha")
    return argument is None or argument.default != "disable"


def _default(release: Release, flag: str) -> str:
    argument = release.tools[BUILD].argument(flag)
    return str(argument.default) if argument is not None else ""


def _types(build: Invocation, maker: Invocation, release: Release) -> Iterator[Draft]:
    """Plugins of another type than the checkpoint's."""
    dtype = maker.value("--dtype", "--data_type")
    for flag in TYPED if dtype in TYPES else ():
        given = build.find(flag)
        value = build.value(flag)
        if given and value in TYPES and value != dtype:
            edits = (Put(flag, str(dtype)),)
            yield from _say("type", given.word, build, release, edits, flag=flag, value=value, dtype=dtype)


def _filled(one: Filling, build: Invocation, release: Release) -> Iterator[Draft]:
    """Triton's configuration against the engine that it loads."""
    if "$" in one.word.text and not one.known:
        return
    beams, most = number_of(one.values.get("max_beam_width")), number_of(build.value("--max_beam_width") or BY_DEFAULT)
    if beams and most and beams > most:
        edits: tuple[Edit, ...] = (one.with_values({"max_beam_width": str(most)}),)
        yield from _say("beams", one.at("max_beam_width"), one.invocation, release, edits, wanted=beams, most=most)
    batch = number_of(one.values.get("triton_max_batch_size"))
    largest = number_of(build.value("--max_batch_size") or _default(release, "--max_batch_size"))
    if batch and largest and batch > largest:
        place, known = one.at("triton_max_batch_size"), {"wanted": batch, "most": largest}
        if build.find("--max_batch_size"):
            edits = (one.with_values({"triton_max_batch_size": str(largest)}),)
            yield from _say("batch", place, one.invocation, release, edits, **known)
        else:  # the engine is what was forgotten, and batch-of-one mends it
            yield from _say("batch by default", place, one.invocation, release, (), **known)
    cache, longest = number_of(one.values.get(CACHE)), _longest(build)
    if window := one.values.get("max_attention_window_size", ""):  # of the tokens, so many are kept
        longest = min(longest, number_of(window) or 0) if longest else longest
    if cache and longest and cache < longest:
        yield from _say("cache", one.at(CACHE), one.invocation, release, (), wanted=cache, most=longest)
    kind = one.values.get("batching_strategy") or one.values.get("batching_type") or ""
    for flag, values in PACKED.items():
        given = build.find(flag)
        if given and build.value(flag) in values and kind == INFLIGHT:
            yield from _say("packed", given.word, build, release, (), flag=flag, value=build.value(flag))


def _configured(config: ConfigFile, made: dict[str, Invocation], release: Release) -> Iterator[Draft]:
    """The same of a config.pbtxt, or a piece of one, whose engine the text builds."""
    from trtllm_check.lint.pbtxt_mending import mended_config

    message = mended_config(config.text)
    found = {one.text("key"): value for one in message.messages("parameters") for value in one.messages("value")}
    values = {name: value.scalar("string_value") for name, value in found.items()}
    path = values.get("gpt_model_path")
    name = posixpath.basename(path.text.rstrip("/")) if path is not None else ""
    same = [build for folder, build in made.items() if not name or posixpath.basename(folder) == name]
    if len(same) != 1 or not values:
        return
    beams = number_of(same[0].value("--max_beam_width") or BY_DEFAULT)
    for key, form, most in (("max_beam_width", "beams", beams), ("max_tokens_in_paged_kv_cache", "cache", None)):
        place = values.get(key)
        wanted = number_of(place.text) if place is not None else None
        longest = _longest(same[0]) if form == "cache" else None
        too_much = most is not None and wanted is not None and wanted > most
        too_few = longest is not None and wanted is not None and 0 < wanted < longest
        if place is not None and (too_much or too_few):
            word = Word(place.text, config.line + place.line - 1, place.column)
            known: dict[str, Any] = {"wanted": wanted, "most": most if too_much else longest}
            yield from drafts(release.name, RULE, word, form=form, file=config.path, **known)


def _longest(build: Invocation) -> int | None:
    """Tokens of the engine's longest sequence, as far as the command says it."""
    prompt, answer = (number_of(build.value(flag)) for flag in ("--max_input_len", "--max_output_len"))
    return number_of(build.value("--max_seq_len")) or (prompt + answer if prompt and answer else None)


def _decoupled(document: Document, one: Filling, release: Release) -> Iterator[Draft]:
    """/infer on a model that may answer several times."""
    if one.values.get("decoupled_mode") not in TRUE:
        return
    for request in document.requests:
        target = ServerAddress.of(request.url)
        if target.verb == "infer" and target.model in {one.model, *({ENSEMBLE} if one.model == ENGINE_MODEL else ())}:
            place = request.address or request.place
            yield from drafts(
                release.name, "decoupled-needed", place, form="infer", file=request.file, model=target.model
            )
    if any(REFUSES_DECOUPLED.search(text) for _, text in document.texts):
        yield from _policy(one, release)
    for use in document.tensors if one.model == ENGINE_MODEL else ():
        if use.kind == "asked" and use.model in (ENGINE_MODEL, ENSEMBLE) and use.protocol in ("http", "grpc"):
            yield from drafts(release.name, "decoupled-needed", use.place, form="infer", file=use.file, model=use.model)


def _policy(one: Filling, release: Release) -> Iterator[Draft]:
    """The line that makes the model decoupled, where the text quotes the server's word against it."""
    place = one.at("decoupled_mode")
    yield from drafts(release.name, "decoupled-needed", place, form="infer", invocation=one.invocation, model=one.model)


def _share_of(one: Filling, release: Release) -> Iterator[Draft]:
    value = one.values.get(SHARE, "")
    if _is_no_share(value):
        yield from _say("share", one.at(SHARE), one.invocation, release, (), name=SHARE, value=value)


def _share_in(config: ConfigFile, release: Release) -> Iterator[Draft]:
    for match in SHARE_IN.finditer(config.text):
        if _is_no_share(match["value"]) and "$" not in match["value"]:
            start = match.start("value")
            line = config.line + config.text.count("\n", 0, start)
            place = Word(match["value"], line, start - config.text.rfind("\n", 0, start))
            known: dict[str, Any] = {"name": SHARE, "value": match["value"]}
            yield from drafts(release.name, RULE, place, form="share", file=config.path, **known)


def _run(run: Invocation, build: Invocation, release: Release) -> Iterator[Draft]:
    """Prompts that are cut at a length that the engine does not take, and more beams than it has."""
    yield from _more_beams(run, "--num_beams", build, release)
    given = run.find("--max_input_length")
    longest, takes = number_of(run.value("--max_input_length")), number_of(build.value("--max_input_len"))
    if given and longest and takes and longest > takes:
        edits = (Put("--max_input_length", str(takes)),)
        yield from _say("prompt", given.word, run, release, edits, wanted=longest, most=takes)


def _more_beams(one: Invocation, flag: str, build: Invocation, release: Release) -> Iterator[Draft]:
    given, beams = one.find(flag), number_of(one.value(flag))
    most = number_of(build.value("--max_beam_width") or BY_DEFAULT)
    if given and beams and most and beams > most:
        edits = (Put(flag, str(most)),)
        known: dict[str, Any] = {"tool": one.tool, "flag": flag, "wanted": beams, "most": most}
        yield from _say("beams of a run", given.word, one, release, edits, **known)


def _asked(document: Document, build: Invocation, release: Release) -> Iterator[Draft]:
    """Requests with more beams than the one engine of the text."""
    most = number_of(build.value("--max_beam_width") or BY_DEFAULT)
    for request in document.requests:
        beams = (request.fields or {}).get("beam_width")
        target = ServerAddress.of(request.url)
        if most and isinstance(beams, int) and beams > most and target.is_triton:
            known: dict[str, Any] = {"wanted": beams, "most": most, "line": build.path.line}
            yield from drafts(
                release.name, RULE, request.at("beam_width"), form="beams of a request", file=request.file, **known
            )


def _share(invocation: Invocation, release: Release) -> Iterator[Draft]:
    for given in invocation.given:
        if given.name in SHARES and given.values and _is_no_share(given.values[0].text):
            known = {"name": given.name, "value": given.values[0].text}
            yield from _say("share", given.values[0], invocation, release, (), **known)


def _is_no_share(text: str) -> bool:
    try:
        return not 0 < float(text) <= 1
    except ValueError:
        return False
