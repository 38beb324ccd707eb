"""A running Triton server for tests, on an engine of the tiny model."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from cpu_serving.build import BuildOptions, build_engine
from made_once import copied
from model_server.triton.repository import ServingOptions, write_repository
from model_server.triton.server import TritonServer
from serving_base.servers import choose_ports
from tiny_llama import MODEL_DIR

ENGINE_OPTIONS = BuildOptions(max_batch_size=16, max_num_tokens=1024, max_input_len=256, max_seq_len=768)
END_ID = 2047
PROMPTS = [
    f"{start} {number}" for number in range(4) for start in ("The value of", "Return the", "If the file", "A list of")
]


def build_tiny_engine(folder: Path) -> Path:
    """An engine with ``ENGINE_OPTIONS`` of one's own."""
    return copied("tiny-engine", folder, lambda out: build_engine(MODEL_DIR, out, ENGINE_OPTIONS))


def write_tiny_repository(folder: Path, engine: Path, release: str = "0.12.0", **options: Any) -> Path:
    serving = ServingOptions(engine_dir=engine, tokenizer_dir=MODEL_DIR, **options)
    write_repository(folder, release, serving.values())
    return folder


@contextmanager
def serving(folder: Path, engine: Path, release: str = "0.12.0", **options: Any) -> Iterator[TritonServer]:
    """Write a repository into ``folder`` and serve it, on ports that it keeps over a restart and nobody prefers."""
    http, grpc, metrics = choose_ports((0, 0, 0))
    repository = write_tiny_repository(folder, engine, release, **options)
    with TritonServer(repository, http_port=http, grpc_port=grpc, metrics_port=metrics) as server:
        yield server


def leftovers(pids: tuple[int, ...], regions: set[str]) -> tuple[list[int], list[str]]:
    """Of these processes and /dev/shm regions, those that are still there."""
    alive = [pid for pid in pids if _is_alive(pid)]
    return alive, sorted(region for region in regions if Path("/dev/shm", region).exists())


def regions_of(pids: tuple[int, ...]) -> set[str]:
    """Triton's /dev/shm regions that these processes have mapped."""
    found = set()
    for pid in pids:
        maps = Path(f"/proc/{pid}/maps").read_text()
        found |= {line.rsplit("/", 1)[1] for line in maps.splitlines() if "/dev/shm/triton_" in line}
    return found


def _is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
