"""What the real tritonserver answers on an engine of the tiny model, by every road."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from cpu_serving.engine import Engine, Sampling
from model_server.protocol import Completion
from model_server.text import TextCodec
from model_server.triton.server import TritonServer
from serving import (
    END_ID,
    PROMPTS,
    build_tiny_engine,
    serving,
)
from serving_clients import Overloaded, Refused, triton
from tiny_llama import MODEL_DIR
from waiting import tried, until

pytestmark = [pytest.mark.server]

STREAMS = 16
NEW_TOKENS = 12


@pytest.fixture(scope="module")
def engine_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_engine(tmp_path_factory.mktemp("engine") / "engine")


@pytest.fixture(scope="module")
def codec() -> TextCodec:
    return TextCodec.load(MODEL_DIR)


@pytest.fixture(scope="module")
def answers(engine_folder: Path, codec: TextCodec) -> dict[str, Completion]:
    """Prompt -> the new tokens that the engine gives by itself, with their log-probabilities."""
    prompts = [codec.encode(prompt, special_tokens=True) for prompt in PROMPTS]
    with Engine(engine_folder, threads=1) as engine:
        completions = engine.generate(prompts, Sampling(max_new_tokens=NEW_TOKENS, end_id=END_ID, log_probs=True))
    return dict(zip(PROMPTS, completions, strict=True))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, engine_folder: Path) -> Iterator[TritonServer]:
    with serving(tmp_path_factory.mktemp("decoupled") / "repository", engine_folder) as running:
        yield running


@pytest.fixture(scope="module")
def one_answer_server(tmp_path_factory: pytest.TempPathFactory, engine_folder: Path) -> Iterator[TritonServer]:
    with serving(tmp_path_factory.mktemp("plain") / "repository", engine_folder, decoupled=False) as running:
        yield running


@pytest.fixture(scope="module")
def unusual_server(tmp_path_factory: pytest.TempPathFactory, engine_folder: Path) -> Iterator[TritonServer]:
    """Every setting that the other servers leave alone."""
    folder = tmp_path_factory.mktemp("unusual") / "repository"
    options: dict[str, Any] = {
        "max_queue_size": 2,
        "accumulate_tokens": True,
        "add_special_tokens": False,
        "batching_strategy": "V1",
    }
    with serving(folder, engine_folder, **options) as running:
        yield running


def prompt_tensors(
    codec: TextCodec, prompt: str, new_tokens: int = NEW_TOKENS, **more: object
) -> dict[str, np.ndarray]:
    ids = codec.encode(prompt, special_tokens=True)
    tensors = {
        "input_ids": np.array([ids], np.int32),
        "input_lengths": np.array([[len(ids)]], np.int32),
        "request_output_len": np.array([[new_tokens]], np.int32),
        "end_id": np.array([[END_ID]], np.int32),
    }
    return tensors | {name: np.array([[value]]) for name, value in more.items()}


def streamed_text(codec: TextCodec, tokens: Sequence[int]) -> str:
    return "".join(codec.decode([token], skip_special_tokens=True) for token in tokens)


# ---- the same tokens on every road


def test_64_requests_over_16_grpc_streams_equal_the_engine(
    server: TritonServer, codec: TextCodec, answers: dict[str, Completion]
) -> None:
    def ask(number: int) -> bool:
        prompt = PROMPTS[number % len(PROMPTS)]
        tensors = prompt_tensors(codec, prompt, streaming=True)
        parts = triton.grpc_infer(server.grpc_url, "tensorrt_llm", tensors, request_id=str(number))
        return (
            tuple(token for part in parts for token in part["output_ids"].ravel().tolist()) == answers[prompt].token_ids
        )

    with ThreadPoolExecutor(STREAMS) as pool:
        assert sum(pool.map(ask, range(64))) == 64


def test_64_http_streams_equal_the_engine(
    server: TritonServer, codec: TextCodec, answers: dict[str, Completion]
) -> None:
    def ask(number: int) -> bool:
        prompt = PROMPTS[number % len(PROMPTS)]
        text = "".join(triton.generate_stream(server.http_url, prompt, NEW_TOKENS))
        return text == streamed_text(codec, answers[prompt].token_ids)

    with ThreadPoolExecutor(STREAMS) as pool:
        assert sum(pool.map(ask, range(64))) == 64


@pytest.mark.parametrize("model", ["ensemble", "tensorrt_llm_bls"])
def test_text_is_the_same_in_one_piece(
    server: TritonServer, codec: TextCodec, answers: dict[str, Completion], model: str
) -> None:
    for prompt in PROMPTS[:4]:
        expected = codec.decode(answers[prompt].token_ids, skip_special_tokens=True)
        assert triton.generate(server.http_url, prompt, NEW_TOKENS, model=model) == expected
        whole = triton.grpc_stream(server.grpc_url, prompt, NEW_TOKENS, model=model, stream=False)
        assert list(whole) == [expected]


@pytest.mark.parametrize("model", ["ensemble", "tensorrt_llm_bls"])
def test_text_is_the_same_in_pieces(
    server: TritonServer, codec: TextCodec, answers: dict[str, Completion], model: str
) -> None:
    for prompt in PROMPTS[:4]:
        expected = streamed_text(codec, answers[prompt].token_ids)
        assert "".join(triton.generate_stream(server.http_url, prompt, NEW_TOKENS, model=model)) == expected
        assert "".join(triton.grpc_stream(server.grpc_url, prompt, NEW_TOKENS, model=model)) == expected


def by_hand(server: TritonServer, prompt: str, **more: object) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Preprocessing, tensorrt_llm, postprocessing, one after the other: new tokens and text."""
    pre = triton.infer(
        server.grpc_url,
        "preprocessing",
        {
            "QUERY": np.array([[prompt.encode()]], object),
            "REQUEST_OUTPUT_LEN": np.array([[NEW_TOKENS]], np.int32),
            "BAD_WORDS_DICT": np.array([[b""]], object),
            "STOP_WORDS_DICT": np.array([[b""]], object),
        },
    )
    tensors = {
        "input_ids": pre["INPUT_ID"],
        "input_lengths": pre["REQUEST_INPUT_LEN"],
        "decoder_input_ids": pre["DECODER_INPUT_ID"],
        "request_output_len": pre["REQUEST_OUTPUT_LEN"],
        "end_id": pre["OUT_END_ID"],
        "pad_id": pre["OUT_PAD_ID"],
    } | {name: np.array([[value]]) for name, value in more.items()}
    parts = list(triton.grpc_infer(server.grpc_url, "tensorrt_llm", tensors))
    ids = np.concatenate([part["output_ids"] for part in parts], axis=2)
    post = triton.infer(
        server.grpc_url,
        "postprocessing",
        {"TOKENS_BATCH": ids, "SEQUENCE_LENGTH": np.array([[ids.shape[2]]], np.int32)},
        outputs=["OUTPUT"],
    )
    return pre, ids, post["OUTPUT"]


