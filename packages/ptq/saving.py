"""The files of modelopt's and transformers' exports, written in threads while the export goes on."""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from serving_base.tensor_files import write_tensors

WRITERS = 8
"""Files at once: a rank's or a shard's each, held on its GPU until it is written."""


@contextmanager
def replaced(module: Any, name: str, value: object) -> Iterator[None]:
    """``module.name`` is ``value`` for a while; where a version has nothing of that name, it does without."""
    if not hasattr(module, name):
        yield
        return
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


@contextmanager
def written_in_threads(module: Any, name: str) -> Iterator[None]:
    """``module.name``, its safetensors' ``save_file``, returns at once; all files are there when this ends.

    An error of a writer is raised then. While each file was waited for, 8B in BF16 took 30 s on an H100.
    """
    waiting: list[Future[None]] = []
    with ThreadPoolExecutor(WRITERS) as pool:

        def save(tensors: Mapping[str, Any], path: str | Path, metadata: Mapping[str, str] | None = None) -> None:
            waiting.append(pool.submit(write_tensors, Path(path), dict(tensors), metadata))

        with replaced(module, name, save):
            yield
    for one in waiting:
        one.result()
