"""How Python uses SageMaker's SDK and endpoints: what a call returns, how answers are read, what is packed."""

import ast
import re
from collections.abc import Iterator

from trtllm_check.lint.carriers.faults import FormFault
from trtllm_check.lint.carriers.python_text import PythonText

RULE = "sagemaker-python"
MODELS = ("sagemaker.Model", "sagemaker.model.Model")
PREDICTORS = ("sagemaker.Predictor", "sagemaker.predictor.Predictor")
JUMPSTART = ("sagemaker.jumpstart.model.JumpStartModel",)
GATED = re.compile(r"(?:meta-(?:textgeneration|vlm)-llama|huggingface-llm-gemma)-[\w-]+")
SNAPSHOT = ("huggingface_hub.snapshot_download",)
ASYNC, STREAM = "invoke_endpoint_async", "invoke_endpoint_with_response_stream"
INVOKES = ("invoke_endpoint", "invoke_model")
BODY, PART = "Body", "PayloadPart"
DEEPEST = 4
# text-generation-inference before 2.3, which answers at /invocations to its own bodies alone.
OF_TGI = re.compile(
    r"get_huggingface_llm_image_uri\((?:[^()]|\([^()]*\))*?version\s*=\s*[\"'](?P<sdk>[\d.]+)|-tgi(?P<tag>\d+\.\d+)\."
)
BEFORE = (2, 3)
MESSAGES = "MESSAGES_API_ENABLED"
INPUTS, OF_OTHERS = "inputs", frozenset({"prompt", "messages", "text", "input", "query", "question", "text_inputs"})


def sagemaker_faults(text: PythonText) -> Iterator[FormFault]:
    """All faults of the program."""
    yield from _links(text)
    if "sagemaker" not in text.word.text:
        return
    yield from _predictors(text)
    yield from _async_answers(text)
    yield from _bodies(text)
    yield from _streams(text)
    yield from _licences(text)
    yield from _payloads(text)


def _fault(text: PythonText, node: ast.expr, form: str, **known: str) -> FormFault:
    return FormFault(RULE, text.at(node), form, tuple(known.items()))


def _method(call: ast.Call) -> tuple[str, str]:
    """``model`` and ``deploy`` of ``model.deploy(...)``; empty for another call."""
    func = call.func
    if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name):
        return func.value.id, func.attr
    return "", ""


def _given(call: ast.Call) -> set[str]:
    """The keywords of a call; one more where nobody knows them all."""
    return {one.arg or "**" for one in call.keywords}


def _is_set(text: PythonText, name: str, attribute: str) -> bool:
    """True where the program sets ``name.attribute``."""
    return any(
        isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and node.attr == attribute
        and isinstance(node.value, ast.Name)
        and node.value.id == name
        for node in text.nodes
    )


def _predictors(text: PythonText) -> Iterator[FormFault]:
    """``predict`` of what ``Model.deploy`` returns without a class of predictors, and of one that sends bytes alone."""
    nothing: set[str] = set()
    plain: set[str] = set()
    models = {name: _only_call(text, name) for name in text.made_by(*MODELS)}
    for name in text.made_by(*PREDICTORS):
        call = _only_call(text, name)
        if len(call.args) < 3 and not _given(call) & {"serializer", "**"}:
            plain.add(name)
    for call in text.calls:
        owner, method = _method(call)
        made = models.get(owner) if method == "deploy" else None
        if made is None or "**" in _given(made) or _is_set(text, owner, "predictor_cls"):
            continue
        targets = {name for name in text.targets_of(call) if len(text.values_of(name)) == 1}
        named = next((one.value for one in made.keywords if one.arg == "predictor_cls"), None)
        if named is None and len(made.args) < 4:
            nothing |= targets
        elif named is not None and text.dotted(named) in PREDICTORS and not _given(call) & {"serializer", "**"}:
            plain |= targets
    for call in text.calls:
        owner, method = _method(call)
        if method != "predict":
            continue
        if owner in nothing:
            yield _fault(text, call.func, "no predictor", name=owner)
        elif owner in plain and not _is_set(text, owner, "serializer") and call.args and _is_table(text, call.args[0]):
            yield _fault(text, call.args[0], "serializer", name=owner)


def _only_call(text: PythonText, name: str) -> ast.Call:
    (value,) = text.values_of(name)
    assert isinstance(value, ast.Call)
    return value


def _is_table(text: PythonText, node: ast.expr) -> bool:
    values = text.values_of(node.id) if isinstance(node, ast.Name) else [node]
    return bool(values) and all(isinstance(one, ast.Dict) for one in values)


def _answers(text: PythonText, method: str) -> set[str]:
    """Names that are answers of this operation and nothing else."""
    found: set[str] = set()
    for call in text.calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr == method:
            found |= text.targets_of(call)
    return {name for name in found if len(text.values_of(name)) == 1}


