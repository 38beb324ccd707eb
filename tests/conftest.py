"""The tiny model's checkpoints and engines, made once for all tests that need them."""

from pathlib import Path
from typing import Any

import pytest

from cpu_serving.build import BuildOptions, build_engine
from cpu_serving.quantize import QuantizeOptions, QuantizeReport, quantize_checkpoint
from tiny_llama import MODEL_DIR

SERVERS = ("test_client_faults", "test_gpu_course", "test_kill", "test_triton_server")
"""They want Triton's own ports: one worker's work, and so much that it must begin first."""
MEASURED = ("test_nbval", "test_aiperf")
"""They measure, so the machine should be theirs: they come last, when the other worker runs out of work."""
OPTIONS = BuildOptions(max_batch_size=4, max_num_tokens=64, max_input_len=320, max_seq_len=512)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {name: place for place, name in enumerate((*SERVERS, "others", *MEASURED))}
    items.sort(key=lambda item: order.get(item.path.stem, order["others"]))


@pytest.hookimpl(optionalhook=True)  # xdist's own, and the tests run without xdist too
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests that run at the same time are of two files, never two of ``SERVERS`` nor two of ``MEASURED``.

    Marks (``--dist loadgroup``) would do, but xdist 3.8 does not see them under pytest 9.2: pytest-xdist issue 1386.
    """
    from xdist.scheduler import LoadFileScheduling

    class TwoFiles(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            name = Path(nodeid.partition("::")[0]).stem
            return "servers" if name in SERVERS else "measured" if name in MEASURED else name

    return TwoFiles(config, log)


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(MODEL_DIR)


@pytest.fixture(scope="session")
def float32_model() -> Any:
    """transformers' own model: the BF16 weights, computed in float32."""
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(MODEL_DIR, dtype=torch.float32).eval()


@pytest.fixture(scope="session")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("artifacts")


@pytest.fixture(scope="session")
def fp8_report(artifacts: Path) -> QuantizeReport:
    return quantize_checkpoint(MODEL_DIR, artifacts / "checkpoint", QuantizeOptions(calib_samples=32))


@pytest.fixture(scope="session")
def fp8_checkpoint(artifacts: Path, fp8_report: QuantizeReport) -> Path:
    """FP8 weights, activations and KV cache, one rank."""
    return artifacts / "checkpoint"


@pytest.fixture(scope="session")
def bf16_engine(artifacts: Path) -> Path:
    """Built from the Hugging Face folder."""
    build_engine(MODEL_DIR, artifacts / "engine-bf16", OPTIONS)
    return artifacts / "engine-bf16"


@pytest.fixture(scope="session")
def fp8_engine(artifacts: Path, fp8_checkpoint: Path) -> Path:
    build_engine(fp8_checkpoint, artifacts / "engine-fp8", OPTIONS)
    return artifacts / "engine-fp8"
