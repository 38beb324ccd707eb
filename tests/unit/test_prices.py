from datetime import date
from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from playbook.profile import PROFILES_DIR, load_profile
from serving_base.errors import UsageError
from serving_base.facts.prices import PRICES_FILE, Price, licence_fee, price, price_list, prices, token_price
from trtllm_check.deployment import changed


def test_every_price_has_a_past_date_and_a_source() -> None:
    known = price_list()
    for entry in (*known.instances, *known.licences, *known.tokens):
        assert entry.date <= date.today() and entry.source and entry.note


def test_an_instance_and_its_option_stand_once() -> None:
    names = [(entry.instance, entry.option) for entry in prices()]
    assert len(names) == len(set(names))


def test_a_profile_costs_what_its_instance_does_unless_it_says_otherwise(tmp_path: Path) -> None:
    p5 = load_profile("p5")
    assert (p5.usd_per_hour, load_profile("local").usd_per_hour) == (price(p5.instance).usd_per_hour, 0)
    mine = tmp_path / "mine.yml"
    mine.write_text((PROFILES_DIR / "p5.yml").read_text() + "usd_per_hour: 41.5\n")
    assert (load_profile(str(mine)).usd_per_hour, changed(load_profile(str(mine)), tp=4).usd_per_hour) == (41.5, 41.5)
    mine.write_text((PROFILES_DIR / "p5.yml").read_text().replace("p5.48xlarge", "my-own-rack"))
    assert load_profile(str(mine)).usd_per_hour == 0


def test_a_price_says_when_and_how_sure() -> None:
    assert str(price("p5.48xlarge", "capacity block")).startswith(
        "p5.48xlarge (capacity block, us-east-1): 39.33 USD/h"
    )
    assert "2024-12-31, old" in str(price("p5.48xlarge", "capacity block"))


def test_an_unknown_price_names_the_known_ones() -> None:
    with pytest.raises(UsageError) as caught:
        price("p5.48xlarge", "reserved")
    assert "ml.p5.48xlarge (on demand)" in caught.value.why
    with pytest.raises(UsageError, match="no price per token"):
        token_price("Llama 9")
    with pytest.raises(UsageError, match="no licence fee"):
        licence_fee("hearsay")
    assert licence_fee().usd_per_gpu_year == 4500
    assert token_price("Llama 3.3 70B Instruct").usd_per_million_input == 0.72


@pytest.mark.parametrize("change", [{"source": ""}, {"usd_per_hour": 0}, {"date": "soon"}, {"currency": "EUR"}])
def test_a_price_without_source_date_or_value_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Price(**{**prices()[0].model_dump(), **change})


def test_another_price_list_can_be_read(tmp_path: Path) -> None:
    content = yaml.safe_load(PRICES_FILE.read_text())
    content["instances"][0]["usd_per_hour"] = 1.5
    mine = tmp_path / "prices.yml"
    mine.write_text(yaml.safe_dump(content))
    assert price_list(mine).instances[0].usd_per_hour == 1.5
