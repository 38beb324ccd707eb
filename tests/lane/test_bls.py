"""tensorrt_llm_bls with a stand-in for Triton's module: which side is the last to hold a stream of responses."""

import gc
import importlib.util
import sys
import types
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model_server.triton import repository

MODEL = Path(repository.__file__).parent / "models/tensorrt_llm_bls/1/model.py"


OUTPUT_IDS = types.SimpleNamespace(name=lambda: "output_ids", as_numpy=lambda: np.zeros((1, 1, 1), np.int32))


class Responses:
    """What ``exec`` of a decoupled request returns: Triton's stub holds one too, and forgets it when it is finished."""

    def __init__(self, count: int) -> None:
        self._left = count

    def __iter__(self) -> Iterator[Any]:
        while self._left:
            self._left -= 1
            yield types.SimpleNamespace(has_error=lambda: False, output_tensors=lambda: [OUTPUT_IDS])


@pytest.fixture
def bls(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    backend = types.ModuleType("triton_python_backend_utils")
    backend.Tensor = lambda name, value: (name, value)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, backend.__name__, backend)
    specification = importlib.util.spec_from_file_location("bls_model", MODEL)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def asked(bls: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list["weakref.ref[Responses]"]]:
    """A model, and the responses that its calls get, held by nobody else."""
    given: list[weakref.ref[Responses]] = []

    def execute(*, decoupled: bool) -> Responses:
        assert decoupled
        responses = Responses(3)
        given.append(weakref.ref(responses))
        return responses

    request = types.SimpleNamespace(exec=execute)
    monkeypatch.setattr(bls.pb_utils, "InferenceRequest", lambda **words: request, raising=False)
    model = bls.TritonPythonModel()
    model.initialize({"model_config": '{"parameters": {}, "input": [], "output": []}'})
    return model, given


@pytest.fixture
def decoupled(bls: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bls.pb_utils, "using_decoupled_model_transaction_policy", lambda config: True, raising=False)


@pytest.mark.usefixtures("decoupled")
@pytest.mark.parametrize("taken", [1, 3])
def test_responses_outlive_their_call_whether_taken_or_left(
    bls: types.ModuleType, monkeypatch: pytest.MonkeyPatch, taken: int
) -> None:
    model, given = asked(bls, monkeypatch)
    call = model._call("tensorrt_llm", {}, ["output_ids"], decoupled=True)
    for _ in range(taken):
        next(call)
    call.close()
    del call
    gc.collect()
    assert given[0]() is not None


@pytest.mark.usefixtures("decoupled")
def test_responses_are_let_go_after_a_while(bls: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = types.SimpleNamespace(now=100.0)
    monkeypatch.setattr(bls.time, "monotonic", lambda: clock.now)
    model, given = asked(bls, monkeypatch)
    for seconds in (0.0, bls.KEPT_S / 2, bls.KEPT_S * 2):
        clock.now = 100.0 + seconds
        assert len(list(model._call("tensorrt_llm", {}, ["output_ids"], decoupled=True))) == 3
    gc.collect()
    assert [reference() is not None for reference in given] == [False, False, True]
