"""The real tritonserver with the project's repository before vLLM's worker, on a stand-in for vLLM."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model_server.text import TextCodec
from model_server.triton.server import TritonServer
from serving import PROMPTS, serving
from serving_base.errors import PlaybookError
from serving_clients import triton
from tiny_llama import MODEL_DIR
from vllm_stand_in import END_ID, answer, answer_to_end, births, stand_in_engine, workers

pytestmark = [pytest.mark.server]

STREAMS = 16
NEW_TOKENS = 24


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    engine = stand_in_engine(tmp_path_factory.mktemp("vllm"))
    with serving(tmp_path_factory.mktemp("triton") / "repository", engine) as running:
        yield running


def tensors(prompt: tuple[int, ...], new_tokens: int, *, streaming: bool) -> dict[str, np.ndarray]:
    asked = {"input_ids": [list(prompt)], "input_lengths": [[len(prompt)]], "request_output_len": [[new_tokens]]}
    arrays = {name: np.array(value, dtype=np.int32) for name, value in {**asked, "end_id": [[-1]]}.items()}
    return {**arrays, "streaming": np.array([[streaming]])}


def ids(server: TritonServer, prompt: tuple[int, ...], *, streaming: bool) -> tuple[int, ...]:
    pieces = triton.grpc_infer(server.grpc_url, "tensorrt_llm", tensors(prompt, NEW_TOKENS, streaming=streaming))
    return tuple(token for piece in pieces for token in found(piece))


def test_nothing_comes_that_nobody_asked_for(server: TritonServer) -> None:
    """Release 0.12 sends zeros; those of every piece wait in the ensemble for the answer's end."""
    first, *_ = triton.grpc_infer(server.grpc_url, "tensorrt_llm", tensors((1, 2), 2, streaming=True))
    assert set(first) == {"output_ids", "sequence_length", "batch_index"}


def found(piece: Any) -> list[int]:
    lengths = piece["sequence_length"].reshape(-1)
    return [int(token) for token in piece["output_ids"].reshape(-1)[: int(lengths[0])]]


@pytest.mark.parametrize("streaming", [True, False])
def test_sixteen_clients_at_once_get_the_workers_tokens(server: TritonServer, streaming: bool) -> None:
    prompts = [(number, 3, 5) for number in range(STREAMS)]
    with ThreadPoolExecutor(STREAMS) as pool:
        answers = list(pool.map(lambda prompt: ids(server, prompt, streaming=streaming), prompts))
    assert answers == [answer(prompt, NEW_TOKENS) for prompt in prompts]


def test_text_through_the_ensemble_is_the_workers(server: TritonServer) -> None:
    codec = TextCodec.load(MODEL_DIR)
    expected = [
        codec.decode(answer_to_end(codec.encode(prompt, special_tokens=True), NEW_TOKENS)) for prompt in PROMPTS
    ]
    with ThreadPoolExecutor(STREAMS) as pool:
        asked = pool.map(
            lambda prompt: triton.generate(server.http_url, prompt, NEW_TOKENS, model="ensemble", end_id=END_ID),
            PROMPTS,
        )
        assert list(asked) == expected
    figures = triton.metrics(server.metrics_url)
    (steps,) = [figures[name] for name in figures if 'general_type="iteration_counter"' in name]
    assert steps >= NEW_TOKENS


def test_a_killed_worker_is_told_to_all_and_nothing_hangs(tmp_path: Path) -> None:
    with births() as born:
        with serving(tmp_path / "repository", stand_in_engine(tmp_path)) as doomed:
            (worker,) = workers(born.alive())
            streams = [
                triton.grpc_infer(doomed.grpc_url, "tensorrt_llm", tensors((number,), 700, streaming=True))
                for number in range(STREAMS)
            ]
            for each in streams:
                next(each)
            worker.kill()
            for each in streams:
                with pytest.raises(PlaybookError, match="the engine's process ended"):
                    list(each)
            with pytest.raises(PlaybookError, match="broken"):
                ids(doomed, (1, 2), streaming=False)
            assert not workers(born.alive())
        assert not born.alive()
