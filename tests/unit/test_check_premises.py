"""One slip that depends on the machine, below each of the ways in which public texts tell it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from each import each
from trtllm_check.lint import check_commands
from trtllm_check.lint.reading import read_document

WAYS: dict[str, Any] = yaml.safe_load((Path(__file__).parents[1] / "fixtures" / "premises.yml").read_text("utf-8"))
LARGE = "vllm serve Qwen/Qwen2.5-14B-Instruct --max-model-len 8192"
EIGHT = "vllm serve meta-llama/Llama-3.3-70B-Instruct --tensor-parallel-size 8 --max-model-len 8192"
POD = """apiVersion: v1
kind: Pod
metadata: {name: v}
spec:
  nodeSelector:
    LABEL
  containers:
  - name: v
    image: vllm/vllm-openai:v0.11.0
    command: [bash, -c, 'SERVE']
    resources: {limits: {nvidia.com/gpu: 1}}
"""


def texts(key: str) -> Iterator[str]:
    """All ways of one premise, as texts with SERVE in them."""
    ways = WAYS[key]
    yield from (f"{line}\n\n```bash\nSERVE\n```\n" for line in ways["prose"])
    yield from (f"{line}\nSERVE\n" for line in ways["above"])
    yield from (POD.replace("LABEL", label) for label in ways.get("nodes", ()))
    yield from ways["texts"].values()


def rules(text: str, severities: tuple[str, ...] = ("error", "warning")) -> set[str]:
    return {one.rule for one in check_commands(read_document(text), "1.2.1") if one.severity in severities}


@each("text", list(texts("cards")))
def test_a_card_is_known_however_a_text_tells_it(text: str) -> None:
    large = text.replace("SERVE", LARGE)
    assert "weights-do-not-fit" in rules(large)
    assert "weights-do-not-fit" not in rules(large.replace("-14B-", "-0.5B-"))


@each("text", list(texts("gpu_numbers")))
def test_a_number_of_gpus_is_known_however_a_text_tells_it(text: str) -> None:
    few = {"gpus-fewer-than-ranks", "tasks-and-ranks"}
    assert few & rules(text.replace("SERVE", EIGHT))


@each("text", WAYS["nothing"])
def test_a_card_that_is_only_spoken_of_tells_nothing(text: str) -> None:
    assert not rules(text.replace("SERVE", LARGE))


@each("text", WAYS["models"].values())
def test_a_model_is_known_however_a_text_tells_it(text: str) -> None:
    large = "# GPU: L4\n" + text.replace("MODEL_ID", "Qwen/Qwen2.5-14B-Instruct")
    assert "weights-do-not-fit" in rules(large)
    assert "weights-do-not-fit" not in rules(large.replace("14B", "0.5B").replace("14b", "0.5b"))


@each("text", WAYS["releases"].values())
def test_a_release_is_known_however_a_text_tells_it(text: str) -> None:
    gone = text.replace("SERVE", "vllm serve Qwen/Qwen3-8B --use-v2-block-manager")
    assert "vllm-option-gone" in rules(gone, ("error",)) or "vllm-option" in rules(gone, ("error",))
    assert not {"vllm-option-gone", "vllm-option"} & rules(text.replace("SERVE", "vllm serve Qwen/Qwen3-8B"))
