"""Where an error was raised, what services put around lines, and logs on the page of a report."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from serving_base.command_line import reporting
from trtllm_check.cli import check_command
from trtllm_check.lint.log_lines import MOST_LINES, is_log, trouble
from trtllm_check.lint.log_places import frame_of, place_of, places
from trtllm_check.lint.logs import families, read_log, signs
from trtllm_check.lint.page_logs import read_page

app = typer.Typer()
app.command()(reporting(check_command))

FRAMES = {
    "raised-in-compiling": "torch/_inductor/compile_fx.py compile",
    "raised-in-weights": "vllm/model_executor/models/brick.py load_weights",
    "raised-in-adapters": "vllm/lora/models.py parse",
    "raised-in-media": "vllm/multimodal/processing.py apply",
    "raised-in-structured-output": "vllm/v1/structured_output/utils.py f",
    "raised-in-speculation": "vllm/v1/spec_decode/propose.py f",
    "raised-in-cache-transfer": "vllm/distributed/kv_transfer/x.py f",
    "raised-in-quantization": "vllm/model_executor/layers/quantization/fp8.py apply",
    "raised-in-experts": "vllm/model_executor/layers/fused_moe/layer.py f",
    "raised-in-attention": "vllm/v1/attention/backends/x.py f",
    "raised-in-chat-template": "jinja2/environment.py render",
    "raised-in-request": "vllm/sampling_params.py _verify",
    "raised-in-tokenizer": "transformers/tokenization_utils_base.py f",
    "raised-in-cache-manager": "vllm/v1/core/x.py f",
    "raised-in-collectives": "torch/distributed/c10d_logger.py wrapper",
    "raised-in-ray": "ray/_private/worker.py get",
    "raised-in-options": "vllm/engine/arg_utils.py create_engine_config",
    "raised-in-model-config": "transformers/configuration_utils.py f",
    "raised-in-hub": "huggingface_hub/file_download.py f",
    "raised-in-converter": "examples/llama/convert_checkpoint.py main",
    "raised-in-builder": "tensorrt_llm/builder.py build",
    "raised-in-model": "vllm/model_executor/models/brick.py forward",
    "raised-in-kernel": "vllm/_custom_ops.py f",
    "raised-in-runner": "vllm/v1/worker/gpu_worker.py init_device",
    "raised-in-triton-model": "/repo/preprocessing/1/model.py execute",
    "raised-in-lmi": "djl_python/huggingface.py handle",
    "raised-in-benchmark": "genai_perf/main.py run",
    "raised-in-gpu-library": "torch/cuda/__init__.py set_device",
}


@pytest.mark.parametrize(("rule", "frame"), FRAMES.items(), ids=list(FRAMES))
def test_a_frame_names_its_part(rule: str, frame: str) -> None:
    place = place_of((frame,), "")
    assert place is not None
    assert place.rule == rule


def test_every_part_has_a_frame_and_a_name_of_its_own() -> None:
    assert {place.rule for place in places()} == set(FRAMES)
    assert not {place.rule for place in places()} & {sign.rule for sign in (*signs(), *families())}
    assert all(place.part and place.fix and place.source for place in places())


def test_the_innermost_known_frame_counts_and_pytorch_last() -> None:
    frames = ("vllm/v1/worker/gpu_worker.py f", "vllm/lora/models.py f", "torch/nn/module.py f", "strange.py f")
    place = place_of(frames, "")
    assert place is not None
    assert place.rule == "raised-in-adapters"
    assert place_of(("strange.py f",), "no place") is None


@pytest.mark.parametrize(
    ("line", "frame"),
    [
        ('  File "/x/y.py", line 7, in load', "/x/y.py load"),
        ('  File ""/x/y.py"", line 7, in load#015', "/x/y.py load"),
        ("    return 1", ""),
    ],
)
def test_a_line_of_a_traceback_is_read(line: str, frame: str) -> None:
    assert frame_of(line) == frame


SILENT = (
    "Traceback (most recent call last):\n"
    '  File "/venv/vllm/v1/worker/gpu_model_runner.py", line 9, in run\n'
    "    run()\n"
    '  File "/venv/vllm/lora/models.py", line 2, in f\n'
    "    raise AssertionError\n"
    "AssertionError\n"
)


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "    ",
        "\x1b[1;36m(EngineCore pid=7)\x1b[0;0m ERROR 01-01 00:00:00 [core.py:9] ",
        "ERROR 01-01 00:00:00 engine.py:389] ",
        "1756144009120,#033[1;36m(Worker pid=9)#033[0;0m ",
        "2025-08-04T18:22:11.123456789Z stderr F ",
        "(ServeReplica:app:Model pid=1, ip=10.0.0.1) ",
        "#12 34.56 ",
        "> ",
        "3: ",
        "[pod/vllm-0/vllm] ",
    ],
)
def test_an_error_without_words_is_named_by_its_place_behind_any_prefix(prefix: str) -> None:
    log = "".join(f"{prefix}{line}\n" for line in SILENT.splitlines())
    (found,) = read_log(log)
    assert (found.rule, found.line) == ("raised-in-adapters", 6)
    assert "adapter" in found.message


def test_words_and_place_are_both_said() -> None:
    log = SILENT.replace("\nAssertionError\n", "\nValueError: it must be seven\n")
    (found,) = read_log(log)
    assert found.rule == "value-not-taken"
    assert "adapter" in found.message


def test_a_json_line_has_its_level() -> None:
    assert read_log('{"level":"INFO","message":"no such file or directory, so a default is taken"}\n') == []
    (found,) = read_log('{"severity": "ERROR", "message": "the flux capacitor is empty"}\n')
    assert found.rule == "unexplained-error"


def test_waiting_once_or_before_a_start_that_went_well_is_no_hang() -> None:
    line = "INFO [shm_broadcast.py:1] No available shared memory broadcast block found in 60 seconds.\n"
    assert [one.rule for one in read_log(line * 4)] == ["worker-hangs"]
    assert read_log(line * 2) == []
    assert read_log(line * 5 + "INFO: Application startup complete.\n") == []


REPORT = """### Describe the bug

