"""Baseten's config.yaml with ``trt_llm``: the engine that a push builds, against what Truss takes (``truss.yml``)."""

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from trtllm_check.lint.carriers.faults import FormFault
from trtllm_check.lint.carriers.schema import TEMPLATE, Misfit, Schema, read_table, read_types
from trtllm_check.lint.carriers.settings import Place, Setting, from_yaml

FILE = "truss.yml"
RULE = "truss-config"
TOP, PARTS = "trt_llm", ("build", "runtime")
DEEPEST = 12
NEAR = 0.6
FORMS = {"near": "near", "unknown": "unknown", "above": "unknown", "below": "below", "choice": "choice", "kind": "kind"}
ENCODERS = ("encoder", "encoder_bert")
COUNTS = ("tensor_parallel_count", "pipeline_parallel_count", "sequence_parallel_count")
LENGTHS = ("max_input_len", "max_output_len")


def faults(node: Any, place: Place) -> Iterator[FormFault]:
    """What Truss refuses of one document, or the engine does not do as it is meant."""
    top = from_yaml(node, place, DEEPEST)
    engine = top.at(TOP)
    if engine is None or not any(engine.at(part) is not None for part in PARTS):
        return
    schema = Schema(read_types(FILE))
    for problem in schema.problems(engine, "TrtLlm", ((TOP, ""),)):
        yield from _misfit(problem, is_whole=top.at("resources") is not None)
    for table in engine.tables():
        yield from _bounds(table)
    build, runtime = engine.at("build"), engine.at("runtime")
    gpu, count = _accelerator(top.at("resources", "accelerator"))
    yield from _gpu_name(top.at("resources", "accelerator"), gpu)
    gpu = gpu if gpu in read_table(FILE)["accelerators"] else ""
    if build is not None and build.kind == "table":
        yield from _base(build)
        yield from _repository(build.at("checkpoint_repository"))
        yield from _on_gpu(build, gpu)
        yield from _attention(build, runtime)
        is_second = _text(engine.at("inference_stack")) == "v2"
        yield from _second_stack(build) if is_second else _ranks(build, gpu, count)
    yield from _answers(build, runtime)
    yield from _ranks_of_two(runtime, gpu, count)


def _misfit(problem: Misfit, *, is_whole: bool) -> Iterator[FormFault]:
    form = FORMS.get(problem.form, "lacking" if problem.form == "lacking" else "")
    known = dict(problem.known)
    setting = problem.setting
    is_number = setting.kind == "text" and setting.text.replace(".", "", 1).isdecimal()
    if " | " in setting.text:
        return  # a page's list of what may stand there
    if not form or (form == "kind" and is_number) or (form == "lacking" and not is_whole):
        return
    about = {**known, "name": known.get("name", setting.written)}
    if known.get("right", "").startswith("one of"):
        about["right"] = f"one of {known['choices']}"
    yield FormFault(RULE, setting.place, form, tuple(about.items()))


def _bounds(table: Setting) -> Iterator[FormFault]:
    data = read_table(FILE)
    for _, value in table.items:
        bounds, number = data["bounds"].get(value.written), _number(value)
        if bounds is None or number is None:
            continue
        step = data["steps"].get(value.written, 0)
        about = (("name", value.written), ("value", value.text), ("low", str(bounds[0])), ("high", str(bounds[1])))
        if not bounds[0] <= number <= bounds[1]:
            yield FormFault(RULE, value.place, "bounds", about)
        elif step and number % step:
            yield FormFault(RULE, value.place, "step", (*about, ("step", str(step))))


def _gpu_name(setting: Setting | None, gpu: str) -> Iterator[FormFault]:
    names = read_table(FILE)["accelerators"]
    if setting is not None and gpu and gpu not in names:
        close = [one for one in names if one.lower() == gpu.lower().replace("-", "_")]
        close = close or get_close_matches(gpu.upper().replace("-", "_"), names, 1, NEAR)
        right = f"write {close[0]}" if close else f"write one of {', '.join(names)}"
        yield FormFault(RULE, setting.place, "accelerator", (("value", gpu), ("right", right)))


def _base(build: Setting) -> Iterator[FormFault]:
    base = build.at("base_model")
    if base is not None and base.text in read_table(FILE)["renamed"]:
        yield FormFault(RULE, base.place, "renamed", (("value", base.text),))


def _repository(checkpoint: Setting | None) -> Iterator[FormFault]:
    """The name of a repository of the Hub has one slash, or none."""
    repo = checkpoint.at("repo") if checkpoint is not None else None
    if checkpoint is None or repo is None or repo.kind != "text" or TEMPLATE.search(repo.text):
        return
    if _text(checkpoint.at("source")) == "HF" and (repo.text.count("/") > 1 or repo.text.startswith(("/", "."))):
        yield FormFault(RULE, repo.place, "repo", (("value", repo.text),))


