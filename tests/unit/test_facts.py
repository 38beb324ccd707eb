"""A fact stands in packages/serving_base/facts and nowhere else: no key in another file, no number in code."""

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from serving_base.facts.gpus import gpus
from serving_base.facts.models import ModelShape
from serving_base.facts.prices import TokenPrice, price_list
from serving_base.yaml_files import read_yaml
from trtllm_check.rules import all_rules

ROOT = Path(__file__).parents[2]
FACTS = ROOT / "packages" / "serving_base" / "facts"
KEYS = {"memory_gib", "memory_mib", "visible_gib", "bandwidth_bytes_per_s", "dense_flops", "usd_per_hour"}
KEYS |= {field for field in TokenPrice.model_fields if field.startswith("usd_")}
KEYS |= {field for field in ModelShape.model_fields if field.startswith("num_")} | {"hidden_size", "intermediate_size"}
DATA = sorted(
    path for folder in ("playbook", "packages") for path in (ROOT / folder).rglob("*.y*ml") if FACTS not in path.parents
)
CODE = sorted(path for folder in ("playbook", "packages", "benchmarks") for path in (ROOT / folder).rglob("*.py"))


def keys(content: Any) -> Iterator[str]:
    """Keys of everything but sentences: formulas.yml explains what the planner prints under the same names."""
    if isinstance(content, dict):
        yield from (str(key) for key, value in content.items() if not isinstance(value, str))
        for value in content.values():
            yield from keys(value)
    elif isinstance(content, list):
        for value in content:
            yield from keys(value)


def known_numbers() -> set[float]:
    """Of every GPU its peaks, bandwidth and memory, and every price by the hour."""
    found: set[float] = {one.usd_per_hour for one in price_list().instances}
    for gpu in gpus().values():
        found |= {*gpu.dense_flops.values(), gpu.bandwidth_bytes_per_s, gpu.memory_bytes / 2**20, gpu.visible_gib}
    return found


def numbers(source: str) -> set[float]:
    nodes = (node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant))
    return {float(value) for value in nodes if isinstance(value, int | float) and abs(value) < 1e300}


def test_no_other_file_has_the_key_of_a_fact() -> None:
    assert len(DATA) > 50
    homes = {str(path.relative_to(ROOT)): KEYS & set(keys(read_yaml(path))) for path in DATA}
    assert {path: found for path, found in homes.items() if found} == {}


def test_no_code_has_the_number_of_a_fact() -> None:
    known = known_numbers()
    homes = {str(path.relative_to(ROOT)): known & numbers(path.read_text()) for path in CODE}
    assert {path: found for path, found in homes.items() if found} == {}


def test_the_key_of_a_fact_is_seen() -> None:
    assert KEYS & set(keys([{"h300": {"memory_gib": 287}}]))


@pytest.mark.parametrize("text", ["x = 3.35e12", "f(usd=55.04)", "PEAK = {'fp8': 1978e12}", "MIB = 81559"])
def test_a_number_of_a_fact_is_seen(text: str) -> None:
    assert known_numbers() & numbers(text)


@pytest.mark.parametrize("name", ["fp8-needs-hopper-or-ada", "fp8-fmha-needs-hopper-or-ada"])
def test_the_rules_on_fp8_know_every_gpu_without_it(name: str) -> None:
    (rule,) = [one for one in all_rules() if one.id == name]
    named = rule.conditions[0].when["arch"]
    assert isinstance(named, Sequence)
    assert {gpu.architecture for gpu in gpus().values() if not gpu.fp8} <= set(named)
    assert not {gpu.architecture for gpu in gpus().values() if gpu.fp8} & set(named)
