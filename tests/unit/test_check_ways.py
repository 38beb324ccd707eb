"""One slip, written in each of the ways that public texts write such a thing: the checker reads all of them."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from each import each
from trtllm_check.lint import check_commands
from trtllm_check.lint.page_logs import read_page
from trtllm_check.lint.reading import read_document

WAYS: dict[str, Any] = yaml.safe_load((Path(__file__).parents[1] / "fixtures" / "ways.yml").read_text(encoding="utf-8"))
COMMANDS = (
    ("1.2.1", "vllm serve Qwen/Qwen3-8B --max-modl-len 8192"),
    ("1.2.1", "python3 -m vllm.entrypoints.openai.api_server --model Qwen/Qwen3-8B --max-modl-len 8192"),
    ("0.12.0", "trtllm-build --checkpoint_dir c --output_dir e --max_output_lenn 5"),
)


def said(text: str, release: str) -> str:
    """What errors and warnings say, in small letters."""
    found = check_commands(read_document(text), release)
    return " ".join(one.message.lower() for one in found if one.severity != "info")


@each("launcher", WAYS["launchers"])
def test_a_command_is_read_behind_what_starts_it(launcher: str) -> None:
    for release, command in COMMANDS:
        assert "len" in said(f"#!/bin/bash\n{launcher.replace('@', command)}\n", release), command


@each("text", WAYS["servers"].values())
def test_a_server_is_read_in_each_language(text: str) -> None:
    words = said(text, "1.2.1")
    assert "modl" in words or "lenn" in words


@each("text", WAYS["requests"].values())
def test_a_request_is_read_in_each_language(text: str) -> None:
    assert "max_tok" in said(text, "0.12.0")


@each("text", WAYS["lmi"].values())
def test_settings_of_lmi_are_read_wherever_they_stand(text: str) -> None:
    assert "sze" in said(text, "0.21.0")


@each("text", WAYS["configurations"].values())
def test_a_configuration_of_triton_is_read_wherever_it_stands(text: str) -> None:
    assert "fracton" in said(text, "0.12.0")


@each("text", WAYS["models"].values())
def test_a_folder_is_known_by_the_model_in_it(text: str) -> None:
    assert "2048" in said(text, "1.2.1")


@each("text", WAYS["failures"].values())
def test_a_failure_is_read_wherever_a_page_quotes_it(text: str) -> None:
    assert {"vllm-no-cache-blocks"} & {one.rule for one in read_page(text)}


@each("name", WAYS["fenced"])
def test_a_file_that_is_a_block_of_markdown_is_read_as_what_the_block_is(name: str) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_text(WAYS["fenced"][name], encoding="utf-8")
        found = check_commands(read_document(path), "1.2.1")
    assert "modl" in " ".join(one.message for one in found)
    assert "yaml-does-not-parse" not in {one.rule for one in found}
