"""What NVIDIA's published clients of 0.12, 0.16 and 0.19 send and need, asked in our own words.

The clients: triton-inference-server/tensorrtllm_backend at the tags v0.12.0, v0.16.0 and v0.19.0,
inflight_batcher_llm/client/*.py and tools/inflight_batcher_llm/*.py.
"""

import queue
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException

from cpu_serving.engine import Engine, Sampling
from model_server.text import TextCodec
from model_server.triton.server import TritonServer
from nvidia_requests import (
    NEW_TOKENS,
    Tensors,
    answers,
    inputs,
    model_values,
    stop_values,
    stream,
    text_values,
    texts,
    tokens,
)
from serving import END_ID, build_tiny_engine, serving
from tiny_llama import MODEL_DIR
from waiting import tried

pytestmark = [pytest.mark.server]

PROMPT = "Return the name of the file"


@pytest.fixture(scope="module")
def engine_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_engine(tmp_path_factory.mktemp("engine") / "engine")


@pytest.fixture(scope="module")
def codec() -> TextCodec:
    return TextCodec.load(MODEL_DIR)


@pytest.fixture(scope="module")
def prompt_ids(codec: TextCodec) -> list[int]:
    return codec.encode(PROMPT, special_tokens=True)


@pytest.fixture(scope="module")
def new_ids(engine_folder: Path, prompt_ids: list[int]) -> list[int]:
    with Engine(engine_folder, threads=1) as engine:
        (completion,) = engine.generate([prompt_ids], Sampling(max_new_tokens=NEW_TOKENS, end_id=END_ID))
    return list(completion.token_ids)


@pytest.fixture(scope="module", params=["0.12.0", "0.16.0", "0.19.0"])
def decoupled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, engine_folder: Path
) -> Iterator[tuple[str, str]]:
    """(release, gRPC address) of a server in decoupled mode, with the prompt in its answers as the template has it."""
    folder = tmp_path_factory.mktemp("decoupled") / "repository"
    with serving(folder, engine_folder, request.param, exclude_input_in_output=False) as server:
        yield request.param, server.grpc_url


@pytest.fixture(scope="module", params=["0.12.0", "0.16.0", "0.19.0"])
def one_answer(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, engine_folder: Path
) -> Iterator[tuple[str, TritonServer]]:
    """(release, server) of a server without decoupling."""
    folder = tmp_path_factory.mktemp("plain") / "repository"
    options = {"exclude_input_in_output": False, "decoupled": False}
    with serving(folder, engine_folder, request.param, **options) as server:
        yield request.param, server


# ---- decoupled


def test_streamed_tokens_and_their_outputs(
    decoupled: tuple[str, str], prompt_ids: list[int], new_ids: list[int]
) -> None:
    _, url = decoupled
    wanted = ["output_ids", "sequence_length"]
    results = answers(url, "tensorrt_llm", model_values(prompt_ids, streaming=True), wanted)
    assert tokens(results) == new_ids
    assert all({output.name for output in result.get_response().outputs} == set(wanted) for result in results)
    assert all(result.as_numpy("sequence_length")[0][0] == 1 for result in results)


def test_one_answer_on_a_decoupled_model_holds_the_prompt(
    decoupled: tuple[str, str], prompt_ids: list[int], new_ids: list[int]
) -> None:
    _, url = decoupled
    (result,) = answers(url, "tensorrt_llm", model_values(prompt_ids))
    assert tokens([result]) == prompt_ids + new_ids
    assert result.as_numpy("sequence_length").tolist() == [[len(prompt_ids + new_ids)]]
    first = result.get_response().outputs[0]
    assert (first.name, list(first.shape)) == ("output_ids", [1, 1, len(prompt_ids + new_ids)])


def test_the_requests_flag_leaves_the_prompt_out(
    decoupled: tuple[str, str], prompt_ids: list[int], new_ids: list[int]
) -> None:
    release, url = decoupled
    values = model_values(prompt_ids, exclude_input_in_output=np.array([[True]]))
    results = answers(url, "tensorrt_llm", values)
    if release == "0.12.0":
        assert "unexpected inference input 'exclude_input_in_output'" in results[0].message()
    else:
        assert tokens(results) == new_ids


