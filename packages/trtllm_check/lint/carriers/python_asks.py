"""What Python asks a server for by OpenAI's client: the address of the client, the path and the model."""

import ast
from collections.abc import Callable, Iterator

from trtllm_check.lint.carriers.python_calls import Call
from trtllm_check.lint.carriers.python_text import PythonText
from trtllm_check.lint.shell.words import Word

CLIENTS = ("openai.OpenAI", "openai.AsyncOpenAI")
ASKS = {"chat.completions.create": "/chat/completions", "completions.create": "/completions"}
ADDRESS, MODEL = "base_url", "model"
VALUES, TOOLS = ("max_tokens", "max_completion_tokens", "tool_choice"), "tools"
FIELDS = ("stream", "stream_options", "logprobs", "top_logprobs", "suffix", "temperature", "response_format")
OPEN = "**"  # fields that come from elsewhere: extra_body, a dictionary


def asks(text: PythonText, told: Callable[[ast.AST], Word | None]) -> Iterator[Call]:
    """``client.chat.completions.create(model="x")``, named as its path, with the address among its values."""
    addresses = dict(_addresses(text, told))
    for call in text.calls if addresses else ():
        written = ast.unparse(call.func)
        method = next((one for one in ASKS if written.endswith(f".{one}")), "")
        address = addresses.get(written.removesuffix(f".{method}")) if method else None
        model = next((one.value for one in call.keywords if one.arg == MODEL), None)
        asked = told(model) if model is not None else None
        if address is not None and model is not None and asked is not None and asked.text:
            at = text.at(model)
            place = Word(asked.text, at.line, at.column)
            more = tuple(_more(text, call, told))
            yield Call("openai", ASKS[method], (), values=((ADDRESS, address), (MODEL, place), *more))


def _more(text: PythonText, call: ast.Call, told: Callable[[ast.AST], Word | None]) -> Iterator[tuple[str, Word]]:
    """How long an answer may be, whether it may call tools, and the fields that go together."""
    for one in call.keywords:
        value = told(one.value) if one.arg in (*VALUES, *FIELDS) else None
        at = text.at(one.value)
        if one.arg in (None, "extra_body"):
            yield OPEN, Word(OPEN, at.line, at.column)
        elif value is not None:
            yield str(one.arg), Word(value.text, at.line, at.column)
        elif one.arg in (TOOLS, *FIELDS) and not (isinstance(one.value, ast.Constant) and one.value.value is None):
            yield one.arg, Word(one.arg, at.line, at.column)


def _addresses(text: PythonText, told: Callable[[ast.AST], Word | None]) -> Iterator[tuple[str, Word]]:
    """The clients that are made once -> their addresses."""
    made = text.made_by(*CLIENTS) | text.attributes_made_by(*CLIENTS)
    for node in text.nodes:
        value = node.value if isinstance(node, ast.Assign) else None
        if isinstance(node, ast.Assign) and isinstance(value, ast.Call) and text.dotted(value.func) in CLIENTS:
            given = next((one.value for one in value.keywords if one.arg == ADDRESS), None)
            address = told(given) if given is not None else None
            for target in (ast.unparse(one) for one in node.targets):
                if target in made and address is not None:
                    yield target, address