def _on_gpu(build: Setting, gpu: str) -> Iterator[FormFault]:
    data, kind = read_table(FILE), build.at("quantization_type")
    base = _text(build.at("base_model"))
    if gpu in data["without_tensorrt_llm"] and base not in ENCODERS:
        place = (kind or build.at("base_model") or build).place
        yield FormFault(RULE, place, "gpu", (("gpu", gpu),))
    elif kind is not None and kind.text in (*data["fp8"], *data["fp4"]):
        is_four = kind.text in data["fp4"]
        if gpu in data["without_fp8"] or (is_four and gpu in data["without_fp4"]):
            right = "B200" if is_four else "L4, L40S, H100 or newer"
            yield FormFault(RULE, kind.place, "quantization", (("value", kind.text), ("gpu", gpu), ("right", right)))


def _attention(build: Setting, runtime: Setting | None) -> Iterator[FormFault]:
    """Kernels of the context that need each other, paged blocks and an FP8 cache."""
    plugins, kind = build.at("plugin_configuration"), build.at("quantization_type")
    cache, paged, fp8 = (
        plugins.at(name) if plugins is not None else None
        for name in ("paged_kv_cache", "use_paged_context_fmha", "use_fp8_context_fmha")
    )
    if cache is not None and _is(cache, "false") and any(_is(one, "true") for one in (paged, fp8)):
        yield FormFault(RULE, cache.place, "paged", ())
    if fp8 is not None and _is(fp8, "true"):
        if paged is not None and _is(paged, "false"):
            yield FormFault(RULE, paged.place, "fp8 without paged", ())
        written = _text(kind) or "no_quant"
        if written not in ("fp8_kv", "fp4_kv") and not TEMPLATE.search(written):
            yield FormFault(RULE, fp8.place, "fp8 context", (("value", written),))
    chunked = runtime.at("enable_chunked_context") if runtime is not None else None
    off = next((one for one in (paged, cache) if one is not None and _is(one, "false")), None)
    if off is not None and _is(chunked, "true") and _text(build.at("base_model")) not in ENCODERS:
        yield FormFault(RULE, off.place, "chunked", (("name", off.written),))


def _second_stack(build: Setting) -> Iterator[FormFault]:
    allowed = read_table(FILE)["of_stack_two"]
    for _, value in build.items:
        if value.written in read_types(FILE)["Build"].fields and value.written not in (*allowed, "base_model"):
            yield FormFault(RULE, value.place, "stack", (("name", value.written),))


def _ranks(build: Setting, gpu: str, count: int) -> Iterator[FormFault]:
    given = [build.at(name) for name in COUNTS]
    numbers = [1 if one is None else _number(one) for one in given]
    if not gpu or any(one is None for one in numbers):
        return
    ranks = 1
    for number in numbers:
        ranks *= int(number or 1)
    if ranks != count:
        place = next((one.place for one in given if one is not None), build.place)
        about = (("ranks", str(ranks)), ("gpu", gpu), ("count", str(count)))
        yield FormFault(RULE, place, "ranks", (*about, ("right", f"{gpu}:{ranks}" if ranks > 1 else gpu)))


def _ranks_of_two(runtime: Setting | None, gpu: str, count: int) -> Iterator[FormFault]:
    size = runtime.at("tensor_parallel_size") if runtime is not None else None
    number = _number(size) if size is not None else None
    if size is not None and number and gpu and number > count:
        about = (("ranks", size.text), ("gpu", gpu), ("count", str(count)), ("right", f"{gpu}:{size.text}"))
        yield FormFault(RULE, size.place, "ranks", about)


def _answers(build: Setting | None, runtime: Setting | None) -> Iterator[FormFault]:
    """Answers that are longer than what the engine holds, prompt included."""
    most = (build.at("max_seq_len") if build is not None else None) or (
        runtime.at("max_seq_len") if runtime is not None else None
    )
    wanted = runtime.at("request_default_max_tokens") if runtime is not None else None
    if most is not None and wanted is not None:
        longest, asked = _number(most), _number(wanted)
        if longest and asked and asked > longest:
            yield FormFault(RULE, wanted.place, "answers", (("value", wanted.text), ("most", most.text)))
    if build is not None and (total := _number(build.at("max_seq_len"))):
        for name in LENGTHS:
            part = build.at(name)
            if part is not None and (number := _number(part)) and number > total:
                yield FormFault(RULE, part.place, "answers", (("value", part.text), ("most", str(int(total)))))


def _accelerator(setting: Setting | None) -> tuple[str, int]:
    """``H100:2``; empty where nothing is said."""
    if setting is None or setting.kind != "text" or TEMPLATE.search(setting.text):
        return "", 0
    name, _, count = setting.text.strip().partition(":")
    return (name, int(count or 1)) if not count or count.isdecimal() else ("", 0)


def _text(setting: Setting | None) -> str:
    return setting.text if setting is not None and setting.kind == "text" else ""


def _is(setting: Setting | None, word: str) -> bool:
    return setting is not None and setting.kind == "switch" and setting.text.lower() == word


def _number(setting: Setting | None) -> float | None:
    if setting is None or setting.kind not in ("number", "text"):
        return None
    try:
        return float(setting.text)
    except ValueError:
        return None
