"""Engine folders of vLLM on a stand-in for it, which any machine can run: tests/stand_in_vllm."""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from serving_base.tokenizer_files import copy_tokenizer
from stand_in_vllm.vllm import END_ID as END_ID
from stand_in_vllm.vllm import log_probability, token
from tiny_llama import MODEL_DIR
from vllm_serving.build import VllmBuildOptions, engine_config, read_model
from vllm_serving.environment import VllmInstallation

LIMITS: dict[str, Any] = {"max_batch_size": 16, "max_num_tokens": 64, "max_input_len": 320, "max_seq_len": 768}


def answer(prompt: Sequence[int], length: int, draw: int = 0) -> tuple[int, ...]:
    """What the stand-in answers when no end token is asked for."""
    return tuple(token(list(prompt), at, draw) for at in range(length))


def answer_to_end(prompt: Sequence[int], length: int) -> tuple[int, ...]:
    """What it answers with an end token, which is not in the answer."""
    whole = answer(prompt, length)
    return whole[: whole.index(END_ID)] if END_ID in whole else whole


def log_probabilities(length: int) -> tuple[float, ...]:
    return tuple(map(log_probability, range(length)))


def stand_in_python(folder: Path, version: str = "0.26.0", package: str = "vllm") -> Path:
    """An interpreter that has the stand-in as this version of this package."""
    metadata = folder / f"{package.replace('-', '_')}-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    program = folder / "python"
    path = f"{Path(__file__).parent / 'stand_in_vllm'}:{folder}"
    program.write_text(f'#!/bin/sh\nexport PYTHONPATH="{path}"\nexec "{sys.executable}" "$@"\n')
    program.chmod(0o755)
    return program


def installation(python: Path, **changes: Any) -> VllmInstallation:
    facts = {"vllm": "0.26.0", "torch": "2.11.0", "cuda": "13.0", "transformers": "5.17.0", "modelopt": None}
    return VllmInstallation(**{"python": python, "device": "cuda", "gpus": 1, **facts, **changes})


def stand_in_engine(folder: Path, fault: str = "", **options: Any) -> Path:
    """An engine folder whose worker runs on the stand-in, with a fault to order."""
    out = folder / "engine"
    model = read_model(MODEL_DIR)
    found = installation(stand_in_python(folder / "environment"))
    config = engine_config(MODEL_DIR, out / "cache", VllmBuildOptions(**{**LIMITS, **options}), found, model)
    config["vllm"]["env"]["VLLM_STAND_IN_FAULT"] = fault
    out.mkdir(parents=True)
    (out / "config.json").write_text(json.dumps(config))
    copy_tokenizer(MODEL_DIR, out)
    return out


@dataclass
class Births:
    """Processes that this one started, and theirs, since this was made."""

    before: frozenset[int]

    def alive(self) -> set[int]:
        return _below() - self.before


@contextmanager
def births() -> Iterator[Births]:
    yield Births(frozenset(_below()))


def _below() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


def workers(pids: set[int]) -> list[psutil.Process]:
    """Of these processes, those that run the worker itself, and not its guards."""
    found = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    return [each for each in found if "worker.py" in " ".join(each.cmdline()[:2])]
