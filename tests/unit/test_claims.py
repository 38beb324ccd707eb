"""What the page says of the articles: complete, with evidence, and with figures that are still what runs give."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import get_args

import pytest
from typer.testing import CliRunner

from checkout import ROOT
from gpu_measurements.hopper import serving
from playbook.article_flags import Effect, article_flags, flags_page
from playbook.articles import article
from playbook.claims import ArticleClaim, ArticleName, article_claims, claims_page
from playbook.cli.app import app
from playbook.course.notebooks import chapters, read

COPIES = Path(__file__).parents[3] / "shared" / "articles"  # beside the checkout, where there is one
have_copies = pytest.mark.skipif(not COPIES.is_dir(), reason="the articles are not beside this checkout")
CLAIMS = article_claims()


def claim(name: str) -> ArticleClaim:
    return next(each for each in CLAIMS.claims if each.id == name)


def test_the_page_is_the_one_that_the_data_makes() -> None:
    assert (ROOT / "docs" / "claims.md").read_text(encoding="utf-8") == claims_page(), "run: make docs"


def test_every_claim_has_a_name_of_its_own_and_evidence() -> None:
    assert [name for name, count in Counter(each.id for each in CLAIMS.claims).items() if count > 1] == []
    assert [each.id for each in CLAIMS.claims if len(each.evidence) < 20 or not each.claim] == []
    assert [each.id for each in CLAIMS.claims if each.measured and not each.chapters] == []
    assert {each.article for each in CLAIMS.claims} == set(get_args(ArticleName))


def test_every_source_is_https_and_used() -> None:
    assert [name for name, url in CLAIMS.sources.items() if not url.startswith("https://") or " " in url] == []
    assert {link for each in CLAIMS.claims for link in each.links} == set(CLAIMS.sources)


def test_every_chapter_exists() -> None:
    chapters = {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert {chapter for each in CLAIMS.claims for chapter in each.chapters} <= chapters


def test_a_row_keeps_its_cells() -> None:
    rows = [line for line in claims_page().splitlines() if line.startswith("| ") and "**" in line]
    assert len(rows) == len(CLAIMS.claims) and {row.count(" | ") for row in rows} == {4}


@have_copies
def test_a_figure_stands_in_its_line() -> None:
    copies = {
        name: (COPIES / article(name).file).read_text(encoding="utf-8").lower().split("\n")
        for name in get_args(ArticleName)
    }
    lines = {each.id: copies[each.article][each.line - 1] for each in CLAIMS.claims}
    assert [name for name, line in lines.items() if not line.strip()] == []
    assert [each.id for each in CLAIMS.claims if each.figure.lower() not in lines[each.id]] == []


@pytest.mark.parametrize("name", CLAIMS.plans)
def test_a_plan_still_says_so(name: str) -> None:
    plan = CLAIMS.plans[name]
    told = json.loads(CliRunner().invoke(app, ["plan", *plan.options.split(), "--json"]).output)
    assert told["output_tokens_per_s"] == pytest.approx(plan.output_tokens_per_s, rel=0.005)
    assert told["joules_per_output_token_at_most"] == pytest.approx(plan.joules_per_output_token, rel=0.005)


def test_every_plan_is_named_in_an_evidence() -> None:
    told = " ".join(each.evidence for each in CLAIMS.claims)
    assert [name for name in CLAIMS.plans if name not in told] == []


def ratios(run: str, base: str) -> str:
    ours, theirs = serving(run), serving(base)
    found = [ours[users].output_tokens_per_s / theirs[users].output_tokens_per_s for users in ours]
    return f"{min(found):.2f} to {max(found):.2f}"


def test_the_ratios_are_those_of_the_measurements() -> None:
    throughput = claim("fp8-throughput").evidence
    assert ratios("8b-fp8", "8b-bf16") in throughput and ratios("70b-tp2-fp8", "70b-tp2-bf16") in throughput
    assert ratios("8b-fp8kv", "8b-fp8") in claim("kv-quantization").evidence
    tpot = serving("8b-bf16")
    told = claim("decode-memory-bound").evidence
    assert [users for users in (1, 32, 128) if f"{tpot[users].tpot_ms_p50:.3g}" not in told] == []


def test_the_joules_are_those_of_the_measurements() -> None:
    bf16, fp8 = serving("8b-bf16"), serving("8b-fp8")
    less = [
        bf16[users].power_w_p50 / bf16[users].output_tokens_per_s / (one.power_w_p50 / one.output_tokens_per_s)
        for users, one in fp8.items()
    ]
    assert f"{min(less):.2f} to {max(less):.2f}" in claim("5x-energy").evidence


def test_the_page_of_the_flags_is_the_one_that_the_data_makes() -> None:
    assert (ROOT / "docs" / "flags_of_the_articles.md").read_text(encoding="utf-8") == flags_page(), "run: make docs"


def test_every_flag_says_when_and_in_which_releases() -> None:
    rows = [line.split(" | ") for line in flags_page().splitlines() if line.startswith("| `")]
    assert len(rows) == len(article_flags()) == len({(flag.tool, flag.name) for flag in article_flags()})
    assert [row[0] for row in rows if len(row) != 7 or not all(cell.strip() for cell in row[:6])] == []
    elsewhere = {flag.value for flag in article_flags() if flag.tool.startswith(("request", "docker"))} | {"engine=MPI"}
    assert [row[0] for row in rows if row[0][3:-1] not in elsewhere and not row[6].strip(" |")] == []


def stored(cell: str) -> str:
    """What the committed chapter shows under ``cell``, without markup."""
    number = cell.partition("-")[0]
    notebook = read(next(chapter for chapter in chapters() if chapter.number == number).path)
    outputs = next(one for one in notebook.cells if one.id == cell).outputs
    shown = [
        one.get("text") or one["data"].get("text/markdown") or one["data"].get("text/plain", "") for one in outputs
    ]
    return "\n".join(shown).replace("*", "")


def missing_figures(effect: Effect) -> list[str]:
    """What the sentence quotes and the cell does not show."""
    shown = stored(effect.cell)
    return [figure for figure in effect.figures if figure not in shown]


def test_each_effect_is_what_its_cell_shows() -> None:
    effects = [flag.effect for flag in article_flags() if flag.effect]
    assert len(effects) >= 15
    assert {effect.kind for effect in effects} == {"measured", "planned", "read"}
    assert {effect.cell: found for effect in effects if (found := missing_figures(effect))} == {}
    for effect in effects:
        numbers = set(re.findall(r"\d[\d,]*\.?\d*%?", " ".join(effect.figures)))
        assert numbers or effect.kind != "planned"


def test_a_figure_that_the_cell_does_not_show_is_found() -> None:
    spoiled = Effect(kind="measured", says="99 steps", cell="11-41", figures=("99 steps", "24"))
    assert missing_figures(spoiled) == ["99 steps"]


@have_copies
def test_a_flag_stands_in_its_line() -> None:
    for flag in article_flags():
        copy = (COPIES / article(flag.article).file).read_text(encoding="utf-8").split("\n")
        assert flag.value in copy[flag.line - 1].replace("\xa0", " "), flag.value
