"""What the python models share: Triton's requests and responses as numpy arrays and strings."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

TRUE, FALSE = frozenset({"true", "1", "t", "y", "yes"}), frozenset({"false", "0", "f", "n", "no"})

SMALL_BYTES = 4096
MOST_BUILT = 32


def parameters(args: Mapping[str, str]) -> dict[str, str]:
    """The model's string parameters; unfilled ones, still ``${...}``, are left out, and so are empty ones."""
    config = json.loads(args["model_config"])
    values = {key: value["string_value"] for key, value in config["parameters"].items()}
    return {key: value for key, value in values.items() if value and "${" not in value}


def flag(values: Mapping[str, str], name: str, default: bool) -> bool:
    """A boolean parameter, spelled as NVIDIA's models take it. Raises ValueError for another word."""
    word = values.get(name, str(default)).lower()
    if word not in TRUE | FALSE:
        raise ValueError(f"parameter {name} is {values[name]!r}: write true or false")
    return word in TRUE


def inputs(args: Mapping[str, str]) -> dict[str, str]:
    """Declared inputs: name -> Triton data type."""
    return {tensor["name"]: tensor["data_type"] for tensor in json.loads(args["model_config"])["input"]}


def outputs(args: Mapping[str, str]) -> dict[str, str]:
    """Declared outputs: name -> Triton data type."""
    return {tensor["name"]: tensor["data_type"] for tensor in json.loads(args["model_config"])["output"]}


def arrays(request: Any) -> dict[str, np.ndarray]:
    """Input name -> array; optional inputs that were not sent are absent."""
    return {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}


class BuiltTensors:
    """Tensors of Triton's that are made once for each small value: most of a response is equal to the last one's.

    ``make(name, value)`` makes one. For one thread at a time: Triton puts a tensor into shared memory when it is first
    sent, and from then on every response refers to it there. At most ``MOST_BUILT`` are kept.
    """

    def __init__(self, make: Callable[[str, np.ndarray], Any]) -> None:
        self._make = make
        self._built: dict[tuple[str, str, tuple[int, ...], bytes], Any] = {}

    def __call__(self, name: str, value: np.ndarray) -> Any:
        if value.nbytes > SMALL_BYTES or value.dtype.hasobject:
            return self._make(name, value)
        key = name, value.dtype.str, value.shape, value.tobytes()
        found = self._built.get(key)
        if found is None:
            if len(self._built) >= MOST_BUILT:
                self._built.clear()
            found = self._built[key] = self._make(name, value)
        return found


def text(value: object) -> str:
    """One element of a TYPE_STRING tensor. Raises ValueError if its bytes are not UTF-8."""
    if not isinstance(value, bytes):
        return str(value)
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"text is not UTF-8: {error}") from error


def objects(texts: list[str]) -> np.ndarray:
    """A one-dimensional TYPE_STRING tensor; clients take its element 0."""
    return np.array([text.encode("utf-8") for text in texts], dtype=np.object_)
