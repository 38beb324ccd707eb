"""How Python uses vLLM's engines: what ``generate`` gives, an asynchronous generator or a list."""

import ast
import re
from collections.abc import Iterator

from trtllm_check.lint.carriers.faults import FormFault
from trtllm_check.lint.carriers.python_text import PythonText, fault

ENGINES = ("AsyncLLMEngine", "AsyncLLM")
LISTING = ("vllm.LLM", "vllm.entrypoints.llm.LLM")
OURS = "tensorrt_llm.LLM"
RUNNERS = ("tensorrt_llm.runtime.ModelRunner", "tensorrt_llm.runtime.ModelRunnerCpp")
TEXT_NAMES = ("input_texts", "input_text", "prompts", "prompt", "inputs", "text")  # of other engines' generate
BUILT = re.compile(r"(?<![a-z])(?:trt_?|trtllm_?|built_)?engines?(?:_?(?:dir|path))?(?![a-z])", re.IGNORECASE)
OF_AN_ENTRY = ("outputs", "text", "token_ids", "prompt_token_ids")
SHARE, DEFAULT_SHARE = "gpu_memory_utilization", 0.9
# What takes the first engine away, or puts the second onto another GPU or into another process.
AWAY = re.compile(
    r"\bdel\b|destroy_|shutdown|\.sleep\(|enable_sleep|CUDA_VISIBLE|device=|Process\(|set_device|\bray\b|exec\("
)
MAKERS = ("from_engine_args", "from_vllm_config")


def engine_faults(text: PythonText, *, is_script: bool = False) -> Iterator[FormFault]:
    """``await engine.generate(...)``, and a plain loop over it."""
    yield from _lists(text)
    yield from _built(text)
    yield from _of_texts(text)
    if is_script and not AWAY.search(text.word.text):
        yield from _two(text)
    engines = set(_engines(text))
    if not engines:
        return
    for node in text.nodes:
        if isinstance(node, ast.Await) and (owner := _generates(node.value, engines)):
            yield fault(text, node, "await generator", owner=owner)
        elif isinstance(node, ast.For) and (owner := _generates(node.iter, engines)):
            yield fault(text, node.iter, "plain loop", owner=owner)
        elif isinstance(node, ast.Assign) and (owner := _generates(node.value, engines)):
            yield from _kept(text, node, owner)


def _two(text: PythonText) -> Iterator[FormFault]:
    """Two engines in one process whose shares of the memory are more than the GPU together."""
    for node in text.nodes:
        body = getattr(node, "body", None)
        shares: list[float] = []
        for one in body if isinstance(body, list) else ():
            value = one.value if isinstance(one, ast.Assign) else None
            if isinstance(value, ast.Call) and text.dotted(value.func) in LISTING:
                shares.append(_share(value))
                if len(shares) == 2 and all(shares) and sum(shares) > 1:
                    yield fault(text, value, "two engines", first=f"{shares[0]:g}", second=f"{shares[1]:g}")


def _share(call: ast.Call) -> float:
    """The share of the memory that an engine takes; 0 for what is not told."""
    given = {one.arg: one.value for one in call.keywords}
    if None in given:
        return 0
    value = given.get(SHARE)
    if value is None:
        return DEFAULT_SHARE
    return float(value.value) if isinstance(value, ast.Constant) and isinstance(value.value, int | float) else 0


def _kept(text: PythonText, node: ast.Assign, owner: str) -> Iterator[FormFault]:
    """``answer = engine.generate(...)``, of which an entry's attributes are taken."""
    names = {one.id for one in node.targets if isinstance(one, ast.Name) and len(text.values_of(one.id)) == 1}
    for one in text.nodes:
        held = one.value if isinstance(one, ast.Attribute) and one.attr in OF_AN_ENTRY else None
        if isinstance(one, ast.Attribute) and isinstance(held, ast.Name) and held.id in names:
            yield fault(text, one, "kept generator", owner=owner, attribute=one.attr)
            return


def _built(text: PythonText) -> Iterator[FormFault]:
    """``LLM(model="./engine")`` of TensorRT-LLM, which loads a checkpoint with PyTorch from 1.0 on."""
    for call in map(text.as_written, text.calls):
        if text.dotted(call.func) != OURS or any(one.arg in ("backend", None) for one in call.keywords):
            continue
        given = [*call.args[:1], *(one.value for one in call.keywords if one.arg == "model")]
        written = [ast.unparse(one) for one in given]
        written += [
            ast.unparse(value) for one in given if isinstance(one, ast.Name) for value in text.values_of(one.id)
        ]
        if any(BUILT.search(one) for one in written):
            yield fault(text, given[0], "engine folder", written=written[0])


def _of_texts(text: PythonText) -> Iterator[FormFault]:
    """``ModelRunner.generate(["a text"])``, which takes tensors of tokens."""
    makers = tuple(f"{name}.from_dir" for name in RUNNERS)
    runners = text.made_by(*makers) | text.attributes_made_by(*makers)
    for call in text.calls:
        owner, _, method = ast.unparse(call.func).rpartition(".")
        if owner not in runners or method != "generate":
            continue
        for one in call.keywords:
            if one.arg in TEXT_NAMES:
                yield fault(text, one.value, "runner of texts", written=f"{one.arg}=")
        named = next((one.value for one in call.keywords if one.arg == "batch_input_ids"), None)
        first = call.args[0] if call.args else named
        values = text.values_of(first.id) if isinstance(first, ast.Name) else [first]
        value = values[0] if len(values) == 1 else None  # a name that is set once
        items = value.elts if isinstance(value, ast.List) else [value] if value is not None else []
        if first is not None and items and all(map(_is_text, items)):
            yield fault(text, first, "runner of texts", written=ast.unparse(first)[:40])


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _lists(text: PythonText) -> Iterator[FormFault]:
    """``LLM(...).chat("a text")``, which wants messages."""
    engines = text.made_by(*LISTING)
    for call in text.calls:
        engine, _, method = ast.unparse(call.func).rpartition(".")
        first = call.args[0] if call.args and engine in engines and method == "chat" else None
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            yield fault(text, first, "chat of a text", owner=engine)


def _engines(text: PythonText) -> Iterator[str]:
    """What is an asynchronous engine and nothing else: names and attributes of ``self``, as they are written."""
    made: dict[str, set[bool]] = {}
    for node in text.nodes:
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            if isinstance(target, ast.Name | ast.Attribute):
                made.setdefault(ast.unparse(target), set()).add(_makes_one(text, node.value))
    yield from (name for name, kinds in made.items() if kinds == {True})


def _makes_one(text: PythonText, node: ast.expr) -> bool:
    dotted = text.dotted(node.func).split(".") if isinstance(node, ast.Call) else []
    return len(dotted) > 2 and dotted[0] == "vllm" and dotted[-1] in MAKERS and dotted[-2] in ENGINES


def _generates(node: ast.expr, engines: set[str]) -> str:
    """The engine whose ``generate`` is called; "" for any other call."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "generate":
        return ""
    owner = ast.unparse(node.func.value)
    return owner if owner in engines else ""