I run it so:

```bash
echo hello
```

and get

```text
INFO 01-01 00:00:00 [core.py:1] Initializing
ValueError: There is no module or parameter named 'brick' in LlamaForCausalLM
```
"""


def test_the_log_of_a_report_is_read_at_its_place() -> None:
    (found,) = read_page(REPORT)
    assert (found.rule, found.line) == ("weights-do-not-fit-the-model", 13)


@pytest.mark.parametrize(
    "before",
    ["When I try it I get:\n", "We are running into this:\n", "```bash\nvllm serve m\n```\n raise ImportError("],
)
def test_an_error_in_the_prose_of_a_report_is_read(before: str) -> None:
    error = "ModuleNotFoundError: No module named 'bricks'\n"
    (found,) = read_page(f"{before}\n{error}")
    assert (found.rule, found.line) == ("module-missing", before.count("\n") + 2)
    assert read_page(f"It was once\n{error}") == []


@pytest.mark.parametrize(
    ("page", "rule", "line"),
    [
        ("I try it, and get:\n\nbash: --max_len: command not found\n", "broken-command-line", 3),
        (
            'Hi all, I get from the server:\n\n"Prompt length (5056) exceeds maximum sequence length (2048)"\n',
            "prompt-too-long",
            3,
        ),
        (
            "one\nlog says: RuntimeError: Unsupported SM version for FP8 block scaling GEMM\n",
            "fp8-blocks-on-another-gpu",
            2,
        ),
    ],
)
def test_a_failure_that_a_report_quotes_is_read(page: str, rule: str, line: int) -> None:
    (found,) = read_page(page)
    assert (found.rule, found.line) == (rule, line)


NO_BLOCKS = "ValueError: No available memory for the cache blocks. Try increasing gpu_memory_utilization."
COMMAND = "```bash\nvllm serve Qwen/Qwen3-8B --gpu-memory-utilization 0.3\n```\n"


@pytest.mark.parametrize(
    "page",
    [
        f"{COMMAND}\nIt fails with\n\n```python\n{NO_BLOCKS}\n```\n",
        f"{COMMAND}\n**Error**\n\n`{NO_BLOCKS}`\n",
        f"- command: `vllm serve m`\n- error: `{NO_BLOCKS}`\n",
        f"{COMMAND}\n启动报错：\n\n```\n{NO_BLOCKS}\n```\n",
        f'The engine dies with "{NO_BLOCKS}" on a card of 16 GB.\n',
    ],
    ids=["fence of Python", "bold", "list", "Chinese", "sentence"],
)
def test_a_failure_that_we_know_is_read_wherever_a_page_quotes_it(page: str) -> None:
    (found,) = read_page(page)
    assert (found.rule, found.line) == ("vllm-no-cache-blocks", page[: page.index("No available")].count("\n") + 1)


@pytest.mark.parametrize(
    "page",
    [
        f"## Troubleshooting\n\n{COMMAND}\nIf you see `{NO_BLOCKS}`, raise the share.\n",
        f"## Changes\n\n- No more `{NO_BLOCKS}` on small cards\n",
        f"## 常见错误\n\n`{NO_BLOCKS}`\n\n解决方法：调高\n",
        f"```python\nif failed:\n    raise {NO_BLOCKS.replace(': ', '(')})\n```\n",
        "Note: set `--ipc=host` as an argument of docker to avoid `Bus error (core dumped)`.\n",
        f"{'A document. ' * 300}\nNote: set `--ipc=host` as an argument against `Bus error (core dumped)` here.\n",
        f"### 现象\n启动报错：\n```\n{NO_BLOCKS}\n```\n\n### 根因\n显存不足\n",
    ],
    ids=["manual", "changes", "manual in Chinese", "code", "advice", "advice in a long document", "cause"],
)
def test_a_failure_that_a_manual_or_code_names_did_not_happen(page: str) -> None:
    assert read_page(page) == []


def test_a_message_of_several_lines_is_shown_where_it_names_the_thing() -> None:
    head = "[TRT-LLM] [E] Executor creation failed due to insufficient GPU memory."
    (found,) = read_log(f"{head}\n\nThe following component could not be created: KV cache\nTotal: 80\n", "a.log")
    assert (found.rule, found.line) == ("executor-memory", 3)
    assert "KV cache" in found.message
    (found,) = read_log(f"{head}\n", "a.log")
    assert (found.rule, found.line) == ("executor-memory", 1)


@pytest.mark.parametrize(
    ("page", "rule", "line"),
    [
        (
            "One asks:\n\n```\ncurl localhost:8000/v2/models/m/generate -d @q.json\n"
            '{"error": "generate expects model to produce exactly 1 response, use generate stream"}\n```\n',
            "decoupled-model",
            5,
        ),
        (
            "# Result\n\n1. Returned: `[{'type': 'extra_forbidden', 'loc': ('body', 'max_token'), 'input': 1}]`\n",
            "request-field-unknown",
            3,
        ),
        (
            '# "POST /generate HTTP/1.1" 404 Not Found\n\nSo says the server.\n',
            "request-path-of-another-server",
            1,
        ),
        ('```json\n{"object": "error", "message": "The model `m` does not exist."}\n```\n', "openai-model-name", 2),
    ],
)
def test_the_answer_of_a_server_is_read_on_a_page(page: str, rule: str, line: int) -> None:
    (found,) = read_page(page)
    assert (found.rule, found.line) == (rule, line)


@pytest.mark.parametrize(
    "page",
    [
        REPORT.replace("### Describe the bug", "# Troubleshooting").replace("I run it so:", "").replace("and get", ""),
        REPORT + "\nYou may see this error where the release is older.\n",
        REPORT.replace("```text", "```python"),
        '```json\n{"error": "on_call", "detail": "all is well"}\n```\n',
        "- [Installation](#installation)\n\n```bash\n$ pizza --sauce\nerror: unknown option '--sauce'\n```\n",
        "#!/bin/bash\n# We hit this once.\n# 1. GROW THE DISK (CRITICAL): no GPU fits\necho\n",
        "Please help me.\n\n- `log_error`: whether the server logs ERROR level messages\n",
        "# Changes\n\n- [Bug] fixed std::bad_alloc, error #66, which we hit\n",
        "### Describe the bug\n\nIt is slow.\n\n```text\nINFO 01-01 00:00:00 [a.py:1] fine\n```\n",
        "We hit it.\n\n- **Error**: `CUDA error: out of memory`\n- **Solution**: a smaller batch\n",
        "> [!Warning] CUDA error: out of memory\n> Take a smaller share, as we have to, too.\n",
        "    {% if a != b %}\n{{ raise_exception('Conversation roles must alternate user/assistant') }}\n",
        "We hit it.\n\nQ：AssertionError: Torch not compiled with CUDA enabled\n\nA: take the other build\n",
        "We hit it on an NPU.\n\nNPU: AssertionError: Torch not compiled with CUDA enabled\n",
        "I get this error:\n\n"
        + "".join(f"## Part {number}\n\n{'Words. ' * 150}\n\n" for number in range(12))
        + "It stops with `ValueError: Following weights were not initialized from checkpoint: a`\n",
    ],
)
def test_a_manual_code_and_a_good_log_are_no_failure(page: str) -> None:
    assert read_page(page) == []


@pytest.mark.parametrize(
    ("question", "known"),
    [
        ("I use Qwen2.5-7B-Instruct and have set tensor_parallel_size to 8. It does not start.", True),
        ("Does Qwen/Qwen2.5-7B-Instruct run with `tensor parallel size` 4?", False),
        ("Does Bricks-7B run with tensor parallelism of 8?", False),  # whose heads nobody knows
        ("Is it Qwen2.5-7B-Instruct or Qwen2.5-14B-Instruct with TP 8?", False),
        ("Qwen2.5-7B-Instruct, TP 8.\n\n```bash\nnvidia-smi\n```\n", False),  # whose commands tell more
    ],
)
def test_a_question_in_words_is_answered_where_it_names_one_model_and_its_ranks(question: str, known: bool) -> None:
    found = read_page(question)
    assert [(one.rule, one.severity) for one in found] == ([("heads-not-divided", "warning")] if known else [])


def test_the_trouble_of_a_long_log_is_bounded() -> None:
    log = "".join(SILENT.replace("lora/models", f"lora/models{chr(97 + number % 26)}") for number in range(2_000))
    assert is_log(log)
    assert len(trouble(log)) <= MOST_LINES
    assert [one.rule for one in read_log(log)] == ["raised-in-adapters"]


def test_a_report_with_commands_shows_its_commands_and_its_log(tmp_path: Path) -> None:
    page = tmp_path / "issue.md"
    page.write_text(REPORT.replace("echo hello", "vllm serve m --lora-path x"), encoding="utf-8")
    done = CliRunner().invoke(app, [str(page), "--json"])
    assert done.exit_code == 1
    found = {(one["rule"], one["line"]) for one in json.loads(done.stdout)["findings"]}
    assert ("weights-do-not-fit-the-model", 13) in found
    assert len(found) > 1


def test_a_report_without_commands_is_understood(tmp_path: Path) -> None:
    page = tmp_path / "issue.md"
    page.write_text("When I try it I get:\n\n```\n/bin/sh: 1: vllm: Permission denied\n```\n", encoding="utf-8")
    done = CliRunner().invoke(app, [str(page), "--json"])
    assert done.exit_code == 1
    assert [one["rule"] for one in json.loads(done.stdout)["findings"]] == ["permission"]


@pytest.mark.parametrize(
    ("page", "found"),
    [
        (f"{COMMAND}\n**Fix**: raise the share.\n\n```\n{NO_BLOCKS}\n```\n", 0),
        (f"{COMMAND}\n### The two fixes\n\n```\n{NO_BLOCKS}\n```\n", 0),
        (f"{COMMAND}\nThe log then has `{NO_BLOCKS}` in it.\n", 0),
        (f"{COMMAND}\n```\n{NO_BLOCKS}\n```\n", 1),
    ],
    ids=["fix", "heading", "within words", "a block alone"],
)
def test_a_long_document_that_explains_a_failure_does_not_report_it(page: str, found: int) -> None:
    text = page + "Words about the machine.\n" * 120
    assert [one.rule for one in read_page(text)] == ["vllm-no-cache-blocks"] * found
