"""LongBench's rows: read from our sample and from an archive, filtered as FMBench does; and FMBench's throughputs."""

import json
import zipfile
from pathlib import Path

import pytest

from serving_base.errors import UsageError
from trtllm_check.recipes import fmbench, longbench

ROW = {
    "input": "What is two?",
    "context": "Two is one and one.",
    "answers": ["one and one"],
    "length": 5,
    "dataset": "hotpotqa",
    "language": "en",
    "all_classes": None,
    "_id": "a1",
}


def words(text: str) -> int:
    return len(text.split())


def test_the_sample_has_rows_of_two_languages() -> None:
    rows = longbench.read(longbench.SAMPLE)
    assert {row.language for row in rows} == {"en", "zh"}
    assert len({row.id for row in rows}) == len(rows)


def test_a_subset_of_the_archive_is_read(tmp_path: Path) -> None:
    path = tmp_path / "data.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data/hotpotqa.jsonl", json.dumps(ROW) + "\n\n")
        archive.writestr("data/readme.txt", "not a subset")
    (row,) = longbench.read(path, "hotpotqa")
    assert (row.id, row.answers) == ("a1", ("one and one",))
    with pytest.raises(UsageError, match="no subset 'narrativeqa'") as caught:
        longbench.read(path, "narrativeqa")
    assert "hotpotqa" in caught.value.fix


@pytest.mark.parametrize("spoiled", ["{", json.dumps({**ROW, "context": ""}), json.dumps({"text": "x"})])
def test_a_line_that_is_no_row_is_named(tmp_path: Path, spoiled: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(ROW) + "\n" + spoiled + "\n")
    with pytest.raises(UsageError, match=r"rows.jsonl:2 is no row"):
        longbench.read(path)


def test_a_prompt_has_the_whole_text_and_question_in_chat_format() -> None:
    row = longbench.Row.model_validate(ROW)
    assert row.prompt.startswith("<|begin_of_text|><|start_header_id|>user<|end_header_id|>")
    assert row.context in row.prompt
    assert row.prompt.count("<|begin_of_text|>") == 1
    assert f"Question: {row.input}<|eot_id|>" in row.prompt


def test_filters_keep_a_language_and_a_range_of_tokens_and_cut_nothing() -> None:
    rows = longbench.read(longbench.SAMPLE)
    every = longbench.prompts(rows, words, shortest=1, longest=1000)
    assert [one.name for one in every] == [f"playbook_sample-{row.id}" for row in rows if row.language == "en"]
    middle = sorted(one.isl_tokens for one in every)[1:-1]
    kept = longbench.prompts(rows, words, shortest=middle[0], longest=middle[-1])
    assert {one.isl_tokens for one in kept} == set(middle)
    assert {one.text for one in kept} <= {one.text for one in every}


def test_an_empty_selection_says_what_there_is() -> None:
    rows = longbench.read(longbench.SAMPLE)
    with pytest.raises(UsageError) as caught:
        longbench.prompts(rows, words, shortest=5000, longest=6000)
    assert "theirs have" in caught.value.why
    with pytest.raises(UsageError, match="'fr'") as caught:
        longbench.prompts(rows, words, shortest=1, longest=6000, language="fr")
    assert caught.value.why == "no row has this language"


def test_fmbench_is_told_dataset_subset_and_split() -> None:
    assert longbench.fmbench_names(["hotpotqa"]) == ["hf:THUDM/LongBench/hotpotqa/test"]
    assert longbench.DATASET in longbench.fetch_command("data")


def test_throughputs_are_sums_over_the_burst() -> None:
    found = fmbench.throughput([100, 50], [20, 0], 2.0)
    assert found == fmbench.Throughput(75.0, 10.0, 30.0)


@pytest.mark.parametrize(("prompt", "answer", "seconds"), [([], [], 1.0), ([1], [1, 2], 1.0), ([1], [1], 0.0)])
def test_what_is_no_burst_is_refused(prompt: list[int], answer: list[int], seconds: float) -> None:
    with pytest.raises(UsageError, match="a burst has"):
        fmbench.throughput(prompt, answer, seconds)