@pytest.mark.parametrize("streaming", [False, True])
def test_by_hand_through_the_three_models(
    server: TritonServer, codec: TextCodec, answers: dict[str, Completion], streaming: bool
) -> None:
    for prompt in PROMPTS[:4]:
        _, ids, text = by_hand(server, prompt, streaming=streaming)
        assert tuple(ids.ravel().tolist()) == answers[prompt].token_ids
        assert text[0].decode() == codec.decode(answers[prompt].token_ids, skip_special_tokens=True)


def test_without_decoupling_the_tokens_are_the_same(
    one_answer_server: TritonServer, codec: TextCodec, answers: dict[str, Completion]
) -> None:
    for prompt in PROMPTS[:4]:
        result = triton.infer(one_answer_server.grpc_url, "tensorrt_llm", prompt_tensors(codec, prompt))
        assert tuple(result["output_ids"].ravel().tolist()) == answers[prompt].token_ids
        expected = codec.decode(answers[prompt].token_ids, skip_special_tokens=True)
        for model in ("ensemble", "tensorrt_llm_bls"):
            assert triton.generate(one_answer_server.http_url, prompt, NEW_TOKENS, model=model) == expected


# ---- what the tensors look like


def test_preprocessing_sends_every_output_for_text(server: TritonServer) -> None:
    pre, _, text = by_hand(server, PROMPTS[0])
    assert {name: value.shape for name, value in pre.items() if name != "OUT_PROMPT_EMBEDDING_TABLE"} == {
        "INPUT_ID": pre["INPUT_ID"].shape,
        "REQUEST_INPUT_LEN": (1, 1),
        "DECODER_INPUT_ID": (1, 1),
        "REQUEST_DECODER_INPUT_LEN": (1, 1),
        "BAD_WORDS_IDS": (1, 2, 0),
        "STOP_WORDS_IDS": (1, 2, 0),
        "EMBEDDING_BIAS": (1, 0),
        "REQUEST_OUTPUT_LEN": (1, 1),
        "OUT_END_ID": (1, 1),
        "OUT_PAD_ID": (1, 1),
    }
    assert pre["DECODER_INPUT_ID"].tolist() == pre["OUT_PAD_ID"].tolist()
    assert text.shape == (1,)


