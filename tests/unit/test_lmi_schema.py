"""LMI's request and response schema, without a server."""

import json
from typing import Any

import pytest

from model_server.aws import chat, lmi
from model_server.aws.service import AnswerBuilder
from model_server.protocol import FinishReason, Output
from model_server.text import UNFINISHED, TextCodec
from serving_base.errors import RequestRefused
from tiny_llama import MODEL_DIR
from trtllm_check.serving_properties import merge_settings, parse_properties

TOKENS = [lmi.Token(5, " the", -0.5), lmi.Token(6, " end", -1.5)]
PROMPT = "The value of"


@pytest.fixture(scope="module")
def codec() -> TextCodec:
    return TextCodec.load(MODEL_DIR)


def request_of(**parameters: object) -> lmi.LmiRequest:
    return lmi.parse_text_request({"inputs": PROMPT, "parameters": parameters, "stream": True}, "rolling")


def lines(
    request: lmi.LmiRequest, schema: lmi.Schema, reason: lmi.FinishReason = "length", **options: bool
) -> list[dict[str, Any]]:
    """The lines of an answer of two tokens, parsed; each must end with a newline."""
    form, answer, written = lmi.TextFormat(request, schema, **options), lmi.Answer(4), []
    for token in TOKENS:
        answer.tokens.append(token)
        answer.finish_reason = reason if token is TOKENS[-1] else None
        written.append(form.chunk(answer, token))
    assert all(line.endswith(b"\n") for line in written) and form.end(answer) == b""
    return [json.loads(line.removeprefix(b"data: ")) for line in written]


def test_a_rolling_stream() -> None:
    first, last = lines(request_of(details=True), "rolling")
    assert first == {"token": {"id": 5, "text": " the", "log_prob": -0.5}}
    assert last == {
        "token": {"id": 6, "text": " end", "log_prob": -1.5},
        "generated_text": " the end",
        "details": {"finish_reason": "length", "generated_tokens": 2, "inputs": PROMPT},
    }
    assert "details" not in lines(request_of(), "rolling")[-1]


def test_an_async_stream() -> None:
    first, last = lines(request_of(details=True, seed=7), "async")
    token = {"id": None, "text": " the", "logprob": None}
    assert first == {"index": 0, "token": token, "generated_text": None, "details": None}
    details = {"finish_reason": "length", "seed": 7, "generated_tokens": 3, "input_length": 4}
    assert (last["generated_text"], last["details"]) == (" the end", details)
    assert lines(request_of(), "async")[-1]["details"] is None


@pytest.mark.parametrize("schema", ["rolling", "async"])
def test_return_full_text_is_in_the_last_line_only(schema: lmi.Schema) -> None:
    first, last = lines(request_of(return_full_text=True), schema)
    assert (first["token"]["text"], last["generated_text"]) == (" the", f"{PROMPT} the end")


@pytest.mark.parametrize("schema", ["rolling", "async"])
def test_a_failure_after_the_start_is_in_the_last_line(schema: lmi.Schema) -> None:
    form, answer = lmi.TextFormat(request_of(), schema), lmi.Answer(4)
    answer.finish_reason, answer.error = "error", "it broke"
    line = json.loads(form.chunk(answer, lmi.Token(-1, "", -1.0)))
    assert line["details"]["finish_reason"] == "error"
    assert json.loads(form.whole(answer))["details"] == {"finish_reason": "error"}


def test_whole_answers() -> None:
    answer = lmi.Answer(4, list(TOKENS), "eos_token")
    plain = json.loads(lmi.TextFormat(request_of(), "rolling").whole(answer))
    assert plain == {"generated_text": " the end"}
    told = json.loads(lmi.TextFormat(request_of(details=True), "rolling").whole(answer))["details"]
    assert [token["id"] for token in told.pop("tokens")] == [5, 6]
    assert told == {"finish_reason": "eos_token", "generated_tokens": 2, "inputs": PROMPT}
    told = json.loads(lmi.TextFormat(request_of(details=True), "async").whole(answer))["details"]
    assert told == {"finish_reason": None, "generated_tokens": 2, "seed": None}


