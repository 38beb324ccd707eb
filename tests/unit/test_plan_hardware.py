import gzip
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from playbook import plan
from serving_base import facts
from serving_base.errors import UsageError
from serving_base.facts.gpus import gpu_names, instance, instances
from serving_planner.hardware import gpu, gpu_name, gpus, local_machine

GIB = 2**30
FACTS = Path(facts.__file__).parent


def described() -> dict[str, Any]:
    """What AWS says of its instances, as moto carries it."""
    spec = find_spec("moto")
    assert spec is not None and spec.origin is not None
    with gzip.open(Path(spec.origin).parent / "ec2/resources/instance_types.json.gz") as file:
        content: dict[str, Any] = json.load(file)
    return content


def test_instances_are_what_aws_describes() -> None:
    known = described()
    for name, machine in instances().items():
        entry = known[name]
        (board,) = entry["GpuInfo"]["Gpus"]
        assert (board["Name"], board["Count"]) == (machine.gpu.partition("-")[0].upper(), machine.gpus), name
        assert entry["VCpuInfo"]["DefaultVCpus"] == machine.vcpus
        assert entry["MemoryInfo"]["SizeInMiB"] == machine.memory_gib * 1024
        assert abs(board["MemoryInfo"]["SizeInMiB"] / (gpu(machine.gpu).memory_bytes / 2**20) - 1) < 0.01


def test_no_size_of_the_families_is_missing() -> None:
    families = {"p4d", "p4de", "p5", "p5e", "p5en", "g6", "g6e"}
    assert {name for name in described() if name.split(".")[0] in families} <= set(instances())


def test_every_number_has_a_source_and_the_unread_are_marked() -> None:
    for name, known in gpus().items():
        if known.measured:
            continue
        assert known.source, name
        assert set(known.from_memory) <= set(type(known).model_fields)
        assert 0.95 < known.visible_bytes / known.memory_bytes < 1
    assert "memory_bytes" in gpu("h100-sxm").from_memory
    assert "memory_bytes" not in gpu("l40s").from_memory  # aiconfigurator's system file gives 46068 MiB


def test_peaks_are_dense() -> None:
    # the data sheets' 3958 and 485 TFLOPS count 2:4 sparsity
    for name, flops in {"h100-sxm": 1978e12, "h200": 1978e12, "l4": 242e12, "l40s": 733e12}.items():
        assert gpu(name).dense_flops["fp8"] == flops
    for known in gpus().values():
        if known.fp8 and not known.measured:
            assert known.dense_flops["fp8"] / known.dense_flops["bf16"] == pytest.approx(2, rel=0.02)
    assert "fp8" not in gpu("a100-sxm").dense_flops


def test_an_h200_is_an_h100_with_more_and_faster_memory() -> None:
    h100, h200 = gpu("h100-sxm"), gpu("h200")
    assert h200.dense_flops == h100.dense_flops
    assert h200.bandwidth_bytes_per_s / h100.bandwidth_bytes_per_s == pytest.approx(4.8 / 3.35)
    assert h200.memory_bytes > 1.7 * h100.memory_bytes


@pytest.mark.parametrize(
    ("text", "name"),
    [("H100", "h100-sxm"), ("NVIDIA H200", "h200"), ("l4-24gb", "l4"), ("A100 SXM 80GB", "a100-sxm"), ("l40s", "l40s")],
)
def test_gpu_names(text: str, name: str) -> None:
    assert gpu_name(text) == name


def test_aliases_name_no_other_gpu() -> None:
    entries = yaml.safe_load((FACTS / "gpus.yml").read_text())
    names = [alias for entry in entries.values() for alias in entry["aliases"]] + list(entries)
    assert len(names) == len(set(names))
    assert set(names) == set(gpu_names())


def test_unknown_names_are_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError) as error:
        gpu("h100-pcie")
    assert "use h100-sxm" in error.value.fix
    with pytest.raises(UsageError) as error:
        instance("p5f.48xlarge")
    assert "use p5.48xlarge" in error.value.fix
    assert instance("ml.p5.48xlarge") is instance("p5.48xlarge")


def test_a_measured_machine_is_known_from_then_on() -> None:
    with pytest.raises(UsageError):
        gpu("a laptop of the tests")
    made = local_machine(25e9, 300e9, 8 * GIB, "a laptop of the tests")
    assert gpu("a laptop of the tests") == made
    assert made.dense_flops == {"bf16": 300e9, "fp8": 300e9}
    assert (made.measured, made.source) == (True, "measured here")
    again = local_machine(26e9, 300e9, 8 * GIB, "a laptop of the tests")
    assert gpu("a laptop of the tests") == again != made


@pytest.mark.parametrize("numbers", [(0, 1e9, GIB), (1e9, float("nan"), GIB), (1e9, 1e9, -1)])
def test_what_is_no_measurement_is_refused(numbers: tuple[float, float, int]) -> None:
    with pytest.raises(UsageError, match="is no measurement"):
        local_machine(*numbers, "broken")


@pytest.mark.parametrize("name", ["h100-sxm", "h100"])
def test_a_measurement_does_not_replace_a_gpu(name: str) -> None:
    with pytest.raises(UsageError, match="is a GPU of the planner"):
        local_machine(1e9, 1e9, GIB, name)


def test_the_package_offers_its_names() -> None:
    assert plan.gpu("h100").name == "h100-sxm"
    assert all(getattr(plan, name) is not None for name in plan.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = plan.nothing