def test_log_probabilities_are_the_engines(
    server: TritonServer, codec: TextCodec, answers: dict[str, Completion]
) -> None:
    prompt = PROMPTS[0]
    tensors = prompt_tensors(codec, prompt, return_log_probs=True)
    (answer,) = triton.grpc_infer(server.grpc_url, "tensorrt_llm", tensors)
    assert answer["output_log_probs"].ravel().tolist() == pytest.approx(answers[prompt].log_probs, abs=1e-4)
    assert answer["cum_log_probs"].tolist() == [[pytest.approx(sum(answers[prompt].log_probs), abs=1e-3)]]
    assert len(set(answers[prompt].log_probs)) > 1


def test_logits_lead_to_the_tokens(server: TritonServer, codec: TextCodec, answers: dict[str, Completion]) -> None:
    prompt = PROMPTS[0]
    tensors = prompt_tensors(codec, prompt, return_context_logits=True, return_generation_logits=True)
    (answer,) = triton.grpc_infer(server.grpc_url, "tensorrt_llm", tensors)
    expected = answers[prompt].token_ids
    assert answer["context_logits"].shape == (1, tensors["input_ids"].shape[1], 2048)
    assert answer["generation_logits"].shape == (1, 1, len(expected), 2048)
    assert tuple(answer["generation_logits"][0, 0].argmax(axis=1).tolist()) == expected


def test_end_id_minus_one_gives_exactly_what_was_asked(server: TritonServer, codec: TextCodec) -> None:
    tensors = prompt_tensors(codec, PROMPTS[0], 120) | {"end_id": np.array([[-1]], np.int32)}
    (answer,) = triton.grpc_infer(server.grpc_url, "tensorrt_llm", tensors)
    assert answer["output_ids"].shape == (1, 1, 120)
    assert answer["sequence_length"].tolist() == [[120]]


def test_sampling_with_a_seed_repeats_itself(server: TritonServer) -> None:
    def ask(seed: int) -> str:
        return triton.generate(server.http_url, PROMPTS[0], 20, temperature=1.5, top_k=50, top_p=0.95, random_seed=seed)

    assert ask(1) == ask(1)
    assert ask(1) != ask(2)


def test_stop_words_end_the_answer(server: TritonServer) -> None:
    prompt = PROMPTS[0]
    plain = triton.generate(server.http_url, prompt, NEW_TOKENS)
    word = plain.split()[1]
    stopped = triton.generate(server.http_url, prompt, NEW_TOKENS, stop_words=[f" {word}"])
    assert plain.startswith(stopped)
    assert len(stopped) < len(plain)


# ---- health, metrics


