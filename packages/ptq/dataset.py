"""Calibration texts from a data set of the hub, as TensorRT-LLM's quantize.py takes them: the first articles, cut."""

from itertools import islice
from pathlib import Path
from typing import NamedTuple

from serving_base.errors import EnvironmentProblem


class TextDataset(NamedTuple):
    """``path``: an id of the hub, or a folder of this machine. ``column``: where a row has its text."""

    path: str
    name: str | None = None
    split: str = "train"
    column: str = "text"


def cnn_dailymail(path: str) -> TextDataset:
    """What quantize.py calibrates on: articles of 3.0.0 (TensorRT-LLM@42a7b092, get_calib_dataloader)."""
    return TextDataset(path, "3.0.0", "train", "article")


def dataset_texts(dataset: TextDataset, model_dir: Path, samples: int, max_length: int) -> list[list[int]]:
    """Token ids of the first ``samples`` texts, each of ``max_length`` tokens at most; only those are downloaded.

    Raises :class:`EnvironmentProblem` where ``datasets`` is missing or the hub cannot be reached.
    """
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise EnvironmentProblem(
            "this Python has no datasets, which brings the calibration texts", fix="pip install datasets into it"
        ) from error
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    try:
        rows = load_dataset(dataset.path, dataset.name, split=dataset.split, streaming=True)
        texts = [row[dataset.column] for row in islice(rows, samples)]
    except (OSError, ValueError, KeyError) as error:
        raise EnvironmentProblem(
            f"no calibration texts from {dataset.path}: {error}",
            why="a model of the hub is calibrated on real articles; the course's own texts are for the shipped model",
            fix="check the network, HF_ENDPOINT and HF_HUB_OFFLINE, then run the stage again",
        ) from error
    return [tokenizer(text, truncation=True, max_length=max_length)["input_ids"] for text in texts]