@pytest.mark.parametrize("model", ["ensemble", "tensorrt_llm_bls"])
def test_text_client(decoupled: tuple[str, str], codec: TextCodec, new_ids: list[int], model: str) -> None:
    _, url = decoupled
    pieces = answers(url, model, text_values([PROMPT], stream=True), ["text_output", "batch_index"])
    assert "".join(texts(pieces)) == "".join(codec.decode([token], skip_special_tokens=True) for token in new_ids)
    assert all(piece.as_numpy("batch_index").tolist() == [[0]] for piece in pieces)
    (whole,) = texts(answers(url, model, text_values([PROMPT])))
    assert whole == PROMPT + codec.decode(new_ids, skip_special_tokens=True)


@pytest.mark.parametrize("model", ["ensemble", "tensorrt_llm_bls"])
def test_a_batch_of_prompts_answers_by_batch_index(decoupled: tuple[str, str], model: str) -> None:
    _, url = decoupled
    prompts = [PROMPT, "The value of"]
    alone = ["".join(texts(answers(url, model, text_values([prompt], stream=True)))) for prompt in prompts]
    together = ["", ""]
    for piece in answers(url, model, text_values(prompts, stream=True), ["text_output", "batch_index"]):
        together[piece.as_numpy("batch_index")[0][0]] += piece.as_numpy("text_output")[0].decode()
    assert together == alone


@pytest.mark.parametrize("model", ["ensemble", "tensorrt_llm_bls"])
def test_two_sequences_answer_by_sequence_index(decoupled: tuple[str, str], model: str) -> None:
    release, url = decoupled
    values = text_values(
        [PROMPT], stream=True, num_return_sequences=np.array([[2]], np.int32), top_k=np.array([[20]], np.int32)
    )
    if release == "0.12.0":
        (error,) = answers(url, model, values)
        assert "unexpected inference input 'num_return_sequences'" in error.message()
        return
    sequences = ["", ""]
    for piece in answers(url, model, values, ["text_output", "sequence_index"]):
        sequences[piece.as_numpy("sequence_index")[0][0]] += piece.as_numpy("text_output")[0].decode()
    assert all(sequences)
    assert sequences[0] != sequences[1]


def test_streamed_log_probabilities_are_real(decoupled: tuple[str, str], prompt_ids: list[int]) -> None:
    _, url = decoupled
    values = model_values(prompt_ids, streaming=True, return_log_probs=np.array([[True]]))
    results = answers(url, "tensorrt_llm", values)
    chances = [float(result.as_numpy("output_log_probs")[0, 0, 0]) for result in results]
    assert all(value <= 0 for value in chances)
    assert len(set(values)) > NEW_TOKENS // 2
    assert results[-1].as_numpy("cum_log_probs")[0, 0] == pytest.approx(sum(chances), abs=1e-4)


def test_a_stop_request_ends_the_running_one(decoupled: tuple[str, str], prompt_ids: list[int]) -> None:
    _, url = decoupled
    values = model_values(prompt_ids, 600, streaming=True, end_id=np.array([[-1]], np.int32))

    def stopped() -> int | None:
        with stream(url) as (client, arrived):
            client.async_stream_infer("tensorrt_llm", inputs(grpcclient, values), request_id="77")
            first = arrived.get(timeout=20)
            client.async_stream_infer("tensorrt_llm", inputs(grpcclient, stop_values()), request_id="77")
            client.stop_stream()
        results = [first, *arrived.queue]
        assert not any(isinstance(result, InferenceServerException) for result in results)
        streamed = [result for result in results if result.as_numpy("output_ids") is not None]
        assert len(results) - len(streamed) == 1  # the stop request's own answer, without tensors
        return len(streamed) if len(streamed) < 600 else None

    assert tried(stopped, "the stop request ends the running one") > 0


def test_a_stop_request_needs_an_id(decoupled: tuple[str, str]) -> None:
    _, url = decoupled
    (error,) = answers(url, "tensorrt_llm", stop_values())
    assert "a stop request must carry the id" in error.message()


def test_a_cancelled_stream_ends_early(decoupled: tuple[str, str], prompt_ids: list[int]) -> None:
    _, url = decoupled
    values = model_values(prompt_ids, 600, streaming=True, end_id=np.array([[-1]], np.int32))

    def cancelled() -> int | None:
        with stream(url) as (client, arrived):
            client.async_stream_infer("tensorrt_llm", inputs(grpcclient, values), request_id="78")
            arrived.get(timeout=20)
            client.stop_stream(cancel_requests=True)
        results = list(arrived.queue)
        failures = [result for result in results if isinstance(result, InferenceServerException)]
        assert [failure.status() for failure in failures] in ([], ["StatusCode.CANCELLED"])
        return len(results) if len(results) < 599 else None

    tried(cancelled, "a cancelled stream ends before its 600 tokens")