def test_content_types_are_literal() -> None:
    stream, whole = request_of(), lmi.parse_text_request({"inputs": "x"}, "rolling")
    assert lmi.TextFormat(stream, "rolling").content_type == "application/jsonlines"
    assert lmi.TextFormat(whole, "rolling").content_type == "application/json"
    assert lmi.TextFormat(stream, "rolling", sse=True).content_type == "text/event-stream"


def test_lines_as_server_sent_events() -> None:
    form, answer = lmi.TextFormat(request_of(), "rolling", sse=True), lmi.Answer(4, [TOKENS[0]])
    event = form.chunk(answer, TOKENS[0])
    assert event.startswith(b"data: {") and event.endswith(b"}\n\n")


@pytest.mark.parametrize(
    ("tag", "settings", "schema", "framing"),
    [
        ("0.32.0-tensorrtllm0.12.0-cu125", {}, "rolling", "jsonlines"),
        ("0.33.0-tensorrtllm0.21.0-cu128", {}, "async", "jsonlines"),
        ("0.33.0-lmi15.0.0-cu128", {}, "rolling", "jsonlines"),
        ("0.36.0-lmi27.0.0-cu130", {}, "rolling", "sse"),
        ("0.36.0-lmi27.0.0-cu130", {"option.async_mode": "true"}, "async", "jsonlines"),
        ("", {}, "rolling", "sse"),
    ],
)
def test_the_image_chooses_the_schema(tag: str, settings: dict[str, str], schema: lmi.Schema, framing: str) -> None:
    image = f"763104351884.dkr.ecr.us-east-1.amazonaws.com/djl-inference:{tag}"
    assert lmi.choose_schema(image, settings) == schema
    assert chat.choose_framing(image, schema) == framing


def test_sampling_parameters() -> None:
    assert request_of().sampling.greedy and request_of().sampling.max_new_tokens == 30
    assert request_of(do_sample=False, top_k=50, temperature=0.7).sampling.greedy
    sampled = request_of(do_sample=True).sampling
    assert (sampled.top_k, sampled.top_p, sampled.temperature) == (5, 0.85, 0.8)
    chosen = request_of(do_sample=True, seed=3, temperature=1, top_k=-1, top_p=0.9, repetition_penalty=1.1).sampling
    assert (chosen.seed, chosen.temperature, chosen.top_k, chosen.top_p) == (3, 1, 0, 0.9)
    assert chosen.repetition_penalty == 1.1 and not chosen.greedy


def test_unknown_parameters_and_nulls_are_ignored() -> None:
    assert request_of(watermark=True, seed=None, max_new_tokens=None) == request_of()


@pytest.mark.parametrize(
    ("payload", "complaint"),
    [
        ({"inputs": 3}, "'inputs' must be a string"),
        ({"inputs": ""}, "'inputs' must be a string"),
        ({"inputs": ["a"]}, "'inputs' must be a string"),
        ({"inputs": "x", "adapters": ["french"]}, "no LoRA adapters"),
        ({"inputs": "x", "parameters": [1]}, "'parameters' must be an object"),
        ({"inputs": "x", "parameters": {"max_new_tokens": "5"}}, "'max_new_tokens' must be of type int"),
        ({"inputs": "x", "parameters": {"max_new_tokens": True}}, "'max_new_tokens' must be of type int"),
        ({"inputs": "x", "parameters": {"temperature": "hot"}}, "'temperature' must be of type float"),
        ({"inputs": "x", "parameters": {"do_sample": 1}}, "'do_sample' must be of type bool"),
        ({"inputs": "x", "parameters": {"stop_sequences": [1]}}, "'stop_sequences' must be a list of strings"),
        ({"inputs": "x", "stream": "yes"}, "'stream' must be of type bool"),
    ],
)
def test_wrong_types_are_named(payload: dict[str, Any], complaint: str) -> None:
    with pytest.raises(lmi.BadRequest, match=complaint):
        lmi.parse_text_request(payload, "rolling")


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b'"text"', b"\xff"])
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(lmi.BadRequest, match="JSON"):
        lmi.parse_body(body)


