"""The order of the tests over the workers, and the tiny model's checkpoints and engines, made once for all of them."""

import gc
import os
import pickle
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from contrast import faint_texts
from cpu_serving.build import BuildOptions, build_engine
from made_once import SHARED, made_once
from own_network import may_leave_network, own_network, without_network
from ptq.quantize import QuantizeOptions, QuantizeReport, quantize_checkpoint
from running import LIMIT_S, LONGEST_S, Running
from tiny_llama import MODEL_DIR

APART: dict[str, Callable[[], object]] = {
    "test_gpu_course": may_leave_network,
    "test_nbval": without_network,
    "test_gpu_roads": may_leave_network,
}
"""They want Triton's own ports, each for minutes: where it gets a network of its own, another worker may take it."""
SERVERS = ("test_client_faults", "test_kill", "test_triton_server")
"""They want those ports, too: one worker's work."""
QUANTIZING = ("test_quantize", "test_checkpoint", "test_laboratory", "test_ptq_job", "test_stages")
"""They quantize in the test's own process: one worker's work, for importing ModelOpt takes six seconds of each."""
LONG = (
    "test_runner",
    "test_gpu_lane",
    "test_local_cloud",
    "test_gpu_cloud",
    "test_quantize",
    "test_cli",
    "test_lmi_container",
    "test_papermill_plain",
    "test_gpu_inference",
    "test_churn",
    "test_bootstrap",
    "test_client_load",
    "test_guard",
    "test_packaging",
    "test_compiler",
    "test_nvidia_clients",
    "test_templates_matrix",
    "test_check_matrix",
    "test_secrets",
    "test_check_bad_input",
    "test_plan_fit",
)
"""After those the longest, and those with a test of many seconds: no worker shall end with one
of them alone.
"""
ORDER = (*APART, *SERVERS, *LONG, "others")
OPTIONS = BuildOptions(max_batch_size=4, max_num_tokens=64, max_input_len=320, max_seq_len=512)


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # as in a chapter: two busy threads would wait for each other
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # as there: nothing is compiled by torch
    if "PYTEST_XDIST_WORKER" not in os.environ:
        os.environ[SHARED] = tempfile.mkdtemp(prefix="playbook-tests-")
        config.pluginmanager.register(Running(config, float(os.environ.get(LIMIT_S, LONGEST_S))))


def pytest_unconfigure() -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        shutil.rmtree(os.environ.pop(SHARED))


def pytest_collection_finish() -> None:
    """What is there now stays: looking through it again for garbage is a fifteenth of a worker's time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)


def place(nodeid: str) -> str:
    """The entry of ``ORDER`` that stands for a test."""
    name = Path(nodeid.partition("::")[0]).stem
    name = QUANTIZING[0] if name in QUANTIZING else name
    return name if name in ORDER else "others"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: ORDER.index(place(item.nodeid)))


@cache
def scope_of(name: str) -> str:
    return "servers" if name in SERVERS or (name in APART and not APART[name]()) else name


@pytest.hookimpl(optionalhook=True)  # xdist's own, and the tests run without xdist too
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests that run at the same time are of two files, never two that serve on the same ports.

    Marks (``--dist loadgroup``) would do, but xdist 3.8 does not see them under pytest 9.2: pytest-xdist issue 1386.
    """
    from xdist.scheduler import LoadFileScheduling

    class FileByFile(LoadFileScheduling):  # type: ignore[misc] # xdist has no types
        def _split_scope(self, nodeid: str) -> str:
            name = place(nodeid)
            return Path(nodeid.partition("::")[0]).stem if name == "others" else scope_of(name)

    return FileByFile(config, log)


@pytest.fixture(scope="session", autouse=True)
def service_models() -> Iterator[None]:
    """What botocore reads of the services, read once: every session of its own would parse megabytes of JSON again."""
    import botocore.loaders
    import botocore.session

    once = cache(botocore.loaders.create_loader)
    with pytest.MonkeyPatch.context() as patch:
        for module in (botocore.loaders, botocore.session):
            patch.setattr(module, "create_loader", once)
        yield


@pytest.fixture(scope="module")
def network() -> Iterator[None]:
    """What this module serves has all ports for itself, where the machine lets us; else its worker has them."""
    if may_leave_network():
        with own_network():
            yield
    else:
        yield


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
def fp8_report(fp8_checkpoint: Path) -> QuantizeReport:
    report: QuantizeReport = pickle.loads((fp8_checkpoint.parent / "report.pickle").read_bytes())
    return report


@pytest.fixture(scope="session")
def fp8_checkpoint() -> Path:
    """FP8 weights, activations and KV cache, one rank."""

    def make(out: Path) -> None:
        report = quantize_checkpoint(MODEL_DIR, out / "checkpoint", QuantizeOptions(calib_samples=32))
        (out / "report.pickle").write_bytes(pickle.dumps(report))

    return made_once("fp8-checkpoint", make) / "checkpoint"


@pytest.fixture(scope="session")
def bf16_engine() -> Path:
    """Built from the Hugging Face folder."""
    return made_once("bf16-engine", lambda out: build_engine(MODEL_DIR, out, OPTIONS))


@pytest.fixture(scope="session")
def fp8_engine(fp8_checkpoint: Path) -> Path:
    return made_once("fp8-engine", lambda out: build_engine(fp8_checkpoint, out, OPTIONS))


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[Any, str]]]:
    """(figure, alternative text) of every plot that was shown; every text in them must read well."""
    monkeypatch.setenv("MPLBACKEND", "agg")
    figures: list[tuple[Any, str]] = []
    monkeypatch.setattr(
        "IPython.display.display", lambda figure, metadata: figures.append((figure, metadata["image/png"]["alt"]))
    )
    yield figures
    assert [faint for figure, _ in figures for faint in faint_texts(figure)] == []