def test_an_error_ends_the_stream_too(decoupled: tuple[str, str], prompt_ids: list[int]) -> None:
    _, url = decoupled
    (error,) = answers(url, "tensorrt_llm", model_values(prompt_ids, 0, streaming=True), request_id="79")
    assert "request '79' refused: request_output_len is 0" in error.message()


# ---- one answer


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_three_models_by_hand_equal_ensemble_and_bls(
    one_answer: tuple[str, TritonServer], codec: TextCodec, prompt_ids: list[int], new_ids: list[int], protocol: str
) -> None:
    release, server = one_answer
    api = httpclient if protocol == "http" else grpcclient
    url = server.http_url.removeprefix("http://") if protocol == "http" else server.grpc_url
    word = np.array([[b""]], object)
    with api.InferenceServerClient(url) as client:
        pre = client.infer(
            "preprocessing",
            inputs(
                api,
                {
                    "QUERY": np.array([[PROMPT.encode()]], object),
                    "BAD_WORDS_DICT": word,
                    "STOP_WORDS_DICT": word,
                    "REQUEST_OUTPUT_LEN": np.array([[NEW_TOKENS]], np.int32),
                },
            ),
            request_id="0",
        )
        names = {
            "input_ids": "INPUT_ID",
            "decoder_input_ids": "DECODER_INPUT_ID",
            "input_lengths": "REQUEST_INPUT_LEN",
            "request_output_len": "REQUEST_OUTPUT_LEN",
            "end_id": "OUT_END_ID",
            "pad_id": "OUT_PAD_ID",
        }
        answer = client.infer(
            "tensorrt_llm", inputs(api, {name: pre.as_numpy(source) for name, source in names.items()}), request_id="0"
        )
        assert answer.as_numpy("output_ids")[0, 0].tolist() == prompt_ids + new_ids
        to_post = {"TOKENS_BATCH": "output_ids", "SEQUENCE_LENGTH": "sequence_length"}
        if release == "0.12.0":
            to_post |= {
                "CUM_LOG_PROBS": "cum_log_probs",
                "OUTPUT_LOG_PROBS": "output_log_probs",
                "CONTEXT_LOGITS": "context_logits",
                "GENERATION_LOGITS": "generation_logits",
            }
        post = client.infer(
            "postprocessing", inputs(api, {name: answer.as_numpy(source) for name, source in to_post.items()})
        )
        by_hand = post.as_numpy("OUTPUT")
        assert by_hand.shape == (1,)
        assert by_hand[0].decode() == PROMPT + codec.decode(new_ids, skip_special_tokens=True)
        values = {name: text_values([PROMPT])[name] for name in ("text_input", "max_tokens", "bad_words", "stop_words")}
        for model in ("ensemble", "tensorrt_llm_bls"):
            assert client.infer(model, inputs(api, values)).as_numpy("text_output").tolist() == by_hand.tolist()


def test_outputs_that_nobody_asked_for(one_answer: tuple[str, TritonServer], prompt_ids: list[int]) -> None:
    """0.12's own client reads them all; from 0.16 on a client asks for what it reads."""
    release, server = one_answer
    with grpcclient.InferenceServerClient(server.grpc_url) as client:
        answer = client.infer("tensorrt_llm", inputs(grpcclient, model_values(prompt_ids)))
    optional = ("cum_log_probs", "output_log_probs", "context_logits", "generation_logits")
    shapes = {name: value.shape for name in optional if (value := answer.as_numpy(name)) is not None}
    if release == "0.12.0":
        assert list(shapes.values()) == [(1, 1), (1, 1, len(prompt_ids)), (1, 1, 1), (1, 1, 1, 1)]
    else:
        assert shapes == {}


