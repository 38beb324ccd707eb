"""Facts on commands: widths that ranks cut, options of Model Optimizer's scripts, values by name, lists in any YAML."""

from pathlib import Path

import pytest

from serving_base.facts.widths import cut_widths
from trtllm_check.lint import check_commands, target
from trtllm_check.lint.reading import read_document
from trtllm_check.lint.rules.slurm import SlurmJob
from trtllm_check.releases.modelopt import absent, known_version, modelopt_facts
from trtllm_check.releases.vllm import vllm_facts


def rules_of(path: Path, text: str) -> set[str]:
    path.write_text(text, encoding="utf-8")
    document = read_document(path)
    return {one.rule for one in check_commands(document, target(document))}


@pytest.mark.parametrize(
    ("name", "what", "ranks"),
    [
        ("MiniMaxAI/MiniMax-M2", "FP8", [1, 2, 4]),
        ("deepseek-ai/DeepSeek-V3", "FP8", [1, 2, 4, 8, 16]),
    ],
)
def test_ranks_that_get_whole_blocks(name: str, what: str, ranks: list[int]) -> None:
    widths = cut_widths(name)
    assert widths is not None
    assert (widths.what, widths.ranks()) == (what, ranks)


@pytest.mark.parametrize("name", ["Qwen/Qwen2.5-72B-Instruct", "mine/assistant-fp8", "mine/assistant-awq", ""])
def test_weights_without_blocks_are_not_judged(name: str) -> None:
    assert cut_widths(name) is None


def test_experts_stay_whole_where_they_are_spread() -> None:
    widths = cut_widths("MiniMaxAI/MiniMax-M2")
    assert widths is not None
    assert widths.uneven(8) is not None
    assert widths.uneven(8, spread=True) is None


def test_every_option_of_a_script_of_modelopt_has_releases_that_were_read() -> None:
    facts = modelopt_facts()
    places = {release: number for number, release in enumerate(facts.releases)}
    for options in facts.scripts.values():
        for since, until in options.values():
            assert places[since] <= places[until]


def test_a_release_lacks_what_came_later_and_what_went_before() -> None:
    facts = modelopt_facts()
    script, options = next(iter(facts.scripts.items()))
    for option, (since, until) in options.items():
        assert absent(script, option, since) is None
        assert absent(script, option, until) is None
        if until != facts.releases[-1]:
            gone = absent(script, option, facts.releases[-1])
            assert gone is not None and gone.gone
        if since != facts.releases[0]:
            later = absent(script, option, facts.releases[0])
            assert later is not None and not later.gone


def test_a_version_that_was_not_read_is_none() -> None:
    assert known_version("0.0.1") == ""
    assert known_version("newest") == ""
    assert known_version(modelopt_facts().releases[-1]) == modelopt_facts().releases[-1]


@pytest.mark.parametrize(
    ("option", "value"), [("quantization", "awq"), ("load_format", "safetensors"), ("kv_cache_dtype", "fp8_e4m3")]
)
def test_values_by_name_are_known(option: str, value: str) -> None:
    facts = vllm_facts()
    assert facts.table("values", option)[value].at(facts.newest.place)


def test_a_step_of_a_job_overrules_the_job() -> None:
    job = SlurmJob(nodes=2, per_node=8, node_gpus=8)
    assert (job.tasks, job.all_gpus) == (16, 16)
    assert SlurmJob(ntasks=4).beside(job).tasks == 4
    assert SlurmJob(per_node=4).beside(job).tasks == 8
    assert SlurmJob().beside(job).tasks == 16


def test_lists_that_another_reader_knows_with_their_image_are_left_to_it(tmp_path: Path) -> None:
    lists = "extra_args: [--tensor-parallel-size, '2', --max-model-len, '1', --max-num-seqs, '2', --enforce-eagr]\n"
    assert "vllm-option" in rules_of(tmp_path / "models.yaml", lists)
    assert "vllm-option" not in rules_of(tmp_path / "values.yaml", f"modelURL: org/model\n{lists}")


def test_options_of_another_program_in_yaml_are_none_of_ours(tmp_path: Path) -> None:
    assert not rules_of(tmp_path / "jobs.yaml", "extra_args: [--verbose, --model, x, --outptu, y, --seed, '1']\n")
