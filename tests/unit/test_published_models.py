"""Published models by the names that people write, and the numbers of ranks that share their heads."""

import re
from pathlib import Path

import pytest

from serving_base.facts import published
from serving_base.facts.published import published_model
from serving_base.yaml_files import read_yaml


@pytest.mark.parametrize(
    ("name", "heads", "kv_heads", "context"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", 28, 4, 32768),
        ("Qwen/Qwen2.5-7B-Instruct-1M", 28, 4, 0),
        ("/models/Llama-2-7b-chat-hf/", 32, 32, 4096),
        ("gradientai/Llama-3-8B-Instruct-262k", 32, 8, 0),
        ("microsoft/Phi-4-mini-instruct", 24, 8, 131072),
        ("microsoft/phi-4", 40, 10, 16384),
        ("microsoft/Phi-3-mini-4k-instruct", 32, 32, 4096),
        ("microsoft/Phi-3-mini-128k-instruct", 32, 32, 0),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", 28, 4, 131072),
    ],
)
def test_a_name_tells_heads_and_context(name: str, heads: int, kv_heads: int, context: int) -> None:
    model = published_model(name)
    assert model is not None
    assert (model.heads, model.kv_heads, model.context) == (heads, kv_heads, context)


@pytest.mark.parametrize(
    "name", ["", "mine/assistant", "deepseek-ai/DeepSeek-R1-0528-Qwen3-8B", "llama-3-8b-33b-merge"]
)
def test_another_model_of_a_like_name_is_not_known(name: str) -> None:
    assert published_model(name) is None


def test_official_is_the_organization_that_made_it() -> None:
    ours, theirs = published_model("google/gemma-2-9b-it"), published_model("somebody/gemma-2-9b-it")
    assert ours and theirs and ours.official and not theirs.official


@pytest.mark.parametrize(("name", "ranks"), [("microsoft/phi-4", [1, 2, 5, 10]), ("tiiuae/falcon-7b", [1])])
def test_ranks_share_heads_and_kv_heads(name: str, ranks: list[int]) -> None:
    model = published_model(name)
    assert model is not None and model.ranks == ranks


@pytest.mark.parametrize(
    ("name", "heads_read", "context_read"),
    [
        ("meta-llama/Llama-3.1-8B", True, True),
        ("mistralai/Codestral-22B-v0.1", False, True),
        ("Qwen/Qwen2.5-32B-Instruct", True, False),
        ("upstage/SOLAR-10.7B-v1.0", False, False),
    ],
)
def test_a_model_tells_what_was_read_and_what_is_remembered(name: str, heads_read: bool, context_read: bool) -> None:
    model = published_model(name)
    assert model is not None
    assert (model.heads_read, model.context_read) == (heads_read, context_read)


def test_every_source_that_a_model_names_is_told_with_its_commit_and_used() -> None:
    file = read_yaml(Path(published.__file__).with_name("published.yml"))
    named: set[str] = set()
    for one in file["models"]:
        read = one.get("read", [])
        named |= {*([read] if isinstance(read, str) else read), one.get("context_read", published.NOWHERE)}
    assert named - {published.NOWHERE} == set(file["sources"])
    assert all(re.search(r"@[0-9a-f]{8}\b|^transformers \d", source) for source in file["sources"].values())