def test_messages_of_text_and_of_parts_give_the_same_prompt(codec: TextCodec, tokenizer: Any) -> None:
    parts = [{"role": "user", "content": [{"type": "text", "text": "Hello"}, {"type": "text", "text": "there"}]}]
    text = [{"role": "user", "content": "Hello\nthere"}]
    prompts = [chat.parse_chat_request({"messages": m}, codec.render_chat).prompt for m in (parts, text)]
    assert prompts[0] == prompts[1] == tokenizer.apply_chat_template(text, tokenize=False, add_generation_prompt=True)


@pytest.mark.parametrize(
    ("payload", "complaint"),
    [
        ({"messages": []}, "must be a list that is not empty"),
        ({"messages": "hello"}, "must be a list that is not empty"),
        ({"messages": ["hello"]}, r"messages\[0\] must be an object"),
        ({"messages": [{"role": "user"}]}, "content must be a string"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "not text: 'image_url'"),
        ({"messages": [{"role": "user", "content": "x"}], "max_tokens": "x"}, "must be of type int"),
        ({"messages": [{"role": "user", "content": "x"}], "n": 2}, "'n' must be 1"),
        ({"messages": [{"role": "user", "content": "x"}], "stream_options": 1}, "'stream_options' must be an object"),
        ({"prompt": ["a"]}, "'prompt' must be a string"),
    ],
)
def test_wrong_chat_requests_are_named(codec: TextCodec, payload: dict[str, Any], complaint: str) -> None:
    with pytest.raises(lmi.BadRequest, match=complaint):
        chat.parse_chat_request(payload, codec.render_chat)


def test_a_model_without_chat_template_says_so(codec: TextCodec) -> None:
    bare = TextCodec(codec.tokenizer, {})
    with pytest.raises(RequestRefused, match="no chat template"):
        bare.render_chat([{"role": "user", "content": "x"}])


def chat_chunks(codec: TextCodec, framing: chat.Framing, **changes: object) -> list[bytes]:
    payload = {"messages": [{"role": "user", "content": "x"}], "stream": True, **changes}
    form, answer, written = chat.ChatFormat(chat.parse_chat_request(payload, codec.render_chat), framing), None, []
    answer = lmi.Answer(4)
    for token in TOKENS:
        answer.tokens.append(token)
        answer.finish_reason = "eos_token" if token is TOKENS[-1] else None
        written.append(form.chunk(answer, token))
    return [*written, form.end(answer)]


def test_chat_as_server_sent_events(codec: TextCodec) -> None:
    first, last, end = chat_chunks(codec, "sse")
    assert end == b"data: [DONE]\n\n" and first.startswith(b"data: {") and first.endswith(b"\n\n")
    assert json.loads(first[6:])["choices"][0]["delta"] == {"role": "assistant", "content": " the"}
    choice = json.loads(last[6:])["choices"][0]
    assert (choice["delta"], choice["finish_reason"]) == ({"content": " end"}, "stop")


def test_chat_as_json_lines_and_usage_only_when_asked(codec: TextCodec) -> None:
    assert chat_chunks(codec, "jsonlines")[-1] == b""
    usage = json.loads(chat_chunks(codec, "jsonlines", stream_options={"include_usage": True})[-1])
    assert usage["choices"] == []
    assert usage["usage"] == {"prompt_tokens": 4, "completion_tokens": 2, "total_tokens": 6}


