"""The family requests: ports, paths and inputs of requests to Triton."""

import json
from pathlib import Path
from typing import Any

import pytest

from check_cases import fixed, found, write_models
from trtllm_check.lint.endpoints import ServerAddress
from trtllm_check.lint.reading import read_document
from trtllm_check.lint.rules.requests import check
from trtllm_check.releases.templates import release_templates, template_releases

PLAIN = '{"text_input": "Hi", "max_tokens": 5}'
CHAT = '{"text_input": "<|start_header_id|>user<|end_header_id|>Hi<|eot_id|>", "max_tokens": 5%s}'
LAUNCH = "python3 scripts/launch_triton_server.py --world_size 1 --model_repo repo"


def curl(body: str = PLAIN, url: str = "localhost:8000/v2/models/ensemble/generate") -> str:
    return f"curl -X POST {url} -d '{body}'"


CASES = [
    ("0.12.0", curl(), []),
    ("1.3.0rc22", curl(url="localhost:8000/v2/models/ensemble/generate"), []),  # no such release's model is known
    # ports
    ("0.12.0", curl(url="http://127.0.0.1:8080/v2/models/ensemble/generate"), ["1 wrong-port error"]),
    ("0.12.0", curl(url="localhost:8001/v2/models/ensemble/generate"), ["1 wrong-port error"]),
    ("0.12.0", curl(url="localhost:9000/v2/models/ensemble/generate"), []),  # nobody knows what listens there
    ("0.12.0", f"{LAUNCH}\n{curl(url='localhost:9000/v2/models/ensemble/generate')}", ["2 wrong-port error"]),
    ("0.12.0", f"{LAUNCH} --http_port=9000\n{curl(url='localhost:9000/v2/models/ensemble/generate')}", []),
    (
        "0.12.0",
        f"tritonserver --model-repository repo --http-port 8080\n{curl(url='localhost:8080/v2/health/ready')}",
        ["2 wrong-model-path error"],
    ),
    ("0.12.0", curl(url="triton.example.com:8080/v2/models/ensemble/generate"), []),
    ("0.12.0", curl(url="localhost:${PORT}/v2/models/ensemble/generate"), []),
    ("0.12.0", "curl http://[::1]:8080/v2/models/ensemble/config", ["1 wrong-port error"]),
    ("0.12.0", "curl localhost:8080/ping", []),
    # paths
    ("0.12.0", "curl localhost:8000/v2/models/ensemble/config", []),
    ("0.12.0", "curl -s localhost:8000/v2/health/ready", []),
    ("0.12.0", "curl -X POST localhost:8000/v2/repository/index -d '{}'", []),
    ("0.12.0", curl(url="localhost:8000/v2/models/ensemble/versions/1/generate"), []),
    ("0.12.0", curl(url="localhost:8000/v2/models/ensemble/generated"), ["1 wrong-model-path error"]),
    ("0.12.0", curl(url="localhost:8000"), ["1 wrong-model-path error"]),
    ("0.12.0", 'curl localhost:8000/v1/chat/completions -d \'{"model": "m", "messages": []}\'', []),
    (
        "0.12.0",
        "python3 fill_template.py -i r/ensemble/config.pbtxt triton_max_batch_size:4\n"
        + curl(url="localhost:8000/v2/models/llama/generate"),
        ["2 wrong-model-path error"],
    ),
    (
        "0.12.0",
        "cp -r ensemble r/llama\npython3 fill_template.py -i r/ensemble/config.pbtxt triton_max_batch_size:4\n"
        + curl(url="localhost:8000/v2/models/llama/generate"),
        [],
    ),
    # inputs
    ("0.12.0", curl('{"text_input": "Hi", "max_tokens": 5, "id": "7", "parameters": {"top_k": 1}}'), []),
    ("0.12.0", curl('{"text_input": "Hi", "max_tokens": 5, "parameters": {"topk": 1}}'), ["1 unknown-input warning"]),
    ("0.12.0", curl('{"text_input": "Hi"}'), ["1 missing-input error"]),
    ("0.12.0", curl("{}"), ["1 missing-input error"] * 2),
    ("0.12.0", curl("{not json}"), []),
    ("0.19.0", curl(PLAIN[:-1] + ', "min_tokens": 1, "seed": 2}'), ["1 unknown-input warning"] * 2),
    ("0.20.0", curl(PLAIN[:-1] + ', "min_tokens": 1, "seed": 2}'), []),
    ("1.3.0rc22", curl(url="localhost:8000/v2/models/tensorrt_llm/generate"), ["1 unknown-input warning"]),
    (
        "1.3.0rc22",
        curl('{"text_input": "Hi", "sampling_param_max_tokens": 5}', "localhost:8000/v2/models/tensorrt_llm/generate"),
        [],
    ),
    (
        "0.12.0",
        '{"inputs": [{"name": "text_input"}, {"name": "max_tokens"}, {"name": "prompt"}]}',
        ["1 unknown-input error"],
    ),
    ("0.12.0", '{"inputs": "Hi", "parameters": {"max_new_tokens": 5}}', []),  # LMI's
    ("0.12.0", '{"text_input": "Hi",\n "max_tokens": 5,\n "n": 2}', ["3 unknown-input warning"]),
    # streams and ends
    ("0.12.0", curl(PLAIN[:-1] + ', "stream": true}'), ["1 stream-needs-generate-stream error"]),
    ("0.12.0", curl(PLAIN[:-1] + ', "stream": false}'), []),
    ("0.12.0", curl(PLAIN[:-1] + ', "stream": true}', "localhost:8000/v2/models/ensemble/generate_stream"), []),
    ("0.12.0", curl(CHAT % ""), ["1 no-end-id warning"]),
    ("0.12.0", curl(CHAT % ', "stop_words": [""]'), ["1 no-end-id warning"]),
    ("0.12.0", curl(CHAT % ', "stop_words": ["<|eot_id|>"]'), []),
    ("0.12.0", curl(CHAT % ', "end_id": 128009'), []),
    (
        "0.12.0",
        f"python3 convert_checkpoint.py --model_dir Meta-Llama-3-8B-Instruct\n{curl()}",
        ["2 no-end-id warning"],
    ),
    ("0.12.0", f"python3 convert_checkpoint.py --model_dir Meta-Llama-3-8B\n{curl()}", []),
]


