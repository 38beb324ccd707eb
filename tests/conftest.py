"""The tiny model's checkpoints and engines, made once for all tests that need them."""

from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

from playbook.lanes.embedded.build import BuildOptions, build_engine
from playbook.lanes.embedded.quantize import QuantizeOptions, QuantizeReport, quantize_checkpoint
from playbook.tiny import MODEL_DIR

HEAVY = ("test_aiperf", "test_client_faults", "test_gpu_course", "test_kill", "test_nbval", "test_triton_server")
"""They want Triton's own ports or a quiet machine; together they are about half of the work."""
OPTIONS = BuildOptions(max_batch_size=4, max_num_tokens=64, max_input_len=320, max_seq_len=512)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The heavy files come first: the longest piece of work must not be started last."""
    items.sort(key=lambda item: item.path.stem not in HEAVY)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling:
    """Tests that run at the same time are of two files, and never two of the heavy ones."""
    return TwoFiles(config, log)


class TwoFiles(LoadFileScheduling):
    """A file is one worker's, and so are all heavy files together.

    Marks (``--dist loadgroup``) would do, but xdist 3.8 does not see them under pytest 9.2: pytest-xdist issue 1386.
    """

    def _split_scope(self, nodeid: str) -> str:
        name = Path(nodeid.partition("::")[0]).stem
        return "heavy" if name in HEAVY else name


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