def test_log_probabilities_and_logits_by_flag(
    one_answer: tuple[str, TritonServer], prompt_ids: list[int], new_ids: list[int]
) -> None:
    _, server = one_answer
    flags = ("return_log_probs", "return_context_logits", "return_generation_logits")
    values = model_values(prompt_ids) | {flag: np.array([[True]]) for flag in flags}
    outputs = ["output_ids", "cum_log_probs", "output_log_probs", "context_logits", "generation_logits"]
    wanted = [grpcclient.InferRequestedOutput(name) for name in outputs]
    with grpcclient.InferenceServerClient(server.grpc_url) as client:
        answer = client.infer("tensorrt_llm", inputs(grpcclient, values), outputs=wanted)
    assert [output.name for output in answer.get_response().outputs] == outputs
    generation = answer.as_numpy("generation_logits")[0, 0]
    assert generation.argmax(axis=1).tolist() == new_ids
    log_softmax = generation - np.log(np.exp(generation).sum(axis=1, keepdims=True))
    expected = log_softmax[np.arange(len(new_ids)), new_ids]
    assert answer.as_numpy("output_log_probs")[0, 0].tolist() == pytest.approx(expected.tolist(), abs=1e-3)
    assert answer.as_numpy("context_logits").shape == (1, len(prompt_ids), 2048)


def test_the_ensemble_hands_log_probabilities_through(one_answer: tuple[str, TritonServer]) -> None:
    _, server = one_answer
    values = text_values([PROMPT], return_log_probs=np.array([[True]]))
    with httpclient.InferenceServerClient(server.http_url.removeprefix("http://")) as client:
        answer = client.infer("ensemble", inputs(httpclient, values))
        through_bls = client.infer("tensorrt_llm_bls", inputs(httpclient, values))
    assert answer.as_numpy("output_log_probs").shape == (1, 1, NEW_TOKENS)
    assert (answer.as_numpy("output_log_probs") == through_bls.as_numpy("output_log_probs")).all()
    assert answer.as_numpy("cum_log_probs")[0, 0] < 0


def test_statistics_of_the_benchmark_client(one_answer: tuple[str, TritonServer], prompt_ids: list[int]) -> None:
    """It subtracts the prompt from the first output's last dimension, and goes negative without the prompt in it."""
    _, server = one_answer
    with httpclient.InferenceServerClient(server.http_url.removeprefix("http://"), concurrency=16) as client:
        lengths = [4 + number for number in range(16)]
        pending = [
            client.async_infer(
                "tensorrt_llm",
                inputs(httpclient, model_values(prompt_ids, length, end_id=np.array([[-1]], np.int32))),
                request_id=str(number),
            )
            for number, length in enumerate(lengths)
        ]
        shapes = [request.get_result().get_response()["outputs"][0]["shape"] for request in pending]
    assert [shape[2] - len(prompt_ids) for shape in shapes] == lengths


def test_a_stop_request_answers_with_what_there_is(one_answer: tuple[str, TritonServer], prompt_ids: list[int]) -> None:
    _, server = one_answer
    values = model_values(prompt_ids, 600, end_id=np.array([[-1]], np.int32))
    pause_s = 0.4  # two calls overtake each other; shorter each time
    with grpcclient.InferenceServerClient(server.grpc_url) as client:

        def stopped() -> int | None:
            nonlocal pause_s
            arrived: queue.Queue[Any] = queue.Queue()

            def send(tensors: Tensors) -> None:
                client.async_infer(
                    "tensorrt_llm",
                    inputs(grpcclient, tensors),
                    callback=lambda result, error: arrived.put(error or result),
                    request_id="80",
                )

            send(values)
            time.sleep(pause_s)
            pause_s *= 0.7
            send(stop_values())
            results = [arrived.get(timeout=20), arrived.get(timeout=20)]
            answers = [ids for result in results if (ids := result.as_numpy("output_ids")) is not None]
            assert len(answers) == 1
            length = len(answers[0][0, 0]) - len(prompt_ids)
            return length if length < 600 else None

        assert tried(stopped, "the stop request ends the running one") > 0


def test_names_of_the_newest_release(tmp_path: Path, engine_folder: Path, prompt_ids: list[int]) -> None:
    with serving(tmp_path / "repository", engine_folder, "1.2.1") as server:
        flags = {name: np.array([[True]]) for name in ("return_num_input_tokens", "return_num_output_tokens")}
        values = model_values(prompt_ids, seed=np.array([[5]], np.uint64), min_tokens=np.array([[1]], np.int32)) | flags
        (result,) = answers(server.grpc_url, "tensorrt_llm", values)
    assert result.as_numpy("num_input_tokens").tolist() == [[len(prompt_ids)]]
    assert result.as_numpy("num_output_tokens").tolist() == [[NEW_TOKENS]]