@pytest.mark.parametrize(("release", "text", "expected"), CASES)
def test_what_is_found(release: str, text: str, expected: object) -> None:
    assert found(check, text, release) == expected


@pytest.mark.parametrize(
    ("release", "text", "url", "body"),
    [
        (
            "0.12.0",
            curl('{"inputs": "Hi", "max_new_tokens": 5}', "http://localhost:8080/v2/models/ensemble/generate"),
            "http://localhost:8000/v2/models/ensemble/generate",
            {"text_input": "Hi", "max_tokens": 5},
        ),
        (
            "0.12.0",
            curl('{"prompt": "Hi", "max_new_tokens": 5, "n": 1, "stream": true}'),
            "localhost:8000/v2/models/ensemble/generate_stream",
            {"text_input": "Hi", "max_tokens": 5, "stream": True},
        ),
        (
            "1.2.1",
            curl('{"text_input": "Hi", "parameters": {"max_tokens": 5, "random_seed": 1}}'),
            "localhost:8000/v2/models/ensemble/generate",
            {"text_input": "Hi", "parameters": {"max_tokens": 5, "seed": 1}},
        ),
        (
            "0.12.0",
            curl(CHAT % "", "localhost:8000/generate"),
            "localhost:8000/v2/models/ensemble/generate",
            json.loads(CHAT % ', "end_id": 128009'),
        ),
        (
            "1.3.0rc22",
            curl(url="localhost:8000/generate"),
            "localhost:8000/v2/models/tensorrt_llm/generate",
            {"text_input": "Hi", "sampling_param_max_tokens": 5},
        ),
    ],
)
def test_the_corrected_request(release: str, text: str, url: str, body: dict[str, Any]) -> None:
    """All findings of one request hold the same corrected command."""
    commands = {one.fix.text for one in fixed(check, text, release)}
    assert len(commands) == 1
    (request,) = read_document(commands.pop()).requests
    assert request.url == url and request.fields == body


def test_the_repositorys_own_models_count_more_than_the_releases(tmp_path: Path) -> None:
    config = 'name: "chat"\nbackend: "python"\ninput [ { name: "question" data_type: TYPE_STRING dims: [ 1 ] } ]\n'
    write_models(tmp_path, {"chat": config, "other": config.replace("chat", "other")})
    script = tmp_path / "ask.sh"
    script.write_text(curl('{"question": "Hi"}', "localhost:8000/v2/models/chat/generate"))
    assert found(check, tmp_path, "0.12.0") == []
    script.write_text(curl('{"text_input": "Hi"}', "localhost:8000/v2/models/chat/generate"))
    assert found(check, tmp_path, "0.12.0") == ["1 missing-input error", "1 unknown-input warning"]
    script.write_text(curl('{"question": "Hi"}', "localhost:8000/v2/models/chatt/generate"))
    assert found(check, tmp_path, "0.12.0") == ["1 wrong-model-path error"]


@pytest.mark.parametrize("release", template_releases())
def test_every_input_of_a_releases_ensemble_is_known(release: str) -> None:
    names = [tensor.name for tensor in release_templates(release).models["ensemble"].inputs]
    body = dict.fromkeys(names, 1) | {"text_input": "Hi", "stream": False}
    assert found(check, curl(json.dumps(body)), release) == []


@pytest.mark.parametrize(
    ("url", "host", "port", "path"),
    [
        ("localhost:8000/v2/x", "localhost", 8000, "/v2/x"),
        ("http://h/v2/x?a=1", "h", 80, "/v2/x"),
        ("https://h", "h", 443, ""),
        ("http://[::1]:8000/v2", "[::1]", 8000, "/v2"),
        ("http://${HOST}:${PORT}/v2", "${HOST}", None, "/v2"),
        ("", "", 80, ""),
    ],
)
def test_urls(url: str, host: str, port: int | None, path: str) -> None:
    assert ServerAddress.of(url) == ServerAddress(host, port, path)