def test_chat_log_probabilities(codec: TextCodec) -> None:
    chunk = json.loads(chat_chunks(codec, "jsonlines", logprobs=True, top_logprobs=1)[0])
    entry = chunk["choices"][0]["logprobs"]["content"][0]
    assert (entry["token"], entry["logprob"], bytes(entry["bytes"])) == (" the", -0.5, b" the")


@pytest.mark.parametrize(
    ("text", "stop", "finished", "visible"),
    [
        ("one two", (), False, 7),
        ("one two", ("two",), False, 4),
        ("one tw", ("two",), False, 4),
        ("one tw", ("two",), True, 6),
        ("one t", ("two", "one three"), False, 0),
        ("a b", ("b", "a b"), False, 0),
    ],
)
def test_what_may_become_a_stop_sequence_is_held_back(
    text: str, stop: tuple[str, ...], finished: bool, visible: int
) -> None:
    assert chat.visible_length(text, stop, finished=finished) == visible


def build(
    codec: TextCodec, ids: list[int], *, reason: FinishReason = "length", stop: tuple[str, ...] = ()
) -> AnswerBuilder:
    builder = AnswerBuilder(codec, 1, stop)
    for number, token_id in enumerate(ids):
        finish: FinishReason = reason if number == len(ids) - 1 else ""
        list(builder.take(Output(0, 0, (token_id,), (-0.1,), finish)))
        if builder.answer.finish_reason:
            break
    return builder


@pytest.mark.parametrize("text", ["plain words", "naïve café", "日本語 🙂", "x🙂"])
def test_token_texts_joined_are_the_text(codec: TextCodec, text: str) -> None:
    ids = list(codec.tokenizer.encode(text, add_special_tokens=False).ids)
    answer = build(codec, ids).answer
    assert answer.text == text and UNFINISHED not in answer.text
    assert [token.id for token in answer.tokens] == ids


def test_a_character_cut_in_the_middle_is_shown_as_such(codec: TextCodec) -> None:
    ids = list(codec.tokenizer.encode("🙂", add_special_tokens=False).ids)
    assert len(ids) > 1
    assert build(codec, ids[:-1]).answer.text.endswith(UNFINISHED)


def test_an_end_token_counts_and_has_no_text(codec: TextCodec) -> None:
    end = min(codec.end_ids)
    answer = build(codec, [261, end], reason="stop_words").answer
    assert answer.finish_reason == "eos_token"
    assert [(token.id, token.text) for token in answer.tokens][-1] == (end, "")


def test_a_stop_sequence_ends_the_answer_and_stays_in_it(codec: TextCodec) -> None:
    ids = list(codec.tokenizer.encode("one two three four", add_special_tokens=False).ids)
    answer = build(codec, ids, stop=("two",)).answer
    assert answer.finish_reason == "stop_sequence" and answer.text.endswith("two")


def test_an_engine_that_gives_nothing_is_an_error(codec: TextCodec) -> None:
    builder = AnswerBuilder(codec, 1)
    list(builder.take(Output(0, 0, (), (), "length")))
    assert builder.answer.finish_reason == "error" and "without a token" in builder.answer.error


def test_text_that_brings_its_begin_token_gets_no_second_one(codec: TextCodec) -> None:
    assert codec.encode_prompt("<|begin_of_text|>word") == codec.encode_prompt("word")


def test_the_file_beats_the_environment() -> None:
    text = "# comment\n option.model_id = s3://a/b/\n\n! another\njob_queue_size: 3\n"
    environment = {
        "HF_MODEL_ID": "s3://c/",
        "OPTION_MAX_ROLLING_BATCH_SIZE": "4",
        "SERVING_JOB_QUEUE_SIZE": "9",
        "X": "1",
    }
    assert parse_properties(text) == {"option.model_id": "s3://a/b/", "job_queue_size": "3"}
    assert merge_settings(text, environment) == {
        "option.model_id": "s3://a/b/",
        "option.max_rolling_batch_size": "4",
        "job_queue_size": "3",
    }
