"""Operations of the engine's graph by group, stage by stage (review E20: the row "paged" had no attention)."""

from dataclasses import replace

import pytest

from cpu_serving.build import build_engine
from cpu_serving.profiling import GROUPS
from playbook.engines import describe_compiled, group_operations
from serving import ENGINE_OPTIONS
from tiny_llama import MODEL_DIR


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, int]]:
    folder = tmp_path_factory.mktemp("engine") / "engine"
    build_engine(MODEL_DIR, folder, replace(ENGINE_OPTIONS, max_batch_size=8))
    found = describe_compiled(folder).stages
    for stage in found:
        assert sum(group_operations(stage.counts).values()) == stage.operations
    return {stage.name: group_operations(stage.counts) for stage in found}


def test_attention_is_one_operation_a_layer_in_every_stage(stages: dict[str, dict[str, int]]) -> None:
    assert {name: groups["attention"] for name, groups in stages.items()} == {"written": 4, "paged": 4, "compiled": 4}


def test_the_stages_differ_and_fusing_removes_arithmetic(stages: dict[str, dict[str, int]]) -> None:
    assert stages["written"] != stages["paged"]
    assert stages["compiled"]["arithmetic"] < stages["paged"]["arithmetic"] / 2
    assert stages["written"]["norm or rotary"] == 0 < stages["compiled"]["norm or rotary"]


def test_what_is_unknown_is_counted_as_other() -> None:
    assert group_operations({"MatMul": 2, "Wormhole": 3})["other"] == 3
    kinds = [kind for group in GROUPS.values() for kind in group]
    assert len(kinds) == len(set(kinds))