def test_health_and_metrics(server: TritonServer) -> None:
    seen = triton.health(server.http_url, ["ensemble", "tensorrt_llm_bls", "nope"])
    assert (seen.live, seen.ready, seen.version) == (True, True, "2.51.0")
    assert seen.models == {"ensemble": True, "tensorrt_llm_bls": True, "nope": False}
    triton.generate(server.http_url, PROMPTS[0], 4)
    active = 'nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="active",version="1"}'
    until(lambda: triton.metrics(server.metrics_url).get(active) == 0, "no request is active")
    figures = triton.metrics(server.metrics_url)
    own = {name: value for name, value in figures.items() if name.startswith("nv_trt_llm")}
    assert all('model="tensorrt_llm",' in name and 'version="1"' in name for name in own)
    assert figures['nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="max",version="1"}'] == 16
    assert figures['nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="active",version="1"}'] == 0
    assert figures['nv_trt_llm_general_metrics{general_type="iteration_counter",model="tensorrt_llm",version="1"}'] > 0
    blocks = {
        kind: figures[
            f'nv_trt_llm_kv_cache_block_metrics{{kv_cache_block_type="{kind}",model="tensorrt_llm",version="1"}}'
        ]
        for kind in ("max", "free", "used", "tokens_per")
    }
    assert blocks["max"] == blocks["free"] + blocks["used"]
    assert blocks["tokens_per"] == 32
    lengths = (
        'nv_llm_output_token_len_bucket{model="tensorrt_llm",response_metric_type="total_output_tokens",version="1",le='
    )
    assert [name.removeprefix(lengths) for name in figures if name.startswith(lengths)] == [
        '"10"}',
        '"50"}',
        '"100"}',
        '"500"}',
        '"1000"}',
        '"+Inf"}',
    ]


def test_each_text_request_counts_once_in_every_model(tmp_path: Path, engine_folder: Path) -> None:
    with serving(tmp_path / "repository", engine_folder) as fresh:
        for prompt in PROMPTS[:3]:
            triton.generate(fresh.http_url, prompt, 4)
        models = ("ensemble", "preprocessing", "tensorrt_llm", "postprocessing")
        names = [f'nv_inference_count{{model="{model}",version="1"}}' for model in models]

        def counts() -> list[float]:
            figures = triton.metrics(fresh.metrics_url)
            return [figures.get(name, 0) for name in names]

        until(lambda: min(counts()) >= 3, "every model has counted")
        assert counts() == [3.0] * 4


# ---- errors


@pytest.mark.parametrize(
    ("model", "body", "status", "message"),
    [
        ("nope", {"text_input": "a", "max_tokens": 4}, 404, "unknown model"),
        ("ensemble", {"text_input": "a"}, 400, "missing required input(s) ['max_tokens']"),
        ("ensemble", {"text_input": "", "max_tokens": 4}, 400, "text_input is empty"),
        ("ensemble", {"text_input": "a", "max_tokens": 0}, 400, "request_output_len is 0"),
        ("ensemble", {"text_input": "a", "max_tokens": 3000000000}, 400, "request_output_len is -1294967296"),
        ("ensemble", {"text_input": "a", "max_tokens": 5000}, 400, "exceed max_seq_len 768"),
        ("ensemble", {"text_input": "word " * 400, "max_tokens": 4}, 400, "exceeds max_input_len 256"),
        ("ensemble", {"text_input": "a", "max_tokens": 4, "beam_width": 2}, 400, "beam_width is 2"),
        ("ensemble", {"text_input": "a", "max_tokens": 4, "bad_words": ["the"]}, 400, "no bad words"),
        ("ensemble", {"text_input": "a", "max_tokens": 4, "min_length": 9}, 400, "no min_length above 1"),
        ("ensemble", {"text_input": "a", "max_tokens": 4, "temperature": -1.0}, 400, "temperature is -1.0"),
        ("tensorrt_llm_bls", {"text_input": "", "max_tokens": 4}, 400, "text_input is empty"),
        ("tensorrt_llm_bls", {"text_input": "a", "max_tokens": 5000}, 400, "exceed max_seq_len 768"),
        ("tensorrt_llm_bls", {"text_input": "a", "max_tokens": 4, "num_draft_tokens": 3}, 400, "num_draft_tokens"),
    ],
)
def test_refusals_say_what_and_why(
    server: TritonServer, model: str, body: dict[str, Any], status: int, message: str
) -> None:
    response = httpx.post(f"{server.http_url}/v2/models/{model}/generate", json=body, timeout=20)
    error = response.json()["error"]
    assert response.status_code == status, error
    assert message in error
    assert "Traceback" not in error
    assert "\n" not in error


