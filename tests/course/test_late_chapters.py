"""What chapters 09 and 10 print, by their own cells: prices where they apply, figures with their right names."""

from types import SimpleNamespace as Thing
from typing import Any

import pytest

import playbook
from chapter_cells import code_cells
from playbook.articles import table
from playbook.course.notebooks import chapter, chapters, read

Names = dict[str, Any]


def ran(number: str, *cells: str, **given: Any) -> tuple[Names, list[Any]]:
    """The cells' names after their run, and every table that they showed."""
    shown: list[Any] = []
    choices = Thing(**{name: getattr(playbook.choices, name) for name in playbook.choices.__all__})
    choices.show = lambda rows: shown.append(list(rows))
    course = Thing(articles=playbook.articles, kernels=playbook.kernels, choices=choices)
    lab = Thing(say=lambda text, **figures: shown.append(text.format(**figures)), result=lambda *_: None)
    names: Names = {"choices": choices, "playbook": course, "kernels": playbook.kernels, "lab": lab, **given}
    for cell in cells:
        exec(compile(code_cells(number)[cell], cell, "exec"), names)
    return names, shown


def prose(number: str) -> str:
    found = read(chapter(number, chapters()).path)
    return " ".join(" ".join(cell["source"].split()) for cell in found.cells if cell["cell_type"] == "markdown")


def test_an_endpoint_s_decisions_cost_the_endpoint_s_price_and_an_instance_s_its_own() -> None:
    given = {"hourly": 1.0, "hosted": Thing(usd_per_hour=100.0, instance="ml.x"), "utilisation": 0.3}
    _, (rows,) = ran("10", "10-30", **given)
    cost = {row["what"]: float(row["USD, planned (formula)"].replace(",", "")) for row in rows}
    assert {what.split(":")[0]: usd for what, usd in cost.items() if "EC2" in what} == {"EC2": 511.0}
    assert [usd for what, usd in cost.items() if what.startswith("endpoint")] == [200.0, 100.0, 200.0, 6000.0]


PLANNED = [Thing(instance="p5en.48xlarge", output_tokens_per_s=1.0)]
PLANNED += [Thing(instance="p5.48xlarge", output_tokens_per_s=12203.7)]
SETTING = {
    "instance": "p5.48xlarge",
    "usd_per_hour": 0.0,
    "ranked": PLANNED,
    "input_tokens": 1000,
    "output_tokens": 1000,
}


@pytest.mark.parametrize(
    ("tokens_per_s", "instance", "counts"),
    [(0.0, "p5.48xlarge", "planned"), (500.0, "p5.48xlarge", "measured"), (0.0, "p4d.24xlarge", "planned")],
)
def test_a_throughput_is_called_yours_only_if_you_measured_it(tokens_per_s: float, instance: str, counts: str) -> None:
    profile = Thing(model="llama-3-70b-instruct", instance=instance)
    measured = 700.0 if instance == "p4d.24xlarge" else 0.0  # by chapter 08, on another machine
    lab = Thing(profile=profile)
    names, (rows,) = ran("10", "10-22", **SETTING, tokens_per_s=tokens_per_s, measured=measured, lab=lab)
    assert names["label"].startswith(counts)
    assert any("published" in row["throughput"] for row in rows)


def test_the_break_even_is_given_for_the_plan_that_keeps_the_promise_too() -> None:
    rates = playbook.choices.known_rates("p5.48xlarge", planned=12203.7)
    label, rate = next(iter(rates.items()))
    names, _ = ran("10", "10-26", **SETTING, rates=rates, label=label, rate=rate, hourly=55.04)
    found = {name.split(", ")[1]: f"{share:.0%}" for name, share in names["even"].items() if name.startswith("p5")}
    assert found == {"planned": "87%", "published": "63%"}


def test_a_time_to_live_ends_what_a_schedule_ends() -> None:
    assert "An endpoint without such a schedule bills until somebody finds it." in prose("10")


def test_chapter_09_opens_with_the_article_s_table_as_it_is() -> None:
    _, (rows, _) = ran("09", "09-art-1")
    assert [tuple(cell.strip("`") for cell in row.values()) for row in rows] == [
        row.cells for row in table("aws-kernels").rows
    ]
    order = list(code_cells("09"))
    assert order.index("09-art-1") == 2, "after the parameters and the start"


def test_the_issue_is_told_as_it_is() -> None:
    told = prose("09")
    for word in ("llama-3-chinese-8b", "32.739 ms", "24.488 ms", '"Investigating"', "Our reading"):
        assert word in told
    assert "a decode step took" not in told
