"""Prices as dated data with a source each (``prices.yml``); the only place of the playbook that holds one."""

from collections.abc import Callable, Sequence
from datetime import date
from functools import cache
from pathlib import Path
from typing import TypeVar

from pydantic import Field

from serving_base.errors import UsageError
from serving_base.record import Record
from serving_base.yaml_files import read_yaml

PRICES_FILE = Path(__file__).with_name("prices.yml")
ON_DEMAND = "on demand"


class Dated(Record):
    """What every price carries: when it was true, who says so, and how sure that is."""

    date: date
    source: str = Field(min_length=1)
    note: str


D = TypeVar("D", bound=Dated)


class Price(Dated):
    """What an instance costs while it runs."""

    item: str
    instance: str
    option: str
    region: str
    usd_per_hour: float = Field(gt=0)

    def __str__(self) -> str:
        return f"{self.instance} ({self.option}, {self.region}): {self.usd_per_hour} USD/h, {self.date}, {self.note}"


class TokenPrice(Dated):
    """What a service that bills by the token asks for a million of them."""

    service: str
    model: str
    region: str
    usd_per_million_input: float = Field(gt=0)
    usd_per_million_output: float = Field(gt=0)


class LicenceFee(Dated):
    """What a licence costs on top of the instance, for each GPU."""

    item: str
    option: str
    usd_per_gpu_year: float = Field(gt=0)


class PriceList(Record):
    """The whole of ``prices.yml``."""

    instances: tuple[Price, ...]
    licences: tuple[LicenceFee, ...]
    tokens: tuple[TokenPrice, ...]


@cache
def price_list(path: Path = PRICES_FILE) -> PriceList:
    """Every dated price that ships."""
    return PriceList(**read_yaml(path))


def prices() -> list[Price]:
    """The hourly prices of instances."""
    return list(price_list().instances)


def price(instance: str, option: str = ON_DEMAND) -> Price:
    """The hourly price of ``instance``; :class:`UsageError` names what is known when there is none."""
    return _known(
        prices(),
        f"{instance} ({option})",
        lambda entry: f"{entry.instance} ({entry.option})",
        missing=f"no price is known for {instance} ({option})",
        fix="look the price up in your account and pass it yourself, or add it to that file with its date and source",
    )


def known_usd_per_hour(instance: str) -> float:
    """What ``instance`` costs an hour on demand; 0 where no price is known."""
    return next((one.usd_per_hour for one in prices() if (one.instance, one.option) == (instance, ON_DEMAND)), 0.0)


def licence_fee(item: str = "NVIDIA AI Enterprise") -> LicenceFee:
    """The fee per GPU and year of ``item``; :class:`UsageError` if unknown."""
    return _known(
        price_list().licences,
        item,
        lambda entry: entry.item,
        missing=f"no licence fee is known for {item!r}",
        fix="ask its vendor and add it to that file with its date and source",
    )


def token_price(model: str) -> TokenPrice:
    """The price per million tokens of ``model`` where it is billed by the token; :class:`UsageError` if unknown."""
    return _known(
        price_list().tokens,
        model,
        lambda entry: entry.model,
        missing=f"no price per token is known for {model!r}",
        fix="look it up on the service's price page and pass it yourself",
    )


def _known(entries: Sequence[D], wanted: str, name: Callable[[D], str], *, missing: str, fix: str) -> D:
    for entry in entries:
        if name(entry) == wanted:
            return entry
    raise UsageError(missing, why=f"{PRICES_FILE.name} has: {', '.join(map(name, entries)) or 'none'}", fix=fix)