def _is_body(node: ast.expr, answers: set[str], method: str) -> bool:
    """``answer["Body"]``, of a name or of the call itself."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Constant) or node.slice.value != BODY:
        return False
    of = node.value
    if isinstance(of, ast.Name):
        return of.id in answers
    return isinstance(of, ast.Call) and isinstance(of.func, ast.Attribute) and of.func.attr == method


def _async_answers(text: PythonText) -> Iterator[FormFault]:
    """``answer["Body"]`` of an asynchronous endpoint, whose answer comes to S3."""
    answers = _answers(text, ASYNC)
    for node in text.nodes:
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and _is_body(node, answers, ASYNC):
            yield _fault(text, node, "asynchronous")


def _bodies(text: PythonText) -> Iterator[FormFault]:
    """``json.loads(answer["Body"])`` without ``read``."""
    for method in INVOKES:
        answers = _answers(text, method)
        for call in text.calls:
            if text.dotted(call.func) == "json.loads" and call.args and _is_body(call.args[0], answers, method):
                yield _fault(text, call, "body")


def _streams(text: PythonText) -> Iterator[FormFault]:
    """``json.loads`` of each part of a stream, in a loop that collects nothing."""
    answers = _answers(text, STREAM)
    for loop in text.nodes:
        if not isinstance(loop, ast.For) or not _is_body(loop.iter, answers, STREAM):
            continue
        inside = [node for one in loop.body for node in ast.walk(one)]
        if any(isinstance(node, ast.Try | ast.AugAssign | ast.While) for node in inside):
            continue
        made = {
            target.id: node.value
            for node in inside
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in inside:
            is_call = isinstance(node, ast.Call) and text.dotted(node.func) == "json.loads" and len(node.args) == 1
            if isinstance(node, ast.Call) and is_call and _is_part(node.args[0], made, 0):
                yield _fault(text, node, "stream")


def _is_part(node: ast.expr, made: dict[str, ast.expr], depth: int) -> bool:
    """True for the bytes or the text of one part, as they came."""
    if depth > DEEPEST:
        return False
    if isinstance(node, ast.Name):
        return node.id in made and _is_part(made[node.id], made, depth + 1)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        is_plain = node.func.attr in ("decode", "get", "strip", "lstrip", "removeprefix")
        return is_plain and (_is_part(node.func.value, made, depth + 1) or _is_named_part(node))
    if isinstance(node, ast.Subscript):
        return _is_named_part(node) or _is_part(node.value, made, depth + 1)
    return False


def _is_named_part(node: ast.expr) -> bool:
    return any(isinstance(one, ast.Constant) and one.value == PART for one in ast.walk(node))


def _links(text: PythonText) -> Iterator[FormFault]:
    """A snapshot of the hub's cache, which is links, in an archive."""
    paths = set()
    for name in text.made_by(*SNAPSHOT):
        if not _given(_only_call(text, name)) & {"local_dir", "**"}:
            paths.add(name)
    opened = [call for call in text.calls if text.dotted(call.func) == "tarfile.open"]
    follows = any("dereference" in _given(call) for call in opened)
    for call in text.calls if paths else ():
        _, method = _method(call)
        packs = method == "add" and bool(opened) and not follows
        archive = text.dotted(call.func) == "shutil.make_archive" and len(call.args) > 2
        given = call.args[2] if archive else call.args[0] if packs and call.args else None
        if isinstance(given, ast.Name) and given.id in paths:
            yield _fault(text, given, "links", name=given.id)


def _payloads(text: PythonText) -> Iterator[FormFault]:
    """``predict({"prompt": ...})`` of text-generation-inference, whose bodies have inputs."""
    versions = {match["sdk"] or match["tag"] for match in OF_TGI.finditer(text.word.text)}
    if len(versions) != 1 or MESSAGES in text.word.text:
        return
    parts = [int(one) for one in versions.pop().split(".")[:2] if one.isdecimal()]
    if len(parts) != len(BEFORE) or tuple(parts) >= BEFORE:
        return
    for call in text.calls:
        _, method = _method(call)
        given = call.args[0] if method == "predict" and len(call.args) == 1 else None
        if method in INVOKES[:1]:
            body = next((one.value for one in call.keywords if one.arg == BODY), None)
            is_json = isinstance(body, ast.Call) and text.dotted(body.func) == "json.dumps" and bool(body.args)
            given = body.args[0] if isinstance(body, ast.Call) and is_json else None
        values = text.values_of(given.id) if isinstance(given, ast.Name) else [given]
        table = values[0] if len(values) == 1 else None
        if not isinstance(table, ast.Dict) or not all(isinstance(key, ast.Constant) for key in table.keys):
            continue
        keys = [str(key.value) for key in table.keys if isinstance(key, ast.Constant)]
        wrong = [one for one in keys if one in OF_OTHERS]
        if wrong and INPUTS not in keys:
            yield _fault(text, table, "payload", name=wrong[0])


def _licences(text: PythonText) -> Iterator[FormFault]:
    """A gated model of JumpStart that is deployed without its licence."""
    if "accept_eula" in text.word.text:
        return
    for name in text.made_by(*JUMPSTART):
        made = _only_call(text, name)
        given = [*made.args[:1], *(one.value for one in made.keywords if one.arg == "model_id")]
        model = str(given[0].value) if given and isinstance(given[0], ast.Constant) else ""
        for call in text.calls if GATED.fullmatch(model) else ():
            if _method(call) == (name, "deploy") and "**" not in _given(call):
                yield _fault(text, call.func, "licence", model=model)