def test_a_refusal_names_the_request(server: TritonServer, codec: TextCodec) -> None:
    with pytest.raises(Refused, match="request 'r-7' refused: beam_width is 3"):
        list(
            triton.grpc_infer(
                server.grpc_url,
                "tensorrt_llm",
                prompt_tensors(codec, "a", beam_width=np.int32(3)),
                request_id="r-7",
            )
        )


def test_token_ids_outside_the_vocabulary_are_refused(server: TritonServer, codec: TextCodec) -> None:
    tensors = prompt_tensors(codec, "a") | {"input_ids": np.array([[99999, 1]], np.int32)}
    with pytest.raises(Refused, match="outside the vocabulary of 2048"):
        list(triton.grpc_infer(server.grpc_url, "tensorrt_llm", tensors))


def test_a_decoupled_model_refuses_plain_inference(server: TritonServer, codec: TextCodec) -> None:
    with pytest.raises(Refused, match="decoupled"):
        triton.infer(server.grpc_url, "tensorrt_llm", prompt_tensors(codec, "a"))


def test_streaming_needs_decoupled_mode(one_answer_server: TritonServer, codec: TextCodec) -> None:
    with pytest.raises(Refused, match=r"Streaming is only supported in decoupled mode\."):
        triton.infer(one_answer_server.grpc_url, "tensorrt_llm", prompt_tensors(codec, "a", streaming=True))


def test_a_full_queue_is_refused_in_tritons_words(unusual_server: TritonServer, codec: TextCodec) -> None:
    def ask(number: int) -> str:
        tensors = prompt_tensors(codec, PROMPTS[0], 300) | {"end_id": np.array([[-1]], np.int32)}
        try:
            list(triton.grpc_infer(unusual_server.grpc_url, "tensorrt_llm", tensors))
        except Overloaded as error:
            return error.why
        return ""

    def refused() -> list[str] | None:
        with ThreadPoolExecutor(32) as pool:
            refusals = [why for why in pool.map(ask, range(32)) if why]
        assert len(refusals) < 32
        return refusals or None

    whys = tried(refused, "32 requests at once find no room in the queue")
    assert all("Exceeds maximum queue size" in why for why in whys)


# ---- settings of the repository


def test_static_batching_gives_the_same_tokens(
    unusual_server: TritonServer, codec: TextCodec, answers: dict[str, Completion]
) -> None:
    (answer,) = triton.grpc_infer(unusual_server.grpc_url, "tensorrt_llm", prompt_tensors(codec, PROMPTS[0]))
    assert tuple(answer["output_ids"].ravel().tolist()) == answers[PROMPTS[0]].token_ids


def test_without_special_tokens_the_prompt_is_only_the_text(
    unusual_server: TritonServer, server: TritonServer, codec: TextCodec
) -> None:
    pre, _, _ = by_hand(unusual_server, PROMPTS[0])
    assert pre["INPUT_ID"][0].tolist() == codec.encode(PROMPTS[0], special_tokens=False)
    pre, _, _ = by_hand(server, PROMPTS[0])
    assert pre["INPUT_ID"][0].tolist() == codec.encode(PROMPTS[0], special_tokens=True)


def test_accumulated_tokens_repeat_the_text_so_far(unusual_server: TritonServer) -> None:
    pieces = list(triton.generate_stream(unusual_server.http_url, PROMPTS[0], 6, model="tensorrt_llm_bls"))
    assert len(pieces) == 6
    assert pieces[-1] == triton.generate(unusual_server.http_url, PROMPTS[0], 6)
    assert all(after.startswith(before) for before, after in pairwise(pieces))
