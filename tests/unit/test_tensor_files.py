"""Safetensors files as threads write them, read back by safetensors itself."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from ptq.saving import replaced, written_in_threads
from serving_base.tensor_files import LazyTensor, write_lazy, write_tensors


def some_tensors() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    matrix = torch.randn(6, 10)
    return {
        "eight": matrix.to(torch.float8_e4m3fn),
        "cut": matrix.to(torch.bfloat16)[:, 2:5],  # a view whose rows are apart
        "scale": torch.tensor(0.25),
        "long": torch.arange(3),
        "none": torch.empty(0, 4),
    }


def test_what_is_written_is_what_safetensors_reads(tmp_path: Path) -> None:
    tensors = some_tensors()
    write_tensors(tmp_path / "all.safetensors", tensors, {"format": "pt"})
    read = load_file(tmp_path / "all.safetensors")
    assert read.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert read[name].dtype == tensor.dtype and read[name].shape == tensor.shape
        assert read[name].float().equal(tensor.float())
    with safe_open(tmp_path / "all.safetensors", framework="pt") as file:
        assert file.metadata() == {"format": "pt"}


def test_a_lazy_tensor_is_made_when_its_turn_has_come(tmp_path: Path) -> None:
    made: list[str] = []

    def lazy(name: str, size: int) -> LazyTensor:
        def make() -> torch.Tensor:
            made.append(name)
            return torch.full((size,), float(size))

        return LazyTensor(torch.float32, (size,), make)

    write_lazy(tmp_path / "lazy.safetensors", {name: lazy(name, size) for name, size in (("b", 3), ("a", 2))})
    assert made == ["a", "b"]
    assert load_file(tmp_path / "lazy.safetensors")["b"].tolist() == [3.0, 3.0, 3.0]


def test_an_export_goes_on_while_its_files_are_written_and_ends_with_all_of_them(tmp_path: Path) -> None:
    def save_file(*_: Any) -> None:
        raise AssertionError("replaced")

    library = SimpleNamespace(save_file=save_file)
    with written_in_threads(library, "save_file"):
        for number in range(20):
            library.save_file({"x": torch.tensor([number])}, str(tmp_path / f"{number}.safetensors"), metadata={})
    assert library.save_file is save_file
    assert [int(load_file(tmp_path / f"{number}.safetensors")["x"]) for number in range(20)] == list(range(20))


def test_an_error_of_a_writer_is_the_exports(tmp_path: Path) -> None:
    library = SimpleNamespace(save_file=None)
    with pytest.raises(FileNotFoundError), written_in_threads(library, "save_file"):
        library.save_file({"x": torch.tensor([1])}, tmp_path / "nowhere" / "x.safetensors")


def test_a_version_without_the_name_writes_by_itself() -> None:
    library = SimpleNamespace()
    with replaced(library, "save_file", 1):
        assert vars(library) == {}
